"""edgewise score: the first stage."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..evaluate import MEASURES
from . import options
from .console import note, open_model, open_workers, out, print_json, print_tables, say, warn_of_trend, watching
from .forecast import show_forecast

if TYPE_CHECKING:
    from ..learn import TopKLearner
    from ..models import ModelSource

NAME = "score"
SHOWN = 10


def command(
    out_folder: Annotated[Path, typer.Option("--out", help="The folder to write the scores to.")],
    model: options.ModelName = "demo",
    task: options.TaskName = "ioi",
    split: Annotated[str, typer.Option(help="train, validation or test.")] = "train",
    examples: options.Examples = None,
    method: options.Method = "eap-ig",
    steps: options.Steps = None,
    metric: options.Metric = "logit-difference",
    device: options.Device = "auto",
    dtype: options.Dtype = "auto",
    bos: options.Bos = "auto",
    trust_remote_code: options.TrustRemoteCode = False,
    no_cache: options.NoCache = False,
    batch_size: options.BatchSize = None,
    memory: options.Memory = "1GB",
    engine: options.Engine = "local",
    address: options.Address = None,
    workers: options.Workers = None,
    goal: Annotated[
        str, typer.Option(help=f"With --method learned: what to learn for, {options.names(MEASURES)}.")
    ] = "CMD",
    rate: options.LearnRate = None,
    resamples: Annotated[
        int, typer.Option(help="With --method learned: learn as often again from resampled examples, for the spread.")
    ] = 0,
    ablation: options.Ablation = "patching",
    seed: options.Seed = 0,
    overwrite: options.Overwrite = False,
    dry_run: options.DryRun = False,
    json: options.Json = False,
) -> None:
    """Score every edge for every example: how much would corrupting it hurt?

    Writes scores.npy [example, edge] and scores.json. A positive score marks an edge that helps the task. With
    --method learned, one value per edge is learned through weighted circuits instead: ranking.npy and ranking.json. A
    command that was stopped goes on.
    """
    import numpy as np

    from ..io.atomic import SCORE_FILES, check_folder
    from ..learn import TopKLearner
    from ..method import choose
    from ..models import ModelSource
    from ..models.memory import parse_bytes
    from ..recipes.forecast import ScoreWork, forecast
    from ..recipes.settings import Settings
    from ..report.formatting import format_score
    from ..report.tables import number_tables
    from ..runtime.session import Session
    from ..runtime.store import NO_STORE, open_partial_store
    from ..score import SCORERS, check_scoring, has_partial_scores, score_edges
    from ..tasks import METRICS, load_task

    check_folder(out_folder, overwrite, SCORE_FILES)
    room = parse_bytes(memory)
    source = ModelSource(model, device, dtype, bos, trust_remote_code, not no_cache)
    if method.lower() == TopKLearner.name:
        learner = options.build_learner(steps, rate, seed, goal, resamples)
        where = (
            source,
            (task, split, examples, seed),
            (engine, address, workers),
        )
        _learn(out_folder, overwrite, where, learner, metric, ablation, room, dry_run, json)
        return
    scorer, chosen_metric = choose("scoring method", SCORERS, method, steps=steps), choose("metric", METRICS, metric)
    check_scoring(scorer, chosen_metric)
    keeping = nullcontext(NO_STORE) if dry_run else open_partial_store(out_folder)
    with keeping as store, open_workers(engine, address, workers) as on:
        loaded = open_model(source)
        pairs = load_task(task, loaded, split, examples, seed)
        asked = Settings(scorer=scorer, metric=chosen_metric, batch_size=batch_size, memory=room)
        if show_forecast(forecast(loaded, [ScoreWork(pairs, asked)], on, exact=dry_run), dry_run, json):
            return
        if has_partial_scores(Session(store, on), loaded, pairs, scorer, chosen_metric, batch_size, room):
            note("going on from what a command that was stopped had scored")
        with watching() as progress:
            scores = score_edges(
                loaded,
                pairs,
                scorer,
                chosen_metric,
                batch_size=batch_size,
                memory=room,
                session=Session(store, on, progress),
            )
        scores = replace(scores, provenance={**scores.provenance, "seed": seed})
        scores.save(out_folder, overwrite)
        mean = scores.mean()
    if json:
        print_json(dict(scores.provenance) | {"edges": loaded.graph.n_edges, "out": str(out_folder)})
        return
    names = loaded.graph.edge_names
    rows = [(names[edge], format_score(mean[edge])) for edge in np.argsort(-np.abs(mean), kind="stable")[:SHOWN]]
    print_tables(number_tables(("strongest edges", "score"), rows, out.width))
    seconds = scores.provenance["seconds"]
    say(f"{len(pairs)} examples x {loaded.graph.n_edges:,} edges in {seconds:.1f} s, written to {out_folder}")


def _learn(
    folder: Path,
    overwrite: bool,
    where: tuple[ModelSource, tuple[Any, ...], tuple[Any, ...]],
    learner: TopKLearner,
    metric: str,
    ablation: str,
    memory: int,
    dry_run: bool,
    json: bool,
) -> None:
    """Learn a ranking and write it."""
    import numpy as np

    from ..evaluate import ABLATIONS
    from ..learn import learn_ranking
    from ..method import choose
    from ..recipes.forecast import LearnWork, forecast
    from ..recipes.settings import Settings
    from ..report.formatting import format_score
    from ..report.tables import number_tables
    from ..runtime.session import Session
    from ..runtime.store import NO_STORE, open_partial_store
    from ..tasks import METRICS, load_task

    chosen_metric, replaced = choose("metric", METRICS, metric), choose("ablation", ABLATIONS, ablation)
    name, split, examples, seed = where[1]
    keeping = nullcontext(NO_STORE) if dry_run else open_partial_store(folder)
    with keeping as store, open_workers(*where[2]) as on:
        loaded = open_model(where[0])
        pairs = load_task(name, loaded, split, examples, seed)
        asked = Settings(metric=chosen_metric, ablation=replaced, memory=memory)
        if show_forecast(forecast(loaded, [LearnWork(pairs, asked, learner)], on, exact=dry_run), dry_run, json):
            return
        if not store.is_empty:
            note("going on from what a command that was stopped had learned")
        with watching() as progress:
            ranking = learn_ranking(
                loaded, pairs, learner, chosen_metric, replaced, memory=memory, session=Session(store, on, progress)
            )
        ranking.save(folder, overwrite)
    warn_of_trend(learner.measure.name, ranking)
    if json:
        about = {k: v for k, v in ranking.origin.items() if k != "losses"}
        print_json(about | {"edges": loaded.graph.n_edges, "out": str(folder)})
        return
    names = loaded.graph.edge_names
    best = np.argsort(-ranking.value, kind="stable")[:SHOWN]
    rows = [(names[edge], format_score(ranking.value[edge], signed=False)) for edge in best]
    print_tables(number_tables(("best edges", "value"), rows, out.width))
    say(f"loss: {ranking.origin['trend']:+.0%} from the first to the last third of the steps, at equal sizes")
    say(
        f"{learner.steps} steps on {len(pairs)} examples for {learner.measure.name} "
        f"in {ranking.origin['seconds']:.0f} s, written to {folder}"
    )
