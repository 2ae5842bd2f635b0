"""What two circuits, or the circuits of two runs, have in common."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from ..core.circuit import Circuit
from ..errors import InputError
from ..evaluate import Comparison, Measure, resample
from ..method import plain
from ..recipes.discovery import Discovery
from ..recipes.outcome import Outcome
from ..recipes.stability import jaccard
from ..results import read_result
from .circuit_summary import TOP, ScoredEdge, beside, describe, edge_tables
from .comparisons import DIFFERENCE_COLUMNS, difference_cells
from .formatting import describe_method, format_number, format_percent, short_name
from .open_circuit import OpenCircuit, open_circuit
from .tables import number_tables


@dataclass(frozen=True)
class Shared:
    """How many edges two circuits share, and how many only the first and only the second has.

    overlap  the shared as a share of the edges of either; 1 if both are empty
    """

    shared: int
    only_here: int
    only_there: int
    overlap: float


@dataclass(frozen=True)
class CircuitPair:
    """Two circuits: counts, and the strongest edges of each part, by the scores of a circuit that has them."""

    one: str
    other: str
    counts: Shared
    shared: tuple[ScoredEdge, ...]
    only_here: tuple[ScoredEdge, ...]
    only_there: tuple[ScoredEdge, ...]

    def record(self) -> dict[str, Any]:
        """As plain data, for JSON."""
        names = ("shared", "only_here", "only_there")
        strongest = {name: [asdict(edge) for edge in getattr(self, name)] for name in names}
        return {"one": self.one, "other": self.other, **asdict(self.counts), "strongest": strongest}


@dataclass(frozen=True)
class Overlaps:
    """A method that two runs have: its circuits by size."""

    measure: Measure
    method: str
    shares: tuple[float, ...]
    sizes: tuple[Shared, ...]


@dataclass(frozen=True)
class AreaPair:
    """A method that two runs have: its area here and there, and the first less the second."""

    measure: Measure
    method: str
    here: float
    there: float
    comparison: Comparison


@dataclass(frozen=True)
class RunPair:
    """Two runs on the same graph.

    paired  whether areas were measured on the same examples in the same way, so that they are compared example by
            example; otherwise the examples of each run are resampled on their own, and intervals are wider
    notes   in what else the runs differ, in words
    """

    one: str
    other: str
    paired: bool
    notes: tuple[str, ...]
    overlaps: tuple[Overlaps, ...]
    areas: tuple[AreaPair, ...]

    def record(self) -> dict[str, Any]:
        """As plain data, for JSON."""
        about = {"one": self.one, "other": self.other, "paired": self.paired, "notes": list(self.notes)}
        overlaps = [
            {
                "benchmark": plain(one.measure),
                "method": one.method,
                "sizes": [{"share": share} | asdict(size) for share, size in zip(one.shares, one.sizes, strict=True)],
            }
            for one in self.overlaps
        ]
        areas = [
            {"benchmark": plain(one.measure), "method": one.method, "area": one.here, "other_area": one.there}
            | one.comparison.record()
            | {"verdict": one.comparison.verdict}
            for one in self.areas
        ]
        return about | {"overlap": overlaps, "areas": areas}


def pair_circuits(one: OpenCircuit, other: OpenCircuit, top: int = TOP) -> CircuitPair:
    """Two circuits of the same graph; an edge that both have is shown with the first one's score."""
    here, there = one.circuit, other.circuit
    counts = _shared(here, there)

    def strongest(mask: NDArray[np.bool_], score: NDArray[np.floating] | None) -> tuple[ScoredEdge, ...]:
        return describe(Circuit(here.graph, mask), score, top=top).strongest

    return CircuitPair(
        one.name,
        other.name,
        counts,
        strongest(here.mask & there.mask, one.score if one.score is not None else other.score),
        strongest(here.mask & ~there.mask, one.score),
        strongest(there.mask & ~here.mask, other.score),
    )


def pair_exported(
    one: str | Path,
    other: str | Path,
    measure: Measure,
    method: str | None = None,
    match: str | None = None,
    top: int = TOP,
) -> CircuitPair:
    """Circuits of two runs, or of two methods of one, of the size to look at first in the first of them, if the other
    has that, too; by default of the methods whose circuits the runs wrote."""
    here = open_circuit(one, method, measure.name)
    assert here.row is not None
    share = here.row.curve.shares[here.place]
    size = f"{share:.17g}" if share in read_result(other).settings.sizes else None
    return pair_circuits(here, open_circuit(other, match, measure.name, size), top)


