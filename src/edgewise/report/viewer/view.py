"""What the viewer shows, as a value: circuits of one graph, the scores that they were chosen by, and how they did."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...core.circuit import Circuit
from ...core.ranking import Ranking
from ...errors import InputError
from ...evaluate import Attention, faithfulness_intervals
from ...graph import Graph
from ...io.edge_file import EdgeFile
from ...io.formats import FORMATS, read_edge_file
from ...learn import Learner
from ...recipes.discovery import Discovery
from ...recipes.outcome import Outcome
from ...recipes.run_info import Prompt
from ...results import is_result, read_result
from ...results.submission import circuit_files
from ...study import is_study
from ..formatting import short_name
from ..overview import centred_statistics

FloatArray = NDArray[np.floating]
# How the names of circuits end that differ by their sizes alone, such as cmd-0.01.npz and circuit-479.json.
SIZE = re.compile(r"-\d+(\.\d+)?(e-\d+)?$")


@dataclass(frozen=True, eq=False)
class ViewRun:
    """A run, or the file of a circuit: the scores of the edges, and the examples.

    facts    what to say of it: name -> words
    mean     [edge] signed scores; `low` and `high` their interval, `unstable` whether the sign changed between
             resamples: None where nobody resampled
    full     [example] the metric of the model, and `empty` of the empty circuit; None if nothing was evaluated
    definition  of faithfulness, by its name
    prompts  of the evaluated examples, or of the first of them
    """

    name: str
    facts: Mapping[str, str]
    mean: FloatArray
    low: FloatArray | None = None
    high: FloatArray | None = None
    unstable: NDArray[np.bool_] | None = None
    full: FloatArray | None = None
    empty: FloatArray | None = None
    definition: str = ""
    prompts: tuple[Prompt, ...] = ()
    attention: Attention | None = None


@dataclass(frozen=True)
class ViewSize:
    """One circuit of a row: edges asked for and kept, and how faithful it is; None if it wasn't evaluated."""

    share: float
    asked: int
    kept: int
    faithfulness: float | None = None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, eq=False)
class ViewRow:
    """A method's circuits, one per size.

    run         the place of its run
    benchmark   CPR, CMD, or empty for a circuit on its own; `better` is 1 if a higher area is
    parameters  of the method, in words
    area        with its `interval`, if there is one
    metric      [size, example] of every circuit
    value       [edge] that the circuits were chosen by, if it isn't the run's score
    """

    run: int
    measure: str
    method: str
    sizes: tuple[ViewSize, ...]
    circuits: tuple[Circuit, ...]
    parameters: str = ""
    better: int = 0
    area: float | None = None
    interval: tuple[float, float] | None = None
    metric: FloatArray | None = None
    value: FloatArray | None = None


@dataclass(frozen=True, eq=False)
class View:
    """All that a page shows; every run and every circuit is of the same graph.

    shown  the place of the row that is shown first; `size` the place of its size
    """

    title: str
    graph: Graph
    runs: tuple[ViewRun, ...]
    rows: tuple[ViewRow, ...]
    shown: int = 0
    size: int = 0


def view_of(paths: Sequence[str | Path]) -> View:
    """What there is to see in result folders, circuit files and folders of circuits, which must be of one graph."""
    parts = [_part(Path(path)) for path in paths]
    if not parts:
        raise InputError("there is nothing to show; give a result folder or a circuit file")
    first = parts[0]
    for path, part in zip(paths, parts, strict=True):
        if part.graph != first.graph:
            raise InputError(f"{path} is of {part.graph}, but {paths[0]} of {first.graph}; show them on pages apart")
    names = _told_apart([part.title for part in parts], [Path(path) for path in paths])
    runs: list[ViewRun] = []
    rows: list[ViewRow] = []
    for name, part in zip(names, parts, strict=True):
        rows += [replace(row, run=len(runs) + row.run) for row in part.rows]
        runs += [replace(run, name=name) if len(part.runs) == 1 else run for run in part.runs]
    return replace(first, title=" and ".join(dict.fromkeys(names)), runs=tuple(runs), rows=tuple(rows))


def _part(path: Path) -> View:
    """What one path holds: a run, or files of circuits."""
    if is_result(path):
        return view_of_run(read_result(path))
    if is_study(path):
        raise InputError(f"{path} is a study, which has curves but no circuits; show a result folder of `edgewise run`")
    if os.path.isdir(path):
        files = circuit_files(path)
        if not files or os.path.isfile(path / "scores.json"):
            raise InputError(f"{path} has no circuits to show; give a result folder, or files of circuits")
        return _of_circuits(path, files)
    return _of_circuits(path, [path])


