"""Themes, full screen, help, and use without a mouse."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

DARK = "document.documentElement.dataset.theme === 'dark'"
# How light the page and its words are: 0 to 255.
LIGHTNESS = """() => {
  const light = (colour) => {
    const [red, green, blue] = colour.match(/[\\d.]+/g).map(Number);
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const { backgroundColor, color } = getComputedStyle(document.documentElement);
  return [light(backgroundColor), light(color)];
}"""
CIRCUIT = "document.getElementById('graph').toDataURL()"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_theme_follows_the_system(open_page, path, scheme):
    page = open_page(path, color_scheme=scheme)
    ground, words = page.page.evaluate(LIGHTNESS)
    circuit = page.page.evaluate(CIRCUIT)
    dark = scheme == "dark"
    assert page.page.evaluate(DARK) == dark and (ground < 60) == dark and (words > 180) == dark
    other = {"light": "dark", "dark": "light"}[scheme]
    shown = lambda: page.page.evaluate("document.documentElement.dataset.theme")  # noqa: E731
    page.page.emulate_media(color_scheme=other)  # the sun sets while one reads
    page.page.wait_for_selector(f"[data-theme={other}]")
    assert page.settle().page.evaluate(CIRCUIT) != circuit
    page.page.emulate_media(color_scheme=scheme)
    page.page.wait_for_selector(f"[data-theme={scheme}]")
    assert page.settle().page.evaluate(CIRCUIT) == circuit
    page.click("#theme")
    assert shown() == other and page.address_parts() == {"theme": other}
    # What was chosen stays, whatever the system says.
    page.page.emulate_media(color_scheme=other)
    page.page.emulate_media(color_scheme=scheme)
    page.settle()
    assert shown() == other


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_has_enough_contrast(page, theme):
    """WCAG's contrast of 4.5 to 1 for all text."""
    page.edit_address(f"#theme={theme}&vs=Greedy&node=a1.h0&tab=edges")
    for tab in ("edges", "examples", "attention", "about"):
        page.click(f"#tab-{tab}").page.mouse.move(0, 0)
        assert page.page.evaluate(CONTRASTS) == []


CONTRASTS = """() => {
  const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  const over = (colours) => {
    canvas.clearRect(0, 0, 1, 1);
    for (const colour of colours) { canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1); }
    return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const linear = (value) => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
  const light = (colour) => {
    const [red, green, blue] = colour.map((value) => linear(value / 255));
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const seen = { opacityProperty: true, visibilityProperty: true };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const { data, parentElement: element } = walker.currentNode;
    if (!data.trim() || !element.checkVisibility(seen)) continue;
    // Signs for blanks are there for those who look for them.
    if (element.closest("script, :disabled, option, [aria-hidden=true], svg, .blank")) continue;
    const style = getComputedStyle(element);
    const grounds = [];
    let opacity = 1;
    for (let one = element; one; one = one.parentElement) {
      grounds.unshift(getComputedStyle(one).backgroundColor);
      opacity *= Number(getComputedStyle(one).opacity);
    }
    const ground = over(["white", ...grounds]);
    canvas.globalAlpha = 1;
    const ink = over([`rgb(${ground})`, style.color]).map((value, at) => ground[at] + opacity * (value - ground[at]));
    const [one, two] = [light(ink) + 0.05, light(ground) + 0.05];
    const ratio = Math.max(one, two) / Math.min(one, two);
    if (ratio < 4.5) found.push(`${data.trim().slice(0, 40)}: ${ratio.toFixed(2)} (${element.className})`);
  }
  return [...new Set(found)];
}"""


# [node] how well the darkest and the lightest part of each cell can be told apart.
CELLS = """(places) => {
  const graph = document.getElementById("graph");
  const copy = new OffscreenCanvas(graph.width, graph.height).getContext("2d", { willReadFrequently: true });
  copy.fillStyle = getComputedStyle(document.getElementById("stage")).backgroundColor;
  copy.fillRect(0, 0, graph.width, graph.height);
  copy.drawImage(graph, 0, 0);
  const linear = (value) => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
  return Object.fromEntries(Object.entries(places.cells).map(([name, { x, y, w, h }]) => {
    const { data } = copy.getImageData(x - w / 2 + 3, y - h / 2 + 3, w - 6, h - 6);
    const light = [];
    for (let at = 0; at < data.length; at += 4) {
      const [red, green, blue] = data.slice(at, at + 3);
      light.push(0.05 + 0.2126 * linear(red / 255) + 0.7152 * linear(green / 255) + 0.0722 * linear(blue / 255));
    }
    return [name, Math.max(...light) / Math.min(...light)];
  }));
}"""


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_node_names_are_legible_even_when_dimmed(page, theme):
    plain = page.edit_address(f"#theme={theme}").page.evaluate(CELLS, page.places())
    assert min(plain.values()) > 4, plain
    page.click_node("a1.h0").page.mouse.move(0, 0)
    dimmed = page.settle().page.evaluate(CELLS, page.places())
    assert min(dimmed.values()) > 3, dimmed


@pytest.mark.parametrize("window", [(1100, 700), (1280, 720), (1440, 900)])
@pytest.mark.parametrize("address", ["", "#vs=Greedy"])
def test_lists_fit_on_a_laptop_screen(page, window, address):
    page.resize(*window).edit_address(address)
    rows = page.page.locator("#panel-edges [data-edge]")
    assert rows.first.bounding_box()["y"] + 100 < window[1]  # some are seen at once
    rows.nth(7).scroll_into_view_if_needed()
    page.page.locator("#side").evaluate("side => side.scrollTo(0, side.scrollHeight)")
    tall = page.page.locator("#side").bounding_box()
    boxes = [row.bounding_box() for row in rows.all()]
    assert sum(tall["y"] <= box["y"] and box["y"] + box["height"] <= window[1] for box in boxes) >= 6
    # The tabs stay in sight, and so does the last row.
    assert page.page.locator("#tab-edges").bounding_box()["y"] >= tall["y"] - 1
    assert boxes[-1]["y"] + boxes[-1]["height"] <= window[1]


def test_the_help_is_a_dialog(page):
    page.click("#show-help")
    dialog = page.page.get_by_role("dialog", name="How to read this page")
    assert "The slider under the curve chooses the size" in dialog.inner_text()
    expect(dialog).to_be_visible()
    before = page.page.locator("#size-slider").input_value()
    page.press("ArrowRight", "d")  # the page below keeps still
    expect(page.page.locator("#size-slider")).to_have_value(before)
    dialog.get_by_role("button", name="Close").click()
    expect(dialog).to_be_hidden()


def test_full_screen_button(page):
    page.click("#full-screen")
    page.page.wait_for_function("() => document.fullscreenElement !== null")
    page.click("#full-screen")
    page.page.wait_for_function("() => document.fullscreenElement === null")


FOCUSABLE = """() => [...document.querySelectorAll("a[href], button, input, select, textarea, [tabindex='0']")]
  .filter((one) => !one.disabled && one.tabIndex >= 0 && one.checkVisibility({ visibilityProperty: true }))
  .map((one) => (one.dataset.number ??= String(Math.random())))"""
FOCUSED = "document.activeElement === document.body ? null : document.activeElement.dataset.number ?? 'unknown'"


@pytest.mark.parametrize("tab", ["edges", "examples", "attention"])
def test_tab_reaches_every_control_in_visual_order(page, tab):
    page.click("#difference").click_node("a1.h0").click("#pin").click(f"#tab-{tab}")
    page.page.evaluate("document.activeElement.blur(), getSelection().removeAllRanges()")
    controls = page.page.evaluate(FOCUSABLE)
    page.page.evaluate("document.body.tabIndex = -1, document.body.focus()")
    found = []
    for _ in range(len(controls)):
        page.page.keyboard.press("Tab")
        found.append(page.page.evaluate(FOCUSED))
    page.page.evaluate("document.body.removeAttribute('tabindex')")
    assert found == controls and len(controls) > 25


@pytest.mark.parametrize("tab", ["edges", "examples", "attention", "about"])
def test_every_control_has_an_accessible_name(page, tab):
    page.click("#difference").click_node("a1.h0").click("#pin").click(f"#tab-{tab}")
    session = page.page.context.new_cdp_session(page.page)
    nodes = session.send("Accessibility.getFullAXTree")["nodes"]
    session.detach()
    focusable = [
        node
        for node in nodes
        if not node["ignored"]
        and any(one["name"] == "focusable" and one["value"]["value"] for one in node.get("properties", []))
        and node["role"]["value"] not in ("RootWebArea", "MenuListPopup")
    ]
    unnamed = [node["role"]["value"] for node in focusable if not node.get("name", {}).get("value", "").strip()]
    assert unnamed == [] and len(focusable) > 20
    roles = {node["role"]["value"] for node in focusable}
    assert {"button", "slider", "tab", "combobox", "checkbox"} <= roles


def test_a_focused_control_is_outlined(page):
    for selector in ("#difference", "#size-slider", "#search", "#tab-edges", "#graph"):
        page.page.locator(selector).focus()
        page.press("Shift")  # as by the keyboard
        style, width, shadow = page.page.locator(selector).evaluate(OUTLINE)
        assert (style != "none" and width != "0px") or shadow != "none", selector


OUTLINE = """(one) => {
  const { outlineStyle, outlineWidth, boxShadow } = getComputedStyle(one);
  return [outlineStyle, outlineWidth, boxShadow];
}"""


def test_the_circuit_has_an_accessible_description(page, view):
    words = page.page.locator("#graph").get_attribute("aria-label")
    kept = view.rows[1].sizes[1].kept
    assert words.startswith(f"{view.title}: Circuit of {kept} edges of {view.graph.n_edges}")
    page.size(2)
    assert f"Circuit of {view.rows[1].sizes[2].kept} edges" in page.page.locator("#graph").get_attribute("aria-label")
    assert page.page.locator("#size-slider").get_attribute("aria-valuetext").startswith("30\u00a0%, ")


def test_arrow_keys_move_between_tabs(page):
    page.page.locator("#tab-edges").focus()
    page.press("ArrowRight")
    expect(page.page.locator("#tab-examples")).to_be_focused()
    expect(page.page.locator("#panel-examples")).to_be_visible()
    expect(page.page.locator("#panel-edges")).to_be_hidden()
    page.press("ArrowLeft", "ArrowLeft")
    expect(page.page.locator("#panel-about")).to_be_visible()
    expect(page.page.locator("#size-slider")).to_have_value("1")
