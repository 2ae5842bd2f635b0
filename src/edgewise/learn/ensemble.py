"""Ensembles: the mean of the rankings of several scorers and learners."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from ..core.ranking import HOW, Ranking, combine_rankings
from ..core.statistics import MAX_SEED
from ..errors import InputError
from ..evaluate import CMD, Measure, areas, faithfulness, size_to_edges
from ..method import check_is
from ..score import Eap, EapIg, EapIgActivations, Scorer
from ..select import Greedy, SelectionProblem, solve_path
from ..tasks import Metric
from .base import Learner, LearningCost, LearningProblem, check_choice
from .mask_learners import EdgePruning

if TYPE_CHECKING:
    from ..runtime.session import Session

# The members of the best entry of the MIB shared task of 2025 are these and edge pruning.
HYBRID_SCORERS: tuple[Scorer, ...] = (Eap(), EapIg(), EapIgActivations())


@dataclass(frozen=True)
class Ensemble(Learner):
    """The mean of several rankings; by default of the members of the published hybrid: EAP, both EAP-IG, edge pruning.

    measure            decides whether absolute (CMD) or signed values (CPR) are combined, and what learners learn for
    scorers, learners  the methods whose rankings are combined
    weights            one per scorer, then one per learner; None: all equal
    how                'ranks' or 'values', as in `combine_rankings`
    held_out           share of the examples on which weights are chosen (`choose_weights`); the rankings are made from
                       the other examples. 0: weights aren't chosen.
    seed               seed of the choice of held-out examples; learners have seeds of their own
    """

    name: ClassVar[str] = "ensemble"
    title: ClassVar[str] = "Ensemble"

    measure: Measure = CMD
    scorers: tuple[Scorer, ...] = HYBRID_SCORERS
    learners: tuple[Learner, ...] = (EdgePruning(),)
    weights: tuple[float, ...] | None = None
    how: Literal["ranks", "values"] = "ranks"
    held_out: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        check_is("measure", Measure, self.measure)
        for scorer in self.scorers:
            check_is("scorer", Scorer, scorer)
        for learner in self.learners:
            check_is("learner", Learner, learner)
        n_members = len(self.scorers) + len(self.learners)
        if not n_members:
            raise InputError("an ensemble needs at least one scorer or learner")
        if self.weights is not None:
            is_valid = len(self.weights) == n_members and all(0 <= w < float("inf") for w in self.weights)
            if not is_valid or not any(self.weights):
                expected = f"{n_members} scorers and learners need as many weights, at least 0 and not all 0"
                raise InputError(f"{expected}, not {self.weights}")
        check_choice("how", self.how, HOW)
        if not 0 <= self.held_out < 1 or (self.held_out and self.weights is not None):
            raise InputError(
                f"held_out is a share of the examples below 1, for weights that aren't given, not {self.held_out}"
            )
        if not 0 <= self.seed <= MAX_SEED:
            raise InputError(f"a seed is at least 0 and below 2^63, not {self.seed}")

    @classmethod
    def published(cls, **options: Any) -> Ensemble:
        """Return the ensemble of the MIB shared task. `options` replace its settings.

        It averages values in place of ranks, and edge pruning has its published settings.
        """
        settings: dict[str, Any] = {"learners": (EdgePruning.published(),), "how": "values"}
        return cls(**settings | options)

    def check(self, metric: Metric) -> None:
        """Raise InputError if a member can't use a metric."""
        for scorer in self.scorers:
            scorer.check(metric)
        for learner in self.learners:
            learner.check(metric)

    def check_kind(self, positions: bool, level: str) -> None:
        """Raise InputError if a member can't rank (edge, span) pairs, or a level."""
        for scorer in self.scorers:
            scorer.check_kind(positions, level)
        for learner in self.learners:
            learner.check_kind(positions, level)

    def learn(self, problem: LearningProblem, session: Session) -> Ranking:
        """Make the ranking of every member, and combine them."""
        n_examples = len(problem.task)
        n_held_out = int(self.held_out * n_examples)
        if self.held_out and not 0 < n_held_out < n_examples:
            raise InputError(f"held_out={self.held_out:g} of {n_examples} examples leaves none on one side")
        order = np.random.default_rng(self.seed).permutation(n_examples)
        task = problem.task.part(np.sort(order[n_held_out:])) if n_held_out else problem.task
        members = replace(problem, task=task)
        rankings = [members.rank_by(scorer, session) for scorer in self.scorers]
        rankings += [learner.for_measure(self.measure).learn(members, session) for learner in self.learners]
        weights: Sequence[float] | None = self.weights
        if n_held_out:
            held_out = replace(problem, task=problem.task.part(np.sort(order[:n_held_out])))
            weights = choose_weights(held_out, rankings, self.measure, self.how, session)
        combined = combine_rankings(rankings, self.how, weights, self.measure.rank)
        seconds = sum(ranking.origin.get("seconds", 0.0) for ranking in rankings)
        origin = {"weights": combined.origin["method"]["weights"], "seconds": seconds}
        return replace(combined, origin=origin)

    def cost(self, problem: LearningProblem) -> LearningCost:
        """Return the cost of all members, as steps of the most expensive one."""
        from ..score.run_scorer import ScoreJob

        length, shape = problem.task.longest, problem.model.transformer.shape
        costs = [learner.cost(problem) for learner in self.learners]
        jobs = [ScoreJob(scorer, problem.metric, problem.positions, problem.level) for scorer in self.scorers]
        costs += [LearningCost(1, len(problem.task), job.scorer.need(shape, length), job) for job in jobs]
        largest = max(costs, key=lambda cost: cost.steps * cost.batch)
        total = sum(cost.steps * cost.batch for cost in costs)
        return replace(largest, steps=-(-total // largest.batch))


def choose_weights(
    problem: LearningProblem, rankings: Sequence[Ranking], measure: Measure, how: str, session: Session
) -> tuple[float, ...]:
    """Return the weights whose combined ranking has the best area on the problem's examples.

    The candidates are: all rankings equally, each one alone, each two equally. Ties go to the first. Greedy selects the
    circuits, filled up to their sizes.

    Parameters
    ----------
    problem
        The model, the examples and the sizes.
    rankings
        The rankings to combine.
    measure
        The area to compare.
    how
        How values are combined, as in `combine_rankings`.
    session
        The store, the engine and the progress display.

    Returns
    -------
    tuple of float
        One weight per ranking: 1 if it is used, else 0.
    """
    n_rankings, graph = len(rankings), problem.graph
    subsets = [range(n_rankings), *combinations(range(n_rankings), 1), *combinations(range(n_rankings), 2)]
    candidates = [tuple(float(place in subset) for place in range(n_rankings)) for subset in subsets]
    sizes = [size_to_edges(size, graph.n_edges) for size in problem.sizes]
    rows = []
    for weights in candidates:
        ranking = combine_rankings(rankings, how, weights, measure.rank)
        selections = solve_path(SelectionProblem.of(ranking, measure.rank, 0), sizes, Greedy(), fill=True)
        rows.append([selection.circuit for selection in selections])
    circuits = list(dict.fromkeys(circuit for row in rows for circuit in row))
    evaluation = problem.evaluate(circuits, session)
    value_of = dict(zip(circuits, evaluation.values.mean(1), strict=True))
    values = np.array([[value_of[circuit] for circuit in row] for row in rows])
    heights = measure.height(faithfulness(values, evaluation.full.mean(), evaluation.empty.mean()))
    return candidates[int(np.argmax(measure.better * areas(problem.sizes, heights)))]
