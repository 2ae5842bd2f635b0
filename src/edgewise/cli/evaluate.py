"""edgewise evaluate: measure how faithful circuits are."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ..core.circuit import Circuit, masks_digest
from ..errors import InputError
from ..evaluate import CONFIDENCE, Faithfulness, faithfulness_intervals
from ..graph import Graph, SpanGraph
from ..io.formats import read_edge_file
from ..recipes.run_info import ModelAccuracy, warn_of_failure
from ..report.circuit_summary import list_circuits
from ..report.formatting import format_interval, format_number
from ..report.tables import INTERVAL, number_tables
from . import options
from .console import out, print_json, print_tables, say, show_forecast
from .options import option
from .repeat import JsonOptions, describe_examples, made_from, name_damaged_file, resume
from .run_options import find_runs
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
    model: options.ModelOptions,
    task: options.TaskOptions,
    evaluation: options.EvaluationOptions,
    machine: options.MachineOptions,
    split: str = options.EVALUATED_SPLIT,
    level: str | None = options.FILE_LEVEL,
    batch_size: int | None = options.BATCH_SIZE,
    per_example: bool = option(False, "Output", "With --json or --out: include the metric of every example."),
    output: JsonOptions,
    given_options: options.GivenOptions,
) -> None:
    """Run circuits on a task: edges outside a circuit carry the corrupted (or zero, or mean) activation.

    Circuits of a run are evaluated as in the run (model, task, seed, metric, ablation and so on), unless another option
    is given. Faithfulness is printed with its interval over resamples of the examples. With --out, run the same command
    again to resume a stopped one.
    """
    from ..evaluate.run_circuits import check_graph, evaluate_circuits
    from ..recipes.forecast import EvaluateWork

    runs = find_runs(circuits, given_options)
    model, task, evaluation = runs.complete(model, task, evaluation)
    output.check([*circuits, model.model, task.task], per_example)
    if (file := output.out_file) is not None and file.suffix.lower() not in ("", ".json"):
        raise InputError(f"the result is written as JSON, but {file} ends in {file.suffix}; use .json")
    ablation, definition, memory = evaluation.ablation, evaluation.faithfulness, machine.memory_bytes
    paths = [file for path in circuits for file in (list_circuits(path) if path.is_dir() else [path])]
    files = {path: _load(path, level) for path in paths if str(path) not in NAMED_CIRCUITS}
    with machine.session(output.out_file, output.dry_run) as session:
        loaded = model.load()
        if "model" not in given_options:
            runs.check_weights(loaded)
        for path, circuit in files.items():
            options.check_model(path, circuit, loaded)
        # `full` and `empty` have the units of the other circuits, so that their sizes can be compared.
        graphs = list(dict.fromkeys(circuit.graph for circuit in files.values()))
        graph = graphs[0] if len(graphs) == 1 else loaded.graph
        opened = [files[path] if path in files else NAMED_CIRCUITS[str(path)](graph) for path in paths]
        examples = runs.load_examples(task, loaded, split)
        for graph in dict.fromkeys(circuit.graph for circuit in opened):
            check_graph(graph, loaded, examples)
        has_spans = any(isinstance(circuit.graph, SpanGraph) for circuit in opened)
        metric = evaluation.metric.for_task(examples)
        work = [EvaluateWork(examples, evaluation.build_forecast_settings(batch_size, memory), tuple(opened))]
        if show_forecast(loaded, work, session, output.dry_run, output.json, output.has_result):
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
    with name_damaged_file(output.out_file):
        print_json(record) if output.json else _show(record, definition)


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
