// The board: two canvases, one for the circuit and one for what the pointer is on, with tip and caption.

import { el } from "edgewise/dom.js";
import { drawHover, drawScene, hit, paletteOf } from "edgewise/draw.js";
import { layoutOf } from "edgewise/layout.js";
import { listen } from "edgewise/pointer.js";
import { linesOf } from "edgewise/scene.js";
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
  const measure = () => {
    if (isMeasured()) return;
    const { width, height } = boxNow();
    ratio = pixels();
    layout = layoutOf(view.graph, width, height);
    for (const canvas of [graph, over]) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
    }
    drawn = null;
  };

  const parts = ["zoom", "edge", "colour", "node", "notes"];
  const render = (state, now) => {
    measure();
    palette ??= paletteOf(document.documentElement);
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
    point: (edge) => mark(edge === null || !drawn ? null : toTarget(drawn.lines.find((line) => line.edge === edge))),
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
const toTarget = (line) => (line ? { line } : null);
