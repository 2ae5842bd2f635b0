// Where a circuit fails: its faithfulness on every example, worst first, and the prompt of one of them.

import { el } from "edgewise/dom.js";
import { draw, whenChanged } from "edgewise/panel.js";
import { heightRange, heightScale } from "edgewise/plot.js";
import { promptOf } from "edgewise/prompt.js";
import { heldExamples, isRatio, lowestFirst, singleFaithfulness, worst } from "edgewise/single.js";
import { sameSize } from "edgewise/state.js";
import { count, counted, fixed, percent } from "edgewise/text.js";

const HEIGHT = 132;
const FRAME = { top: 8, bottom: 16, left: 30, right: 6 };
const MEAN = "Faithfulness of a circuit is that of its mean metric over all examples: not the mean of these bars.";

/** Fills `element` with a strip of the examples and the one that is chosen; moves `example`. */
export function examplesPanel(element, view, update) {
  let state = null;
  let strip = null;
  const said = el("p", { class: "lead", id: "examples-said", title: MEAN });
  const svg = draw("svg", {
    id: "examples-strip", class: "strip", tabindex: 0, role: "slider", "aria-label": "Example, worst first",
    "aria-valuemin": 1, height: HEIGHT,
  });
  const note = el("p", { class: "quiet", id: "examples-note" });
  const detail = el("div", { id: "example-detail" });
  element.append(el("div", { class: "panel examples" }, said, svg, note, detail));
  const width = () => Math.round(element.clientWidth) || 340;

  const renderStrip = whenChanged((now) => [now.row, now.size, now.other, width()], (now) => {
    strip = drawStrip(svg, view, now, width());
    svg.toggleAttribute("hidden", strip === null);
    said.replaceChildren(...lead(view, now, strip, go));
    note.textContent = notes(view, now, strip);
    note.hidden = note.textContent === "";
  });
  const renderDetail = whenChanged((now) => [now.row, now.size, now.other, now.example, width()], (now) => {
    const example = shownExample(view, now);
    strip?.mark(example);
    detail.replaceChildren(steps(example), ...promptOf(view, now, example, width()));
  });
  const render = (now) => {
    state = now;
    if (now.tab !== "examples") return;
    renderStrip(now);
    renderDetail(now);
  };
  new ResizeObserver(() => state && render(state)).observe(element);

  const go = (example) => update({ example });
  const step = (by) => go(strip.order[Math.max(0, Math.min(strip.rankOf(shownExample(view, state)) + by, strip.order.length - 1))]);
  const stepButton = (by, words, sign) => el("button", { type: "button", "data-step": by, "aria-label": words, title: words, onclick: () => step(by) }, sign);
  const steps = (example) => {
    const rank = strip && `${count(strip.rankOf(example) + 1)} of ${count(strip.order.length)} from the worst`;
    return el("header", {},
      el("h3", {}, `Example ${count(example)}`), rank && el("span", { class: "quiet" }, rank),
      strip && el("span", { class: "segments" }, stepButton(-1, "The example before, which is worse", "‹"), stepButton(1, "The next example, which is better", "›")));
  };
  const keys = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -Infinity, End: Infinity };
  svg.addEventListener("keydown", (event) => {
    if (!strip || !(event.key in keys)) return;
    event.preventDefault();
    event.stopPropagation(); // the page's own arrows move the size
    step(keys[event.key]);
  });
  svg.addEventListener("pointerdown", (event) => {
    if (!strip || event.button !== 0) return;
    svg.setPointerCapture(event.pointerId);
    go(strip.at(event.offsetX));
  });
  svg.addEventListener("pointermove", (event) => {
    if (!strip) return;
    if (event.buttons & 1) go(strip.at(event.offsetX));
    else strip.hover(strip.at(event.offsetX));
  });
  svg.addEventListener("pointerleave", () => strip?.hover(null));
  return { render };
}

/** The example that a state shows: the chosen one, if it is held. */
function shownExample(view, state) {
  const row = view.rows[state.row];
  const held = Math.max(heldExamples(row), view.runs[row.run].prompts.length);
  return Math.max(0, Math.min(state.example, held - 1));
}

