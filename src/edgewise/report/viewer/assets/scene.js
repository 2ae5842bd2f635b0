// Which edges a state shows, and how strongly: pure functions of view and state.

import { curveOf, HUES } from "edgewise/graph.js";
import { sameSize } from "edgewise/state.js";

const MOST_LINES = 1500;
// Dashes take a browser ten times as long as a whole line, and among thousands of thin lines nobody sees them.
const MOST_DASHED = 300;
// What an edge is to the circuits that are shown.
export const IN = 0, HERE = 1, THERE = 2, SHARED = 3, OUTSIDE = 4;
const NONE = 255;
// How opaque lines are while another edge is chosen.
const DIMMED = 0.35;

const orders = new WeakMap();

/** Edges by falling strength of a row's scores, and the largest strength: made once per array of scores. */
export function orderOf(row) {
  if (!orders.has(row.scores)) {
    const scores = row.scores;
    const edges = Uint32Array.from({ length: scores.length }, (_, edge) => edge);
    const strength = scores.map(Math.abs);
    // Edges come by strength of the runs' scores: with one run there is nothing to sort.
    const sorted = strength.every((value, at) => at === 0 || value <= strength[at - 1]);
    if (!sorted) edges.sort((a, b) => strength[b] - strength[a] || a - b);
    orders.set(row.scores, { edges, most: strength[edges[0]] || 1 });
  }
  return orders.get(row.scores);
}

/** The circuit that the shown one is compared with, or null: {row, size, has(edge)}. The known circuit has the scores of
 * the shown row. */
export function otherOf(view, state) {
  if (state.truth) return { row: view.rows[state.row], size: state.size, has: (edge) => view.truth[edge] === 1 };
  if (state.other === null) return null;
  const row = view.rows[state.other];
  const size = sameSize(view, state.row, state.size, state.other);
  return { row, size, has: (edge) => row.has(size, edge) };
}

/** The run whose tests are of this circuit, or null: with the effects of knock-outs and the superfluous edges. */
export function testsOf(view, row, size) {
  const run = view.runs[row.run];
  return run.edgeEffects && row.tested.includes(size) ? run : null;
}

/** Circuits of a state before any filter: what each edge is to them, [edge], with counts; and of each node the total
 * strength and the number of its edges. */
export function circuitsOf(view, state) {
  const row = view.rows[state.row];
  const other = otherOf(view, state);
  const kind = new Uint8Array(view.n).fill(NONE);
  const counts = [0, 0, 0, 0, 0];
  const total = new Float64Array(view.graph.nodes.length);
  const degree = new Uint32Array(view.graph.nodes.length);
  for (let edge = 0; edge < view.n; edge++) {
    const here = row.has(state.size, edge);
    const there = other !== null && other.has(edge);
    if (!here && !there) {
      if (state.all) kind[edge] = OUTSIDE;
      continue;
    }
    const which = other === null ? IN : !there ? HERE : here ? SHARED : THERE;
    kind[edge] = which;
    counts[which]++;
    const strength = Math.abs((which === THERE ? other.row : row).scores[edge]);
    for (const node of [view.source[edge], view.head[edge]]) {
      total[node] += strength;
      degree[node]++;
    }
  }
  return { row, other, kind, counts, total, degree };
}

/** What edges are to the known circuit, as names of styles. */
export const TRUTHS = { [SHARED]: "right", [HERE]: "wrong", [THERE]: "missed" };

/** The edges that filters and choices let through, strongest first, as
 * {edge, kind, negative, share of the strongest, pinned}.
 *
 * Strength is that of what the circuits were chosen by; the sign is that of the run's score: learned values have none.
 */
