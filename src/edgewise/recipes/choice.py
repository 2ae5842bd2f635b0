"""Which outcome is chosen for each measure: by tuning, on validation or on test."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..tasks import Task
from .outcome import Outcome, list_measures
from .stages import MeasureRecipe, portfolio
from .tuning_result import Tuning


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
    `chosen_on` is set to the split of the examples that chose an outcome. Beside a portfolio, the tuned or the best
    single recipe has it too; `chosen_outcome` then returns the portfolio. The only outcome of a measure isn't chosen.

    Parameters
    ----------
    outcomes, validated
        Outcomes of the same recipes in the same order, on test and on validation. Without validation, `validated` isn't
        read.
    """
    tuned = {} if tuning is None else tuning.chosen
    marked = [replace(o, chosen_on=train.split) if o.recipe in tuned.get(o.measure, ()) else o for o in outcomes]
    judged, split = (outcomes, test.split) if validation is None else (validated, validation.split)
    for measure in list_measures(outcomes):
        rows = [row for row, outcome in enumerate(outcomes) if outcome.measure == measure]
        if len(rows) > 1 and not any(marked[row].chosen_on for row in rows):
            best = max(rows, key=lambda row: measure.better * judged[row].area)
            marked[best] = replace(marked[best], chosen_on=split)
    if validation is not None and any(outcome.recipe.learner for outcome in outcomes):
        marked += [portfolio(validated, marked, measure, split) for measure in list_measures(outcomes)]
    return tuple(marked)