function drawStrip(svg, view, state, width) {
  const row = view.rows[state.row];
  const single = singleFaithfulness(view, row);
  if (!single) return null;
  const values = Float64Array.from({ length: heldExamples(row) }, (_, example) => single(state.size, example));
  const order = lowestFirst(values);
  const ranks = new Map(order.map((example, rank) => [example, rank]));
  const range = heightRange([], [...values].filter((value) => !Number.isNaN(value)));
  const y = heightScale(range, FRAME.top, HEIGHT - FRAME.bottom);
  const each = (width - FRAME.left - FRAME.right) / order.length;
  const x = (rank) => FRAME.left + each * rank;
  const inside = (value) => Math.max(range[0], Math.min(value, range[1]));
  const bars = order.map((example, rank) => {
    const value = values[example];
    const known = !Number.isNaN(value);
    const [top, bottom] = known ? [y(inside(Math.max(value, 0))), y(inside(Math.min(value, 0)))] : [y(0) - 3, y(0)];
    return draw("rect", {
      x: x(rank), y: top, width: Math.max(0.5, each - (each > 3 ? 1 : 0)), height: Math.max(1, bottom - top),
      class: `bar ${known ? (value < 0 ? "below" : "above") : "undefined"}`, "data-example": example,
    });
  });
  const lines = [0, 1].flatMap((value) => [
    draw("line", { x1: FRAME.left, x2: width - FRAME.right, y1: y(value), y2: y(value), class: value ? "model" : "nothing" }),
    draw("text", { x: FRAME.left - 6, y: y(value) + 4, "text-anchor": "end", class: "tick" }, String(value)),
  ]);
  const words = draw("text", { x: FRAME.left, y: HEIGHT - 3, class: "axis" }, "← worst");
  const hovered = draw("text", { x: width - FRAME.right, y: HEIGHT - 3, "text-anchor": "end", class: "axis", id: "examples-hover" });
  const mark = draw("path", { class: "chosen" });
  svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
  svg.setAttribute("width", width);
  svg.setAttribute("aria-valuemax", order.length);
  svg.replaceChildren(draw("title", {}, MEAN), ...bars, ...lines, ...otherDots(view, state, order, x, each, (value) => y(inside(value))), mark, words, hovered);

  const name = (example) => `example ${count(example)} · ${fixedOr(values[example])}`;
  return {
    values, order, rankOf: (example) => ranks.get(example) ?? 0,
    at: (px) => order[Math.max(0, Math.min(Math.floor((px - FRAME.left) / each), order.length - 1))],
    hover: (example) => (hovered.textContent = example === null ? "" : name(example)),
    mark(example) {
      const rank = ranks.get(example) ?? 0;
      const middle = x(rank) + each / 2;
      bars.forEach((bar, place) => bar.classList.toggle("chosen", place === rank));
      mark.setAttribute("d", `M${middle} ${HEIGHT - FRAME.bottom + 1}l4 6h-8z`);
      svg.setAttribute("aria-valuenow", rank + 1);
      svg.setAttribute("aria-valuetext", name(example));
    },
  };
}

const fixedOr = (value) => (Number.isNaN(value) ? "undefined" : fixed(value));

/** In difference mode, a dot where the other method's circuit lies on the same example. */
function otherDots(view, state, order, x, each, y) {
  const other = state.other === null ? null : view.rows[state.other];
  const single = other && other.run === view.rows[state.row].run ? singleFaithfulness(view, other) : null;
  if (!single) return [];
  const size = sameSize(view, state.row, state.size, state.other);
  return order.map((example, rank) => [single(size, example), x(rank) + each / 2]).filter(([value]) => !Number.isNaN(value))
    .map(([value, cx]) => draw("circle", { cx, cy: y(value), r: Math.max(1.2, Math.min(2.5, each / 2)), class: "dot other" }));
}

/** What the strip shows, in words. */
function lead(view, state, strip, go) {
  const row = view.rows[state.row];
  if (!strip) return ["No metric of single examples is held for this circuit."];
  const known = [...strip.values].filter((value) => !Number.isNaN(value));
  const half = known.filter((value) => value < 0.5).length;
  return [
    "Faithfulness of ", el("b", {}, row.label), ` at ${percent(row.sizes[state.size].share)} on each example, worst first: `,
    `${count(half)} of ${count(known.length)} below 0.5. `,
    el("button", { type: "button", class: "link", id: "examples-worst", onclick: () => go(worst(strip.values, row.better)) }, "Show the worst"),
  ];
}

function notes(view, state, strip) {
  const row = view.rows[state.row];
  const run = view.runs[row.run];
  const held = heldExamples(row);
  const undefined_ = strip ? [...strip.values].filter((value) => Number.isNaN(value)).length : 0;
  return [
    held && held < run.examples ? `The page holds the first ${count(held)} of ${counted(run.examples, "example")}.` : "",
    undefined_ ? `Undefined on ${counted(undefined_, "example")}, at the right: there the ${isRatio(run) ? "model's metric is about 0" : "model and the empty circuit have about the same metric"}.` : "",
    state.other !== null && view.rows[state.other].run === row.run && strip ? `Dots: ${view.rows[state.other].label}.` : "",
  ].filter((words) => words).join(" ");
}
