// The tabs of the side column.

import { button } from "edgewise/dom.js";
import { TABS } from "edgewise/state.js";

/** Fills the list of tabs, and shows the panel of the chosen one. */
export function tabs(document, update) {
  const list = document.getElementById("tabs");
  const choose = (name) => {
    update({ tab: name });
    // The page draws the change in the same frame, before this.
    requestAnimationFrame(() => reveal(document.getElementById(`panel-${name}`)));
  };
  const buttons = TABS.map((name) => button(name[0].toUpperCase() + name.slice(1), () => choose(name),
    { id: `tab-${name}`, role: "tab", "aria-controls": `panel-${name}`, "data-tab": name }));
  list.append(...buttons);
  list.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!by) return;
    const next = (buttons.indexOf(event.target) + by + TABS.length) % TABS.length;
    buttons[next].focus();
    choose(TABS[next]);
  });
  let shown = null;
  return {
    render({ tab }) {
      if (tab === shown) return;
      shown = tab;
      document.getElementById("side").dataset.tab = tab;
      for (const [place, name] of TABS.entries()) {
        buttons[place].setAttribute("aria-selected", String(name === tab));
        buttons[place].tabIndex = name === tab ? 0 : -1;
        document.getElementById(`panel-${name}`).hidden = name !== tab;
      }
    },
  };
}

/** Scrolls to a panel that begins outside the window or near its end. */
function reveal(panel) {
  const { top } = panel.getBoundingClientRect();
  if (top < 0 || top > 0.7 * innerHeight) panel.scrollIntoView({ block: "start" });
}
