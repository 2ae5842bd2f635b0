// Elements, made without ever reading text as HTML, and drawing again only what changed.

/** An element with attributes, listeners (`onclick`) and children; strings become text. */
export function el(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** A button with words, an icon or an array of these, and what it does. */
export const button = (content, act, attributes = {}) =>
  el("button", { type: "button", onclick: act, ...attributes }, ...[content].flat());

/** Writes text only where it changed, so that nothing is laid out again for nothing. */
export function write(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

const SVG = "http://www.w3.org/2000/svg";

/** An SVG element with attributes and children; strings become text. */
export function draw(tag, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children.filter((child) => child !== null));
  return element;
}

/** A 16 x 16 icon from the paths of its strokes. */
export function icon(...paths) {
  const strokes = paths.map((d) => draw("path", { d }));
  return draw("svg", { viewBox: "0 0 16 16", width: 16, height: 16, "aria-hidden": true }, ...strokes);
}

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
