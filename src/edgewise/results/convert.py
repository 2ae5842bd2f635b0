"""Convert files of scores and circuits, and say what is lost."""

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
from ..evaluate import CMD, Measure
from ..graph import BaseGraph
from ..io.atomic import MARKERS, atomic_folder, check_file
from ..io.formats import EAP_SUFFIXES, FORMATS, NPZ, SUFFIX_WORDS, check_level, read_edge_file
from ..method import as_known
from ..runtime.store import open_partial_store
from ..study.plan import TEST
from .result_folder import is_result, read_result
from .submission import LAYOUTS, SHARES, circuit_files, write_circuits, write_importances


@dataclass(frozen=True)
class Conversion:
    """The written files. `notes` say what the target lacks that the source had, or has that the source lacked."""

    source: Path
    written: tuple[Path, ...]
    graph: BaseGraph
    notes: tuple[str, ...]

    def record(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        files = {"source": str(self.source), "written": [str(path) for path in self.written]}
        return files | {"graph": str(self.graph), "edges": self.graph.n_edges, "notes": list(self.notes)}


def convert(
    source: str | Path,
    target: str | Path,
    overwrite: bool = False,
    suffix: str = EAP_SUFFIXES[0],
    level: str | None = None,
) -> Conversion:
    """Convert scores or circuits from one format to another.

    Between json and pt everything about edges is kept exactly. An npz is a circuit with the scores of its edges. A
    score folder has scores per example and no circuit: in a file, they are averaged over the examples, and no edge is
    in_graph.

    Parameters
    ----------
    source
        A score folder, a circuit file (npz, EAP-IG json or pt), or a folder of circuit files.
    target
        A file, or, without a suffix, a folder: of scores, or of circuits if the source is a folder of circuits.
    overwrite
        Whether an existing target is replaced.
    suffix
        Of the files in a folder of circuits.
    level
        'edge', 'node' or 'neuron': what to convert of files that have several. None converts what they are about.

    Returns
    -------
    Conversion
        The written files, and notes on what the target lacks.
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
            graph, notes = _convert_file(source, target, level)
        return Conversion(source, (target,), graph, notes)
    if os.path.isdir(source) and not any((source / name).exists() for name in MARKERS) and circuit_files(source):
        if suffix not in EAP_SUFFIXES:
            raise unknown_name("suffix", suffix, EAP_SUFFIXES)
        files = circuit_files(source)
        names = [f"{path.stem}{suffix}" for path in files]
        if len(set(names)) < len(names):
            raise InputError(f"{source} has circuits whose names differ in their suffix only; move some away")
        all_notes: dict[str, None] = {}
        with atomic_folder(target) as draft:  # an existing folder is never replaced: its files may be the user's
            for path, name in zip(files, names, strict=True):
                graph, notes = _convert_file(path, draft / name, level)
                all_notes |= dict.fromkeys(notes)
        return Conversion(source, tuple(target / name for name in names), graph, tuple(all_notes))
    scores = _load_scores(source, level)
    scores.save(target, overwrite)
    notes = () if source.is_dir() else ("which edges are in_graph isn't kept: a score folder has no circuit",)
    return Conversion(source, (target,), scores.graph, notes)


def convert_to_submission(
    source: str | Path,
    target: str | Path,
    layout: str,
    task: str,
    model: str,
    suffix: str = ".pt",
    measure: Measure = CMD,
    recipe: str | None = None,
    level: str | None = None,
) -> Conversion:
    """Write the folder of one task and model of a MIB submission into `target`.

    source  for the layout 'importances' anything that holds scores; for 'circuits' a folder of nine circuit files, or a
            result folder
    recipe  the recipe of a result folder; by default the one that was chosen without test
    level   as in `convert`
    """
    source, target = Path(source), Path(target)
    if layout not in LAYOUTS:
        raise unknown_name("layout of a submission", layout, LAYOUTS)
    if layout == "importances":
        scores = _load_scores(source, level)
        path = write_importances(target, task, model, scores, suffix)
        return Conversion(source, (path,), scores.graph, _averaged(scores))
    notes: tuple[str, ...] = ()
    if is_result(source):
        result = read_result(source)
        outcomes = {outcome.name: outcome for outcome in result.outcomes if outcome.measure == measure}
        if not outcomes:
            raise InputError(f"{source} has no circuits for {measure.name}; give another measure, or run it again")
        if recipe is not None:
            outcome = outcomes[as_known("recipe", recipe, outcomes)]
        elif (outcome := result.best(measure)).chosen_on == TEST:
            raise InputError(
                f"{source} has several recipes, and choosing the best would look at {TEST}; name one, such as "
                f"recipe='{measure.paper_recipe}', or run with validation or tune_among=RECIPES, which choose without "
                f"{TEST}"
            )
        by_share = dict(zip(outcome.curve.shares, outcome.selections, strict=True))
        if missing := [f"{share:g}" for share in SHARES if share not in by_share]:
            raise InputError(f"{source} has no circuits of the sizes {', '.join(missing)}, which a submission needs")
        check_level(source, result.run.graph, level)
        circuits = [by_share[share].circuit for share in SHARES]
        notes = (f"circuits by {outcome.name}, for {measure.name}",)
    elif os.path.isdir(source) and not os.path.isfile(source / "scores.json"):
        files = [read_edge_file(path, level) for path in circuit_files(source)]
        for file in files:
            if file.about.get("chosen_on") == TEST:
                raise InputError(
                    f"{file.path} has a circuit of the recipe that was best on {TEST}, which a submission mustn't look "
                    "at; give the result folder and recipe='NAME', or run with tune_among=RECIPES"
                )
        circuits = [Circuit(file.graph, file.require_mask()) for file in files]
    else:
        raise InputError(
            f"{source} is no folder of circuits; give one with nine circuit files or a result folder, "
            "or submit scores: layout='importances'"
        )
    paths = write_circuits(target, task, model, circuits, suffix)
    return Conversion(source, paths, circuits[0].graph, notes)


def _convert_file(source: Path, target: Path, level: str | None) -> tuple[BaseGraph, tuple[str, ...]]:
    """Write one file from a file or a folder of scores. Return its graph and the notes."""
    is_folder = os.path.isdir(source) or not source.suffix
    file = None if is_folder else read_edge_file(source, level)
    if target.suffix == NPZ and (file is None or not file.has_circuit):
        raise InputError(
            f"{source} has scores, but no circuit, and a {NPZ} keeps scores of the edges in a circuit only; "
            f"write a {' or '.join(EAP_SUFFIXES)}, or select a circuit first"
        )
    if file is None:
        scores = _load_scores(source, level)
        Circuit.empty(scores.graph).save(target, scores.mean(), scores.provenance)
        why = "a score folder has no circuit"
        if is_result(source):
            why = f"these are the run's scores; its circuits are in {source / 'circuits'}"
        return scores.graph, (*_averaged(scores), f"no {scores.graph.unit} is in_graph: {why}")
    notes = []
    if file.mask is None:
        notes.append(f"no {file.graph.unit} is in_graph: the source doesn't say")
    if file.unread:
        notes.append(f"not kept, because it isn't of this level: {', '.join(file.unread)}")
    score: NDArray[np.floating]
    if file.score is None:
        score = np.zeros(file.graph.n_edges)
        notes.insert(0, "every score is 0: the source has none")
    elif source.suffix == NPZ:
        score = np.nan_to_num(file.score)
        if target.suffix != NPZ:
            notes.append(f"{file.graph.units} outside have score 0: the source has scores of those inside only")
    else:
        score = file.require_scores()
        if target.suffix == NPZ:
            notes.append(f"scores of {file.graph.units} outside aren't kept")
    circuit = Circuit.empty(file.graph) if file.mask is None else Circuit(file.graph, file.mask)
    circuit.save(target, score, file.about)
    return file.graph, tuple(notes)


def _load_scores(source: Path, level: str | None = None) -> EdgeScores:
    """Return the scores of a path. A ranking counts as one row of them, as MIB reads it."""
    if not Ranking.is_folder(source):
        return EdgeScores.load(source, level)
    ranking = Ranking.load(source)
    check_level(source, ranking.graph, level)
    origin = {name: value for name, value in ranking.origin.items() if name != "losses"}
    return EdgeScores(ranking.graph, ranking.value[None], origin)


def _averaged(scores: EdgeScores) -> tuple[str, ...]:
    return (f"scores are the mean over {scores.n_examples} examples",) if scores.n_examples > 1 else ()
