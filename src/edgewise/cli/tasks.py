"""edgewise tasks: list the tasks, or show examples of one."""

from __future__ import annotations

from dataclasses import replace

import typer

from ..models import DEMO
from ..recipes.run_info import ModelAccuracy, warn_of_failure
from ..report.tables import key_value_table, list_table
from ..tasks import DESCRIPTIONS, GENERATORS, METRICS, check_examples, load_task
from ..tasks.known import KNOWN
from . import options
from .console import out, print_json, say
from .options import option

# The model runs on at most this many examples.
MOST_CHECKED = 32


def command(
    *,
    model: options.ModelOptions,
    name: str | None = typer.Argument(
        None, help="The task: a generator, mib/NAME, mib/NAME=PATH, FILE.jsonl, FILE.json or FILE.csv."
    ),
    split: str = options.SCORED_SPLIT,
    examples: int = option(4, "Task", "Number of examples to show.", min=1),
    seed: int = option(0, "Task", "Seed of the generators.", min=0),
    json: bool = options.JSON,
) -> None:
    """List the tasks, or show prompt pairs of one and how many of its rows the model can use.

    mib/NAME reads the benchmark's data from the hub and needs the extra `hub`. mib/NAME=PATH reads a local copy: a
    folder as on the hub, or one of its files (.jsonl, .parquet).
    """
    from ..evaluate.run_circuits import evaluate_circuits  # imports torch

    if name is None:
        if json:
            print_json({"tasks": DESCRIPTIONS, "metrics": list(METRICS)})
            return
        out.print(list_table(["task", "example"], list(DESCRIPTIONS.items())))
        say(f"metrics: {', '.join(METRICS)}")
        say("mib/...: from the hub, or from a local copy with mib/NAME=PATH")
        say("custom: a .jsonl, .json or .csv with clean, corrupted, correct, incorrect (or the same as token ids)")
        return
    if name in KNOWN and model.model == DEMO:  # these tasks have words that only their own models know
        model = replace(model, model=name)
    loaded = model.load()
    # Files are read completely, to count their rows; generators are endless.
    task = load_task(name, loaded, split, examples if name in GENERATORS else None, seed)
    check_examples(loaded, task)
    checked = task.head(MOST_CHECKED)
    beats = float((evaluate_circuits(loaded, checked, []).full > 0).mean())
    warn_of_failure(ModelAccuracy(beats, beats))
    columns = ("clean", "corrupted", "correct", "incorrect")
    rows = [
        {column: getattr(example.text or example, column) for column in columns} | {"tokens": example.length}
        for example in task.head(examples).examples
    ]
    if json:
        counts = {"kept": len(task), "dropped": dict(task.dropped), "prefers_correct": beats}
        print_json({"task": task.name, "split": task.split, **counts, "examples": rows})
        return
    for number, row in enumerate(rows, start=1):
        # Quotation marks show the leading space of an answer.
        shown = {name: f'"{value}"' if isinstance(value, str) else value for name, value in row.items()}
        out.print(key_value_table(f"{task.name} ({task.split}), example {number}", shown))
    reasons = ", ".join(f"{count} {reason}" for reason, count in task.dropped)
    dropped = sum(count for _, count in task.dropped)
    say(f"kept: {len(task)}; dropped: {dropped}" + (f" ({reasons})" if reasons else ""))
    say(f"the model prefers the correct answer in {beats:.0%} of the first {len(checked)}")
