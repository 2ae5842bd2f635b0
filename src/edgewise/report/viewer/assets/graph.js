// The graph: names and places of nodes, what a destination is an input of, and where cells and curves lie.

export const LETTERS = ["q", "k", "v", "MLP", "logits"];
/** The names of their colours in the style. */
export const HUES = LETTERS.map((letter) => letter.toLowerCase());

/** A graph from its JSON: names of the nodes, and for a destination its node, letter and name. */
export function graphOf({ n_layers: layers, n_heads: heads, parallel, edges, held, spans = [] }) {
  const nodes = ["input"];
  for (let layer = 0; layer < layers; layer++) {
    for (let head = 0; head < heads; head++) nodes.push(`a${layer}.h${head}`);
    nodes.push(`m${layer}`);
  }
  const logits = nodes.push("logits") - 1;
  const readers = 3 * heads + 1;
  const letterOf = (destination) => {
    if (destination >= layers * readers) return 4;
    const within = destination % readers;
    return within === 3 * heads ? 3 : Math.floor(within / heads);
  };
  const nodeOf = (destination) => {
    if (destination >= layers * readers) return logits;
    const first = 1 + Math.floor(destination / readers) * (heads + 1);
    const within = destination % readers;
    return first + (within === 3 * heads ? heads : within % heads);
  };
  const destinationName = (destination) => {
    const letter = letterOf(destination);
    return nodes[nodeOf(destination)] + (letter < 3 ? `<${LETTERS[letter]}>` : "");
  };
  const place = (node) => {
    if (node === 0) return { layer: -1, head: null, kind: "input" };
    if (node === logits) return { layer: layers, head: null, kind: "logits" };
    const layer = Math.floor((node - 1) / (heads + 1));
    const head = (node - 1) % (heads + 1);
    return head === heads ? { layer, head: null, kind: "mlp" } : { layer, head, kind: "head" };
  };
  const numbers = new Map(nodes.map((name, node) => [name, node]));
  return {
    layers, heads, parallel, edges, held, nodes, logits, spans,
    /** The word for an edge in counts: circuits may consist of (edge, span) pairs. */
    unit: spans.length ? "pair" : "edge",
    destinations: layers * readers + 1,
    nodeOf, letterOf, destinationName, place,
    /** The node of this name, or null. */
    find: (name) => numbers.get(name) ?? null,
  };
}

const LEFT = 40, RIGHT = 12, TOP = 10, BOTTOM = 10;
// An MLP reads its layer's heads, so its cell lies half a row above them: every edge leads upwards.
const RAISED = 0.5;

/** Cells of a graph on a board of this size: [node] {node, x, y, w, h, kind}, x and y their middle. */
export function layoutOf(graph, width, height) {
  const step = (height - TOP - BOTTOM) / (graph.layers + 2.15);
  const column = (width - LEFT - RIGHT) / (graph.heads + 2.1);
  // MLPs lie half a row above heads: lines between them need a gap, or they would run along the borders of cells. Low
  // rows need high cells to have room for names.
  const h = Math.max(3, Math.min(Math.max(0.32 * step, Math.min(0.44 * step, 12)), 40));
  const w = Math.max(3, Math.min(0.7 * column, 104));
  const y = (level) => height - BOTTOM - (level + 0.5) * step;
  const middle = LEFT + (width - LEFT - RIGHT) / 2;
  const wide = 0.62 * (width - LEFT - RIGHT);
  const cells = graph.nodes.map((_, node) => {
    const { layer, head, kind } = graph.place(node);
    if (kind === "input") return { node, kind, x: middle, y: y(0), w: wide, h };
    if (kind === "logits") return { node, kind, x: middle, y: y(graph.layers + 1.15), w: wide, h };
    if (kind === "head") return { node, kind, x: LEFT + (head + 0.5) * column, y: y(layer + 1), w, h };
    const raised = graph.parallel ? 0 : RAISED;
    const mlp = Math.min(1.5 * column, 150);
    return { node, kind, x: LEFT + (graph.heads + 1.15) * column, y: y(layer + 1 + raised), w: mlp, h };
  });
  const rows = Array.from({ length: graph.layers }, (_, layer) => ({ layer, y: y(layer + 1) }));
  return { width, height, step, column, middle, left: LEFT, cells, rows };
}

// Where an edge enters a head: q at the left, k in the middle, v at the right.
const PORTS = [-0.28, 0, 0.28, 0, 0];

/** The curve of an edge as [x0, y0, c0x, c0y, c1x, c1y, x1, y1], from its source's top to its reader's bottom. */
export function curveOf(layout, source, head, letter) {
  const from = layout.cells[source];
  const to = layout.cells[head];
  // The wide cells are entered and left below or above the other end, so that lines don't meet in one point.
  const x0 = from.kind === "input" ? port(layout, from, to.x + PORTS[letter] * to.w) : from.x;
  const x1 = to.kind === "logits" ? port(layout, to, from.x) : to.x + PORTS[letter] * to.w;
  const y0 = from.y - from.h / 2;
  const y1 = to.y + to.h / 2;
  const rise = y0 - y1;
  // A line within a column would hide behind the cells there: it bows out between two columns.
  const straight = Math.max(0, 1 - Math.abs(x1 - x0) / (0.6 * layout.column));
  const bow = rise > 1.2 * layout.step ? straight * 0.66 * layout.column : 0;
  const bend = 0.5 * rise;
  return [x0, y0, x0 + bow, y0 - bend, x1 + bow, y1 + bend, x1, y1];
}

const port = (layout, wide, x) => wide.x + ((x - wide.x) * wide.w * 0.94) / (layout.width - layout.left);

/** The distance of a point from a curve, or Infinity if it is more than `near` away from its box. */
export function distance(curve, px, py, near) {
  const [x0, y0, ax, ay, bx, by, x1, y1] = curve;
  if (py > y0 + near || py < y1 - near) return Infinity;
  if (px < Math.min(x0, x1, ax, bx) - near || px > Math.max(x0, x1, ax, bx) + near) return Infinity;
  let best = Infinity;
  let fx = x0, fy = y0;
  for (let i = 1; i <= 20; i++) {
    const t = i / 20, u = 1 - t;
    const tx = u * u * u * x0 + 3 * u * u * t * ax + 3 * u * t * t * bx + t * t * t * x1;
    const ty = u * u * u * y0 + 3 * u * u * t * ay + 3 * u * t * t * by + t * t * t * y1;
    const dx = tx - fx, dy = ty - fy;
    const along = Math.max(0, Math.min(1, ((px - fx) * dx + (py - fy) * dy) / (dx * dx + dy * dy || 1)));
    best = Math.min(best, Math.hypot(px - fx - along * dx, py - fy - along * dy));
    fx = tx;
    fy = ty;
  }
  return best;
}

/** The cell at a point, or null. */
export function cellAt(layout, px, py, slack = 1) {
  const inside = (cell) => Math.abs(px - cell.x) <= cell.w / 2 + slack && Math.abs(py - cell.y) <= cell.h / 2 + slack;
  return layout.cells.find(inside) ?? null;
}
