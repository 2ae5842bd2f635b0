// Attention patterns of a head on an example: clean, corrupted, and how they differ.

import { el } from "edgewise/dom.js";
import { MORE_ATTENTION } from "edgewise/examples.js";
import { cellSide, gutterFor, heatmap } from "edgewise/heatmap.js";
import { calledIn } from "edgewise/notes.js";
import { whenChanged, widthOf } from "edgewise/panel.js";
import { besidePlace } from "edgewise/tip.js";
import { count, counted, fixed, number, percent } from "edgewise/text.js";
import { tokenNamed } from "edgewise/tokens.js";

const GAP = 16;
const NAMED = 12;
const SIDES = ["clean", "corrupted"];
// So many keys are named of those that the last token looks at.
const KEYS = 4;
// Of the room that the panel has, what is above and below a map: its name, and a little air.
const AROUND = 52;

/** Fills `element` with a head's patterns, and choices of head and example; moves `head`, `node` and `example`. */
export function attentionPanel(element, view, update) {
  let state = null;
  let shown = null;
  const choose = (id, act) => el("select", { id, onchange: (event) => act(Number(event.target.value)) });
  // A head that is chosen in the picture comes before this choice, so both move.
  const heads = choose("attention-head", (head) => update(isHead(view, state.node) ? { head, node: head } : { head }));
  const examples = choose("attention-example", (example) => update({ example }));
  const choices = el("div", { class: "choices" },
    el("label", {}, "Head ", heads), el("label", {}, "Example ", examples));
  const said = el("p", { class: "quiet", id: "attention-said" });
  const names = [...SIDES, "difference"];
  const readings = names.map((name) => el("dd", { "data-reading": name }));
  const tip = el("div", { id: "attention-tip", class: "tip", "aria-live": "polite", hidden: true },
    el("dl", {}, ...names.flatMap((name, which) => [el("dt", {}, name), readings[which]])));
  const point = (query, key, box) => {
    const nowhere = query === null || !shown;
    maps.forEach((map) => map.mark(query, key));
    readings.forEach((one, which) => { one.textContent = nowhere ? "" : reading(shown, which, query, key); });
    tip.hidden = nowhere;
    if (!nowhere) besidePlace(tip, box.right, box.bottom);
  };
  const maps = names.map((name) => heatmap(name, point));
  const last = el("dl", { id: "attention-last" });
  const body = el("div", { class: "maps" }, ...maps.map((map) => map.element));
  const scales = el("p", { class: "scales quiet" },
    el("span", {}, "0 ", el("i", { class: "ramp attention" }), " 1: how much a row's token looks at a column's"),
    el("span", {}, "more when corrupted ", el("i", { class: "ramp difference" }), " more when clean"));
  const panel = el("div", { class: "panel attention" }, choices, said, last, body, scales, tip);
  element.append(panel);

  const renderChoices = whenChanged((now) => [now.row, now.size, now.node, now.head, now.example, now.notes], (now) => {
    const { patterns } = view.runs[view.rows[now.row].run];
    const held = Boolean(patterns?.heads.length && patterns.examples.length);
    for (const part of [choices, last, body, scales]) part.hidden = !held;
    shown = held ? pick(view, now, patterns) : null;
    said.textContent = shown ? words(view, now, shown) : `The page has no attention patterns for this circuit. ${MORE_ATTENTION}`;
    if (!shown) return;
    last.replaceChildren(...lastRow(shown));
    fill(heads, headGroups(view, now.notes, shown), shown.head);
    fill(examples, [["", patterns.examples.map((example) => [example, count(example)])]], shown.example);
  });
  const renderMaps = whenChanged(
    (now) => [view.rows[now.row].run, shown?.head, shown?.example, width(), room(), ...palette()],
    () => shown && drawMaps(maps, shown, width(), room(), palette()));
  const render = (now) => {
    state = now;
    if (now.tab !== "attention") return;
    renderChoices(now);
    renderMaps(now);
  };
  const width = widthOf(panel, 340, () => state && render(state));
  // A panel that doesn't scroll by itself is as high as what it holds: there the column or the window is what one sees.
  const scrolls = () => getComputedStyle(element).overflowY === "auto" && element.clientHeight > 0;
  const room = () => Math.min(innerHeight, (scrolls() ? element : element.parentElement).clientHeight) - AROUND;
  addEventListener("resize", () => state && render(state));
  element.addEventListener("scroll", () => { tip.hidden = true; }, { passive: true });
  return { render };
}

const isHead = (view, node) => node !== null && view.graph.place(node).kind === "head";

/** Colours for canvases, which can't read the style by themselves. */
function palette() {
  const style = getComputedStyle(document.documentElement);
  return ["--sunk", "--here", "--there"].map((name) => style.getPropertyValue(name).trim());
}

/** [{node, score, inside}] of all heads: those of a circuit first, by the total of their edges' absolute scores. */
function headsByScore(view, row, size) {
  const total = new Float64Array(view.graph.nodes.length);
  const inside = new Uint8Array(view.graph.nodes.length);
  for (let edge = 0; edge < view.n; edge += 1) {
    if (!row.has(size, edge)) continue;
    const strength = Math.abs(row.scores[edge]);
    for (const node of [view.source[edge], view.head[edge]]) {
      total[node] += strength;
      inside[node] = 1;
    }
  }
  return Array.from(total, (score, node) => ({ node, score, inside: inside[node] === 1 }))
    .filter(({ node }) => isHead(view, node))
    .sort((one, two) => two.inside - one.inside || two.score - one.score || one.node - two.node);
}

