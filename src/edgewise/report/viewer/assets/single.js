// Faithfulness of circuits on single examples. Pure.

import { fixed } from "edgewise/text.js";

// Below this share of the mean range, an example's own range is too small to divide by.
const TINY = 0.01;

/** Whether a run's faithfulness is the ratio m(circuit) / m(model) rather than MIB's. */
export const isRatio = (run) => run.definition === "ratio";

/** The number of examples for which the page has a row's metric. */
export const heldExamples = (row) => (row.metric ? row.metric.length / row.sizes.length : 0);

/** The metric of a row's circuit on an example. */
export const metricOf = (row, size, example) => row.metric[size * heldExamples(row) + example];

/** Returns a function (size, example) -> faithfulness: NaN where model and empty circuit have about the same metric.
 * Returns null for a row without metrics. */
export function singleFaithfulness(view, row) {
  const run = view.runs[row.run];
  if (!row.metric || !run.full || !run.empty) return null;
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
