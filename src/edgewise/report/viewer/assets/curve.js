// The faithfulness curve beside the circuit, the slider over its sizes, and what they say in words.

import { METRICS, SELECTED } from "edgewise/choices.js";
import { button, draw, el, SWATCHES, whenChanged, widthOf } from "edgewise/dom.js";
import {
  bandPath, heightRange, heightScale, heightTicks, isMib, linePath, shareScale, shareTicks,
} from "edgewise/plot.js";
import { sameSize } from "edgewise/state.js";
import { between, count, counted, fixed, number, percent } from "edgewise/text.js";

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
  svg.addEventListener("pointermove", (event) => event.buttons & 1 && choose(event));
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

const MARGIN = { top: 10, right: 14, bottom: 34, left: 34 };

/** Whether a row was evaluated at more than one size, so that there is a line to draw. */
const hasCurve = (row) => row.sizes.filter((size) => size.faithfulness !== null).length > 1;

/** Draws the curves of a state into an svg so wide; gives `sizeAt(x)`, and `point(size)` that moves the crosshair. */
function drawChart(svg, view, state, width) {
  const shown = view.rows[state.row];
  // All rows with a curve of the shown row's run and measure, faint; over them the other row and the shown one.
  const rank = (row) => (row.index === state.row ? 2 : row.index === state.other ? 1 : 0);
  const isBeside = (row) => row.run === shown.run && row.measure === shown.measure;
  const rows = view.rows.filter((row) => hasCurve(row) && (rank(row) || isBeside(row)))
    .map((row) => ({ row, kind: ["rest", "other", "shown"][rank(row)] }))
    .sort((one, two) => rank(one.row) - rank(two.row));
  // A short window leaves room for the list below.
  const height = Math.round(Math.min(232, Math.max(180, width * 0.5), Math.max(124, 0.24 * innerHeight - 28)));
  const [left, right, top, bottom] = [MARGIN.left, width - MARGIN.right, MARGIN.top, height - MARGIN.bottom];
  const frame = { width, height, left, right, bottom };
  const shares = rows.flatMap(({ row }) => row.sizes.map((size) => size.share));
  const values = (faint) => rows
    .filter(({ kind }) => (kind === "rest") === faint)
    .flatMap(({ row }) => row.sizes.map((size) => size.faithfulness))
    .filter((value) => value !== null);
  const range = heightRange(values(false), values(true));
  const x = shareScale(shares, state.linear, left, right), y = heightScale(range, top, bottom);
  const pointOf = (size) => (size.faithfulness === null ? null : [x(size.share), y(size.faithfulness)]);
  const zero = isMib(view.runs[shown.run]) ? "nothing" : "";
  const axes = axesOf(frame, x, y, shareTicks(shares, state.linear), heightTicks(range), zero, shown.sizeUnit);

  const clip = draw("clipPath", { id: "curve-clip" },
    draw("rect", { x: left - 6, y: top - 6, width: right - left + 12, height: bottom - top + 6 }));
  const paths = rows.map(({ row, kind }) =>
    draw("path", { class: `line ${kind}`, "data-row": row.index, d: linePath(row.sizes.map(pointOf)) },
      draw("title", {}, row.label)));
  const known = shown.sizes.filter((size) => size.low !== null && size.high !== null);
  const side = (part) => known.map((size) => [x(size.share), y(size[part])]);
  const band = draw("path", { class: "band", d: bandPath(side("high"), side("low")) });
  const evaluated = shown.sizes.filter((size) => size.faithfulness !== null);
  const base = evaluated.map((size) => [x(size.share), y(shown.better > 0 ? 0 : 1)]);
  const area = state.linear && shown.better
    ? draw("path", { class: "area", d: bandPath(evaluated.map(pointOf), base) }) : null;
  const dots = rows.filter(({ kind }) => kind !== "rest").flatMap(({ row, kind }) =>
    row.sizes.map(pointOf).filter((point) => point !== null)
      .map(([cx, cy]) => draw("circle", { cx, cy, r: 2, class: `dot ${kind}` })));
  const [behind, now] = [draw("g"), draw("g")];
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.setAttribute("width", width);
  svg.setAttribute("height", height);
  svg.replaceChildren(clip, axes, behind, draw("g", { "clip-path": "url(#curve-clip)" }, area, band, ...paths, ...dots), now);

  const upright = (at, y1, y2, kind) => draw("line", { x1: at, x2: at, y1, y2, class: kind });
  const inFrame = (value) => Math.min(bottom, Math.max(top - 6, y(value)));
  return {
    sizeAt(at) {
      const far = (size) => Math.abs(x(size.share) - at);
      return shown.sizes.reduce((best, size, which) => (far(size) < far(shown.sizes[best]) ? which : best), 0);
    },
    point(which) {
      const { share, faithfulness, low, high } = shown.sizes[which];
      behind.replaceChildren(upright(x(share), top - 4, bottom, "cross"));
      const hasInterval = low !== null && high !== null;
      now.replaceChildren(...(hasInterval ? [upright(x(share), inFrame(low), inFrame(high), "whisker")] : []));
      if (faithfulness === null) return;
      now.append(draw("circle", { cx: x(share), cy: y(faithfulness), r: 5, class: "point", "data-size": which }));
    },
  };
}

const label = (x, y, words, anchor, kind) => draw("text", { x, y, "text-anchor": anchor, class: kind }, words);

function axesOf({ left, right, bottom, width, height }, x, y, across, up, zero, unit) {
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
