// One example: its two prompts token by token, its answers, and what model and circuits make of it.

import { draw, el, SWATCHES } from "edgewise/dom.js";
import {
  faithfulWords, heightRange, heightScale, heldExamples, linePath, metricOf, shareScale, singleFaithfulness,
} from "edgewise/plot.js";
import { spansOf } from "edgewise/scene.js";
import { sameSize } from "edgewise/state.js";
import { fixed, number, percent, pieces } from "edgewise/text.js";

const SPARK = { height: 56, side: 6 };

/** An example's tokens and answers, as elements. Tokens at which the selected edge acts are marked. */
export function promptOf(view, state, example) {
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
export function outcomeOf(view, state, example, width) {
  const circuits = circuitsOf(view, state, example);
  return circuits.length ? [metrics(view, circuits, example), ...sparkline(circuits, example, width)] : [];
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

/** Faithfulness on an example over all sizes, and where each circuit lies; nothing where there is no line. */
function sparkline(circuits, example, width) {
  const lines = circuits.map(({ row, size, kind, single }) => (
    { size, kind, points: row.sizes.map(({ share }, place) => [share, single(place, example)]) }));
  const points = lines.flatMap((line) => line.points);
  const values = points.map(([, value]) => value).filter((value) => !Number.isNaN(value));
  if (values.length < 2) return [];
  const x = shareScale(points.map(([share]) => share), false, SPARK.side, width - SPARK.side);
  const y = heightScale(heightRange(values), 0, SPARK.height);
  const levels = [0, 1].map((value) =>
    draw("line", { x1: 0, x2: width, y1: y(value), y2: y(value), class: value ? "model" : "nothing" }));
  const marks = lines.toReversed().flatMap((line) => {
    const placed = line.points.map(([share, value]) => (Number.isNaN(value) ? null : [x(share), y(value)]));
    const now = placed[line.size];
    const dot = now ? [draw("circle", { cx: now[0], cy: now[1], r: 3.5, class: `dot ${line.kind}` })] : [];
    return [draw("path", { class: `line ${line.kind}`, d: linePath(placed) }), ...dot];
  });
  const words = "Faithfulness on this example, from the smallest circuit to the largest";
  const svg = draw("svg", {
    class: "spark", id: "example-spark", role: "img", "aria-label": words,
    width, height: SPARK.height, viewBox: `0 0 ${width} ${SPARK.height}`,
  }, ...levels, ...marks);
  return [el("figure", {}, svg, el("figcaption", { class: "quiet" }, words))];
}
