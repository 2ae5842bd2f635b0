"""edgewise score: score every edge for every example."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ..core.scores import EdgeScores
from ..io.atomic import SCORE_FILES, check_folder
from ..recipes.settings import Settings
from ..tasks import Metric
from . import options
from .console import print_json, say, show_forecast
from .options import option
from .repeat import KEY, check_same, describe_examples, made_from, resume
from .show import show_strongest


def command(
    *,
    out_folder: Path = option(..., "Output", "The folder to write the scores to.", "--out"),
    model: options.ModelOptions,
    task: options.TaskOptions,
    scoring: options.ScorerOptions,
    machine: options.MachineOptions,
    split: str = options.SCORED_SPLIT,
    metric: Metric = options.METRIC,
    positions: bool = options.POSITIONS,
    level: str = options.LEVEL,
    batch_size: int | None = options.BATCH_SIZE,
    overwrite: bool = options.OVERWRITE,
    dry_run: bool = options.DRY_RUN,
    json: bool = options.JSON,
) -> None:
    """Score every edge for every example: how much does corrupting the edge hurt?

    Writes scores.npy [example, edge] and scores.json. A positive score marks an edge that helps the task. Run the same
    command again to resume a stopped one.

    With --positions, every edge has a score per span of tokens, and `edgewise select` selects (edge, span) pairs.
    With --level node or neuron, nodes or their output dimensions have scores, and `select` selects these.
    """
    from ..recipes.forecast import ScoreWork
    from ..score.run_scorer import score_edges

    options.check_spans(task.spans, positions)
    has_result = not overwrite and (out_folder / "scores.json").is_file()
    check_folder(out_folder, overwrite or has_result, SCORE_FILES)
    scorer, memory = scoring.build_scorer(), machine.memory_bytes
    settings = Settings(
        scorer=scorer, metric=metric, positions=positions, level=level, batch_size=batch_size, memory=memory
    )
    with machine.session(out_folder, dry_run) as session:
        loaded = model.load()
        examples = task.load_part(loaded, split)
        metric = metric.for_task(examples)
        settings = replace(settings, metric=metric)
        work = [ScoreWork(examples, settings)]
        if show_forecast(loaded, work, session, dry_run, json, has_result):
            return
        inputs = made_from(
            **describe_examples(loaded, task.task, examples), seed=task.seed, scorer=scorer, metric=metric,
            batch_size=batch_size, memory=memory,
            positions=[examples.span_digest] if positions else None, level=None if level == "edge" else level,
        )  # fmt: skip
        if has_result:
            scores = EdgeScores.load(out_folder)
            check_same(out_folder, scores.provenance.get(KEY), inputs)
        else:
            with resume(session) as session:
                scores = score_edges(
                    loaded, examples, scorer, metric,
                    positions=positions, level=level, batch_size=batch_size, memory=memory, session=session,
                )  # fmt: skip
            scores = replace(scores, provenance={**scores.provenance, "seed": task.seed, KEY: inputs})
            scores.save(out_folder, overwrite)
        mean = scores.mean()  # the scores are in the session's store
    if json:
        print_json(dict(scores.provenance) | {"edges": scores.graph.n_edges, "out": str(out_folder)})
        return
    show_strongest("score", scores.graph, mean)
    seconds = scores.provenance["seconds"]
    n_edges = scores.graph.count(scores.graph.n_edges)
    say(f"{len(examples)} examples x {n_edges} in {seconds:.1f} s, written to {out_folder}")
