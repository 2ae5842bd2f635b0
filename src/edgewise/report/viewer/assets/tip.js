// What the pointer is on, in a tooltip, and what is selected or pinned, below the circuit.

import { button, el, icon, whenChanged } from "edgewise/dom.js";
import { LETTERS } from "edgewise/graph.js";
import { calledIn, edgeCalled } from "edgewise/notes.js";
import { HERE, IN, OUTSIDE, SHARED, spansOf, testsOf, THERE, TRUTHS } from "edgewise/scene.js";
import { between, count, counted, fixed, number } from "edgewise/text.js";

/** Describes which of the shown circuits have an edge; empty if there is one and it has the edge. */
export function kindWords(view, state, kind) {
  if (state.truth && kind in TRUTHS) return TRUTH_WORDS[kind];
  const name = (row) => view.rows[row].label;
  if (kind === HERE) return `only in ${name(state.row)}`;
  if (kind === THERE) return `only in ${name(state.other)}`;
  if (kind === SHARED) return `in ${name(state.row)} and ${name(state.other)}`;
  return kind === OUTSIDE ? "not in this circuit" : "";
}

const TRUTH_WORDS = {
  [SHARED]: "true: also in the known circuit", [HERE]: "wrong: not in the known circuit",
  [THERE]: "missed: in the known circuit, not in this one",
};

/** The row whose scores an edge is shown with. */
export const rowOfKind = (view, state, kind) =>
  view.rows[kind === THERE && state.other !== null ? state.other : state.row];

/** Facts of an edge, by the scores of the row it is shown for: {name, score, interval, stable, present, sizes, ...}. */
export function edgeFacts(view, row, edge) {
  const run = view.runs[row.run];
  const learned = row.value !== null;
  const mean = run.mean[edge];
  const known = run.low !== null && run.high !== null;
  return {
    name: view.edgeName(edge), scored: run.scored, learned, mean, value: row.scores[edge],
    low: known ? run.low[edge] : null, high: known ? run.high[edge] : null,
    stable: run.unstable === null ? null : !run.unstable[edge],
    present: row.count(edge), sizes: row.sizes.length,
  };
}

/** Describes whether resamples agree on the sign. */
export const stabilityWords = (stable) =>
  stable === null ? "not resampled" : stable ? "stable: every resample agrees" : "unstable: changes between resamples";

/** What the tests say of an edge of the shown circuit: {loss, superfluous}; null if there are no tests of it. */
export function edgeTest(view, { row, size }, edge) {
  const tests = view.rows[row].has(size, edge) ? testsOf(view, view.rows[row], size) : null;
  return tests && { loss: tests.edgeEffects[edge], superfluous: tests.superfluous[edge] === 1 };
}

/** What the shown circuit loses without an edge, in words; empty if it was not tested or has no such edge. */
export function edgeEffect(view, state, edge) {
  const test = edgeTest(view, state, edge);
  return test ? lossWords(test.loss) + (test.superfluous ? "; superfluous by the test of minimality" : "") : "";
}

/** What the shown circuit loses without a head or an MLP, in words; empty if it was not tested. */
export function nodeEffect(view, { row, size }, node) {
  const tests = ["head", "mlp"].includes(view.graph.place(node).kind) ? testsOf(view, view.rows[row], size) : null;
  return tests ? lossWords(tests.nodeEffects[node]) : "";
}

const lossWords = (loss) => `the circuit loses ${number(loss)} of faithfulness`;

