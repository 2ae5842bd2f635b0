"""Which outcome is chosen for each measure, and what a run records about the circuits of the chosen ones.

Recipes are chosen by tuning, on validation or on test; a portfolio has a recipe for every size. Recorded are the
overlap of circuits over resamples, and the attention of their heads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ..core.scores import EdgeScores
from ..core.statistics import EdgeStatistics
from ..evaluate import CONFIDENCE, Attention, Measure, record_attention, resample_heights, strongest_heads
from ..models import Model
from ..runtime.session import Session
from ..tasks import Task
from .outcome import Outcome, best_outcome, chosen_outcome, list_measures
from .recipe import GREEDY, PORTFOLIO, Recipe
from .settings import Settings
from .stability import recipe_overlap
from .stages import MeasureRecipe
from .tuning_result import Tuning

# Each resample copies the scores: larger ones than this many bytes are not resampled for the overlap.
MAX_OVERLAP_BYTES = 2_000_000_000


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
    chance. So all sizes take the recipe of the best area, except those at which another recipe is significantly better,
    by a paired comparison at a level that is divided by the number of other recipes. The evaluated examples are not
    used.

    `validation` and `test` are outcomes of the same recipes in the same order; ties go to the first. `split` is the
    name of the examples that recipes are chosen on.
    """
    rows = [row for row, outcome in enumerate(test) if outcome.measure == measure]
    default = max(rows, key=lambda row: measure.better * validation[row].area)
    heights = {row: resample_heights(validation[row].curve, measure) for row in rows}
    confidence = 1 - (1 - CONFIDENCE) / max(1, len(rows) - 1)
    chosen, on_validation = [], []
    for size, height in enumerate(heights[default]):
        better = [row for row in rows if heights[row][size].minus(height, confidence).is_better]
        best = max(better, key=lambda row: measure.better * heights[row][size].estimate, default=default)
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
