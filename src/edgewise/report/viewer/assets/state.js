// What is shown, as one frozen value, and the same as an address that can be shared.

import { LETTERS } from "edgewise/graph.js";
import { notesOf, triplesOf } from "edgewise/notes.js";

export const TABS = ["edges", "examples", "attention", "about"];
const CENTRE = { x: 0.5, y: 0.5, k: 1 };
export const MOST_ZOOM = 24;

/** A zoom such that the board stays filled. */
export function filled({ x, y, k }) {
  const scale = Math.max(1, Math.min(MOST_ZOOM, k));
  const inside = (middle) => Math.max(0.5 / scale, Math.min(1 - 0.5 / scale, middle));
  return { x: inside(x), y: inside(y), k: scale };
}

/** The state that a page opens with. */
export function initial(view) {
  const row = within(view.about.shown, view.rows.length);
  return Object.freeze({
    row, size: within(view.about.size, view.rows[row].sizes.length), other: null, truth: view.truth !== null,
    node: null, edge: null, pins: [], notes: view.notes, search: "",
    letters: LETTERS.map(() => true), sign: "both", least: 0, all: false, span: null, colour: "reader",
    tab: "edges", example: 0, head: null, linear: false, theme: "auto", zoom: CENTRE,
  });
}

const within = (number, count) => Math.max(0, Math.min(Number.isInteger(number) ? number : 0, count - 1));

/** Whether the circuit is compared, with another one or with the known one. */
export const isCompared = ({ other, truth }) => other !== null || truth;

/** The state after a change: the size and the second recipe always exist, and there is at most one comparison. */
export function changed(view, state, patch) {
  const next = { ...state, ...patch };
  if (next.row !== state.row && patch.size === undefined) next.size = sameSize(view, state.row, state.size, next.row);
  if (next.other === next.row) next.other = patch.other === undefined && state.row !== next.row ? state.row : null;
  if (patch.truth) next.other = null;
  else if (next.other !== null) next.truth = false;
  return Object.freeze(next);
}

/** The size of another row that is nearest to one of this row: the same share, or else the nearest number of edges. */
export function sameSize(view, row, size, other) {
  const { share, kept } = view.rows[row].sizes[size];
  const sizes = view.rows[other].sizes;
  const distance = (one) => Math.abs(one.share - share) + 1e-9 * Math.abs(one.kept - kept);
  return sizes.reduce((best, one, at) => (distance(one) < distance(sizes[best]) ? at : best), 0);
}

/** The sizes of a row at which its circuit and that of another row have different edges. */
export function differingSizes(view, row, other) {
  const [one, two] = [view.rows[row], view.rows[other]];
  const differs = (size) => {
    const there = sameSize(view, row, size, other);
    for (let edge = 0; edge < view.n; edge++) if (one.has(size, edge) !== two.has(there, edge)) return true;
    return false;
  };
  return [...one.sizes.keys()].filter(differs);
}

/** The measures of the rows, in order; "" for circuits from files. */
export const measuresOf = (view) => [...new Set(view.rows.map((row) => row.measure))];

/** The rows of a measure. */
export const rowsOf = (view, measure) => view.rows.filter((row) => row.measure === measure);

/** The row of the same recipe for another measure, or else the first row there. */
export function sameRow(view, row, measure) {
  const rows = rowsOf(view, measure);
  return (rows.find((one) => one.label === view.rows[row].label) ?? rows[0]).index;
}

/** The state as what follows `#` in an address: only what differs from how the page opens. */
export function toAddress(view, state) {
  const first = initial(view);
  const words = new URLSearchParams();
  const add = (name, value, plain) => value !== plain && words.set(name, value);
  const row = view.rows[state.row];
  if (state.row !== first.row) {
    words.set("method", row.label);
    if (measuresOf(view).length > 1 || row.measure) words.set("metric", row.measure);
  }
  if (state.row !== first.row || state.size !== first.size) words.set("size", short(row.sizes[state.size].share));
  if (state.other !== null) {
    const other = view.rows[state.other];
    words.set("vs", other.label);
    if (other.measure !== row.measure) words.set("vsmetric", other.measure);
  } else add("truth", String(state.truth), String(first.truth));
  if (state.node !== null) words.set("node", view.graph.nodes[state.node]);
  if (state.edge !== null) words.set("edge", view.edgeName(state.edge));
  if (state.pins.length) words.set("pins", state.pins.map((node) => view.graph.nodes[node]).join(" "));
  const triples = triplesOf(view.graph, state.notes);
  if (JSON.stringify(triples) !== JSON.stringify(triplesOf(view.graph, first.notes))) { // unlike those of the file
    if (!triples.length) words.set("name", "");
    for (const [node, name, note] of triples) {
      if (name) words.append("name", `${node} ${name}`);
      if (note) words.append("note", `${node} ${note}`);
    }
  }
  add("search", state.search, "");
  const into = LETTERS.filter((_, at) => state.letters[at]);
  if (into.length < LETTERS.length) words.set("into", into.join(" ") || "none");
  add("sign", state.sign, "both");
  add("least", short(state.least), "0");
  add("all", String(state.all), "false");
  if (state.span !== null) words.set("span", view.graph.spans[state.span]);
  add("colour", state.colour, "reader");
  add("tab", state.tab, "edges");
  add("example", String(state.example), "0");
  if (state.head !== null) words.set("head", view.graph.nodes[state.head]);
  add("axis", state.linear ? "linear" : "log", "log");
  add("theme", state.theme, "auto");
  const { x, y, k } = state.zoom;
  if (k !== 1 || x !== 0.5 || y !== 0.5) words.set("zoom", [k, x, y].map(short).join(" "));
  const address = words.toString();
  return address && `#${address}`;
}

