// A scene on a canvas.

import { cellAt, distance } from "edgewise/graph.js";
import { calledIn } from "edgewise/notes.js";

const NAMES = ["q", "k", "v", "mlp", "logits", "positive", "negative", "here", "there", "shared", "right", "wrong",
  "missed", "card", "ink", "soft",
  "faint", "line", "strong-line", "accent", "cell-low", "cell-high", "cell-out"];

/** The colours of the theme that an element is in. */
export function paletteOf(element) {
  const style = getComputedStyle(element);
  return Object.fromEntries(NAMES.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
}

/** The fill of a cell, and the colour of the words on it. */
export function cellColours(palette, cell) {
  if (!cell.inside) return { fill: palette["cell-out"], ink: palette.faint, edge: palette.line };
  const [low, high] = [parts(palette["cell-low"]), parts(palette["cell-high"])];
  const share = 0.1 + 0.9 * Math.sqrt(cell.share);
  const fill = low.map((value, at) => Math.round(value + share * (high[at] - value)));
  // Of black and white, one has a contrast of 4.5 to whatever grey.
  const clearer = contrast(fill, parts("#ffffff")) > contrast(fill, parts("#000000")) ? "#ffffff" : "#000000";
  return { fill: `rgb(${fill})`, ink: cell.dimmed ? palette.soft : clearer, edge: palette["strong-line"] };
}

/** The WCAG contrast of two colours: 1 to 21. */
function contrast(a, b) {
  const light = ([red, green, blue]) =>
    0.05 + 0.2126 * (red / 255) ** 2.2 + 0.7152 * (green / 255) ** 2.2 + 0.0722 * (blue / 255) ** 2.2;
  const [one, two] = [light(a), light(b)];
  return Math.max(one, two) / Math.min(one, two);
}

const parts = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));

/** How a line of this width is broken: dashes of a negative edge, dashes and dots of a superfluous one, dots of one outside
 * the circuit; [] if it isn't. */
export const dashOf = ({ dashed, dotted, superfluous }, width) =>
  dotted ? [1.5, 3.5] : superfluous ? [9 + width, 3 + width, 1 + width, 3 + width] : dashed ? [5 + 1.4 * width, 3 + 1.2 * width] : [];

/** Draws lines, then cells over them, at a zoom {x, y, k} and a number of pixels per unit. */
export function drawScene(canvas, { layout, lines, cells, names, notes, palette, zoom, ratio, chosenEdge }) {
  const context = canvas.getContext("2d");
  context.setTransform(1, 0, 0, 1, 0, 0);
  context.clearRect(0, 0, canvas.width, canvas.height);
  place(context, layout, zoom, ratio);
  context.lineCap = "butt";
  const { x, y, k } = zoom;
  const [left, right] = [(x - 0.5 / k) * layout.width, (x + 0.5 / k) * layout.width];
  const [top, bottom] = [(y - 0.5 / k) * layout.height, (y + 0.5 / k) * layout.height];
  const isVisible = ({ curve: [x0, y0, ax, , bx, , x1, y1] }) =>
    y0 >= top && y1 <= bottom && Math.max(x0, x1, ax, bx) >= left && Math.min(x0, x1, ax, bx) <= right;
  const thin = 1 / Math.sqrt(k);
  for (const alike of groupsOf(lines.filter(isVisible)))
    strokeLines(context, alike, palette, thin);
  drawCells(context, layout, cells, names, palette, zoom, chosenEdge !== null);
  const rowSize = Math.min(11, 0.5 * layout.step) / Math.sqrt(k);
  context.font = `${rowSize}px system-ui, sans-serif`;
  context.textAlign = "right";
  context.fillStyle = palette.soft;
  const rows = rowSize * k < LEAST_TEXT ? [] : layout.rows;
  for (const row of rows) context.fillText(`L${row.layer}`, layout.left - 8, row.y);
  context.textAlign = "center";
  context.textBaseline = "alphabetic";
  context.lineJoin = "round";
  context.lineWidth = 3 / k;
  for (const { node } of notes) {
    const tag = nameTag(layout, node, calledIn(notes, node), k);
    context.font = `600 ${tag.size}px system-ui, sans-serif`;
    context.strokeStyle = palette.card;
    context.strokeText(tag.words, tag.x, tag.y);
    context.fillStyle = palette.accent;
    context.fillText(tag.words, tag.x, tag.y);
  }
}

