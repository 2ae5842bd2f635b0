"""Measure the size of the viewer page and its speed in a browser.  python benchmarks/viewer.py [--scores SCORES.json]

With Chromium and Playwright it measures the time from opening the file until the page is ready, and from a move of the
slider to the picture, for every size of every recipe.

The page has the shape of a run of GPT-2 small (32,491 edges): eight recipes for CMD and four for CPR at ten sizes, 100
examples, attention on three of them. Scores come from a file or are random; the metric of the circuits is random.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

import numpy as np

from edgewise import EdgeScores
from edgewise.core.statistics import summarise
from edgewise.evaluate import SIZES, Attention, areas
from edgewise.graph import Graph
from edgewise.recipes.recipe import paper_recipes, select_circuits
from edgewise.recipes.run_info import Prompt
from edgewise.recipes.settings import DEFAULTS
from edgewise.report.viewer.view import View, ViewRow, ViewRun, ViewSize, page_of

EXAMPLES, TOKENS = 100, 18
WORDS = "When Mary and John went to the store , John gave a drink of milk to".split()


def random_view(graph: Graph, mean: np.ndarray, seed: int = 0) -> View:
    """Return a view of a graph with these scores and random results."""
    draw = np.random.default_rng(seed)
    spread = np.abs(mean) * draw.uniform(0.1, 1.5, graph.n_edges)
    words = tuple(("<bos>", *(f" {word}" for word in WORDS)))[:TOKENS]
    prompts = tuple(Prompt(words, (*words[:5], " Alice", *words[6:]), " Mary", " John") for _ in range(EXAMPLES))
    heads = tuple(
        graph.n_attention_sources(layer) + head for layer in range(graph.n_layers) for head in range(graph.n_heads)
    )
    attention = Attention(
        (3, 40, 77), (len(words),) * 3, heads, tuple(_patterns(draw, len(heads), len(words)) for _ in range(3))
    )
    full, empty = draw.normal(3, 0.5, EXAMPLES), draw.normal(0, 0.2, EXAMPLES)
    facts = {"model": "random", "task": "ioi", "scored by": "eap-ig", "faithfulness": "MIB's"}
    run = ViewRun(
        "random",
        facts,
        mean,
        mean - spread,
        mean + spread,
        spread > np.abs(mean),
        full,
        empty,
        "mib",
        prompts,
        attention,
    )
    rows = []
    scores = EdgeScores(graph, mean[None] + draw.normal(0, 1, (12, graph.n_edges)) * spread, {})
    for measure, recipes in paper_recipes().items():
        for recipe in recipes:
            selections = select_circuits(summarise(scores, recipe.filter).ranking, recipe, measure, DEFAULTS)
            reached = np.clip(np.linspace(0.1, 1, len(SIZES)) ** draw.uniform(0.2, 0.8), 0, 1)
            metric = empty + reached[:, None] * (full - empty) + draw.normal(0, 0.2, (len(SIZES), EXAMPLES))
            sizes = tuple(
                ViewSize(share, selection.n_requested, selection.n_kept, float(at), float(at) - 0.03, float(at) + 0.03)
                for share, selection, at in zip(SIZES, selections, reached, strict=True)
            )
            circuits = tuple(selection.circuit for selection in selections)
            value = areas(SIZES, measure.height(reached))
            rows.append(ViewRow(0, measure.name, recipe.name, sizes, circuits, recipe.parameter_text, measure.better,
                                value, (0.9 * value, 1.1 * value), metric))  # fmt: skip
    return View("random · ioi", graph, (run,), tuple(rows), 0, 5)


def _patterns(draw: np.random.Generator, heads: int, length: int) -> np.ndarray:
    square = np.tril(draw.exponential(1, (2, heads, length, length)) ** 3)
    square = square / square.sum(-1, keepdims=True)
    query, key = np.tril_indices(length)
    return np.round(255 * square[..., query, key]).astype(np.uint8)


def measure_browser(path: Path, chromium: str) -> str:
    """Open the page in a browser, move the slider, and return the times as text."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        page.goto(path.resolve().as_uri())
        page.wait_for_selector("html[data-ready]")
        ready = float(page.evaluate("document.documentElement.dataset.ready"))
        page.wait_for_timeout(500)
        moves = page.evaluate(MOVE_ALL)
        browser.close()
    median, most, worst = np.quantile(moves, (0.5, 0.95, 1))
    return f"ready after {ready:.0f} ms; slider to picture: {median:.0f} ms, 95 % within {most:.0f}, worst {worst:.0f}"


# Move the slider through all sizes of every recipe, and wait each time until the picture is drawn.
MOVE_ALL = """async () => {
  const slider = document.querySelector("#size-slider"), times = [];
  const drawn = () => new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
  for (const method of document.querySelectorAll("[data-method]")) {
    method.click();
    await drawn();
    for (let at = 0; at <= Number(slider.max); at += 1) {
      const start = performance.now();
      slider.value = at;
      slider.dispatchEvent(new Event("input", { bubbles: true }));
      await drawn();
      times.push(performance.now() - start);
    }
  }
  return times;
}"""


def main() -> None:
    """Write the page, print its size and its speed."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--scores", type=Path, help="an EAP-IG json file; default: random scores")
    parser.add_argument("--shape", default="12x12x768", help="layers x heads x width")
    parser.add_argument("--out", type=Path, default=Path("viewer.html"))
    parser.add_argument("--chromium", default=shutil.which("chromium") or shutil.which("google-chrome"))
    args = parser.parse_args()
    if args.scores:
        scores = EdgeScores.load(args.scores)
        graph, mean = scores.graph, scores.mean()
    else:
        graph = Graph(*map(int, args.shape.split("x")))
        mean = np.random.default_rng(0).standard_t(1.5, graph.n_edges) * 1e-3
    page = page_of(random_view(graph, mean))
    args.out.write_text(page, "utf-8")
    print(f"{graph.n_edges:,} edges, {len(page) / 1e6:.2f} MB: {args.out}")
    if args.chromium:
        print(measure_browser(args.out, args.chromium))


if __name__ == "__main__":
    main()
