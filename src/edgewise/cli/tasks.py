"""edgewise tasks: list the tasks, or show examples of one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import typer

from ..models import DEMO
from ..recipes.run_info import ModelAccuracy, decode_prompts, warn_of_failure
from ..report.tables import key_value_table, list_table
from ..tasks import DESCRIPTIONS, GENERATORS, METRICS, Accuracy, Example, TaskMetric, check_examples, load_task
from ..tasks.data_sets import parse_columns
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
        None, help="The task: a generator, mib/NAME, mib/NAME=PATH, hub:NAME, FILE.jsonl, FILE.json or FILE.csv."
    ),
    split: str = options.SCORED_SPLIT,
    examples: int = option(4, "Task", "Number of examples to show.", min=1),
    seed: int = option(0, "Task", "Seed of the generators.", min=0),
    chat: bool = options.CHAT,
    skip_bad: bool = options.SKIP_BAD,
    columns: str | None = options.COLUMNS,
    tokens: bool = option(False, "Output", "Show the tokens of the two prompts side by side."),
    json: bool = options.JSON,
) -> None:
    """List the tasks, or show prompt pairs of one and how many of its rows the model can use.

    mib/NAME reads the benchmark's data from the hub and needs the extra `hub`. mib/NAME=PATH reads a local copy: a
    folder as on the hub, or one of its files (.jsonl, .parquet).
    """
    if name is None:
        if json:
            print_json({"tasks": DESCRIPTIONS, "metrics": list(METRICS)})
            return
        out.print(list_table(["task", "example"], list(DESCRIPTIONS.items())))
        say(f"metrics: {', '.join(METRICS)}")
        say("mib/...: from the hub, or from a local copy with mib/NAME=PATH")
        say("hub:NAME: a data set of the hub or in a folder, with --columns clean=FIELD,corrupted=FIELD,correct=FIELD")
        say("custom: a .jsonl, .json or .csv with clean, corrupted, correct, incorrect (or the same as token ids)")
        return
    if name in KNOWN and model.model == DEMO:  # these tasks have words that only their own models know
        model = replace(model, model=name)
    from ..evaluate.run_circuits import evaluate_circuits  # imports torch

    loaded = model.load()
    # Files are read completely, to count their rows; generators are endless.
    limit = examples if name in GENERATORS else None
    fields = None if columns is None else parse_columns(columns)
    task = load_task(name, loaded, split, limit, seed, chat=chat, skip_bad=skip_bad, columns=fields)
    check_examples(loaded, task)
    checked = task.head(MOST_CHECKED)
    metric = TaskMetric().for_task(checked)
    has_incorrect = metric.is_difference
    beats = float((evaluate_circuits(loaded, checked, [], metric if has_incorrect else Accuracy()).full > 0).mean())
    warn_of_failure(ModelAccuracy(beats, beats if has_incorrect else None))
    rows = [_describe(example) for example in task.head(examples).examples]
    if json:
        counts = {"kept": len(task), "dropped": dict(task.dropped), "prefers_correct": beats, "metric": metric.name}
        print_json({"task": task.name, "split": task.split, **counts, "examples": rows})
        return
    for number, row in enumerate(rows, start=1):
        # Quotation marks show the leading space of an answer.
        shown = {name: f'"{value}"' if isinstance(value, str) else value for name, value in row.items()}
        out.print(key_value_table(f"{task.name} ({task.split}), example {number}", shown))
        if tokens:
            _show_tokens(task.examples[number - 1], loaded.tokenizer)
    reasons = ", ".join(f"{count} {reason}" for reason, count in task.dropped)
    dropped = sum(count for _, count in task.dropped)
    say(f"kept: {len(task)}; dropped: {dropped}" + (f" ({reasons})" if reasons else ""))
    prefers = "prefers the correct answer" if has_incorrect else "gives the correct answer"
    say(f"the model {prefers} in {beats:.0%} of the first {len(checked)}; metric: {metric.name}")


def _show_tokens(example: Example, tokenizer: Any) -> None:
    """Print the tokens of both prompts, a position per row, with the spans. The first difference is marked."""
    (prompt,) = decode_prompts([example], tokenizer)
    names = [example.span_names[index] for index in example.span_indices] or [""] * example.length
    first = example.shared_prefix
    rows = [
        (str(place), repr(clean), repr(corrupted), name, "first difference" if place == first else "")
        for place, (clean, corrupted, name) in enumerate(zip(prompt.clean, prompt.corrupted, names, strict=True))
    ]
    columns = ["position", "clean", "corrupted", *["span"] * bool(example.span_names), ""]
    out.print(list_table(columns, [row if example.span_names else (*row[:3], row[4]) for row in rows]))


def _describe(example: Example) -> dict[str, Any]:
    """Return an example for people, as text if it was made from text. Sets of answers are lists."""
    source = example.text or example
    row: dict[str, Any] = {"clean": source.clean, "corrupted": source.corrupted}
    sets = {"correct": (source.correct, *source.also_correct), "incorrect": (source.incorrect, *source.also_incorrect)}
    for name, answers in sets.items():
        distinct = list(dict.fromkeys(answers))
        if distinct != [None]:
            row[name] = distinct if len(distinct) > 1 else distinct[0]
    return row | {"tokens": example.length}
