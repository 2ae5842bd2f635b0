// Which edges of the circuit are drawn; the same row is the legend.

import { button, el, write } from "edgewise/dom.js";
import { LETTERS } from "edgewise/graph.js";
import { initial } from "edgewise/state.js";
import { number, percent } from "edgewise/text.js";

const KEYS = ["q", "k", "v", "mlp", "logits"];
const TITLES = ["the query of a head", "the key of a head", "the value of a head", "an MLP", "the logits"];
const STEPS = 100, DECADES = 4;

/** The share of the strongest score at a step of the slider: 0, then logarithmic up to 1. */
export const leastAt = (step) => (step === 0 ? 0 : 10 ** (DECADES * (step / STEPS - 1)));
const stepAt = (least) => (least <= 0 ? 0 : Math.max(1, Math.round(STEPS * (1 + Math.log10(least) / DECADES))));

/** The patch that undoes all filters. */
export function unfiltered(view) {
  const { letters, sign, least, all, search } = initial(view);
  return { letters, sign, least, all, search };
}

const isFiltered = (state) => state.letters.includes(false) || state.sign !== "both" || state.least > 0 || state.all || state.search !== "";

const swatch = (name) => el("span", { class: `swatch ${name}`, "aria-hidden": "true" });

/** Fills `element` with the filters. */
export function filters(element, view, update) {
  let state = null;
  const letters = LETTERS.map((name, at) => button("", () => update({ letters: state.letters.map((on, i) => (i === at ? !on : on)) }),
    { class: "chip key", "data-letter": name, title: `Edges into ${TITLES[at]}` }));
  letters.forEach((one, at) => one.append(swatch(KEYS[at]), LETTERS[at]));
  const signs = [["both", "both"], ["positive", "+"], ["negative", "−"]].map(([name, words]) => {
    const one = button("", () => update({ sign: name }), { "data-sign": name, title: name === "both" ? "Both signs" : `Only ${name} scores`, "aria-label": name });
    one.append(...(name === "both" ? [] : [swatch(name === "positive" ? "solid" : "dashed")]), words);
    return one;
  });
  const colours = [["reader", "input"], ["sign", "sign"]].map(([name, words]) =>
    button(words, () => update({ colour: name }), { "data-colour": name, title: name === "sign" ? "Colour by the sign of the score" : "Colour by what the edge ends in" }));
  const least = el("input", { type: "range", id: "least", min: 0, max: STEPS, step: 1, "aria-label": "Least score, as a share of the strongest", oninput: () => update({ least: leastAt(Number(least.value)) }) });
  const said = el("output", { id: "least-said", for: "least" });
  const all = el("input", { type: "checkbox", id: "all", onchange: () => update({ all: all.checked }) });
  const reset = button("Reset", () => update(unfiltered(view)), { id: "reset", class: "link", title: "Undo the filters" });
  const group = (word, ...parts) => el("div", { class: "group" }, el("span", { class: "word" }, word), ...parts);
  element.append(
    group("Edges into", el("div", { class: "chips", role: "group", "aria-label": "Edges into" }, ...letters)),
    group("Sign", el("div", { class: "segments", role: "group", "aria-label": "Sign" }, ...signs)),
    group("Colour", el("div", { class: "segments", role: "group", "aria-label": "Colour by" }, ...colours)),
    el("label", { class: "group", title: "Hide edges whose score is weaker than this share of the strongest" }, el("span", { class: "word" }, "Score at least"), least, said),
    el("label", { class: "group", title: "Also draw the strongest edges that aren't in the circuit" }, all, "outside too"),
    reset);

  return {
    render(now) {
      if (state && ["letters", "sign", "least", "all", "search", "colour", "other", "row"].every((key) => state[key] === now[key])) return;
      state = now;
      letters.forEach((one, at) => one.setAttribute("aria-pressed", now.letters[at]));
      signs.forEach((one) => one.setAttribute("aria-pressed", one.dataset.sign === now.sign));
      colours.forEach((one) => one.setAttribute("aria-pressed", one.dataset.colour === now.colour));
      least.value = String(stepAt(now.least));
      write(said, now.least === 0 ? "any" : `${percent(now.least)} of strongest`);
      least.setAttribute("aria-valuetext", now.least === 0 ? "any" : `${number(100 * now.least)} percent of the strongest`);
      all.checked = now.all;
      reset.hidden = !isFiltered(now);
      element.classList.toggle("plain", now.other !== null || now.colour === "sign");
      element.classList.toggle("by-sign", now.other === null && now.colour === "sign");
    },
  };
}
