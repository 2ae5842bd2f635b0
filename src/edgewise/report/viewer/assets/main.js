// The page: owns the one state that changes, and draws whatever it changes.

import { aboutPanel } from "edgewise/about.js";
import { attentionPanel } from "edgewise/attention.js";
import { board } from "edgewise/board.js";
import { choices, filtersPanel } from "edgewise/choices.js";
import { actionsOf, controls, help, isDark, listenKeys } from "edgewise/controls.js";
import { curvePanel } from "edgewise/curve.js";
import { load } from "edgewise/data.js";
import { button, whenChanged } from "edgewise/dom.js";
import { edgesPanel } from "edgewise/edges.js";
import { examplesPanel } from "edgewise/examples.js";
import { notesPanel } from "edgewise/notes.js";
import { cellsOf, circuitsOf, shownEdges } from "edgewise/scene.js";
import { search } from "edgewise/search.js";
import { changed, fromAddress, TABS, toAddress } from "edgewise/state.js";
import { count, counted } from "edgewise/text.js";
import { chosen } from "edgewise/tip.js";

/** Loads the document's view and shows it; errors are shown on the page. */
export async function start(document) {
  try {
    const loaded = document.documentElement.cloneNode(true); // before anything is shown, to save the page again
    show(document, await load(document), loaded);
  } catch (error) {
    const words = document.createElement("p");
    words.id = "failed";
    words.textContent = `This page can't be shown: ${error.message}. It needs a browser of 2023 or later.`;
    document.body.prepend(words);
    throw error;
  }
}

function show(document, view, loaded) {
  const root = document.documentElement;
  const at = (id) => document.getElementById(id);
  let state = fromAddress(view, location.hash);
  let asked = null;
  // `data-pending` names the work that a change still needs: "frame", then "list", then "address"; absent when idle.
  const update = (patch) => {
    state = changed(view, state, patch);
    root.dataset.pending = "frame";
    if (asked !== null) return;
    asked = performance.now();
    requestAnimationFrame(() => {
      const since = asked;
      asked = null;
      render();
      root.dataset.drawn = (performance.now() - since).toFixed(1);
    });
  };

  const { layers, heads, edges: n, held, unit, spans } = view.graph;
  at("title").textContent = view.about.title;
  at("subtitle").textContent = `${counted(layers, "layer")} × ${counted(heads, "head")} · ${counted(n, unit)}` +
    (held < n ? `, of which this page has ${count(held)}` : "") +
    (spans.length ? `: edges at ${counted(spans.length, "span")} of tokens` : "");
  help(at("help"));
  const stage = board(document, view, update, () => state);
  const say = sayIn(at("said"));
  const act = actionsOf(document, view, { state: () => state, update, palette: stage.palette, say, loaded });
  const find = search(at("find"), view, update);
  // Scenes are made again only where what they depend on changed.
  let circuits = null, scene = null;
  const findCircuits = whenChanged((now) => [now.row, now.size, now.other, now.truth, now.all], (now) => {
    circuits = circuitsOf(view, now);
  });
  const filters = ["node", "pins", "search", "notes", "letters", "sign", "least", "span"];
  const findScene = whenChanged((now) => [circuits, ...filters.map((name) => now[name])], (now) => {
    const shown = shownEdges(view, now, circuits);
    scene = { circuits, shown, cells: cellsOf(view, now, circuits, shown) };
  });
  const edges = edgesPanel(at("edge-lists"), view, update, stage.point);
  const panels = [
    choices(at("choices"), view, update), filtersPanel(at("filters"), view, update), find,
    controls(document, act), chosen(at("chosen"), view, update, act.pin), tabs(document, update),
    curvePanel(at("curve"), view, update), notesPanel(at("node-notes"), view, update),
    examplesPanel(at("panel-examples"), view, update), attentionPanel(at("panel-attention"), view, update),
  ];
  aboutPanel(at("panel-about"), view);

  let listing = 0;
  const render = () => {
    const theme = isDark(state) ? "dark" : "light";
    if (root.dataset.theme !== theme) {
      root.dataset.theme = theme;
      stage.recolour();
    }
    findCircuits(state);
    findScene(state);
    panels.forEach((panel) => panel.render(state));
    // Last, as the board takes the room that the others leave.
    stage.render(state, scene);
    // The list follows the picture: who drags the slider waits for that alone.
    root.dataset.pending = asked === null ? "list" : "frame";
    clearTimeout(listing);
    listing = setTimeout(() => {
      edges.render(state, scene);
      if (root.dataset.pending === "list") root.dataset.pending = "address";
    });
    remember(view, state, () => {
      if (root.dataset.pending === "address") delete root.dataset.pending;
    });
  };
  listenKeys(document, view, { state: () => state, update, act, focusSearch: find.focus });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => update({}));
  addEventListener("hashchange", () => {
    if (location.hash !== toAddress(view, state)) update(fromAddress(view, location.hash));
  });
  render();
  root.dataset.ready = performance.now().toFixed(1);
}

let pending = 0;

// Browsers allow few changes of the address per second, so it follows when nothing has moved for a moment.
function remember(view, state, done) {
  clearTimeout(pending);
  pending = setTimeout(() => {
    try {
      const address = toAddress(view, state);
      if (address !== location.hash) history.replaceState(null, "", address || location.pathname + location.search);
    } catch { /* a sandboxed page has no address of its own */ }
    done();
  }, 60);
}

function sayIn(element) {
  let timer = 0;
  return (words) => {
    element.textContent = words;
    clearTimeout(timer);
    timer = setTimeout(() => { element.textContent = ""; }, 4000);
  };
}

/** Fills the list of tabs, and shows the panel of the chosen one. */
export function tabs(document, update) {
  const list = document.getElementById("tabs");
  const choose = (name) => {
    update({ tab: name });
    // The page draws the change in the same frame, before this: scroll to a panel outside the window or near its end.
    requestAnimationFrame(() => {
      const panel = document.getElementById(`panel-${name}`);
      const { top } = panel.getBoundingClientRect();
      if (top < 0 || top > 0.7 * innerHeight) panel.scrollIntoView({ block: "start" });
    });
  };
  const buttons = TABS.map((name) => button(name[0].toUpperCase() + name.slice(1), () => choose(name),
    { id: `tab-${name}`, role: "tab", "aria-controls": `panel-${name}`, "data-tab": name }));
  list.append(...buttons);
  list.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!by) return;
    const next = (buttons.indexOf(event.target) + by + TABS.length) % TABS.length;
    buttons[next].focus();
    choose(TABS[next]);
  });
  return {
    render: whenChanged(({ tab }) => [tab], ({ tab }) => {
      document.getElementById("side").dataset.tab = tab;
      for (const [place, name] of TABS.entries()) {
        buttons[place].setAttribute("aria-selected", String(name === tab));
        buttons[place].tabIndex = name === tab ? 0 : -1;
        document.getElementById(`panel-${name}`).hidden = name !== tab;
      }
    }),
  };
}