/** Where the reader's name of a node is written, above its cell and no wider than its column: {x, y, words, size}. */
export function nameTag(layout, node, called, zoom = 1) {
  const { x, y, w, h } = layout.cells[node];
  const size = Math.min(12, Math.max(10, 0.2 * layout.step)) / zoom;
  const letters = [...called];
  const most = Math.max(3, Math.floor(Math.max(w, 0.98 * layout.column) / (0.58 * size)));
  const words = letters.length <= most ? called : `${letters.slice(0, most - 1).join("").trim()}…`;
  return { x, y: y - h / 2 - 0.3 * size, words, size };
}

// This many of the strongest lines are drawn one by one, each over the weaker ones.
const ONE_BY_ONE = 300;
// Widths and alphas of weaker lines are rounded to this many parts, so that equal ones are drawn together.
const PARTS = 8;

/** Lines in groups that are stroked at once, which is faster: the weak ones by how they look, the strong ones alone. */
function groupsOf(lines) {
  const weak = new Map();
  for (const line of lines.slice(0, -ONE_BY_ONE)) {
    const sizes = [line.width, line.alpha].map((size) => Math.round(PARTS * size));
    const key = [line.colour, line.dashed, line.dotted, line.superfluous, ...sizes].join(" ");
    if (weak.has(key)) weak.get(key).push(line);
    else weak.set(key, [line]);
  }
  return [...weak.values(), ...lines.slice(-ONE_BY_ONE).map((line) => [line])];
}

/** Strokes lines that look like the first of them. */
function strokeLines(context, lines, palette, thin) {
  const { alpha, colour, width } = lines[0];
  context.globalAlpha = alpha;
  context.strokeStyle = palette[colour];
  context.lineWidth = width * thin;
  context.setLineDash(dashOf(lines[0], width * thin));
  context.beginPath();
  for (const { curve: [x0, y0, ax, ay, bx, by, x1, y1] } of lines) {
    context.moveTo(x0, y0);
    context.bezierCurveTo(ax, ay, bx, by, x1, y1);
  }
  context.stroke();
}

function place(context, layout, { x, y, k }, ratio) {
  const scale = ratio * k;
  const left = ratio * layout.width * (0.5 - x * k);
  const top = ratio * layout.height * (0.5 - y * k);
  context.setTransform(scale, 0, 0, scale, left, top);
}

/** How opaque a cell's ground and its colour are. Lines pass behind cells, and shine through those that are outside the
 * circuit or have none of the shown edges. */
export function cellOpacity({ dimmed, inside }, quiet) {
  const behind = dimmed ? 0.5 : inside ? 1 : 0.6;
  return { behind, fore: dimmed ? 0.3 : quiet ? 0.75 * behind : behind };
}

function drawCells(context, layout, cells, names, palette, zoom, quiet) {
  const longest = longestName(names);
  context.setLineDash([]);
  context.textAlign = "center";
  context.textBaseline = "middle";
  for (const cell of cells) {
    const at = layout.cells[cell.node];
    const colours = cellColours(palette, cell);
    shape(context, at);
    const { behind, fore } = cellOpacity(cell, quiet);
    context.globalAlpha = behind;
    context.fillStyle = palette.card;
    context.fill();
    context.globalAlpha = fore;
    context.fillStyle = colours.fill;
    context.fill();
    context.lineWidth = (cell.chosen || cell.pinned ? 2.5 : 0.8) / Math.sqrt(zoom.k);
    context.strokeStyle = cell.chosen ? palette.accent : cell.pinned ? palette.ink : colours.edge;
    context.stroke();
    const label = labelOf(at, names[cell.node], longest, zoom.k);
    if (label) {
      context.font = `${cell.inside ? 600 : 400} ${label.size}px system-ui, sans-serif`;
      context.globalAlpha = 1; // the cell steps back, its name stays legible
      context.fillStyle = colours.ink;
      context.fillText(label.words, at.x, at.y + 0.04 * label.size);
    }
  }
  context.globalAlpha = 1;
}

