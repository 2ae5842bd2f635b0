"""The one way from rankings to curves: recipes in, circuits selected, distinct circuits evaluated once, curves out."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence

from ..evaluate import Benchmark, Curve
from ..evaluate.evaluation import Evaluation
from ..learn import Learned
from ..methods import Method
from ..models import Model
from ..progress import Progress
from ..ranking import Ranking
from ..scores import EdgeScores
from ..select import Selection
from ..statistics import summarise
from ..store import Store
from ..tasks import Accuracy, LogitDifference, Task
from .measured import Competence, Contender, Measured, Outcome
from .recipes import Recipe
from .remember import evaluate, select
from .settings import Settings

TOP, BEATS = Accuracy(), LogitDifference()
Choice = tuple[Benchmark, Recipe]


def enter(
    choices: Iterable[Choice],
    scores: EdgeScores,
    evaluated: EdgeScores | None = None,
    learned: Mapping[Learned, Ranking] | None = None,
) -> list[Contender]:
    """Recipes with the ranking that each selects from; a filter's statistics are worked out once.

    evaluated  scores of the evaluated examples, for filters that resample those
    learned    the rankings of recipes that have a learner
    """
    rankings: dict[Method, Ranking] = dict((learned or {}).items())
    contenders = []
    for benchmark, recipe in choices:
        source = recipe.learner or recipe.filter
        if source not in rankings:
            seen = evaluated if recipe.filter.on_evaluated and evaluated is not None else scores
            rankings[source] = summarise(seen, recipe.filter).ranking
        contenders.append(Contender(benchmark, recipe, rankings[source]))
    return contenders


def learners(recipes: Iterable[Recipe]) -> list[Learned]:
    """The learners of recipes, each once."""
    return list(dict.fromkeys(recipe.learner for recipe in recipes if recipe.learner is not None))


def measure(
    model: Model, task: Task, contenders: Sequence[Contender], settings: Settings, store: Store, progress: Progress
) -> Measured:
    """Select circuits for every contender at every size, run the distinct ones on a task, and draw the curves."""
    started = time.perf_counter()
    selected = select(contenders, settings, store, progress)
    halfway = time.perf_counter()
    outcomes, competence = trace(model, task, contenders, selected, settings, store, progress)
    return Measured(
        outcomes, competence, {"select": halfway - started, "evaluate": time.perf_counter() - halfway}, tuple(selected)
    )


def trace(
    model: Model,
    task: Task,
    contenders: Sequence[Contender],
    selected: Sequence[tuple[Selection, ...]],
    settings: Settings,
    store: Store,
    progress: Progress,
) -> tuple[tuple[Outcome, ...], Competence]:
    """The curves on a task of circuits that were selected, and how well the model does it."""
    circuits = list(dict.fromkeys(selection.circuit for row in selected for selection in row))
    evaluation = evaluate(model, task, circuits, settings, store, progress, (TOP, BEATS))
    row_of = {circuit: row for row, circuit in enumerate(circuits)}
    outcomes = []
    for one, row in zip(contenders, selected, strict=True):
        curve = _curve(row, [row_of[selection.circuit] for selection in row], evaluation, settings)
        outcomes.append(Outcome(one.benchmark, one.recipe, (one.ranking,) * len(row), row, curve))
    top, difference = (evaluation.of_model[metric.name] for metric in (TOP, BEATS))
    return tuple(outcomes), Competence(float(top.mean()), float((difference > 0).mean()))


def _curve(selections: Sequence[Selection], rows: list[int], evaluation: Evaluation, settings: Settings) -> Curve:
    asked, kept = (tuple(getattr(selection, name) for selection in selections) for name in ("asked", "kept"))
    values, full, empty = evaluation.values[rows], evaluation.full, evaluation.empty
    return Curve(settings.sizes, asked, kept, values, full, empty, settings.faithfulness)
