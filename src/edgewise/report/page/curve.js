// The faithfulness curve beside the circuit: every method of the metric, and the size that is shown.

import { el } from "edgewise/dom.js";
import { draw, whenChanged } from "edgewise/panel.js";
import {
  GOAL, bandPath, firstPassing, heightRange, heightScale, heightTicks, linePath, shareScale, shareTicks,
} from "edgewise/plot.js";
import { sameSize } from "edgewise/state.js";
import { between, count, counted, fixed, number, percent } from "edgewise/text.js";
import { elided } from "edgewise/tokens.js";

const MARGIN = { top: 10, right: 14, bottom: 34, left: 34 };
const NEAR = 18;
const AREAS = {
  CPR: "integrated circuit performance ratio: the area under faithfulness, over a linear share of the edges",
  CMD: "integrated circuit-model distance: the area between faithfulness and 1, over a linear share of the edges",
};

/** Fills `element` with the curve, the slider over sizes and what they say; moves `size` and switches `linear`. */
export function curvePanel(element, view, update) {
  let state = null;
  let chart = null;
  const svg = draw("svg", { role: "img", "aria-label": "Faithfulness against the share of edges kept", class: "curve-plot" });
  const axes = ["log", "linear"].map((name) =>
    el("button", {
      type: "button", "data-axis": name, onclick: () => update({ linear: name === "linear" }),
      title: name === "linear" ? "A linear share, which the area is integrated over" : "A logarithmic share, so that small circuits can be told apart",
    }, name));
  const slider = el("input", {
    type: "range", id: "size-slider", class: "curve-slider", min: 0, step: 1, "aria-label": "Circuit size",
    oninput: () => update({ size: Number(slider.value) }),
  });
  const marks = el("div", { class: "curve-marks", "aria-hidden": "true" });
  const sizes = el("div", { class: "curve-sizes" }, slider, marks);
  const said = el("div", { class: "curve-said", id: "curve-said" });
  const head = el("header", {}, el("h2", {}, "Faithfulness"), el("div", { class: "segments", role: "group", "aria-label": "Axis of the share" }, ...axes));
  element.append(el("section", { class: "panel curve", "aria-label": "Faithfulness curve" }, head, svg, sizes, said));

  const renderChart = whenChanged((now) => [now.row, now.other, now.linear, width()], (now) => {
    chart = hasCurve(view.rows[now.row]) ? drawChart(svg, view, now, width()) : null;
    svg.toggleAttribute("hidden", chart === null);
    head.hidden = chart === null;
    axes.forEach((button) => button.setAttribute("aria-pressed", String((button.dataset.axis === "linear") === now.linear)));
  });
  const renderSlider = whenChanged((now) => [now.row], (now) => {
    const all = view.rows[now.row].sizes;
    slider.max = all.length - 1;
    sizes.hidden = all.length < 2;
    marks.replaceChildren(...all.map((size, place) =>
      el("span", { style: `--at:${all.length < 2 ? 0 : place / (all.length - 1)}`, "data-size": place }, percent(size.share).replace(/\s?%/, ""))));
  });
  const renderSize = whenChanged((now) => [now.row, now.other, now.size, now.linear, width()], (now) => {
    const row = view.rows[now.row];
    const place = Math.min(now.size, row.sizes.length - 1);
    const size = row.sizes[place];
    slider.value = place;
    slider.setAttribute("aria-valuetext", `${percent(size.share)}, ${counted(size.kept, "edge")}`);
    for (const mark of marks.children) mark.classList.toggle("now", Number(mark.dataset.size) === place);
    chart?.point(place);
    const other = now.other === null ? null : view.rows[now.other];
    said.replaceChildren(
      sentences(row, place, "shown"),
      ...(other ? [sentences(other, sameSize(view, now.row, place, now.other), "other")] : []),
    );
  });
  const render = (now) => {
    state = now;
    renderChart(now);
    renderSlider(now);
    renderSize(now);
  };
  const width = () => Math.round(element.clientWidth) || 320;
  new ResizeObserver(() => state && render(state)).observe(element);

  const choose = (event) => chart && update({ size: chart.sizeAt(event.offsetX) });
  svg.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    svg.setPointerCapture(event.pointerId);
    choose(event);
  });
  svg.addEventListener("pointermove", (event) => (event.buttons & 1 ? choose(event) : chart?.name(event.offsetX, event.offsetY)));
  svg.addEventListener("pointerleave", () => chart?.name(-1e6, -1e6));
  return { render };
}

/** Whether a row was evaluated at more than one size, so that there is a line to draw. */
function hasCurve(row) {
  return row.sizes.filter((size) => size.faithfulness !== null).length > 1;
}

