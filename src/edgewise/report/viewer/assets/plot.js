// What drawings of faithfulness have in common: scales, ticks, paths, and faithfulness on single examples. Pure.

import { fixed } from "edgewise/text.js";

/** share -> x between left and right: linear from 0, or logarithmic from the smallest share. */
export function shareScale(shares, linear, left, right) {
  const most = Math.max(...shares);
  const least = Math.min(...shares);
  if (linear) return (share) => left + (right - left) * (share / most);
  if (least === most) return () => (left + right) / 2;
  return (share) => left + ((right - left) * Math.log(share / least)) / Math.log(most / least);
}

/** value -> y, where `low` lies at the bottom and `high` at the top. */
export function heightScale([low, high], top, bottom) {
  return (value) => bottom - ((bottom - top) * (value - low)) / (high - low);
}

/** Few shares worth a label: quarters, or on a logarithmic axis powers of ten, with 2 and 5 where it is short. */
export function shareTicks(shares, linear) {
  const most = Math.max(...shares);
  const least = Math.min(...shares);
  if (linear) return [0, 0.25, 0.5, 0.75, 1].map((part) => Number((part * most).toPrecision(3)));
  const ticks = (factors) =>
    [-7, -6, -5, -4, -3, -2, -1, 0]
      .flatMap((power) => factors.map((factor) => Number(`${factor}e${power}`)))
      .filter((tick) => tick >= least * 0.999 && tick <= most * 1.001);
  const decades = ticks([1]);
  return decades.length >= 3 ? decades : ticks([1, 2, 5]);
}

/** From low to high: 0, 1 and all of `whole`, and those of `others` that aren't far off, with a little air. */
export function heightRange(whole, others = []) {
  const near = others.filter((value) => value > -1 && value < 2.5);
  const values = [0, 1, ...whole, ...near].filter((value) => Number.isFinite(value));
  const low = Math.min(...values);
  const high = Math.max(...values);
  const air = 0.1 * (high - low);
  return [low - air, high + air];
}

/** Round values between low and high, about four, with 0 and 1 among them where the range is small. */
export function heightTicks([low, high]) {
  const step = [0.5, 1, 2, 5, 10, 20, 50, 100].find((one) => (high - low) / one <= 4.5) ?? (high - low) / 4;
  const ticks = [];
  for (let tick = Math.ceil(low / step); tick * step <= high; tick += 1) ticks.push(tick * step);
  return ticks;
}

/** The path of a line through points [x, y]; a null leaves a gap. */
export function linePath(points) {
  let pen = "M";
  const parts = [];
  for (const point of points) {
    if (point !== null) parts.push(`${pen}${point[0].toFixed(1)} ${point[1].toFixed(1)}`);
    pen = point === null ? "M" : "L";
  }
  return parts.join("");
}

/** The closed path between two lines of points, one after the other. */
export function bandPath(upper, lower) {
  const edge = [...upper, ...lower.toReversed()];
  return edge.length ? `${linePath(edge)}Z` : "";
}

// Below this share of the mean range, an example's own range is too small to divide by.
const TINY = 0.01;

/** Whether a run's faithfulness is MIB's, so that 0 is the empty circuit; the ratio m(circuit) / m(model). */
export const isMib = (run) => run.definition === "mib" || run.definition === "";
export const isRatio = (run) => run.definition === "ratio";

/** The number of examples for which the page has a row's metric. */
export const heldExamples = (row) => (row.metric ? row.metric.length / row.sizes.length : 0);

/** The metric of a row's circuit on an example. */
export const metricOf = (row, size, example) => row.metric[size * heldExamples(row) + example];

/** Returns a function (size, example) -> faithfulness: NaN where model and empty circuit have about the same metric.
 * Returns null for a row without metrics, or of another definition of faithfulness, which the page can't compute. */
export function singleFaithfulness(view, row) {
  const run = view.runs[row.run];
  if (!row.metric || !run.full || !run.empty || !(isMib(run) || isRatio(run))) return null;
  const bottom = (example) => (isRatio(run) ? 0 : run.empty[example]);
  const ranges = Float64Array.from({ length: heldExamples(row) }, (_, example) => run.full[example] - bottom(example));
  const least = TINY * Math.abs(ranges.reduce((sum, range) => sum + range, 0) / ranges.length);
  return (size, example) =>
    Math.abs(ranges[example]) <= least ? NaN : (metricOf(row, size, example) - bottom(example)) / ranges[example];
}

/** Formats the faithfulness on an example. */
export const faithfulWords = (value) => (Number.isNaN(value) ? "undefined" : fixed(value));

/** Returns the places of the values, worst first and undefined ones last: the lowest is the worst where higher is
 * better, else the one farthest from 1. */
export function worstFirst(values, better) {
  const good = (value) => (better > 0 ? value : -Math.abs(1 - value));
  const key = (place) => (Number.isNaN(values[place]) ? Infinity : good(values[place]));
  const compared = (one, two) => (one < two ? -1 : one > two ? 1 : 0); // infinities can't be subtracted
  return Array.from(values, (_, place) => place).sort((one, two) => compared(key(one), key(two)) || one - two);
}