/** What is shown of a state: the head and the example that it asks for, or else the first that are held. */
function pick(view, state, patterns) {
  const row = view.rows[state.row];
  const held = new Set(patterns.heads);
  const heads = headsByScore(view, row, state.size).filter(({ node }) => held.has(node));
  const asked = isHead(view, state.node) ? state.node : state.head;
  const head = held.has(asked) ? asked : heads[0].node;
  const example = patterns.examples.includes(state.example) ? state.example : patterns.examples[0];
  const [clean, corrupted] = [0, 1].map((side) => patterns.at(example, head, side));
  const prompt = view.runs[row.run].prompts[example];
  return { asked, head, heads, example, clean, corrupted, tokens: [prompt?.clean ?? [], prompt?.corrupted ?? []] };
}

/** The patterns that are shown, and those that the page lacks. */
function words(view, state, { asked, head, heads, example }) {
  const name = (node) => view.graph.nodes[node];
  const row = view.rows[state.row];
  const circuit = `the circuit of ${row.label} at ${percent(row.sizes[state.size].share)}`;
  const inside = heads.filter((one) => one.inside);
  const rank = inside.findIndex((one) => one.node === head);
  const some = heads.slice(0, NAMED).map((one) => name(one.node)).join(", ");
  const more = heads.length > NAMED ? ` and ${counted(heads.length - NAMED, "other")}` : "";
  return [
    asked === null || asked === head ? "" : `Patterns of ${name(asked)} aren't here; those of ${some}${more} are.`,
    example === state.example ? ""
      : `Patterns on example ${count(state.example)} aren't here; this is example ${count(example)}. ${MORE_ATTENTION}`,
    rank < 0 ? `${name(head)} isn't in ${circuit}.`
      : `${name(head)} ranks ${count(rank + 1)} of ${counted(inside.length, "head")} in ${circuit}, ` +
        `by the total of its edges' scores, ${number(inside[rank].score)}.`,
  ].filter((sentence) => sentence !== "").join(" ");
}

function headGroups(view, notes, { heads }) {
  const option = ({ node, score, inside }) =>
    [node, [view.graph.nodes[node], calledIn(notes, node), inside ? number(score) : ""].filter(Boolean).join(" · ")];
  return [
    ["in the circuit, by total score", heads.filter((one) => one.inside).map(option)],
    ["not in the circuit", heads.filter((one) => !one.inside).map(option)],
  ].filter(([, options]) => options.length);
}

function fill(select, groups, value) {
  const options = (pairs) => pairs.map(([key, text]) => el("option", { value: key }, text));
  select.replaceChildren(...groups.flatMap(([label, pairs]) =>
    label ? [el("optgroup", { label }, ...options(pairs))] : options(pairs)));
  select.value = String(value);
}

/** What the last token looks at most, clean and corrupted: terms and words. */
function lastRow({ clean, corrupted, tokens }) {
  return [clean, corrupted].flatMap((pattern, side) => {
    const query = pattern.length - 1;
    const weight = (key) => pattern.value(query, key) / 255;
    const keys = Array.from({ length: pattern.length }, (_, key) => key);
    const most = keys.sort((one, two) => weight(two) - weight(one) || one - two).slice(0, KEYS);
    const words = most.map((key) => `${tokenNamed(tokens[side], key)} ${fixed(weight(key))}`).join(", ");
    return [
      el("dt", {}, SIDES[side]), el("dd", { "data-last": SIDES[side] },
        `last token ${tokenNamed(tokens[side], query)} looks at ${words}`)];
  });
}

function drawMaps(maps, { clean, corrupted, tokens }, width, height, colours) {
  const columns = width >= 1000 ? 3 : width >= 620 ? 2 : 1;
  const { length } = clean;
  const gutter = gutterFor(tokens.flat());
  const side = cellSide(length, (width - GAP * (columns - 1)) / columns, height, gutter);
  // Most weights are small: the square root keeps them visible.
  const root = (value) => Math.sign(value) * Math.sqrt(Math.abs(value) / 255);
  const one = (pattern) => (query, key) => root(pattern.value(query, key));
  const change = (query, key) => root(clean.value(query, key) - corrupted.value(query, key));
  const marked = (place) => tokens[0][place] !== tokens[1][place];
  [one(clean), one(corrupted), change].forEach((strength, which) =>
    maps[which].draw({ tokens: tokens[which === 1 ? 1 : 0], length, side, gutter, height, colours, strength, marked }));
}

/** What a cell holds, in words. */
function reading({ clean, corrupted, tokens }, side, query, key) {
  const named = (place, of) => tokenNamed(tokens[of], place);
  const weight = (pattern) => pattern.value(query, key) / 255;
  if (side < 2) return `${named(query, side)} looks at ${named(key, side)}: ${fixed(weight([clean, corrupted][side]))}`;
  const both = (place) => [...new Set([named(place, 0), named(place, 1)])].join(" or ");
  const change = weight(clean) - weight(corrupted);
  return `${both(query)} looks at ${both(key)}: ${change > 0 ? "+" : ""}${fixed(change)}`;
}
