// Examples as bars of their faithfulness, worst first.

import { draw } from "edgewise/dom.js";
import { heightRange, heightScale } from "edgewise/plot.js";
import { faithfulWords, heldExamples, singleFaithfulness, worstFirst } from "edgewise/single.js";
import { sameSize } from "edgewise/state.js";
import { count } from "edgewise/text.js";

export const HEIGHT = 140;
const FRAME = { top: 8, bottom: 24, left: 30, right: 6 };
const UNDEFINED = 3;

/** Draws the examples of a state into an svg so wide, or gives null if none is held. Gives `values` [example], their
 * `order`, `rankOf(example)`, `at(x)`, `hover(example or null)` and `mark(example)`. */
export function drawStrip(svg, view, state, width) {
  const row = view.rows[state.row];
  const single = singleFaithfulness(view, row);
  if (!single) return null;
  const values = Float64Array.from({ length: heldExamples(row) }, (_, example) => single(state.size, example));
  const order = worstFirst(values, row.better);
  const ranks = new Map(order.map((example, rank) => [example, rank]));
  const range = heightRange([], values);
  const scale = heightScale(range, FRAME.top, HEIGHT - FRAME.bottom);
  const place = {
    width, each: (width - FRAME.left - FRAME.right) / order.length,
    x: (rank) => FRAME.left + place.each * rank,
    y: (value) => scale(Math.max(range[0], Math.min(value, range[1]))), // far ones are cut at the frame
  };
  const bars = order.map((example, rank) => barOf(place, values[example], rank));
  const chosen = draw("path", { class: "bar chosen" });
  const mark = draw("path", { class: "chosen" });
  const hovered = words(width - FRAME.right, HEIGHT - 2, "end", "");
  hovered.id = "examples-hover";
  svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
  svg.setAttribute("width", width);
  svg.setAttribute("aria-valuemax", order.length);
  svg.replaceChildren(
    ...["above", "below", "undefined"].map((kind) => barsOf(bars, kind)), chosen,
    ...levels(place), ...otherDots(place, view, state, order), mark,
    ...attentionMarks(place, view.runs[row.run], ranks),
    words(FRAME.left, HEIGHT - 2, "start", "← worst"), hovered);

  const name = (example) => `example ${count(example)} · ${faithfulWords(values[example])}`;
  const last = order.length - 1;
  return {
    values, order,
    rankOf: (example) => ranks.get(example) ?? 0,
    at: (px) => order[Math.max(0, Math.min(Math.floor((px - FRAME.left) / place.each), last))],
    hover(example) {
      hovered.textContent = example === null ? "" : name(example);
    },
    mark(example) {
      const rank = ranks.get(example) ?? 0;
      chosen.setAttribute("d", bars[rank].path);
      mark.setAttribute("d", `M${place.x(rank) + place.each / 2} ${HEIGHT - FRAME.bottom + 1}l4 6h-8z`);
      svg.setAttribute("aria-valuenow", rank + 1);
      svg.setAttribute("aria-valuetext", name(example));
    },
  };
}

function barOf({ x, y, each }, value, rank) {
  const known = !Number.isNaN(value);
  const top = known ? y(Math.max(value, 0)) : y(0) - UNDEFINED;
  const bottom = known ? y(Math.min(value, 0)) : y(0);
  const wide = Math.max(0.5, each - (each > 3 ? 1 : 0)).toFixed(2);
  const high = Math.max(1, bottom - top).toFixed(2);
  return {
    kind: known ? (value < 0 ? "below" : "above") : "undefined",
    path: `M${x(rank).toFixed(2)} ${top.toFixed(2)}h${wide}v${high}h-${wide}z`,
  };
}

// One path for all bars of a kind: hundreds of elements would take long to make again for every size.
function barsOf(bars, kind) {
  const paths = bars.filter((bar) => bar.kind === kind).map((bar) => bar.path);
  return draw("path", { class: `bar ${kind}`, "data-bars": paths.length, d: paths.join("") });
}

const words = (x, y, anchor, text) => draw("text", { x, y, "text-anchor": anchor, class: "axis" }, text);

function levels({ y, width }) {
  const [x1, x2] = [FRAME.left, width - FRAME.right];
  return [0, 1].flatMap((value) => [
    draw("line", { x1, x2, y1: y(value), y2: y(value), class: value ? "model" : "nothing" }),
    words(x1 - 6, y(value) + 4, "end", String(value)),
  ]);
}

/** A square below the bar of each example on which the page has attention. */
function attentionMarks({ x, each }, { patterns }, ranks) {
  const held = (patterns?.examples ?? []).filter((example) => ranks.has(example));
  return held.map((example) => draw("rect", {
    x: x(ranks.get(example)) + each / 2 - 2, y: HEIGHT - FRAME.bottom + 4, width: 4, height: 4,
    class: "attention", "data-example": example,
  }));
}

/** In difference mode, a dot where the other recipe's circuit lies on the same example. */
function otherDots({ x, y, each }, view, state, order) {
  const other = state.other === null ? null : view.rows[state.other];
  const single = other?.run === view.rows[state.row].run ? singleFaithfulness(view, other) : null;
  if (!single) return [];
  const size = sameSize(view, state.row, state.size, state.other);
  const r = Math.max(1.2, Math.min(2.5, each / 2));
  return order
    .map((example, rank) => ({ value: single(size, example), cx: x(rank) + each / 2 }))
    .filter(({ value }) => !Number.isNaN(value))
    .map(({ value, cx }) => draw("circle", { cx, cy: y(value), r, class: "dot other" }));
}
