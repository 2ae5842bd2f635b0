// The page's own buttons: what is saved, theme, full screen, help, zoom, and what is chosen.

import { button, el, icon } from "edgewise/dom.js";
import { fileName, pngOf, save, svgOf } from "edgewise/export.js";
import { scaled } from "edgewise/pointer.js";
import { initial } from "edgewise/state.js";

const ICONS = {
  theme: ["M8 1.5a6.5 6.5 0 1 0 0 13z", "M8 1.5a6.5 6.5 0 0 1 0 13"],
  full: ["M2 6V2h4", "M10 2h4v4", "M14 10v4h-4", "M6 14H2v-4"],
  close: ["M4 4l8 8", "M12 4l-8 8"],
};

/** [keys, what they do], in the order in which they are listed. */
export const KEYS = [
  ["← →", "smaller or larger circuit"], ["↑ ↓", "previous or next method"], ["m", "metric: CMD or CPR"], ["d", "difference of two circuits"],
  ["/", "find a node or an edge"], ["Esc", "show all again; once more: undo everything"], ["p", "pin the chosen node"],
  ["+ − 0", "zoom in, out, back"], ["l", "curve: linear or logarithmic"], ["t", "light or dark"], ["f", "full screen"], ["?", "this help"],
];

/** Whether the page is dark, by its state or else by what the reader's system asks for. */
export const isDark = (state) => (state.theme === "auto" ? matchMedia("(prefers-color-scheme: dark)").matches : state.theme === "dark");

/** What the page's buttons and keys do, as functions by name. */
export function actionsOf(document, view, { state, update, palette, say }) {
  return {
    svg: () => save(document, fileName(view, state(), "svg"), new Blob([svgOf(view, state(), palette())], { type: "image/svg+xml" })),
    png: async () => save(document, fileName(view, state(), "png"), await pngOf(document, svgOf(view, state(), palette()))),
    link: async () => {
      const copied = await copy(document, location.href);
      say(copied ? "The link to exactly this picture is copied" : "Copy the address of this page: it holds this picture");
    },
    theme: () => update({ theme: isDark(state()) ? "light" : "dark" }),
    full: () => (document.fullscreenElement ? document.exitFullscreen() : document.documentElement.requestFullscreen?.())?.catch(() => say("This browser allows no full screen here")),
    help: () => { const box = document.getElementById("help"); box.open ? box.close() : box.showModal(); },
    zoom: (factor) => update({ zoom: factor === 0 ? initial(view).zoom : scaled(state().zoom, factor) }),
    pin: (node = state().node) => node === null ? say("Choose a node first, then pin it")
      : update({ pins: state().pins.includes(node) ? state().pins.filter((one) => one !== node) : [...state().pins, node] }),
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

/** Fills the toolbar, the zoom buttons and the help; gives a renderer of what is chosen and pinned. */
export function controls(document, view, update, act) {
  const at = (id) => document.getElementById(id);
  const tool = (id, words, title, run, paths) => {
    const one = button(words, run, { id, title, "aria-label": title, class: paths ? "icon" : "" });
    if (paths) one.replaceChildren(icon(...paths));
    return one;
  };
  at("tools").append(
    tool("export-svg", "SVG", "Save the picture as SVG", act.svg), tool("export-png", "PNG", "Save the picture as PNG", act.png),
    tool("copy-link", "Link", "Copy a link to exactly this picture", act.link),
    tool("theme", "", "Light or dark (t)", act.theme, ICONS.theme), tool("full-screen", "", "Full screen (f)", act.full, ICONS.full),
    tool("show-help", "?", "Help (?)", act.help));
  at("show-help").classList.add("icon");
  at("zoom").append(tool("zoom-in", "+", "Zoom in (+)", () => act.zoom(1.5)), tool("zoom-out", "−", "Zoom out (−)", () => act.zoom(1 / 1.5)), tool("zoom-reset", "0", "Whole circuit (0)", () => act.zoom(0)));
  at("help").append(
    el("form", { method: "dialog" }, el("h2", { id: "help-title" }, "How to read this page"), el("button", { class: "icon", "aria-label": "Close" }, icon(...ICONS.close))),
    el("p", {}, "Every row is a layer, every cell a head or an MLP; input is below, logits above. A line is an edge: what one node writes and another reads. Hue says what it is read as (q, k, v, MLP, logits), width how strong its score is, dashes that the score is negative. The stronger a cell is filled, the higher the total score of its edges."),
    el("p", {}, "The slider under the curve chooses the size of the circuit. Click a node to see its edges alone, ranked in the list; click again or press Esc to see all. Hover or tap a line for its score. Difference compares the method that is shown with a second one: edges that only one of them has stand out, and are listed. Scroll or pinch to zoom, drag to move. The address always holds what you see."),
    el("dl", {}, ...KEYS.flatMap(([key, words]) => [el("dt", {}, el("kbd", {}, key)), el("dd", {}, words)])));
  at("help").addEventListener("click", (event) => event.target === at("help") && at("help").close());

  let last = [];
  return {
    render(state) {
      at("zoom-reset").disabled = at("zoom-out").disabled = state.zoom.k === 1;
      if (last[0] === state.node && last[1] === state.pins && last[2] === state.edge) return;
      last = [state.node, state.pins, state.edge];
      const name = (node) => view.graph.nodes[node];
      const close = (words, run) => tool(null, "", words, run, ICONS.close);
      const chip = (kind, words, ...parts) => el("span", { class: `tag ${kind}`, "data-tag": words }, words, ...parts);
      const pinned = (node) => state.pins.includes(node);
      at("chosen").replaceChildren(
        ...(state.node === null ? [] : [chip("node", name(state.node), button(pinned(state.node) ? "Unpin" : "Pin", () => act.pin(), { id: "pin", title: "Keep this node's edges in sight (p)" }), close(`Show all, not only ${name(state.node)}`, () => update({ node: null })))]),
        ...(state.edge === null ? [] : [chip("edge", view.edgeName(state.edge), close("Choose no edge", () => update({ edge: null })))]),
        ...state.pins.filter((node) => node !== state.node).map((node) => chip("pin", name(node), close(`Unpin ${name(node)}`, () => act.pin(node)))));
    },
  };
}
