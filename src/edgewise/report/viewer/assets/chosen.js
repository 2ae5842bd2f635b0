// The selected node, the selected edge and the pinned nodes below the circuit, with buttons to remove them.

import { button, el, icon, whenChanged } from "edgewise/dom.js";
import { calledIn } from "edgewise/notes.js";
import { spansOf } from "edgewise/scene.js";
import { number } from "edgewise/text.js";
import { edgeEffect, nodeEffect } from "edgewise/tip.js";

export const CLOSE = ["M4 4l8 8", "M12 4l-8 8"];

/** Fills `element` with the selected node, the selected edge and the pinned nodes. */
export function chosen(element, view, update, pin) {
  const name = (node) => view.graph.nodes[node];
  const tag = (kind, words, ...buttons) => el("span", { class: `tag ${kind}`, "data-tag": words }, words, ...buttons);
  const close = (words, run) => button(icon(...CLOSE), run, { class: "icon", title: words, "aria-label": words });
  const called = (node, notes) => [calledIn(notes, node)].filter(Boolean)
    .map((words) => el("span", { class: "called" }, words));
  // How many of its output dimensions a circuit of neurons has.
  const neurons = ({ node, row, size }) => {
    const counts = view.rows[row].neurons, sources = view.graph.nodes.length - 1;
    return counts && node < sources ? [el("span", { class: "called" }, `${counts[size * sources + node]} neurons`)] : [];
  };
  const cut = (effect) => (effect ? [el("span", { class: "soft effect" }, `if cut, ${effect}`)] : []);
  const nodeTag = (state) => tag("node", name(state.node), ...called(state.node, state.notes),
    ...neurons(state), ...cut(nodeEffect(view, state, state.node)),
    button(state.pins.includes(state.node) ? "Unpin" : "Pin", () => pin(), { id: "pin", title: "Keep its edges visible (p)" }),
    close(`Show all, not only ${name(state.node)}`, () => update({ node: null })));
  const edgeTag = (state) => tag("of-edge", view.edgeName(state.edge), ...(view.span ? [spanList(state)] : []),
    ...cut(edgeEffect(view, state, state.edge)),
    close("Choose no edge", () => update({ edge: null })));
  // On which spans of tokens the edge acts, each a button that chooses that pair.
  const spanList = ({ edge, row, size }) => el("span", { class: "spans" },
    ...spansOf(view, view.rows[row], size, edge).filter((one) => one.inside || one.edge === edge).map((one) =>
      button(`${one.span} ${number(one.score)}`, () => update({ edge: one.edge }), {
        class: "chip small", "data-span": one.span, "aria-pressed": String(one.edge === edge),
        title: `${view.edgeName(one.edge)}: score ${number(one.score)}${one.inside ? "" : ", not in this circuit"}`,
      })));
  const pinTag = (node, notes) => tag("pin", name(node), ...called(node, notes), close(`Unpin ${name(node)}`, () => pin(node)));

  const keys = ({ node, edge, pins, notes, row, size }) => [node, edge, pins, notes, row, size];
  return {
    render: whenChanged(keys, (state) => element.replaceChildren(
      ...(state.node === null ? [] : [nodeTag(state)]),
      ...(state.edge === null ? [] : [edgeTag(state)]),
      ...state.pins.filter((one) => one !== state.node).map((one) => pinTag(one, state.notes)))),
  };
}
