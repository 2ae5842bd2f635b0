// The toolbar: export, link, theme, full screen, help and zoom.

import { button, el, icon } from "edgewise/dom.js";
import { fileName, pageName, pngOf, save, svgOf } from "edgewise/export.js";
import { scaled } from "edgewise/pointer.js";
import { pageWith } from "edgewise/save.js";
import { initial, toAddress } from "edgewise/state.js";

const ICONS = {
  theme: ["M8 1.5a6.5 6.5 0 1 0 0 13z", "M8 1.5a6.5 6.5 0 0 1 0 13"],
  full: ["M2 6V2h4", "M10 2h4v4", "M14 10v4h-4", "M6 14H2v-4"],
};

// A link to a local file works only on this computer.
const ALSO = ". It works where this file lies at the same place: send it, too";

const EMBEDDED = "The end of the link is copied: add it to the address of viewer.html";

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
      const address = toAddress(view, state());
      // A page that is embedded in another has no address of its own.
      if (["about:", "data:", "blob:"].includes(location.protocol)) {
        const copied = await copy(document, address);
        say(copied && address ? EMBEDDED : "This page is embedded: open viewer.html by itself to get a link");
        return;
      }
      const copied = await copy(document, location.href.split("#")[0] + address);
      const done = "The link to exactly this picture is copied";
      const also = location.protocol === "file:" ? ALSO : "";
      say((copied ? done : "Copy the page's address: it describes this picture") + also);
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

async function copy(document, words) {
  try {
    await navigator.clipboard.writeText(words);
    return true;
  } catch { // a page from disk may not be allowed to: the old way still works there
    const field = el("textarea", { "aria-hidden": "true" });
    field.value = words;
    document.body.append(field);
    field.select();
    const done = document.execCommand("copy");
    field.remove();
    return done;
  }
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
