// Which edges of the circuit are drawn; the same row is the legend.

import { button, el, write } from "edgewise/dom.js";
import { HUES, LETTERS } from "edgewise/graph.js";
import { initial, isCompared } from "edgewise/state.js";
import { percent } from "edgewise/text.js";

const TITLES = ["the query of a head", "the key of a head", "the value of a head", "an MLP", "the logits"];
const SHOWN = ["letters", "sign", "least", "all", "span", "search", "parts", "colour", "other", "truth", "row"];
const STEPS = 100, DECADES = 4;

/** The share of the strongest score at a step of the slider: 0, then logarithmic up to 1. */
const leastAt = (step) => (step === 0 ? 0 : 10 ** (DECADES * (step / STEPS - 1)));
const stepAt = (least) => (least <= 0 ? 0 : Math.max(1, Math.round(STEPS * (1 + Math.log10(least) / DECADES))));

/** The patch that undoes all filters. */
export function unfiltered(view) {
  const { letters, sign, least, all, span, search, parts } = initial(view);
  return { letters, sign, least, all, span, search, parts };
}

const isFiltered = ({ letters, sign, least, all, span, search, parts }) =>
  letters.includes(false) || sign !== "both" || least > 0 || all || span !== null || search !== "" || parts.length > 0;

const swatch = (name) => el("span", { class: `swatch ${name}`, "aria-hidden": "true" });

/** Fills `element` with the filters. */
export function filters(element, view, update) {
  let state = null;
  const flip = (at) => update({ letters: state.letters.map((on, place) => (place === at ? !on : on)) });
  const letters = LETTERS.map((name, at) => button("", () => flip(at),
    { class: "chip key", "data-letter": name, title: `Edges into ${TITLES[at]}` }));
  letters.forEach((one, at) => one.append(swatch(HUES[at]), LETTERS[at]));
  const signs = [["both", "both"], ["positive", "+"], ["negative", "−"]].map(([name, words]) => {
    const title = name === "both" ? "Both signs" : `Only ${name} scores`;
    const one = button("", () => update({ sign: name }), { "data-sign": name, title, "aria-label": title });
    one.append(...(name === "both" ? [] : [swatch(name === "positive" ? "solid" : "dashed")]), words);
    return one;
  });
  const ways = [["reader", "input", "what the edge ends in"], ["sign", "sign", "the sign of the score"]];
  const colours = ways.map(([name, words, what]) =>
    button(words, () => update({ colour: name }), { "data-colour": name, title: `Colour by ${what}` }));
  const least = el("input", {
    type: "range", id: "least", min: 0, max: STEPS, step: 1, "aria-label": "Least score, as a share of the strongest",
    oninput: () => update({ least: leastAt(Number(least.value)) }),
  });
  const said = el("output", { id: "least-said", for: "least" });
  const all = el("input", { type: "checkbox", id: "all", onchange: () => update({ all: all.checked }) });
  const span = el("select", {
    id: "span", "aria-label": "Span of tokens", onchange: () => update({ span: span.value === "" ? null : Number(span.value) }),
  });
  span.append(el("option", { value: "" }, "all"), ...view.graph.spans.map((name, at) => el("option", { value: at }, name)));
  const undo = () => update(unfiltered(view));
  const reset = button("Reset", undo, { id: "reset", class: "link", title: "Undo the filters" });
  const group = (word, ...parts) => el("div", { class: "group" }, el("span", { class: "word" }, word), ...parts);
  element.append(
    group("Edges into", el("div", { class: "chips", role: "group", "aria-label": "Edges into" }, ...letters)),
    ...(view.graph.spans.length ? [el("label", { class: "group", title: "Edges at these tokens only" },
      el("span", { class: "word" }, "Span"), span)] : []),
    group("Sign", el("div", { class: "segments", role: "group", "aria-label": "Sign" }, ...signs)),
    group("Colour", el("div", { class: "segments", role: "group", "aria-label": "Colour by" }, ...colours)),
    el("label", { class: "group", title: "Hide edges whose score is weaker than this share of the strongest" },
      el("span", { class: "word" }, "Score at least"), least, said),
    el("label", { class: "group", title: "Draws and lists edges that aren't in the circuit too: grey and dotted" },
      all, "also edges outside the circuit"),
    reset);

  return {
    render(now) {
      if (state && SHOWN.every((key) => state[key] === now[key])) return;
      state = now;
      letters.forEach((one, at) => one.setAttribute("aria-pressed", now.letters[at]));
      signs.forEach((one) => one.setAttribute("aria-pressed", one.dataset.sign === now.sign));
      colours.forEach((one) => one.setAttribute("aria-pressed", one.dataset.colour === now.colour));
      least.value = String(stepAt(now.least));
      write(said, now.least === 0 ? "any" : `${percent(now.least)} of strongest`);
      least.setAttribute("aria-valuetext", said.textContent);
      all.checked = now.all;
      span.value = now.span === null ? "" : String(now.span);
      reset.hidden = !isFiltered(now);
      element.classList.toggle("plain", isCompared(now) || now.colour === "sign");
      element.classList.toggle("by-sign", !isCompared(now) && now.colour === "sign");
    },
  };
}
