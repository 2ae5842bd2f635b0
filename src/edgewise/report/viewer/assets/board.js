// The board: two canvases, one for the circuit and one for what the pointer is on, with tip and caption; mouse, pen
// and fingers on them.

import { el } from "edgewise/dom.js";
import { drawHover, drawScene, hit, paletteOf } from "edgewise/draw.js";
import { layoutOf } from "edgewise/graph.js";
import { linesOf } from "edgewise/scene.js";
import { filled, MOST_ZOOM } from "edgewise/state.js";
import { showTip, summary } from "edgewise/tip.js";

const pixels = () => Math.min(3, devicePixelRatio || 1);
const NEAR_MOUSE = 7, NEAR_FINGER = 16;

/** The board of a document: {render(state, scene), point(edge or null), recolour(), palette()}. */
export function board(document, view, update, stateNow) {
  const at = (id) => document.getElementById(id);
  const [graph, over, tip] = ["graph", "over", "tip"].map(at);
  let palette = null, layout = null, ratio = 1, drawn = null, scene = null, shownState = null, waiting = null;
  let clicked = null; // what was clicked says nothing more until the pointer was elsewhere

  const boxNow = () => {
    const { width, height } = graph.parentElement.getBoundingClientRect();
    return { width: Math.max(width, 60), height: Math.max(height, 60) };
  };
  const isMeasured = () => {
    const { width, height } = boxNow();
    return layout !== null && layout.width === width && layout.height === height && ratio === pixels();
  };
  const render = (state, now) => {
    if (!isMeasured()) measure();
    palette ??= paletteOf(document.documentElement);
    const parts = ["zoom", "edge", "colour", "node", "notes"];
    if (drawn && scene === now && parts.every((key) => shownState[key] === state[key])) return;
    if (!drawn || scene !== now || ["colour", "edge"].some((key) => shownState[key] !== state[key]))
      drawn = linesOf(view, state, now.circuits, now.shown, layout);
    [scene, shownState] = [now, state];
    drawScene(graph, {
      layout, palette, ratio, lines: drawn.lines, cells: now.cells, names: view.graph.nodes, notes: state.notes,
      zoom: state.zoom, chosenEdge: state.edge,
    });
    mark(null);
    const words = caption(at("caption"), state, summary(view, state, now.circuits, now.shown.length, drawn.left));
    graph.setAttribute(
      "aria-label",
      `${view.about.title}: ${words}. Rows are layers, input below and logits above; the Edges tab lists the edges.`,
    );
    graph.style.touchAction = state.zoom.k > 1 ? "none" : "pan-y";
  };
  const measure = () => {
    const { width, height } = boxNow();
    ratio = pixels();
    layout = layoutOf(view.graph, width, height);
    for (const canvas of [graph, over]) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
    }
    drawn = null;
  };

  const mark = (target) => {
    const line = target?.line ?? null;
    const nodes = line ? [view.source[line.edge], view.head[line.edge]] : target ? [target.node] : [];
    drawHover(over, { layout, palette, zoom: stateNow().zoom, ratio, line, nodes });
  };
  const targetAt = (x, y, near) => {
    const { zoom, edge } = stateNow();
    return drawn && hit({ layout, lines: drawn.lines, zoom, chosenEdge: edge }, x, y, near);
  };
  const leave = () => {
    waiting = clicked = null;
    showTip(tip, view, stateNow(), scene.circuits, null);
    mark(null);
    graph.classList.remove("on");
  };
  const tell = (x, y, event) => {
    const target = targetAt(x, y, event.pointerType === "touch" ? NEAR_FINGER : NEAR_MOUSE);
    mark(target);
    graph.classList.toggle("on", target !== null);
    if (!isSame(target, clicked)) clicked = null;
    showTip(tip, view, stateNow(), scene.circuits, clicked === null ? target : null, event);
    return target;
  };

  listen(graph, {
    zoom: () => stateNow().zoom,
    zoomTo: (zoom) => { tip.hidden = true; update({ zoom }); },
    leave,
    hover(x, y, event) {
      if (event.pointerType === "touch") return;
      if (!waiting) requestAnimationFrame(() => waiting && tell(...[waiting, (waiting = null)][0]));
      waiting = [x, y, event];
    },
    click(x, y, event) {
      waiting = null;
      const target = tell(x, y, event);
      const state = stateNow();
      if (event.pointerType !== "touch") {
        clicked = target;
        tip.hidden = true;
      }
      if (!target) update({ node: null, edge: null });
      else if (target.line) update({ edge: state.edge === target.line.edge ? null : target.line.edge });
      else update({ node: state.node === target.node ? null : target.node, edge: null });
    },
  });
  // Whatever a key changes, the tip no longer says what is true.
  document.addEventListener("keydown", () => scene && leave());
  addEventListener("scroll", () => { tip.hidden = true; }, { passive: true });
  new ResizeObserver(() => isMeasured() || update({})).observe(graph.parentElement);

  return {
    render,
    point(edge) {
      const line = edge === null ? null : drawn?.lines.find((one) => one.edge === edge);
      mark(line ? { line } : null);
    },
    recolour: () => { palette = null; drawn = null; },
    palette: () => palette,
  };
}

