"""verify_circuit: draw the circuits that the tests need, run them, and test.

`random_circuits` draws the circuits, and `circuit_tests` has the tests. Random circuits run on no more examples than it
takes to compare them with the circuit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.circuit import Circuit
from ..errors import InputError
from ..evaluate.ablations import ABLATIONS, DEFAULT_ABLATION, Ablation
from ..evaluate.intervals import faithfulness_intervals
from ..evaluate.measures import MIB, faithfulness
from ..evaluate.run_circuits import Evaluation, check_graph, evaluate_circuits, prepare_ablation
from ..method import check_is
from ..models import Model
from ..models.memory import BUDGET
from ..runtime.session import DEFAULT_SESSION, Session
from ..tasks import DEFAULT_METRIC, Metric, Task, check_examples
from ..tasks.metrics import METRICS
from . import circuit_tests
from .circuit_tests import DEFAULTS, ROUNDING, TESTS, CircuitTest, Condition, Verification, VerifySettings, distance
from .random_circuits import VerificationPlan, check_tests, inner_nodes, plan_verification

FloatArray = NDArray[np.float64]
# Random circuits run on a part of the examples at a time, of at least this many: smaller batches are slower.
MIN_EXAMPLES_PER_PART = 4
# Prompts of one length are a condition if there are at least this many.
MIN_PROMPTS = 10
# `evaluate_circuits` with all arguments but circuits, rows and session.
Evaluate = Callable[..., Evaluation]


def verify_circuit(
    model: Model,
    task: Task,
    circuit: Circuit,
    settings: VerifySettings = DEFAULTS,
    *,
    tests: Iterable[str] = TESTS,
    metric: Metric = DEFAULT_METRIC,
    ablation: Ablation = DEFAULT_ABLATION,
    other_tasks: Mapping[str, Task] | None = None,
    batch_size: int | None = None,
    memory: int | str = BUDGET,
    session: Session = DEFAULT_SESSION,
) -> Verification:
    """Test whether a circuit is real: sufficient, necessary, minimal, equivalent, independent, complete, robust.

    Parameters
    ----------
    model, task
        The model, and the examples to run it on. Use examples that the circuit was not selected on.
    circuit
        The circuit to test, of edges or of (edge, span) pairs. It is pruned first.
    settings
        Number of random circuits, quantile, significance level and so on.
    tests
        Some of `edgewise.verify.TESTS`; all by default. Necessity and completeness cut parts of the whole model, which
        takes most of the time.
    metric, ablation
        As in `evaluate_circuits`. Robustness also takes all others.
    other_tasks
        Robustness: further examples by name, such as other splits or templates.
    batch_size, memory, session
        As in `evaluate_circuits`. With a store in the session, a stopped call resumes. Progress has the stages 'verify'
        (all tests but robustness), 'robustness' and 'minimal circuit'.

    Returns
    -------
    Verification
        A `CircuitTest` per test, the superfluous edges, and the circuit without them.

    Raises
    ------
    InputError
        If the circuit is one of another model or of other spans, empty or full, or the metric of the model equals that
        of the empty circuit.

    Examples
    --------
    >>> result = edgewise.verify_circuit(model, test, circuit)
    >>> print(result.test("sufficiency").p, result.superfluous)
    """
    check_is("metric", Metric, metric)
    check_is("ablation", Ablation, ablation)
    if not isinstance(settings, VerifySettings):
        raise InputError(f"settings must be VerifySettings, not {settings!r}")
    check_examples(model, task)
    if not isinstance(circuit, Circuit):
        raise InputError(f"a circuit is needed, not {circuit!r}; what `solve` returns has one as `.circuit`")
    if not isinstance(other_tasks, Mapping | None):
        raise InputError(f"other_tasks maps names to tasks, such as {{'train': train}}, not {other_tasks!r}")
    check_graph(circuit.graph, model, task)
    tests = check_tests(tests)
    metric = metric.for_task(task)
    started = time.perf_counter()
    plan = plan_verification(circuit, settings, tests)
    with session.reporting() as session:
        how: dict[str, Any] = {"batch_size": batch_size, "memory": memory}
        prepared = prepare_ablation(model, task, ablation, **how, session=session)
        evaluate: Evaluate = partial(evaluate_circuits, model, task, metric=metric, ablation=prepared, **how)
        on_all, random = plan.split()
        circuits = [circuit for group in on_all.values() for circuit in group]
        total = len(task) * (len(circuits) + len(random))
        ran = evaluate(circuits, session=session.as_part("verify", 0, total))
        metric_range = float(ran.full.mean() - ran.empty.mean())
        faithfulness(0.0, ran.full.mean(), ran.empty.mean())  # raises if it is undefined
        ends = np.cumsum([len(group) for group in on_all.values()])[:-1]
        values = dict(zip(on_all, np.split(ran.values, ends), strict=True))
        part = session.as_part("verify", len(task) * len(circuits), total)
        compared = run_until_farther(evaluate, values["circuit"][0], ran.full, ran.empty, random, part)
        n_random = len(plan.groups["random"])
        results = list(_test_all(plan, values, compared.distances, ran, metric_range, settings, tests))
        if "robustness" in tests:
            conditions = run_conditions(model, task, plan, metric, ablation, prepared, other_tasks or {}, how, session)
            results.append(circuit_tests.robustness(list(conditions), settings))
        superfluous: list[str] = next((t.details["superfluous"] for t in results if t.name == "minimality"), [])
        minimal = plan.circuit.without(superfluous).prune()
        minimal_faithfulness = None
        if superfluous:
            rerun = evaluate([minimal], session=session.as_part("minimal circuit"))
            minimal_faithfulness = faithfulness_intervals(rerun.values, rerun.full, rerun.empty)[0]

    def lost(name: str) -> FloatArray:
        """Return how much faithfulness the circuit loses in the circuits of a group."""
        return (values["circuit"][0].mean() - values[name].mean(1)) / metric_range if name in values else np.empty(0)

    own = faithfulness_intervals(values["circuit"], ran.full, ran.empty)[0]
    return Verification(
        model=model.name,
        task=task.name,
        split=task.split,
        metric=metric,
        ablation=ablation,
        settings=settings,
        n_examples=len(task),
        circuit=plan.circuit,
        minimal=minimal,
        tests=tuple(results),
        faithfulness=own,
        minimal_faithfulness=minimal_faithfulness,
        random=compared.faithfulness[:n_random],
        matched=compared.faithfulness[n_random:],
        edge_effects=lost("without edge"),
        node_effects=dict(zip(inner_nodes(plan.circuit), lost("without node").tolist(), strict=False)),
        seconds=time.perf_counter() - started,
    )


def _test_all(
    plan: VerificationPlan,
    values: Mapping[str, FloatArray],
    random_distances: FloatArray,
    ran: Evaluation,
    metric_range: float,
    settings: VerifySettings,
    tests: Sequence[str],
) -> Iterator[CircuitTest]:
    """Yield the result of every test but robustness, from values [circuit, example] by group.

    random_distances  [circuit] of the random circuits, then of the matched ones
    """
    own, full = values["circuit"][0], ran.full
    random, matched = np.split(random_distances, [len(plan.groups["random"])])
    to_model = float(distance(own, full, metric_range))
    if "sufficiency" in tests:
        yield circuit_tests.sufficiency(to_model, random, settings)
        if any(copy != plan.circuit for copy in plan.groups["matched"]):
            yield circuit_tests.sufficiency(to_model, matched, settings, circuit_tests.MATCHED)
    if "necessity" in tests:
        cut = float(distance(values["complement"][0], full, metric_range))
        yield circuit_tests.necessity(cut, distance(values["random complement"], full, metric_range), settings)
        if "outside complement" in values:
            yield circuit_tests.necessity(
                cut, distance(values["outside complement"], full, metric_range), settings, circuit_tests.OUTSIDE
            )
    if "minimality" in tests:
        reference = distance(values["with path"], values["without path edge"], metric_range)
        yield circuit_tests.minimality(
            distance(own, values["without edge"], metric_range), reference, plan.circuit.edges, settings
        )
    if "equivalence" in tests:
        test = circuit_tests.equivalence(own, full, metric_range, settings)
        never = f"no circuit beats the model by {ran.metric.name}: choose another metric for this test"
        yield replace(test, advice=test.advice or never) if ran.metric.flat_at_clean else test
    if "independence" in tests:
        yield circuit_tests.independence(values["complement"][0], full, ran.empty, settings)
    if "cut circuit" in values:
        yield circuit_tests.completeness(
            values["cut circuit"].mean(1), values["cut model"].mean(1), metric_range, settings
        )


@dataclass(frozen=True, eq=False)
class RandomRuns:
    """How random circuits did on the examples that they ran on.

    distances     [circuit] from the model; an estimate if the circuit did not run on all examples
    faithfulness  [circuit] an estimate in the same case
    n_examples    [circuit] how many examples the circuit ran on
    """

    distances: FloatArray
    faithfulness: FloatArray
    n_examples: NDArray[np.int64]


def run_until_farther(
    evaluate: Evaluate,
    own: FloatArray,
    full: FloatArray,
    empty: FloatArray,
    random: Sequence[Circuit],
    session: Session,
    places: NDArray[np.int64] | None = None,
) -> RandomRuns:
    """Run random circuits until each is known to be farther from the model than a circuit, or on all examples.

    A distance is a mean of absolute differences. Once their sum over some examples exceeds the sum of the circuit over
    all examples, the random circuit is farther, whatever it does on the others. So which circuits are farther is exact.

    Most random circuits do about as badly as the empty circuit. So the examples on which the empty circuit differs most
    from the model come first, and a part has as many examples as the empty circuit would need to be farther.

    own, full, empty  [example] the metric of the circuit, of the model and of the empty circuit
    places            [example] the places of these examples in the task; all of the task by default
    """
    n_examples, metric_range = len(own), float(full.mean() - empty.mean())
    places = np.arange(n_examples) if places is None else places
    own_distance = float(distance(own, full, metric_range))
    limit = (own_distance + ROUNDING) * abs(metric_range) * n_examples
    of_empty = np.abs(full - empty)
    waiting = np.argsort(-of_empty, kind="stable")
    values = np.full((len(random), n_examples), np.nan)
    left, sums = np.arange(len(random)), np.zeros(len(random))
    done, total = 0, len(random) * n_examples
    while len(left) and len(waiting):
        missing = limit - np.median(sums[left])
        n_needed = 1 + int(np.searchsorted(np.cumsum(of_empty[waiting]), missing, side="right"))
        part, waiting = np.split(waiting, [max(n_needed, MIN_EXAMPLES_PER_PART)])
        progress = session.as_part("random circuits", done, total)
        circuits = [random[index] for index in left.tolist()]
        values[np.ix_(left, part)] = evaluate(circuits, rows=places[part].tolist(), session=progress).values
        sums[left] += np.abs(values[np.ix_(left, part)] - full[part]).sum(1)
        left = left[sums[left] <= limit]
        done = total - len(left) * len(waiting)
        session.report("random circuits", done, total)
    has_run = ~np.isnan(values)
    # On the first examples all distances are large. The empty circuit's distance there says by how much.
    scale = (has_run @ of_empty) / of_empty.mean()
    distances = sums / scale / abs(metric_range)
    # A copy of the circuit that ran in another batch has another rounding error.
    distances[np.abs(distances - own_distance) < ROUNDING] = own_distance
    return RandomRuns(distances, np.nansum(values - empty, 1) / scale / metric_range, has_run.sum(1))


def run_conditions(
    model: Model,
    task: Task,
    plan: VerificationPlan,
    metric: Metric,
    ablation: Ablation,
    prepared: Ablation,
    other_tasks: Mapping[str, Task],
    how: Mapping[str, Any],
    session: Session,
) -> Iterator[Condition]:
    """Yield a circuit under other conditions: each length of prompts, other ablations, other metrics, other examples.

    metric    that of `task`
    prepared  the ablation with what it needs of `task`
    how       further arguments of `evaluate_circuits`
    """
    # Prompts of one length are those of a few templates.
    lengths = np.array([example.length for example in task.examples])
    sizes, counts = np.unique(lengths, return_counts=True)
    same_length = {f"prompts of {n} tokens": np.flatnonzero(lengths == n) for n in sizes[counts >= MIN_PROMPTS]}
    everything, jobs = np.arange(len(task)), list[tuple[str, Task, NDArray[np.int64], Metric, Ablation]]()
    if len(sizes) > 1:
        jobs += [(name, task, rows, metric, prepared) for name, rows in same_length.items()]
    others = (kind() for name, kind in ABLATIONS.items() if name != ablation.name)
    jobs += [(f"ablation: {other.name}", task, everything, metric, other) for other in others]
    metrics: dict[str, Metric] = {}
    for kind in METRICS.values():
        with suppress(InputError):  # without incorrect answers, there are no differences
            usable = kind().for_task(task)
            metrics[usable.name] = usable
    metrics.pop(metric.name, None)
    jobs += [(f"metric: {name}", task, everything, each, prepared) for name, each in metrics.items()]
    jobs += [(f"examples: {n}", each, np.arange(len(each)), metric, ablation) for n, each in other_tasks.items()]
    random = plan.groups["random"]
    done, total = 0, (1 + len(random)) * sum(len(rows) for _, _, rows, _, _ in jobs)
    for name, examples, rows, each_metric, each_ablation in jobs:
        means = prepare_ablation(model, examples, each_ablation, **how, session=session)
        evaluate: Evaluate = partial(evaluate_circuits, model, examples, metric=each_metric, ablation=means, **how)
        part = session.as_part("robustness", done, total)
        ran = evaluate([plan.circuit], rows=rows.tolist(), session=part)
        own, full, empty = ran.values[0], ran.full, ran.empty
        faithfulness, wins = float(MIB.compute(own.mean(), full.mean(), empty.mean())), 0
        if not np.isnan(faithfulness):
            after = part.as_part(name, len(rows))
            distances = run_until_farther(evaluate, own, full, empty, random, after, rows).distances
            wins = int((distance(own, full, float(full.mean() - empty.mean())) < distances).sum())
        yield Condition(name, faithfulness, wins, len(random))
        done += (1 + len(random)) * len(rows)
        session.report("robustness", done, total)
