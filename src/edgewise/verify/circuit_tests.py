"""The seven tests of a circuit, from the metrics of the circuits that they run: settings, results, arithmetic.

NumPy only, without SciPy.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..core.circuit import Circuit
from ..errors import InputError, check_number
from ..evaluate.ablations import Ablation
from ..evaluate.intervals import Interval
from ..tasks import Metric

FloatArray = NDArray[np.float64]
PASSES, FAILS, TOO_FEW = "passes", "fails", "too few"
TESTS = (
    "sufficiency", "necessity", "minimality", "equivalence", "independence", "completeness", "robustness",
)  # fmt: skip
RANDOM = "random circuits of its size"
MATCHED = "copies of it with other heads of the same layers"
OUTSIDE = "random circuits of its size that share no edge with it"
# Differences below this share of the metric's range (full minus empty) are rounding errors.
ROUNDING = 1e-6
# The fewest examples for the test of independence.
MIN_EXAMPLES = 5


@dataclass(frozen=True)
class VerifySettings:
    """How circuits are tested.

    n_circuits       number of random circuits and of knocked-out sets; minimality adds 4 times as many paths
    quantile         q: the share of random circuits that a circuit must beat
    epsilon          equivalence: how far the chance to beat the model may be from 1/2
    tolerance        equivalence: smaller differences are ties; a share of the model's metric minus the empty circuit's
    max_difference   completeness: how far circuit and model may differ; a share of the same
    alpha            significance level
    permutations     number of permutations in the test of independence
    seed             seed of all random draws
    """

    n_circuits: int = 100
    quantile: float = 0.9
    epsilon: float = 0.1
    tolerance: float = 0.0
    max_difference: float = 0.1
    alpha: float = 0.05
    permutations: int = 1000
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("n_circuits", "permutations", "seed"):
            value, least = getattr(self, name), int(name != "seed")
            if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
                raise InputError(f"{name} must be a whole number of at least {least}, not {value!r}")
            object.__setattr__(self, name, int(value))  # NumPy's numbers can't be written as JSON
        for name in ("quantile", "epsilon", "tolerance", "max_difference", "alpha"):
            check_number(name, getattr(self, name))
            object.__setattr__(self, name, float(getattr(self, name)))
        for name, low, high in (("quantile", 0, 1), ("epsilon", 0, 0.5), ("alpha", 0, 1)):
            if not low < getattr(self, name) < high:
                raise InputError(f"{name} must lie between {low} and {high}, not at {getattr(self, name)}")
        for name in ("tolerance", "max_difference"):
            if not 0 <= getattr(self, name) < 1:
                raise InputError(f"{name} must be a share of at least 0 and less than 1, not {getattr(self, name)}")


DEFAULTS = VerifySettings()


@dataclass(frozen=True)
class CircuitTest:
    """The result of one test of a circuit.

    name       such as 'sufficiency'
    null       the null hypothesis in a sentence
    measured   what the statistic is
    statistic  its value
    p          the p-value of the null hypothesis; of minimality the smallest one, of robustness the largest
    verdict    'passes', 'fails', or 'too few' if no result of so few draws or examples could be significant
    advice     how many draws or examples are needed; empty if there are enough
    details    further numbers, and lists of rows, as plain data
    """

    name: str
    null: str
    measured: str
    statistic: float
    p: float
    verdict: str
    advice: str
    details: Mapping[str, Any]

    @property
    def passes(self) -> bool:
        """Whether the circuit passes the test."""
        return self.verdict == PASSES

    def record(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return asdict(self) | {"details": dict(self.details)}


@dataclass(frozen=True, eq=False)
class Verification:
    """What the tests say about a circuit.

    circuit              the tested circuit, pruned
    minimal              the circuit without its superfluous edges, pruned
    tests                the tests, in the order of `TESTS`
    faithfulness         faithfulness of the circuit, with its interval
    minimal_faithfulness of the minimal circuit; None if it was not run
    random, matched      [circuit] faithfulness of random circuits, and of copies with other heads of the same layers
    edge_effects         [edge of the circuit] how much faithfulness the circuit loses without the edge
    node_effects         name of a head or MLP -> the same without the node
    """

    model: str
    task: str
    split: str
    metric: Metric
    ablation: Ablation
    settings: VerifySettings
    n_examples: int
    circuit: Circuit
    minimal: Circuit
    tests: tuple[CircuitTest, ...]
    faithfulness: Interval
    minimal_faithfulness: Interval | None
    random: FloatArray
    matched: FloatArray
    edge_effects: FloatArray
    node_effects: Mapping[str, float]
    seconds: float

    @property
    def superfluous(self) -> tuple[str, ...]:
        """The names of the edges that do not matter more than random ones."""
        test = next((test for test in self.tests if test.name == "minimality"), None)
        return () if test is None else tuple(test.details["superfluous"])

    def test(self, name: str) -> CircuitTest:
        """Return a test by its name. Raise InputError if it was not run."""
        for test in self.tests:
            if test.name == name:
                return test
        raise InputError(f"there is no test {name!r} among {', '.join(test.name for test in self.tests)}")

    def record(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            "model": self.model,
            "task": self.task,
            "split": self.split,
            "metric": self.metric.name,
            "ablation": self.ablation.name,
            "settings": asdict(self.settings),
            "examples": self.n_examples,
            "edges": self.circuit.n_edges,
            "of": self.circuit.graph.n_edges,
            "units": self.circuit.graph.units,
            "faithfulness": self.faithfulness.record(),
            "tests": [test.record() for test in self.tests],
            "superfluous": list(self.superfluous),
            "minimal": {
                "edges": self.minimal.n_edges,
                "faithfulness": None if self.minimal_faithfulness is None else self.minimal_faithfulness.record(),
            },
            "random": self.random.tolist(),
            "matched": self.matched.tolist(),
            "edge_effects": dict(zip(self.circuit.edges, self.edge_effects.tolist(), strict=False)),
            "node_effects": dict(self.node_effects),
            "seconds": self.seconds,
        }

    def __repr__(self) -> str:
        verdicts = ", ".join(f"{test.name}: {test.verdict}" for test in self.tests)
        return f"Verification({self.circuit.graph.count(self.circuit.n_edges)}; {verdicts})"


def distance(first: FloatArray, second: FloatArray, metric_range: float) -> FloatArray:
    """Return the mean over examples of |first - second| as a share of `metric_range`; rounding errors are 0.

    first, second  [..., example]
    """
    result = np.abs(first - second).mean(-1) / abs(metric_range)
    return np.where(result < ROUNDING, 0.0, result)


def judge(is_passed: bool, count: int, needed: int, what: str) -> tuple[str, str]:
    """Return the verdict and the advice of a test of `count` draws or examples, if it needs at least `needed`."""
    if count < needed:
        return TOO_FEW, f"needs at least {needed} {what}, not {count}"
    return (PASSES if is_passed else FAILS), ""


def sufficiency(
    distance: float, random_distances: FloatArray, settings: VerifySettings, reference: str = RANDOM
) -> CircuitTest:
    """Test whether a circuit is closer to the model than most random circuits.

    distance          distance of the circuit from the model
    random_distances  [circuit] of the random circuits from the model
    reference         what the random circuits are, for the null hypothesis

    `p` is exact and binomial. The detail `rank_p` is the chance that a random circuit does as well, which is uniform if
    the circuit is itself a random one.
    """
    name = "sufficiency" if reference == RANDOM else "sufficiency, matched"
    null = f"The circuit is closer to the model than at most {settings.quantile:.0%} of {reference}."
    measured, wins = f"share of {reference} that it beats", distance < random_distances
    return _count_wins(name, null, measured, wins, settings, _details(distance, random_distances, wins))


def necessity(
    distance: float, random_distances: FloatArray, settings: VerifySettings, reference: str = RANDOM
) -> CircuitTest:
    """Test whether cutting a circuit changes the model more than cutting most random circuits.

    The parameters and the result are those of `sufficiency`. Here a distance is how far the model moves when the
    circuit is cut. In a small graph, random circuits often share edges with the circuit, and cutting a single one of
    these may change the model as much as cutting the circuit.
    """
    name = "necessity" if reference == RANDOM else "necessity, outside"
    null = f"Cutting the circuit changes the model more than cutting at most {settings.quantile:.0%} of {reference}."
    measured, wins = f"share of {reference} whose cut changes less", distance > random_distances
    return _count_wins(name, null, measured, wins, settings, _details(distance, random_distances, wins))


def _details(distance: float, random_distances: FloatArray, wins: NDArray[np.bool_]) -> dict:
    rank_p = (1 + int((~wins).sum())) / (1 + len(wins))
    return {"distance": distance, "rank_p": rank_p, "random": random_distances.tolist()}


def _count_wins(
    name: str, null: str, measured: str, wins: NDArray[np.bool_], settings: VerifySettings, details: dict
) -> CircuitTest:
    """Test whether a circuit wins in more than `quantile` of the draws, `wins` [draw]: one-sided, exact, binomial."""
    count, draws = int(wins.sum()), len(wins)
    p = binomial_at_least(count, draws, settings.quantile)
    needed = draws_needed(settings.quantile, settings.alpha)
    verdict, advice = judge(p <= settings.alpha, draws, needed, "random circuits")
    return CircuitTest(name, null, measured, count / draws, p, verdict, advice, {"draws": draws} | details)


def minimality(
    changes: FloatArray, random_changes: FloatArray, edges: Sequence[str], settings: VerifySettings
) -> CircuitTest:
    """Test every edge of a circuit: is it superfluous?

    changes         [edge of the circuit] the distance between the circuit and the circuit without the edge
    random_changes  [draw] the same for an edge of a random path that was added to the circuit
    edges           the names of the edges

    The detail `edges` has a row per edge; `superfluous` lists the names of superfluous edges.

    P-values need no correction for the number of edges. All edges are compared with the same draws, so of two edges,
    the one with the larger change never has the smaller p-value. Consider the edges that are not superfluous: those
    that exceed at least `quantile` of all possible draws. If any of them is called superfluous by mistake, then so is
    the one with the smallest change. The chance of that is at most alpha, because it is the mistake of a single test.
    """
    draws = len(random_changes)
    # Changes of dead edges are rounding errors: equal ones are not larger than each other.
    wins = (changes[:, None] > random_changes).sum(1).tolist()
    p_by_wins = {count: binomial_at_most(count, draws, settings.quantile) for count in set(wins)}
    rows = [
        {
            "edge": edge,
            "change": change,
            "share": count / draws,
            "p": p_by_wins[count],
            "superfluous": p_by_wins[count] <= settings.alpha,
        }
        for edge, change, count in zip(edges, changes.tolist(), wins, strict=True)
    ]
    superfluous = [row["edge"] for row in rows if row["superfluous"]]
    needed = draws_needed(1 - settings.quantile, settings.alpha)
    verdict, advice = judge(not superfluous, draws, needed, "added paths")
    return CircuitTest(
        name="minimality",
        null=f"Every edge of the circuit matters more than {settings.quantile:.0%} of edges of added random paths.",
        measured="share of superfluous edges",
        statistic=len(superfluous) / len(rows),
        p=min(p_by_wins.values()),
        verdict=verdict,
        advice=advice,
        details={"draws": draws, "superfluous": superfluous, "edges": rows, "random": random_changes.tolist()},
    )


def equivalence(circuit: FloatArray, model: FloatArray, metric_range: float, settings: VerifySettings) -> CircuitTest:
    """Test whether circuit and model have the same chance to have the larger metric.

    circuit, model  [example] the metric of each
    metric_range    the mean difference between the model and the empty circuit

    The detail `difference` is the mean difference as a share of `metric_range`. A circuit that is a little better on
    all examples is not equivalent, however small the difference is; a tolerance makes small differences ties.
    """
    difference = (circuit - model) / metric_range
    is_tie = np.abs(difference) <= max(ROUNDING, settings.tolerance)
    wins, ties, n = int(((difference > 0) & ~is_tie).sum()), int(is_tie.sum()), len(difference)
    p, needed = equivalence_p(wins, ties, n, settings.epsilon), examples_needed(settings.epsilon, settings.alpha, n)
    verdict, advice = judge(p <= settings.alpha, n, needed, "examples")
    low, high = 0.5 - settings.epsilon, 0.5 + settings.epsilon
    return CircuitTest(
        name="equivalence",
        null=f"The circuit beats the model on less than {low:.0%} or on more than {high:.0%} of examples.",
        measured="share of examples on which it beats the model",
        statistic=(wins + ties / 2) / n,
        p=p,
        verdict=verdict,
        advice=advice,
        details={"examples": n, "wins": wins, "ties": ties, "difference": float(difference.mean())},
    )


def independence(without: FloatArray, model: FloatArray, empty: FloatArray, settings: VerifySettings) -> CircuitTest:
    """Test whether the metric of the model without the circuit is independent of the model's.

    without, model, empty  [example] the metric of the model without the circuit, of the model, of the empty circuit

    The circuit passes if independence is not rejected, so few examples make it easier to pass. The detail `empty_p` is
    the p-value for the empty circuit: if it is small, the metric of the corrupted prompts depends on that of the clean
    ones, and no circuit can be expected to pass. Nothing depends on a metric that is the same on all examples, as kl
    of the model is: the verdict is 'too few' then.
    """
    statistic, p = permutation_p(without, model, settings.permutations, settings.seed)
    _, empty_p = permutation_p(empty, model, settings.permutations, settings.seed)
    n = len(model)
    verdict, advice = (FAILS if p <= settings.alpha else PASSES), ""
    if n > 1 and np.ptp(model) <= ROUNDING * abs(model.mean() - empty.mean()):
        verdict, advice = TOO_FEW, "needs examples on which the model's metric differs; it is the same on all"
    elif n < MIN_EXAMPLES or settings.permutations + 1 < 1 / settings.alpha:
        n_permutations = round(1 / settings.alpha) - 1
        verdict, advice = TOO_FEW, f"needs at least {MIN_EXAMPLES} examples and {n_permutations} permutations"
    elif p <= settings.alpha and empty_p <= settings.alpha:
        advice = "the empty circuit fails, too, so with this ablation the test says nothing about the circuit"
    return CircuitTest(
        name="independence",
        null="Without the circuit, the model's metric on an example does not depend on the intact model's.",
        measured="HSIC",
        statistic=statistic,
        p=p,
        verdict=verdict,
        advice=advice,
        details={"examples": n, "permutations": settings.permutations, "empty_p": empty_p},
    )


def hsic(x: FloatArray, y: FloatArray, width_x: float | None = None, width_y: float | None = None) -> float:
    """Return the Hilbert-Schmidt independence criterion of paired numbers, with Gaussian kernels.

    Parameters
    ----------
    x, y
        [example] Paired numbers.
    width_x, width_y
        Standard deviations of the kernels; by default the median distance of two examples.

    Returns
    -------
    tr(K H L H) / (n - 1)^2, where H centres
    """
    return float((_centred(_kernel(x, width_x)) * _kernel(y, width_y)).sum() / (len(x) - 1) ** 2)


def permutation_p(x: FloatArray, y: FloatArray, permutations: int, seed: int) -> tuple[float, float]:
    """Return the criterion, and the share of permutations of `y` whose criterion is as large; the data count as one."""
    if len(x) < 2:
        return 0.0, 1.0
    rng = np.random.default_rng(seed)
    centred, kernel = _centred(_kernel(x, None)), _kernel(y, None)
    observed = (centred * kernel).sum()
    # Rounding errors of a sum of numbers of at most 1. The criterion itself can be 0, so a share of it is no tolerance.
    as_large_as = observed - 1e-12 * len(x)
    n_as_large = 0
    for _ in range(permutations):
        order = rng.permutation(len(y))
        n_as_large += bool((centred * kernel[np.ix_(order, order)]).sum() >= as_large_as)
    return float(observed / (len(x) - 1) ** 2), (1 + n_as_large) / (1 + permutations)


def _kernel(values: FloatArray, width: float | None) -> FloatArray:
    distances = np.abs(values[:, None] - values)
    if width is None:
        width = float(np.median(distances[np.triu_indices(len(values), 1)])) or float(distances.max()) or 1.0
    return np.exp(-((distances / width) ** 2) / 2)


def _centred(kernel: FloatArray) -> FloatArray:
    return kernel - kernel.mean(0) - kernel.mean(1)[:, None] + kernel.mean()


def completeness(circuit: FloatArray, model: FloatArray, metric_range: float, settings: VerifySettings) -> CircuitTest:
    """Test whether circuit and model agree if the same nodes are cut from both.

    circuit, model  [set] the mean metric of the circuit, and of the model, without each set of nodes
    metric_range    the mean difference between the model and the empty circuit

    The details have the mean and the largest difference, as shares of `metric_range`.
    """
    differences = np.abs(circuit - model) / abs(metric_range)
    limit = settings.max_difference
    return _count_wins(
        "completeness",
        f"For at most {settings.quantile:.0%} of the sets of its nodes, cutting the set from the circuit and from the "
        f"model leaves metrics within {limit:.0%} of each other.",
        f"share of node sets with a difference of at most {limit:.0%}",
        differences <= limit,
        settings,
        {"mean_difference": float(differences.mean()), "largest_difference": float(differences.max())},
    )


@dataclass(frozen=True)
class Condition:
    """A circuit under one condition, such as another ablation.

    name          such as 'ablation: zero'
    faithfulness  faithfulness of the circuit; NaN if the model and the empty circuit have the same metric
    wins, draws   how many of the random circuits it beats
    """

    name: str
    faithfulness: float
    wins: int
    draws: int


def robustness(conditions: Sequence[Condition], settings: VerifySettings) -> CircuitTest:
    """Test sufficiency under every condition, corrected for their number.

    Conditions without faithfulness are skipped; at least one has it. The circuit passes if it is sufficient under every
    condition. The detail `conditions` has a row for each.
    """
    skipped = [condition.name for condition in conditions if np.isnan(condition.faithfulness)]
    conditions = [condition for condition in conditions if condition.name not in skipped]
    corrected = holm([binomial_at_least(c.wins, c.draws, settings.quantile) for c in conditions])
    is_met = corrected <= settings.alpha
    needed = draws_needed(settings.quantile, settings.alpha, len(conditions))
    draws = min(condition.draws for condition in conditions)
    verdict, advice = judge(bool(is_met.all()), draws, needed, "random circuits")
    rows = [
        {"condition": c.name, "faithfulness": c.faithfulness, "share": c.wins / c.draws, "p": p, "passes": bool(met)}
        for c, p, met in zip(conditions, corrected.tolist(), is_met, strict=True)
    ]
    return CircuitTest(
        name="robustness",
        null=f"Under some condition, the circuit is closer to the model than at most {settings.quantile:.0%} of random "
        "circuits of its size.",
        measured="share of conditions under which it is sufficient",
        statistic=float(is_met.mean()),
        p=float(corrected.max()),
        verdict=verdict,
        advice=advice,
        details={"draws": draws, "conditions": rows, "skipped": skipped},
    )


def binomial_at_least(count: int, draws: int, chance: float) -> float:
    """Return the probability of `count` or more successes in `draws` of a chance strictly between 0 and 1."""
    return _sum_probabilities(range(max(0, count), draws + 1), draws, chance)


def binomial_at_most(count: int, draws: int, chance: float) -> float:
    """Return the probability of `count` or fewer successes in `draws` of a chance strictly between 0 and 1."""
    return _sum_probabilities(range(0, min(count, draws) + 1), draws, chance)


def _sum_probabilities(counts: range, draws: int, chance: float) -> float:
    """Return the probability of these numbers of successes, by logarithms, so that many draws do not underflow."""
    yes, no, all_ways = math.log(chance), math.log1p(-chance), math.lgamma(draws + 1)
    logs = [all_ways - math.lgamma(k + 1) - math.lgamma(draws - k + 1) + k * yes + (draws - k) * no for k in counts]
    return min(1.0, math.fsum(map(math.exp, logs)))


def holm(p_values: ArrayLike) -> NDArray[np.float64]:
    """Return p-values corrected for their number by Holm's step-down method, in the same order."""
    p = np.asarray(p_values, np.float64)
    order = np.argsort(p, kind="stable")
    corrected = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)).clip(max=1.0)
    return corrected[np.argsort(order, kind="stable")]


