// The drawing of the faithfulness curve: the parts that change with the size are drawn over the fixed ones.

import { draw } from "edgewise/dom.js";
import { bandPath, heightRange, heightScale, heightTicks, linePath, shareScale, shareTicks } from "edgewise/plot.js";
import { isRatio } from "edgewise/single.js";
import { fixed, number, percent } from "edgewise/text.js";
import { elided } from "edgewise/tokens.js";

// The words above the frame name the size of the goal: within the frame they would hide curves.
const MARGIN = { top: 24, right: 14, bottom: 34, left: 34 };
const LETTER = 5.6;
const NEAR = 18;
const LONGEST = 30;

/** Whether a row was evaluated at more than one size, so that there is a line to draw. */
export const hasCurve = (row) => row.sizes.filter((size) => size.faithfulness !== null).length > 1;

/** Draws the curves of a state into an svg so wide; gives `sizeAt(x)`, `point(size)` that moves the crosshair, and
 * `name(x, y)` that names the line there. */
export function drawChart(svg, view, state, width) {
  const shown = view.rows[state.row];
  const rows = drawnRows(view, state);
  const place = placing(rows, state.linear, width);
  const ratio = isRatio(view.runs[shown.run]);
  const paths = rows.map(({ row, kind }) =>
    draw("path", { class: `line ${kind}`, "data-row": row.index, d: linePath(row.sizes.map(place.point)) }));
  const [behind, now] = [draw("g"), draw("g")];
  const named = draw("g", { class: "named" });
  svg.setAttribute("viewBox", `0 0 ${width} ${place.height}`);
  svg.setAttribute("width", width);
  svg.setAttribute("height", place.height);
  svg.replaceChildren(
    clipOf(place), axes(place, ratio ? "" : "nothing", view.sizeUnit), behind,
    lines(place, rows, shown, paths, state.linear),
    ...(shown.reached === null ? [] : [goalMark(place, shown)]), now, named);

  return {
    sizeAt(at) {
      const far = (size) => Math.abs(place.x(size.share) - at);
      return shown.sizes.reduce((best, size, which) => (far(size) < far(shown.sizes[best]) ? which : best), 0);
    },
    point(which) {
      const at = place.x(shown.sizes[which].share);
      behind.replaceChildren(upright(at, place.top - 4, place.bottom, "cross"));
      now.replaceChildren(...pointOf(place, shown.sizes[which], which));
    },
    name(px, py) {
      const best = nearest(place, rows, px, py);
      for (const path of paths) path.classList.toggle("hover", Number(path.dataset.row) === best?.row.index);
      named.replaceChildren(...(best ? nameTag(place, best) : []));
    },
  };
}

/** The rows to draw, {row, kind}, faint first: all with a curve of the shown row's run and measure, and the other. */
function drawnRows(view, state) {
  const shown = view.rows[state.row];
  const rank = (row) => (row.index === state.row ? 2 : row.index === state.other ? 1 : 0);
  const beside = (row) => row.run === shown.run && row.benchmark === shown.benchmark;
  return view.rows
    .filter((row) => hasCurve(row) && (rank(row) || beside(row)))
    .map((row) => ({ row, kind: ["rest", "other", "shown"][rank(row)] }))
    .sort((one, two) => rank(one.row) - rank(two.row));
}

/** Where everything goes: the frame, its ranges and ticks, and scales from shares and faithfulness to pixels. */
function placing(rows, linear, width) {
  // A short window leaves room for the list below.
  const height = Math.round(Math.min(232, Math.max(180, width * 0.5), Math.max(124, 0.24 * innerHeight - 28)));
  const [left, right, top, bottom] = [MARGIN.left, width - MARGIN.right, MARGIN.top, height - MARGIN.bottom];
  const shares = rows.flatMap(({ row }) => row.sizes.map((size) => size.share));
  const values = (faint) => rows
    .filter(({ kind }) => (kind === "rest") === faint)
    .flatMap(({ row }) => row.sizes.map((size) => size.faithfulness))
    .filter((value) => value !== null);
  const range = heightRange(values(false), values(true));
  const x = shareScale(shares, linear, left, right);
  const y = heightScale(range, top, bottom);
  return {
    width, height, left, right, top, bottom, x, y,
    across: shareTicks(shares, linear), up: heightTicks(range),
    point: (size) => (size.faithfulness === null ? null : [x(size.share), y(size.faithfulness)]),
    /** Words beside a place, on the side that has room. */
    beside: (at, height, words, kind) => {
      const before = at > (left + right) / 2;
      return label(at + (before ? -8 : 8), height, words, before ? "end" : "start", kind);
    },
  };
}