/** The rows drawn: all with a curve of the shown row's run and metric, and the other one; the faint first. */
function drawnRows(view, state) {
  const shown = view.rows[state.row];
  const importance = (row) => (row.index === state.row ? 2 : row.index === state.other ? 1 : 0);
  return view.rows
    .filter((row) => hasCurve(row) && (importance(row) || (row.run === shown.run && row.benchmark === shown.benchmark)))
    .map((row) => ({ row, kind: ["rest", "other", "shown"][importance(row)] }))
    .sort((one, two) => importance(one.row) - importance(two.row));
}

function drawChart(svg, view, state, width) {
  const height = Math.round(Math.min(240, Math.max(176, width * 0.58)));
  const [left, right, top, bottom] = [MARGIN.left, width - MARGIN.right, MARGIN.top, height - MARGIN.bottom];
  const rows = drawnRows(view, state);
  const shown = view.rows[state.row];
  const shares = rows.flatMap(({ row }) => row.sizes.map((size) => size.share));
  const values = (kept) => rows.filter(({ kind }) => kept(kind)).flatMap(({ row }) => row.sizes.map((size) => size.faithfulness)).filter((value) => value !== null);
  const range = heightRange(values((kind) => kind !== "rest"), values((kind) => kind === "rest"));
  const x = shareScale(shares, state.linear, left, right);
  const y = heightScale(range, top, bottom);
  const pointsOf = (row, part = "faithfulness") => row.sizes.map((size) => (size[part] === null ? null : [x(size.share), y(size[part])]));
  const label = (at, up, words, anchor, kind) => draw("text", { x: at, y: up, "text-anchor": anchor, class: kind }, words);

  const back = draw("g", { class: "axes" });
  for (const tick of heightTicks(range)) {
    back.append(draw("line", { x1: left, x2: right, y1: y(tick), y2: y(tick), class: tick === 1 ? "model" : tick === 0 ? "nothing" : "grid" }));
    back.append(label(left - 6, y(tick) + 4, number(tick), "end", "tick"));
  }
  const ticks = shareTicks(shares, state.linear);
  ticks.forEach((tick, place) => {
    back.append(draw("line", { x1: x(tick), x2: x(tick), y1: bottom, y2: bottom + 4, class: "mark" }));
    const end = place === ticks.length - 1 && x(tick) > right - 14;
    back.append(label(end ? right + MARGIN.right - 2 : x(tick), bottom + 15, percent(tick), end ? "end" : "middle", "tick"));
  });
  back.append(label((left + right) / 2, height - 4, "share of edges kept", "middle", "axis"));
  back.append(label(left + 4, y(1) - 5, "the model", "start", "axis"), label(right - 2, y(0) - 5, "nothing", "end", "axis"));

  const clip = draw("clipPath", { id: "curve-clip" }, draw("rect", { x: left - 6, y: top - 6, width: right - left + 12, height: bottom - top + 6 }));
  const lines = draw("g", { "clip-path": "url(#curve-clip)" });
  if (state.linear) lines.append(draw("path", { class: "area", d: areaPath(shown, x, y) }));
  const known = shown.sizes.filter((size) => size.low !== null && size.high !== null);
  const edge = (part) => known.map((size) => [x(size.share), y(size[part])]);
  lines.append(draw("path", { class: "band", d: bandPath(edge("high"), edge("low")) }));
  const paths = rows.map(({ row, kind }) => draw("path", { class: `line ${kind}`, "data-row": row.index, d: linePath(pointsOf(row)) }));
  const dots = rows.filter(({ kind }) => kind !== "rest").flatMap(({ row, kind }) =>
    pointsOf(row).filter((point) => point !== null).map(([cx, cy]) => draw("circle", { cx, cy, r: 2, class: `dot ${kind}` })));
  lines.append(...paths, ...dots);

  const passing = firstPassing(shown.sizes);
  const goal = passing === null ? null : goalMark(shown.sizes[passing], x, y, left, right, bottom, label);
  const now = draw("g", { class: "now" });
  const named = draw("g", { class: "named" });
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.setAttribute("width", width);
  svg.setAttribute("height", height);
  svg.replaceChildren(...[clip, back, lines, goal, now, named].filter((part) => part !== null));

  return {
    sizeAt: (at) => shown.sizes.reduce((best, size, place) => (Math.abs(x(size.share) - at) < Math.abs(x(shown.sizes[best].share) - at) ? place : best), 0),
    point(place) {
      const size = shown.sizes[place];
      const at = x(size.share);
      now.replaceChildren(draw("line", { x1: at, x2: at, y1: top - 4, y2: bottom, class: "cross" }));
      if (size.low !== null && size.high !== null) now.append(draw("line", { x1: at, x2: at, y1: y(size.low), y2: y(size.high), class: "whisker" }));
      if (size.faithfulness !== null) now.append(draw("circle", { cx: at, cy: y(size.faithfulness), r: 5, class: "point", "data-size": place }));
    },
    name(px, py) {
      const spots = rows.flatMap(({ row, kind }) => row.sizes.map((size) => ({ row, kind, size })))
        .filter(({ size }) => size.faithfulness !== null)
        .map((spot) => ({ ...spot, far: Math.hypot(x(spot.size.share) - px, y(spot.size.faithfulness) - py) }));
      const best = spots.reduce((one, two) => (two.far < one.far ? two : one), { far: NEAR });
      paths.forEach((path) => path.classList.toggle("hover", best.row !== undefined && Number(path.dataset.row) === best.row.index));
      named.replaceChildren(...(best.row ? nameTag(best, x, y, left, right, top, label) : []));
    },
  };
}

