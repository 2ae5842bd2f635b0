"""verify_circuit: draw the circuits that the tests need, run them, and test.

`verification_plan` draws the circuits, `conditions` has the runs of robustness, and `circuit_tests` has the tests.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.circuit import Circuit
from ..errors import InputError
from ..evaluate.ablations import DEFAULT_ABLATION, Ablation
from ..evaluate.intervals import faithfulness_intervals
from ..evaluate.measures import faithfulness
from ..evaluate.run_circuits import Evaluation, check_graph, evaluate_circuits, prepare_ablation
from ..method import check_is
from ..models import Model
from ..models.memory import BUDGET
from ..runtime.session import DEFAULT_SESSION, Session
from ..tasks import DEFAULT_METRIC, Metric, Task, check_examples
from .circuit_tests import (
    MATCHED,
    OUTSIDE,
    completeness,
    distance,
    equivalence,
    independence,
    minimality,
    necessity,
    robustness,
    sufficiency,
)
from .conditions import run_conditions
from .random_runs import Evaluate, run_until_farther
from .verification import DEFAULTS, TESTS, CircuitTest, Verification, VerifySettings
from .verification_plan import VerificationPlan, check_tests, inner_nodes, plan_verification

FloatArray = NDArray[np.float64]


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
        span = float(ran.full.mean() - ran.empty.mean())
        faithfulness(0.0, ran.full.mean(), ran.empty.mean())  # raises if it is undefined
        ends = np.cumsum([len(group) for group in on_all.values()])[:-1]
        values = dict(zip(on_all, np.split(ran.values, ends), strict=True))
        part = session.as_part("verify", len(task) * len(circuits), total)
        compared = run_until_farther(evaluate, values["circuit"][0], ran.full, ran.empty, random, part)
        n_random = len(plan.groups["random"])
        results = list(_test_all(plan, values, compared.distances, ran, span, settings, tests))
        if "robustness" in tests:
            conditions = run_conditions(model, task, plan, metric, ablation, prepared, other_tasks or {}, how, session)
            results.append(robustness(list(conditions), settings))
        superfluous: list[str] = next((t.details["superfluous"] for t in results if t.name == "minimality"), [])
        minimal = plan.circuit.without(superfluous).prune()
        minimal_faithfulness = None
        if superfluous:
            rerun = evaluate([minimal], session=session.as_part("minimal circuit"))
            minimal_faithfulness = faithfulness_intervals(rerun.values, rerun.full, rerun.empty)[0]

    def lost(name: str) -> FloatArray:
        """Return how much faithfulness the circuit loses in the circuits of a group."""
        return (values["circuit"][0].mean() - values[name].mean(1)) / span if name in values else np.empty(0)

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
    span: float,
    settings: VerifySettings,
    tests: Collection[str],
) -> Iterator[CircuitTest]:
    """Yield the result of every test but robustness, from values [circuit, example] by group.

    random_distances  [circuit] of the random circuits, then of the matched ones
    """
    own, full = values["circuit"][0], ran.full
    random, matched = np.split(random_distances, [len(plan.groups["random"])])
    to_model = float(distance(own, full, span))
    if "sufficiency" in tests:
        yield sufficiency(to_model, random, settings)
        if any(copy != plan.circuit for copy in plan.groups["matched"]):
            yield sufficiency(to_model, matched, settings, MATCHED)
    if "necessity" in tests:
        cut = float(distance(values["complement"][0], full, span))
        yield necessity(cut, distance(values["random complement"], full, span), settings)
        if "outside complement" in values:
            yield necessity(cut, distance(values["outside complement"], full, span), settings, OUTSIDE)
    if "minimality" in tests:
        reference = distance(values["with path"], values["without path edge"], span)
        yield minimality(distance(own, values["without edge"], span), reference, plan.circuit.edges, settings)
    if "equivalence" in tests:
        test = equivalence(own, full, span, settings)
        never = f"no circuit beats the model by {ran.metric.name}: choose another metric for this test"
        yield replace(test, advice=test.advice or never) if ran.metric.flat_at_clean else test
    if "independence" in tests:
        yield independence(values["complement"][0], full, ran.empty, settings)
    if "cut circuit" in values:
        yield completeness(values["cut circuit"].mean(1), values["cut model"].mean(1), span, settings)
