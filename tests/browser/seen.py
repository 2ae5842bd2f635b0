"""A page as its reader sees and moves it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs

# What a change asks for is drawn in the next frame.
DRAWN = "() => new Promise((done) => requestAnimationFrame(() => setTimeout(done)))"
# The address follows when nothing has moved for a moment: a later timer comes after that one.
FOLLOWED = "() => new Promise((done) => setTimeout(done, 120))"
# An address that says nothing is how the page opens; the number makes it another one than before.
ANEW = """async () => {
  document.activeElement?.blur();
  document.querySelector("dialog[open]")?.close();
  scrollTo(0, 0);
  const drawn = (done) => () => requestAnimationFrame(() => setTimeout(done));
  let address = null;
  do {  // a change of a moment ago may still write its own address over ours
    window.anew = (window.anew ?? 0) + 1;
    address = `#anew=${window.anew}`;
    location.hash = address;
    await new Promise((done) => addEventListener("hashchange", drawn(done), { once: true }));
  } while (location.hash !== address && location.hash !== "");
}"""
# Where cells and lines lie on the screen; what they are, and whether they are drawn, isn't asked here.
PLACES = """async () => {
  const { load } = await import("edgewise/data.js");
  const { curveOf, layoutOf } = await import("edgewise/layout.js");
  const view = await load(document);
  const { left, top, width, height } = document.getElementById("board").getBoundingClientRect();
  const layout = layoutOf(view.graph, width, height);
  const cells = Object.fromEntries(view.graph.nodes.map((name, node) => [name, layout.cells[node]]));
  const curves = {};
  for (let edge = 0; edge < view.n; edge++)
    curves[view.edgeName(edge)] = curveOf(layout, view.source[edge], view.head[edge], view.letter[edge]);
  return { left, top, width, height, cells, curves };
}"""
# Notes every line that is drawn from now on; clearing the canvas starts anew.
WATCHED = """() => {
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

LINES = f"""async () => {{
  const {{ curves }} = await ({PLACES})();
  const names = new Map(Object.entries(curves).map(([name, curve]) => [curve.join(), name]));
  return window.drawnLines.map(({{ curve, ...line }}) => ({{ ...line, name: names.get(curve.join()) ?? "unknown" }}));
}}"""


@dataclass(frozen=True)
class Seen:
    """A page in a browser; `page` is Playwright's."""

    page: Any

    def anew(self) -> Seen:
        """Bring the page back to how it opens."""
        self.page.mouse.move(0, 0)
        self.page.evaluate(ANEW)
        return self

    def drawn(self) -> Seen:
        """Wait until what was asked for is drawn."""
        self.page.evaluate(DRAWN)
        return self

    def click(self, selector: str) -> Seen:
        self.page.locator(selector).click()
        return self.drawn()

    def press(self, *keys: str) -> Seen:
        for key in keys:
            self.page.keyboard.press(key)
            self.drawn()
        return self

    def slide(self, selector: str, value: int) -> Seen:
        """Move a slider, as dragging it does."""
        self.page.locator(selector).fill(str(value))
        return self.drawn()

    def size(self, place: int) -> Seen:
        return self.slide("#size-slider", place)

    def method(self, row: int) -> Seen:
        return self.click(f"#methods [data-row='{row}']")

    def words(self, selector: str) -> str:
        """The text of what is seen; empty if it is hidden."""
        return self.page.locator(selector).first.evaluate("one => one.innerText ?? one.textContent")

    def listed(self, name: str) -> list[str]:
        """The edges of a list, all of them."""
        while (more := self.page.locator(f"#list-{name} > button.link")).count():
            more.click()
        return self.page.locator(f"#list-{name} [data-edge]").evaluate_all("all => all.map((one) => one.dataset.edge)")

    def pressed(self, selector: str) -> list[str]:
        """The words of the buttons that are pressed."""
        return self.page.locator(f"{selector} [aria-pressed=true]:visible").all_inner_texts()

    def places(self) -> dict[str, Any]:
        """Where the nodes' `cells` and the edges' `curves` lie in the unzoomed board, and where the board lies."""
        return self.page.evaluate(PLACES)

    def watch(self) -> Seen:
        """Note the lines that are drawn from now on."""
        self.page.evaluate(WATCHED)
        return self

    def lines(self) -> list[dict[str, Any]]:
        """The lines that the circuit was last drawn with, and the names of their edges."""
        return self.page.evaluate(LINES)

    def tip(self) -> dict[str, str] | None:
        """What is said at the pointer: name, and facts by their terms; None if nothing is."""
        self.drawn()
        if self.page.locator("#tip").is_hidden():
            return None
        terms = self.page.locator("#tip dt").all_inner_texts()
        facts = self.page.locator("#tip dd").all_inner_texts()
        return {"name": self.words("#tip strong")} | dict(zip(terms, facts, strict=True))

    def hover(self, x: float, y: float) -> dict[str, str] | None:
        """Move the pointer to a place on the screen; gives what is said there."""
        self.page.mouse.move(x, y)
        return self.tip()

    def click_node(self, name: str) -> Seen:
        places = self.places()
        cell = places["cells"][name]
        self.page.mouse.click(places["left"] + cell["x"], places["top"] + cell["y"])
        return self.drawn()

    def address(self) -> str:
        """What follows the page's own address, once it has followed."""
        self.page.evaluate(FOLLOWED)
        return self.page.evaluate("location.hash")

    def asked(self) -> dict[str, str]:
        """The address in parts."""
        return {name: values[0] for name, values in parse_qs(self.address()[1:], strict_parsing=False).items()}

    def module(self, name: str, script: str, argument: Any = None) -> Any:
        """Run a function of (the exports of one of the page's modules, an argument) in the page."""
        return self.page.evaluate(
            f"async (argument) => ({script})(await import('edgewise/{name}.js'), argument)", argument
        )