def equivalence_p(wins: int, ties: int, examples: int, epsilon: float) -> float:
    """Return the p-value of two one-sided tests: the chance to win lies outside 1/2 +- epsilon.

    A tie counts as half a win. Half a win is rounded against the circuit in both tests.
    """
    too_high = binomial_at_most(wins + math.ceil(ties / 2), examples, 0.5 + epsilon)
    too_low = binomial_at_least(wins + math.floor(ties / 2), examples, 0.5 - epsilon)
    return max(too_high, too_low)


def draws_needed(chance: float, alpha: float, tests: int = 1) -> int:
    """Return how many draws a test of a chance needs to be significant if all of them succeed."""
    return math.ceil(math.log(alpha / tests) / math.log(chance) - 1e-9)


def examples_needed(epsilon: float, alpha: float, examples: int = 0) -> int:
    """Return how many examples the test of equivalence needs to be significant if wins and losses are equal.

    An odd number can't have equal wins and losses. If `examples`, the present number, is odd and not enough though a
    smaller even number is, one more is needed.
    """

    def is_enough(pairs: int) -> bool:
        return equivalence_p(pairs, 0, 2 * pairs, epsilon) <= alpha

    many = 1
    while not is_enough(many):
        many *= 2
    enough = bisect_left(range(many), True, key=is_enough)
    is_odd_and_few = examples > 2 * enough and equivalence_p(examples // 2, 0, examples, epsilon) > alpha
    return examples + 1 if is_odd_and_few else 2 * enough
