"""edgewise learn: learn a ranking of the edges."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ..evaluate.ablations import ABLATIONS
from ..evaluate.measures import MEASURES
from ..io.atomic import SCORE_FILES, check_folder
from ..method import choose
from ..recipes.settings import Settings
from ..report.formatting import format_score
from ..report.tables import number_tables
from ..tasks.metrics import METRICS
from . import options
from .console import note, out, print_json, print_tables, say, show_forecast, show_progress, warn_of_trend
from .options import option
from .score import SHOWN_EDGES


def command(
    *,
    out_folder: Path = option(..., "Output", "The folder to write the ranking to.", "--out"),
    model: options.ModelOptions,
    task: options.TaskOptions,
    machine: options.MachineOptions,
    split: str = options.SCORED_SPLIT,
    metric: str = options.METRIC,
    ablation: str = options.ABLATION,
    measure: str = option("CMD", "Learning", "The measure to learn for.", choices=MEASURES),
    steps: int | None = option(None, "Learning", "Number of steps (default: 300).", min=1),
    learning_rate: float | None = options.LEARNING_RATE,
    resamples: int = option(0, "Learning", "Learn this many more times, from resampled examples, for the spread."),
    overwrite: bool = options.OVERWRITE,
    dry_run: bool = options.DRY_RUN,
    json: bool = options.JSON,
) -> None:
    """Learn one value per edge by gradient descent through weighted circuits.

    Writes ranking.npy and ranking.json, which `edgewise select` reads. Run the same command again to resume a
    stopped one.
    """
    from ..learn.run_learner import learn_ranking
    from ..recipes.forecast import LearnWork, forecast

    check_folder(out_folder, overwrite, SCORE_FILES)
    learner = options.build_learner(steps, learning_rate, task.seed, measure, resamples)
    settings = Settings(
        metric=choose("metric", METRICS, metric),
        ablation=choose("ablation", ABLATIONS, ablation),
        memory=machine.memory_bytes,
    )
    with machine.session(out_folder, dry_run) as session:
        loaded = model.load()
        examples = task.load(loaded, split)
        plan = forecast(loaded, [LearnWork(examples, settings, learner)], session.engine, exact=dry_run)
        if show_forecast(plan, dry_run, json):
            return
        if not session.store.is_empty:
            note("resuming a stopped command")
        with show_progress(session) as session:
            ranking = learn_ranking(
                loaded, examples, learner, settings.metric, settings.ablation, memory=settings.memory, session=session
            )
        ranking.save(out_folder, overwrite)
    warn_of_trend(measure, ranking)
    if json:
        origin = {key: value for key, value in ranking.origin.items() if key != "losses"}
        print_json(origin | {"edges": loaded.graph.n_edges, "out": str(out_folder)})
        return
    names, best = loaded.graph.edge_names, np.argsort(-ranking.value, kind="stable")[:SHOWN_EDGES]
    rows = [(names[edge], format_score(ranking.value[edge], signed=False)) for edge in best]
    print_tables(number_tables(("best edges", "value"), rows, out.width))
    say(f"loss: {ranking.origin['trend']:+.0%} from the first to the last third of the steps, at equal sizes")
    seconds = ranking.origin["seconds"]
    say(f"{learner.steps} steps on {len(examples)} examples for {measure} in {seconds:.0f} s, written to {out_folder}")
