// Attention patterns of a head on an example: clean, corrupted, and how they differ.

import { el } from "edgewise/dom.js";
import { cellSide, gutterFor, heatmap } from "edgewise/heatmap.js";
import { whenChanged } from "edgewise/panel.js";
import { count, counted, fixed, number, percent } from "edgewise/text.js";
import { quoted } from "edgewise/tokens.js";

const GAP = 16;
const NAMED = 12;

/** Fills `element` with a head's patterns, and choices of head and example; moves `head` and `example`. */
export function attentionPanel(element, view, update) {
  let state = null;
  let shown = null;
  const heads = el("select", { id: "attention-head", onchange: () => update({ head: Number(heads.value) }) });
  const examples = el("select", { id: "attention-example", onchange: () => update({ example: Number(examples.value) }) });
  const chosen = el("div", { class: "choices" }, el("label", {}, "Head ", heads), el("label", {}, "Example ", examples));
  const said = el("p", { class: "quiet", id: "attention-said" });
  const point = (query, key) => {
    for (const [side, map] of maps.entries()) map.mark(query, key, query === null || !shown ? "" : reading(shown, side, query, key));
  };
  const maps = ["clean", "corrupted", "difference"].map((name) => heatmap(name, point));
  const scale = el("p", { class: "scales quiet" },
    el("span", {}, "0 ", el("i", { class: "ramp attention" }), " 1, the darker the more a row's token looks at a column's"),
    el("span", {}, "more when corrupted ", el("i", { class: "ramp difference" }), " more when clean"));
  const body = el("div", { class: "maps" }, ...maps.map((map) => map.element));
  element.append(el("div", { class: "panel attention" }, chosen, said, body, scale));
  const width = () => Math.round(element.clientWidth) || 340;
  const ordered = remembered((row, size) => headsByScore(view, view.rows[row], size));

  const renderAll = whenChanged((now) => [now.row, now.size, now.node, now.head, now.example, width(), ...palette()], (now) => {
    const patterns = view.runs[view.rows[now.row].run].patterns;
    const held = Boolean(patterns && patterns.heads.length && patterns.examples.length);
    for (const part of [chosen, body, scale]) part.hidden = !held;
    shown = held ? pick(view, now, patterns, ordered(now.row, now.size)) : null;
    said.textContent = held ? words(view, now, patterns, shown) : "This page holds no attention patterns for this circuit.";
    if (!held) return;
    fillChoices(heads, headGroups(view, shown), shown.head);
    fillChoices(examples, [["", patterns.examples.map((example) => [example, count(example)])]], shown.example);
    drawMaps(maps, shown, width(), palette());
  });
  const render = (now) => {
    state = now;
    if (now.tab === "attention") renderAll(now);
  };
  const again = () => state && render(state);
  new ResizeObserver(again).observe(element);
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
  return { render };
}

/** Colours for canvases, which can't read the style by themselves. */
function palette() {
  const style = getComputedStyle(document.documentElement);
  return ["--sunk", "--here", "--there"].map((name) => style.getPropertyValue(name).trim());
}

function remembered(compute) {
  let [key, value] = ["", null];
  return (...given) => {
    if (String(given) !== key) [key, value] = [String(given), compute(...given)];
    return value;
  };
}

/** [{node, score, inside}] of all heads: those of the circuit first, by the total of their edges' absolute scores. */
function headsByScore(view, row, size) {
  const total = new Float64Array(view.graph.nodes.length);
  const inside = new Uint8Array(view.graph.nodes.length);
  for (let edge = 0; edge < view.n; edge += 1) {
    if (!row.has(size, edge)) continue;
    for (const node of [view.source[edge], view.head[edge]]) {
      total[node] += Math.abs(row.score(edge));
      inside[node] = 1;
    }
  }
  return Array.from(total, (score, node) => ({ node, score, inside: inside[node] === 1 }))
    .filter(({ node }) => view.graph.place(node).kind === "head")
    .sort((one, two) => two.inside - one.inside || two.score - one.score || one.node - two.node);
}

