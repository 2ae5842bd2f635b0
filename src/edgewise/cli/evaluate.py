"""edgewise evaluate: measure how faithful circuits are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ..core.circuit import Circuit, masks_digest
from ..errors import InputError
from ..evaluate.faithfulness import Faithfulness
from ..evaluate.intervals import CONFIDENCE, faithfulness_intervals
from ..graph import Graph, SpanGraph
from ..io.formats import read_edge_file
from ..models import DEMO
from ..recipes.run_info import ModelAccuracy, warn_of_failure
from ..report.circuit_summary import list_circuits
from ..report.formatting import format_interval, format_number
from ..report.tables import INTERVAL, number_tables
from ..results import is_result, read_result
from ..tasks.checks import warn_of_sample
from . import options
from .console import note, out, print_json, print_tables, say, show_forecast
from .options import option
from .repeat import JsonOptions, describe_examples, made_from, resume
from .show import weighted_edges

if TYPE_CHECKING:
    from ..evaluate.run_circuits import Evaluation

# Circuits that every graph has.
NAMED_CIRCUITS = {"full": Circuit.full, "empty": Circuit.empty}


def command(
    *,
    circuits: list[Path] = typer.Argument(
        ..., help="Circuits: files (npz, EAP-IG json or pt), folders of these, `full` or `empty`."
    ),
    model: options.RunModelOptions,
    task: options.RunTaskOptions,
    evaluation: options.EvaluationOptions,
    machine: options.MachineOptions,
    split: str = options.EVALUATED_SPLIT,
    level: str | None = options.FILE_LEVEL,
    batch_size: int | None = options.BATCH_SIZE,
    per_example: bool = option(False, "Output", "With --json or --out: include the metric of every example."),
    output: JsonOptions,
) -> None:
    """Run circuits on a task: edges outside a circuit carry the corrupted (or zero, or mean) activation.

    Circuits of a run are evaluated on the run's model and task, unless others are given. Faithfulness is printed with
    its interval over resamples of the examples. With --out, run the same command again to resume a stopped one.
    """
    from ..evaluate.run_circuits import check_graph, evaluate_circuits
    from ..recipes.forecast import EvaluateWork

    model, task = complete_options(circuits, model, task)
    output.check([*circuits, model.model, task.task], per_example)
    if (file := output.out_file) is not None and file.suffix.lower() not in ("", ".json"):
        raise InputError(f"the result is written as JSON, but {file} ends in {file.suffix}; use .json")
    metric, ablation, memory = evaluation.build_metric(), evaluation.build_ablation(), machine.memory_bytes
    definition = evaluation.build_faithfulness()
    paths = [file for path in circuits for file in (list_circuits(path) if path.is_dir() else [path])]
    files = {path: _load(path, level) for path in paths if str(path) not in NAMED_CIRCUITS}
    with machine.session(output.out_file, output.dry_run) as session:
        loaded = model.load()
        for path, circuit in files.items():
            options.check_model(path, circuit, loaded)
        opened = [files[path] if path in files else NAMED_CIRCUITS[str(path)](loaded.graph) for path in paths]
        examples = task.load_part(loaded, split)
        for graph in dict.fromkeys(circuit.graph for circuit in opened):
            check_graph(graph, loaded, examples)
        has_spans = any(isinstance(circuit.graph, SpanGraph) for circuit in opened)
        metric = metric.for_task(examples)
        warn_of_sample(examples)
        work = [EvaluateWork(examples, evaluation.build_forecast_settings(batch_size, memory), tuple(opened))]
        if show_forecast(loaded, work, session, output.dry_run, output.json, output.is_made):
            return
        inputs = made_from(
            **describe_examples(loaded, task.task, examples), metric=metric, ablation=ablation, faithfulness=definition,
            circuits=[str(path) for path in paths], edges=masks_digest(opened), per_example=per_example,
            batch_size=batch_size, memory=memory, positions=[examples.span_digest] if has_spans else None,
        )  # fmt: skip
        record = output.read(inputs)
        if record is None:
            with resume(session) as session:
                ran = evaluate_circuits(
                    loaded, examples, opened, metric, ablation, batch_size=batch_size, memory=memory, session=session
                )
            if metric.is_difference:
                beats = float((ran.full > 0).mean())
                warn_of_failure(ModelAccuracy(beats, beats))
            about = {"model": model.model, "task": task.task, "split": examples.split, "examples": len(examples)}
            record = output.write(about | _record(paths, opened, ran, definition, per_example), inputs)
    print_json(record) if output.json else _show(record, definition)


def complete_options(
    circuits: Sequence[Path], model: options.RunModelOptions, task: options.RunTaskOptions
) -> tuple[options.RunModelOptions, options.RunTaskOptions]:
    """Return the options with the model and the task of the circuits' run in place of those that were left out."""
    if model.model and task.task:
        return model, task
    folders = [path if path.is_dir() else path.parent for path in circuits]
    folders = [folder.parent if folder.name == "circuits" else folder for folder in folders]
    runs = [read_result(folder).run for folder in dict.fromkeys(folders) if is_result(folder)]
    taken = {}
    if not model.model and runs:
        taken["model"] = _common("model", [run.model for run in runs])
    if not task.task and runs:
        # The run's record has a task file's stem; what the command was called with has its path.
        taken["task"] = _common("task", [str(run.made_from.get("task", run.task)) for run in runs])
        records = [run.made_from for run in runs]  # from files that may have been changed
        prompts = {(r.get("chat") is True, "token" if r.get("spans") == "token" else None) for r in records}
        if len(prompts) > 1:
            raise InputError(
                "the circuits are from runs with different --chat or --spans; give --task, and these options"
            )
        ((chat, spans),) = prompts
        task = replace(task, chat=task.chat or chat, spans=task.spans or spans)
    if taken:
        words = [f"--{kind} {name}" for kind, name in taken.items()]
        if "task" in taken:
            words += ["--chat"] * task.chat + ([] if task.spans is None else [f"--spans {task.spans}"])
        note(f"{' '.join(words)}, as in the run of the circuits")
    model_name = model.model or taken.get("model", DEMO)
    task_name = task.task or taken.get("task", "")
    if not task_name:
        task_name = options.default_task(model_name)
        note(f"no --task was given, so circuits are evaluated on {task_name}")
    return replace(model, model=model_name), replace(task, task=task_name)