def pair_runs(one: str | Path, other: str | Path) -> RunPair:
    """Two result folders, by the methods that both have."""
    here, there = read_result(one), read_result(other)
    if here.run.graph != there.run.graph:
        raise InputError(
            f"circuits of two graphs have no edges to share: {one} has {here.run.graph}, {other} {there.run.graph}"
        )
    rows = [
        (row, match)
        for row in here.outcomes
        for match in there.outcomes
        if match.measure == row.measure and match.name.lower() == row.name.lower()
    ]
    if not rows:
        raise InputError(f"{one} and {other} have no method in common: nothing can be compared")
    paired = _is_paired(here, there)
    return RunPair(
        str(one),
        str(other),
        paired,
        _notes(here, there, paired),
        tuple(_overlaps(row, match) for row, match in rows),
        tuple(
            _areas(row, match, paired)
            for row, match in rows
            if row.curve.shares == match.curve.shares and _measured_by(here) == _measured_by(there)
        ),
    )


def _shared(one: Circuit, other: Circuit) -> Shared:
    overlap = jaccard(one, other)  # refuses two graphs
    both = int(np.count_nonzero(one.mask & other.mask))
    return Shared(both, one.n_edges - both, other.n_edges - both, overlap)


def _overlaps(row: Outcome, match: Outcome) -> Overlaps:
    """At the sizes that both have, but for those that ask for no edge."""
    ours = dict(zip(row.curve.shares, row.circuits, strict=True))
    theirs = dict(zip(match.curve.shares, match.circuits, strict=True))
    asking = [row.curve.shares[place] for place in row.curve.nonempty_sizes]
    shares = tuple(share for share in asking if share in theirs)
    return Overlaps(row.measure, row.name, shares, tuple(_shared(ours[share], theirs[share]) for share in shares))


def _measured_by(result: Discovery) -> tuple[Any, ...]:
    return result.settings.metric, result.settings.faithfulness


def _is_paired(here: Discovery, there: Discovery) -> bool:
    return here.run.test.prompts == there.run.test.prompts and _measured_by(here) == _measured_by(there)


def _areas(row: Outcome, match: Outcome, paired: bool) -> AreaPair:
    # Equal seeds draw equal examples, so that draws are paired; other seeds draw on their own.
    ours = row.resampled
    theirs = match.resampled if paired else resample(match.curve, match.measure, seed=1)
    return AreaPair(row.measure, row.name, ours.estimate, theirs.estimate, ours.minus(theirs))


def _notes(here: Discovery, there: Discovery, paired: bool) -> tuple[str, ...]:
    notes = []
    if _measured_by(here) != _measured_by(there):
        notes.append("the runs measure faithfulness differently, so their areas aren't compared")
    elif not paired:
        notes.append(
            "unpaired: the runs were evaluated on other examples, so intervals of differences are wider than in one run"
        )
    for name in ("model", "task"):
        ours, theirs = short_name(getattr(here.run, name)), short_name(getattr(there.run, name))
        if ours != theirs:
            notes.append(f"another {name}: {ours} here, {theirs} there")
    for name in ("scorer", "ablation"):
        ours, theirs = (describe_method(plain(getattr(result.settings, name))) for result in (here, there))
        if ours != theirs:
            notes.append(f"another {name}: {ours} here, {theirs} there")
    if here.settings.sizes != there.settings.sizes:
        notes.append("the runs have other sizes, so their areas aren't compared")
    return tuple(notes)


def circuit_pair_tables(pair: CircuitPair, width: int) -> list[Table]:
    """The strongest edges of each part; parts without edges are left out."""
    parts = (("shared", pair.shared), ("only here", pair.only_here), ("only there", pair.only_there))
    return beside([table for name, edges in parts if edges for table in edge_tables(name, edges, width)], width)


def overlap_tables(pair: RunPair, width: int) -> list[Table]:
    """The overlap by size of each method, a table per metric."""
    tables: list[Table] = []
    for measure in dict.fromkeys(one.measure for one in pair.overlaps):
        ours = [one for one in pair.overlaps if one.measure == measure]
        shares = ours[0].shares
        rows = [(one.method, *(format_number(size.overlap, digits=2) for size in one.sizes)) for one in ours]
        title = f"{measure.name}: overlap of circuits by size, in % of the edges"
        tables += number_tables(("method", *map(format_percent, shares)), rows, width, title)
    return tables


def area_pair_tables(pair: RunPair, width: int) -> list[Table]:
    """The areas of each method in both runs and their difference, a table per metric."""
    tables: list[Table] = []
    for measure in dict.fromkeys(one.measure for one in pair.areas):
        rows = [
            (one.method, format_number(one.here), format_number(one.there), *difference_cells(one.comparison))
            for one in pair.areas
            if one.measure == measure
        ]
        title = f"{measure.name} here less there, {measure.improves}"
        tables += number_tables(("method", "here", "there", *DIFFERENCE_COLUMNS), rows, width, title, left=(3,))
    return tables
