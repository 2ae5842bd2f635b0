"""Learned rankings and portfolios against greedy on EAP-IG: circuits of equal size, on examples that nobody has seen.

    python benchmarks/learned.py --model smollm2 --task ioi --batch 8 --out results/learned-ioi
    python benchmarks/learned.py --model MODEL --task stories.jsonl --out results/learned-stories    # with splits

Rankings are learned on train, the portfolio chooses on validation, everything is reported on test. Greedy is filled up
to the size asked for, so that no difference is one of size. The folder is one like `edgewise run` writes: `edgewise
compare` and `edgewise report` read it. A command that was stopped goes on.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from edgewise import CMD, CPR, Ilp, Learned, Recipe, Settings, Store, discover, load_model, load_task, write_result
from edgewise.evaluate import resample
from edgewise.progress import bars
from edgewise.study import GREEDY, learned_recipes, merged


def main() -> None:
    """Learn, measure, print the areas and their paired differences from greedy."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="demo")
    parser.add_argument("--task", default="ioi")
    for name, count in (("train", 160), ("validation", 64), ("test", 160)):
        parser.add_argument(f"--{name}", type=int, default=count)
    parser.add_argument("--steps", type=int, default=Learned.steps)
    parser.add_argument("--batch", type=int, default=Learned.batch)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    model = load_model(given.model)
    train, validation, test = (
        load_task(given.task, model, split, getattr(given, split), given.seed)
        for split in ("train", "validation", "test")
    )
    learner = Learned(steps=given.steps, batch=given.batch, seed=given.seed)
    recipes = merged({b: (GREEDY, Recipe(Ilp())) for b in (CMD, CPR)}, learned_recipes(learner))
    store = Store(given.out.parent / f".{given.out.name}.partial").open()
    with bars() as progress:
        found = discover(
            model, train, test, Settings(fill=True), recipes, validation=validation, store=store, progress=progress
        )
    write_result(found, given.out, overwrite=True)
    store.remove()
    for benchmark in (CMD, CPR):
        areas = {outcome.recipe.name: resample(outcome.curve, benchmark) for outcome in found.of(benchmark)}
        greedy = areas[GREEDY.name]
        for name, area in areas.items():
            less = area.less(greedy)
            print(
                f"{benchmark.name} {name:14s} {area.estimate:.4f}  {area.estimate / greedy.estimate:.2f} of greedy's, "
                f"{less.difference:+.4f} [{less.low:+.4f}, {less.high:+.4f}] {less.verdict}"
            )
    for learned, ranking in found.learned.items():
        print(f"learned for {learned.goal.name} in {ranking.origin['seconds']:.0f} s; {model.graph.n_edges:,} edges")


if __name__ == "__main__":
    main()
