"""Compare learned rankings and portfolios with greedy on EAP-IG: circuits of equal size, on unseen examples.

    python benchmarks/learned.py --model smollm2 --task ioi --batch 8 --out results/learned-ioi
    python benchmarks/learned.py --model MODEL --task stories.jsonl --out results/learned-stories    # task file

Rankings are learned on train, the portfolio chooses on validation, and the results are for test. Greedy fills its
circuits to the requested size, so that all sizes are equal. The result folder is like that of `edgewise run`: `edgewise
compare` and `edgewise report` read it. Run a stopped command again to resume.
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
    """Learn, evaluate, print the areas and their paired differences from greedy."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="demo")
    parser.add_argument("--task", default="ioi")
    for name, count in (("train", 160), ("validation", 64), ("test", 160)):
        parser.add_argument(f"--{name}", type=int, default=count)
    parser.add_argument("--steps", type=int, default=TopKLearner.steps)
    parser.add_argument("--batch", type=int, default=TopKLearner.batch)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    model = load_model(args.model)
    train, validation, test = (
        load_task(args.task, model, split, getattr(args, split), args.seed) for split in ("train", "validation", "test")
    )
    learner = TopKLearner(steps=args.steps, batch=args.batch, seed=args.seed)
    recipes = merge_recipes({b: (GREEDY, Recipe(Ilp())) for b in (CMD, CPR)}, learned_recipes(learner))
    store = Store(args.out.parent / f".{args.out.name}.partial").open()
    with progress_bars() as progress:
        discovery = discover(
            model,
            train,
            test,
            Settings(fill=True),
            recipes,
            validation=validation,
            session=Session(store=store, progress=progress),
        )
    write_result(discovery, args.out, overwrite=True)
    store.remove()
    for measure in (CMD, CPR):
        areas = {outcome.recipe.name: resample(outcome.curve, measure) for outcome in discovery.of(measure)}
        greedy = areas[GREEDY.name]
        for name, area in areas.items():
            less = area.minus(greedy)
            print(
                f"{measure.name} {name:14s} {area.estimate:.4f}  {area.estimate / greedy.estimate:.2f} of greedy's, "
                f"{less.difference:+.4f} [{less.low:+.4f}, {less.high:+.4f}] {less.verdict}"
            )
    for learned, ranking in discovery.learned.items():
        print(f"learned for {learned.measure.name} in {ranking.origin['seconds']:.0f} s; {model.graph.n_edges:,} edges")


if __name__ == "__main__":
    main()
