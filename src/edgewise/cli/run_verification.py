"""The tests of the circuit of a run: by default few draws and examples, and only if that takes seconds."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core.circuit import Circuit
from ..errors import InputError
from ..evaluate import DEFAULT_SHARE, size_to_edges
from ..evaluate.ablations import ABLATIONS
from ..recipes.discovery import Discovery
from ..recipes.settings import Settings
from ..report.circuit_summary import open_run_circuit
from ..tasks import Task
from ..tasks.metrics import METRICS
from .console import note
from .verify import list_work

if TYPE_CHECKING:
    from ..models import Model
    from ..recipes.forecast import Work
    from ..runtime.session import Session
    from ..verify import VerifySettings
    from ..verify.verify_circuit import VerificationPlan

# With 60 draws and 80 examples every test can reach significance. 1e12 operations take about ten seconds on two cores.
QUICK_CIRCUITS, QUICK_EXAMPLES, QUICK_OPERATIONS = 60, 80, 1e12


def verify_run(
    model: Model, test: Task, discovery: Discovery, seed: int, is_forced: bool, session: Session
) -> dict[str, Any] | None:
    """Return the tests of the circuit that the run exports by default; None if it isn't tested."""
    from ..verify import verify_circuit

    opened, settings = open_run_circuit(discovery), discovery.settings
    try:
        planned = _plan_tests(model, test, opened.circuit, seed, is_forced)
        if planned is None:
            return None
        verify_settings, examples, _ = planned
        result = verify_circuit(
            model, examples, opened.circuit, verify_settings, metric=settings.metric, ablation=settings.ablation,
            batch_size=settings.batch_size, memory=settings.memory, session=session,
        )  # fmt: skip
    except InputError as error:
        if is_forced:
            note(f"the circuit is not tested: {error}")
        return None
    return {"circuit": opened.name} | result.record()


def forecast_tests(model: Model, test: Task, settings: Settings, seed: int, is_forced: bool) -> list[Work]:
    """Return the tests of the circuit of a run as parts whose cost is forecast; none if it isn't tested.

    The circuit isn't known yet. A random one of the default size stands for it.
    """
    if settings.level != "edge" or (settings.positions and not is_forced):
        return []
    from ..verify import TESTS
    from ..verify.random_circuits import draw_circuit

    with suppress(InputError):  # as after the run, a circuit that can't be tested isn't
        graph = settings.graph(model.graph, test)
        n_edges = max(1, size_to_edges(DEFAULT_SHARE, graph.n_edges))
        circuit = draw_circuit(graph, n_edges, np.random.default_rng(seed))
        planned = _plan_tests(model, test, circuit, seed, is_forced)
        if planned is not None:
            _, examples, plan = planned
            return list_work(plan, examples, settings, {}, TESTS)
    return []


def _plan_tests(
    model: Model, test: Task, circuit: Circuit, seed: int, is_forced: bool
) -> tuple[VerifySettings, Task, VerificationPlan] | None:
    """Return how a circuit is tested, and on which examples; None if it isn't.

    If the tests are not forced, there are few draws and examples, and nothing is tested if that could take more than
    seconds, or if there are too few examples for all tests.
    """
    from ..verify import VerifySettings, plan_verification

    settings = VerifySettings(seed=seed)
    if is_forced:
        return settings, test, plan_verification(circuit, settings)
    if len(test) < QUICK_EXAMPLES or circuit.graph != model.graph or model.module is None:
        return None
    settings, test = replace(settings, n_circuits=QUICK_CIRCUITS), test.head(QUICK_EXAMPLES)
    # Roughly the operations of the tests: unlike a time, their number is the same in every run.
    operations_per_pass = 2.0 * sum(weight.numel() for weight in model.module.parameters()) * len(test) * test.longest
    conditions = len(ABLATIONS) + len(METRICS)  # of robustness, each with all random circuits
    passes = conditions * (1 + QUICK_CIRCUITS)
    if passes * operations_per_pass > QUICK_OPERATIONS:  # circuits of a large model take long to draw
        return None
    plan = plan_verification(circuit, settings)
    # Circuits with an added path share most of their nodes: four of them take about as long as another circuit.
    n_with_path = sum(len(group) for name, group in plan.groups.items() if "path" in name)
    passes += len(plan.circuits) - n_with_path + n_with_path // 4
    return None if passes * operations_per_pass > QUICK_OPERATIONS else (settings, test, plan)
