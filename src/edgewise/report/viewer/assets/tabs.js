// The tabs of the side column.

import { button } from "edgewise/dom.js";
import { TABS } from "edgewise/state.js";

/** Fills the list of tabs, and shows the panel of the chosen one. */
export function tabs(document, update) {
  const list = document.getElementById("tabs");
  const buttons = TABS.map((name) => button(name[0].toUpperCase() + name.slice(1), () => update({ tab: name }),
    { id: `tab-${name}`, role: "tab", "aria-controls": `panel-${name}`, "data-tab": name }));
  list.append(...buttons);
  list.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!by) return;
    const next = (buttons.indexOf(event.target) + by + TABS.length) % TABS.length;
    buttons[next].focus();
    update({ tab: TABS[next] });
  });
  let shown = null;
  return {
    render({ tab }) {
      if (tab === shown) return;
      shown = tab;
      for (const [place, name] of TABS.entries()) {
        buttons[place].setAttribute("aria-selected", String(name === tab));
        buttons[place].tabIndex = name === tab ? 0 : -1;
        document.getElementById(`panel-${name}`).hidden = name !== tab;
      }
    },
  };
}
