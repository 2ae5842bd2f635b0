// The page's two blocks of data as one value of typed arrays.

import { graphOf } from "edgewise/graph.js";
import { notesOf } from "edgewise/notes.js";
import { plain } from "edgewise/text.js";

/** The view that a document holds: reads, inflates and decodes its two blocks. */
export async function load(document) {
  const about = JSON.parse(document.getElementById("about").textContent);
  const text = atob(document.getElementById("arrays").textContent.trim());
  const packed = new Uint8Array(text.length);
  for (let at = 0; at < text.length; at++) packed[at] = text.charCodeAt(at);
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  const view = decode(about, new Uint8Array(await new Response(stream).arrayBuffer()));
  return { ...view, notes: notesOf(view.graph, JSON.parse(document.getElementById("notes").textContent)) };
}

/** A view from its JSON and the bytes of its arrays. */
function decode(about, bytes) {
  const array = reader(about.arrays, bytes);
  const graph = graphOf({ ...about.graph, spans: (about.graph.spans ?? []).map(plain) });
  const source = array("source");
  const destination = array("destination");
  const span = array("span");
  const n = source.length;
  const head = new Uint32Array(n);
  const letter = new Uint8Array(n);
  const nodes = Uint32Array.from({ length: graph.destinations }, (_, at) => graph.nodeOf(at));
  const letters = Uint8Array.from({ length: graph.destinations }, (_, at) => graph.letterOf(at));
  for (let edge = 0; edge < n; edge++) {
    head[edge] = nodes[destination[edge]];
    letter[edge] = letters[destination[edge]];
  }
  const runs = about.runs.map((run, at) => runOf(run, `run${at}`, array));
  const labels = labelsOf(about);
  // Circuits of nodes and neurons are drawn as edges, but their sizes are shares of nodes or neurons.
  const sizeUnit = ({ unit }) => (unit === "edge" ? graph.unit : plain(unit));
  return {
    about: { ...about, title: plain(about.title) }, graph, n, source, destination, head, letter, runs,
    rows: about.rows.map((row, at) => (
      { ...rowOf(row, at, labels[at], array, runs), unit: graph.unit, sizeUnit: sizeUnit(runs[row.run]) })),
    /** [edge] whether it is in the known circuit; null if none is known. */
    truth: array("truth")?.row(0) ?? null,
    /** [edge] the span of tokens that it acts on; null if edges act on all tokens. */
    span,
    edgeName: (edge) =>
      `${graph.nodes[source[edge]]}->${graph.destinationName(destination[edge])}${span ? `@${graph.spans[span[edge]]}` : ""}`,
  };
}

function runOf(run, name, array) {
  const part = (which) => array(`${name}.${which}`);
  const unstable = part("unstable");
  const patterns = run.patterns && { ...run.patterns, at: patternsOf(run.patterns, part) };
  const facts = Object.entries(run.facts).map((pair) => pair.map(plain));
  return {
    ...run, patterns, name: plain(run.name), facts: Object.fromEntries(facts),
    mean: part("mean"), low: part("low"), high: part("high"),
    unstable: unstable && unstable.row(0), full: part("full"), empty: part("empty"),
    edgeEffects: part("edge_effects"), superfluous: part("superfluous")?.row(0) ?? null, nodeEffects: part("node_effects"),
  };
}

/** A function of (example, head's node, side: 0 clean or 1 corrupted) that gives its pattern, or null. */
function patternsOf({ examples, heads }, part) {
  const places = new Map(heads.map((node, at) => [node, at]));
  return (example, node, side) => {
    const values = examples.includes(example) ? part(`pattern${examples.indexOf(example)}`) : null;
    if (!values || !places.has(node)) return null;
    const each = values.length / (2 * heads.length);
    const first = (side * heads.length + places.get(node)) * each;
    return {
      length: Math.round((Math.sqrt(8 * each + 1) - 1) / 2),
      value: (query, key) => (key > query ? 0 : values[first + (query * (query + 1)) / 2 + key]),
    };
  };
}

function rowOf(row, index, label, array, runs) {
  const masks = array(`row${index}.masks`);
  const value = array(`row${index}.value`);
  const scores = value ?? runs[row.run].mean;
  return {
    ...row, index, label, scores, value, parameters: plain(row.parameters),
    metric: array(`row${index}.metric`),
    neurons: array(`row${index}.neurons`), // [size, source] of circuits of neurons
    has: masks.has,
    count: (edge) => {
      let found = 0;
      for (let size = 0; size < row.sizes.length; size++) found += masks.has(size, edge);
      return found;
    },
  };
}

/** The labels of rows: recipe, with the run if there are several; unique within a measure. */
function labelsOf({ rows, runs }) {
  const taken = new Map();
  return rows.map((row) => {
    const run = runs[row.run].name;
    const name = plain(runs.length > 1 && run !== row.method ? `${row.method} · ${run}` : row.method);
    const key = `${row.measure}\n${name}`;
    taken.set(key, (taken.get(key) ?? 0) + 1);
    return taken.get(key) > 1 ? `${name} (${taken.get(key)})` : name;
  });
}

/** A function that gives the array of a name, or null; each is decoded when it is first asked for. */
function reader(places, bytes) {
  const decoded = new Map();
  return (name) => {
    const place = places[name];
    if (!place) return null;
    const key = `${place.kind} ${place.at} ${place.shape}`;
    if (!decoded.has(key)) decoded.set(key, READERS[place.kind](bytes, place.at, place.shape));
    return decoded.get(key);
  };
}

const count = (shape) => shape.reduce((a, b) => a * b, 1);

const whole = (kind) => (bytes, at, shape) => {
  const size = kind.BYTES_PER_ELEMENT * count(shape);
  return new kind(bytes.slice(at, at + size).buffer);
};

const READERS = {
  u1: whole(Uint8Array),
  u2: whole(Uint16Array),
  u4: whole(Uint32Array),
  f4(bytes, at, shape) {
    const n = count(shape);
    const bits = new Uint32Array(n);
    for (let plane = 0; plane < 4; plane++) {
      const first = at + plane * n;
      for (let i = 0; i < n; i++) bits[i] |= bytes[first + i] << (8 * plane);
    }
    return new Float32Array(bits.buffer);
  },
  bits(bytes, at, shape) {
    const width = shape[shape.length - 1];
    const stride = Math.ceil(width / 8);
    const has = (row, i) => ((bytes[at + row * stride + (i >> 3)] >> (7 - (i & 7))) & 1) === 1;
    return { has, row: (row) => Uint8Array.from({ length: width }, (_, i) => has(row, i)) };
  },
};
