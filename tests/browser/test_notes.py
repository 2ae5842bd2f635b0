"""Names and notes of nodes: shown as text, limited in size, kept in the address and in a saved page."""

from __future__ import annotations

import json
import random
import xml.etree.ElementTree as ElementTree

import pytest
from playwright.sync_api import expect

from .sample_views import mask_of, ranked
from .test_export import saved, texts

ILP = 1
NAME, NOTE = "name mover", "copies the indirect object; see section 3"
HOSTILE = "</script><script>hacked=1</script><img src=x onerror=hacked=1> & \"'"
# All text that is written on the canvas from now on.
RECORD_TEXT = """() => {
  const context = document.getElementById("graph").getContext("2d");
  const { fillText } = context;
  window.written = [];
  context.fillText = (words, ...place) => {
    window.written.push(words);
    return fillText.call(context, words, ...place);
  };
}"""


def test_a_name_and_a_note_are_shown_everywhere(page, view):
    page.size(2).page.evaluate(RECORD_TEXT)
    page.click("#list-nodes [data-node=logits]")
    edge = page.listed("into")[0]
    node = edge.split("->")[0]
    page.edit_address(f"#size=0.3&node={node}").fill("#node-name", NAME).fill("#node-note", NOTE)
    assert NAME in page.page.evaluate("window.written")
    assert NAME in page.text("#chosen .node") and page.text("#chosen .node").startswith(node)
    row = page.page.locator(f"[data-edge='{edge}']")
    assert row.locator(".name").text_content() == f"{edge} {NAME} →" and NAME in row.get_attribute("aria-label")
    places = page.places()
    cell = places["cells"][node]
    tip = page.hover(places["left"] + cell["x"], places["top"] + cell["y"])
    assert tip["name"] == node and tip["named"] == NAME and tip["note"] == NOTE
    page.page.mouse.move(0, 0)
    page.page.evaluate("document.activeElement.blur()")
    page.press("Escape")
    assert page.text("#list-notes").split("\n")[0] == "Names and notes"
    for words in (node, NAME, NOTE):
        assert words in page.text(f"[data-note='{node}']")
    svg = ElementTree.fromstring(saved(page, "#export-svg")[1])
    assert NAME in texts(svg)
    # A node is found by its name.
    page.press("/").type("name mover").press("Enter")
    assert page.text("#chosen .node").startswith(node)


def test_typing_keeps_the_focus_and_the_keys(page):
    page.click("#list-nodes [data-node=logits]")
    page.page.locator("#node-name").focus()
    page.type("m d p")
    expect(page.page.locator("#node-name")).to_be_focused()
    expect(page.page.locator("#node-name")).to_have_value("m d p")
    assert page.pressed("#metrics") == ["CMD"] and page.address_parts() == {"node": "logits", "name": "logits m d p"}
    page.fill("#node-name", "")
    assert page.address_parts() == {"node": "logits"}


def test_the_address_keeps_names_and_notes(page, open_page, path):
    page.click("#list-nodes [data-node=logits]").fill("#node-name", "output").fill("#node-note", NOTE)
    page.edit_address(page.address().replace("node=logits", "node=input")).fill("#node-name", "100% + &=#\u00e9")
    other = open_page(path, page.address())
    notes = {"input": "100% + &=#\u00e9", "logits": f"output {NOTE}"}
    other.page.locator("#node-name").blur()
    expect(other.page.locator("#node-name")).to_have_value(notes["input"])
    other.press("Escape")
    for node, words in notes.items():
        assert " ".join(other.text(f"[data-note={node}]").split()) == f"{node} {words}"
    assert other.address() == page.press("Escape").edit_address(other.address()).address()


