// Finding nodes and edges by name.

import { el } from "edgewise/dom.js";
import { calledIn } from "edgewise/notes.js";
import { orderOf, searchOf } from "edgewise/scene.js";
import { edgeNamed } from "edgewise/state.js";
import { number } from "edgewise/text.js";

const NOTHING = "No node or edge has this name. Names are like a5.h3, m2, input, logits, a5.h3->a7.h1<q>.";
const MOST_NODES = 6, MOST_EDGES = 6;

/** What words may mean: [{node} or {edge}], whole names first, then by place and by strength. */
function suggestionsFor(view, state, words) {
  const text = words.trim().toLowerCase();
  if (!text) return [];
  const { nodes } = view.graph;
  const rank = (name) => (name === text ? 0 : name.startsWith(text) ? 1 : name.includes(text) ? 2 : 3);
  const called = (node) => calledIn(state.notes, node).toLowerCase();
  const found = nodes.map((name, node) => ({ node, rank: Math.min(rank(name), called(node).includes(text) ? 2 : 3) }))
    .filter((one) => one.rank < 3);
  found.sort((a, b) => a.rank - b.rank || a.node - b.node);
  const matches = searchOf(view, words, state.notes);
  const row = view.rows[state.row];
  const [inside, outside] = [[], []];
  for (const edge of orderOf(row).edges) {
    if (inside.length >= MOST_EDGES) break;
    if (matches(edge)) (row.has(state.size, edge) ? inside : outside).push(edge);
  }
  const edges = [...inside, ...outside].slice(0, MOST_EDGES);
  const exact = edgeNamed(view, words.trim());
  const ordered = exact === null ? edges : [exact, ...edges.filter((edge) => edge !== exact)];
  return [...found.slice(0, MOST_NODES).map(({ node }) => ({ node })), ...ordered.map((edge) => ({ edge }))];
}

/** The patch that chooses what was found: a node shows its own edges alone, an edge stays among those searched for. */
const chosen = ({ node = null, edge = null }, words) => ({ node, edge, search: node === null ? words : "" });

/** Fills `element` with the search field and its suggestions. */
export function search(element, view, update) {
  let state = null;
  let found = [];
  let active = -1;
  const input = el("input", {
    type: "search", id: "search", placeholder: "Find a5.h3 or a5.h3->logits", autocomplete: "off", spellcheck: "false",
    role: "combobox", "aria-label": "Find a node or an edge", "aria-expanded": "false",
    "aria-controls": "suggestions", "aria-autocomplete": "list",
    oninput: () => {
      update({ search: input.value });
      offer(input.value);
    },
    onfocus: () => offer(input.value),
    onblur: () => close(),
    onkeydown: (event) => pressed(event),
  });
  const list = el("ul", { id: "suggestions", role: "listbox", "aria-label": "Found", hidden: true });
  element.append(input, el("kbd", { "aria-hidden": "true" }, "/"), list);

  const close = () => {
    list.hidden = true;
    active = -1;
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
  };
  const pick = (one) => {
    close();
    const patch = chosen(one, input.value.trim());
    input.value = patch.search;
    input.blur();
    update(patch);
  };
  const offer = (words) => {
    found = suggestionsFor(view, state, words);
    active = -1;
    list.replaceChildren(...found.map(option));
    if (words.trim() && !found.length) list.append(el("li", { class: "none" }, NOTHING));
    list.hidden = list.children.length === 0;
    input.setAttribute("aria-expanded", String(!list.hidden));
  };
  const option = (one, at) => {
    const row = view.rows[state.row];
    const edge = one.edge !== undefined;
    const words = !edge ? calledIn(state.notes, one.node) || "node"
      : row.has(state.size, one.edge) ? number(row.scores[one.edge]) : "not in this circuit";
    const take = (event) => {
      event.preventDefault();
      pick(one);
    };
    return el("li", { id: `found-${at}`, role: "option", "aria-selected": "false", onpointerdown: take },
      el("span", { class: "name" }, nameOf(one)), el("span", { class: "soft" }, words));
  };
  const nameOf = ({ node, edge }) => (node === undefined ? view.edgeName(edge) : view.graph.nodes[node]);
  const move = (by) => {
    if (!found.length) return;
    active = (active + by + found.length) % found.length;
    [...list.children].forEach((one, at) => one.setAttribute("aria-selected", String(at === active)));
    list.children[active].scrollIntoView({ block: "nearest" });
    input.setAttribute("aria-activedescendant", `found-${active}`);
  };
  const pressed = (event) => {
    event.stopPropagation();
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      move(event.key === "ArrowDown" ? 1 : active < 0 ? 0 : -1);
    } else if (event.key === "Enter") {
      const words = input.value.trim().toLowerCase();
      const exact = found.find((each) => nameOf(each).toLowerCase() === words);
      const one = active >= 0 ? found[active] : exact ?? (found.length === 1 ? found[0] : null);
      if (one) pick(one);
      else close();
    } else if (event.key === "Escape") {
      close();
      input.blur();
      update({ search: "" });
    }
  };
  return {
    render(now) {
      state = now;
      if (document.activeElement !== input && input.value !== now.search) input.value = now.search;
    },
    focus: () => { input.focus(); input.select(); },
  };
}