def view_of_run(discovery: Discovery) -> View:
    """Return the view of one run."""
    run, statistics, curve = discovery.run, centred_statistics(discovery), discovery.outcomes[0].curve
    name = f"{short_name(run.model)} · {short_name(run.task)}"
    view_run = ViewRun(
        name, _facts(discovery), statistics.mean, statistics.low, statistics.high, statistics.sign_unstable, curve.full,
        curve.empty, curve.definition.name, discovery.prompts, discovery.attention,
    )  # fmt: skip
    rows = tuple(_row(outcome, discovery.learned) for outcome in discovery.outcomes)
    first = discovery.exported(discovery.measures[0])
    shown, share = discovery.outcomes.index(first), first.curve.shares[first.curve.default_size]
    return View(name, run.graph, (view_run,), rows, shown, [size.share for size in rows[shown].sizes].index(share))


def _of_circuits(path: Path, files: Sequence[Path]) -> View:
    """A circuit, or those of a folder: one row for names that differ by their sizes alone."""
    held = [read_edge_file(one) for one in files]
    graph = held[0].graph
    if any(one.graph != graph for one in held):
        raise InputError(f"the circuits in {path} are of different graphs; show them on pages apart")
    held.sort(key=lambda one: np.count_nonzero(one.require_mask()))
    named: dict[str, list[EdgeFile]] = {}
    for one in held:
        named.setdefault(SIZE.sub("", one.path.stem) if len(files) > 1 else one.path.stem, []).append(one)
    name = path.stem if path.suffix in FORMATS else path.name
    parts = [_of_files(place, label, ours) for place, (label, ours) in enumerate(named.items())]
    runs, rows = (tuple(one) for one in zip(*parts, strict=True))
    return View(name, graph, runs, rows, size=len(rows[0].sizes) // 2)


def _of_files(place: int, name: str, held: Sequence[EdgeFile]) -> tuple[ViewRun, ViewRow]:
    """Circuits from the smallest on, with the scores of the largest that has any for an edge; without any, 0."""
    graph, largest = held[0].graph, held[-1]
    score = np.full(graph.n_edges, np.nan)
    for one in reversed(held):
        score = score if one.score is None else np.where(np.isnan(score), one.score, score)
    score = np.nan_to_num(score)
    facts = {known: str(largest.about[known]) for known in ("model", "task") if known in largest.about}
    circuits = tuple(Circuit(one.graph, one.require_mask()) for one in held)
    circuits = tuple(one for one in circuits if one.n_edges) or circuits[-1:]  # of empty ones there is nothing to see
    sizes = tuple(ViewSize(one.n_edges / graph.n_edges, one.n_edges, one.n_edges) for one in circuits)
    return ViewRun(name, {"file": largest.path.name} | facts, score), ViewRow(place, "", name, sizes, circuits)


def _row(outcome: Outcome, learned: Mapping[Learner, Ranking]) -> ViewRow:
    """Return an outcome's circuits of the sizes that ask for an edge, or of the last size if none does."""
    curve, area, circuits = outcome.curve, outcome.resampled.interval(), outcome.circuits
    intervals = faithfulness_intervals(curve.values, curve.full, curve.empty, curve.definition)
    places = curve.nonempty_sizes or [len(curve.asked) - 1]
    sizes = tuple(
        ViewSize(
            curve.shares[place], curve.asked[place], curve.kept[place], interval.estimate, interval.low, interval.high
        )
        for place, interval in ((place, intervals[place]) for place in places)
    )
    ranking = None if outcome.recipe.learner is None else learned.get(outcome.recipe.learner)
    return ViewRow(
        0, outcome.measure.name, outcome.name, sizes, tuple(circuits[place] for place in places),
        outcome.recipe.parameter_text, outcome.measure.better, outcome.area, (area.low, area.high),
        curve.values[places], None if ranking is None else ranking.value,
    )  # fmt: skip


def _facts(result: Discovery) -> dict[str, str]:
    run, settings = result.run, result.settings
    return {
        "model": f"{short_name(run.model)}, {run.graph}, {run.graph.n_edges:,} edges",
        "task": f"{short_name(run.task)}, evaluated on {run.test.examples:,} examples of {run.test.split}",
        "scored by": f"{settings.scorer.name} on {run.train.examples:,} examples of {run.train.split}",
        "metric": settings.metric.name,
        "ablation": settings.ablation.name,
        "faithfulness": settings.faithfulness.summary,
        "accuracy of the model": f"{run.accuracy.top:.1%}",
        "edges whose sign is unstable": f"{result.statistics.sign_instability:.1%}",
        "made with": f"edgewise {run.versions.get('edgewise', '')}, seed {run.seed}",
    }


def _told_apart(names: Sequence[str], paths: Sequence[Path]) -> list[str]:
    """The names of runs; where two are the same, those of their folders tell them apart."""
    said = [f"{name} ({path.name})" if names.count(name) > 1 else name for name, path in zip(names, paths, strict=True)]
    return [f"{name} {place}" if said.count(name) > 1 else name for place, name in enumerate(said, start=1)]
