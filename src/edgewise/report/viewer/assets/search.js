// Finding nodes and edges by name. What is searched filters the picture and the lists; Enter chooses a whole name.

import { el } from "edgewise/dom.js";
import { edgeNamed } from "edgewise/state.js";

/** Fills `element` with the search field; the browser suggests names of nodes. */
export function search(element, view, update) {
  let state = null;
  // A node shows its own edges alone, an edge stays among those searched for.
  const choose = (words) => {
    const named = state.notes.find((one) => one.name.toLowerCase() === words.toLowerCase());
    const node = view.graph.find(words.toLowerCase()) ?? (words && named ? named.node : null);
    const edge = edgeNamed(view, words);
    if (node !== null) update({ node, edge: null, search: "" });
    else if (edge !== null) update({ node: null, edge, search: words });
  };
  const input = el("input", {
    type: "search", id: "search", list: "names", placeholder: "Find a5.h3 or a5.h3->logits", autocomplete: "off",
    spellcheck: "false", "aria-label": "Find a node or an edge", oninput: () => update({ search: input.value }),
    onkeydown: (event) => {
      event.stopPropagation();
      if (event.key !== "Enter" && event.key !== "Escape") return;
      input.blur();
      if (event.key === "Enter") choose(input.value.trim());
      else update({ search: "" });
    },
  });
  const names = el("datalist", { id: "names" }, ...view.graph.nodes.map((value) => el("option", { value })));
  element.append(input, el("kbd", { "aria-hidden": "true" }, "/"), names);
  return {
    render(now) {
      state = now;
      if (document.activeElement !== input && input.value !== now.search) input.value = now.search;
    },
    focus: () => { input.focus(); input.select(); },
  };
}
