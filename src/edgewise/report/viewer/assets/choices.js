// The controls that choose the circuit: measure, recipe, and a second recipe to compare it with.

import { button, el, write } from "edgewise/dom.js";
import { benchmarks, rowsOf, sameRow } from "edgewise/state.js";

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
export function toBenchmark(view, state, benchmark) {
  const other = state.other === null ? null : sameRow(view, state.other, benchmark);
  const row = sameRow(view, state.row, benchmark);
  return { row, other: other === row ? null : other };
}

/** Returns the state change that leaves difference mode, or starts it with the first other recipe of the measure. */
export function switched(view, state) {
  if (state.other !== null) return { other: null };
  const near = rowsOf(view, view.rows[state.row].benchmark).filter((row) => row.index !== state.row);
  return { other: (near[0] ?? view.rows.find((row) => row.index !== state.row))?.index ?? null };
}

/** Fills `element` with the controls for measure, recipe and difference mode. */
export function choices(element, view, update) {
  const groups = benchmarks(view);
  let state = null;
  const metric = groups.map((name) =>
    button(name || "files", () => update(toBenchmark(view, state, name)),
      { "data-metric": name, title: METRICS[name] && `${METRICS[name]}. Its circuits are ${SELECTED[name]}.` }));
  const methods = view.rows.map((row) =>
    button(row.label, () => update({ row: row.index }),
      { "data-row": row.index, "data-method": row.method, class: "chip", title: titleOf(row) }));
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
      el("span", { class: "word" }, view.rows.some((row) => row.benchmark) ? "Recipe" : "Circuit"),
      el("div", { class: "chips", role: "group", "aria-label": "Recipe" }, ...methods)),
    el("div", { class: "group", id: "differences", hidden: view.rows.length < 2 && view.truth === null },
      known, toggle, versus));

  return {
    render(now) {
      const before = state;
      state = now;
      if (before && ["row", "other", "truth"].every((key) => before[key] === now[key])) return;
      const here = view.rows[now.row].benchmark;
      metric.forEach((one, at) => one.setAttribute("aria-pressed", groups[at] === here));
      methods.forEach((one, at) => {
        one.hidden = view.rows[at].benchmark !== here;
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
      select.replaceChildren(...optionsOf(view, groups, here, now.row));
      select.value = String(now.other);
    },
  };
}

function optionsOf(view, groups, here, row) {
  const option = (one) => el("option", { value: one.index, disabled: one.index === row }, one.label);
  if (groups.length < 2) return view.rows.map(option);
  return [here, ...groups.filter((name) => name !== here)].map((name) =>
    el("optgroup", { label: name || "files" }, ...rowsOf(view, name).map(option)));
}

const titleOf = (row) => [row.label, row.parameters].filter(Boolean).join(": ");
