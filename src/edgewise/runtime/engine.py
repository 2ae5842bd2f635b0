"""Engines run jobs on batches of examples.

A job is a pure function of a model and examples, so it can run again, or in another process. The work is split into
items before it runs; an engine only decides where each item runs. So results don't depend on the engine.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import torch

from ..errors import InputError
from ..tasks.task import Example

# The tensors of models up to this width are so small that threads mostly wait for each other.
NARROW_D_MODEL = 256
# Items of wide models on a CPU have 8 examples: fewer take longer per example, more don't take less. A small task is
# split into 4 items of at least 4 examples, a large one into at most 256 items.
USUAL_ITEM_EXAMPLES, MIN_ITEM_EXAMPLES, MIN_ITEMS, MAX_ITEMS = 8, 4, 4, 256
# Each of several accelerators gets this many items, so that none waits long for the last one.
ITEMS_PER_DEVICE = 4

T = TypeVar("T")
# Rows of an item's examples, and the result of the job for them. There are several if memory didn't suffice for all.
PartResults = list[tuple[list[int], Any]]
# The index of every item and its results, in any order.
ItemResults = Iterator[tuple[int, PartResults]]


@dataclass(frozen=True, eq=False)
class WorkItem:
    """A job, and the examples to run it on."""

    job: Callable[[Any, Sequence[Example]], Any]
    examples: Sequence[Example]


class Engine:
    """Runs work items: here in this process, one after the other. `Local` and `Ray` run several at once.

    An engine may hold processes until `close`, or the end of a `with`.
    """

    def run(self, model: Any, items: Sequence[WorkItem], n_items_in_all: int | None = None) -> ItemResults:
        """Yield the index of every item and its results, in any order.

        Engines choose threads by the number of items, and the number of threads changes rounding. Give the number of
        all items as `n_items_in_all`, finished ones too, so that a resumed run rounds alike.
        """
        for index, item in enumerate(items):
            yield index, run_item(model, item, threads_for(model))

    def workers(self, model: Any) -> int:
        """Return how many items run at once, at most."""
        return 1

    def close(self) -> None:
        """End the processes, if there are any."""
        return

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


IN_PROCESS = Engine()


def run_batches(
    engine: Engine,
    model: Any,
    examples: Sequence[Example],
    batches: Sequence[Sequence[int]],
    job: Callable[[Any, Sequence[Example]], T],
    in_order: bool = False,
    n_items_in_all: int | None = None,
) -> Iterator[tuple[list[int], T]]:
    """Yield the rows of every batch and the job's result for them, in any order or `in_order` of the batches.

    A batch that doesn't fit into memory is split in halves. `n_items_in_all` is as in `Engine.run`.
    """
    items = [WorkItem(job, [examples[row] for row in rows]) for rows in batches]
    results = engine.run(model, items, n_items_in_all)
    for index, parts in restore_order(results) if in_order else results:
        for rows, result in parts:
            yield [batches[index][row] for row in rows], result


def restore_order(results: ItemResults) -> ItemResults:
    """Yield results by index, so that their sum doesn't depend on which worker was faster."""
    waiting: dict[int, PartResults] = {}
    following = 0
    for index, parts in results:
        waiting[index] = parts
        while following in waiting:
            yield following, waiting.pop(following)
            following += 1


def order_longest_first(items: Mapping[int, WorkItem]) -> list[int]:
    """Return the indices of items, most tokens first, so that all workers end at about the same time."""
    return sorted(items, key=lambda index: -sum(example.length for example in items[index].examples))


def choose_item_size(engine: Engine, model: Any, device: torch.device, fits: int, examples: int) -> int:
    """Return how many examples an item has, if `fits` examples fit into memory.

    On a CPU this doesn't depend on the engine, so that all engines round the same way. An accelerator is fastest with
    large items, unless several accelerators share the work.
    """
    if device.type == "cpu":
        if is_narrow_model(model):
            return fits
        usual = min(USUAL_ITEM_EXAMPLES, math.ceil(examples / MIN_ITEMS))
        return min(fits, max(MIN_ITEM_EXAMPLES, usual, math.ceil(examples / MAX_ITEMS)))
    workers = engine.workers(model)
    if workers == 1:
        return fits
    return min(fits, max(MIN_ITEM_EXAMPLES, math.ceil(examples / (ITEMS_PER_DEVICE * workers))))


def run_item(model: Any, item: WorkItem, threads: int) -> PartResults:
    """Run an item with this many threads. Examples that don't fit into memory are split in halves."""
    waiting, results = [list(range(len(item.examples)))], []
    with use_threads(threads):
        while waiting:
            rows = waiting.pop()
            try:
                results.append((rows, item.job(model, [item.examples[row] for row in rows])))
            except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
                # The allocator of the CPU raises a plain RuntimeError.
                is_memory_error = isinstance(error, (torch.OutOfMemoryError, MemoryError))
                if not is_memory_error and "can't allocate memory" not in str(error):
                    raise
                if len(rows) == 1:
                    raise InputError(
                        "a single example doesn't fit into the device's memory; try device='cpu'"
                    ) from None
                half = len(rows) // 2
                waiting += [rows[half:], rows[:half]]
    return results


def thread_count() -> int:
    """Return the number of threads that a wide model runs with. It changes rounding."""
    return torch.get_num_threads()


def is_narrow_model(model: Any) -> bool:
    """Return whether the model's tensors are too small for threads to help."""
    return model.graph.d_model <= NARROW_D_MODEL


def threads_for(model: Any, workers: int = 1) -> int:
    """Return the number of threads of each worker: an equal share.

    A narrow model has one thread in all, unless OMP_NUM_THREADS is set.
    """
    total = 1 if is_narrow_model(model) and "OMP_NUM_THREADS" not in os.environ else thread_count()
    return max(1, total // workers)


@contextmanager
def use_threads(threads: int) -> Iterator[None]:
    """Set the number of torch's threads inside the `with`."""
    before = torch.get_num_threads()
    if threads != before:
        torch.set_num_threads(threads)
    try:
        yield
    finally:
        if threads != before:
            torch.set_num_threads(before)
