// The controls that choose the circuit (measure, recipe, a second recipe) and which of its edges are drawn.

import { button, el, write } from "edgewise/dom.js";
import { HUES, LETTERS } from "edgewise/graph.js";
import { initial, isCompared, measuresOf, rowsOf, sameRow } from "edgewise/state.js";
import { percent } from "edgewise/text.js";

/** Descriptions of the measures. */
export const METRICS = {
  CMD: "Integrated circuit-model distance: the area between the faithfulness curve and 1; lower is better",
  CPR: "Integrated circuit performance ratio: the area under the faithfulness curve; higher is better",
};

/** How the circuits of each measure are selected. */
export const SELECTED = {
  CMD: "selected by absolute scores",
  CPR: "selected by signed scores",
};

/** Returns the state change that moves both circuits to another measure. */
export function toMeasure(view, state, measure) {
  const other = state.other === null ? null : sameRow(view, state.other, measure);
  const row = sameRow(view, state.row, measure);
  return { row, other: other === row ? null : other };
}

/** Returns the state change that leaves difference mode, or starts it with the first other recipe of the measure. */
export function switched(view, state) {
  if (state.other !== null) return { other: null };
  const near = rowsOf(view, view.rows[state.row].measure).filter((row) => row.index !== state.row);
  return { other: (near[0] ?? view.rows.find((row) => row.index !== state.row))?.index ?? null };
}

/** Fills `element` with the controls for measure, recipe and difference mode. */
export function choices(element, view, update) {
  const groups = measuresOf(view);
  let state = null;
  const metric = groups.map((name) =>
    button(name || "files", () => update(toMeasure(view, state, name)),
      { "data-metric": name, title: METRICS[name] && `${METRICS[name]}. Its circuits are ${SELECTED[name]}.` }));
  const methods = view.rows.map((row) => button(row.label, () => update({ row: row.index }), {
    "data-row": row.index, "data-method": row.method, class: "chip",
    title: [row.label, row.parameters].filter(Boolean).join(": "),
  }));
  const toggle = button("Difference", () => update(switched(view, state)),
    { id: "difference", class: "chip", title: "Show the differences between two circuits (d)" });
  const known = button("Known circuit", () => update({ truth: !state.truth }), {
    id: "known", class: "chip", hidden: view.truth === null,
    title: "Show which edges are in the known circuit: true, wrong and missed ones",
  });
  toggle.hidden = view.rows.length < 2;
  const select = el("select", {
    id: "other", "aria-label": "Second circuit", onchange: () => update({ other: Number(select.value) }),
  });
  const swap = button("⇄", () => update({ row: state.other, other: state.row }),
    { id: "swap", class: "icon", "aria-label": "Swap the two circuits", title: "Swap the two" });
  const shown = el("span", { class: "vs-name", id: "vs-here" });
  const versus = el("span", { class: "versus" }, shown, el("span", { class: "soft" }, "vs"), select, swap);
  element.append(
    el("div", { class: "group", id: "metrics", hidden: groups.length < 2 },
      el("span", { class: "word" }, "Measure"),
      el("div", { class: "segments", role: "group", "aria-label": "Measure" }, ...metric)),
    el("div", { class: "group grows", id: "methods", hidden: view.rows.length < 2 },
      el("span", { class: "word" }, view.rows.some((row) => row.measure) ? "Recipe" : "Circuit"),
      el("div", { class: "chips", role: "group", "aria-label": "Recipe" }, ...methods)),
    el("div", { class: "group", id: "differences", hidden: view.rows.length < 2 && view.truth === null },
      known, toggle, versus));

  return {
    render(now) {
      const before = state;
      state = now;
      if (before && ["row", "other", "truth"].every((key) => before[key] === now[key])) return;
      const here = view.rows[now.row].measure;
      metric.forEach((one, at) => one.setAttribute("aria-pressed", groups[at] === here));
      methods.forEach((one, at) => {
        one.hidden = view.rows[at].measure !== here;
        one.setAttribute("aria-pressed", at === now.row);
        one.classList.toggle("there", at === now.other);
      });
      methods[now.row].scrollIntoView?.({ block: "nearest", inline: "nearest" });
      toggle.setAttribute("aria-pressed", now.other !== null);
      known.setAttribute("aria-pressed", now.truth);
      // The hidden element keeps its space, so that nothing moves under the pointer.
      versus.classList.toggle("kept", now.other === null);
      if (now.other === null) return;
      write(shown, view.rows[now.row].label);
      shown.title = view.rows[now.row].label;
      const option = (one) => el("option", { value: one.index, disabled: one.index === now.row }, one.label);
      const group = (name) => el("optgroup", { label: name || "files" }, ...rowsOf(view, name).map(option));
      const isFirst = (name) => (name === here ? 0 : 1);
      select.replaceChildren(...(groups.length < 2 ? view.rows.map(option)
        : groups.toSorted((one, two) => isFirst(one) - isFirst(two)).map(group)));
      select.value = String(now.other);
    },
  };
}

const TITLES = ["the query of a head", "the key of a head", "the value of a head", "an MLP", "the logits"];
const SHOWN = ["letters", "sign", "least", "all", "span", "search", "colour", "other", "truth", "row"];
const STEPS = 100, DECADES = 4;

/** The share of the strongest score at a step of the slider: 0, then logarithmic up to 1. */
const leastAt = (step) => (step === 0 ? 0 : 10 ** (DECADES * (step / STEPS - 1)));
const stepAt = (least) => (least <= 0 ? 0 : Math.max(1, Math.round(STEPS * (1 + Math.log10(least) / DECADES))));

/** The patch that undoes all filters. */
export function unfiltered(view) {
  const { letters, sign, least, all, span, search } = initial(view);
  return { letters, sign, least, all, span, search };
}

const swatch = (name) => el("span", { class: `swatch ${name}`, "aria-hidden": "true" });

/** Fills `element` with the filters. */
export function filtersPanel(element, view, update) {
  let state = null;
  const flip = (at) => update({ letters: state.letters.map((on, place) => (place === at ? !on : on)) });
  const letters = LETTERS.map((name, at) => button([swatch(HUES[at]), name], () => flip(at),
    { class: "chip key", "data-letter": name, title: `Edges into ${TITLES[at]}` }));
  const signs = [["both", "both"], ["positive", "+"], ["negative", "−"]].map(([name, words]) => {
    const title = name === "both" ? "Both signs" : `Only ${name} scores`;
    const line = name === "both" ? [] : [swatch(name === "positive" ? "solid" : "dashed")];
    return button([...line, words], () => update({ sign: name }), { "data-sign": name, title, "aria-label": title });
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
      reset.hidden = Object.entries(unfiltered(view)).every(([key, value]) => String(now[key]) === String(value));
      element.classList.toggle("plain", isCompared(now) || now.colour === "sign");
      element.classList.toggle("by-sign", !isCompared(now) && now.colour === "sign");
    },
  };
}
