// Files that the page saves: the picture as SVG and PNG, and the page itself with the reader's names and notes.

import { cellColours, cellOpacity, dashOf, labelOf, longestName, nameTag } from "edgewise/draw.js";
import { layoutOf } from "edgewise/graph.js";
import { calledIn, triplesOf } from "edgewise/notes.js";
import { cellsOf, circuitsOf, HERE, linesOf, otherOf, SHARED, shownEdges, THERE, TRUTHS } from "edgewise/scene.js";
import { between, count, counted, fixed, percent } from "edgewise/text.js";

// Type is large, as pictures are made smaller in papers.
const HEAD = 52, FOOT = 34, LINE = 24, SCALE = 2, TITLE = 23, TYPE = 16, LEGEND = 15;
const PER_HEAD = 76, PER_LAYER = 84;
const FONT = "system-ui, -apple-system, Segoe UI, Roboto, Helvetica, Arial, sans-serif";

// What XML forbids, lone halves of surrogate pairs among it, becomes a sign that something was there.
const FORBIDDEN = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]|\p{Surrogate}/gu;

/** Text as it may stand in XML and HTML. */
const escaped = (text) =>
  String(text).replace(FORBIDDEN, "\ufffd").replace(/[&<>"']/g, (sign) => `&#${sign.charCodeAt(0)};`);

const tag = (name, attributes, inside = "") => {
  const words = Object.entries(attributes).map(([key, value]) => ` ${key}="${escaped(value)}"`).join("");
  return inside === "" ? `<${name}${words}/>` : `<${name}${words}>${inside}</${name}>`;
};

const text = (x, y, words, attributes = {}) => tag("text", { x: round(x), y: round(y), ...attributes }, escaped(words));
const round = (number) => Number(number.toFixed(2));

/** What a picture shows, in lines of words: the title, the circuit, and the second one of difference mode. */
function headingOf(view, state) {
  const circuit = (row, { share, kept, faithfulness, low, high }) => {
    const faithful = Number.isFinite(faithfulness) ? `faithfulness ${between(faithfulness, low, high, fixed)}` : "";
    return [row.label, row.measure, percent(share), counted(kept, view.graph.unit), faithful].filter(Boolean).join(" · ");
  };
  const row = view.rows[state.row];
  const other = otherOf(view, state);
  const chosen = state.node === null ? "" : ` · edges of ${view.graph.nodes[state.node]} alone`;
  const versus = state.truth ? ["compared with the known circuit"]
    : other ? [`versus ${circuit(other.row, other.row.sizes[other.size])}`] : [];
  return [view.about.title, circuit(row, row.sizes[state.size]) + chosen, ...versus];
}

/** The name of a file: title, recipes and size, in letters that every file system takes. */
export function fileName(view, state, ending) {
  const row = view.rows[state.row];
  const other = state.other === null ? [] : ["vs", view.rows[state.other].label];
  const share = Number((100 * row.sizes[state.size].share).toPrecision(3));
  const words = [view.about.title, row.label, row.measure, ...other, `${share}pct`].map(plain).filter(Boolean);
  return `${words.join("-")}.${ending}`;
}

/** The name of a saved page. */
export const pageName = (view) => `${plain(view.about.title) || "viewer"}.html`;

function plain(words) {
  const letters = words.normalize("NFKD").toLowerCase().replace(/[^a-z0-9.]+/g, "-");
  return letters.slice(0, 40).replace(/^[-.]+|[-.]+$/g, "");
}

/** The shown circuit as the text of an SVG file, in the colours of a palette. */
export function svgOf(view, state, palette) {
  const { graph } = view;
  // Whole numbers, or else a PNG's pixels at the border are half transparent.
  const width = Math.round(Math.max(900, Math.min(3800, PER_HEAD * (graph.heads + 2.1) + 52)));
  const height = Math.round(Math.max(360, Math.min(3400, PER_LAYER * (graph.layers + 2.15))));
  const layout = layoutOf(graph, width, height);
  const circuits = circuitsOf(view, state);
  const shown = shownEdges(view, state, circuits);
  const { lines, left } = linesOf(view, state, circuits, shown, layout);
  const cells = cellsOf(view, state, circuits, shown);
  const [title, ...about] = headingOf(view, state);
  const head = HEAD + LINE * about.length;
  const side = { "font-size": 13, "text-anchor": "end", fill: palette.soft };
  const legend = legendOf(state, circuits, palette, width - 40, shown.length, left, lines.some((line) => line.superfluous));
  const parts = [
    tag("title", {}, escaped([title, ...about].join(" · "))),
    tag("rect", { width: "100%", height: "100%", fill: palette.card }),
    text(20, 34, title, { "font-size": TITLE, "font-weight": 600, fill: palette.ink }),
    ...about.map((words, at) => text(20, 60 + LINE * at, words, { "font-size": TYPE, fill: palette.soft })),
    tag("g", { transform: `translate(0 ${head})` }, [
      ...lines.map((line) => lineOf(view, line, palette)),
      ...cells.map((cell) => cellOf(layout.cells[cell.node], cell, graph.nodes, palette, state.edge !== null)),
      ...state.notes.map(({ node }) => {
        const { x, y, words, size } = nameTag(layout, node, calledIn(state.notes, node));
        return text(x, y, words, {
          "font-size": round(size), "text-anchor": "middle", "font-weight": 600, fill: palette.accent,
          stroke: palette.card, "stroke-width": 3, "stroke-linejoin": "round", "paint-order": "stroke",
        });
      }),
      ...layout.rows.map((row) => text(layout.left - 8, row.y + 4, `L${row.layer}`, side)),
    ].join("\n")),
    tag("g", { transform: `translate(20 ${head + height + 22})`, "font-size": LEGEND, fill: palette.soft }, legend.svg),
  ];
  const tall = head + height + FOOT + legend.height;
  const all = {
    xmlns: "http://www.w3.org/2000/svg", width, height: tall, viewBox: `0 0 ${width} ${tall}`, "font-family": FONT,
  };
  return `<?xml version="1.0" encoding="UTF-8"?>\n${tag("svg", all, parts.join("\n"))}\n`;
}

function lineOf(view, line, palette) {
  const { edge, curve, colour, width, alpha } = line;
  const dash = dashOf(line, width).map(round).join(" ");
  const [x0, y0, ax, ay, bx, by, x1, y1] = curve.map(round);
  return tag("path", {
    d: `M${x0} ${y0}C${ax} ${ay} ${bx} ${by} ${x1} ${y1}`, fill: "none", stroke: palette[colour],
    "stroke-width": round(width), "stroke-opacity": round(alpha),
    ...(dash ? { "stroke-dasharray": dash } : {}),
  }, tag("title", {}, escaped(view.edgeName(edge))));
}

function cellOf({ x, y, w, h, kind }, cell, names, palette, quiet) {
  const { fill, ink, edge } = cellColours(palette, cell);
  const label = labelOf({ w, h, kind }, names[cell.node], longestName(names));
  const { behind, fore } = cellOpacity(cell, quiet);
  const place = {
    x: round(x - w / 2), y: round(y - h / 2), width: round(w), height: round(h), rx: round(Math.min(5, h / 3, w / 3)),
  };
  const box = {
    ...place, fill, stroke: cell.chosen ? palette.accent : cell.pinned ? palette.ink : edge,
    "stroke-width": cell.chosen || cell.pinned ? 2.5 : 0.8, opacity: round(fore),
  };
  const words = () => text(x, y + 0.36 * label.size, label.words, {
    "font-size": round(label.size), "text-anchor": "middle", "font-weight": cell.inside ? 600 : 400, fill: ink,
  });
  const ground = tag("rect", { ...place, fill: palette.card, "fill-opacity": round(behind) });
  return tag("g", {}, ground + tag("rect", box) + (label ? words() : ""));
}

/** The legend in lines that fit a width, as {svg, height}. */
function legendOf(state, { counts, row, other }, palette, width, shown, left, hasSuperfluous) {
  const byReader = [
    ["q", "into q"], ["k", "into k"], ["v", "into v"], ["mlp", "into an MLP"], ["logits", "into logits"],
  ];
  const bySign = [["positive", "positive score"], ["negative", "negative score"]];
  const difference = () => [["here", `only in ${row.label} (${count(counts[HERE])})`],
    ["there", `only in ${other.row.label} (${count(counts[THERE])})`],
    ["shared", `in both (${count(counts[SHARED])})`]];
  const truth = () => [[SHARED, "true"], [HERE, "wrong"], [THERE, "dashed: missed"]]
    .map(([kind, words]) => [TRUTHS[kind], `${words} (${count(counts[kind])})`, kind === THERE ? "5 4" : ""]);
  const keys = state.truth ? truth() : other ? difference() : state.colour === "sign" ? bySign : byReader;
  const items = [...keys.map(([key, words, dash = ""]) => [palette[key], words, dash]),
    ...(state.truth ? [] : [[palette.soft, "dashed: negative score", "5 4"]]),
    ...(hasSuperfluous ? [[palette.soft, "dashes and dots: superfluous", "9 3 2 3"]] : []),
    [palette.soft, "weak score", "", 1], [palette.soft, "strong score", "", 5],
    ["none", "fill of a cell: total of its edges", ""]];
  if (left) items.push(["none", `only the strongest ${count(shown - left)} lines of ${count(shown)} are drawn`, ""]);
  let x = 0, y = 0;
  const parts = items.map(([colour, words, dash, wide = 3]) => {
    const mark = colour === "none" ? 0 : 30;
    const long = mark + 0.6 * LEGEND * words.length;
    if (x > 0 && x + long > width) [x, y] = [0, y + LINE];
    const line = {
      x1: x, x2: x + 24, y1: y - 5, y2: y - 5, stroke: colour, "stroke-width": wide,
      ...(dash ? { "stroke-dasharray": dash } : {}),
    };
    const part = (mark ? tag("line", line) : "") + text(x + mark, y, words);
    x += long + 22;
    return part;
  });
  return { svg: parts.join("\n"), height: y + LINE };
}

/** Saves bytes or text under a name, from within the page. */
export function save(document, name, blob) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

/** An SVG's text as a PNG at twice its size. */
export async function pngOf(document, svg) {
  const image = new Image();
  image.src = URL.createObjectURL(new Blob([svg], { type: "image/svg+xml" }));
  await image.decode();
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [SCALE * image.width, SCALE * image.height];
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  URL.revokeObjectURL(image.src);
  return new Promise((done) => canvas.toBlob(done, "image/png"));
}

/** The text of the page with these notes, from a copy of its root element as it was loaded. */
export function pageWith(root, view, notes) {
  const copy = root.cloneNode(true);
  const block = copy.querySelector("#notes");
  // No text can end the block of data: it has no "<".
  block.textContent = JSON.stringify(triplesOf(view.graph, notes)).replaceAll("<", "\\u003c");
  return `<!doctype html>\n${copy.outerHTML}\n`;
}
