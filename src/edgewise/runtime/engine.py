"""Where jobs run: what an engine is, and the one that is this process.

A job is a pure function of a model and some examples, so it can be run again, or elsewhere. How work is cut into pieces
is decided before it runs; an engine decides only where each piece runs, so results are the same with any of them.
"""

from __future__ import annotations

import math
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import torch

from ..errors import InputError
from ..graph import Graph
from ..tasks.task import Example

NARROW_D_MODEL = 256
# Wide models on a CPU are cut into pieces of the usual size: fewer examples take longer, more don't take less. A small
# task is cut into a quarter at most, down to a few examples; a large one isn't cut into more than many pieces.
MIN_ITEM_EXAMPLES, USUAL_ITEM_EXAMPLES, MIN_ITEMS, MAX_ITEMS = 4, 8, 4, 256
# Several accelerators get so many pieces each, so that none waits long for the last.
ITEMS_PER_DEVICE = 4

T = TypeVar("T")
# Which of a piece's examples, and what the job made of them: several parts if memory didn't suffice for all at once.
PartResults = list[tuple[list[int], Any]]


class HasGraph(Protocol):
    """A model, as far as it matters here."""

    @property
    def graph(self) -> Graph: ...


@dataclass(frozen=True, eq=False)
class WorkItem:
    """A piece of work: a job, and the examples that it is done on."""

    job: Callable[[Any, Sequence[Example]], Any]
    examples: Sequence[Example]


class Engine(ABC):
    """Where the pieces of a model's work run. It may hold processes, which `close`, or the end of a `with`, lets go."""

    name = ""

    @abstractmethod
    def run(self, model: Any, pieces: Sequence[WorkItem], of: int | None = None) -> Iterator[tuple[int, PartResults]]:
        """The place of every piece and what came of it, as they are done: in any order.

        of  how many pieces the work had at first, if some of them were done before: what they are rounded by mustn't
            depend on how many are left
        """

    def workers(self, model: Any) -> int:
        """How many pieces run at once, at most."""
        return 1

    def close(self) -> None:
        """Let processes go; there are none unless an engine says so."""
        return

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class InProcess(Engine):
    """This process, one piece after the other."""

    name = "here"

    def run(self, model: Any, pieces: Sequence[WorkItem], of: int | None = None) -> Iterator[tuple[int, PartResults]]:
        """In order."""
        for place, piece in enumerate(pieces):
            yield place, run_item(model, piece, threads_for(model))


IN_PROCESS = InProcess()


def run_batches(
    engine: Engine,
    model: HasGraph,
    examples: Sequence[Example],
    batches: Sequence[Sequence[int]],
    job: Callable[[Any, Sequence[Example]], T],
    in_order: bool = False,
    of: int | None = None,
) -> Iterator[tuple[list[int], T]]:
    """The rows of every batch and what `job` makes of their examples, as they are done, or in the order of batches.

    A batch that the device has no memory for is halved and tried again. `of` is as in `Engine.run`.
    """
    pieces = [WorkItem(job, [examples[row] for row in rows]) for rows in batches]
    done = engine.run(model, pieces, of)
    for place, parts in restore_order(done) if in_order else done:
        for rows, found in parts:
            yield [batches[place][row] for row in rows], found


def restore_order(done: Iterator[tuple[int, PartResults]]) -> Iterator[tuple[int, PartResults]]:
    """The same by place: sums that are taken in this order are the same wherever their terms come from."""
    waiting: dict[int, PartResults] = {}
    following = 0
    for place, parts in done:
        waiting[place] = parts
        while following in waiting:
            yield following, waiting.pop(following)
            following += 1


def order_longest_first(pieces: Mapping[int, WorkItem]) -> list[int]:
    """The places of pieces, those with the most tokens first: so all workers end at about the same time."""
    return sorted(pieces, key=lambda place: -sum(example.length for example in pieces[place].examples))


def choose_item_size(engine: Engine, model: HasGraph, device: torch.device, fits: int, examples: int) -> int:
    """How many examples make a piece, if so many fit into the memory.

    On a CPU this is the same for every engine, so that all of them round alike: a wide model takes little longer for
    small pieces, a narrow one much. An accelerator likes large pieces, unless several wait for some.
    """
    if device.type == "cpu":
        if is_narrow_model(model):
            return fits
        return min(
            fits,
            max(
                MIN_ITEM_EXAMPLES,
                min(USUAL_ITEM_EXAMPLES, math.ceil(examples / MIN_ITEMS)),
                math.ceil(examples / MAX_ITEMS),
            ),
        )
    workers = engine.workers(model)
    return (
        fits if workers == 1 else min(fits, max(MIN_ITEM_EXAMPLES, math.ceil(examples / (ITEMS_PER_DEVICE * workers))))
    )


def run_item(model: Any, piece: WorkItem, threads: int) -> PartResults:
    """What comes of a piece, with so many threads."""
    waiting, done = [list(range(len(piece.examples)))], []
    with use_threads(threads):
        while waiting:
            rows = waiting.pop()
            try:
                done.append((rows, piece.job(model, [piece.examples[row] for row in rows])))
            except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
                if not _is_out_of_memory(error):
                    raise
                if len(rows) == 1:
                    raise InputError(
                        "a single example doesn't fit into the device's memory; try --device cpu"
                    ) from None
                half = len(rows) // 2
                waiting += [rows[half:], rows[:half]]
    return done


def thread_count() -> int:
    """How many threads a wide model runs with here: sums over other numbers of parts round otherwise."""
    return torch.get_num_threads()


def is_narrow_model(model: HasGraph) -> bool:
    """Whether tensors are so small that threads spend their time waiting for each other."""
    return model.graph.d_model <= NARROW_D_MODEL


def threads_for(model: HasGraph, workers: int = 1) -> int:
    """The share of the threads that each of some workers has: of one for a narrow model, unless OMP_NUM_THREADS says
    otherwise; of all for others."""
    return max(1, (1 if is_narrow_model(model) and "OMP_NUM_THREADS" not in os.environ else thread_count()) // workers)


@contextmanager
def use_threads(threads: int) -> Iterator[None]:
    """So many threads within."""
    before = torch.get_num_threads()
    if threads == before:
        yield
        return
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _is_out_of_memory(error: Exception) -> bool:
    """Whether an error means that memory ran out; a CPU's allocator says so in words only."""
    return isinstance(error, (torch.OutOfMemoryError, MemoryError)) or "can't allocate memory" in str(error)
