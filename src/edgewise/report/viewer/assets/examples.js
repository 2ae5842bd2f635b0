// The Examples tab: faithfulness on every example, worst first; of the selected one its two prompts token by token, its
// answers, and what model and circuits make of it.

import { button, draw, el, SWATCHES, whenChanged, widthOf } from "edgewise/dom.js";
import {
  faithfulWords, heightRange, heightScale, heldExamples, isRatio, metricOf, singleFaithfulness, worstFirst,
} from "edgewise/plot.js";
import { spansOf } from "edgewise/scene.js";
import { sameSize } from "edgewise/state.js";
import { count, counted, fixed, number, percent, pieces } from "edgewise/text.js";

/** How a run keeps attention on more examples. */
export const MORE_ATTENTION = "In Python, discover(attention=N) keeps it on N examples, as far as 1.5 MB allow.";
const MOST_LINKS = 12;

const MEAN = "The faithfulness of a circuit is that of its mean metric over all examples, not the mean of these bars";
const STEPS = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -Infinity, End: Infinity };

/** Fills `element` with a strip of the examples and the one that is chosen; moves `example`. */
export function examplesPanel(element, view, update) {
  let state = null;
  let strip = null;
  const said = el("p", { id: "examples-said", title: MEAN });
  const svg = draw("svg", {
    id: "examples-strip", height: HEIGHT, tabindex: 0, role: "slider", "aria-label": "Example, worst first",
    "aria-valuemin": 1, "data-keys": "",
  });
  const note = el("p", { class: "quiet", id: "examples-note" });
  const parts = ["heading", "prompt", "attention", "outcome"].map((part) => el("div", { id: `example-${part}` }));
  const [heading, prompt, attention, outcome] = parts;
  const detail = el("div", { id: "example-detail" }, ...parts);
  const panel = el("div", { class: "panel examples" }, said, svg, note, detail);
  element.append(panel);

  const go = (example) => update({ example });
  const step = (by) => {
    const rank = strip.rankOf(shownExample(view, state)) + by;
    go(strip.order[Math.max(0, Math.min(rank, strip.order.length - 1))]);
  };
  const renderStrip = whenChanged((now) => [now.row, now.size, width()], (now) => {
    strip = drawStrip(svg, view, now, width());
    svg.toggleAttribute("hidden", strip === null);
    said.replaceChildren(...lead(view, now, strip, go));
    note.textContent = notes(view, now, strip);
    note.hidden = note.textContent === "";
  });
  // Only in circuits of pairs do the marks of tokens depend on the circuit and on what is selected.
  const marked = (now) => (view.span ? [now.row, now.size, now.edge, now.span] : []);
  const promptKeys = (now) => [view.rows[now.row].run, shownExample(view, now), ...marked(now)];
  const renderPrompt = whenChanged(promptKeys, (now) => {
    const { run } = view.rows[now.row];
    const example = shownExample(view, now);
    prompt.replaceChildren(...promptOf(view, now, example));
    attention.replaceChildren(attentionWords(view.runs[run], example, go, () => update({ example, tab: "attention" })));
  });
  const renderOutcome = whenChanged((now) => [now.row, now.size, now.other, now.example], (now) => {
    const example = shownExample(view, now);
    detail.hidden = example < 0;
    strip?.mark(Math.max(0, example));
    heading.replaceChildren(headOf(example, strip, step));
    outcome.replaceChildren(...outcomeOf(view, now, example));
  });
  const render = (now) => {
    state = now;
    if (now.tab !== "examples") return;
    renderStrip(now);
    renderPrompt(now);
    renderOutcome(now);
  };
  const width = widthOf(panel, 340, () => state && render(state));

  svg.addEventListener("keydown", (event) => {
    if (!strip || !(event.key in STEPS)) return;
    event.preventDefault(); // the page's own arrows move the size
    step(STEPS[event.key]);
  });
  svg.addEventListener("pointerdown", (event) => {
    if (!strip || event.button !== 0) return;
    svg.setPointerCapture(event.pointerId);
    go(strip.at(event.offsetX));
  });
  svg.addEventListener("pointermove", (event) => {
    if (!strip) return;
    const example = strip.at(event.offsetX);
    strip.hover(example);
    if (event.buttons & 1) go(example);
  });
  svg.addEventListener("pointerleave", () => strip?.hover(null));
  return { render };
}