/** What is shown of a state: the head and the example that it asks for, or else the first that are held. */
function pick(view, state, patterns, ordered) {
  const held = new Set(patterns.heads);
  const heads = ordered.filter(({ node }) => held.has(node));
  const isHead = state.node !== null && view.graph.place(state.node).kind === "head";
  const asked = state.head ?? (isHead ? state.node : null);
  const head = held.has(asked) ? asked : heads[0].node;
  const example = patterns.examples.includes(state.example) ? state.example : patterns.examples[0];
  const [clean, corrupted] = [0, 1].map((side) => patterns.at(example, head, side));
  const prompt = view.runs[view.rows[state.row].run].prompts[example];
  return { head, example, asked, heads, clean, corrupted, tokens: [prompt?.clean ?? [], prompt?.corrupted ?? []] };
}

/** What is shown, and what isn't held. */
function words(view, state, patterns, { head, example, asked, heads }) {
  const name = (node) => view.graph.nodes[node];
  const row = view.rows[state.row];
  const inside = heads.filter((one) => one.inside);
  const rank = inside.findIndex((one) => one.node === head);
  const share = percent(row.sizes[state.size].share);
  const place = rank < 0
    ? `${name(head)} isn't in the circuit of ${row.label} at ${share}.`
    : `${name(head)} is head ${count(rank + 1)} of ${count(inside.length)} in the circuit of ${row.label} at ${share}, by the total of its edges' scores (${number(inside[rank].score)}).`;
  const some = heads.slice(0, NAMED).map((one) => name(one.node)).join(", ") + (heads.length > NAMED ? ` and ${counted(heads.length - NAMED, "other")}` : "");
  return [
    asked !== null && asked !== head ? `Patterns of ${name(asked)} aren't held; they are of ${some}.` : "",
    example === state.example ? "" : `Patterns aren't held for example ${count(state.example)}; shown is example ${count(example)}.`,
    place,
  ].filter((one) => one).join(" ");
}

function headGroups(view, { heads }) {
  const option = ({ node, score, inside }) => [node, view.graph.nodes[node] + (inside ? ` · ${number(score)}` : "")];
  return [
    ["in the circuit, by total score", heads.filter((one) => one.inside).map(option)],
    ["not in the circuit", heads.filter((one) => !one.inside).map(option)],
  ].filter(([, options]) => options.length);
}

function fillChoices(select, groups, value) {
  const options = ([, all]) => all.map(([key, text]) => el("option", { value: key }, text));
  select.replaceChildren(...groups.flatMap((group) => (group[0] ? [el("optgroup", { label: group[0] }, ...options(group))] : options(group))));
  select.value = String(value);
}

function drawMaps(maps, { clean, corrupted, tokens }, width, [ground, more, less]) {
  const columns = width >= 1000 ? 3 : width >= 620 ? 2 : 1;
  const { length } = clean;
  const gutter = gutterFor(tokens.flat());
  const side = cellSide(length, (width - GAP * (columns - 1)) / columns, gutter);
  // Attention is mostly small: its square root makes small weights visible.
  const one = (pattern) => (query, key) => [more, Math.sqrt(pattern.value(query, key) / 255)];
  const difference = (query, key) => {
    const change = (clean.value(query, key) - corrupted.value(query, key)) / 255;
    return [change > 0 ? more : less, Math.sqrt(Math.abs(change))];
  };
  const marked = (place) => tokens[0][place] !== tokens[1][place];
  [one(clean), one(corrupted), difference].forEach((paint, which) =>
    maps[which].draw({ tokens: tokens[which === 1 ? 1 : 0], length, side, gutter, ground, paint, marked }));
}

/** What a cell holds, in words. */
function reading({ clean, corrupted, tokens }, side, query, key) {
  const named = (place, of) => (tokens[of][place] === undefined ? `token ${place}` : quoted(tokens[of][place]));
  const change = (clean.value(query, key) - corrupted.value(query, key)) / 255;
  if (side === 2) return `${named(query, 0)} looks at ${named(key, 0)}: ${change > 0 ? "+" : ""}${fixed(change)}`;
  return `${named(query, side)} looks at ${named(key, side)}: ${fixed([clean, corrupted][side].value(query, key) / 255)}`;
}
