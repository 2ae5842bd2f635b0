// The page as a file of its own that keeps the reader's names and notes.

import { triplesOf } from "edgewise/notes.js";

const EMPTY = new Set(["meta", "input", "br", "img", "link"]);
const RAW = new Set(["script", "style", "noscript"]);

const escaped = (text) => text.replace(/[&<>"]/g, (sign) => `&#${sign.charCodeAt(0)};`);

/** An element as HTML text. */
function htmlOf(element) {
  const name = element.localName;
  const attributes = [...element.attributes].map((one) => ` ${one.name}="${escaped(one.value)}"`).join("");
  if (EMPTY.has(name)) return `<${name}${attributes}>`;
  const inside = RAW.has(name) ? element.textContent : [...element.childNodes].map(partOf).join("");
  return `<${name}${attributes}>${inside}</${name}>`;
}

function partOf(node) {
  if (node.nodeType === Node.ELEMENT_NODE) return htmlOf(node);
  return node.nodeType === Node.TEXT_NODE ? escaped(node.data) : "";
}

/** The text of the page with these notes, from a copy of its root element as it was loaded. */
export function pageWith(root, view, notes) {
  const copy = root.cloneNode(true);
  const block = copy.querySelector("#notes");
  // No text can end the block of data: it has no "<".
  block.textContent = JSON.stringify(triplesOf(view.graph, notes)).replaceAll("<", "\\u003c");
  return `<!doctype html>\n${htmlOf(copy)}\n`;
}
