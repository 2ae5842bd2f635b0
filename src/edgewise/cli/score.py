"""edgewise score: score every edge for every example."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from ..io.atomic import SCORE_FILES, check_folder
from ..method import choose
from ..recipes.settings import Settings
from ..report.formatting import format_score
from ..report.tables import number_tables
from ..score import SCORERS
from ..tasks.metrics import METRICS
from . import options
from .console import note, out, print_json, print_tables, say, show_forecast, show_progress
from .options import option

SHOWN_EDGES = 10


def command(
    *,
    out_folder: Path = option(..., "Output", "The folder to write the scores to.", "--out"),
    model: options.ModelOptions,
    task: options.TaskOptions,
    scoring: options.ScorerOptions,
    machine: options.MachineOptions,
    split: str = options.SCORED_SPLIT,
    metric: str = options.METRIC,
    batch_size: int | None = options.BATCH_SIZE,
    overwrite: bool = options.OVERWRITE,
    dry_run: bool = options.DRY_RUN,
    json: bool = options.JSON,
) -> None:
    """Score every edge for every example: how much does corrupting the edge hurt?

    Writes scores.npy [example, edge] and scores.json. A positive score marks an edge that helps the task. Run the same
    command again to resume a stopped one.
    """
    from ..recipes.forecast import ScoreWork, forecast
    from ..score.run_scorer import has_partial_scores, score_edges

    check_folder(out_folder, overwrite, SCORE_FILES)
    settings = Settings(
        scorer=choose("scorer", SCORERS, scoring.scorer, steps=scoring.steps),
        metric=choose("metric", METRICS, metric),
        batch_size=batch_size,
        memory=machine.memory_bytes,
    )
    with machine.session(out_folder, dry_run) as session:
        loaded = model.load()
        examples = task.load(loaded, split)
        plan = forecast(loaded, [ScoreWork(examples, settings)], session.engine, exact=dry_run)
        if show_forecast(plan, dry_run, json):
            return
        if has_partial_scores(session, loaded, examples, settings.scorer, settings.metric, batch_size, settings.memory):
            note("resuming a stopped command")
        with show_progress(session) as session:
            scores = score_edges(
                loaded, examples, settings.scorer, settings.metric, batch_size=batch_size, memory=settings.memory,
                session=session,
            )  # fmt: skip
        scores = replace(scores, provenance={**scores.provenance, "seed": task.seed})
        scores.save(out_folder, overwrite)
        mean = scores.mean()
    if json:
        print_json(dict(scores.provenance) | {"edges": loaded.graph.n_edges, "out": str(out_folder)})
        return
    names, strongest = loaded.graph.edge_names, np.argsort(-np.abs(mean), kind="stable")[:SHOWN_EDGES]
    rows = [(names[edge], format_score(mean[edge])) for edge in strongest]
    print_tables(number_tables(("strongest edges", "score"), rows, out.width))
    seconds = scores.provenance["seconds"]
    say(f"{len(examples)} examples x {loaded.graph.n_edges:,} edges in {seconds:.1f} s, written to {out_folder}")
