// What the panels share: marks beside words, and drawing again only what changed.

/** How the circuit that is shown and the other one are marked beside words, as in the picture. */
export const SWATCHES = { shown: "here", other: "there dashed" };

/** A function that calls `render(state)` only where one of the values `keys(state)` differs from the last time. */
export function whenChanged(keys, render) {
  let last = null;
  return (state) => {
    const now = keys(state);
    if (last !== null && now.every((value, place) => Object.is(value, last[place]))) return;
    last = now;
    render(state);
  };
}

/** A function that gives an element's width, or `plain` while it isn't laid out; `changed` is called when it changes.
 * Observed rather than asked for, since asking makes the browser lay out the page at once. */
export function widthOf(element, plain, changed) {
  let width = Math.round(element.clientWidth);
  new ResizeObserver(([{ contentRect }]) => {
    const now = Math.round(contentRect.width);
    if (now === width || now === 0) return;
    width = now;
    changed();
  }).observe(element);
  return () => width || plain;
}
