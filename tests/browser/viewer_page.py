"""A page of the viewer, used as its reader would: every action waits until the page has finished with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs

VIEWPORT = {"width": 1280, "height": 800}
# Wait in the page until nothing is pending but the given kinds of work. At least one frame passes first, because a
# resize or a move of the pointer takes effect in the next frame.
SETTLE = """async (allowed) => {
  const root = document.documentElement;
  const deadline = performance.now() + 180_000;
  do {
    await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
    if (performance.now() > deadline) throw new Error(`still pending after 180 s: ${root.dataset.pending}`);
  } while (root.dataset.pending && !allowed.includes(root.dataset.pending));
}"""
# Change the address as a reader does who edits it, and wait for the event. Chromium sends none if nothing changed.
EDIT_ADDRESS = """async (address) => {
  const before = location.href;
  const changed = new Promise((done) => addEventListener("hashchange", done, { once: true }));
  location.hash = address;
  if (location.href !== before) await changed;
}"""
# Leave what a test may have left behind: focus, an open dialog, the scroll position.
LEAVE = """() => {
  document.activeElement?.blur();
  document.querySelector("dialog[open]")?.close();
  scrollTo(0, 0);
}"""
# Where cells and lines lie on the screen.
PLACES = """async () => {
  const { load } = await import("edgewise/data.js");
  const { curveOf, layoutOf } = await import("edgewise/graph.js");
  const view = await load(document);
  const { left, top, width, height } = document.getElementById("board").getBoundingClientRect();
  const layout = layoutOf(view.graph, width, height);
  const cells = Object.fromEntries(view.graph.nodes.map((name, node) => [name, layout.cells[node]]));
  const curves = {};
  for (let edge = 0; edge < view.n; edge++)
    curves[view.edgeName(edge)] = curveOf(layout, view.source[edge], view.head[edge], view.letter[edge]);
  return { left, top, width, height, cells, curves };
}"""
# Record every line that is drawn from now on; clearing the canvas empties the record.
RECORD_LINES = """() => {
  if (window.drawnLines) return;
  const context = document.getElementById("graph").getContext("2d");
  const { clearRect, bezierCurveTo, moveTo } = context;
  let from = null;
  window.drawnLines = [];
  context.clearRect = (...box) => {
    if (box[2] >= context.canvas.width) window.drawnLines = [];
    return clearRect.apply(context, box);
  };
  context.moveTo = (...point) => { from = point; return moveTo.apply(context, point); };
  context.bezierCurveTo = (...points) => {
    window.drawnLines.push({
      curve: [...from, ...points], colour: context.strokeStyle, width: context.lineWidth,
      dash: context.getLineDash(), dashed: context.getLineDash().length > 0, alpha: context.globalAlpha,
    });
    return bezierCurveTo.apply(context, points);
  };
}"""
# Record every message from now on: the page removes a message after four seconds.
RECORD_MESSAGES = """() => {
  const element = document.getElementById("said");
  window.messages = [];
  new MutationObserver(() => element.textContent && window.messages.push(element.textContent))
    .observe(element, { childList: true });
}"""

LINES = f"""async () => {{
  const {{ curves }} = await ({PLACES})();
  const names = new Map(Object.entries(curves).map(([name, curve]) => [curve.join(), name]));
  return window.drawnLines.map(({{ curve, ...line }}) => ({{ ...line, name: names.get(curve.join()) ?? "unknown" }}));
}}"""


@dataclass(frozen=True)
class ViewerPage:
    """A page of the viewer in a browser; `page` is Playwright's."""

    page: Any

    def reset(self) -> ViewerPage:
        """Bring the page back to how it opens."""
        if self.page.viewport_size != VIEWPORT:
            self.resize(**VIEWPORT)
        self.page.mouse.move(0, 0)
        self.page.evaluate(LEAVE)
        # An address without known parts is how the page opens. The page then removes it from the address bar.
        return self.edit_address("#reset")

    def settle(self) -> ViewerPage:
        """Wait until the page has drawn and listed every change."""
        self.page.evaluate(SETTLE, ["address"])
        return self

    def edit_address(self, address: str) -> ViewerPage:
        """Change what follows the page's own address, and wait until the page shows it."""
        # The page may still be about to write the address of an earlier change over ours.
        self.page.evaluate(SETTLE, [])
        self.page.evaluate(EDIT_ADDRESS, address)
        return self.settle()

    def resize(self, width: int, height: int) -> ViewerPage:
        self.page.set_viewport_size({"width": width, "height": height})
        self.page.wait_for_function(
            "([width, height]) => innerWidth === width && innerHeight === height", arg=[width, height]
        )
        return self.settle()

    def click(self, selector: str) -> ViewerPage:
        self.page.locator(selector).click()
        return self.settle()

    def choose(self, selector: str, option: str) -> ViewerPage:
        """Choose an option of a list by its value or label."""
        self.page.locator(selector).select_option(option)
        return self.settle()

    def fill(self, selector: str, text: str) -> ViewerPage:
        self.page.locator(selector).fill(text)
        return self.settle()

    def press(self, *keys: str) -> ViewerPage:
        for key in keys:
            self.page.keyboard.press(key)
            self.settle()
        return self

    def type(self, text: str) -> ViewerPage:
        """Type into what has the focus."""
        self.page.keyboard.type(text)
        return self.settle()

    def size(self, place: int) -> ViewerPage:
        return self.fill("#size-slider", str(place))

    def method(self, row: int) -> ViewerPage:
        return self.click(f"#methods [data-row='{row}']")

    def text(self, selector: str) -> str:
        """Return the visible text of the first element; empty if it is hidden."""
        return self.page.locator(selector).first.evaluate("element => element.innerText ?? element.textContent")

    def listed(self, name: str) -> list[str]:
        """Return all edges of a list."""
        while (more := self.page.locator(f"#list-{name} > button.link")).count():
            more.click()
            self.settle()
        return self.edges_in(f"#list-{name}")

    def edges_in(self, selector: str) -> list[str]:
        """Return the edges that an element shows."""
        elements = self.page.locator(f"{selector} [data-edge]")
        return elements.evaluate_all("elements => elements.map((element) => element.dataset.edge)")

    def pressed(self, selector: str) -> list[str]:
        """Return the labels of the buttons that are pressed."""
        return self.page.locator(f"{selector} [aria-pressed=true]:visible").all_inner_texts()

    def places(self) -> dict[str, Any]:
        """Return where the unzoomed board, the nodes' `cells` and the edges' `curves` lie."""
        return self.page.evaluate(PLACES)

    def record_lines(self) -> ViewerPage:
        """Record the lines that are drawn from now on."""
        self.page.evaluate(RECORD_LINES)
        return self

    def lines(self) -> list[dict[str, Any]]:
        """Return the lines that the circuit was last drawn with, and the names of their edges."""
        return self.page.evaluate(LINES)

    def record_messages(self) -> ViewerPage:
        """Record the messages that are shown from now on."""
        self.page.evaluate(RECORD_MESSAGES)
        return self

    def message(self) -> str:
        """Return the next recorded message, also if the page has removed it again."""
        self.page.wait_for_function("() => window.messages.length > 0")
        return self.page.evaluate("window.messages.shift()")

    def tip(self) -> dict[str, str] | None:
        """Return the tip at the pointer, as a name and facts by their terms; None if there is no tip."""
        self.settle()
        if self.page.locator("#tip").is_hidden():
            return None
        terms = self.page.locator("#tip dt").all_inner_texts()
        facts = self.page.locator("#tip dd").all_inner_texts()
        return {"name": self.text("#tip strong")} | dict(zip(terms, facts, strict=True))

    def hover(self, x: float, y: float) -> dict[str, str] | None:
        """Move the pointer to a place on the screen; return the tip there."""
        self.page.mouse.move(x, y)
        return self.tip()

    def click_at(self, x: float, y: float) -> ViewerPage:
        self.page.mouse.click(x, y)
        return self.settle()

    def click_node(self, name: str) -> ViewerPage:
        places = self.places()
        cell = places["cells"][name]
        return self.click_at(places["left"] + cell["x"], places["top"] + cell["y"])

    def address(self) -> str:
        """Return what follows the page's own address, once the page has written it."""
        self.page.evaluate(SETTLE, [])
        return self.page.evaluate("location.hash")

    def address_parts(self) -> dict[str, str]:
        return {name: values[0] for name, values in parse_qs(self.address()[1:], strict_parsing=False).items()}

    def module(self, name: str, script: str, argument: Any = None) -> Any:
        """Run a function of (the exports of one of the page's modules, an argument) in the page."""
        return self.page.evaluate(
            f"async (argument) => ({script})(await import('edgewise/{name}.js'), argument)", argument
        )
