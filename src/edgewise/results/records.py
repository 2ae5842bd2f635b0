"""What the JSON files of a result folder hold, and the upgrade of version 2."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict

from ..errors import InputError
from ..method import parameters
from ..recipes.recipe import PORTFOLIO, TUNED, Recipe
from ..recipes.run_info import Prompt, RunInfo
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


class CurveRecord(TypedDict):
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


def upgrade_version_2(run: dict[str, Any], curves: list[dict[str, Any]]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return run.json and curve.json of version 2 as those of version 3."""
    try:
        names = (*parameters(RunInfo), "settings", "tuning", "overlap")
        upgraded = {name: run[name] for name in names} | {
            "graph": {key: value for key, value in run["graph"].items() if key != "edges"},
            "overlap": {
                measure: {recipe: overlap["sizes"] for recipe, overlap in by_recipe.items()}
                for measure, by_recipe in run["overlap"].items()
            },
        }
        records = []
        for curve in curves:
            method, measure = curve["method"], curve["benchmark"]
            chosen_on = run["circuits"][measure]["chosen_on"] if method in (PORTFOLIO, TUNED) else ""
            recipe = {"alias": ""} | {key: curve[key] for key in ("solver", "filter", "pnr", "learner")}
            if recipe["solver"] == "ilp":  # version 2 has no time limit
                recipe["solver"] = {"name": "ilp", "time_limit": None}
            if Recipe.from_record(recipe).name != method:
                recipe["alias"] = method
            sizes = [{k: v for k, v in size.items() if k not in ("metric", "faithfulness")} for size in curve["sizes"]]
            upgraded_curve = curve | recipe | {"chosen_on": chosen_on, "sizes": sizes}
            records.append({name: upgraded_curve[name] for name in CurveRecord.__annotations__})
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError(f"run.json or curve.json of version 2 is damaged ({error!r})") from None
    return upgraded, records
