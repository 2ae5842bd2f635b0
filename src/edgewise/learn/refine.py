"""Improve rankings by running circuits: compose one of several, and calibrate one.

A ranking is a sequence of circuits, each within the next larger one. It is composed from the smallest size to the
largest: each candidate adds its best edges to the circuit so far, and the one whose circuit is best on validation is
taken. So the edges of small circuits rank above those that larger circuits add, in the order of the candidate that
added them.

A calibrated ranking is one for which the mean metric of every circuit equals the model's. Learning compares single
examples with the model. If the circuits of a size are a little too weak on all examples, that hardly counts there, but
it is what CMD measures. Scores know which edges raise the metric and which lower it. So a circuit that is too weak gets
more of the former and fewer of the latter, among edges near its threshold.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..core.circuit import Circuit
from ..core.ranking import Ranking
from ..core.statistics import MAX_SEED
from ..errors import InputError
from ..evaluate import CMD, Curve, Measure, resample_heights, size_to_edges
from ..method import check_is
from ..score import EapIg, Scorer
from ..select import Greedy, SelectionProblem, solve, solve_path
from ..tasks import Task
from .base import Learner, LearningCost, LearningProblem

if TYPE_CHECKING:
    from ..runtime.session import Session

FloatArray = NDArray[np.float64]
# Shifts that are tried for each size after the ranking as it is. The first is predicted by the scores, the others by
# the effect of those before, at most this many times as large a step.
TRIALS, MAX_GROWTH = 3, 4.0
# Trials run on every fourth example: the effect of a few edges varies less than the metric.
TRIAL_STRIDE = 4
# A shift is at most this share of the distance to the next size's threshold, so that circuits stay nested.
MAX_SHIFT = 0.49
BISECTIONS = 24
# Running the circuits of all sizes, and those of the trials, takes about as long as this many weighted circuits with
# their gradients.
WEIGHTED_RUNS = 5


def compose_ranking(
    problem: LearningProblem,
    validation: Task,
    candidates: Mapping[str, FloatArray],
    measure: Measure,
    session: Session,
) -> tuple[FloatArray, dict[float, str]]:
    """Return the composed values [edge], and size -> the name of the candidate that it takes.

    `candidates` are name -> value [edge]. The first one is the baseline.

    The default is the candidate of the best area. A size takes another one only if that is significantly better there.
    If the circuit is still significantly worse than that of the baseline, because of the smaller circuits in it, this
    size and all smaller ones take the baseline.
    """
    graph, inner = problem.graph, inner_sizes(problem)
    problems = {name: SelectionProblem.of(Ranking(graph, value), "signed", 0) for name, value in candidates.items()}
    paths = {
        name: [selection.circuit for selection in solve_path(p, list(inner.values()), Greedy(), fill=True)]
        for name, p in problems.items()
    }

    ends = problem.evaluate([], session, validation)
    value_of: dict[Circuit, FloatArray] = {}  # [example] of the circuits evaluated so far

    def curves(rows: Sequence[Sequence[Circuit]], shares: Sequence[float]) -> list[Curve]:
        """Return the curve of every row of circuits on validation."""
        new = list(dict.fromkeys(circuit for row in rows for circuit in row if circuit not in value_of))
        if new:
            value_of.update(zip(new, problem.evaluate(new, session, validation).values, strict=True))
        counts = tuple(inner[share] for share in shares)
        return [
            Curve(tuple(shares), counts, tuple(circuit.n_edges for circuit in row),
                  np.stack([value_of[circuit] for circuit in row]), ends.full, ends.empty)
            for row in rows
        ]  # fmt: skip

    names = list(candidates)
    baseline = names[0]
    own = curves(list(paths.values()), list(inner))
    heights = {name: resample_heights(curve, measure) for name, curve in zip(names, own, strict=True)}
    if len(inner) > 1:
        default = names[int(np.argmax([measure.better * curve.area(measure) for curve in own]))]
    else:
        default = names[int(np.argmax([measure.better * heights[name][0].estimate for name in names]))]
    circuits: list[Circuit] = []
    choices: list[str] = []
    for place, (share, count) in enumerate(inner.items()):
        within = circuits[-1] if circuits else None
        options = {name: paths[name][place] for name in names}
        if within is not None:
            for name in names:
                if not (within.mask <= options[name].mask).all():
                    extended = problems[name].with_budget(count, within)
                    options[name] = solve(extended, solver=Greedy(), fill=True).circuit
        height = {
            name: resample_heights(curve, measure)[0]
            for name, curve in zip(names, curves([[options[name]] for name in names], [share]), strict=True)
        }
        choice = default
        better = [name for name in names if height[name].minus(height[default]).is_better]
        if better:
            choice = max(better, key=lambda name: measure.better * height[name].estimate)
        circuits.append(options[choice])
        choices.append(choice)
        if height[choice].minus(heights[baseline][place]).is_worse:
            circuits, choices = paths[baseline][: place + 1], [baseline] * (place + 1)
    by_size = dict(zip(inner, choices, strict=True))
    if set(choices) == {default}:
        return candidates[default], by_size
    return rank_by_circuit(circuits, [candidates[name] for name in choices], candidates[default]), by_size


def inner_sizes(problem: LearningProblem) -> dict[float, int]:
    """Return size -> number of edges, for sizes of neither no edge nor all edges."""
    n_edges = problem.graph.n_edges
    sizes = {size: size_to_edges(size, n_edges) for size in problem.sizes}
    return {size: count for size, count in sizes.items() if 0 < count < n_edges}


def rank_by_circuit(circuits: Sequence[Circuit], values: Sequence[FloatArray], rest: FloatArray) -> FloatArray:
    """Return values [edge] by which edges of smaller circuits come first.

    Edges that a circuit adds are in the order of its entry in `values` [circuit][edge], all others in that of `rest`.
    The sorted values are those of `rest`, so that their spread, which solvers read, is the same.
    """
    n_edges = len(rest)
    level, within = np.full(n_edges, len(circuits)), rest.copy()
    for number in reversed(range(len(circuits))):
        mask = circuits[number].mask
        level[mask], within[mask] = number, values[number][mask]
    order = np.lexsort((-within, level))
    value = np.empty(n_edges)
    value[order] = np.sort(rest)[::-1]
    return value


@dataclass(frozen=True)
class Calibrated(Learner):
    """The ranking of scores, calibrated. It takes no gradient steps, only the time of evaluating a few circuits.

    measure   what circuits are selected for. Only for a measure that has a target, as CMD has, is anything calibrated
    scorer    the scorer whose scores are calibrated
    examples  number of examples to calibrate on, at most
    seed      seed of the choice of these examples
    """

    name: ClassVar[str] = "calibrated"
    title: ClassVar[str] = "Calibrated"

    measure: Measure = CMD
    scorer: Scorer = field(default_factory=EapIg)
    examples: int = 100
    seed: int = 0

    def __post_init__(self) -> None:
        check_is("measure", Measure, self.measure)
        check_is("scorer", Scorer, self.scorer)
        if self.examples < 1 or not 0 <= self.seed <= MAX_SEED:
            raise InputError(
                f"calibration needs at least 1 example and a seed of at least 0, not {self.examples} and {self.seed}"
            )

    def learn(self, problem: LearningProblem, session: Session) -> Ranking:
        """Score all examples of the task, then calibrate on some of them."""
        started = time.perf_counter()
        scores = problem.rank_by(self.scorer, session).value
        value = np.abs(scores) if self.measure.rank == "absolute" else scores
        origin: dict[str, Any] = {}
        if self.measure.has_target:
            order = np.random.default_rng(self.seed).permutation(len(problem.task))
            examples = problem.task.part(np.sort(order[: self.examples]))
            value, report = calibrate_ranking(problem, examples, value.astype(np.float64), scores, session)
            origin["calibration"] = [[size, *both] for size, both in report.items()]
        origin["seconds"] = time.perf_counter() - started
        return Ranking(problem.graph, value - value.min(), signed=False, origin=origin)

    def cost(self, problem: LearningProblem) -> LearningCost:
        from .training import weighted_cost

        return weighted_cost(problem, WEIGHTED_RUNS, min(self.examples, len(problem.task)))


def calibrate_ranking(
    problem: LearningProblem, examples: Task, value: FloatArray, scores: NDArray[np.floating], session: Session
) -> tuple[FloatArray, dict[float, tuple[float, float]]]:
    """Return calibrated values [edge], and size -> faithfulness on the examples before and after.

    If no size leaves a choice, the values are returned as they are.

    Parameters
    ----------
    examples
        What faithfulness is measured on. Differences from 1 that these examples may show by chance are ignored.
    value
        [edge] the values to calibrate. Those of the result are the same, in another order.
    scores
        [edge] the effect of each edge on the metric: positive if it raises the metric.
    """
    sizes = inner_sizes(problem)
    if not sizes:
        return value, {}
    counts, graph = list(sizes.values()), problem.graph
    share = (np.argsort(np.argsort(value, kind="stable"), kind="stable") + 0.5) / len(value)
    logit = np.log(share / (1 - share))  # [edge] of its rank among all edges, the largest for the highest value
    direction = np.sign(scores)
    thresholds = np.sort(logit)[::-1][np.array(counts) - 1]  # [size], descending
    gaps = [high - low for high, low in pairwise(thresholds)] or [1.0]
    limits = MAX_SHIFT * np.minimum([gaps[0], *gaps], [*gaps, gaps[-1]])[: len(counts)]

    def select(shifts: FloatArray) -> list[Circuit]:
        """Return the circuit of every size, with its shift."""
        rankings = [Ranking(graph, logit + shift * direction) for shift in shifts]
        problems = [SelectionProblem.of(r, "signed", k) for r, k in zip(rankings, counts, strict=True)]
        return [solve(each, solver=Greedy(), fill=True).circuit for each in problems]

    few = examples[::TRIAL_STRIDE]
    n_runs = len(counts) * (len(examples) + TRIALS * len(few))
    shifts = np.zeros((TRIALS + 1, len(counts)))  # [trial, size]
    circuits = [select(shifts[0])]
    evaluation = problem.evaluate(circuits[0], session.as_part("calibrate", 0, n_runs), examples)
    span = float((evaluation.full - evaluation.empty).mean())
    if span == 0:  # faithfulness is undefined on these examples
        return value, {}
    distance = (evaluation.values - evaluation.full) / span  # [size, example]
    bias, error = distance.mean(1), distance.std(1) / np.sqrt(len(examples))
    # The part of the bias that is not expected by chance (James and Stein).
    needed = -bias * np.maximum(0, 1 - (error / np.where(bias == 0, 1, bias)) ** 2)
    changes = np.zeros_like(shifts)
    before = evaluation.values[:, ::TRIAL_STRIDE]
    for trial in range(1, TRIALS + 1):
        if trial == 1:
            rows = zip(counts, needed * span, limits, strict=True)
            shift = np.array([_predict_shift(logit, scores, *row) for row in rows])
        else:
            step, effect = np.diff(shifts[trial - 2 : trial], axis=0)[0], np.diff(changes[trial - 2 : trial], axis=0)[0]
            shift = shifts[trial - 1] + _secant_step(step, effect, needed - changes[trial - 1])
        shifts[trial] = np.clip(shift, -limits, limits)
        circuits.append(select(shifts[trial]))
        part = session.as_part("calibrate", len(counts) * (len(examples) + (trial - 1) * len(few)), n_runs)
        changes[trial] = (problem.evaluate(circuits[-1], part, few).values - before).mean(1) / span
    best = np.abs(changes - needed).argmin(0)
    chosen_shifts = np.take_along_axis(shifts, best[None], 0)[0]
    chosen = [circuits[trial][row] for row, trial in enumerate(best)]
    after = bias + np.take_along_axis(changes, best[None], 0)[0]
    report = {size: (1 + float(b), 1 + float(a)) for size, b, a in zip(sizes, bias, after, strict=True)}
    if not chosen_shifts.any():
        return value, report
    return rank_by_circuit(chosen, [logit + shift * direction for shift in chosen_shifts], value), report


def _secant_step(step: FloatArray, effect: FloatArray, missing: FloatArray) -> FloatArray:
    """Return the next step of every shift, from the last one and its effect; the largest allowed one if it had none."""
    largest = MAX_GROWTH * np.abs(step)
    has_effect = effect * step > 0
    wanted_step = missing * step / np.where(has_effect, effect, 1)
    return np.where(has_effect, np.clip(wanted_step, -largest, largest), np.sign(missing) * largest)


def _predict_shift(logit: FloatArray, scores: NDArray[np.floating], count: int, change: float, limit: float) -> float:
    """Return the shift by which the sum of the scores of the best `count` edges changes as wanted; at most `limit`."""
    direction = np.sign(scores)

    def total(shift: float) -> float:
        return float(scores[np.argpartition(-(logit + shift * direction), count - 1)[:count]].sum())

    target = total(0.0) + change
    low, high = (0.0, limit) if change > 0 else (-limit, 0.0)
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if total(middle) < target else (low, middle)
    return (low + high) / 2