const label = (x, y, words, anchor, kind) => draw("text", { x, y, "text-anchor": anchor, class: kind }, words);

function clipOf({ left, right, top, bottom }) {
  const box = { x: left - 6, y: top - 6, width: right - left + 12, height: bottom - top + 6 };
  return draw("clipPath", { id: "curve-clip" }, draw("rect", box));
}

function axes({ x, y, left, right, bottom, width, height, across, up }, zero, unit) {
  const kinds = { 0: "nothing", 1: "model" };
  const parts = up.flatMap((tick) => [
    draw("line", { x1: left, x2: right, y1: y(tick), y2: y(tick), class: kinds[tick] ?? "grid" }),
    label(left - 6, y(tick) + 4, number(tick), "end", "tick"),
  ]);
  across.forEach((tick, place) => {
    parts.push(draw("line", { x1: x(tick), x2: x(tick), y1: bottom, y2: bottom + 4, class: "mark" }));
    const last = place === across.length - 1 && x(tick) > right - 14; // it would stand out at the right
    parts.push(label(last ? width : x(tick), bottom + 15, percent(tick), last ? "end" : "middle", "tick"));
  });
  return draw("g", { class: "axes" }, ...parts,
    label(left + 4, y(1) - 5, "the model", "start", "axis"),
    label(right - 2, y(0) - 4, zero, "end", "axis"),
    label((left + right) / 2, height - 4, `share of ${unit}s asked for`, "middle", "axis"));
}

function lines(place, rows, shown, paths, linear) {
  const { x, y } = place;
  const known = shown.sizes.filter((size) => size.low !== null && size.high !== null);
  const side = (part) => known.map((size) => [x(size.share), y(size[part])]);
  const evaluated = shown.sizes.filter((size) => size.faithfulness !== null);
  const base = y(shown.better > 0 ? 0 : 1);
  const area = bandPath(evaluated.map(place.point), evaluated.map((size) => [x(size.share), base]));
  const dots = rows.filter(({ kind }) => kind !== "rest").flatMap(({ row, kind }) =>
    row.sizes.map(place.point).filter((point) => point !== null)
      .map(([cx, cy]) => draw("circle", { cx, cy, r: 2, class: `dot ${kind}` })));
  return draw("g", { "clip-path": "url(#curve-clip)" },
    linear && shown.better ? draw("path", { class: "area", d: area }) : null,
    draw("path", { class: "band", d: bandPath(side("high"), side("low")) }), ...paths, ...dots);
}

/** The smallest size that reaches the goal: a diamond on the curve, and words above the frame. */
function goalMark(place, { goal, sizes, reached }) {
  const [at, up] = place.point(sizes[reached]);
  const words = `first ${goal} at ${percent(sizes[reached].share)}`;
  const half = (LETTER * words.length) / 2;
  const middle = Math.max(place.left + half, Math.min(at, place.width - half));
  return draw("g", { class: "goal", id: "curve-goal" },
    draw("line", { x1: at, x2: at, y1: place.top - 8, y2: up }),
    draw("path", { d: `M${at} ${up - 5}l5 5l-5 5l-5 -5z` }),
    label(middle, 11, words, "middle", "goal-words"));
}

const upright = (x, y1, y2, kind) => draw("line", { x1: x, x2: x, y1, y2, class: kind });

function pointOf({ x, y, top, bottom }, { share, faithfulness, low, high }, which) {
  const inFrame = (value) => Math.min(bottom, Math.max(top - 6, y(value)));
  const interval = low === null || high === null ? [] : [upright(x(share), inFrame(low), inFrame(high), "whisker")];
  const dot = { cx: x(share), cy: y(faithfulness ?? 0), r: 5, class: "point", "data-size": which };
  return faithfulness === null ? interval : [...interval, draw("circle", dot)];
}

/** The {row, size} whose point is nearest to a place, or null if none is near. */
function nearest({ point }, rows, px, py) {
  let best = null;
  let least = NEAR;
  for (const { row } of rows) {
    for (const size of row.sizes) {
      const at = point(size);
      const far = at ? Math.hypot(at[0] - px, at[1] - py) : Infinity;
      if (far <= least) [best, least] = [{ row, size }, far];
    }
  }
  return best;
}

function nameTag(place, { row, size }) {
  const [at, up] = place.point(size);
  const words = `${elided(row.label, LONGEST)} ${fixed(size.faithfulness)}`;
  return [draw("circle", { cx: at, cy: up, r: 3.5 }), place.beside(at, Math.max(place.top + 8, up - 7), words, "name")];
}