/** Returns the example that a state shows: the selected one, or else the last on the page; -1 if there is none. */
function shownExample(view, state) {
  const row = view.rows[state.row];
  const held = Math.max(heldExamples(row), view.runs[row.run].prompts.length);
  return Math.min(state.example, held - 1);
}

function headOf(example, strip, step) {
  const move = (by, title, sign) => button(sign, () => step(by), { "data-step": by, "aria-label": title, title });
  const rank = strip && `${count(strip.rankOf(example) + 1)} of ${count(strip.order.length)} from the worst`;
  return el("header", {},
    el("h3", {}, `Example ${count(example)}`),
    strip && el("span", { class: "quiet" }, rank),
    strip && el("span", { class: "segments" }, move(-1, "A worse example", "‹"), move(1, "A better example", "›")));
}

/** Says whether the page has attention on an example, on which examples it has, and how to get more. */
function attentionWords({ patterns }, example, go, show) {
  const held = patterns?.heads.length ? patterns.examples : [];
  if (held.includes(example)) {
    return el("p", {}, button("Show the attention on this example", show, { class: "link", id: "example-show" }));
  }
  const links = held.slice(0, MOST_LINKS).flatMap((one, place) => [
    place ? ", " : "", button(count(one), () => go(one), { class: "link", "data-example": one })]);
  const more = held.length > MOST_LINKS ? ` and ${counted(held.length - MOST_LINKS, "other")}` : "";
  return el("p", { class: "quiet" }, "The page has no attention on this example",
    ...(held.length ? [`; it has on ${held.length > 1 ? "examples" : "example"} `, ...links, more] : []),
    `. ${MORE_ATTENTION}`);
}

/** Describes the strip. */
function lead(view, state, strip, go) {
  const row = view.rows[state.row];
  if (!strip) return ["The page has no faithfulness of single examples for this circuit."];
  const known = strip.values.filter((value) => !Number.isNaN(value));
  const low = known.filter((value) => value < 0.5).length;
  const [far] = strip.order;
  const ask = row.better > 0 ? "Show the worst" : "Show the one farthest from 1";
  return [
    "Faithfulness of ", el("b", {}, row.label), ` at ${percent(row.sizes[state.size].share)} on each example, worst `,
    `first: ${count(low)} of ${count(known.length)} below 0.5. `,
    button(ask, () => go(far), { class: "link", id: "examples-worst" }),
  ];
}

function notes(view, state, strip) {
  const row = view.rows[state.row];
  const run = view.runs[row.run];
  const held = heldExamples(row);
  const unknown = strip ? strip.values.filter((value) => Number.isNaN(value)).length : 0;
  const why = isRatio(run) ? "the model's metric is about 0" : "model and empty circuit have about the same metric";
  return [
    held && held < run.examples ? `Only the first ${count(held)} of ${counted(run.examples, "example")} are here.` : "",
    unknown ? `Undefined on ${counted(unknown, "example")}, at the right: ${why}.` : "",
  ].filter((words) => words !== "").join(" ");
}

const HEIGHT = 140;
const FRAME = { top: 8, bottom: 24, left: 30, right: 6 };
const UNDEFINED = 3;

/** Draws the examples of a state into an svg so wide, or gives null if none is held. Gives `values` [example], their
 * `order`, `rankOf(example)`, `at(x)`, `hover(example or null)` and `mark(example)`. */
