// Names and notes that the reader gives to nodes: text of limited length, never HTML.

import { button, el, write } from "edgewise/dom.js";
import { count, plain } from "edgewise/text.js";

export const MOST_NAME = 24, MOST_NOTE = 280;
// All names and notes of a page together: they are part of its address.
export const MOST_TEXT = 4000;
const NEARLY_FULL = 400;

/** Text as it is kept: one line of at most `most` characters, without anything that hides or turns text. */
function cleaned(text, most) {
  const line = plain(text.replace(/\p{Surrogate}/gu, "\ufffd").replace(/\s+/g, " ").trim());
  return [...line].slice(0, Math.max(0, most)).join("").trim();
}

const lengthOf = (notes) => [...notes.map(({ name, note }) => name + note).join("")].length;

/** Notes [{node, name, note}], by node, with another name and note of one node; without it if both are empty. What
 * exceeds the limits is cut off. */
export function withNote(notes, node, name, note) {
  const others = notes.filter((one) => one.node !== node);
  const room = MOST_TEXT - lengthOf(others);
  const label = cleaned(name, Math.min(MOST_NAME, room));
  const words = cleaned(note, Math.min(MOST_NOTE, room - [...label].length));
  const mine = label || words ? [{ node, name: label, note: words }] : [];
  return [...others, ...mine].sort((one, two) => one.node - two.node);
}

/** The notes of triples [node's name, name, note], which may come from anywhere; what isn't understood is left out. */
export function notesOf(graph, triples) {
  const isText = (value) => typeof value === "string";
  return (Array.isArray(triples) ? triples : []).reduce((notes, triple) => {
    if (!Array.isArray(triple) || triple.length !== 3 || !triple.every(isText)) return notes;
    const node = graph.find(triple[0]);
    return node === null ? notes : withNote(notes, node, triple[1], triple[2]);
  }, []);
}

/** Notes as triples of text. */
export const triplesOf = (graph, notes) => notes.map(({ node, name, note }) => [graph.nodes[node], name, note]);

/** What a node is called in the picture: its name, or a sign that it has a note; "" if it has neither. */
export function calledIn(notes, node) {
  const own = notes.find((one) => one.node === node);
  return own ? own.name || "(note)" : "";
}

/** The names of an edge's two ends, such as "name mover → logits"; "" if neither has one. */
export function edgeCalled(view, notes, edge) {
  const [from, to] = [view.source[edge], view.head[edge]].map((node) => notes.find((one) => one.node === node)?.name ?? "");
  return from || to ? `${from} → ${to}`.trim() : "";
}

/** Fills `element` with fields for the chosen node's name and note; without one, with the list of all notes. */
export function notesPanel(element, view, update) {
  let state = null;
  const change = () => update({ notes: withNote(state.notes, state.node, name.value, note.value) });
  const name = el("input", {
    type: "text", id: "node-name", maxlength: MOST_NAME, placeholder: "Name, such as name mover", autocomplete: "off",
    oninput: () => change(),
  });
  const note = el("textarea", {
    id: "node-note", maxlength: MOST_NOTE, rows: 1, placeholder: "Note", oninput: () => change(),
  });
  const room = el("p", { class: "note", id: "notes-room" });
  const fields = el("div", { class: "fields" }, name, note);
  const list = el("section", { class: "list", id: "list-notes" });
  element.append(fields, room, list);
  const item = (one) => el("li", { "data-note": view.graph.nodes[one.node] },
    button(view.graph.nodes[one.node], () => update({ node: one.node }), { class: "chip small" }),
    " ", el("b", {}, one.name), " ", el("span", {}, one.note));

  return {
    render(now) {
      const same = ["node", "notes", "tab"].every((key) => state?.[key] === now[key]);
      const moved = state?.node !== now.node;
      state = now;
      if (same || now.tab !== "edges") return;
      const own = now.notes.find((one) => one.node === now.node);
      fields.hidden = now.node === null;
      list.hidden = now.node !== null || now.notes.length === 0;
      if (now.node !== null) {
        const title = view.graph.nodes[now.node];
        name.setAttribute("aria-label", `Name of ${title}`);
        note.setAttribute("aria-label", `Note on ${title}`);
        // While the reader types, the field has what was typed, such as a space at its end.
        for (const [field, text] of [[name, own?.name ?? ""], [note, own?.note ?? ""]]) {
          if (moved || document.activeElement !== field) field.value = text;
        }
      }
      const left = MOST_TEXT - lengthOf(now.notes);
      room.hidden = now.node === null || left > NEARLY_FULL;
      write(room, `Names and notes have room for ${count(left)} more of ${count(MOST_TEXT)} characters.`);
      list.replaceChildren(el("h3", {}, "Names and notes"), el("ul", { class: "notes" }, ...now.notes.map(item)));
    },
  };
}
