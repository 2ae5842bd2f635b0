"""verify_circuit: run all tests of a circuit."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.circuit import Circuit
from ..errors import InputError
from ..evaluate.ablations import ABLATIONS, DEFAULT_ABLATION, Ablation
from ..evaluate.faithfulness import MIB, faithfulness
from ..evaluate.intervals import Interval, faithfulness_intervals
from ..evaluate.run_circuits import Evaluation, evaluate_circuits
from ..method import check_is
from ..models import Model
from ..models.memory import BUDGET
from ..runtime.session import DEFAULT_SESSION, Session
from ..tasks import DEFAULT_METRIC, Metric, Task
from ..tasks.metrics import METRICS
from .completeness import completeness, draw_node_sets, inner_nodes
from .equivalence import ROUNDING, equivalence
from .independence import independence
from .minimality import draw_reference, minimality
from .necessity import OUTSIDE, necessity
from .random_circuits import draw_circuit, draw_matched, edge_graph
from .robustness import Condition, robustness
from .settings import CircuitTest, VerifySettings
from .sufficiency import MATCHED, sufficiency

FloatArray = NDArray[np.float64]
TESTS = (
    "sufficiency", "necessity", "minimality", "equivalence", "independence", "completeness", "robustness",
)  # fmt: skip
DEFAULTS = VerifySettings()
# Prompts of one length are a condition of robustness if there are at least this many.
MIN_GROUP = 10


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


@dataclass(frozen=True, eq=False)
class Verification:
    """What the tests say about a circuit.

    circuit              the tested circuit, pruned
    minimal              the circuit without its superfluous edges, pruned
    tests                the tests, in the order of `TESTS`
    faithfulness         of the circuit, with its interval
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
        return f"Verification({self.circuit.n_edges:,} edges; {verdicts})"


def plan_verification(
    circuit: Circuit, settings: VerifySettings = DEFAULTS, tests: Sequence[str] = TESTS
) -> VerificationPlan:
    """Draw the circuits that the tests need. Equal settings draw equal circuits.

    Parameters
    ----------
    circuit
        The circuit to test. It is pruned first.
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
        If the circuit is empty or full: it can not be compared with random circuits of its size.
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
    # A generator per purpose: what one test draws does not depend on which others are run.
    rngs = [np.random.default_rng([settings.seed, number]) for number in range(5)]
    groups: dict[str, list[Circuit]] = {"circuit": [pruned], "complement": [], "random": [], "matched": []}
    if {"necessity", "independence"} & set(tests):
        groups["complement"] = [pruned.complement()]
    if {"sufficiency", "necessity", "robustness"} & set(tests):
        groups["random"] = [draw_circuit(graph, pruned.n_edges, rngs[0]) for _ in range(n)]
    if "sufficiency" in tests:
        groups["matched"] = [draw_matched(pruned, rngs[1]) for _ in range(n)]
    if "necessity" in tests:
        groups["random complement"] = [random.complement() for random in groups["random"]]
        with suppress(InputError):  # hardly any path shares no edge with a large circuit
            outside = [draw_circuit(graph, pruned.n_edges, rngs[4], pruned) for _ in range(n)]
            groups["outside complement"] = [random.complement() for random in outside]
    if "minimality" in tests:
        groups["without edge"] = [pruned.without(edge) for edge in pruned.edges]
        groups["without node"] = [pruned.without(node) for node in inner_nodes(pruned)]
        groups["with path"], groups["without path edge"] = draw_reference(pruned, n, rngs[2])
    if "completeness" in tests and inner_nodes(pruned):
        sets, full = draw_node_sets(pruned, n, rngs[3]), Circuit.full(graph)
        groups["cut circuit"] = [pruned.without(nodes) for nodes in sets]
        groups["cut model"] = [full.without(nodes) for nodes in sets]
    return VerificationPlan(pruned, {name: tuple(circuits) for name, circuits in groups.items()})


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
        The circuit to test. It is pruned first.
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
        As in `evaluate_circuits`. With a store in the session, a stopped call resumes.

    Returns
    -------
    Verification
        A `CircuitTest` per test, the superfluous edges, and the circuit without them.

    Raises
    ------
    InputError
        If the circuit is one of another model, empty or full, or the metric of the model equals that of the empty
        circuit.

    Examples
    --------
    >>> result = edgewise.verify_circuit(model, test, circuit)
    >>> print(result.test("sufficiency").p, result.superfluous)
    """
    check_is("metric", Metric, metric)
    check_is("ablation", Ablation, ablation)
    edge_graph(circuit)  # raises for circuits of nodes and so on
    if circuit.graph != model.graph:
        raise InputError(f"the circuit is one of {circuit.graph}, but model {model.name!r} has {model.graph}")
    started = time.perf_counter()
    plan = plan_verification(circuit, settings, tests)
    with session.reporting() as session:
        how = {"batch_size": batch_size, "memory": memory, "session": session}
        ran = evaluate_circuits(model, task, plan.circuits, metric, ablation, **how)  # type: ignore[arg-type]
        span = float(ran.full.mean() - ran.empty.mean())
        faithfulness(0.0, ran.full.mean(), ran.empty.mean())  # raises if it is undefined
        stops = list(accumulate((len(group) for group in plan.groups.values()), initial=0))
        places = {name: slice(*ends) for name, ends in zip(plan.groups, pairwise(stops), strict=True)}
        values = {name: ran.values[place] for name, place in places.items()}
        results = list(_test_all(plan, values, ran, span, settings, tests))
        if "robustness" in tests:
            conditions = list(_split_by_length(task, ran, values))
            conditions += _run_conditions(model, task, plan, metric, ablation, other_tasks or {}, how)
            results.append(_test_robustness(conditions, settings))
        superfluous: list[str] = next((t.details["superfluous"] for t in results if t.name == "minimality"), [])
        minimal = plan.circuit.without(superfluous).prune()
        minimal_faithfulness = None
        if superfluous:
            rerun = evaluate_circuits(model, task, [minimal], metric, ablation, **how)  # type: ignore[arg-type]
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


