// The edges that are shown, ranked, with all that is known of each.

import { button, el } from "edgewise/dom.js";
import { LETTERS } from "edgewise/graph.js";
import { calledIn, edgeCalled } from "edgewise/notes.js";
import { HERE, OUTSIDE, SHARED, testsOf, THERE, TRUTHS } from "edgewise/scene.js";
import { differingSizes } from "edgewise/state.js";
import { between, count, counted, number, percent } from "edgewise/text.js";
import { edgeEffect, edgeFacts, edgeTest, kindWords, nodeEffect, rowOfKind, stabilityWords } from "edgewise/tip.js";

const MARKS = new Map([[null, ""], [true, "✓"], [false, "±"]]);
const ONE_LIST = 50, OF_SEVERAL = 12, MORE = 100, STRONGEST_NODES = 8;

/** Fills `element`; `hover(edge or null)` is called with the edge under the pointer. */
export function edgesPanel(element, view, update, hover) {
  let last = null;
  let state = null;
  let limits = {};
  const rows = (items) => items.map(({ edge, kind, share }, at) => edgeRow(edge, kind, share, at + 1));

  const edgeRow = (edge, kind, share, rank) => {
    const row = rowOfKind(view, state, kind);
    const facts = edgeFacts(view, row, edge);
    const letter = LETTERS[view.letter[edge]];
    const where = kindWords(view, state, kind);
    const [effect, test] = [edgeEffect(view, state, edge), edgeTest(view, state, edge)];
    const called = edgeCalled(view, state.notes, edge);
    const interval = facts.low === null ? "" : `[${number(facts.low, 2)}, ${number(facts.high, 2)}]`;
    const words = [`${rank}. ${facts.name}`, called, facts.scored ? `score ${between(facts.mean, facts.low, facts.high)}` : "",
      `sign ${stabilityWords(facts.stable)}`, `in ${facts.present} of ${facts.sizes} sizes`, where,
      effect && `if cut, ${effect}`];
    const content = [
      el("span", { class: "rank" }, String(rank)),
      swatchOf(state, kind, letter, facts.mean < 0),
      el("span", { class: "name" }, facts.name, called ? el("span", { class: "called" }, ` ${called}`) : null),
      el("span", { class: "score" }, facts.scored ? number(facts.learned ? facts.value : facts.mean) : ""),
      test ? el("span", { class: "interval effect" }, `${number(test.loss, 2)}${test.superfluous ? " superfluous" : ""}`)
        : el("span", { class: "interval" }, interval),
      el("span", { class: `stable${facts.stable === false ? " not" : ""}` }, MARKS.get(facts.stable)),
      el("span", { class: "sizes" }, facts.sizes > 1 ? `${facts.present}/${facts.sizes}` : ""),
    ];
    return button(content, () => update({ edge: state.edge === edge ? null : edge }), {
      class: `edge${kind === OUTSIDE ? " outside" : ""}`, "data-edge": facts.name,
      "aria-pressed": String(state.edge === edge), "aria-label": words.filter(Boolean).join(", "),
      title: words.slice(1).filter(Boolean).join("; "),
      onpointerenter: () => hover(edge), onpointerleave: () => hover(null),
      onfocus: () => hover(edge), onblur: () => hover(null), style: `--share: ${(100 * share).toFixed(1)}%`,
    });
  };

  const list = (id, title, items, most, row = view.rows[state.row]) => {
    const limit = limits[id] ?? most;
    const more = items.length - limit;
    return el("section", { class: "list", id: `list-${id}` },
      el("h3", {}, title, " ", el("span", { class: "soft" }, `(${count(items.length)})`)),
      items.length ? head(view.runs[row.run], row, row.index === state.row && testsOf(view, row, state.size))
        : el("p", { class: "note" }, "none"),
      el("div", { class: "rows" }, ...rows(items.slice(0, limit))),
      more <= 0 ? null
        : button(`Show ${count(Math.min(MORE, more))} more`, () => grow(id, limit + MORE), { class: "link" }));
  };

  let shownNow = null;
  const grow = (id, limit) => {
    limits = { ...limits, [id]: limit };
    last = null;
    render(state, shownNow);
  };
  const lists = (now, { circuits, shown }) => {
    const name = (row) => view.rows[row].label;
    const { nodes } = view.graph;
    if (circuits.other !== null) {
      const titles = now.truth ? [["shared", "True", SHARED], ["here", "Wrong", HERE], ["there", "Missed", THERE]]
        : [["here", `Only in ${name(now.row)}`, HERE], ["there", `Only in ${name(now.other)}`, THERE], ["shared", "In both", SHARED]];
      const isSame = now.other !== null && circuits.counts[HERE] + circuits.counts[THERE] === 0;
      return [isSame ? sameNote(view, now, update) : null, ...titles.map(([id, title, kind]) =>
        list(id, title, shown.filter((one) => one.kind === kind), OF_SEVERAL, rowOfKind(view, now, kind)))];
    }
    if (now.node !== null) {
      const into = shown.filter(({ edge }) => view.head[edge] === now.node);
      const out = shown.filter(({ edge }) => view.source[edge] === now.node);
      const { kind } = view.graph.place(now.node);
      return [
        kind === "input" ? null : list("into", `Into ${nodes[now.node]}, strongest first`, into, OF_SEVERAL),
        kind === "logits" ? null : list("out", `Out of ${nodes[now.node]}, strongest first`, out, OF_SEVERAL),
      ];
    }
    const title = view.runs[view.rows[now.row].run].scored ? "Strongest edges" : "Edges";
    return [strongestNodes(view, now, circuits, update), list("all", title, shown, ONE_LIST)];
  };

  const render = (now, scene) => {
    const keys = [scene.shown, now.edge, now.tab === "edges", now.notes];
    if (last && keys.every((key, at) => key === last[at])) return;
    const moved = !last || last[0] !== scene.shown || last[3] !== now.notes;
    last = keys;
    state = now;
    shownNow = scene;
    if (now.tab !== "edges") return void (last = null);
    if (moved || !element.firstChild) {
      element.replaceChildren(...lists(now, scene).filter(Boolean));
    } else {
      const name = now.edge === null ? null : view.edgeName(now.edge);
      for (const one of element.querySelectorAll(".edge")) one.setAttribute("aria-pressed", one.dataset.edge === name);
    }
  };
  return { render };
}

