"""From one format to another, and what doesn't survive the way."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.circuit import Circuit
from ..core.ranking import Ranking
from ..core.scores import EdgeScores
from ..errors import InputError, unknown_name
from ..evaluate import CircuitModelDistance, Measure
from ..graph import Graph
from ..io.atomic import MARKERS, atomic_folder, check_file
from ..io.edge_file import EdgeFile
from ..io.formats import EAP_SUFFIXES, FORMATS, NPZ, SUFFIX_WORDS, read_edge_file
from ..recipes.outcome import Outcome
from ..recipes.recipe import TUNED
from ..runtime.store import open_partial_store
from ..study.plan import TEST
from .result_folder import is_result, read_result
from .submission import LAYOUTS, SHARES, check_field_suffix, circuit_files, write_circuits, write_importances

DEFAULT = CircuitModelDistance()


@dataclass(frozen=True)
class Conversion:
    """What was written from what; `notes` say what the target has that the source hadn't, or lacks that it had."""

    source: Path
    written: tuple[Path, ...]
    graph: Graph
    notes: tuple[str, ...]

    def record(self) -> dict[str, Any]:
        """The conversion as plain data."""
        return {
            "source": str(self.source),
            "written": [str(path) for path in self.written],
            "graph": str(self.graph),
            "edges": self.graph.n_edges,
            "notes": list(self.notes),
        }


def convert(
    source: str | Path, target: str | Path, overwrite: bool = False, suffix: str = EAP_SUFFIXES[0]
) -> Conversion:
    """Write scores, or a circuit, from one format to another: a target without suffix is a score folder, or of a folder
    of circuits one of as many files that end in `suffix`.

    Between json and pt everything about edges is kept, exactly. A npz is a circuit, and has scores of the edges inside
    only. A score folder has an example axis and no membership: on the way to a file its scores are averaged over the
    examples, and no edge of the file is in_graph.
    """
    source, target = Path(source), Path(target)
    if target.suffix not in ("", *FORMATS):
        raise InputError(
            f"{target} has the suffix {target.suffix!r}; write to a file that ends in {SUFFIX_WORDS}, "
            "or to a score folder, whose name has no suffix"
        )
    if target.suffix:
        with open_partial_store(target):
            check_file(target, overwrite)
            graph, notes = _to_file(source, target)
    elif _has_circuits(source):
        return _to_files(source, target, suffix)
    else:
        graph, notes = _to_folder(source, target, overwrite)
    return Conversion(source, (target,), graph, notes)


def convert_to_submission(
    source: str | Path,
    target: str | Path,
    layout: str,
    task: str,
    model: str,
    suffix: str = ".pt",
    measure: Measure = DEFAULT,
    method: str | None = None,
) -> Conversion:
    """Write the folder of one task and model of a MIB submission into `target`.

    importances   from whatever holds scores
    circuits      from a folder of nine circuit files, or from a result folder: the circuits of one of its methods,
                  which was tuned or is named by `method`; none that was chosen by looking at test is taken
    """
    source, target = Path(source), Path(target)
    if layout not in LAYOUTS:
        raise unknown_name("layout of a submission", layout, LAYOUTS)
    if layout == "importances":
        scores = _scores(source)
        path = write_importances(target, task, model, scores, suffix)
        return Conversion(source, (path,), scores.graph, _averaged(scores))
    if is_result(source):
        circuits, notes = _circuits_of_run(source, measure, method)
    elif os.path.isdir(source) and not os.path.isfile(source / "scores.json"):
        circuits, notes = [_untested(read_edge_file(path)) for path in circuit_files(source)], ()
    else:
        raise InputError(
            f"{source} is no folder of circuits; give one with nine circuit files or a result folder, "
            "or submit scores: --submission importances"
        )
    paths = write_circuits(target, task, model, circuits, suffix)
    return Conversion(source, paths, circuits[0].graph, notes)


def _to_file(source: Path, target: Path) -> tuple[Graph, tuple[str, ...]]:
    if os.path.isdir(source) or not source.suffix:
        _refuse_packed(source, target)
        scores = _scores(source)
        nothing = "no edge is in_graph: a score folder has no circuit"
        Circuit.empty(scores.graph).save(target, scores.mean(), scores.provenance)
        return scores.graph, (*_averaged(scores), nothing)
    held, notes = read_edge_file(source), []
    if held.mask is None or not held.mask.any():
        _refuse_packed(source, target)
    graph = held.graph
    if held.score is None:
        notes.append("every score is 0: the source has none")
    if held.mask is None:
        notes.append("no edge is in_graph: the source doesn't say")
    if held.unread:
        notes.append(f"not kept, because it isn't about edges: {', '.join(held.unread)}")
    if held.score is None:
        score: NDArray[np.floating] = np.zeros(graph.n_edges)
    elif source.suffix == NPZ:
        score = np.nan_to_num(held.score)
        notes.append("edges outside have score 0: the source has scores of those inside only" * (target.suffix != NPZ))
    else:
        score = held.require_scores()
        notes.append("scores of edges outside aren't kept" * (target.suffix == NPZ))
    circuit = Circuit.empty(graph) if held.mask is None else Circuit(graph, held.mask)
    circuit.save(target, score, held.about)
    return graph, tuple(filter(None, notes))


