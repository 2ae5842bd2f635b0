"""The stages of a run: score, learn, rank, select, evaluate."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ..core.circuit import Circuit
from ..core.ranking import Ranking
from ..core.scores import EdgeScores
from ..core.statistics import EdgeStatistics, Filter, summarise
from ..errors import warn
from ..evaluate import Curve, Measure
from ..evaluate.run_circuits import evaluate_circuits
from ..learn import Learner
from ..learn.run_learner import learn_ranking
from ..models import Model
from ..runtime.session import Session
from ..runtime.unit_keys import unit_key
from ..score.run_scorer import score_edges
from ..select import Selection
from ..tasks import Accuracy, LogProbabilityDifference, Task
from .outcome import Outcome
from .recipe import Recipe, select_circuits, selection_key, settings_key
from .run_info import ModelAccuracy
from .settings import Settings

MeasureRecipe = tuple[Measure, Recipe]
# This many recipes, or circuits, are computed and stored together: enough to share the clean and the corrupted run, few
# enough that a stopped run loses little.
CHUNK_SIZE = 100
TOP_ANSWER, ANSWER_DIFFERENCE = Accuracy(), LogProbabilityDifference()


@dataclass(frozen=True, eq=False)
class RankedRecipe:
    """A recipe, the measure that it is for, and the ranking that it selects from."""

    measure: Measure
    recipe: Recipe
    ranking: Ranking


def score_task(model: Model, task: Task, settings: Settings, session: Session) -> EdgeScores:
    """Score the examples of a task with the scorer and metric of the settings."""
    return score_edges(
        model, task, settings.scorer, settings.metric, positions=settings.positions, level=settings.level,
        batch_size=settings.batch_size, memory=settings.memory, session=session,
    )  # fmt: skip


def learn_rankings(
    model: Model,
    task: Task,
    pairs: Iterable[MeasureRecipe],
    settings: Settings,
    session: Session,
    validation: Task | None = None,
    start: Mapping[Measure, Ranking] | None = None,
) -> dict[Learner, Ranking]:
    """Return learner -> ranking for the learners of recipes, each learned once.

    Learners choose on `validation`. `start` has rankings to start from.
    """
    rankings: dict[Learner, Ranking] = {}
    for learner in dict.fromkeys(recipe.learner for _, recipe in pairs if recipe.learner is not None):

        def report(stage: str, done: int, total: int, measure: str = learner.measure.name) -> None:
            session.report(stage.replace("learn", f"learn ({measure})", 1), done, total)

        rankings[learner] = learn_ranking(
            model, task, learner, settings.metric, settings.ablation, sizes=settings.sizes, validation=validation,
            level=settings.level, positions=settings.positions, start=(start or {}).get(learner.measure),
            memory=settings.memory, session=session.with_progress(report),
        )  # fmt: skip
    return rankings


def summarise_filters(
    filters: Iterable[Filter], scores: EdgeScores, test_scores: EdgeScores | None = None
) -> dict[Filter, EdgeStatistics]:
    """Return filter -> statistics of the scores of train.

    Filters that resample the evaluated examples (`on_evaluated`) read `test_scores`, if there are any.
    """
    return {
        edge_filter: summarise(
            test_scores if edge_filter.on_evaluated and test_scores is not None else scores, edge_filter
        )
        for edge_filter in dict.fromkeys(filters)
    }


def rank_edges(
    pairs: Iterable[MeasureRecipe],
    by_filter: Mapping[Filter, EdgeStatistics],
    learned: Mapping[Learner, Ranking] | None = None,
) -> list[RankedRecipe]:
    """Return every recipe with the ranking that it selects from: that of its learner, or else of its filter."""
    rankings = {edge_filter: statistics.ranking for edge_filter, statistics in by_filter.items()}
    return [
        RankedRecipe(measure, recipe, (learned or {})[recipe.learner] if recipe.learner else rankings[recipe.filter])
        for measure, recipe in pairs
    ]


def select_recipes(ranked: Sequence[RankedRecipe], settings: Settings, session: Session) -> list[tuple[Selection, ...]]:
    """Return, for every recipe, a selection of every size. They are stored in the session's store."""
    store, graph = session.store, ranked[0].ranking.graph
    columns = {"masks": ((len(settings.sizes), -(-graph.n_edges // 8)), np.uint8)}
    selections: list[tuple[Selection, ...]] = []
    session.report("select", 0, len(ranked))
    for start in range(0, len(ranked), CHUNK_SIZE):
        part = ranked[start : start + CHUNK_SIZE]
        key = unit_key(
            "selections",
            rankings=[entry.ranking.digest for entry in part],
            recipes=[selection_key(entry.measure, entry.recipe) for entry in part],
            how=settings_key(settings),
        )
        unit = store.find(key)
        if unit is None:
            # Masks are stored as packed bits [recipe, size, byte], with a record of how each solver ended.
            with store.open_partial(key, len(part), columns) as partial:
                for row, entry in enumerate(part):
                    if partial.is_missing([row]):
                        selected = select_circuits(entry.ranking, entry.recipe, entry.measure, settings)
                        packed = np.stack([np.packbits(selection.circuit.mask) for selection in selected])
                        partial.write_rows([row], [selection.record() for selection in selected], masks=packed[None])
                    session.report("select", start + row + 1, len(ranked))
                unit = store.finish(key, partial, [partial.notes[row] for row in range(len(part))])
        masks = np.unpackbits(unit.arrays["masks"], axis=-1, count=graph.n_edges).astype(bool)
        selections += [
            tuple(Selection.from_record(Circuit(graph, mask), record) for mask, record in zip(*row, strict=True))
            for row in zip(masks, unit.about, strict=True)
        ]
        session.report("select", len(selections), len(ranked))
    gaps = [selection.gap for row in selections for selection in row if selection.status.is_limit]
    if gaps:
        warn(
            f"{len(gaps):,} of {len(ranked) * len(settings.sizes):,} circuits are not proven optimal: their integer "
            f"programs reached a limit; the largest gap is {max(gaps):.2%}"
        )
    return selections


def evaluate_selections(
    model: Model,
    task: Task,
    ranked: Sequence[RankedRecipe],
    selections: Sequence[tuple[Selection, ...]],
    settings: Settings,
    session: Session,
) -> tuple[tuple[Outcome, ...], ModelAccuracy]:
    """Return one outcome per recipe, and how well the model itself does the task.

    Distinct circuits run once, a chunk at a time, so that a stopped run loses little.
    """
    circuits = list(dict.fromkeys(selection.circuit for row in selections for selection in row))
    has_incorrect = all(example.incorrect is not None for example in task.examples)
    of_model = (TOP_ANSWER, ANSWER_DIFFERENCE) if has_incorrect else (TOP_ANSWER,)
    parts, total, stage = [], len(circuits) * len(task), f"evaluate ({task.split})"
    for start in range(0, max(1, len(circuits)), CHUNK_SIZE):
        parts.append(
            evaluate_circuits(
                model, task, circuits[start : start + CHUNK_SIZE], settings.metric, settings.ablation,
                of_model=() if start else of_model, batch_size=settings.batch_size,
                memory=settings.memory, session=session.as_part(stage, start * len(task), total),
            )
        )  # fmt: skip
        session.report(stage, min(start + CHUNK_SIZE, len(circuits)) * len(task), total)
    first, values = parts[0], np.concatenate([part.values for part in parts])
    row_of = {circuit: row for row, circuit in enumerate(circuits)}
    outcomes = []
    for entry, row in zip(ranked, selections, strict=True):
        curve = Curve(
            settings.sizes,
            tuple(selection.n_requested for selection in row),
            tuple(selection.n_kept for selection in row),
            values[[row_of[selection.circuit] for selection in row]],
            first.full,
            first.empty,
            settings.faithfulness,
        )
        outcomes.append(Outcome(entry.measure, entry.recipe, row, curve, (entry.ranking,) * len(row)))
    beats = float((first.of_model[ANSWER_DIFFERENCE.name] > 0).mean()) if has_incorrect else None
    return tuple(outcomes), ModelAccuracy(float(first.of_model[TOP_ANSWER.name].mean()), beats)
