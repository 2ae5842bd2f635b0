// Numbers in words, alike everywhere on the page.

const MINUS = "\u2212";
const signed = (text) => text.replace(/^-/, MINUS).replace("e-", `e${MINUS}`);

/** 1624 -> "1,624". */
export const count = (whole) => Math.round(whole).toLocaleString("en-US");

/** "1 edge", "2 edges". */
export const counted = (whole, word) => `${count(whole)} ${word}${whole === 1 ? "" : "s"}`;

/** A number to three digits, with a true minus: 0.0123, 1.23e−5. Never "-0". */
export function number(value, digits = 3) {
  if (!Number.isFinite(value)) return "n/a";
  if (value === 0) return "0";
  const size = Math.abs(value);
  const far = size >= 1e5 || size < 1e-4;
  return signed(far ? value.toExponential(digits - 1) : String(Number(value.toPrecision(digits))));
}

/** A number with its interval: "0.93 [0.91, 0.95]"; without one, the number alone. */
export const between = (value, low, high, say = number) =>
  [low, high].every(Number.isFinite) ? `${say(value)} [${say(low)}, ${say(high)}]` : say(value);

/** A share as a percentage: 0.05 -> "5 %". */
export const percent = (share) => `${Number((100 * share).toPrecision(3))}\u00a0%`;

/** Faithfulness and areas, to two decimals: "0.93". */
export function fixed(value) {
  if (!Number.isFinite(value)) return "n/a";
  const text = value.toFixed(2);
  return signed(text === "-0.00" ? "0.00" : text);
}
