// What the methods of a page are, in a line each.

const METHODS = [
  ["Greedy", "from the logits backwards, always the best edge into what is reached already; then pruned"],
  ["Top-n", "the best edges wherever they are, then pruned"],
  ["ILP", "the connected circuit of the largest total score, by integer linear programming"],
  ["Bootstrapping", "an edge whose score has an interval, over resampled examples, that holds 0 counts as 0"],
  ["PNR", "positive-negative ratio: at least this share of the selected edges has a positive score"],
  ["Learned", "edges are ranked by values that were learned through weighted circuits, not by their scores"],
  ["Portfolio", "at every size, whichever of the methods validation prefers"],
];

/** [name, meaning] of the methods that rows name, alone or in a combination; others aren't spoken of. */
export function methodsOf(rows) {
  const names = rows.map((row) => row.method.toLowerCase());
  const isWord = (name, word) => name.split(/[^a-z-]+/).includes(word);
  return METHODS.filter(([method]) => names.some((name) => isWord(name, method.toLowerCase())));
}
