// The help dialog.

import { CLOSE } from "edgewise/chosen.js";
import { KEYS } from "edgewise/controls.js";
import { el, icon } from "edgewise/dom.js";

const WORDS = [
  "Every row is a layer, every cell a head or an MLP; the input is at the bottom, the logits are at the top. A line " +
  "is an edge: one node writes, another reads. Its colour shows what it is read as (q, k, v, MLP, logits), its width " +
  "how large its score is; a dashed line has a negative score (among thousands of lines only the stronger ones are " +
  "dashed). The darker a cell, the larger the total score of its edges.",
  "The slider under the curve chooses the size of the circuit. Click a node to see only its edges, ranked in the " +
  "list; click again or press Esc to see all. Hover over or tap a line for its score. Difference compares the shown " +
  "recipe with a second one: edges that only one of them has are highlighted and listed; the buttons above the lists " +
  "choose which of them are drawn. The About tab explains the recipes, measures and marks. " +
  "Type a name or a note of the selected node in the Edges tab; links have them, and Save writes a page with them. " +
  "Scroll or pinch to zoom, drag to move. The address always describes the current picture.",
];

/** Fills the dialog; a click outside closes it. */
export function help(dialog) {
  const head = el("h2", { id: "help-title" }, "How to read this page");
  const close = el("button", { class: "icon", "aria-label": "Close" }, icon(...CLOSE));
  const keys = KEYS.flatMap(([key, words]) => [el("dt", {}, el("kbd", {}, key)), el("dd", {}, words)]);
  dialog.append(
    el("form", { method: "dialog" }, head, close), ...WORDS.map((words) => el("p", {}, words)), el("dl", {}, ...keys));
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
}
