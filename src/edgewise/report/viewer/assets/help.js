// How to read the page.

import { CLOSE } from "edgewise/chosen.js";
import { KEYS } from "edgewise/controls.js";
import { el, icon } from "edgewise/dom.js";

const WORDS = [
  "Every row is a layer, every cell a head or an MLP; input is below, logits above. A line is an edge: what one node " +
  "writes and another reads. Hue says what it is read as (q, k, v, MLP, logits), width how strong its score is, " +
  "dashes that the score is negative (where there are thousands of lines, only the stronger ones are dashed). " +
  "The stronger a cell is filled, the higher the total score of its edges.",
  "The slider under the curve chooses the size of the circuit. Click a node to see its edges alone, ranked in the " +
  "list; click again or press Esc to see all. Hover or tap a line for its score. Difference compares the method that " +
  "is shown with a second one: edges that only one of them has stand out, and are listed; the buttons above the " +
  "lists choose which of them are drawn. The About tab says what the methods, metrics and marks are. " +
  "Scroll or pinch to zoom, drag to move. The address always holds what you see.",
];

/** Fills the dialog with the help; a click beside it closes it. */
export function help(dialog) {
  const head = el("h2", { id: "help-title" }, "How to read this page");
  const close = el("button", { class: "icon", "aria-label": "Close" }, icon(...CLOSE));
  const keys = KEYS.flatMap(([key, words]) => [el("dt", {}, el("kbd", {}, key)), el("dd", {}, words)]);
  dialog.append(
    el("form", { method: "dialog" }, head, close), ...WORDS.map((words) => el("p", {}, words)), el("dl", {}, ...keys));
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
}