/** Writes the caption, and gives its words. */
function caption(element, state, parts) {
  const free = state.node === null && state.edge === null;
  const hint = free ? "Click a node to see its edges alone." : "Esc shows all again.";
  const words = parts.map((part) => part.words).join(" · ");
  if (element.dataset.words === words + hint) return words;
  element.dataset.words = words + hint;
  const swatch = (key) => (key ? el("span", { class: `swatch ${key}` }) : "");
  const pieces = parts.flatMap((part, at) => [at ? " · " : "", swatch(part.key), part.words]);
  element.replaceChildren(...pieces, " · ", el("span", { class: "hint" }, hint));
  return words;
}

const isSame = (a, b) => a !== null && b !== null && a.node === b.node && a.line?.edge === b.line?.edge;

/** The zoom after scaling by a factor about a point of the board, in shares of its width and height. */
export function scaled(zoom, factor, px = 0.5, py = 0.5) {
  const k = Math.max(1, Math.min(MOST_ZOOM, zoom.k * factor));
  const move = (1 / zoom.k - 1 / k);
  return filled({ x: zoom.x + (px - 0.5) * move, y: zoom.y + (py - 0.5) * move, k });
}

/** Listens on a canvas; calls `hover(x, y, event)`, `leave()`, `click(x, y, event)` and `zoomTo(zoom)`. */
function listen(canvas, { zoom, zoomTo, hover, leave, click }) {
  const held = new Map();
  let moved = 0;
  const at = (event) => {
    const box = canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button > 0) return;
    if (held.size === 0) moved = 0;
    held.set(event.pointerId, at(event));
    if (event.pointerType === "mouse") canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    const now = at(event);
    const before = held.get(event.pointerId);
    if (!before) return hover(...now, event);
    moved += Math.hypot(now[0] - before[0], now[1] - before[1]);
    const others = [...held].filter(([id]) => id !== event.pointerId).map(([, point]) => point);
    held.set(event.pointerId, now);
    const { width, height } = canvas.getBoundingClientRect();
    const { x, y, k } = zoom();
    if (others.length === 1) {
      const [other] = others;
      const gap = (point) => Math.hypot(point[0] - other[0], point[1] - other[1]) || 1;
      zoomTo(scaled(zoom(), gap(now) / gap(before), (now[0] + other[0]) / 2 / width, (now[1] + other[1]) / 2 / height));
    } else if (moved > 4 && k > 1) {
      leave();
      canvas.classList.add("dragged");
      zoomTo(filled({ x: x - (now[0] - before[0]) / width / k, y: y - (now[1] - before[1]) / height / k, k }));
    }
  });
  const release = (event) => {
    const was = held.delete(event.pointerId);
    if (held.size === 0) canvas.classList.remove("dragged");
    return was;
  };
  canvas.addEventListener("pointerup", (event) => {
    if (release(event) && held.size === 0 && moved < 8) click(...at(event), event);
  });
  canvas.addEventListener("pointercancel", release);
  canvas.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && leave());
  canvas.addEventListener("wheel", (event) => {
    // Where there is nothing left to zoom, the page may scroll.
    if (event.deltaY > 0 && zoom().k === 1) return;
    event.preventDefault();
    const { width, height } = canvas.getBoundingClientRect();
    const [x, y] = at(event);
    const notch = event.deltaMode === 1 ? 30 : 1;
    zoomTo(scaled(zoom(), Math.exp(-0.002 * event.deltaY * notch), x / width, y / height));
  }, { passive: false });
}