function shape(context, { x, y, w, h }) {
  context.beginPath();
  context.roundRect(x - w / 2, y - h / 2, w, h, Math.min(5, h / 3, w / 3));
}

// Smaller letters are noise.
const LEAST_TEXT = 6;

/** What a cell says: its name, or a head's number where names have no room, or null; `size` in the layout's units.
 *
 * `longest` is the number of letters of the longest name of a head, so that all heads are labelled alike.
 */
export function labelOf({ w, h, kind }, name, longest, zoom = 1) {
  const most = Math.min((h * zoom < 14 ? 0.8 : 0.66) * h, 13 / zoom);
  const room = (letters) => Math.min(most, (w - 3 / zoom) / (0.66 * letters));
  const least = Math.min(most, 8.5 / zoom);
  const legible = (words, size) => (size * zoom >= LEAST_TEXT ? { words, size } : null);
  if (kind !== "head") return legible(name, room(name.length));
  return room(longest) >= least ? legible(name, room(longest)) : legible(name.split(".h")[1], room(2));
}

/** The letters of the longest name of a head. */
export const longestName = (names) =>
  names.reduce((most, name) => (name.startsWith("a") ? Math.max(most, name.length) : most), 0);

/** Draws what the pointer is on: a line with its two cells, or a cell. */
export function drawHover(canvas, { layout, palette, zoom, ratio, line, nodes }) {
  const context = canvas.getContext("2d");
  context.setTransform(1, 0, 0, 1, 0, 0);
  context.clearRect(0, 0, canvas.width, canvas.height);
  if (!line && !nodes.length) return;
  place(context, layout, zoom, ratio);
  const thin = 1 / Math.sqrt(zoom.k);
  if (line) {
    const halo = { ...line, colour: "card", dashed: false, dotted: false, superfluous: false, alpha: 0.9, width: line.width + 5 };
    strokeLines(context, [halo], palette, thin);
    strokeLines(context, [{ ...line, alpha: 1, width: line.width + 2 }], palette, thin);
  }
  context.setLineDash([]);
  context.globalAlpha = 1;
  context.lineWidth = 2 * thin;
  context.strokeStyle = palette.accent;
  for (const node of nodes) {
    shape(context, layout.cells[node]);
    context.stroke();
  }
}

/** What lies at a point of the canvas: {node} or {line} or null. Cells lie over lines, and the chosen edge's line over
 * others; `near` in pixels. */
export function hit({ layout, lines, zoom, chosenEdge }, px, py, near) {
  const { x, y, k } = zoom;
  const lx = (px - layout.width / 2) / k + x * layout.width;
  const ly = (py - layout.height / 2) / k + y * layout.height;
  const cell = cellAt(layout, lx, ly, near > 8 ? 4 / k : 1);
  if (cell) return { node: cell.node };
  let best = null;
  let least = near / k;
  const farFrom = (line) => distance(line.curve, lx, ly, least) - line.width / 2 / Math.sqrt(k) / k;
  const chosen = lines.find((line) => line.edge === chosenEdge);
  if (chosen && farFrom(chosen) < least) return { line: chosen };
  for (let at = lines.length - 1; at >= 0; at--) {
    const far = farFrom(lines[at]);
    if (far < least) {
      least = Math.max(far, 0);
      best = lines[at];
      if (far <= 0) break;
    }
  }
  return best && { line: best };
}
