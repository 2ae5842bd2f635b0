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

from edgewise import CMD, CPR, Ilp, Recipe, Settings, Store, TopKLearner, discover, load_model, load_task, write_result
from edgewise.evaluate import resample
from edgewise.recipes.recipe import GREEDY, learned_recipes, merge_recipes
from edgewise.runtime import Session
from edgewise.runtime.progress import progress_bars


def main() -> None:
    """Learn, measure, print the areas and their paired differences from greedy."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="demo")
    parser.add_argument("--task", default="ioi")
    for name, count in (("train", 160), ("validation", 64), ("test", 160)):
        parser.add_argument(f"--{name}", type=int, default=count)
    parser.add_argument("--steps", type=int, default=TopKLearner.steps)
    parser.add_argument("--batch", type=int, default=TopKLearner.batch)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    model = load_model(given.model)
    train, validation, test = (
        load_task(given.task, model, split, getattr(given, split), given.seed)
        for split in ("train", "validation", "test")
    )
    learner = TopKLearner(steps=given.steps, batch=given.batch, seed=given.seed)
    recipes = merge_recipes({b: (GREEDY, Recipe(Ilp())) for b in (CMD, CPR)}, learned_recipes(learner))
    store = Store(given.out.parent / f".{given.out.name}.partial").open()
    with progress_bars() as progress:
        found = discover(
            model,
            train,
            test,
            Settings(fill=True),
            recipes,
            validation=validation,
            session=Session(store=store, progress=progress),
        )
    write_result(found, given.out, overwrite=True)
    store.remove()
    for measure in (CMD, CPR):
        areas = {outcome.recipe.name: resample(outcome.curve, measure) for outcome in found.of(measure)}
        greedy = areas[GREEDY.name]
        for name, area in areas.items():
            less = area.minus(greedy)
            print(
                f"{measure.name} {name:14s} {area.estimate:.4f}  {area.estimate / greedy.estimate:.2f} of greedy's, "
                f"{less.difference:+.4f} [{less.low:+.4f}, {less.high:+.4f}] {less.verdict}"
            )
    for learned, ranking in found.learned.items():
        print(f"learned for {learned.measure.name} in {ranking.origin['seconds']:.0f} s; {model.graph.n_edges:,} edges")


if __name__ == "__main__":
    main()
