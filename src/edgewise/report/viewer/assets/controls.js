// The toolbar, the keyboard and the help dialog.

import { scaled } from "edgewise/board.js";
import { switched, toMeasure, unfiltered } from "edgewise/choices.js";
import { button, el, icon } from "edgewise/dom.js";
import { fileName, pageName, pageWith, pngOf, save, svgOf } from "edgewise/export.js";
import { initial, measuresOf, rowsOf, toAddress } from "edgewise/state.js";
import { CLOSE } from "edgewise/tip.js";

const ICONS = {
  theme: ["M8 1.5a6.5 6.5 0 1 0 0 13z", "M8 1.5a6.5 6.5 0 0 1 0 13"],
  full: ["M2 6V2h4", "M10 2h4v4", "M14 10v4h-4", "M6 14H2v-4"],
};

/** The page's keys, and what each does in words. */
export const KEYS = [
  ["← →", "smaller or larger circuit"],
  ["↑ ↓", "previous or next recipe"],
  ["m", "measure: CMD or CPR"],
  ["d", "difference of two circuits"],
  ["/", "find a node or an edge"],
  ["Esc", "show all again; once more: undo everything"],
  ["p", "pin the selected node"],
  ["+ − 0", "zoom in, out, back"],
  ["l", "curve: linear or logarithmic"],
  ["t", "light or dark"],
  ["f", "full screen"],
  ["?", "this help"],
];

/** Whether the page is dark, by its state or else by what the reader's system asks for. */
export function isDark({ theme }) {
  return theme === "auto" ? matchMedia("(prefers-color-scheme: dark)").matches : theme === "dark";
}

/** What the page's buttons and keys do, as functions by name. */
export function actionsOf(document, view, { state, update, palette, say, loaded }) {
  const picture = () => svgOf(view, state(), palette());
  return {
    svg: () => save(document, fileName(view, state(), "svg"), new Blob([picture()], { type: "image/svg+xml" })),
    png: async () => save(document, fileName(view, state(), "png"), await pngOf(document, picture())),
    page: () => {
      const { notes } = state();
      save(document, pageName(view), new Blob([pageWith(loaded, view, notes)], { type: "text/html" }));
    },
    link: async () => {
      const page = location.href.split("#")[0];
      // A page that is embedded in another has no address of its own.
      if (/^(about|data|blob):/.test(page)) return void say("This page is embedded: open viewer.html by itself to get a link");
      const copied = await navigator.clipboard?.writeText(page + toAddress(view, state())).then(() => true, () => false);
      const done = "The link to exactly this picture is copied";
      say((copied ? done : "Copy the page's address: it describes this picture") +
        (location.protocol === "file:" ? ". It works where this file lies at the same place: send it, too" : ""));
    },
    theme: () => update({ theme: isDark(state()) ? "light" : "dark" }),
    full: () => {
      const root = document.documentElement;
      const done = document.fullscreenElement ? document.exitFullscreen() : root.requestFullscreen?.();
      done?.catch(() => say("This browser allows no full screen here"));
    },
    help: () => {
      const box = document.getElementById("help");
      if (box.open) box.close();
      else box.showModal();
    },
    zoom: (factor) => update({ zoom: factor === 0 ? initial(view).zoom : scaled(state().zoom, factor) }),
    pin: (node = state().node) => {
      const { pins } = state();
      if (node === null) say("Select a node first, then pin it");
      else update({ pins: pins.includes(node) ? pins.filter((one) => one !== node) : [...pins, node] });
    },
  };
}

/** Fills the toolbar and the zoom buttons. */
export function controls(document, act) {
  const tool = (id, words, title, run) => button(words, run, { id, title, "aria-label": title });
  const small = (id, words, title, run) => button(words, run, { id, title, "aria-label": title, class: "icon" });
  document.getElementById("tools").append(
    tool("export-svg", "SVG", "Save the picture as SVG", act.svg),
    tool("export-png", "PNG", "Save the picture as PNG", act.png),
    tool("save-page", "Save", "Save this page with your names and notes", act.page),
    tool("copy-link", "Link", "Copy a link to exactly this picture", act.link),
    small("theme", icon(...ICONS.theme), "Light or dark (t)", act.theme),
    small("full-screen", icon(...ICONS.full), "Full screen (f)", act.full),
    small("show-help", "?", "Help (?)", act.help));
  const smaller = tool("zoom-out", "−", "Zoom out (−)", () => act.zoom(1 / 1.5));
  const whole = tool("zoom-reset", "0", "Whole circuit (0)", () => act.zoom(0));
  document.getElementById("zoom").append(tool("zoom-in", "+", "Zoom in (+)", () => act.zoom(1.5)), smaller, whole);
  return {
    render({ zoom }) {
      smaller.disabled = whole.disabled = zoom.k === 1;
    },
  };
}

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
    const rows = rowsOf(view, view.rows[state().row].measure);
    const at = rows.findIndex((row) => row.index === state().row);
    update({ row: rows[(at + by + rows.length) % rows.length].index });
  };
  const metric = () => {
    const all = measuresOf(view);
    const next = all[(all.indexOf(view.rows[state().row].measure) + 1) % all.length];
    update(toMeasure(view, state(), next));
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

const HELP = "The slider under the curve chooses the size of the circuit. Click a node to see only its edges, ranked in the " +
  "list. Hover over or tap a line for its score. Scroll or pinch to zoom, drag to move. The About tab explains the " +
  "picture, the recipes, the measures and the marks. The address always describes the current picture.";

/** Fills the dialog; a click outside closes it. */
export function help(dialog) {
  const head = el("h2", { id: "help-title" }, "How to read this page");
  const close = el("button", { class: "icon", "aria-label": "Close" }, icon(...CLOSE));
  const keys = KEYS.flatMap(([key, words]) => [el("dt", {}, el("kbd", {}, key)), el("dd", {}, words)]);
  dialog.append(
    el("form", { method: "dialog" }, head, close), el("p", {}, HELP), el("dl", {}, ...keys));
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
}
