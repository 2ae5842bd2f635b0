// The keyboard.

import { switched, toBenchmark } from "edgewise/choices.js";
import { unfiltered } from "edgewise/filters.js";
import { benchmarks, initial, rowsOf } from "edgewise/state.js";

/** The patch that Escape makes: nothing chosen; if nothing was, nothing filtered, compared, pinned or zoomed either. */
export function escaped(view, state) {
  if (state.node !== null || state.edge !== null || state.search) return { node: null, edge: null, search: "" };
  return { ...unfiltered(view), other: null, truth: initial(view).truth, pins: [], zoom: initial(view).zoom };
}

/** Listens for the page's keys; fields of text and sliders keep theirs. */
export function listenKeys(document, view, { state, update, act, focusSearch }) {
  const step = (by) => {
    const { row, size } = state();
    update({ size: Math.max(0, Math.min(view.rows[row].sizes.length - 1, size + by)) });
  };
  const method = (by) => {
    const rows = rowsOf(view, view.rows[state().row].benchmark);
    const at = rows.findIndex((row) => row.index === state().row);
    update({ row: rows[(at + by + rows.length) % rows.length].index });
  };
  const metric = () => {
    const all = benchmarks(view);
    const next = all[(all.indexOf(view.rows[state().row].benchmark) + 1) % all.length];
    update(toBenchmark(view, state(), next));
  };
  const keys = {
    ArrowLeft: () => step(-1), ArrowRight: () => step(1), ArrowUp: () => method(-1), ArrowDown: () => method(1),
    m: metric, d: () => update(switched(view, state())),
    "/": focusSearch, Escape: () => update(escaped(view, state())),
    f: act.full, t: act.theme, l: () => update({ linear: !state().linear }), p: () => act.pin(), "?": act.help,
    "+": () => act.zoom(1.5), "=": () => act.zoom(1.5), "-": () => act.zoom(1 / 1.5), "0": () => act.zoom(0),
  };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    const { target } = event;
    if (document.getElementById("help").open) return;
    if (target.matches?.("select, textarea, input:not([type=range], [type=checkbox])")) return;
    const arrow = event.key.startsWith("Arrow");
    if (arrow && (target.matches?.("input[type=range]") || target.closest?.("[role=tablist], [data-keys]"))) return;
    const run = keys[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    if (!run) return;
    event.preventDefault();
    run();
  });
}
