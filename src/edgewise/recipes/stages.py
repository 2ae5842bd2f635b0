"""The stages of a run: score, learn, rank, select, evaluate, choose.

Recipes are chosen by tuning, on validation or on test; a portfolio has a recipe for every size. Of the circuits of the
chosen recipes, a run records the overlap over resamples, and the attention of their heads.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ..core.circuit import Circuit
from ..core.ranking import Ranking
from ..core.scores import EdgeScores
from ..core.statistics import NO_FILTER, EdgeStatistics, Filter, summarise
from ..errors import warn
from ..evaluate import (
    CONFIDENCE,
    Attention,
    Curve,
    Measure,
    Resampled,
    record_attention,
    resample_heights,
    strongest_heads,
)
from ..evaluate.run_circuits import evaluate_circuits
from ..learn import Learner
from ..learn.run_learner import learn_ranking
from ..models import Model
from ..runtime import Session, unit_key
from ..score.run_scorer import score_edges
from ..select import Selection
from ..tasks import Accuracy, LogProbabilityDifference, Task
from .discovery import Outcome, Tuning, best_outcome, chosen_outcome, list_measures
from .recipe import GREEDY, PORTFOLIO, Recipe, select_circuits, selection_key, settings_key
from .run_info import ModelAccuracy
from .settings import Settings
from .stability import recipe_overlap

MeasureRecipe = tuple[Measure, Recipe]
# This many recipes, or circuits, are computed and stored together: enough to share the clean and the corrupted run, few
# enough that a stopped run loses little.
CHUNK_SIZE = 100
# Each resample copies the scores: larger ones than this many bytes are not resampled for the overlap.
MAX_OVERLAP_BYTES = 2_000_000_000
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


def score_tasks(
    model: Model, train: Task, test: Task, pairs: Iterable[MeasureRecipe], settings: Settings, session: Session
) -> tuple[EdgeScores, EdgeScores | None]:
    """Return the scores of train, and those of test if a recipe resamples them, as the paper's public script does."""
    scores = score_task(model, train, settings, session)
    if not any(recipe.filter.on_evaluated for _, recipe in pairs):
        return scores, None
    return scores, score_task(model, test, settings, session)


def prefers_clean(scores: EdgeScores) -> bool:
    """Return whether the mean metric is higher on clean than on corrupted prompts."""
    return bool(scores.provenance["clean_metric"] > scores.provenance["corrupted_metric"])


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


def choose_reported_filter(bootstrap: Filter, scores: EdgeScores, test_scores: EdgeScores | None) -> Filter:
    """Return the filter whose statistics a result reports: none if there is one example, which can't be resampled."""
    resampled = test_scores if test_scores is not None and bootstrap.on_evaluated else scores
    return bootstrap if resampled.n_examples > 1 else NO_FILTER


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


def attach_rankings(
    pairs: Iterable[MeasureRecipe],
    by_filter: Mapping[Filter, EdgeStatistics],
    learned: Mapping[Learner, Ranking] | None = None,
) -> list[RankedRecipe]:
    """Return each recipe with the ranking of its learner, or else of its filter."""
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


def add_tuned(pairs: Sequence[MeasureRecipe], tuning: Tuning | None) -> list[MeasureRecipe]:
    """Return the pairs with the tuned recipe of every measure as the last of its measure."""
    if tuning is None:
        return list(pairs)
    pairs = [*pairs, *((measure, recipe) for measure, recipes in tuning.chosen.items() for recipe in recipes)]
    measures = list(dict.fromkeys(measure for measure, _ in pairs))
    return sorted(pairs, key=lambda pair: measures.index(pair[0]))


def choose_outcomes(
    outcomes: Sequence[Outcome],
    validated: Sequence[Outcome],
    tuning: Tuning | None,
    train: Task,
    test: Task,
    validation: Task | None,
) -> tuple[Outcome, ...]:
    """Choose an outcome per measure: the portfolio; else the tuned one; else the best on validation; else on test.

    There is a portfolio if recipes have learners and there is a validation task. It comes after all other outcomes.
    Outcomes get their faithfulness on validation, which chooses the default size.
    `chosen_on` is set to the split of the examples that chose an outcome. Beside a portfolio, the tuned or the best
    single recipe has it too; `chosen_outcome` then returns the portfolio. The only outcome of a measure isn't chosen.

    `outcomes` and `validated` are those of the same recipes in the same order, on test and on validation. Without
    validation, `validated` isn't read.
    """
    tuned = {} if tuning is None else tuning.chosen
    marked = [replace(o, chosen_on=train.split) if o.recipe in tuned.get(o.measure, ()) else o for o in outcomes]
    judged, split = (outcomes, test.split) if validation is None else (validated, validation.split)
    for measure in list_measures(outcomes):
        rows = [row for row, outcome in enumerate(outcomes) if outcome.measure == measure]
        if len(rows) > 1 and not any(marked[row].chosen_on for row in rows):
            best = max(rows, key=lambda row: measure.better * judged[row].area)
            marked[best] = replace(marked[best], chosen_on=split)
    if validation is not None:
        pairs = zip(marked, validated, strict=True)
        marked = [replace(outcome, validation=tuple(v.curve.faithfulness.tolist())) for outcome, v in pairs]
    if validation is not None and any(outcome.recipe.learner for outcome in outcomes):
        marked += [portfolio(validated, marked, measure, split) for measure in list_measures(outcomes)]
    return tuple(marked)


