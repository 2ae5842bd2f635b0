"""edgewise compare: is one method better than another? What do two circuits, or two runs, have in common?"""

from __future__ import annotations

import os
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from . import options
from .console import aside, out, print_json, print_tables, say

if TYPE_CHECKING:
    from ..report.circuit_pairs import CircuitPair

NAME = "compare"


def command(
    folder: Annotated[Path, typer.Argument(help="A folder made by `edgewise run` or `edgewise study`, or a circuit.")],
    method: Annotated[
        str | None,
        typer.Argument(
            help="A method, such as 'ILP + PNR' (default: the best of each metric), or another run or circuit."
        ),
    ] = None,
    other: Annotated[str | None, typer.Argument(help="What to compare it with; default: every method with it.")] = None,
    top: options.Top = 8,
    json: options.Json = False,
) -> None:
    """Compare methods of a run on the same examples, or two circuits, or two runs.

    With two methods, the first less the second: difference, its interval, p. With one, all others less that one. With
    none, all others less the best: what can't be told apart from it is as good, as far as these examples say. A
    study's methods are compared on test, with the hyper-parameters that validation chose.

    Two circuits (npz, or EAP-IG's json or pt): the edges that both have, only the first, only the second, and their
    overlap, the shared edges as a share of those of either. Two runs: the overlap by size of every method that both
    have, and the difference of its areas; paired if both were evaluated on the same examples. Of two runs, and of two
    methods of one, also the edges of their circuits, at the smallest size that is faithful.
    """
    from ..errors import InputError
    from ..results import is_result

    if method is not None and _is_path(method):
        if other is not None:
            raise InputError(f"two runs or two circuits are compared as they are; leave {other!r} out")
        if is_result(folder) and is_result(method):
            _compare_runs(folder, Path(method), top, json)
        elif is_result(folder) or is_result(method):
            raise InputError(
                f"of {folder} and {method}, one is a run and one isn't; give two runs, or two circuits: those of a run "
                "are in its circuits/"
            )
        else:
            _compare_circuits(folder, Path(method), top, json)
    elif os.path.isfile(folder):
        raise InputError(f"{folder} is a circuit; give another one to compare it with, or a folder of a run or a study")
    else:
        _compare_methods(folder, method, other, top, json)


def _is_path(word: str) -> bool:
    """Whether a word is a run or a circuit, or looks like one, rather than a method's name."""
    from ..io.formats import FORMATS
    from ..results import is_result

    return os.path.isfile(word) or is_result(word) or "/" in word or word.endswith(tuple(FORMATS))


def _compare_methods(folder: Path, method: str | None, other: str | None, top: int, json: bool) -> None:
    from ..report.circuit_pairs import pair_exported
    from ..report.comparisons import LEGEND, contests_of_run, contests_of_study, pair_tables, pairs
    from ..results import is_result, read_result
    from ..study import is_study, read_study

    contests = contests_of_study(read_study(folder)) if is_study(folder) else contests_of_run(read_result(folder))
    found = pairs(contests, method, other)
    if json:
        print_json([pair.record() for pair in found])
        return
    for _, same in groupby(found, key=lambda pair: id(pair.contest)):
        print_tables(pair_tables(list(same), out.width))
    aside(f"{LEGEND}; faithfulness: {contests[0].faithfulness.summary}")
    if method is not None and other is not None and is_result(folder):
        for pair in found:
            _show_circuits(pair_exported(folder, folder, pair.contest.measure, method, other, top))
    if method is None:
        say("The best was chosen by looking at these examples, so its lead is flattered.")


def _compare_circuits(one: Path, other: Path, top: int, json: bool) -> None:
    from ..report.circuit_pairs import pair_circuits
    from ..report.open_circuit import open_circuit

    pair = pair_circuits(open_circuit(one), open_circuit(other), top)
    if json:
        print_json(pair.record())
    else:
        _show_circuits(pair)


def _show_circuits(pair: CircuitPair) -> None:
    """Print which edges two circuits share, and which only one of them has."""
    from ..report.circuit_pairs import circuit_pair_tables
    from ..report.formatting import format_number

    say(pair.one, "here")
    say(pair.other, "there")
    counts = pair.counts
    say(f"shared: {counts.shared:,}; only here: {counts.only_here:,}; only there: {counts.only_there:,}", "edges")
    say(f"{format_number(counts.overlap)}, the shared edges as a share of those of either", "overlap")
    print_tables(circuit_pair_tables(pair, out.width))
    if counts.shared:
        aside("edges by absolute score; shared ones with their score here")


def _compare_runs(one: Path, other: Path, top: int, json: bool) -> None:
    from ..report.circuit_pairs import area_pair_tables, overlap_tables, pair_exported, pair_runs
    from ..report.comparisons import LEGEND

    pair = pair_runs(one, other)
    if json:
        print_json(pair.record())
        return
    say(pair.one, "here")
    say(pair.other, "there")
    print_tables(overlap_tables(pair, out.width))
    print_tables(area_pair_tables(pair, out.width))
    aside("overlap: shared edges as a share of those of either")
    if pair.areas:
        aside(LEGEND + "; paired over the same examples" * pair.paired)
    for note in pair.notes:
        say(f"note: {note}")
    _show_circuits(pair_exported(one, other, pair.overlaps[0].measure, top=top))
