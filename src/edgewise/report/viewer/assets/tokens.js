// Tokens are untrusted text: every character is shown as text.

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
export const quoted = (text) => `'${visible(text.replace(/^ +| +$/g, "") || text)}'`;

/** The token at a place within a sentence; of several that are alike it says which, and of none its place. */
export function tokenNamed(tokens, place) {
  if (tokens[place] === undefined) return `token ${place}`;
  const name = quoted(tokens[place]);
  const alike = [...tokens.keys()].filter((one) => quoted(tokens[one]) === name);
  return alike.length > 1 ? `${ordinal(1 + alike.indexOf(place))} ${name}` : name;
}

function ordinal(whole) {
  const teen = whole % 100 > 10 && whole % 100 < 20;
  return whole + ((!teen && ["th", "st", "nd", "rd"][whole % 10]) || "th");
}

/** Words cut in the middle to at most `longest` characters. */
export function elided(words, longest) {
  const letters = [...words];
  if (letters.length <= longest) return words;
  const before = Math.ceil((longest - 1) / 2);
  return [...letters.slice(0, before), "…", ...letters.slice(letters.length - (longest - 1 - before))].join("");
}
