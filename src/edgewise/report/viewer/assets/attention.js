// Attention patterns of a head on an example: clean, corrupted, and how they differ.

import { el, whenChanged, widthOf } from "edgewise/dom.js";
import { MORE_ATTENTION } from "edgewise/examples.js";
import { calledIn } from "edgewise/notes.js";
import { circuitsOf } from "edgewise/scene.js";
import { count, counted, elided, fixed, number, percent, tokenNamed, visible } from "edgewise/text.js";
import { besidePlace } from "edgewise/tip.js";

const GAP = 16;
const NAMED = 12;
const SIDES = ["clean", "corrupted"];
// Of the room that the panel has, what is above and below a map: its name, and a little air.
const AROUND = 52;

/** Fills `element` with a head's patterns, and choices of head and example; moves `head`, `node` and `example`. */
export function attentionPanel(element, view, update) {
  let state = null;
  let shown = null;
  const choose = (id, act) => el("select", { id, onchange: (event) => act(Number(event.target.value)) });
  // A head that is chosen in the picture comes before this choice, so both move.
  const heads = choose("attention-head", (head) => update(isHead(view, state.node) ? { head, node: head } : { head }));
  const examples = choose("attention-example", (example) => update({ example }));
  const choices = el("div", { class: "choices" },
    el("label", {}, "Head ", heads), el("label", {}, "Example ", examples));
  const said = el("p", { class: "quiet", id: "attention-said" });
  const names = [...SIDES, "difference"];
  const readings = names.map((name) => el("dd", { "data-reading": name }));
  const tip = el("div", { id: "attention-tip", class: "tip", "aria-live": "polite", hidden: true },
    el("dl", {}, ...names.flatMap((name, which) => [el("dt", {}, name), readings[which]])));
  const point = (query, key, box) => {
    const nowhere = query === null || !shown;
    maps.forEach((map) => map.mark(query, key));
    readings.forEach((one, which) => { one.textContent = nowhere ? "" : reading(shown, which, query, key); });
    tip.hidden = nowhere;
    if (!nowhere) besidePlace(tip, box.right, box.bottom);
  };
  const maps = names.map((name) => heatmap(name, point));
  const body = el("div", { class: "maps" }, ...maps.map((map) => map.element));
  const scales = el("p", { class: "scales quiet" },
    el("span", {}, "0 ", el("i", { class: "ramp attention" }), " 1: how much a row's token looks at a column's"),
    el("span", {}, "more when corrupted ", el("i", { class: "ramp difference" }), " more when clean"));
  const panel = el("div", { class: "panel attention" }, choices, said, body, scales, tip);
  element.append(panel);

  const renderChoices = whenChanged((now) => [now.row, now.size, now.node, now.head, now.example, now.notes], (now) => {
    const { patterns } = view.runs[view.rows[now.row].run];
    const held = Boolean(patterns?.heads.length && patterns.examples.length);
    for (const part of [choices, body, scales]) part.hidden = !held;
    shown = held ? pick(view, now, patterns) : null;
    said.textContent = shown ? words(view, now, shown) : `The page has no attention patterns for this circuit. ${MORE_ATTENTION}`;
    if (!shown) return;
    const option = ({ node, score, inside }) => el("option", { value: node },
      [view.graph.nodes[node], calledIn(now.notes, node), inside ? number(score) : ""].filter(Boolean).join(" · "));
    const group = (label, of) => (of.length ? [el("optgroup", { label }, ...of.map(option))] : []);
    heads.replaceChildren(...group("in the circuit, by total score", shown.heads.filter((one) => one.inside)),
      ...group("not in the circuit", shown.heads.filter((one) => !one.inside)));
    examples.replaceChildren(...patterns.examples.map((one) => el("option", { value: one }, count(one))));
    [heads.value, examples.value] = [String(shown.head), String(shown.example)];
  });
  const renderMaps = whenChanged(
    (now) => [view.rows[now.row].run, shown?.head, shown?.example, width(), room(), ...palette()],
    () => shown && drawMaps(maps, shown, width(), room(), palette()));
  const render = (now) => {
    state = now;
    if (now.tab !== "attention") return;
    renderChoices(now);
    renderMaps(now);
  };
  const width = widthOf(panel, 340, () => state && render(state));
  // A panel that doesn't scroll by itself is as high as what it holds: there the column or the window is what one sees.
  const scrolls = () => getComputedStyle(element).overflowY === "auto" && element.clientHeight > 0;
  const room = () => Math.min(innerHeight, (scrolls() ? element : element.parentElement).clientHeight) - AROUND;
  addEventListener("resize", () => state && render(state));
  element.addEventListener("scroll", () => { tip.hidden = true; }, { passive: true });
  return { render };
}

const isHead = (view, node) => node !== null && view.graph.place(node).kind === "head";

/** Colours for canvases, which can't read the style by themselves. */
function palette() {
  const style = getComputedStyle(document.documentElement);
  return ["--sunk", "--here", "--there"].map((name) => style.getPropertyValue(name).trim());
}

