// The selected node, the selected edge and the pinned nodes below the circuit, with buttons to remove them.

import { button, el, icon } from "edgewise/dom.js";

export const CLOSE = ["M4 4l8 8", "M12 4l-8 8"];

/** Fills `element` with the selected node, the selected edge and the pinned nodes. */
export function chosen(element, view, update, pin) {
  const name = (node) => view.graph.nodes[node];
  const tag = (kind, words, ...buttons) => el("span", { class: `tag ${kind}`, "data-tag": words }, words, ...buttons);
  const close = (words, run) => button(icon(...CLOSE), run, { class: "icon", title: words, "aria-label": words });
  const nodeTag = ({ node, pins }) => tag("node", name(node),
    button(pins.includes(node) ? "Unpin" : "Pin", () => pin(), { id: "pin", title: "Keep its edges visible (p)" }),
    close(`Show all, not only ${name(node)}`, () => update({ node: null })));
  const edgeTag = (edge) => tag("of-edge", view.edgeName(edge), close("Choose no edge", () => update({ edge: null })));
  const pinTag = (node) => tag("pin", name(node), close(`Unpin ${name(node)}`, () => pin(node)));

  let last = null;
  return {
    render(state) {
      const { node, edge, pins } = state;
      if (last && last.node === node && last.edge === edge && last.pins === pins) return;
      last = state;
      element.replaceChildren(
        ...(node === null ? [] : [nodeTag(state)]),
        ...(edge === null ? [] : [edgeTag(edge)]),
        ...pins.filter((one) => one !== node).map(pinTag));
    },
  };
}
