"""verify_circuit: run all tests of a circuit."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.circuit import Circuit
from ..evaluate.ablations import DEFAULT_ABLATION, Ablation
from ..evaluate.faithfulness import MIB, faithfulness
from ..evaluate.intervals import faithfulness_intervals
from ..evaluate.run_circuits import Evaluation, check_graph, evaluate_circuits
from ..method import check_is
from ..models import Model
from ..models.memory import BUDGET
from ..runtime.session import DEFAULT_SESSION, Session
from ..tasks import DEFAULT_METRIC, Metric, Task
from .comparisons import MATCHED, OUTSIDE, distance, necessity, sufficiency
from .completeness import completeness, inner_nodes
from .equivalence import equivalence
from .independence import independence
from .minimality import minimality
from .plan import VerificationPlan, plan_verification
from .random_circuits import edge_graph
from .robustness import robustness, run_conditions
from .verification import DEFAULTS, TESTS, CircuitTest, Verification, VerifySettings

FloatArray = NDArray[np.float64]


def verify_circuit(
    model: Model,
    task: Task,
    circuit: Circuit,
    settings: VerifySettings = DEFAULTS,
    *,
    tests: Sequence[str] = TESTS,
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
    edge_graph(circuit)  # raises for circuits of nodes and so on
    check_graph(circuit.graph, model, task)
    metric = metric.for_task(task)
    started = time.perf_counter()
    plan = plan_verification(circuit, settings, tests)
    with session.reporting() as session:
        how: dict[str, Any] = {"batch_size": batch_size, "memory": memory}
        ran = evaluate_circuits(model, task, plan.circuits, metric, ablation, **how, session=session.as_part("verify"))
        span = float(ran.full.mean() - ran.empty.mean())
        faithfulness(0.0, ran.full.mean(), ran.empty.mean())  # raises if it is undefined
        stops = list(accumulate((len(group) for group in plan.groups.values()), initial=0))
        places = {name: slice(*ends) for name, ends in zip(plan.groups, pairwise(stops), strict=True)}
        values = {name: ran.values[place] for name, place in places.items()}
        results = list(_test_all(plan, values, ran, span, settings, tests))
        if "robustness" in tests:
            compared = ("circuit", "random")
            circuits = [circuit for name in compared for circuit in plan.groups[name]]
            own_and_random = replace(ran, values=np.concatenate([values[name] for name in compared]))
            conditions = run_conditions(model, task, circuits, own_and_random, metric, other_tasks or {}, how, session)
            results.append(robustness(list(conditions), settings))
        superfluous: list[str] = next((t.details["superfluous"] for t in results if t.name == "minimality"), [])
        minimal = plan.circuit.without(superfluous).prune()
        minimal_faithfulness = None
        if superfluous:
            part = session.as_part("minimal circuit")
            rerun = evaluate_circuits(model, task, [minimal], metric, ablation, **how, session=part)
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
        random=MIB.compute(values["random"].mean(1), ran.full.mean(), ran.empty.mean()),
        matched=MIB.compute(values["matched"].mean(1), ran.full.mean(), ran.empty.mean()),
        edge_effects=lost("without edge"),
        node_effects=dict(zip(inner_nodes(plan.circuit), lost("without node").tolist(), strict=False)),
        seconds=time.perf_counter() - started,
    )


def _test_all(
    plan: VerificationPlan,
    values: Mapping[str, FloatArray],
    ran: Evaluation,
    span: float,
    settings: VerifySettings,
    tests: Sequence[str],
) -> Iterator[CircuitTest]:
    """Yield the result of every test but robustness, from values [circuit, example] by group."""
    own, full = values["circuit"][0], ran.full
    to_model = float(distance(own, full, span))
    if "sufficiency" in tests:
        yield sufficiency(to_model, distance(values["random"], full, span), settings)
        if any(matched != plan.circuit for matched in plan.groups["matched"]):
            yield sufficiency(to_model, distance(values["matched"], full, span), settings, MATCHED)
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
