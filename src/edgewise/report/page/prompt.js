// One example: its two prompts token by token, its answers, and what model and circuits make of it.

import { el } from "edgewise/dom.js";
import { draw } from "edgewise/panel.js";
import { heightRange, heightScale, linePath, shareScale } from "edgewise/plot.js";
import { metricOf, heldExamples, singleFaithfulness } from "edgewise/single.js";
import { sameSize } from "edgewise/state.js";
import { fixed, number, percent } from "edgewise/text.js";
import { pieces } from "edgewise/tokens.js";

const SPARK = { height: 56, side: 6, top: 6, bottom: 6 };

/** What is known of an example, as elements. */
export function promptOf(view, state, example, width) {
  const prompt = view.runs[view.rows[state.row].run].prompts[example];
  return [
    ...(prompt ? [tokenPairs(prompt), answers(prompt)] : [el("p", { class: "quiet" }, "The prompt of this example isn't held.")]),
    ...metrics(view, state, example, width),
  ];
}

/** A token as text in which blanks are visible, but subtly so. */
export function tokenOf(text, attributes = {}) {
  return el("span", attributes, ...pieces(text).map((piece) => (piece.blank ? el("span", { class: "blank" }, piece.text) : piece.text)));
}

/** Clean above corrupted, position by position, those that differ marked. */
function tokenPairs({ clean, corrupted }) {
  const length = Math.max(clean.length, corrupted.length);
  const pairs = Array.from({ length }, (_, place) => {
    const differ = clean[place] !== corrupted[place];
    const side = (tokens, name) => tokenOf(tokens[place] ?? "", { class: `token ${name}`, "data-side": name });
    return el("span", { class: differ ? "pair differ" : "pair", "data-position": place }, side(clean, "clean"), side(corrupted, "corrupted"));
  });
  const names = el("span", { class: "pair names", "aria-hidden": "true" }, el("span", {}, "clean"), el("span", {}, "corrupted"));
  return el("div", { class: "pairs", id: "example-tokens" }, names, ...pairs);
}

function answers({ correct, incorrect }) {
  return el("p", { class: "answers", id: "example-answers" },
    "Right answer ", tokenOf(correct, { class: "token answer correct" }), " against ", tokenOf(incorrect, { class: "token answer incorrect" }));
}

/** The metric of the model, of the circuits and of the empty circuit, and faithfulness over all sizes. */
function metrics(view, state, example, width) {
  const row = view.rows[state.row];
  const run = view.runs[row.run];
  const single = singleFaithfulness(view, row);
  if (!single || example >= heldExamples(row)) return [];
  const circuits = [{ row, size: state.size, kind: "shown" }];
  const other = state.other === null ? null : view.rows[state.other];
  if (other && other.run === row.run && other.metric) circuits.push({ row: other, size: sameSize(view, state.row, state.size, state.other), kind: "other" });
  const line = (kind, name, metric, value) =>
    el("tr", { "data-of": kind }, el("th", { scope: "row" }, el("i", { class: `swatch ${kind}` }), name), el("td", {}, number(metric)), el("td", {}, value));
  const faithful = (value) => (Number.isNaN(value) ? "undefined" : fixed(value));
  const table = el("table", { class: "metrics", id: "example-metrics" },
    el("thead", {}, el("tr", {}, el("th", {}), el("th", { scope: "col" }, "metric"), el("th", { scope: "col" }, "faithfulness"))),
    el("tbody", {},
      line("model", "model", run.full[example], ""),
      ...circuits.map((one) => line(one.kind, circuitName(one), metricOf(one.row, one.size, example), faithful(singleFaithfulness(view, one.row)(one.size, example)))),
      line("empty", "empty circuit", run.empty[example], "")));
  return [table, ...sparkline(view, circuits, example, width)];
}

const circuitName = ({ row, size }) => `${row.label} at ${percent(row.sizes[size].share)}`;

/** Faithfulness on this example over all sizes, and where each circuit lies; nothing for one size. */
function sparkline(view, circuits, example, width) {
  if (circuits[0].row.sizes.length < 2) return [];
  const lines = circuits.map(({ row, size, kind }) => {
    const single = singleFaithfulness(view, row);
    return { size, kind, points: row.sizes.map(({ share }, place) => [share, single(place, example)]) };
  });
  const values = lines.flatMap(({ points }) => points.map(([, value]) => value)).filter((value) => !Number.isNaN(value));
  if (!values.length) return [];
  const x = shareScale(circuits[0].row.sizes.map(({ share }) => share), false, SPARK.side, width - SPARK.side);
  const y = heightScale(heightRange(values), SPARK.top, SPARK.height - SPARK.bottom);
  const marks = [...lines].reverse().flatMap(({ size, kind, points }) => {
    const placed = points.map(([share, value]) => (Number.isNaN(value) ? null : [x(share), y(value)]));
    const now = placed[size];
    return [draw("path", { class: `line ${kind}`, d: linePath(placed) }), ...(now ? [draw("circle", { cx: now[0], cy: now[1], r: 3.5, class: `dot ${kind}` })] : [])];
  });
  const levels = [0, 1].map((value) => draw("line", { x1: 0, x2: width, y1: y(value), y2: y(value), class: value ? "model" : "nothing" }));
  const svg = draw("svg", { class: "spark", id: "example-spark", role: "img", width, height: SPARK.height, viewBox: `0 0 ${width} ${SPARK.height}`, "aria-label": "Faithfulness on this example over all sizes" }, ...levels, ...marks);
  return [el("figure", {}, svg, el("figcaption", { class: "quiet" }, "Faithfulness on this example, from the smallest circuit to the largest"))];
}
