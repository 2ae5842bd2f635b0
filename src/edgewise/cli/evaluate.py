"""edgewise evaluate: how faithful are these circuits?"""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import options
from .console import (
    note,
    open_model,
    open_workers,
    out,
    print_json,
    print_tables,
    say,
    warn_of_copies,
    warn_of_few,
    watching,
)
from .forecast import show_forecast

if TYPE_CHECKING:
    from ..core.circuit import Circuit
    from ..evaluate import Evaluation, Faithfulness

NAME = "evaluate"


def command(
    circuits: Annotated[
        list[Path], typer.Argument(help="Circuit files (npz, EAP-IG json or pt), or `full`, or `empty`.")
    ],
    model: options.ModelName = "demo",
    task: options.TaskName = "ioi",
    split: Annotated[str, typer.Option(help="train, validation or test.")] = "test",
    examples: options.Examples = None,
    metric: options.Metric = "logit-difference",
    ablation: options.Ablation = "patching",
    faithfulness: options.Faithfulness = "mib",
    per_example: Annotated[
        bool, typer.Option("--per-example", help="With --json: the metric of every example too.")
    ] = False,
    device: options.Device = "auto",
    dtype: options.Dtype = "auto",
    bos: options.Bos = "auto",
    trust_remote_code: options.TrustRemoteCode = False,
    no_cache: options.NoCache = False,
    batch_size: options.BatchSize = None,
    memory: options.Memory = "1GB",
    engine: options.Engine = "local",
    address: options.Address = None,
    workers: options.Workers = None,
    seed: options.Seed = 0,
    out_file: Annotated[Path | None, typer.Option("--out", help="Write the outcome to this JSON file, too.")] = None,
    overwrite: options.Overwrite = False,
    dry_run: options.DryRun = False,
    json: options.Json = False,
) -> None:
    """Run circuits on a task: edges outside a circuit carry the corrupted (or zero, or mean) activation.

    Faithfulness comes with its interval over resamples of the examples. With --out, a command that was stopped goes on
    from the batches that it had finished.
    """
    from ..core.circuit import Circuit
    from ..errors import InputError
    from ..evaluate import ABLATIONS, CONFIDENCE, FAITHFULNESS, evaluate_circuits
    from ..io.atomic import check_file, write_json
    from ..method import choose
    from ..models import ModelSource
    from ..models.memory import parse_bytes
    from ..recipes.forecast import EvaluateWork, forecast
    from ..recipes.settings import Settings
    from ..runtime.session import Session
    from ..runtime.store import NO_STORE, open_partial_store
    from ..tasks import METRICS, load_task

    room = parse_bytes(memory)
    if out_file is not None:
        check_file(out_file, overwrite, [*circuits, model, task])
    definition = choose("faithfulness definition", FAITHFULNESS, faithfulness)
    chosen_metric, replaced = choose("metric", METRICS, metric), choose("ablation", ABLATIONS, ablation)
    ready = {"full": Circuit.full, "empty": Circuit.empty}
    files = {path: Circuit.load(path) for path in circuits if str(path) not in ready}
    for path, circuit in files.items():
        if not circuit.n_edges:
            raise InputError(f"{path} has no edge in its circuit: is it a file of scores? Select from it first")
    keeping = nullcontext(NO_STORE) if dry_run or out_file is None else open_partial_store(out_file)
    with keeping as store, open_workers(engine, address, workers) as where:
        loaded = open_model(ModelSource(model, device, dtype, bos, trust_remote_code, not no_cache))
        for path, circuit in files.items():
            if circuit.graph != loaded.graph:
                raise InputError(f"{path} is a circuit of {circuit.graph}, but model {model!r} has {loaded.graph}")
        pairs = load_task(task, loaded, split, examples, seed)
        warn_of_copies(pairs.copies, len(pairs))
        asked = Settings(metric=chosen_metric, ablation=replaced, batch_size=batch_size, memory=room)
        if show_forecast(
            forecast(loaded, [EvaluateWork(pairs, asked, len(circuits))], where, exact=dry_run), dry_run, json
        ):
            return
        chosen = [files.get(path) or ready[str(path)](loaded.graph) for path in circuits]
        if not store.is_empty:
            note("going on from what a command that was stopped had evaluated")
        with watching() as progress:
            found = evaluate_circuits(
                loaded, pairs, chosen, chosen_metric, replaced, batch_size=batch_size, memory=room,
                session=Session(store, where, progress),
            )  # fmt: skip
        record = {
            "model": model,
            "task": task,
            "split": pairs.split,
            "examples": len(pairs),
            "metric": chosen_metric.name,
            "ablation": replaced.name,
            "faithfulness": definition.name,
            "confidence": CONFIDENCE,
            **_outcome(circuits, chosen, found, definition, per_example),
        }
        if out_file is not None:
            check_file(out_file, overwrite)  # nobody else's, if it came meanwhile
            write_json(out_file, record)
    if json:
        print_json(record)
    else:
        _show(record, definition)


def _outcome(
    paths: list[Path], circuits: list[Circuit], found: Evaluation, definition: Faithfulness, per_example: bool
) -> dict[str, Any]:
    """The metric and faithfulness of every circuit, with its interval, as plain data."""
    from ..evaluate import faithfulness_intervals

    faithful = faithfulness_intervals(found.values, found.full, found.empty, definition)
    rows = [
        {
            "circuit": str(path),
            "edges": circuit.prune().n_edges,
            "metric": float(values.mean()),
            "faithfulness": share.estimate,
            "interval": [share.low, share.high],
        }
        | ({"per_example": values.tolist()} if per_example else {})
        for path, circuit, share, values in zip(paths, circuits, faithful, found.values, strict=True)
    ]
    outcome = {"full": float(found.full.mean()), "empty": float(found.empty.mean()), "circuits": rows}
    if per_example:
        outcome |= {"full_per_example": found.full.tolist(), "empty_per_example": found.empty.tolist()}
    return outcome


def _show(record: dict[str, Any], definition: Faithfulness) -> None:
    """Print what circuits came to."""
    from ..report.formatting import format_interval, format_number
    from ..report.tables import INTERVAL, number_tables

    rows = [
        (
            row["circuit"],
            row["edges"],
            format_number(row["metric"]),
            format_number(row["faithfulness"]),
            format_interval(*row["interval"]),
        )
        for row in record["circuits"]
    ]
    print_tables(number_tables(("circuit", "edges", "metric", "faithfulness", INTERVAL), rows, out.width))
    say(f"metric: {record['metric']}; faithfulness: {definition.summary}")
    say(f"examples: {record['examples']} of {record['task']} ({record['split']}), {record['ablation']}")
    warn_of_few(record["examples"])
    say(f"the model itself {format_number(record['full'])}, the empty circuit {format_number(record['empty'])}")
