"""edgewise tasks: what there is, and what its prompts look like."""

from __future__ import annotations

from typing import Annotated

import typer

from . import options
from .console import open_model, out, print_json, say

NAME = "tasks"


def command(
    name: Annotated[
        str | None, typer.Argument(help="A task to look at: a built-in one, FILE.jsonl or FILE.csv.")
    ] = None,
    model: options.ModelName = "demo",
    split: Annotated[str, typer.Option(help="train, validation or test.")] = "train",
    examples: Annotated[int, typer.Option(help="How many examples to show.")] = 4,
    seed: options.Seed = 0,
    json: options.Json = False,
) -> None:
    """List the built-in tasks, or show some prompt pairs of one."""
    from ..report.tables import key_value_table, list_table
    from ..tasks import DESCRIPTIONS, METRICS, load_task

    if name is None:
        if json:
            print_json({"tasks": DESCRIPTIONS, "metrics": list(METRICS)})
            return
        out.print(list_table(["task", "what it asks"], list(DESCRIPTIONS.items())))
        say(f"metrics: {', '.join(METRICS)}")
        say("your own: a .jsonl or .csv with clean, corrupted, correct, incorrect (or the same as token ids)")
        return
    loaded = open_model(model, "cpu", "auto")
    pairs = load_task(name, loaded, split, examples, seed)
    rows = [
        {
            "clean": example.text.clean if example.text else list(example.clean),
            "corrupted": example.text.corrupted if example.text else list(example.corrupted),
            "correct": example.text.correct if example.text else example.correct,
            "incorrect": example.text.incorrect if example.text else example.incorrect,
            "tokens": example.length,
        }
        for example in pairs.examples
    ]
    if json:
        print_json(rows)
        return
    for number, row in enumerate(rows, start=1):
        out.print(key_value_table(f"{pairs.name} ({pairs.split}), example {number}", row))