/** Where faithfulness first passes the goal: a diamond on the curve and a line down to its size. */
function goalMark(size, x, y, left, right, bottom, label) {
  const [at, up] = [x(size.share), y(size.faithfulness)];
  const before = at > (left + right) / 2;
  return draw("g", { class: "goal", id: "curve-goal" },
    draw("line", { x1: at, x2: at, y1: up, y2: bottom }),
    draw("path", { d: `M${at} ${up - 5}l5 5l-5 5l-5 -5z` }),
    label(at + (before ? -6 : 6), bottom - 22, `first ≥ ${GOAL} at ${percent(size.share)}`, before ? "end" : "start", "goal-words"));
}

/** A method's name beside the point of its line that the pointer is near. */
function nameTag({ row, size }, x, y, left, right, top, label) {
  const [at, up] = [x(size.share), y(size.faithfulness)];
  const before = at > (left + right) / 2;
  return [
    draw("circle", { cx: at, cy: up, r: 3.5 }),
    label(at + (before ? -8 : 8), Math.max(top + 8, up - 7), `${elided(row.label, 30)} ${fixed(size.faithfulness)}`, before ? "end" : "start", "name"),
  ];
}

/** What the area is: below the curve, or between it and 1. */
function areaPath(row, x, y) {
  const line = row.sizes.filter((size) => size.faithfulness !== null);
  const base = row.better > 0 ? 0 : 1;
  return bandPath(line.map((size) => [x(size.share), y(size.faithfulness)]), line.map((size) => [x(size.share), y(base)]));
}

/** What the curve says of one row at one size, in words. */
function sentences(row, place, kind) {
  const size = row.sizes[place];
  const kept = size.kept === size.asked ? `${counted(size.kept, "edge")}` : `${count(size.kept)} of the ${counted(size.asked, "edge")} asked for`;
  const faithful = size.faithfulness === null ? "not evaluated" : `faithfulness ${between(size.faithfulness, size.low, size.high, fixed)}`;
  const parts = [
    el("p", { class: "who", title: row.parameters || null }, el("i", { class: `swatch ${kind}` }), el("b", {}, row.label)),
    el("p", { class: "at", "data-said": "size" }, el("strong", {}, percent(size.share)), ` · ${kept} · `, el("span", { class: "value" }, faithful)),
  ];
  if (hasCurve(row)) parts.push(el("p", { "data-said": "goal" }, passes(row)));
  else if (size.faithfulness === null) parts.push(el("p", { class: "quiet" }, "Nobody evaluated this circuit, so there is no curve: `edgewise evaluate` measures it."));
  else parts.push(el("p", { class: "quiet" }, "A single size, so there is no curve."));
  if (row.area !== null) {
    const [low, high] = row.interval ?? [null, null];
    const better = row.better > 0 ? " · higher is better" : row.better < 0 ? " · lower is better" : "";
    parts.push(el("p", { "data-said": "area", title: AREAS[row.benchmark] ?? null }, `${row.benchmark || "area"} `, el("span", { class: "value" }, between(row.area, low, high)), better));
  }
  return el("div", { class: `said ${kind}`, "data-row": row.index }, ...parts);
}

function passes(row) {
  const place = firstPassing(row.sizes);
  if (place !== null) {
    const size = row.sizes[place];
    return `First passes ${GOAL} at ${percent(size.share)} (${counted(size.kept, "edge")})`;
  }
  const best = row.sizes.reduce((one, two) => ((two.faithfulness ?? -Infinity) > (one.faithfulness ?? -Infinity) ? two : one));
  return `Never passes ${GOAL}: at most ${fixed(best.faithfulness)}, at ${percent(best.share)}`;
}
