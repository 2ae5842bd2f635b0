"""What the commands print with: results to stdout, everything else to stderr."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

if TYPE_CHECKING:
    from ..models import Model

# Read when a library imports tqdm, which may be as soon as torch is: the bars here are our own.
os.environ.setdefault("TQDM_DISABLE", "1")
# A model of at most this width runs on one thread.
NARROW = 256
# With fewer examples than this, a bootstrap over examples says little.
FEW = 10
out = Console(highlight=False)
err = Console(stderr=True, highlight=False)


def say(text: str, heading: str = "") -> None:
    """A line for people, behind a bold heading if there is one; the terminal wraps it, a pipe doesn't."""
    if heading:
        out.print(heading, end=": ", style="bold", markup=False)
    out.print(text, soft_wrap=True, markup=False)


def warn(text: str) -> None:
    """A line for people that is no result."""
    err.print(text, soft_wrap=True, markup=False)


def warn_of_few(examples: int) -> None:
    """Say so where error bars come from next to no examples."""
    if examples < FEW:
        warn(f"note: intervals from few examples ({examples}) are too narrow; they need about {FEW} or more")


def print_json(data: Any) -> None:
    """Data for machines, on stdout, alone."""
    json.dump(data, sys.stdout, indent=2, allow_nan=False)
    sys.stdout.write("\n")


@contextmanager
def progress_bars() -> Iterator[Callable[[str, int, int], None]]:
    """A bar per stage on stderr; gives a callback (stage, done, total)."""
    columns = (TextColumn("{task.description:<9}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=err) as progress:
        bars: dict[str, Any] = {}

        def update(stage: str, done: int, total: int) -> None:
            if stage not in bars:
                # A stage of one's own reports its start, so that the clock counts from there.
                bars[stage] = progress.add_task(stage, total=total)
            progress.update(bars[stage], completed=done, total=total)

        yield update


def quiet_libraries() -> None:
    """Keep the libraries' own bars and hints out of our output."""
    import transformers

    transformers.utils.logging.set_verbosity_error()
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
    transformers.utils.logging.disable_progress_bar()


def open_model(name: str, device: str, dtype: str, bos: str = "auto") -> Model:
    """Load a model, saying so."""
    with err.status(f"loading {escape(name)}"):
        import torch

        quiet_libraries()
        from ..models import load_model

        model = load_model(name, device, dtype, bos)
    if model.graph.d_model <= NARROW and "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(1)  # for tensors this small, threads spend their time waiting for each other
    return model