/** What is shown of a state: the head and the example that it asks for, or else the first that are held. */
function pick(view, state, patterns) {
  const held = new Set(patterns.heads);
  // Heads of the circuit first, by the total of their edges' absolute scores.
  const { row, total, degree } = circuitsOf(view, { ...state, other: null, truth: false, all: false });
  const all = Array.from(total, (score, node) => ({ node, score, inside: degree[node] > 0 }))
    .filter(({ node }) => isHead(view, node))
    .sort((one, two) => two.inside - one.inside || two.score - one.score || one.node - two.node);
  const heads = all.filter(({ node }) => held.has(node));
  const asked = isHead(view, state.node) ? state.node : state.head;
  const head = held.has(asked) ? asked : heads[0].node;
  const example = patterns.examples.includes(state.example) ? state.example : patterns.examples[0];
  const [clean, corrupted] = [0, 1].map((side) => patterns.at(example, head, side));
  const prompt = view.runs[row.run].prompts[example];
  return { asked, head, heads, all, example, clean, corrupted, tokens: [prompt?.clean ?? [], prompt?.corrupted ?? []] };
}

/** The patterns that are shown, and those that the page lacks. */
function words(view, state, { asked, head, heads, all, example }) {
  const name = (node) => view.graph.nodes[node];
  const row = view.rows[state.row];
  const circuit = `the circuit of ${row.label} at ${percent(row.sizes[state.size].share)}`;
  const inside = all.filter((one) => one.inside); // also those whose patterns the page lacks
  const rank = inside.findIndex((one) => one.node === head);
  const some = heads.slice(0, NAMED).map((one) => name(one.node)).join(", ");
  const more = heads.length > NAMED ? ` and ${counted(heads.length - NAMED, "other")}` : "";
  return [
    asked === null || asked === head ? "" : `Patterns of ${name(asked)} aren't here; those of ${some}${more} are.`,
    example === state.example ? ""
      : `Patterns on example ${count(state.example)} aren't here; this is example ${count(example)}. ${MORE_ATTENTION}`,
    rank < 0 ? `${name(head)} isn't in ${circuit}.`
      : `${name(head)} ranks ${count(rank + 1)} of ${counted(inside.length, "head")} in ${circuit}, ` +
        `by the total of its edges' scores, ${number(inside[rank].score)}.`,
  ].filter((sentence) => sentence !== "").join(" ");
}

function drawMaps(maps, { clean, corrupted, tokens }, width, height, colours) {
  const columns = width >= 1000 ? 3 : width >= 620 ? 2 : 1;
  const { length } = clean;
  // Tokens stand beside the cells, which are as large as the room allows.
  const longest = Math.max(2, ...tokens.flat().map((text) => Math.min(LONGEST, [...visible(text)].length)));
  const gutter = Math.min(88, 10 + 6.4 * longest);
  const room = Math.min((width - GAP * (columns - 1)) / columns, height) - gutter;
  const side = Math.max(SMALLEST, Math.min(LARGEST, Math.floor(room / length)));
  // Most weights are small: the square root keeps them visible.
  const root = (value) => Math.sign(value) * Math.sqrt(Math.abs(value) / 255);
  const one = (pattern) => (query, key) => root(pattern.value(query, key));
  const change = (query, key) => root(clean.value(query, key) - corrupted.value(query, key));
  const marked = (place) => tokens[0][place] !== tokens[1][place];
  [one(clean), one(corrupted), change].forEach((strength, which) =>
    maps[which].draw({ tokens: tokens[which === 1 ? 1 : 0], length, side, gutter, height, colours, strength, marked }));
}

/** What a cell holds, in words. */
function reading({ clean, corrupted, tokens }, side, query, key) {
  const named = (place, of) => tokenNamed(tokens[of], place);
  const weight = (pattern) => pattern.value(query, key) / 255;
  if (side < 2) return `${named(query, side)} looks at ${named(key, side)}: ${fixed(weight([clean, corrupted][side]))}`;
  const both = (place) => [...new Set([named(place, 0), named(place, 1)])].join(" or ");
  const change = weight(clean) - weight(corrupted);
  return `${both(query)} looks at ${both(key)}: ${change > 0 ? "+" : ""}${fixed(change)}`;
}

const [SMALLEST, LARGEST] = [10, 26];
const LONGEST = 12;

/** An empty square; `point(query, key, box)` is called where the reader points, with the cell's box on the screen, and
 * with nulls where nowhere. */
function heatmap(name, point) {
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
  // A pixel per cell, enlarged at once: far faster than a rectangle per cell.
  const small = el("canvas", { width: length, height: length });
  const pixel = small.getContext("2d");
  const [ground, more, less] = colours.map((colour) => {
    pixel.fillStyle = colour; // reads a colour that a style names in any way
    return [1, 3, 5].map((place) => Number.parseInt(pixel.fillStyle.slice(place, place + 2), 16));
  });
  const image = new ImageData(length, length);
  for (let query = 0; query < length; query += 1) {
    for (let key = 0; key <= query; key += 1) {
      const value = strength(query, key);
      const colour = value < 0 ? less : more;
      const at = 4 * (query * length + key);
      for (let channel = 0; channel < 3; channel += 1)
        image.data[at + channel] = ground[channel] + Math.abs(value) * (colour[channel] - ground[channel]);
      image.data[at + 3] = 255;
    }
  }
  pixel.putImageData(image, 0, 0);
  const scale = window.devicePixelRatio || 1;
  const pixels = length * side;
  canvas.width = canvas.height = Math.round(pixels * scale);
  canvas.style.width = canvas.style.height = `${pixels}px`;
  const context = canvas.getContext("2d");
  context.scale(scale, scale);
  context.imageSmoothingEnabled = false;
  context.drawImage(small, 0, 0, pixels, pixels);
  for (let line = 1; line <= length; line += 1) {
    context.clearRect(line * side - 1, 0, 1, pixels);
    context.clearRect(0, line * side - 1, pixels, 1);
  }
}
