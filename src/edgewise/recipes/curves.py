"""From rankings to curves: select circuits by each recipe, and evaluate the distinct ones once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from ..core.circuit import Circuit
from ..core.ranking import Ranking
from ..core.scores import EdgeScores
from ..core.statistics import summarise
from ..evaluate import Curve, Measure
from ..evaluate.run_circuits import Evaluation, evaluate_circuits
from ..learn import Learner
from ..learn.run_learner import learn_ranking
from ..method import Method
from ..models import Model
from ..runtime.session import Session
from ..runtime.store import Unit
from ..runtime.unit_keys import unit_key
from ..score.run_scorer import score_edges
from ..select import Selection
from ..tasks import Accuracy, LogitDifference, Task
from .outcome import ModelAccuracy, Outcome, RankedRecipe
from .recipe import Recipe, select_circuits, selection_key, settings_key
from .settings import Settings

MeasureRecipe = tuple[Measure, Recipe]
# This many recipes, or circuits, are computed and stored together: enough to share the clean and the corrupted run, few
# enough that a stopped run loses little.
CHUNK_SIZE = 100
TOP_ANSWER, ANSWER_DIFFERENCE = Accuracy(), LogitDifference()


def score_task(model: Model, task: Task, settings: Settings, session: Session) -> EdgeScores:
    """Score the examples of a task with the scorer and metric of the settings."""
    return score_edges(
        model, task, settings.scorer, settings.metric,
        batch_size=settings.batch_size, memory=settings.memory, session=session,
    )  # fmt: skip


def learn_rankings(
    model: Model, task: Task, recipes: Iterable[Recipe], settings: Settings, session: Session
) -> dict[Learner, Ranking]:
    """Return learner -> ranking for the learners of recipes, each learned once."""
    learners = dict.fromkeys(recipe.learner for recipe in recipes if recipe.learner is not None)
    return {
        learner: learn_ranking(
            model, task, learner, settings.metric, settings.ablation,
            sizes=settings.sizes, memory=settings.memory, session=session,
        )
        for learner in learners
    }  # fmt: skip


def rank_edges(
    recipes: Iterable[MeasureRecipe],
    scores: EdgeScores,
    test_scores: EdgeScores | None = None,
    learned: Mapping[Learner, Ranking] | None = None,
) -> list[RankedRecipe]:
    """Return every recipe with the ranking that it selects from. Recipes with the same filter share one.

    Parameters
    ----------
    recipes
        (measure, recipe) pairs.
    scores
        Of train.
    test_scores
        Of the evaluated examples, for filters that resample those (`on_evaluated`).
    learned
        The rankings of recipes that have a learner.
    """
    rankings: dict[Method, Ranking] = dict((learned or {}).items())
    ranked = []
    for measure, recipe in recipes:
        source = recipe.learner or recipe.filter
        if source not in rankings:
            resampled = test_scores if recipe.filter.on_evaluated and test_scores is not None else scores
            rankings[source] = summarise(resampled, recipe.filter).ranking
        ranked.append(RankedRecipe(measure, recipe, rankings[source]))
    return ranked


def select_recipes(ranked: Sequence[RankedRecipe], settings: Settings, session: Session) -> list[tuple[Selection, ...]]:
    """Return, for every recipe, a selection of every size. They are stored in the session's store."""
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
        unit = session.store.find(key)
        if unit is None:
            unit = _select_part(key, part, settings, _shifted(session, start, len(ranked)))
        selections += _read_selections(unit, part[0].ranking)
        session.report("select", len(selections), len(ranked))
    return selections


def _select_part(key: str, ranked: Sequence[RankedRecipe], settings: Settings, session: Session) -> Unit:
    """Select circuits and store them: masks as packed bits [recipe, size, byte], and how each solver ended."""
    shape = (len(settings.sizes), -(-ranked[0].ranking.graph.n_edges // 8))
    with session.store.open_partial(key, len(ranked), {"masks": (shape, np.uint8)}) as partial:
        for row, entry in enumerate(ranked):
            if partial.is_missing([row]):
                selections = select_circuits(entry.ranking, entry.recipe, entry.measure, settings)
                masks = np.stack([np.packbits(selection.circuit.mask) for selection in selections])
                partial.write_rows([row], [selection.record() for selection in selections], masks=masks[None])
            session.report("select", row + 1, len(ranked))
        return session.store.finish(key, partial, [partial.notes[row] for row in range(len(ranked))])


def _read_selections(unit: Unit, ranking: Ranking) -> list[tuple[Selection, ...]]:
    masks = np.unpackbits(unit.arrays["masks"], axis=-1, count=ranking.graph.n_edges).astype(bool)
    return [
        tuple(Selection.from_record(Circuit(ranking.graph, mask), record) for mask, record in zip(*row, strict=True))
        for row in zip(masks, unit.about, strict=True)
    ]


def evaluate_selections(
    model: Model,
    task: Task,
    ranked: Sequence[RankedRecipe],
    selections: Sequence[tuple[Selection, ...]],
    settings: Settings,
    session: Session,
) -> tuple[tuple[Outcome, ...], ModelAccuracy]:
    """Evaluate selected circuits on a task, distinct ones once.

    Returns
    -------
    One outcome per recipe, and how well the model itself does the task.
    """
    circuits = list(dict.fromkeys(selection.circuit for row in selections for selection in row))
    evaluation = _evaluate(model, task, circuits, settings, session)
    row_of = {circuit: row for row, circuit in enumerate(circuits)}
    outcomes = []
    for entry, row in zip(ranked, selections, strict=True):
        curve = Curve(
            settings.sizes,
            tuple(selection.asked for selection in row),
            tuple(selection.kept for selection in row),
            evaluation.values[[row_of[selection.circuit] for selection in row]],
            evaluation.full,
            evaluation.empty,
            settings.faithfulness,
        )
        outcomes.append(Outcome(entry.measure, entry.recipe, row, curve, (entry.ranking,) * len(row)))
    top, difference = (evaluation.of_model[metric.name] for metric in (TOP_ANSWER, ANSWER_DIFFERENCE))
    return tuple(outcomes), ModelAccuracy(float(top.mean()), float((difference > 0).mean()))


def _evaluate(
    model: Model, task: Task, circuits: Sequence[Circuit], settings: Settings, session: Session
) -> Evaluation:
    """Evaluate circuits, `CHUNK_SIZE` in a call. The first call also evaluates the model itself."""
    parts, total = [], len(circuits) * len(task)
    for start in range(0, max(1, len(circuits)), CHUNK_SIZE):
        parts.append(
            evaluate_circuits(
                model, task, circuits[start : start + CHUNK_SIZE], settings.metric, settings.ablation,
                of_model=() if start else (TOP_ANSWER, ANSWER_DIFFERENCE), batch_size=settings.batch_size,
                memory=settings.memory, session=_shifted(session, start * len(task), total),
            )
        )  # fmt: skip
        session.report("evaluate", min(start + CHUNK_SIZE, len(circuits)) * len(task), total)
    return replace(parts[0], values=np.concatenate([part.values for part in parts]))


def _shifted(session: Session, before: int, total: int) -> Session:
    """Return a session that reports the progress of a part as progress of everything."""
    report = session.report

    def progress(stage: str, done: int, _: int) -> None:
        report(stage, before + done, max(1, total))

    return session.with_progress(progress)
