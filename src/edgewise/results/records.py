"""What the JSON files of a result folder hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict

from ..recipes.run_info import Prompt
from ..select import Status


class ExtraRunFields(TypedDict):
    """What run.json holds besides the fields of `RunInfo`. `overlap`: measure -> recipe -> a share per size."""

    settings: Mapping[str, Any]
    tuning: Mapping[str, Any] | None
    overlap: Mapping[str, Mapping[str, list[float | None]]]


class SelectionRecord(TypedDict):
    """One size of a curve in curve.json: how the solver ended."""

    share: float
    solver: str
    edges_asked: int
    edges_kept: int
    objective: float
    bound: float
    gap: float
    status: Status
    seconds: float
    rounds: int
    columns: int
    free_objective: float | None
    possible_pnr: float | None


class NewCurveFields(TypedDict, total=False):
    """Fields of curve.json that older results lack: the faithfulness [size] on validation examples."""

    validation: tuple[float, ...]


class CurveRecord(NewCurveFields):
    """One recipe in curve.json. Area, interval and comparison are for people: readers compute them from the values.

    Files say "benchmark" for a measure and "method" for a recipe.
    """

    benchmark: Any
    method: str
    solver: Any
    filter: Any
    pnr: Any
    alias: Any
    learner: Any
    chosen_on: str
    choices: tuple[str, ...]
    area: Any
    interval: Any
    against_greedy: Any
    sizes: list[SelectionRecord]


class LearnedRecord(TypedDict):
    """How a ranking was learned; None and empty lists if its learner does not record it.

    steps                number of steps done
    validation           (step, area on validation examples)
    validation_examples  how many examples that were
    choices              (size, the ranking that it takes: that of the warm start, the learned one or one between them)
    """

    steps: int | None
    seconds: float | None
    validation: list[tuple[int, float]]
    validation_examples: int | None
    choices: list[tuple[float, str]]


class LearnedFile(TypedDict):
    """The content of learned.json: name in learned.npz -> how it was learned."""

    learned: Mapping[str, LearnedRecord]


class ExamplesRecord(TypedDict):
    """The content of examples.json: the first prompts, and how many more were evaluated."""

    split: str
    prompts: list[Prompt]
    left_out: int
