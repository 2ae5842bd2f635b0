// The faithfulness curve beside the circuit, the slider over its sizes, and what they say in words.

import { METRICS, SELECTED } from "edgewise/choices.js";
import { button, draw, el, SWATCHES, whenChanged, widthOf } from "edgewise/dom.js";
import {
  bandPath, heightRange, heightScale, heightTicks, isMib, linePath, shareScale, shareTicks,
} from "edgewise/plot.js";
import { sameSize } from "edgewise/state.js";
import { between, count, counted, elided, fixed, number, percent } from "edgewise/text.js";

const AXES = {
  log: "A logarithmic axis, which shows small circuits apart",
  linear: "A linear axis, over which the area is integrated",
};

/** Fills `element` with the curve, the slider and the words; moves `size` and switches `linear`. */
export function curvePanel(element, view, update) {
  let state = null;
  let chart = null;
  const svg = draw("svg", { id: "curve-plot", role: "img", "aria-label": "Faithfulness against circuit size" });
  const axes = Object.entries(AXES).map(([name, title]) =>
    button(name, () => update({ linear: name === "linear" }), { "data-axis": name, title }));
  const head = el("header", {}, el("h2", {}, "Faithfulness"),
    el("div", { class: "segments", role: "group", "aria-label": "Axis of the share" }, ...axes));
  const slider = el("input", {
    type: "range", id: "size-slider", min: 0, step: 1, "aria-label": "Circuit size",
    oninput: () => update({ size: Number(slider.value) }),
  });
  const marks = el("div", { class: "curve-marks", "aria-hidden": "true" });
  const sizes = el("div", { class: "curve-sizes" }, slider, marks);
  const said = el("div", { id: "curve-said" });
  const panel = el("div", { class: "panel curve" }, head, svg, sizes, said);
  element.append(panel);

  const renderChart = whenChanged((now) => [now.row, now.other, now.linear, width(), innerHeight], (now) => {
    chart = hasCurve(view.rows[now.row]) ? drawChart(svg, view, now, width()) : null;
    svg.toggleAttribute("hidden", chart === null);
    head.hidden = chart === null;
    for (const axis of axes) axis.setAttribute("aria-pressed", String((axis.dataset.axis === "linear") === now.linear));
  });
  const renderSlider = whenChanged((now) => [now.row], (now) => {
    const all = view.rows[now.row].sizes;
    slider.max = all.length - 1;
    sizes.hidden = all.length < 2;
    marks.replaceChildren(...all.map((size, place) =>
      el("span", {
        style: `--at:${place / Math.max(1, all.length - 1)}`, "data-size": place,
        onclick: () => update({ size: place }),
      }, mark(size.share))));
  });
  const renderSize = whenChanged((now) => [now.row, now.other, now.size, now.linear, width(), innerHeight], (now) => {
    const row = view.rows[now.row];
    const size = row.sizes[now.size];
    slider.value = now.size;
    slider.setAttribute("aria-valuetext", `${percent(size.share)}, ${counted(size.kept, row.unit)}`);
    for (const one of marks.children) one.classList.toggle("now", Number(one.dataset.size) === now.size);
    chart?.point(now.size);
    const two = now.other !== null;
    said.replaceChildren(
      sentences(row, now.size, "shown", two),
      ...(two ? [sentences(view.rows[now.other], sameSize(view, now.row, now.size, now.other), "other", two)] : []));
  });
  const render = (now) => {
    state = now;
    renderChart(now);
    renderSlider(now);
    renderSize(now);
  };
  const width = widthOf(panel, 320, () => state && render(state));

  const choose = (event) => chart && update({ size: chart.sizeAt(event.offsetX) });
  svg.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    svg.setPointerCapture(event.pointerId);
    choose(event);
  });
  svg.addEventListener("pointermove", (event) =>
    event.buttons & 1 ? choose(event) : chart?.name(event.offsetX, event.offsetY));
  svg.addEventListener("pointerleave", () => chart?.name(-Infinity, -Infinity));
  return { render };
}

// A slider's mark has no room for the sign that all of them share.
const mark = (share) => percent(share).replace(/\s*%/, "");

/** What the curve says of one row at one size, in words; fewer of them where two rows stand side by side. */
function sentences(row, place, kind, brief) {
  const size = row.sizes[place];
  const kept = size.kept === size.asked
    ? counted(size.kept, row.unit)
    : `${count(size.kept)} of ${counted(size.asked, row.unit)}${brief ? "" : " asked for"}`;
  const value = (words) => el("span", { class: "value" }, words);
  const line = (what, ...words) => el("p", { "data-said": what }, ...words);
  const parts = [
    el("p", { class: "who", title: row.parameters },
      el("i", { class: `swatch ${SWATCHES[kind]}` }), el("b", {}, row.label)),
    line("size", value(percent(size.share)), `${row.sizeUnit === row.unit ? "" : ` of the ${row.sizeUnit}s`} · ${kept}`),
  ];
  if (size.faithfulness === null) parts.push(line("faithfulness", "Not evaluated, so there is no curve."));
  else parts.push(line("faithfulness", "faithfulness ", value(between(size.faithfulness, size.low, size.high, fixed))));
  if (hasCurve(row)) parts.push(...(row.goal ? [line("goal", goalWords(row, brief))] : []));
  else if (size.faithfulness !== null) parts.push(line("goal", "Evaluated at one size, so there is no curve."));
  if (row.area !== null) {
    const better = { 1: " · higher is better", "-1": " · lower is better" }[row.better] ?? "";
    const words = between(row.area, ...(row.interval ?? [null, null]));
    const area = line("area", `${row.measure || "area"} `, value(words), better);
    area.title = `${METRICS[row.measure] ?? "Area"}; integrated over a linear share of the edges`;
    parts.push(area);
    if (!brief && row.value === null && Object.hasOwn(SELECTED, row.measure)) {
      parts.push(line("selected", `circuits for ${row.measure} are ${SELECTED[row.measure]}`));
    }
  }
  return el("div", { class: `said ${kind}${brief ? "" : " alone"}`, "data-row": row.index }, ...parts);
}

/** Which size is the first to reach the goal; if none does, which is nearest to the model. */
function goalWords({ goal, sizes, reached, unit }, brief) {
  if (reached !== null) {
    const { share, kept } = sizes[reached];
    return `first ${goal} at ${percent(share)}${brief ? "" : ` (${counted(kept, unit)})`}`;
  }
  const known = sizes.filter((size) => size.faithfulness !== null && size.share < 1);
  if (!known.length) return `no size below 100\u00a0% was evaluated`;
  const far = (size) => Math.abs(size.faithfulness - 1);
  const best = known.reduce((one, two) => (far(two) < far(one) ? two : one));
  return `never ${goal} below 100\u00a0%: nearest ${fixed(best.faithfulness)}, at ${percent(best.share)}`;
}

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
  const paths = rows.map(({ row, kind }) =>
    draw("path", { class: `line ${kind}`, "data-row": row.index, d: linePath(row.sizes.map(place.point)) }));
  const [behind, now] = [draw("g"), draw("g")];
  const named = draw("g", { class: "named" });
  svg.setAttribute("viewBox", `0 0 ${width} ${place.height}`);
  svg.setAttribute("width", width);
  svg.setAttribute("height", place.height);
  svg.replaceChildren(
    clipOf(place), axes(place, isMib(view.runs[shown.run]) ? "nothing" : "", shown.sizeUnit), behind,
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
  const beside = (row) => row.run === shown.run && row.measure === shown.measure;
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