export function shownEdges(view, state, circuits) {
  const { row, other, kind } = circuits;
  const passes = filterOf(view, state);
  const pins = new Set(state.pins);
  const list = (one, kinds) => {
    const { edges, most } = orderOf(one);
    const { mean } = view.runs[one.run];
    const found = [];
    for (let at = 0; at < edges.length; at++) {
      const edge = edges[at];
      if (!kinds[kind[edge]]) continue;
      const pinned = pins.has(view.source[edge]) || pins.has(view.head[edge]);
      const share = Math.abs(one.scores[edge]) / most;
      if (pinned || passes(edge, mean[edge], share)) {
        found.push({ edge, kind: kind[edge], negative: mean[edge] < 0, share, pinned });
      }
    }
    return found;
  };
  const here = list(row, [1, 1, 0, 1, 1]);
  // The sort is stable: of equal shares, edges of the shown circuit come first.
  return other === null ? here : [...here, ...list(other.row, [0, 0, 1, 0, 0])].sort((a, b) => b.share - a.share);
}

/** Whether an edge passes the filters and the choice of a node, as a function of (edge, score, share). */
function filterOf(view, state) {
  const { node, letters, sign, least, span } = state;
  const found = searchOf(view, state.search, state.notes);
  return (edge, score, share) =>
    letters[view.letter[edge]] && share >= least && (span === null || view.span[edge] === span) &&
    (sign === "both" || (sign === "positive" ? score > 0 : score < 0)) &&
    (node === null || view.source[edge] === node || view.head[edge] === node) &&
    (found === null || found(edge));
}

/** The spans of tokens at which the edge of a pair acts, strongest first: {edge, span, score, inside the circuit}. */
export function spansOf(view, row, size, pair) {
  const found = [];
  for (let edge = 0; edge < view.n; edge++)
    if (view.source[edge] === view.source[pair] && view.destination[edge] === view.destination[pair])
      found.push({ edge, span: view.graph.spans[view.span[edge]], score: row.scores[edge], inside: row.has(size, edge) });
  return found.sort((a, b) => Math.abs(b.score) - Math.abs(a.score));
}

/** Whether an edge is meant by what is searched, as a function; null if nothing is searched. */
export function searchOf(view, search, notes) {
  const [words, at] = search.trim().toLowerCase().replace("→", "->").split("@");
  if (!words && at === undefined) return null;
  if (at !== undefined) {
    const spans = view.graph.spans.map((name) => name.toLowerCase());
    const isMeant = spans.map((name) => (spans.includes(at) ? name === at : name.includes(at)));
    const found = searchOf(view, words, notes) ?? (() => true);
    return (edge) => view.span !== null && isMeant[view.span[edge]] && found(edge);
  }
  const { nodes, destinations, destinationName, nodeOf } = view.graph;
  const to = Array.from({ length: destinations }, (_, at) => destinationName(at));
  const [left, right] = words.split(/\s*->\s*/);
  const source = matching(nodes, left);
  for (const { node, name } of notes) if (left && name.toLowerCase().includes(left)) source[node] = true;
  if (right !== undefined) {
    const exact = to.some((name) => name === right || name.split("<")[0] === right);
    const ends = to.map((name) => (exact ? name === right || name.split("<")[0] === right : name.includes(right)));
    return (edge) => source[view.source[edge]] && ends[view.destination[edge]];
  }
  const ends = to.map((name, at) => (left.includes("<") ? name.includes(left) : source[nodeOf(at)]));
  return (edge) => source[view.source[edge]] || ends[view.destination[edge]];
}

// A whole name means that node alone: a1.h1 isn't a1.h11.
const matching = (names, words) =>
  names.includes(words) ? names.map((name) => name === words) : names.map((name) => name.toLowerCase().includes(words));

