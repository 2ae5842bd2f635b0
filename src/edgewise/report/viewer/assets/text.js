// Numbers and tokens as text. Tokens are untrusted: every character is shown as text.

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

const ENDS = { "\n": "⏎", "\r": "␍", "\t": "⇥" };
// Characters that show nothing, or that turn the direction of the text around them.
const UNSEEN = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]/g;

/** A token in pieces {text, blank}: spaces at its ends, tabs and line ends become blank signs, the rest is itself
 * without anything that hides or steers text. */
export function pieces(text) {
  const [, before, inner, after] = /^( *)([^]*?)( *)$/.exec(text);
  const found = [{ text: "·".repeat(before.length), blank: true }];
  for (const part of inner.split(/([\n\r\t])/)) {
    const sign = ENDS[part];
    found.push(sign ? { text: sign, blank: true } : { text: plain(part), blank: false });
  }
  found.push({ text: "·".repeat(after.length), blank: true });
  return found.filter((piece) => piece.text !== "");
}

/** Text without anything that hides it, or that turns the direction of the words around it. */
export const plain = (text) => text.replace(UNSEEN, escaped);

const escaped = (one) => `\\u${one.charCodeAt(0).toString(16).padStart(4, "0")}`;

/** A token's pieces as one text. */
export const visible = (text) => pieces(text).map((piece) => piece.text).join("");

/** A token within a sentence: in quotes, without the spaces around it. */
const quoted = (text) => `'${visible(text.replace(/^ +| +$/g, "") || text)}'`;

/** The token at a place within a sentence, with that place. */
export const tokenNamed = (tokens, place) =>
  tokens[place] === undefined ? `token ${place}` : `${quoted(tokens[place])} (${place})`;

/** Words cut in the middle to at most `longest` characters. */
export function elided(words, longest) {
  const letters = [...words];
  if (letters.length <= longest) return words;
  const before = Math.ceil((longest - 1) / 2);
  return [...letters.slice(0, before), "…", ...letters.slice(letters.length - (longest - 1 - before))].join("");
}