function notesIn(words, view, plain) {
  const texts = new Map();
  for (const key of ["name", "note"]) {
    for (const value of words.getAll(key)) {
      const [, node, text] = /^(\S+) ([^]*)$/.exec(value) ?? [];
      if (node !== undefined) texts.set(node, { ...texts.get(node), [key]: text });
    }
  }
  if (!words.has("name") && !words.has("note")) return plain;
  return notesOf(view.graph, [...texts].map(([node, { name = "", note = "" }]) => [node, name, note]));
}

const short = (number) => String(Number(number.toPrecision(4)));

/** The state of an address; whatever isn't understood there is as the page opens. */
export function fromAddress(view, hash) {
  const first = initial(view);
  const words = new URLSearchParams(hash.replace(/^#/, ""));
  const one = (name, choices, plain) => (choices.includes(words.get(name)) ? words.get(name) : plain);
  const number = (name, least, most, plain) => bounded(words.get(name), least, most) ?? plain;
  const node = (name) => (words.has(name) ? view.graph.find(words.get(name)) : null);
  const row = rowNamed(view, words.get("method"), words.get("metric"), view.rows[first.row]) ?? first.row;
  const here = view.rows[row];
  const vs = words.has("vs") ? rowNamed(view, words.get("vs"), words.get("vsmetric"), here) : null;
  const other = vs === row ? null : vs;
  const truth = view.truth !== null && other === null && words.get("truth") !== "false";
  const into = words.get("into")?.split(" ");
  const [k, x, y] = (words.get("zoom") ?? "").split(" ");
  const head = node("head");
  const share = bounded(words.get("size"), 0, 1);
  const far = (size) => Math.abs(size.share - share);
  return Object.freeze({
    ...first, row,
    size: share === null ? sameSize(view, first.row, first.size, row)
      : here.sizes.reduce((best, size, at) => (far(size) < far(here.sizes[best]) ? at : best), 0),
    other, truth,
    node: node("node"),
    edge: words.has("edge") ? edgeNamed(view, words.get("edge")) : null,
    pins: [...new Set((words.get("pins") ?? "").split(" ").map(view.graph.find).filter((pin) => pin !== null))],
    notes: notesIn(words, view, first.notes),
    search: (words.get("search") ?? "").slice(0, 200),
    letters: into ? LETTERS.map((letter) => into.includes(letter)) : first.letters,
    sign: one("sign", ["both", "positive", "negative"], "both"),
    least: number("least", 0, 1, 0),
    all: words.get("all") === "true",
    span: view.graph.spans.includes(words.get("span")) ? view.graph.spans.indexOf(words.get("span")) : null,
    colour: one("colour", ["reader", "sign"], "reader"),
    tab: one("tab", TABS, "edges"),
    example: Math.round(number("example", 0, Math.max(0, view.runs[here.run].examples - 1), 0)),
    head: head !== null && view.graph.place(head).kind === "head" ? head : null,
    linear: words.get("axis") === "linear",
    theme: one("theme", ["light", "dark"], "auto"),
    zoom: filled({
      x: bounded(x, 0, 1) ?? CENTRE.x, y: bounded(y, 0, 1) ?? CENTRE.y, k: bounded(k, 1, MOST_ZOOM) ?? CENTRE.k,
    }),
  });
}

function bounded(text, least, most) {
  const number = text === null || text === undefined || text.trim() === "" ? NaN : Number(text);
  return Number.isFinite(number) ? Math.max(least, Math.min(most, number)) : null;
}

function rowNamed(view, label, measure, near) {
  const rows = rowsOf(view, measuresOf(view).includes(measure) ? measure : near.measure);
  return rows.find((row) => row.label === label || row.method === label)?.index ?? (label === null ? near.index : null);
}

/** The edge of a name, or null. */
export function edgeNamed(view, name) {
  const [from, to] = name.split("->");
  const source = view.graph.find(from);
  const node = to === undefined || source === null ? null : view.graph.find(to.split("@")[0].replace(/<[qkv]>$/, ""));
  if (node === null) return null;
  for (let edge = 0; edge < view.n; edge++)
    if (view.source[edge] === source && view.head[edge] === node && view.edgeName(edge) === name) return edge;
  return null;
}