function edgeTip(view, state, line) {
  const row = rowOfKind(view, state, line.kind);
  const facts = edgeFacts(view, row, line.edge);
  const reader = LETTERS[view.letter[line.edge]];
  const [effect, circuit] = [edgeEffect(view, state, line.edge), kindWords(view, state, line.kind)];
  const called = edgeCalled(view, state.notes, line.edge);
  const spans = (view.span ? spansOf(view, row, state.size, line.edge) : [])
    .filter((one) => one.inside).map(({ span, score }) => `${span} ${number(score)}`);
  return [facts.name, [
    called ? ["named", called] : null,
    ["score", facts.scored ? between(facts.mean, facts.low, facts.high) : "the file has none"],
    facts.learned ? ["chosen by", `${number(facts.value)} (learned)`] : null,
    facts.scored ? ["sign", `${facts.mean < 0 ? "negative" : "positive"}, ${stabilityWords(facts.stable)}`] : null,
    effect ? ["if cut", effect] : null,
    ["into", reader.length === 1 ? `${{ q: "query", k: "key", v: "value" }[reader]} (${reader})` : reader],
    view.span ? ["acts at", spans.join(", ") || "no span of this circuit"] : null,
    facts.sizes > 1 ? ["present", `in ${facts.present} of ${facts.sizes} sizes of ${row.label}`] : null,
    circuit ? ["circuit", circuit] : null,
  ]];
}

function nodeTip(view, state, node, circuits) {
  const { kind, layer, head } = view.graph.place(node);
  const what = {
    input: "the embedding", logits: "the output", head: `head ${head} of layer ${layer}`, mlp: `MLP of layer ${layer}`,
  };
  let into = 0, out = 0;
  for (let edge = 0; edge < view.n; edge++) {
    if (circuits.kind[edge] > SHARED) continue; // outside the circuits
    into += view.head[edge] === node;
    out += view.source[edge] === node;
  }
  const effect = into + out ? nodeEffect(view, state, node) : "";
  const own = state.notes.find((one) => one.node === node);
  return [view.graph.nodes[node], [
    own?.name ? ["named", own.name] : null,
    own?.note ? ["note", own.note] : null,
    ["is", what[kind]],
    ["edges", `${count(into)} in, ${count(out)} out`],
    ["total", into + out ? `${number(circuits.total[node])}, the sum of the strengths of its edges` : "not in this circuit"],
    effect ? ["if cut", effect] : null,
  ]];
}

/** Shows the tooltip of a target {line} or {node} near the pointer, or at the bottom for touch; null hides it. */
export function showTip(tip, view, state, circuits, target, event) {
  tip.hidden = target === null;
  if (target === null) return;
  const { line, node } = target;
  const [name, lines] = line ? edgeTip(view, state, line) : nodeTip(view, state, node, circuits);
  const hint = line ? null : state.node === node ? "click to show all again" : "click to see its edges only";
  tip.replaceChildren(
    el("strong", {}, name),
    el("dl", {}, ...lines.filter(Boolean).flatMap(([term, words]) => [el("dt", {}, term), el("dd", {}, words)])),
    ...(hint ? [el("p", {}, hint)] : []),
  );
  tip.classList.toggle("docked", event.pointerType === "touch");
  besidePlace(tip, event.clientX, event.clientY);
}

/** Places a tooltip below and right of a point, or where there is room near it. */
export function besidePlace(tip, x, y) {
  const { width, height } = tip.getBoundingClientRect();
  const right = x + 16 + width > innerWidth - 8;
  tip.style.left = `${Math.max(8, right ? x - width - 16 : x + 16)}px`;
  tip.style.top = `${Math.max(8, Math.min(y + 14, innerHeight - height - 8))}px`;
}

