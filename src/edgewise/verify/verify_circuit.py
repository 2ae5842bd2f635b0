"""verify_circuit: draw the circuits that the tests need, run them, and test.

`plan_verification` draws the circuits, `run_conditions` runs the circuit under the conditions of robustness, and
`circuit_tests` has the tests.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
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
from ..evaluate.run_circuits import Evaluation, check_graph, evaluate_circuits
from ..method import check_is
from ..models import Model
from ..models.memory import BUDGET
from ..runtime.session import DEFAULT_SESSION, Session
from ..tasks import DEFAULT_METRIC, Metric, Task
from ..tasks.metrics import METRICS
from .circuit_tests import (
    MATCHED,
    OUTSIDE,
    Condition,
    completeness,
    distance,
    equivalence,
    independence,
    minimality,
    necessity,
    robustness,
    sufficiency,
)
from .random_circuits import Rng, add_path, draw_circuit, draw_matched, edge_graph, logit_spans
from .random_runs import Evaluate, run_until_farther
from .verification import DEFAULTS, TESTS, CircuitTest, Verification, VerifySettings

FloatArray = NDArray[np.float64]
# Groups of circuits that are compared with the circuit. They run only until the comparison is decided.
RANDOM_GROUPS = ("random", "matched")
# Minimality adds this many paths per random circuit. More paths detect more superfluous edges, and they are cheap:
# circuits that run together share the nodes that read the same.
PATHS_PER_CIRCUIT = 4
# Robustness: prompts of one length are a condition if there are at least this many.
MIN_PROMPTS = 10


@dataclass(frozen=True, eq=False)
class VerificationPlan:
    """The circuits that the tests run, by purpose.

    circuit    the tested circuit, pruned
    groups     purpose -> circuits
    """

    circuit: Circuit
    groups: Mapping[str, tuple[Circuit, ...]]

    @property
    def circuits(self) -> tuple[Circuit, ...]:
        """All circuits, in the order of the groups."""
        return tuple(circuit for group in self.groups.values() for circuit in group)

    def split(self) -> tuple[dict[str, tuple[Circuit, ...]], tuple[Circuit, ...]]:
        """Return the groups that run on all examples, and the random and matched circuits, which may need fewer."""
        on_all = {name: group for name, group in self.groups.items() if name not in RANDOM_GROUPS}
        return on_all, tuple(circuit for name in RANDOM_GROUPS for circuit in self.groups[name])


def plan_verification(
    circuit: Circuit, settings: VerifySettings = DEFAULTS, tests: Sequence[str] = TESTS
) -> VerificationPlan:
    """Draw the circuits that the tests need. Equal settings draw equal circuits.

    Parameters
    ----------
    circuit
        The circuit of edges, or of (edge, span) pairs, to test. It is pruned first. Random paths of pairs reach the
        logits at the spans at which the circuit does.
    settings
        Number of random circuits, seed, and what the tests need.
    tests
        Some of `TESTS`.

    Returns
    -------
    VerificationPlan

    Raises
    ------
    InputError
        If the circuit is empty or full: it can not be compared with random circuits of its size. If completeness alone
        is to be tested, and the circuit has neither heads nor MLPs.
    """
    if unknown := [name for name in tests if name not in TESTS]:
        raise InputError(f"there is no test {unknown[0]!r}; choose from {', '.join(TESTS)}")
    if not tests:
        raise InputError(f"no test is to be run; choose from {', '.join(TESTS)}")
    pruned, graph, n = circuit.prune(), edge_graph(circuit), settings.n_circuits
    if not pruned.n_edges:
        lost = f" (none of its {circuit.n_edges:,} edges is on a path from input to logits)" if circuit.n_edges else ""
        raise InputError(f"the circuit is empty{lost}: there is nothing to test; select a larger one")
    if pruned.n_edges == graph.n_edges:
        raise InputError("the circuit is the whole model: there is nothing to test; select a smaller one")
    if set(tests) == {"completeness"} and not inner_nodes(pruned):
        raise InputError("completeness cuts heads and MLPs of the circuit, but it has none; choose other tests")
    # A generator per purpose: what one test draws does not depend on which others are run.
    rngs = [np.random.default_rng([settings.seed, number]) for number in range(5)]
    spans = logit_spans(pruned)
    groups: dict[str, list[Circuit]] = {"circuit": [pruned], "complement": [], "random": [], "matched": []}
    if {"necessity", "independence"} & set(tests):
        groups["complement"] = [pruned.complement()]
    random = (draw_circuit(graph, pruned.n_edges, rngs[0], spans=spans) for _ in range(n))
    if {"sufficiency", "robustness"} & set(tests):
        groups["random"] = list(random)
    if "sufficiency" in tests:
        groups["matched"] = [draw_matched(pruned, rngs[1]) for _ in range(n)]
    if "necessity" in tests:
        groups["random complement"] = [circuit.complement() for circuit in groups["random"] or random]
        with suppress(InputError):  # hardly any path shares no edge with a large circuit
            outside = [draw_circuit(graph, pruned.n_edges, rngs[4], pruned, spans) for _ in range(n)]
            groups["outside complement"] = [circuit.complement() for circuit in outside]
    if "minimality" in tests:
        groups["without edge"] = [pruned.without(edge) for edge in pruned.edges]
        groups["without node"] = [pruned.without(node) for node in inner_nodes(pruned)]
        groups["with path"], groups["without path edge"] = draw_reference(pruned, PATHS_PER_CIRCUIT * n, rngs[2])
    if "completeness" in tests and inner_nodes(pruned):
        sets, full = draw_node_sets(pruned, n, rngs[3]), Circuit.full(graph)
        groups["cut circuit"] = [pruned.without(nodes) for nodes in sets]
        groups["cut model"] = [full.without(nodes) for nodes in sets]
    return VerificationPlan(pruned, {name: tuple(circuits) for name, circuits in groups.items()})


def draw_reference(circuit: Circuit, draws: int, rng: Rng) -> tuple[list[Circuit], list[Circuit]]:
    """Return circuits with one random path added, and the same circuits without one of the added edges."""
    with_path, without_edge = [], []
    for _ in range(draws):
        larger, added = add_path(circuit, rng)
        mask = larger.mask.copy()
        mask[rng.choice(added)] = False
        with_path.append(larger)
        without_edge.append(Circuit(circuit.graph, mask))
    return with_path, without_edge


def inner_nodes(circuit: Circuit) -> list[str]:
    """Return the heads and MLPs of a circuit."""
    return [name for name in circuit.nodes if name not in ("input", "logits")]


def draw_node_sets(circuit: Circuit, draws: int, rng: Rng) -> list[list[str]]:
    """Return random sets of a circuit's heads and MLPs, of 1 to half of them, all sizes with the same probability."""
    names = inner_nodes(circuit)
    largest = max(1, len(names) // 2)
    return [rng.choice(names, rng.integers(1, largest + 1), replace=False).tolist() for _ in range(draws)]


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
    check_graph(circuit.graph, model, task)
    metric = metric.for_task(task)
    started = time.perf_counter()
    plan = plan_verification(circuit, settings, tests)
    with session.reporting() as session:
        how: dict[str, Any] = {"batch_size": batch_size, "memory": memory}
        evaluate: Evaluate = partial(evaluate_circuits, model, task, metric=metric, ablation=ablation, **how)
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
            conditions = run_conditions(model, task, plan, ran, metric, other_tasks or {}, how, session)
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
    tests: Sequence[str],
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


def run_conditions(
    model: Model,
    task: Task,
    plan: VerificationPlan,
    ran: Evaluation,
    metric: Metric,
    other_tasks: Mapping[str, Task],
    how: Mapping[str, Any],
    session: Session,
) -> Iterator[Condition]:
    """Yield a circuit under other conditions: each length of prompts, other ablations, other metrics, other examples.

    ran     what `evaluate_circuits` returned for `metric` on `task`
    how     further arguments of `evaluate_circuits`
    """
    # Prompts of one length are those of a few templates.
    lengths = np.array([example.length for example in task.examples])
    sizes, counts = np.unique(lengths, return_counts=True)
    same_length = {f"prompts of {n} tokens": np.flatnonzero(lengths == n) for n in sizes[counts >= MIN_PROMPTS]}
    everything, jobs = np.arange(len(task)), list[tuple[str, Task, NDArray[np.int64], Metric, Ablation]]()
    if len(sizes) > 1:
        jobs += [(name, task, rows, ran.metric, ran.ablation) for name, rows in same_length.items()]
    others = (kind() for name, kind in ABLATIONS.items() if name != ran.ablation.name)
    jobs += [(f"ablation: {ablation.name}", task, everything, ran.metric, ablation) for ablation in others]
    metrics: dict[str, Metric] = {}
    for kind in METRICS.values():
        with suppress(InputError):  # without incorrect answers, there are no differences
            usable = kind().for_task(task)
            metrics[usable.name] = usable
    metrics.pop(ran.metric.name, None)
    jobs += [(f"metric: {name}", task, everything, each, ran.ablation) for name, each in metrics.items()]
    jobs += [(f"examples: {n}", each, np.arange(len(each)), metric, ran.ablation) for n, each in other_tasks.items()]
    random = plan.groups["random"]
    done, total = 0, (1 + len(random)) * sum(len(rows) for _, _, rows, _, _ in jobs)
    for name, examples, rows, each_metric, ablation in jobs:
        evaluate: Evaluate = partial(evaluate_circuits, model, examples, metric=each_metric, ablation=ablation, **how)
        part = session.as_part("robustness", done, total)
        yield _condition(name, evaluate, plan.circuit, random, rows, part)
        done += (1 + len(random)) * len(rows)
        session.report("robustness", done, total)


def _condition(
    name: str,
    evaluate: Evaluate,
    circuit: Circuit,
    random: Sequence[Circuit],
    rows: NDArray[np.int64],
    session: Session,
) -> Condition:
    """Return how often a circuit is closer to the model than random circuits under a condition."""
    ran = evaluate([circuit], rows=rows.tolist(), session=session)
    own, full, empty = ran.values[0], ran.full, ran.empty
    own_faithfulness = float(MIB.compute(own.mean(), full.mean(), empty.mean()))
    if np.isnan(own_faithfulness):
        return Condition(name, own_faithfulness, 0, len(random))
    after = session.as_part(name, len(rows))
    distances = run_until_farther(evaluate, own, full, empty, random, after, rows).distances
    wins = distance(own, full, float(full.mean() - empty.mean())) < distances
    return Condition(name, own_faithfulness, int(wins.sum()), len(random))