/** Says that two circuits are the same, and at which sizes they differ, as buttons that show those sizes. */
function sameNote(view, { row, size, other }, update) {
  const { sizes } = view.rows[row];
  const part = view.graph.held < view.graph.edges ? ", as far as this page has their edges" : "";
  const links = differingSizes(view, row, other).flatMap((at, place) => [
    place ? ", " : "", button(percent(sizes[at].share), () => update({ size: at }), { class: "link", "data-size": at })]);
  return el("p", { class: "note", id: "same-circuits" },
    `Both circuits have the same edges at ${percent(sizes[size].share)}${part}. `,
    ...(links.length ? ["They differ at ", ...links, "."] : ["They are the same at every size."]));
}

const DIFFERENCES = { [HERE]: "here", [THERE]: "there", [SHARED]: "shared" };

/** An edge's mark as its line is drawn; in a difference, where hue says whose it is, a letter says what it ends in. */
function swatchOf({ truth }, kind, letter, negative) {
  const sign = negative && !truth ? " negative" : "";
  if (!(kind in DIFFERENCES)) return el("span", { class: `swatch ${letter.toLowerCase()}${sign}` });
  const words = letter.length === 1 ? letter : letter[0].toUpperCase();
  return el("span", { class: `badge ${(truth ? TRUTHS : DIFFERENCES)[kind]}${sign}`, title: `into ${letter}` }, words);
}

function head(run, row, tests) {
  const titles = [["rank", "#", ""], ["swatch none", "", ""], ["name", "edge", ""],
    [
      "score", row.value ? "learned" : "score",
      row.value ? "What the circuit was chosen by" : "Mean over the examples; its sign says whether the edge helps",
    ],
    tests ? ["interval", "if cut", "How much faithfulness this circuit loses without the edge"]
      : ["interval", run.low ? "interval" : "", "Of the score, by resampling the examples"],
    ["stable", run.unstable ? "sign" : "", "✓ every resample agrees on the sign; ± it changes between resamples"],
    ["sizes", row.sizes.length > 1 ? "sizes" : "", "The number of this recipe's circuits that have the edge"]];
  const spans = titles.map(([name, words, title]) => el("span", { class: name, title: title || null }, words));
  return el("div", { class: "edge head", "aria-hidden": "true" }, ...spans);
}

function strongestNodes(view, state, { row, total, degree }, update) {
  const { scored } = view.runs[row.run];
  const isInner = (node) => ["head", "mlp"].includes(view.graph.place(node).kind);
  const inner = [...degree.keys()].filter((node) => degree[node] > 0 && isInner(node));
  const best = inner.sort((a, b) => total[b] - total[a] || degree[b] - degree[a]).slice(0, STRONGEST_NODES);
  const logits = view.graph.logits;
  const chip = (node) => {
    const effect = nodeEffect(view, state, node);
    const cut = effect ? `; if cut, ${effect}` : "";
    const size = scored ? `total score ${number(total[node])}` : counted(degree[node], "edge");
    const title = degree[node] ? size + cut : "not in this circuit";
    const [name, called] = [view.graph.nodes[node], calledIn(state.notes, node)];
    const content = [name, ...(called ? [el("span", { class: "called" }, ` ${called}`)] : [])];
    return button(content, () => update({ node }), { class: "chip small", "data-node": name, title });
  };
  return el("section", { class: "list", id: "list-nodes" },
    el("h3", {}, "Strongest heads and MLPs"),
    el("p", { class: "note" }, `By ${scored ? "total score" : "number of edges"}; choose one to rank its edges.`),
    el("div", { class: "chips" }, ...best.map(chip), chip(logits), chip(0)));
}