/** Describes the picture for its caption and for screen readers: parts {words, key of a colour or null}. */
export function summary(view, state, circuits, shown, left) {
  const { row, other, counts } = circuits;
  const { kept } = row.sizes[state.size];
  const parts = [];
  const add = (words, key = null) => parts.push({ words, key });
  const all = counts[IN] + counts[HERE] + counts[THERE] + counts[SHARED];
  const lacksOther = other && !state.truth && counts[THERE] + counts[SHARED] < other.row.sizes[other.size].kept;
  const isPart = other && (counts[HERE] + counts[SHARED] < kept || lacksOther);
  if (state.truth) {
    for (const [words, kind] of [["true", SHARED], ["wrong", HERE], ["missed", THERE]]) {
      add(`${count(counts[kind])} ${words}`, TRUTHS[kind]);
    }
    const share = (kind) => fixed(counts[SHARED] / (counts[SHARED] + counts[kind]));
    add(`precision ${share(HERE)}, recall ${share(THERE)}`);
  } else if (other) {
    add(`${count(counts[HERE])} only in ${row.label}`, "here");
    add(`${count(counts[THERE])} only in ${other.row.label}`, "there");
    add(`${count(counts[SHARED])} in both`, "shared");
  } else {
    add(`Circuit of ${counted(kept, view.graph.unit)} of ${count(view.graph.edges)}`);
    if (all < kept) add(`this page has ${count(all)} of them`);
  }
  if (isPart) add(`counted among the ${counted(view.n, view.graph.unit)} that this page has`);
  if (shown !== all) add(`${count(shown)} selected by node, search and filters`);
  if (left) add(`only the strongest ${count(shown - left)} lines of ${count(shown)} are drawn`);
  return parts;
}

export const CLOSE = ["M4 4l8 8", "M12 4l-8 8"];

/** Fills `element` with the selected node, the selected edge and the pinned nodes. */
export function chosen(element, view, update, pin) {
  const name = (node) => view.graph.nodes[node];
  const tag = (kind, words, ...buttons) => el("span", { class: `tag ${kind}`, "data-tag": words }, words, ...buttons);
  const close = (words, run) => button(icon(...CLOSE), run, { class: "icon", title: words, "aria-label": words });
  const called = (node, notes) => [calledIn(notes, node)].filter(Boolean)
    .map((words) => el("span", { class: "called" }, words));
  // How many of its output dimensions a circuit of neurons has.
  const neurons = ({ node, row, size }) => {
    const counts = view.rows[row].neurons, sources = view.graph.nodes.length - 1;
    return counts && node < sources ? [el("span", { class: "called" }, `${counts[size * sources + node]} neurons`)] : [];
  };
  const cut = (effect) => (effect ? [el("span", { class: "soft effect" }, `if cut, ${effect}`)] : []);
  const nodeTag = (state) => tag("node", name(state.node), ...called(state.node, state.notes),
    ...neurons(state), ...cut(nodeEffect(view, state, state.node)),
    button(state.pins.includes(state.node) ? "Unpin" : "Pin", () => pin(), { id: "pin", title: "Keep its edges visible (p)" }),
    close(`Show all, not only ${name(state.node)}`, () => update({ node: null })));
  const edgeTag = (state) => tag("of-edge", view.edgeName(state.edge), ...(view.span ? [spanList(state)] : []),
    ...cut(edgeEffect(view, state, state.edge)),
    close("Choose no edge", () => update({ edge: null })));
  // On which spans of tokens the edge acts, each a button that chooses that pair.
  const spanList = ({ edge, row, size }) => el("span", { class: "spans" },
    ...spansOf(view, view.rows[row], size, edge).filter((one) => one.inside || one.edge === edge).map((one) =>
      button(`${one.span} ${number(one.score)}`, () => update({ edge: one.edge }), {
        class: "chip small", "data-span": one.span, "aria-pressed": String(one.edge === edge),
        title: `${view.edgeName(one.edge)}: score ${number(one.score)}${one.inside ? "" : ", not in this circuit"}`,
      })));
  const pinTag = (node, notes) => tag("pin", name(node), ...called(node, notes), close(`Unpin ${name(node)}`, () => pin(node)));

  const keys = ({ node, edge, pins, notes, row, size }) => [node, edge, pins, notes, row, size];
  return {
    render: whenChanged(keys, (state) => element.replaceChildren(
      ...(state.node === null ? [] : [nodeTag(state)]),
      ...(state.edge === null ? [] : [edgeTag(state)]),
      ...state.pins.filter((one) => one !== state.node).map((one) => pinTag(one, state.notes)))),
  };
}