/** The lines of the edges that are shown, weakest first: those of pins and the chosen edge always. */
export function linesOf(view, state, circuits, shown, layout) {
  const few = shown.length <= MOST_LINES ? shown : strongest(shown, state);
  const there = state.edge === null || few.some((one) => one.edge === state.edge);
  const kept = there ? few : [...few, chosenEdge(view, circuits, state.edge)];
  const base = Math.max(0.22, Math.min(0.9, 7 / Math.sqrt(kept.length + 1)));
  const chosen = state.pins.length > 0 && state.node === null;
  const tests = state.truth ? null : testsOf(view, circuits.row, state.size);
  let dashed = 0, dotted = 0;
  const lines = kept.map(({ edge, kind, negative, share, pinned }) => ({
    edge, kind,
    curve: curveOf(layout, view.source[edge], view.head[edge], view.letter[edge]),
    colour: colourOf(state, kind, view.letter[edge], negative),
    dashed: (state.truth ? kind === THERE : negative && kind !== OUTSIDE) &&
      (edge === state.edge || dashed++ < MOST_DASHED),
    superfluous: tests !== null && (kind === IN || kind === HERE || kind === SHARED) && tests.superfluous[edge] === 1,
    dotted: kind === OUTSIDE && (edge === state.edge || dotted++ < MOST_DASHED),
    width: widthOf(lookOf(state, kind), share),
    alpha: alphaOf(lookOf(state, kind), share, base) * (chosen && !pinned ? 0.3 : 1),
  }));
  // Faint lines below, then by strength, and the chosen edge over faint others; the sort is stable.
  const height = ({ edge, kind }) => (edge === state.edge ? 2 : kind === SHARED || kind === OUTSIDE ? 0 : 1);
  lines.reverse().sort((a, b) => height(a) - height(b));
  for (const line of state.edge === null ? [] : lines) {
    if (line.edge === state.edge) [line.alpha, line.width] = [1, line.width + 1.5];
    else line.alpha *= DIMMED;
  }
  return { lines, left: shown.length - few.length };
}

/** The chosen edge, though no filter or circuit has it. */
function chosenEdge(view, { row, other, kind }, edge) {
  const one = kind[edge] === THERE ? other.row : row;
  return {
    edge, kind: kind[edge] === NONE ? OUTSIDE : kind[edge], negative: view.runs[one.run].mean[edge] < 0,
    share: Math.abs(one.scores[edge]) / orderOf(one).most, pinned: false,
  };
}

function strongest(shown, state) {
  // What two circuits disagree on is what one looks for: shared edges are left out first.
  const isFirst = (one) => one.pinned || one.edge === state.edge;
  const isLast = (one) => one.kind === SHARED || one.kind === OUTSIDE;
  const first = (one) => (isFirst(one) ? 2 : isLast(one) ? 0 : 1);
  const kept = [2, 1, 0].flatMap((rank) => shown.filter((one) => first(one) === rank)).slice(0, MOST_LINES);
  return kept.sort((a, b) => b.share - a.share);
}

// True edges stand out as much as those of a circuit by itself.
const lookOf = (state, kind) => (state.truth && kind === SHARED ? IN : kind);

function colourOf(state, kind, letter, negative) {
  if (state.truth && kind in TRUTHS) return TRUTHS[kind];
  if (kind === HERE) return "here";
  if (kind === THERE) return "there";
  if (kind === SHARED || kind === OUTSIDE) return "shared";
  if (state.colour === "sign") return negative ? "negative" : "positive";
  return HUES[letter];
}

// In difference mode what differs stands out, however weak it is.
const WIDTHS = { [IN]: [0.7, 4.2], [HERE]: [1.4, 4], [THERE]: [1.4, 4], [SHARED]: [0.6, 2], [OUTSIDE]: [0.6, 1] };
const widthOf = (kind, share) => WIDTHS[kind][0] + WIDTHS[kind][1] * Math.sqrt(share);

function alphaOf(kind, share, base) {
  if (kind === OUTSIDE) return Math.min(0.3, base);
  if (kind === SHARED) return Math.min(0.45, base);
  const least = kind === IN ? base : Math.max(0.6, base);
  return Math.min(1, least + (1 - least) * Math.sqrt(share));
}

/** How each node is shown: its share of the largest total score, and whether it is the chosen one or beside it. */
export function cellsOf(view, state, circuits, shown) {
  const most = circuits.total.reduce((a, b) => Math.max(a, b), 0) || 1;
  const near = new Uint8Array(circuits.total.length);
  for (const { edge } of shown) near[view.source[edge]] = near[view.head[edge]] = 1;
  const picking = state.node !== null || state.search.trim() !== "";
  return Array.from(circuits.total, (total, node) => ({
    node, share: total / most, inside: circuits.degree[node] > 0,
    chosen: node === state.node, pinned: state.pins.includes(node),
    dimmed: picking && !near[node] && node !== state.node,
  }));
}
