"""edgewise verify: test whether a circuit is real."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import typer

from ..core.circuit import Circuit, masks_digest
from ..errors import InputError
from ..evaluate import ABLATIONS, DEFAULT_SHARE, size_to_edges
from ..graph import SpanGraph
from ..io.atomic import check_file, check_folder
from ..io.formats import check_holds
from ..recipes import Discovery, Settings
from ..report import verification
from ..report.circuit_summary import open_run_circuit
from ..tasks import METRICS, SPLITS, Task, is_task_file
from ..tasks.known import KNOWN
from . import options
from .console import explain, note, out, print_json, print_tables, say, show_forecast
from .options import option
from .repeat import KEY, check_same, describe_examples, made_from, name_damaged_file, read_record, resume
from .run_options import find_runs

if TYPE_CHECKING:
    from ..models import Model
    from ..recipes.forecast import Work
    from ..runtime.session import Session
    from ..verify import VerifySettings
    from ..verify.random_circuits import VerificationPlan

ALL = "all"
# The number of other ablations and metrics of the robustness test: without its own, and auto is one of the others.
OTHER_CONDITIONS = len(ABLATIONS) - 1 + len(METRICS) - 2
# Forecasts assume that random circuits run on this share of the examples. The better the circuit, the fewer are needed.
RANDOM_SHARE = 0.25
# The tests of a run's circuit. With 60 draws and 80 examples every test can reach significance. 1e12 operations take
# about ten seconds on two cores.
QUICK_CIRCUITS, QUICK_EXAMPLES, QUICK_OPERATIONS = 60, 80, 1e12


def command(
    *,
    circuit: Path = typer.Argument(
        ..., help="A circuit (npz, EAP-IG json or pt), a folder made by `edgewise run`, or known/NAME."
    ),
    chosen: options.CircuitOptions,
    model: options.ModelOptions,
    task: options.TaskOptions,
    machine: options.MachineOptions,
    split: str = options.EVALUATED_SPLIT,
    tests: str = option(
        ALL,
        "Evaluation",
        "Tests, with commas: sufficiency, necessity, minimality, equivalence, independence, completeness, robustness.",
    ),
    circuits: int = option(
        100, "Evaluation", "Number of random circuits and node sets; minimality adds 4 times as many paths.", min=1
    ),
    quantile: float = option(0.9, "Evaluation", "The share of random circuits that the circuit must beat."),
    epsilon: float = option(0.1, "Evaluation", "Equivalence: allowed distance of the share of wins from 1/2."),
    tolerance: float = option(0.0, "Evaluation", "Equivalence: differences up to this share of the range are ties."),
    alpha: float = option(0.05, "Evaluation", "Significance level."),
    measured: options.MetricOptions,
    batch_size: int | None = options.BATCH_SIZE,
    minimal: Path | None = option(None, "Output", "Write the circuit without superfluous edges to this file."),
    out_folder: Path | None = option(None, "Output", "Write verification.json, report.html and a figure.", "--out"),
    overwrite: bool = options.OVERWRITE,
    dry_run: bool = options.DRY_RUN,
    json: bool = options.JSON,
    given_options: options.GivenOptions,
) -> None:
    """Test whether a circuit is real, with a null hypothesis and a p-value for each test.

    Sufficiency: is it closer to the model than random circuits of its size? Necessity: does cutting it change the model
    more than cutting those? Minimality: which edges are superfluous? Equivalence: does it beat the model on half of the
    examples? Independence: does the rest of the model still know the answer? Completeness: do circuit and model respond
    alike to knock-outs? Robustness: does it hold under other ablations, metrics and examples?

    A circuit of a run is tested as in the run (model, task, seed, metric, ablation and so on), unless another option is
    given. Use examples that the circuit was not selected on. With --out, run the same command again to resume a stopped
    one.
    """  # fmt: skip
    from ..evaluate.run_circuits import check_graph
    from ..verify import TESTS, VerifySettings, plan_verification, verify_circuit

    if "model" not in given_options and (name := circuit.as_posix()) in KNOWN:
        model = replace(model, model=name)
        task = task if "task" in given_options else replace(task, task=name)
    runs = find_runs([circuit], given_options)
    model, task, measured = runs.complete(model, task, measured)
    has_result = not overwrite and out_folder is not None and (out_folder / verification.RECORD).is_file()
    if out_folder is not None:
        check_folder(out_folder, overwrite or has_result, verification.FILE_PATTERN)
    if minimal is not None:
        check_file(minimal, overwrite, [circuit, model.model, task.task])
    settings = VerifySettings(circuits, quantile, epsilon, tolerance, alpha=alpha, seed=task.seed)
    test_names = TESTS if tests.strip().lower() == ALL else tuple(name.strip().lower() for name in tests.split(","))
    if minimal is not None and "minimality" not in test_names:
        raise InputError("--minimal needs the test of minimality; add it to --tests")
    metric, ablation, memory = measured.metric, measured.ablation, machine.memory_bytes
    opened = chosen.open(circuit)
    options.check_edges(circuit, opened.circuit, has_positions=True)
    if minimal is not None:
        check_holds(minimal, opened.circuit.graph)
    has_spans = isinstance(opened.circuit.graph, SpanGraph)
    plan = plan_verification(opened.circuit, settings, test_names)
    with machine.session(out_folder, dry_run) as session:
        loaded = model.load()
        options.check_model(circuit, opened.circuit, loaded)
        runs.check_weights(loaded)
        examples = runs.load_examples(task, loaded, split)
        check_graph(opened.circuit.graph, loaded, examples)
        others: dict[str, Task] = {}
        if "robustness" in test_names:  # the other splits, as far as the task has them
            is_file = is_task_file(task.task)
            names = [name for name in SPLITS if name != split and (not is_file or task.has_splits(name))]
            others = {name: task.load(loaded, name) for name in names}
        work = list_work(plan, examples, measured.build_forecast_settings(batch_size, memory), others, test_names)
        if show_forecast(loaded, work, session, dry_run, json, has_result):
            return
        inputs = made_from(
            **describe_examples(loaded, task.task, examples), others={n: t.digest for n, t in others.items()},
            circuit=masks_digest([plan.circuit]), settings=settings, tests=test_names, metric=metric, ablation=ablation,
            batch_size=batch_size, memory=memory, positions=[examples.span_digest] if has_spans else None,
        )  # fmt: skip
        if has_result and out_folder is not None:
            record = read_record(out_folder / verification.RECORD)
            check_same(out_folder, record.get(KEY), inputs)
        else:
            with resume(session) as session:
                result = verify_circuit(
                    loaded, examples, opened.circuit, settings, tests=test_names, metric=metric, ablation=ablation,
                    other_tasks=others, batch_size=batch_size, memory=memory, session=session,
                )  # fmt: skip
            record = {"circuit": opened.name} | result.record() | {KEY: inputs}
            if out_folder is not None:
                verification.write_verification(out_folder, record, opened.name, overwrite)
        if minimal is not None:
            with name_damaged_file(out_folder):
                smaller = plan.circuit.without(record["superfluous"]).prune()
            smaller.save(minimal, opened.score, {"made_by": "edgewise verify", "circuit": str(circuit)})
    if json:
        print_json(record)
        return
    with name_damaged_file(out_folder):
        print_tables(verification.verdict_tables(record, out.width))
        if conditions := verification.condition_tables(record, out.width):
            print_tables(conditions)
            explain(verification.CONDITIONS_LEGEND)
        for line in verification.summary_lines(record):
            say(line)
    explain(
        "statistic: a share: of random circuits that the circuit beats (sufficiency, necessity), of superfluous edges "
        "(minimality), of examples on which it beats the model (equivalence), of node sets (completeness), of "
        "conditions (robustness); for independence, HSIC"
    )
    if minimal is not None:
        say(f"wrote the circuit without superfluous edges to {minimal}")
    if out_folder is not None:
        say(f"wrote {out_folder}: report.html explains every test")


def list_work(
    plan: VerificationPlan, examples: Task, settings: Settings, others: Mapping[str, Task], tests: Sequence[str]
) -> list[Work]:
    """Return the parts of a verification whose cost is forecast."""
    from ..recipes.forecast import EvaluateWork

    def for_random(task: Task) -> Task:
        """Return as many examples as random circuits are expected to run on."""
        return task.head(math.ceil(RANDOM_SHARE * len(task)))

    on_all, random = plan.split()
    circuits = tuple(circuit for group in on_all.values() for circuit in group)
    work: list[Work] = [EvaluateWork(examples, settings, circuits, name="verify")]
    if random:
        work.append(EvaluateWork(for_random(examples), settings, random, name="verify"))
    if "robustness" in tests:
        again = (plan.circuit, *plan.groups["random"])
        work.append(EvaluateWork(for_random(examples), settings, again, name="robustness", times=OTHER_CONDITIONS))
        work += [EvaluateWork(for_random(other), settings, again, name="robustness") for other in others.values()]
    return work


def show_verdicts(record: dict[str, Any]) -> None:
    """Print the tests of the circuit of a run: a line per test."""
    print_tables(verification.verdict_tables(record, out.width))
    for line in verification.summary_lines(record):
        say(line)
    explain("tests of the circuit: `edgewise verify --help` says what they are, verification.html has the details")


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
