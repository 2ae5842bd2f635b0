// The About tab: how to read the picture, and facts about the runs.

import { METRICS, SELECTED } from "edgewise/choices.js";
import { el } from "edgewise/dom.js";
import { isMib, isRatio } from "edgewise/plot.js";

const PICTURE = "Rows are layers, from the input at the bottom to the logits at the top; cells are heads, and the " +
  "MLP at the end of each row. The darker a cell, the larger the total score of its edges in this " +
  "circuit; cells outside the circuit are faint.";
const LINES = [
  ["q", "into a head's queries: where it looks from"],
  ["k", "into a head's keys: where it looks"],
  ["v", "into a head's values: what it copies"],
  ["mlp", "into an MLP"],
  ["logits", "into the logits"],
  ["wide", "wide: a large score; thin: a small one"],
  ["negative", "dashed: a negative score, so the edge works against the metric"],
  ["here", "in difference mode: only in the shown recipe"],
  ["there", "in difference mode: only in the other recipe"],
  ["shared", "in difference mode: in both"],
  ["outside", "dotted: outside the circuit, if such edges are switched on"],
];
const TRUTH_LINES = [
  ["right", "true: in the circuit and in the known one"],
  ["wrong", "wrong: in the circuit, not in the known one"],
  ["missed", "dashed, if compared with the known circuit: missed; the known circuit has it, this one does not"],
];
const TEST_LINES = [["superfluous", "dashes and dots: superfluous, by the test of minimality"]];
const TEST_TERMS = [
  ["if cut", "how much faithfulness the circuit loses without one edge or node; known of the circuit that was tested"],
];
const RATIO = "the circuit's metric divided by the model's: 1 is the model";
const MIB = "the circuit's metric on a scale where 0 is the empty circuit and 1 the model; above 1 it overshoots";
const TERMS = [
  ...Object.entries(METRICS).map(([name, words]) => [name, `${words}; its circuits are ${SELECTED[name]}`]),
  ["score", "how much an edge adds to the metric, estimated by attribution, as a mean over the examples; learned " +
    "recipes select by a learned value instead"],
  ["[low, high]", "an interval over resampled examples"],
  ["✓ and ±", "whether all resamples agree on the sign of an edge's score (✓), or not (±: unstable)"],
  ["sizes, n/m", "the edge is in n of the m circuits of its recipe"],
  ["bar", "under an edge in the list: its score, as a share of the strongest"],
  ["n of m asked for", "pruning removed the others: edges that are on no path from the input to the logits"],
  ["grey curves", "the other recipes of the same measure; point at one to see its name"],
];

/** Fills `element` once: its content does not depend on the state. */
export function aboutPanel(element, view) {
  const part = (title, ...children) => [el("h3", {}, title), ...children];
  const meaning = (run) => (isMib(run) ? MIB : isRatio(run) ? RATIO : run.facts.faithfulness ?? run.definition);
  const meanings = [...new Set(view.runs.map(meaning))];
  const methods = methodsOf(view.rows);
  const isTested = view.runs.some((run) => run.edgeEffects);
  const ifAny = (has, lines) => (has ? lines : []);
  element.append(el("div", { class: "panel about" },
    ...part("How to read the picture", el("p", {}, PICTURE), legend([...LINES, ...ifAny(view.truth, TRUTH_LINES), ...ifAny(isTested, TEST_LINES)])),
    ...part("What the numbers are", terms([["faithfulness", meanings.join("; or, of another run, ")], ...TERMS,
      ...ifAny(isTested, TEST_TERMS)])),
    ...(methods.length ? part("What the recipes are", terms(methods, { id: "about-methods" })) : []),
    ...view.runs.flatMap((run, place) => part(`The run: ${run.name}`, Object.keys(run.facts).length
      ? terms(Object.entries(run.facts), { "data-run": place }) : el("p", { class: "quiet" }, "No facts are known."))),
    el("p", { class: "quiet" }, `Made by edgewise ${view.about.edgewise}. This page sends nothing over the network.`)));
}

function terms(pairs, attributes = {}) {
  const pair = ([term, words]) => [el("dt", {}, ...[term].flat()), el("dd", {}, words)];
  return el("dl", attributes, ...pairs.flatMap(pair));
}

function legend(lines) {
  return el("ul", { class: "legend", id: "about-legend" }, ...lines.map(([kind, words]) =>
    el("li", { "data-means": kind }, el("i", { class: `swatch ${kind}` }), el("span", {}, words))));
}

// One-line descriptions of the parts of recipes.
const METHODS = [
  ["Greedy", "starts at the logits and always adds the best edge into a node already reached; then prunes"],
  ["Top-n", "the edges of the highest scores, then pruned"],
  ["ILP", "the connected circuit of the largest total score, by integer linear programming"],
  ["Bootstrapping", "an edge counts as 0 if the interval of its score over resampled examples contains 0"],
  ["PNR", "positive-negative ratio: at least this share of the selected edges has a positive score"],
  ["Learned", "edges are ranked by values learned through weighted circuits instead of by their scores"],
  ["Portfolio", "at every size, the recipe that did best on validation"],
];

/** Returns [name, description] of the known parts in the names of rows' recipes. */
export function methodsOf(rows) {
  const names = rows.map((row) => row.method.toLowerCase());
  const isWord = (name, word) => name.split(/[^a-z-]+/).includes(word);
  return METHODS.filter(([method]) => names.some((name) => isWord(name, method.toLowerCase())));
}
