// The page: owns the one state that changes, and draws whatever it changes.

import { aboutPanel } from "edgewise/about.js";
import { attentionPanel } from "edgewise/attention.js";
import { curvePanel } from "edgewise/curve.js";
import { load } from "edgewise/data.js";
import { examplesPanel } from "edgewise/examples.js";
import { changed, fromAddress, toAddress } from "edgewise/state.js";

/** Loads the document's view, and shows it. */
export async function start(document) {
  const view = await load(document);
  let state = fromAddress(view, location.hash);
  const at = (id) => document.getElementById(id);
  const update = (patch) => {
    state = changed(view, state, patch);
    requestAnimationFrame(render);
  };
  const panels = [
    curvePanel(at("curve"), view, update),
    examplesPanel(at("panel-examples"), view, update),
    attentionPanel(at("panel-attention"), view, update),
    aboutPanel(at("panel-about"), view, update),
  ];
  const render = () => panels.forEach((panel) => panel.render(state));
  render();
}