def portfolio(validation: Sequence[Outcome], test: Sequence[Outcome], measure: Measure, split: str) -> Outcome:
    """Return the outcome on test that takes, at every size, a recipe that was chosen on validation.

    Which ranking and solver is best differs by size. But the best of many recipes on few examples is often best by
    chance. So all sizes take the default recipe, except those at which another one is significantly better, by a paired
    comparison at a level that is divided by the number of other recipes. The default is the learned recipe of the best
    area, or another recipe if its area is significantly better: composing a learned ranking has already compared it
    with its warm start. The evaluated examples are not used.

    `validation` and `test` are outcomes of the same recipes in the same order; ties go to the first. `split` is the
    name of the examples that recipes are chosen on.
    """
    rows = [row for row, outcome in enumerate(test) if outcome.measure == measure]
    confidence = 1 - (1 - CONFIDENCE) / max(1, len(rows) - 1)

    def best_of(areas: Mapping[int, Resampled], default: int) -> int:
        """Return the best of the recipes that are significantly better than the default; the default if none is."""
        better = [row for row in rows if areas[row].minus(areas[default], confidence).is_better]
        return max(better, key=lambda row: measure.better * areas[row].estimate, default=default)

    areas = {row: validation[row].resampled for row in rows}
    learned = [row for row in rows if test[row].recipe.learner is not None] or rows
    default = best_of(areas, max(learned, key=lambda row: measure.better * areas[row].estimate))
    heights = {row: resample_heights(validation[row].curve, measure) for row in rows}
    chosen, on_validation = [], []
    for size in range(len(heights[default])):
        best = best_of({row: heights[row][size] for row in rows}, default)
        chosen.append(test[best])
        on_validation.append(float(validation[best].curve.faithfulness[size]))
    first, sizes = chosen[0].curve, range(len(chosen))
    curve = replace(
        first,
        n_kept=tuple(chosen[size].curve.n_kept[size] for size in sizes),
        values=np.stack([chosen[size].curve.values[size] for size in sizes]),
    )
    return Outcome(
        measure,
        Recipe(alias=PORTFOLIO),
        tuple(chosen[size].selections[size] for size in sizes),
        curve,
        tuple(chosen[size].rankings[size] for size in sizes),
        chosen_on=split,
        choices=tuple(outcome.name for outcome in chosen),
        validation=tuple(on_validation),
    )


def overlap_of_chosen(
    scores: EdgeScores, outcomes: Sequence[Outcome], settings: Settings, resamples: int, seed: int, session: Session
) -> dict[Measure, dict[str, NDArray[np.float64]]]:
    """Return measure -> recipe name -> overlap [size] over resamples of train, of greedy and of the chosen recipe."""
    if not resamples or scores.n_examples < 2 or scores.values.nbytes > MAX_OVERLAP_BYTES:
        return {}
    return {
        measure: {
            recipe.name: recipe_overlap(scores, recipe, measure, settings, resamples, seed, session.store)
            for recipe in dict.fromkeys((GREEDY, _chosen(outcomes, measure).recipe))
            if recipe.learner is None and recipe.alias != PORTFOLIO  # these aren't selected from resampled scores
        }
        for measure in list_measures(outcomes)
    }


def attention_of_chosen(
    model: Model, test: Task, outcomes: Sequence[Outcome], statistics: EdgeStatistics, n_examples: int
) -> Attention | None:
    """Return the attention of heads that are in the most circuits of the chosen recipes, the strongest first.

    The examples go from the worst to the best of the first measure's chosen circuit.
    """
    if not n_examples:
        return None
    chosen = [_chosen(outcomes, measure) for measure in list_measures(outcomes)]
    n_circuits = np.zeros(model.graph.n_nodes)
    for outcome in chosen:
        n_circuits += np.sum([circuit.plain().node_mask for circuit in outcome.circuits], axis=0)
    heads = strongest_heads(model.graph, statistics.graph.plain_score(np.abs(statistics.mean)))
    heads = heads[np.argsort(-n_circuits[heads], kind="stable")]
    measure, curve = chosen[0].measure, chosen[0].curve
    by_example = curve.definition.compute(curve.values[chosen[0].default_size], curve.full, curve.empty)
    order = np.argsort(measure.better * measure.height(by_example), kind="stable")  # undefined ones come last
    order = order[: np.count_nonzero(~np.isnan(by_example))]
    spread = np.linspace(0, len(order) - 1, min(n_examples, len(order))).round().astype(int)
    return record_attention(model, test, order[np.unique(spread)].tolist(), heads.tolist())


def _chosen(outcomes: Sequence[Outcome], measure: Measure) -> Outcome:
    """Return the outcome that was chosen for a measure, or the only one."""
    return chosen_outcome(outcomes, measure) or best_outcome(outcomes, measure)
