"""edgewise knock-out: cut nodes and edges from the model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ..core.circuit import Circuit
from ..errors import InputError
from ..evaluate.intervals import CONFIDENCE
from ..report.circuit_summary import open_circuit
from ..report.formatting import format_interval, format_number
from ..report.tables import INTERVAL, number_tables
from . import options
from .console import explain, out, print_json, print_tables, say, show_forecast
from .options import option
from .repeat import JsonOptions, describe_examples, made_from, name_damaged_file, resume
from .run_options import find_runs

if TYPE_CHECKING:
    from ..verify import KnockOuts

MAX_NAMES = 3


def command(
    *,
    names: list[str] | None = typer.Argument(
        None, help='Nodes such as a9.h9, m0 or input, and edges such as "m0->a5.h5<q>"; all are cut at once.'
    ),
    model: options.ModelOptions,
    task: options.TaskOptions,
    machine: options.MachineOptions,
    each: bool = option(False, "Circuit", "Cut one at a time: the named ones, the edges of --circuit, or all nodes."),
    circuit: Path | None = option(None, "Circuit", "With --each: a circuit or result folder whose edges are cut."),
    split: str = options.EVALUATED_SPLIT,
    measured: options.MetricOptions,
    batch_size: int | None = options.BATCH_SIZE,
    top: int = option(20, "Output", "Number of knock-outs to list, from the largest effect.", min=1),
    per_example: bool = option(False, "Output", "With --json or --out: include the effect on every example."),
    output: JsonOptions,
    given_options: options.GivenOptions,
) -> None:
    """Cut nodes and edges from the model, and measure how far the metric falls.

    A cut edge carries the corrupted (or zero, or mean) activation. Cutting a node cuts all edges out of it. The effect
    is the metric of the model minus that of the model without what is cut, with its interval over resamples of the
    examples. The edges of a run's circuit are cut as in the run (model, task, seed, metric, ablation and so on), unless
    another option is given. With --out, run the same command again to resume a stopped one.
    """
    from ..recipes.forecast import EvaluateWork
    from ..verify.knock_outs import knock_out

    if not names and not each:
        raise InputError("nothing is to be cut; give nodes or edges, or --each to cut one node at a time")
    if circuit is not None and (names or not each):
        raise InputError("--circuit says which edges --each cuts; give --each --circuit CIRCUIT, and no names")
    runs = find_runs([] if circuit is None else [circuit], given_options)
    model, task, measured = runs.complete(model, task, measured)
    output.check([model.model, task.task, circuit], per_example)
    metric, ablation, memory = measured.metric, measured.ablation, machine.memory_bytes
    opened = None if circuit is None else open_circuit(circuit).circuit
    if circuit is not None and opened is not None:
        options.check_edges(circuit, opened)
    with machine.session(output.out_file, output.dry_run) as session:
        loaded = model.load()
        if circuit is not None and opened is not None:
            options.check_model(circuit, opened, loaded)
            if "model" not in given_options:
                runs.check_weights(loaded)
            if not opened.n_edges:
                raise InputError(f"{circuit} has no edges to cut")
        sets = [tuple(names or ())]
        if each:
            singles = names or (loaded.graph.source_names if opened is None else opened.edges)
            sets = [(name,) for name in singles]
        circuits = tuple(Circuit.full(loaded.graph).without(cut) for cut in sets)
        examples = runs.load_examples(task, loaded, split)
        work = [EvaluateWork(examples, measured.build_forecast_settings(batch_size, memory), circuits)]
        if show_forecast(loaded, work, session, output.dry_run, output.json, output.has_result):
            return
        inputs = made_from(
            **describe_examples(loaded, task.task, examples), metric=metric, ablation=ablation, sets=sets,
            per_example=per_example, batch_size=batch_size, memory=memory,
        )  # fmt: skip
        record = output.read(inputs)
        if record is None:
            with resume(session) as session:
                ran = knock_out(
                    loaded, examples, [name for cut in sets for name in cut], metric, ablation,
                    each=each, batch_size=batch_size, memory=memory, session=session,
                )  # fmt: skip
            about = {"model": model.model, "task": task.task, "split": examples.split, "examples": len(examples)}
            record = output.write(about | _record(ran, per_example), inputs)
    with name_damaged_file(output.out_file):
        print_json(record) if output.json else _show(record, top)


def _record(ran: KnockOuts, per_example: bool) -> dict[str, Any]:
    """Return all knock-outs as plain data, from the largest effect."""
    shares, intervals, effects = ran.shares, ran.intervals(), ran.effects
    rows = [
        {
            "cut": list(ran.names[row]),
            "effect": intervals[row].estimate,
            "interval": [intervals[row].low, intervals[row].high],
            "share": None if shares[row] != shares[row] else float(shares[row]),
        }
        | ({"per_example": effects[row].tolist()} if per_example else {})
        for row in ran.order.tolist()
    ]
    return {
        "metric": ran.metric.name,
        "ablation": ran.ablation.name,
        "confidence": CONFIDENCE,
        "full": float(ran.full.mean()),
        "empty": float(ran.empty.mean()),
        "knock_outs": rows,
    }


def _show(record: dict[str, Any], top: int) -> None:
    knock_outs = record["knock_outs"]
    rows = []
    for row in knock_outs[:top]:
        more = len(row["cut"]) - MAX_NAMES
        names = ", ".join(row["cut"][:MAX_NAMES]) + (f" and {more} more" if more > 0 else "")
        low, high = row["interval"]
        effect, interval = format_number(row["effect"], signed=True), format_interval(low, high, signed=True)
        rows.append((names, effect, interval, "-" if row["share"] is None else f"{100 * row['share']:.1f} %"))
    print_tables(number_tables(("cut", "effect", INTERVAL, "share"), rows, out.width))
    if len(knock_outs) > top:
        explain(f"the {top} largest effects of {len(knock_outs):,}; --top shows more")
    say(f"metric: {record['metric']}, {format_number(record['full'])} for the model and "
        f"{format_number(record['empty'])} for the empty circuit")  # fmt: skip
    explain("effect: how far the metric falls; share: of the difference between the model and the empty circuit")
    say(f"examples: {record['examples']} of {record['task']} ({record['split']}), {record['ablation']}")
