// The faithfulness curve beside the circuit, the slider over its sizes, and what they say in words.

import { drawChart, hasCurve } from "edgewise/chart.js";
import { METRICS, SELECTED } from "edgewise/choices.js";
import { button, draw, el } from "edgewise/dom.js";
import { SWATCHES, whenChanged, widthOf } from "edgewise/panel.js";
import { sameSize } from "edgewise/state.js";
import { between, count, counted, fixed, percent } from "edgewise/text.js";

const AXES = {
  log: "A logarithmic axis, which shows small circuits apart",
  linear: "A linear axis, over which the area is integrated",
};

/** Fills `element` with the curve, the slider and the words; moves `size` and switches `linear`. */
export function curvePanel(element, view, update) {
  let state = null;
  let chart = null;
  const words = `Faithfulness against the share of ${view.sizeUnit}s asked for`;
  const svg = draw("svg", { id: "curve-plot", role: "img", "aria-label": words });
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
    const area = line("area", `${row.benchmark || "area"} `, value(words), better);
    area.title = `${METRICS[row.benchmark] ?? "Area"}; integrated over a linear share of the edges`;
    parts.push(area);
    if (!brief && row.value === null && Object.hasOwn(SELECTED, row.benchmark)) {
      parts.push(line("selected", `circuits for ${row.benchmark} are ${SELECTED[row.benchmark]}`));
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
