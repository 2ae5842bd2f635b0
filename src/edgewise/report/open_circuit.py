"""Open a circuit from a file or from a result folder."""

from __future__ import annotations

import os
from dataclasses import dataclass
from math import isclose
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..core.circuit import Circuit
from ..errors import InputError
from ..evaluate import FAITHFUL_ENOUGH, Curve, Measure
from ..io.formats import read_edge_file
from ..method import as_known
from ..recipes.discovery import Discovery
from ..recipes.outcome import Outcome
from ..results import is_result, read_result
from .formatting import format_number, format_percent

# A file of folders without circuits -> advice.
ELSEWHERE = {
    "scores.json": "has scores, but no circuit; select one: edgewise select {} --edges 0.05 --out circuit.json",
    "ranking.json": "has a ranking, but no circuit; select one: edgewise select {} --edges 0.05 --out circuit.json",
    "study.json": "is a study, which keeps no circuits; run the method of interest: edgewise run --help",
}


@dataclass(frozen=True, eq=False)
class OpenCircuit:
    """A circuit with its name and scores.

    Attributes
    ----------
    score
        [edge] Signed scores. None if there are none.
    row, place
        The outcome of the run, and the place of the size. None and 0 for a file.
    reason
        Why this size was chosen, if no size was given.
    """

    name: str
    circuit: Circuit
    score: NDArray[np.floating] | None
    row: Outcome | None = None
    place: int = 0
    reason: str = ""


def open_circuit(
    path: str | Path, method: str | None = None, metric: str | None = None, size: str | None = None
) -> OpenCircuit:
    """The circuit of a file (npz, json or pt), or of a result folder.

    method  of the run, in any case; by default the one whose circuits the run wrote
    metric  CMD or CPR that the method was to be good at; by default the run's first
    size    a share of the edges such as 0.05, or how many were asked for; by default the smallest that is faithful
    """
    path = Path(path)
    if is_result(path):
        return open_run_circuit(read_result(path), method, metric, size)
    for marker, advice in ELSEWHERE.items():
        if os.path.isfile(path / marker):
            raise InputError(f"{path} {advice.format(path)}")
    if os.path.isdir(path):
        raise InputError(f"{path} is a folder without run.json; give a result folder, or the file of a circuit")
    if method is not None or metric is not None or size is not None:
        raise InputError(f"--recipe, --measure and --size choose from a result folder, but {path} is one circuit")
    held = read_edge_file(path)
    circuit = Circuit(held.graph, held.require_mask())
    score = held.score
    if score is not None and not (np.isfinite(score[circuit.mask]).all() and score[circuit.mask].any()):
        score = None  # files without scores have zeros, or none for some edges
    return OpenCircuit(str(path), circuit, None if score is None else np.nan_to_num(score))


def open_run_circuit(
    result: Discovery, method: str | None = None, metric: str | None = None, size: str | None = None
) -> OpenCircuit:
    """Return a circuit of a run; see `open_circuit`."""
    measure = _benchmark(result, metric)
    row = result.exported(measure) if method is None else _row(result, measure, method)
    place, reason = _usual_size(row.curve) if size is None else (_size(row.curve, size), "")
    circuit = row.selections[place].circuit
    share = format_percent(row.curve.shares[place])
    name = f"{row.name} for {measure.name} at {share} % of the edges"
    return OpenCircuit(name, circuit, result.mean_scores, row, place, reason)


def _benchmark(result: Discovery, metric: str | None) -> Measure:
    known = {b.name: b for b in result.measures}
    return known[as_known("metric", metric, known)] if metric is not None else result.measures[0]


def _row(result: Discovery, measure: Measure, method: str) -> Outcome:
    rows = {row.name: row for row in result.of(measure)}
    return rows[as_known(f"method for {measure.name}", method, rows)]


def _size(curve: Curve, size: str) -> int:
    """Return the place of a size: a share, a share in percent, or a number of edges asked for."""
    try:
        wanted = float(size.removesuffix("%")) / (100 if size.endswith("%") else 1)
    except ValueError:
        wanted = float("nan")
    is_count = size.isdecimal() and size != "1"
    for place, (share, asked) in enumerate(zip(curve.shares, curve.asked, strict=True)):
        if isclose(share, wanted) or (is_count and asked == wanted):
            return place
    shares = ", ".join(f"{share:g}" for share in curve.shares)
    raise InputError(f"there is no circuit of size {size!r}; choose a share of the edges: {shares}")


def _usual_size(curve: Curve) -> tuple[int, str]:
    """Return the place of the default size, and the reason."""
    place, values = curve.default_size, curve.faithfulness
    if values[place] >= FAITHFUL_ENOUGH:
        return place, f"the smallest with a faithfulness of {FAITHFUL_ENOUGH:g} or more"
    parts = [float(value) for value, share in zip(values, curve.shares, strict=True) if share < 1]
    best = format_number(max(parts, default=float(values[place])), digits=2)
    return place, f"no size has a faithfulness of {FAITHFUL_ENOUGH:g} (at most {best})"
