"""edgewise learn: learn a ranking of the edges."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ..core.ranking import Ranking
from ..evaluate.ablations import ABLATIONS
from ..evaluate.measures import MEASURES
from ..io.atomic import SCORE_FILES, check_folder
from ..learn import TopKLearner
from ..method import choose
from ..recipes.settings import Settings
from ..tasks.metrics import METRICS
from . import options
from .console import note, print_json, say, show_forecast, show_progress, warn_of_trend
from .options import option
from .repeat import KEY, check_same, describe_examples, made_from
from .show import show_strongest


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
    steps: int = option(TopKLearner.steps, "Learning", "Number of steps.", min=1),
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
    from ..recipes.forecast import LearnWork

    is_made = not overwrite and Ranking.is_folder(out_folder)
    check_folder(out_folder, overwrite or is_made, SCORE_FILES)
    chosen = choose("measure", MEASURES, measure)
    learner = TopKLearner(chosen, steps, rate=learning_rate, seed=task.seed, resamples=resamples)
    settings = Settings(
        metric=choose("metric", METRICS, metric),
        ablation=choose("ablation", ABLATIONS, ablation),
        memory=machine.memory_bytes,
    )
    with machine.session(out_folder, dry_run) as session:
        loaded = model.load()
        examples = task.load(loaded, split)
        if show_forecast(loaded, [LearnWork(examples, settings, learner)], session, dry_run, json):
            return
        inputs = made_from(
            **describe_examples(loaded, task.task, examples), learner=learner, metric=settings.metric,
            ablation=settings.ablation, memory=settings.memory,
        )  # fmt: skip
        if is_made:
            ranking = Ranking.load(out_folder)
            check_same(out_folder, ranking.origin.get(KEY), inputs)
        else:
            if not session.store.is_empty:
                note("resuming a stopped command")
            with show_progress(session) as session:
                ranking = learn_ranking(
                    loaded, examples, learner, settings.metric, settings.ablation, memory=settings.memory,
                    session=session,
                )  # fmt: skip
            ranking = replace(ranking, origin={**ranking.origin, KEY: inputs})
            ranking.save(out_folder, overwrite)
    warn_of_trend(measure, ranking)
    if json:
        origin = {key: value for key, value in ranking.origin.items() if key != "losses"}
        print_json(origin | {"edges": loaded.graph.n_edges, "out": str(out_folder)})
        return
    show_strongest("value", loaded.graph, ranking.value, signed=False)
    say(f"loss: {ranking.origin['trend']:+.0%} from the first to the last third of the steps, at equal sizes")
    seconds = ranking.origin["seconds"]
    say(f"{steps} steps on {len(examples)} examples for {measure} in {seconds:.0f} s, written to {out_folder}")