def test_a_saved_page_keeps_names_and_notes(page, open_page, view, tmp_path):
    page.size(2).click("#list-nodes [data-node=logits]").fill("#node-name", HOSTILE[:20]).fill("#node-note", HOSTILE)
    name, data = saved(page, "#save-page")
    assert name == "tiny-ioi.html"
    path = tmp_path / name
    path.write_bytes(data)
    other = open_page(path)
    assert other.address() == ""
    assert " ".join(other.text("[data-note=logits]").split()) == f"logits {HOSTILE[:20]} {HOSTILE}"
    assert other.page.evaluate("window.hacked") is None and other.page.locator("script").count() == 5
    assert other.listed("all") == ranked(view, ILP, mask_of(view, ILP, 1))
    assert other.page.locator("meta[http-equiv=Content-Security-Policy]").count() == 1
    # It can be saved again, without the notes.
    other.click("#list-notes button").fill("#node-name", "").fill("#node-note", "")
    assert other.address_parts() == {"node": "logits"}
    path.write_bytes(saved(other, "#save-page")[1])
    assert open_page(path).page.locator("[data-note]").count() == 0


def test_deleted_notes_of_a_saved_page_stay_deleted_in_its_address(page, open_page, tmp_path):
    page.click("#list-nodes [data-node=logits]").fill("#node-name", NAME)
    path = tmp_path / "saved.html"
    path.write_bytes(saved(page, "#save-page")[1])
    other = open_page(path).click("#list-notes button").fill("#node-name", "")
    again = open_page(path, other.address())
    assert again.page.locator("[data-note]").count() == 0 and again.address().endswith("name=")


def test_names_and_notes_are_text_of_limited_size(page):
    with_note = "({ withNote }, [notes, ...rest]) => withNote(notes, ...rest)"
    (only,) = page.module("notes", with_note, [[], 3, "x" * 999, "y" * 999])
    assert only == {"node": 3, "name": "x" * 24, "note": "y" * 280}
    (only,) = page.module("notes", with_note, [[], 3, " a\n\tb \u202e", "\ud800"])
    assert only == {"node": 3, "name": r"a b \u202e", "note": "\ufffd"}
    assert page.module("notes", with_note, [[only], 3, " ", "\n"]) == []
    notes = []
    for node in range(17):
        notes = page.module("notes", with_note, [notes, node, "n" * 24, "t" * 280])
    assert sum(len(one["name"]) + len(one["note"]) for one in notes) == 4000


@pytest.mark.parametrize("block", ["null", "{}", '[["logits"]]', '[["logits",1,2],["nowhere","a","b"]]', '["logits"]'])
def test_any_block_of_notes_leaves_a_working_page(open_page, path, tmp_path, block):
    text = path.read_text("utf-8")
    other = tmp_path / "edited.html"
    other.write_text(text.replace('id="notes">[]<', f'id="notes">{block}<'), "utf-8")
    assert other.read_text("utf-8") != text
    page = open_page(other)
    assert page.page.locator("[data-note]").count() == 0 and page.listed("all")


def test_random_notes_round_trip_through_addresses(page, view):
    draw = random.Random(0)
    letters = "ab &=#%+<>\"'\u00e9\U0001f600"
    words = lambda most: "".join(draw.choice(letters) for _ in range(draw.randrange(most))).strip()  # noqa: E731
    triple = lambda: [draw.choice(view.graph.node_names), words(20), words(60)]  # noqa: E731
    cases = [[triple() for _ in range(draw.randrange(5))] for _ in range(50)]
    found = page.module("state", ROUND_TRIP, cases)
    assert [json.dumps(before) for before, _ in found] == [json.dumps(after) for _, after in found]
    assert any(before for before, _ in found)


ROUND_TRIP = """async ({ fromAddress, initial, toAddress }, cases) => {
  const { load } = await import("edgewise/data.js");
  const { notesOf } = await import("edgewise/notes.js");
  const view = await load(document);
  return cases.map((triples) => {
    const notes = notesOf(view.graph, triples);
    return [notes, fromAddress(view, toAddress(view, { ...initial(view), notes })).notes];
  });
}"""
