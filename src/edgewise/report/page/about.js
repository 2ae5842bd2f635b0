// What the page is about: how to read the picture, the keys, what the runs were, and what is left out.

import { el } from "edgewise/dom.js";
import { draw } from "edgewise/panel.js";
import { count, counted } from "edgewise/text.js";

const READERS = [
  ["q", "into a head's queries: where it looks from"],
  ["k", "into a head's keys: where it looks"],
  ["v", "into a head's values: what it copies"],
  ["mlp", "into an MLP"],
  ["logits", "into the logits"],
];
const KEYS = [
  [["←", "→"], "smaller or larger circuit"],
  [["↑", "↓"], "method"],
  [["m"], "metric"],
  [["d"], "difference with another method"],
  [["l"], "linear or logarithmic curve"],
  [["/"], "search"],
  [["p"], "pin the chosen node"],
  [["+", "−", "0"], "zoom"],
  [["f"], "full screen"],
  [["t"], "theme"],
  [["Esc"], "clear"],
  [["?"], "help"],
];

/** Fills `element` once; nothing in it depends on the state. */
export function aboutPanel(element, view) {
  element.append(el("div", { class: "panel about" },
    ...part("How to read the picture", ...reading()),
    ...part("What the numbers are", ...numbers(view)),
    ...part("Keys", keys()),
    ...view.runs.flatMap((run) => part(view.runs.length > 1 ? `Run: ${run.name}` : run.name, facts(run))),
    ...part("What is left out", ...leftOut(view)),
    el("p", { class: "quiet" }, `Made by edgewise ${view.about.edgewise}. Nothing on this page leaves it.`)));
  return { render() {} };
}

const part = (title, ...children) => [el("h3", {}, title), ...children];

function reading() {
  const line = (attributes) => draw("svg", { width: 36, height: 10, "aria-hidden": "true" }, draw("path", { d: "M1 5h34", ...attributes }));
  const entry = (attributes, words, kind = null) => el("li", { "data-means": kind }, line(attributes), words);
  return [
    el("p", {}, "Rows are layers, from the input at the bottom to the logits at the top; cells are heads, and the MLP at the end of each row. The darker a cell, the larger the total of its edges' scores in this circuit; cells outside it are faint."),
    el("ul", { class: "legend", id: "about-legend" },
      ...READERS.map(([kind, words]) => entry({ class: "stroke", style: `--colour: var(--${kind})` }, words, kind)),
      entry({ class: "stroke wide" }, "wide: a large score; thin: a small one"),
      entry({ class: "stroke dashed" }, "dashed: a negative score, so the edge works against the metric", "negative"),
      entry({ class: "stroke", style: "--colour: var(--here)" }, "difference: only in the method that is shown", "here"),
      entry({ class: "stroke", style: "--colour: var(--there)" }, "difference: only in the other", "there"),
      entry({ class: "stroke", style: "--colour: var(--shared)" }, "difference: in both", "shared")),
  ];
}

function numbers(view) {
  const ratio = view.runs.some((run) => /ratio/i.test(run.facts.faithfulness ?? ""));
  const terms = [
    ["faithfulness", ratio ? "the circuit's metric divided by the model's: 1 is the model" : "the circuit's metric on a scale where 0 is the empty circuit and 1 the model; above 1 it overshoots"],
    ["CPR", "integrated circuit performance ratio, the area under the curve of faithfulness: higher is better"],
    ["CMD", "integrated circuit-model distance, the area between that curve and 1: lower is better"],
    ["[low, high]", "an interval of resampled examples"],
    ["unstable", "the sign of an edge's score changed between resamples"],
  ];
  return [el("dl", {}, ...terms.flatMap(([term, words]) => [el("dt", {}, term), el("dd", {}, words)]))];
}

function keys() {
  return el("dl", { class: "shortcuts" }, ...KEYS.flatMap(([names, words]) => [el("dt", {}, ...names.map((name) => el("kbd", {}, name))), el("dd", {}, words)]));
}

function facts(run) {
  const all = Object.entries(run.facts);
  return all.length ? el("dl", { class: "facts", "data-run": run.name }, ...all.flatMap(([name, words]) => [el("dt", {}, name), el("dd", {}, words)])) : el("p", { class: "quiet" }, "Nothing is noted of it.");
}

function leftOut(view) {
  const { edges, held } = view.graph;
  const lines = [
    held < edges
      ? `The graph has ${counted(edges, "edge")}; this page holds ${count(held)} of them, those of the smallest circuits first.`
      : `Nothing of the graph: all ${counted(edges, "edge")} are here.`,
    "Of a large circuit, only the strongest few thousand lines are drawn; the caption below the picture says how many.",
    ...view.runs.map((run) => examplesLeftOut(view, run)),
  ];
  return [el("ul", { id: "about-left-out" }, ...lines.map((words) => el("li", {}, words)))];
}

function examplesLeftOut(view, run) {
  const held = run.full?.length ?? 0;
  const whose = view.runs.length > 1 ? `${run.name}: ` : "";
  const patterns = run.patterns ? ` Attention is held of ${counted(run.patterns.heads.length, "head")} on ${counted(run.patterns.examples.length, "example")}.` : " No attention is held.";
  if (!run.examples) return `${whose}no evaluated examples.${patterns}`;
  return `${whose}${held < run.examples ? `the first ${count(held)} of ${counted(run.examples, "evaluated example")}` : `all ${counted(run.examples, "evaluated example")}`}.${patterns}`;
}
