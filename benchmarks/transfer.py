"""How well do the rankings of one task serve other prompts? Circuits of equal size, on the test prompts of `--task`.

    python benchmarks/learned.py --model smollm2 --task ioi --train 160 --steps 100 --out results/learned-smollm2-ioi
    python benchmarks/make_stories.py stories-0.jsonl
    python benchmarks/transfer.py results/learned-smollm2-ioi/seed-0 --model smollm2 --task stories-0.jsonl --out OUT

Three rankings are compared: the scores of the other prompts, the scores of the run, and the run's learned ranking. No
ranking is learned here. OUT gets table.md and figure.png.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from edgewise import CMD, CPR, Ranking, evaluate_circuits, load_model, load_task, read_result, score_edges
from edgewise.core.statistics import summarise
from edgewise.evaluate import Curve, Measure
from edgewise.evaluate.intervals import resample
from edgewise.recipes.recipe import GREEDY, select_circuits
from edgewise.runtime import Session
from edgewise.runtime.local_engine import Local
from edgewise.runtime.progress import progress_bars


def main() -> None:
    """Evaluate the circuits of all rankings, then print and write the table and the figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="result folder with learned rankings")
    parser.add_argument("--model", required=True)
    parser.add_argument("--task", required=True, help="other prompts, with the splits train and test")
    parser.add_argument("--train", type=int, default=64, help="number of prompts to score")
    parser.add_argument("--test", type=int, default=96, help="number of prompts to evaluate on")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    run, model = read_result(args.run), load_model(args.model)
    settings = replace(run.settings, fill=True)
    train, test = (load_task(args.task, model, split, getattr(args, split)) for split in ("train", "test"))
    learned = {learner.measure: ranking for learner, ranking in run.learned.items()}
    with progress_bars() as progress, Local() as engine:
        session = Session(engine=engine, progress=progress)
        scores = score_edges(model, train, metric=settings.metric, session=session)
        curves = {}
        for measure in (CMD, CPR):
            rankings = {
                "scores of these prompts": summarise(scores).ranking,
                f"scores of {run.run.task}": summarise(run.load_scores()).ranking,
                f"learned on {run.run.task}": learned[measure],
            }
            for name, ranking in rankings.items():
                curves[measure, name] = evaluate_ranking(ranking, measure, model, test, settings, session)
    args.out.mkdir(parents=True, exist_ok=True)
    text = "\n".join(area_table(curves)) + "\n"
    (args.out / "table.md").write_text(text)
    draw_curves(curves, args.out / "figure.png")
    print(text)


def evaluate_ranking(ranking: Ranking, measure: Measure, model, task, settings, session: Session) -> Curve:
    """Return the curve of greedy's circuits on a task."""
    selections = select_circuits(ranking, GREEDY, measure, settings)
    circuits = [selection.circuit for selection in selections]
    evaluation = evaluate_circuits(model, task, circuits, settings.metric, settings.ablation, session=session)
    counts = tuple(circuit.n_edges for circuit in circuits)
    return Curve(settings.sizes, counts, counts, evaluation.values, evaluation.full, evaluation.empty)


def area_table(curves: dict[tuple[Measure, str], Curve]) -> list[str]:
    """Return a table of areas, with differences from the first ranking of each measure."""
    lines = [
        "| measure | ranking | area | minus the first | at 0.1 %, 1 %, 10 % |",
        "|---|---|---:|---|---|",
    ]
    first: dict[Measure, Curve] = {}
    for (measure, name), curve in curves.items():
        base = first.setdefault(measure, curve)
        less = resample(curve, measure).minus(resample(base, measure))
        difference = f"{less.verdict} {less.difference:+.4f} [{less.low:+.4f}, {less.high:+.4f}]"
        values = ", ".join(f"{curve.faithfulness[curve.shares.index(size)]:.2f}" for size in (0.001, 0.01, 0.1))
        lines.append(f"| {measure.name} | {name} | {curve.area(measure):.4f} | {difference} | {values} |")
    return lines


def draw_curves(curves: dict[tuple[Measure, str], Curve], path: Path) -> None:
    """Draw faithfulness by size, one panel per measure."""
    figure, panels = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
    for panel, measure in zip(panels, (CMD, CPR), strict=True):
        for (other, name), curve in curves.items():
            if other == measure:
                panel.plot(curve.shares, curve.faithfulness, marker="o", label=name)
        panel.set(xscale="log", xlabel="share of the edges", ylabel="faithfulness", title=measure.name)
        panel.axhline(1, color="0.7", linewidth=0.8, zorder=0)
    panels[1].legend(frameon=False, loc="upper left")
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    main()
