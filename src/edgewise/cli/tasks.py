"""edgewise tasks: what there is, and what its prompts look like."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import options
from .console import open_model, out, print_json, say

if TYPE_CHECKING:
    from ..tasks import Example, Task

NAME = "tasks"


def command(
    name: Annotated[
        str | None,
        typer.Argument(help="A task to look at: a built-in one, mib/NAME, mib/NAME=PATH, FILE.jsonl or FILE.csv."),
    ] = None,
    model: options.ModelName = "demo",
    split: Annotated[str, typer.Option(help="train, validation or test.")] = "train",
    examples: Annotated[int, typer.Option(min=1, help="How many examples to show.")] = 4,
    seed: options.Seed = 0,
    trust_remote_code: options.TrustRemoteCode = False,
    no_cache: options.NoCache = False,
    json: options.Json = False,
) -> None:
    """List the tasks, or show some prompt pairs of one and how many of its rows the model can use.

    The benchmark's data is read from the hub with mib/NAME, which needs the extra `hub`, and from a local copy with
    mib/NAME=PATH: a folder as on the hub, or one of its files (.jsonl, .parquet).
    """

    from ..models import ModelSource
    from ..report.tables import key_value_table, list_table
    from ..tasks import DESCRIPTIONS, GENERATORS, METRICS, check_examples, load_task

    if name is None:
        if json:
            print_json({"tasks": DESCRIPTIONS, "metrics": list(METRICS)})
            return
        out.print(list_table(["task", "what it asks"], list(DESCRIPTIONS.items())))
        say(f"metrics: {', '.join(METRICS)}")
        say("mib/...: from the hub, or from a local copy with mib/NAME=PATH")
        say("your own: a .jsonl or .csv with clean, corrupted, correct, incorrect (or the same as token ids)")
        return
    loaded = open_model(ModelSource(model, "cpu", trust_remote_code=trust_remote_code, cache=not no_cache))
    # Data is read whole, to count what it has; a generator has no end.
    pairs = load_task(name, loaded, split, examples if name in GENERATORS else None, seed)
    check_examples(loaded, pairs)
    rows = [_row(example) for example in pairs.head(examples).examples]
    if json:
        counts = {"kept": len(pairs), "dropped": dict(pairs.dropped)}
        print_json({"task": pairs.name, "split": pairs.split, **counts, "examples": rows})
        return
    for number, row in enumerate(rows, start=1):
        title = f"{pairs.name} ({pairs.split}), example {number}"
        out.print(key_value_table(title, row))
    say(_counts(pairs))


def _row(example: Example) -> dict[str, Any]:
    text = example.text
    return {
        "clean": text.clean if text else list(example.clean),
        "corrupted": text.corrupted if text else list(example.corrupted),
        "correct": text.correct if text else example.correct,
        "incorrect": text.incorrect if text else example.incorrect,
        "tokens": example.length,
    }


def _counts(pairs: Task) -> str:
    dropped = sum(count for _, count in pairs.dropped)
    reasons = ", ".join(f"{count} {reason}" for reason, count in pairs.dropped)
    return f"kept: {len(pairs)}; dropped: {dropped}" + (f" ({reasons})" if reasons else "")