function drawStrip(svg, view, state, width) {
  const row = view.rows[state.row];
  const single = singleFaithfulness(view, row);
  if (!single) return null;
  const values = Float64Array.from({ length: heldExamples(row) }, (_, example) => single(state.size, example));
  const order = worstFirst(values, row.better);
  const ranks = new Map(order.map((example, rank) => [example, rank]));
  const [left, right, bottom] = [FRAME.left, width - FRAME.right, HEIGHT - FRAME.bottom];
  const range = heightRange([], values);
  const scale = heightScale(range, FRAME.top, bottom);
  const each = (right - left) / order.length;
  const x = (rank) => left + each * rank;
  const y = (value) => scale(Math.max(range[0], Math.min(value, range[1]))); // far ones are cut at the frame
  const bars = order.map((example, rank) => {
    const value = values[example], known = !Number.isNaN(value);
    const top = known ? y(Math.max(value, 0)) : y(0) - UNDEFINED;
    const high = Math.max(1, (known ? y(Math.min(value, 0)) : y(0)) - top).toFixed(2);
    const wide = Math.max(0.5, each - (each > 3 ? 1 : 0)).toFixed(2);
    const path = `M${x(rank).toFixed(2)} ${top.toFixed(2)}h${wide}v${high}h-${wide}z`;
    return { kind: known ? (value < 0 ? "below" : "above") : "undefined", path };
  });
  // One path for all bars of a kind: hundreds of elements would take long to make again for every size.
  const barsOf = (kind) => {
    const paths = bars.filter((bar) => bar.kind === kind).map((bar) => bar.path);
    return draw("path", { class: `bar ${kind}`, "data-bars": paths.length, d: paths.join("") });
  };
  const words = (at, up, anchor, text) => draw("text", { x: at, y: up, "text-anchor": anchor, class: "axis" }, text);
  const levels = [0, 1].flatMap((value) => [
    draw("line", { x1: left, x2: right, y1: y(value), y2: y(value), class: value ? "model" : "nothing" }),
    words(left - 6, y(value) + 4, "end", String(value)),
  ]);
  const chosen = draw("path", { class: "bar chosen" });
  const mark = draw("path", { class: "chosen" });
  const hovered = words(right, HEIGHT - 2, "end", "");
  hovered.id = "examples-hover";
  svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
  svg.setAttribute("width", width);
  svg.setAttribute("aria-valuemax", order.length);
  svg.replaceChildren(...["above", "below", "undefined"].map(barsOf), chosen, ...levels, mark,
    words(left, HEIGHT - 2, "start", "← worst"), hovered);

  const name = (example) => `example ${count(example)} · ${faithfulWords(values[example])}`;
  return {
    values, order,
    rankOf: (example) => ranks.get(example) ?? 0,
    at: (px) => order[Math.max(0, Math.min(Math.floor((px - left) / each), order.length - 1))],
    hover(example) {
      hovered.textContent = example === null ? "" : name(example);
    },
    mark(example) {
      const rank = ranks.get(example) ?? 0;
      chosen.setAttribute("d", bars[rank].path);
      mark.setAttribute("d", `M${x(rank) + each / 2} ${bottom + 1}l4 6h-8z`);
      svg.setAttribute("aria-valuenow", rank + 1);
      svg.setAttribute("aria-valuetext", name(example));
    },
  };
}

/** An example's tokens and answers, as elements. Tokens at which the selected edge acts are marked. */
function promptOf(view, state, example) {
  const prompt = view.runs[view.rows[state.row].run].prompts[example];
  if (!prompt) return [el("p", { class: "quiet" }, "Its prompt isn't here.")];
  if (!view.span || !prompt.spans?.length) return [tokenPairs(prompt), answers(prompt)];
  const marks = marksOf(view, state);
  return [tokenPairs(prompt, view.graph.spans, marks), el("p", { class: "quiet", id: "example-acts" }, marks.words),
    answers(prompt)];
}

/** The spans whose tokens are marked: `at`, of the selected edge or selected itself, `also` of the same edge; words. */
function marksOf(view, { row, size, edge, span }) {
  const named = (at) => view.graph.spans[at];
  if (edge === null && span === null) return { also: [], words: "Select an edge or a span to mark its tokens." };
  if (edge === null) return { at: span, also: [], words: `Outlined: the tokens of ${named(span)}.` };
  const at = view.span[edge];
  const acting = spansOf(view, view.rows[row], size, edge).filter((pair) => pair.inside);
  const also = acting.filter((pair) => pair.edge !== edge).map((pair) => view.span[pair.edge]);
  const acts = acting.some((pair) => pair.edge === edge) ? "acts" : "doesn't act in this circuit";
  const others = also.length ? `; dashed: ${also.map(named).join(", ")}, where the same edge also acts` : "";
  return { at, also, words: `Outlined: the tokens of ${named(at)}, where ${view.edgeName(edge)} ${acts}${others}.` };
}

