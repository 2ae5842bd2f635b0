// One-line descriptions of the parts of recipes.

const METHODS = [
  ["Greedy", "starts at the logits and always adds the best edge into a node already reached; then prunes"],
  ["Top-n", "the edges of the highest scores, then pruned"],
  ["ILP", "the connected circuit of the largest total score, by integer linear programming"],
  ["Bootstrapping", "an edge counts as 0 if the interval of its score over resampled examples contains 0"],
  ["PNR", "positive-negative ratio: at least this share of the selected edges has a positive score"],
  ["Learned", "edges are ranked by values learned through weighted circuits instead of by their scores"],
  ["Portfolio", "at every size, the recipe that did best on validation"],
];

/** Returns [name, description] of the known parts in the names of rows' recipes. */
export function methodsOf(rows) {
  const names = rows.map((row) => row.method.toLowerCase());
  const isWord = (name, word) => name.split(/[^a-z-]+/).includes(word);
  return METHODS.filter(([method]) => names.some((name) => isWord(name, method.toLowerCase())));
}