def distance(first: FloatArray, second: FloatArray, span: float) -> FloatArray:
    """Return the mean over examples of |first - second| as a share of the span; rounding errors are 0.

    first, second  [..., example]
    """
    result = np.abs(first - second).mean(-1) / abs(span)
    return np.where(result < ROUNDING, 0.0, result)


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
        yield equivalence(own, full, span, settings)
    if "independence" in tests:
        yield independence(values["complement"][0], full, ran.empty, settings)
    if "cut circuit" in values:
        yield completeness(values["cut circuit"].mean(1), values["cut model"].mean(1), span, settings)


def _split_by_length(task: Task, ran: Evaluation, values: Mapping[str, FloatArray]) -> Iterator[Condition | str]:
    """Yield conditions: the prompts of each length, which are those of a few templates. Nothing if all are equal."""
    lengths = np.array([example.length for example in task.examples])
    sizes, counts = np.unique(lengths, return_counts=True)
    for size in sizes[counts >= MIN_GROUP].tolist() if len(sizes) > 1 else []:
        chosen = lengths == size
        own, random = values["circuit"][0, chosen], values["random"][:, chosen]
        yield _condition(f"prompts of {size} tokens", own, random, ran.full[chosen], ran.empty[chosen])


def _run_conditions(
    model: Model,
    task: Task,
    plan: VerificationPlan,
    metric: Metric,
    ablation: Ablation,
    other_tasks: Mapping[str, Task],
    how: Mapping[str, Any],
) -> Iterator[Condition | str]:
    """Yield the circuit under other ablations, other metrics and on other examples."""
    circuits = [plan.circuit, *plan.groups["random"]]
    jobs = [(f"ablation: {name}", task, metric, kind()) for name, kind in ABLATIONS.items() if name != ablation.name]
    metrics = {each.name: each for each in (kind().for_task(task) for kind in METRICS.values())}
    own = metric.for_task(task).name
    jobs += [(f"metric: {name}", task, each, ablation) for name, each in metrics.items() if name != own]
    jobs += [(f"examples: {name}", examples, metric, ablation) for name, examples in other_tasks.items()]
    for name, examples, each_metric, each_ablation in jobs:
        ran = evaluate_circuits(model, examples, circuits, each_metric, each_ablation, **how)
        yield _condition(name, ran.values[0], ran.values[1:], ran.full, ran.empty)


def _condition(name: str, own: FloatArray, random: FloatArray, full: FloatArray, empty: FloatArray) -> Condition | str:
    """Return a condition from values [example] and [circuit, example]; its name if faithfulness is undefined."""
    own_faithfulness = float(MIB.compute(own.mean(), full.mean(), empty.mean()))
    if np.isnan(own_faithfulness):
        return name
    span = float(full.mean() - empty.mean())
    wins = int((distance(own, full, span) < distance(random, full, span)).sum())
    return Condition(name, own_faithfulness, wins, len(random))


def _test_robustness(conditions: Sequence[Condition | str], settings: VerifySettings) -> CircuitTest:
    defined = [condition for condition in conditions if isinstance(condition, Condition)]
    return robustness(defined, [name for name in conditions if isinstance(name, str)], settings)