/** What the circuits of a state make of an example, as elements. */
function outcomeOf(view, state, example) {
  const circuits = circuitsOf(view, state, example);
  return circuits.length ? [metrics(view, circuits, example)] : [];
}

/** A token as text in which blanks are visible, but subtly so. */
function tokenOf(text, attributes) {
  const shown = ({ text: words, blank }) => (blank ? el("span", { class: "blank" }, words) : words);
  return el("span", attributes, ...pieces(text).map(shown));
}

/** Clean above corrupted, position by position, those that differ and those of the spans of `marks` marked. */
function tokenPairs({ clean, corrupted, spans }, names, marks) {
  const length = Math.max(clean.length, corrupted.length);
  const pairs = Array.from({ length }, (_, place) => {
    const side = (tokens, name) => tokenOf(tokens[place] ?? "", { class: `token ${name}`, "data-side": name });
    const kinds = ["pair"];
    if (clean[place] !== corrupted[place]) kinds.push("differ");
    if (marks && marks.at === spans[place]) kinds.push("acts");
    else if (marks?.also.includes(spans[place])) kinds.push("acts-too");
    const span = marks ? { title: names[spans[place]], "data-span": names[spans[place]] } : {};
    return el("span", { class: kinds.join(" "), "data-position": place, ...span },
      side(clean, "clean"), side(corrupted, "corrupted"));
  });
  const heads = ["clean", "corrupted"].map((name) => el("span", {}, name));
  return el("div", { class: "pairs", id: "example-tokens" }, el("span", { class: "pair names" }, ...heads), ...pairs);
}

function answers({ correct, incorrect }) {
  return el("p", { id: "example-answers" },
    "Right answer ", tokenOf(correct, { class: "token answer correct" }),
    " against ", tokenOf(incorrect, { class: "token answer incorrect" }));
}

/** The circuits with a metric on an example: the one that is shown and, in difference mode, the other. */
function circuitsOf(view, state, example) {
  const row = view.rows[state.row];
  const found = [{ row, size: state.size, kind: "shown" }];
  const other = state.other === null ? null : view.rows[state.other];
  if (other?.run === row.run) {
    found.push({ row: other, size: sameSize(view, state.row, state.size, state.other), kind: "other" });
  }
  return found
    .map((one) => ({ ...one, single: singleFaithfulness(view, one.row) }))
    .filter((one) => one.single !== null && example < heldExamples(one.row));
}

/** The metric of the model, of the circuits and of the empty circuit. */
function metrics(view, circuits, example) {
  const { full, empty } = view.runs[circuits[0].row.run];
  // Metrics are mostly logit differences, which need no more than two decimals.
  const say = Math.abs(full[example] - empty[example]) >= 0.1 ? fixed : number;
  const line = (kind, name, metric, value) => el("tr", { "data-of": kind },
    el("th", { scope: "row" }, el("i", { class: `swatch ${SWATCHES[kind] ?? "none"}` }), name),
    el("td", {}, say(metric)), el("td", {}, value));
  const heading = ["metric", "faithfulness"].map((name) => el("th", { scope: "col" }, name));
  return el("table", { class: "metrics", id: "example-metrics" },
    el("thead", {}, el("tr", {}, el("td", {}), ...heading)),
    el("tbody", {},
      line("model", "model", full[example], ""),
      ...circuits.map(({ row, size, kind, single }) =>
        line(kind, `${row.label} at ${percent(row.sizes[size].share)}`, metricOf(row, size, example),
          faithfulWords(single(size, example)))),
      line("empty", "empty circuit", empty[example], "")));
}
