// One square of attention: rows look at columns. Cells on a canvas; tokens beside it as text that stays in sight.

import { el } from "edgewise/dom.js";
import { elided, visible } from "edgewise/tokens.js";

const [SMALLEST, LARGEST] = [10, 26];
const LONGEST = 12;

/** The side of a cell, in pixels, such that `length` of them and the tokens fit into a width and a height if that can
 * be. */
export const cellSide = (length, width, height, gutter) =>
  Math.max(SMALLEST, Math.min(LARGEST, Math.floor((Math.min(width, height) - gutter) / length)));

/** The width that tokens ask for beside cells. */
export const gutterFor = (tokens) =>
  Math.min(88, 10 + 6.4 * Math.max(2, ...tokens.map((text) => Math.min(LONGEST, [...visible(text)].length))));

/** An empty square; `point(query, key, box)` is called where the reader points, with the cell's box on the screen, and
 * with nulls where nowhere. */
export function heatmap(name, point) {
  let shape = { length: 0, side: SMALLEST };
  let at = [0, 0];
  let labelled = "";
  const canvas = el("canvas", {});
  const cross = ["query", "key"].map((which) => el("i", { class: `cross ${which}`, hidden: true }));
  const cells = el("div", {
    class: "cells", tabindex: 0, role: "application", "aria-label": `${name}: arrows move over the cells`,
    "data-map": name, "data-keys": true,
  }, canvas, ...cross);
  const keys = el("div", { class: "keys" });
  const queries = el("div", { class: "queries" });
  const square = el("div", { class: "square" }, el("div", { class: "corner" }), keys, queries, cells);
  const figure = el("figure", { class: "heatmap" }, el("figcaption", {}, el("b", {}, name)), square);

  const label = (tokens) => {
    const now = JSON.stringify(tokens);
    if (now === labelled) return;
    labelled = now;
    for (const labels of [keys, queries]) {
      labels.replaceChildren(...tokens.map(([text, differ]) => {
        const title = visible(text);
        return el("span", { class: differ ? "token differ" : "token", title }, elided(title, LONGEST));
      }));
    }
  };
  const move = ([query, key]) => {
    const last = shape.length - 1;
    const row = Math.max(0, Math.min(query, last));
    at = [row, Math.max(0, Math.min(key, row))];
    const { left, top } = cells.getBoundingClientRect();
    point(...at, new DOMRect(left + at[1] * shape.side, top + at[0] * shape.side, shape.side, shape.side));
  };
  cells.addEventListener("pointermove", (event) => {
    const [query, key] = [event.offsetY, event.offsetX].map((pixel) => Math.floor(pixel / shape.side));
    if (query < 0 || query >= shape.length || key < 0 || key > query) point(null, null, null);
    else move([query, key]);
  });
  cells.addEventListener("pointerleave", () => point(null, null, null));
  cells.addEventListener("blur", () => point(null, null, null));
  const steps = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
  cells.addEventListener("keydown", (event) => {
    if (!(event.key in steps)) return;
    event.preventDefault(); // the page's arrow keys change the size and the recipe
    move([at[0] + steps[event.key][0], at[1] + steps[event.key][1]]);
  });

  return {
    element: figure,
    /** Draws a square of `length` cells, each `side` wide, with `strength(query, key)` from -1 to 1 in the `colours`
     * [of 0, of 1, of -1]; tokens for which `marked(place)` stand out. What is higher than `height` scrolls. */
    draw({ tokens, length, side, gutter, height, colours, strength, marked }) {
      shape = { length, side };
      square.style.setProperty("--gutter", `${gutter}px`);
      square.style.setProperty("--side", `${side}px`);
      square.style.setProperty("--height", `${Math.max(height, 200)}px`);
      label(Array.from({ length }, (_, place) => [tokens[place] ?? String(place), marked(place)]));
      paintCells(canvas, length, side, colours, strength);
    },
    /** Marks a cell, or none. */
    mark(query, key) {
      const on = query !== null;
      [query, key].forEach((place, which) => {
        cross[which].hidden = !on;
        cross[which].style.setProperty("--at", `${(place ?? 0) * shape.side}px`);
        const labels = which ? keys : queries;
        labels.querySelector(".on")?.classList.remove("on");
        if (on) labels.children[place]?.classList.add("on");
      });
    },
  };
}

function paintCells(canvas, length, side, colours, strength) {
  const scale = window.devicePixelRatio || 1;
  const pixels = length * side;
  canvas.width = canvas.height = Math.round(pixels * scale);
  canvas.style.width = canvas.style.height = `${pixels}px`;
  const context = canvas.getContext("2d");
  context.scale(scale, scale);
  context.imageSmoothingEnabled = false;
  // A pixel per cell, enlarged at once: far faster than a rectangle per cell.
  context.drawImage(onePixelEach(length, colours, strength), 0, 0, pixels, pixels);
  for (let line = 1; line <= length; line += 1) {
    context.clearRect(line * side - 1, 0, 1, pixels);
    context.clearRect(0, line * side - 1, pixels, 1);
  }
}

function onePixelEach(length, colours, strength) {
  const small = el("canvas", { width: length, height: length });
  const context = small.getContext("2d");
  const [ground, more, less] = colours.map((colour) => channels(context, colour));
  const image = new ImageData(length, length);
  for (let query = 0; query < length; query += 1) {
    for (let key = 0; key <= query; key += 1) {
      const value = strength(query, key);
      const colour = value < 0 ? less : more;
      const at = 4 * (query * length + key);
      for (let channel = 0; channel < 3; channel += 1) {
        image.data[at + channel] = ground[channel] + Math.abs(value) * (colour[channel] - ground[channel]);
      }
      image.data[at + 3] = 255;
    }
  }
  context.putImageData(image, 0, 0);
  return small;
}

/** Red, green and blue of a colour that a style names in any way. */
function channels(context, colour) {
  context.fillStyle = colour;
  return [1, 3, 5].map((place) => Number.parseInt(context.fillStyle.slice(place, place + 2), 16));
}
