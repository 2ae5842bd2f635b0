// The graph in words: names and places of nodes, and what a destination is an input of.

export const LETTERS = ["q", "k", "v", "MLP", "logits"];
/** The names of their colours in the style. */
export const HUES = LETTERS.map((letter) => letter.toLowerCase());

/** A graph from its JSON: names of the nodes, and for a destination its node, letter and name. */
export function graphOf({ n_layers: layers, n_heads: heads, parallel, edges, held, spans = [] }) {
  const nodes = ["input"];
  for (let layer = 0; layer < layers; layer++) {
    for (let head = 0; head < heads; head++) nodes.push(`a${layer}.h${head}`);
    nodes.push(`m${layer}`);
  }
  const logits = nodes.push("logits") - 1;
  const readers = 3 * heads + 1;
  const letterOf = (destination) => {
    if (destination >= layers * readers) return 4;
    const within = destination % readers;
    return within === 3 * heads ? 3 : Math.floor(within / heads);
  };
  const nodeOf = (destination) => {
    if (destination >= layers * readers) return logits;
    const first = 1 + Math.floor(destination / readers) * (heads + 1);
    const within = destination % readers;
    return first + (within === 3 * heads ? heads : within % heads);
  };
  const destinationName = (destination) => {
    const letter = letterOf(destination);
    return nodes[nodeOf(destination)] + (letter < 3 ? `<${LETTERS[letter]}>` : "");
  };
  const place = (node) => {
    if (node === 0) return { layer: -1, head: null, kind: "input" };
    if (node === logits) return { layer: layers, head: null, kind: "logits" };
    const layer = Math.floor((node - 1) / (heads + 1));
    const head = (node - 1) % (heads + 1);
    return head === heads ? { layer, head: null, kind: "mlp" } : { layer, head, kind: "head" };
  };
  const numbers = new Map(nodes.map((name, node) => [name, node]));
  return {
    layers, heads, parallel, edges, held, nodes, logits, spans,
    /** The word for an edge in counts: circuits may consist of (edge, span) pairs. */
    unit: spans.length ? "pair" : "edge",
    destinations: layers * readers + 1,
    nodeOf, letterOf, destinationName, place,
    /** The node of this name, or null. */
    find: (name) => numbers.get(name) ?? null,
  };
}
