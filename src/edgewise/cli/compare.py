"""edgewise compare: compare recipes of a run, two circuits, or two runs."""

from __future__ import annotations

import os
from itertools import groupby
from pathlib import Path
from typing import Any

import typer

from ..errors import InputError
from ..io.formats import FORMATS
from ..report import comparisons
from ..report.circuit_summary import beside, edge_tables, open_circuit
from ..report.formatting import format_number
from ..report.tables import MARKS_LEGEND
from ..results import is_result, read_result
from ..study import is_study, read_study
from . import options
from .console import explain, out, print_json, print_tables, say
from .options import option


def command(
    *,
    folder: Path = typer.Argument(..., help="A folder made by `edgewise run` or `edgewise study`, or a circuit."),
    recipe: str | None = typer.Argument(
        None, help="A recipe, such as 'ILP + PNR' (default: the chosen one of each measure), or another run or circuit."
    ),
    other: str | None = typer.Argument(
        None, help="The recipe to subtract; by default `recipe` is subtracted from all others."
    ),
    size: str | None = option(
        None,
        "Circuit",
        "Share of the edges of the circuits to compare, such as 0.05 or 5% (default: the smallest faithful one).",
    ),
    top: int = options.TOP,
    json: bool = options.JSON,
) -> None:
    """Compare recipes of a run on the same examples, or two circuits, or two runs.

    With two recipes, print the first minus the second: difference, interval, p. With one, all others minus that one.
    With none, all others minus the one that was chosen on validation or by tuning, else minus the best on test; those
    without a significant difference are equally good on these examples.
    Recipes of a study are compared on test, with the hyper-parameters chosen on validation.

    Two circuits (npz, or EAP-IG's json or pt): the edges of both, of only the first, of only the second, and their
    overlap (shared edges divided by edges of either). Two runs: the overlap of every common recipe by size, and the
    difference of its areas, paired if both were evaluated on the same examples. For two runs, and for two recipes of
    one run, also the edges of their circuits at one size. A run and a circuit: the run's circuit of that size.
    """
    # A run or a circuit, or what looks like the path of one, rather than the name of a recipe.
    is_path = recipe is not None and (os.path.exists(recipe) or "/" in recipe or recipe.endswith(tuple(FORMATS)))
    if recipe is not None and is_path:
        if other is not None:
            raise InputError(f"two runs or two circuits have no recipe to choose; omit {other!r}")
        if is_result(folder) and is_result(recipe):
            _compare_runs(folder, Path(recipe), size, top, json)
        else:
            if size is not None and os.path.isfile(folder) and os.path.isfile(recipe):
                raise InputError(f"--size chooses a circuit of a run, but {folder} and {recipe} are circuits; omit it")
            # A file is one circuit, so a size is for the other one.
            first, second = (
                open_circuit(path, size=None if os.path.isfile(path) else size) for path in (folder, recipe)
            )
            pair = comparisons.pair_circuits(first, second, top)
            print_json(pair) if json else _show_pair(pair)
    elif not is_result(folder) and not is_study(folder):
        open_circuit(folder)  # raises if it isn't one
        raise InputError(f"{folder} is a circuit; give another one to compare it with, or a folder of a run or a study")
    else:
        _compare_recipes(folder, recipe, other, size, top, json)


def _compare_recipes(
    folder: Path, recipe: str | None, other: str | None, size: str | None, top: int, json: bool
) -> None:
    shows_circuits = recipe is not None and other is not None and is_result(folder)
    if size is not None and not shows_circuits:
        raise InputError("--size chooses circuits to compare; give two recipes of a run, two runs or two circuits")
    if is_study(folder):
        groups = comparisons.areas_of_study(read_study(folder))
    else:
        groups = comparisons.areas_of_run(read_result(folder))
    if other is None and all(len(group.areas) == 1 for group in groups):
        raise InputError(
            f"{folder} has a single recipe for each measure; give another run or a circuit to compare with"
        )
    compared = comparisons.compare_recipes(groups, recipe, other)
    circuits = [
        comparisons.pair_exported(folder, folder, pair["measure"], (recipe, other), size, top)
        for pair in (compared if shows_circuits else ())
    ]
    if json:
        if shows_circuits:
            compared = [pair | {"circuits": of_pair} for pair, of_pair in zip(compared, circuits, strict=True)]
        print_json(compared)
        return
    for _, same in groupby(compared, key=lambda pair: (pair["task"], pair["model"], pair["measure"])):
        print_tables(comparisons.recipe_pair_tables(list(same), out.width))
    explain(f"{MARKS_LEGEND}; faithfulness: {groups[0].faithfulness.summary}")
    for of_pair in circuits:
        _show_pair(of_pair)
    if recipe is None:
        for group in groups:
            say(f"{group.best} for {group.measure.name} was {group.choice}.")


def _show_pair(pair: dict[str, Any]) -> None:
    """Print the edges that two circuits share, and those that only one of them has."""
    say(pair["one"], "here")
    say(pair["other"], "there")
    units = f"{pair['unit']}s"
    shared, only_here, only_there = (f"{pair[name]:,}" for name in ("shared", "only_here", "only_there"))
    say(f"shared: {shared}; only here: {only_here}; only there: {only_there}", units)
    say(f"{format_number(pair['overlap'])}, shared {units} divided by {units} of either", "overlap")
    parts = [(name, edges) for name, edges in pair["strongest"].items() if edges]
    tables = [table for name, edges in parts for table in edge_tables(name.replace("_", " "), edges, out.width)]
    print_tables(beside(tables, out.width))
    if pair["shared"]:
        explain(f"{units} are sorted by absolute score; shared ones have their score here")
    here, there = pair["scores"]
    if here and there and here != there:
        say(f"scores here are of {here}, there of {there}: compare their order, not their values", "note")


def _compare_runs(first: Path, second: Path, size: str | None, top: int, json: bool) -> None:
    pair = comparisons.pair_runs(first, second)
    circuits = comparisons.pair_exported(first, second, pair["overlap"][0]["measure"], size=size, top=top)
    if json:
        print_json(pair | {"circuits": circuits})
        return
    say(pair["one"], "here")
    say(pair["other"], "there")
    print_tables(comparisons.run_pair_tables(pair, out.width))
    explain(f"overlap: shared {pair['unit']}s divided by {pair['unit']}s of either")
    if pair["areas"]:
        explain(MARKS_LEGEND + "; paired over the same examples" * pair["paired"])
    for note in pair["notes"]:
        say(f"note: {note}")
    _show_pair(circuits)