def _refuse_packed(source: Path, target: Path) -> None:
    if target.suffix == NPZ:
        words = f"{source} has scores, but no circuit, and a {NPZ} keeps scores of the edges in a circuit only"
        raise InputError(f"{words}; write a {' or '.join(EAP_SUFFIXES)}, or select a circuit first")


def _has_circuits(source: Path) -> bool:
    """Whether a path is a folder of circuits, rather than of scores or a run."""
    return (
        os.path.isdir(source) and not any((source / name).exists() for name in MARKERS) and bool(circuit_files(source))
    )


def _to_files(source: Path, target: Path, suffix: str) -> Conversion:
    check_field_suffix(suffix)
    files = circuit_files(source)
    names = [f"{path.stem}{suffix}" for path in files]
    if len(set(names)) < len(names):
        raise InputError(f"{source} has circuits whose names differ in their suffix only; move some away")
    notes: dict[str, None] = {}
    with atomic_folder(target) as draft:  # never over another: whose files would those be?
        for path, name in zip(files, names, strict=True):
            graph, said = _to_file(path, draft / name)
            notes |= dict.fromkeys(said)
    return Conversion(source, tuple(target / name for name in names), graph, tuple(notes))


def _to_folder(source: Path, target: Path, overwrite: bool) -> tuple[Graph, tuple[str, ...]]:
    scores = _scores(source)
    scores.save(target, overwrite)
    kept = () if source.is_dir() else ("which edges are in_graph isn't kept: a score folder has no circuit",)
    return scores.graph, kept


def _scores(source: Path) -> EdgeScores:
    """The scores that a path holds; a ranking counts as one row of them, as the benchmark reads it."""
    if not Ranking.is_folder(source):
        return EdgeScores.load(source)
    ranking = Ranking.load(source)
    about = {name: value for name, value in ranking.origin.items() if name != "losses"}
    return EdgeScores(ranking.graph, ranking.value[None], about)


def _averaged(scores: EdgeScores) -> tuple[str, ...]:
    return (f"scores are the mean over {scores.n_examples} examples",) if scores.n_examples > 1 else ()


def _untested(held: EdgeFile) -> Circuit:
    """The circuit of a file, unless the file says that its method was chosen by looking at test."""
    if held.about.get("chosen_on") == TEST:
        raise InputError(
            f"{held.path} has a circuit of the method that was best on {TEST}, which a submission mustn't look at; "
            "give the result folder and --method, or run with --tune"
        )
    return Circuit(held.graph, held.require_mask())


def _circuits_of_run(folder: Path, measure: Measure, method: str | None) -> tuple[list[Circuit], tuple[str, ...]]:
    """The circuits of one of a run's methods, at the sizes of a submission."""
    row = _row_to_submit(folder, measure, method)
    by_share = dict(zip(row.curve.shares, row.circuits, strict=True))
    missing = [f"{share:g}" for share in SHARES if share not in by_share]
    if missing:
        raise InputError(f"{folder} has no circuits of the sizes {', '.join(missing)}, which a submission needs")
    return [by_share[share] for share in SHARES], (f"circuits by {row.name}, for {measure.name}",)


def _row_to_submit(folder: Path, measure: Measure, method: str | None) -> Outcome:
    """The method that is named, or the tuned one, or the best on a split that isn't test."""
    result = read_result(folder)
    rows = {row.name.lower(): row for row in result.outcomes if row.measure == measure}
    if not rows:
        raise InputError(f"{folder} has no circuits for {measure.name}; give another --benchmark, or run it again")
    if method is None and TUNED.lower() in rows:
        method = TUNED
    if method is None and result.run.test.split != TEST:
        return max(rows.values(), key=lambda row: measure.better * row.area)
    if method is None:
        raise InputError(
            f"{folder} has several methods, and choosing the best would look at {TEST}; name one, such as --method "
            f"'{measure.paper_recipe}', or run with --tune, which chooses without {TEST}"
        )
    if method.lower() not in rows:
        raise unknown_name("method", method, [row.name for row in rows.values()])
    return rows[method.lower()]
