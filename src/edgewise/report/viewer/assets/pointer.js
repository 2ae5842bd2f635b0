// Mouse, pen and fingers on the board: hover, click, drag, wheel and pinch.

import { MOST_ZOOM, filled } from "edgewise/state.js";

/** The zoom after scaling by a factor about a point of the board, in shares of its width and height. */
export function scaled(zoom, factor, px = 0.5, py = 0.5) {
  const k = Math.max(1, Math.min(MOST_ZOOM, zoom.k * factor));
  const move = (1 / zoom.k - 1 / k);
  return filled({ x: zoom.x + (px - 0.5) * move, y: zoom.y + (py - 0.5) * move, k });
}

/** Listens on a canvas; calls `hover(x, y, event)`, `leave()`, `click(x, y, event)` and `zoomTo(zoom)`. */
export function listen(canvas, { zoom, zoomTo, hover, leave, click }) {
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