def _common(kind: str, names: Sequence[str]) -> str:
    """Return the name that all runs have."""
    distinct = list(dict.fromkeys(names))
    if len(distinct) > 1:
        raise InputError(f"the circuits are from runs of several {kind}s ({', '.join(distinct)}); give --{kind}")
    return distinct[0]


def _load(path: Path, level: str | None) -> Circuit:
    file = read_edge_file(path, level)
    if file.mask is not None and not file.has_circuit:
        raise InputError(
            f"{path} has no {file.graph.unit} in its circuit: is it a file of scores? Select from it first"
        )
    return Circuit(file.graph, file.require_mask())


def _record(
    paths: Sequence[Path], circuits: Sequence[Circuit], result: Evaluation, definition: Faithfulness, per_example: bool
) -> dict[str, Any]:
    """Return the results of all circuits as plain data."""
    intervals = faithfulness_intervals(result.values, result.full, result.empty, definition)
    rows: list[dict[str, Any]] = [
        {
            "circuit": str(path),
            "edges": circuit.prune().n_edges,
            **({} if isinstance(circuit.graph, Graph) else {"unit": circuit.graph.unit}),
            **weighted_edges(circuit.prune()),
            "metric": float(values.mean()),
            "faithfulness": interval.estimate,
            "interval": [interval.low, interval.high],
        }
        | ({"per_example": values.tolist()} if per_example else {})
        for path, circuit, interval, values in zip(paths, circuits, intervals, result.values, strict=True)
    ]
    record = {
        "metric": result.metric.name,
        "ablation": result.ablation.name,
        "faithfulness": definition.name,
        "confidence": CONFIDENCE,
        "full": float(result.full.mean()),
        "empty": float(result.empty.mean()),
        "circuits": rows,
    }
    if per_example:
        record |= {"full_per_example": result.full.tolist(), "empty_per_example": result.empty.tolist()}
    return record


def _show(record: dict[str, Any], definition: Faithfulness) -> None:
    has_weights = any("weighted_edges" in row for row in record["circuits"])
    rows = [
        (
            row["circuit"],
            row["edges"],
            *([format_number(row.get("weighted_edges", row["edges"]), digits=1)] if has_weights else []),
            format_number(row["metric"]),
            format_number(row["faithfulness"]),
            format_interval(*row["interval"]),
        )
        for row in record["circuits"]
    ]
    # Columns are narrow: `pairs` for (edge, span) pairs.
    units = dict.fromkeys(f"{row.get('unit', 'edge').split()[-1]}s" for row in record["circuits"])
    sizes = (" or ".join(units), *["weighted edges"] * has_weights)
    print_tables(number_tables(("circuit", *sizes, "metric", "faithfulness", INTERVAL), rows, out.width))
    say(f"metric: {record['metric']}; faithfulness: {definition.summary}")
    say(f"examples: {record['examples']} of {record['task']} ({record['split']}), {record['ablation']}")
    say(f"metric of the model: {format_number(record['full'])}; of the empty circuit: {format_number(record['empty'])}")
