"""Write and check submissions to the MIB leaderboard: one folder per task and model, such as `ioi_gpt2`.

A folder has one of two layouts:
importances   one json or pt with the score of every edge; MIB selects circuits by them
circuits      nine json or pt, a circuit for each size; their scores are not used

Scores and circuits may also be of nodes, or of neurons (in a pt): then an edge counts as the share of its source's
neurons.

File names don't matter: MIB sorts the nine circuits by their number of edges. Circuits for CMD and for CPR may lie in
separate folders `abs-True` and `abs-False`, which contain the folders of tasks and models.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..core.circuit import Circuit
from ..core.scores import EdgeScores
from ..errors import InputError, unknown_name
from ..evaluate import SIZES, size_to_edges
from ..graph import BaseGraph, Graph, NeuronGraph
from ..io.atomic import atomic_folder
from ..io.formats import EAP_SUFFIXES, FORMATS, read_edge_file
from ..io.reading import wrap_read_errors

MODELS = {
    "gpt2": Graph(12, 12, 768),
    "qwen2.5": Graph(24, 14, 896),
    "gemma2": Graph(26, 8, 2304),
    "llama3": Graph(32, 32, 4096),
}
# Task -> models that MIB has it for.
TASKS = {
    "ioi": ("gpt2", "qwen2.5", "gemma2", "llama3"),
    "mcqa": ("qwen2.5", "gemma2", "llama3"),
    "arithmetic-addition": ("llama3",),
    "arithmetic-subtraction": ("llama3",),
    "arc-easy": ("gemma2", "llama3"),
    "arc-challenge": ("llama3",),
}
LAYOUTS = ("importances", "circuits")
# All sizes but the full model, which isn't submitted.
SHARES = SIZES[:-1]
MIN_TASKS = MIN_MODELS = 2
# The size at the end of a file name, as in cmd-0.01.npz and circuit-479.json.
SIZE_SUFFIX = re.compile(r"-(\d+(?:\.\d+)?(?:e-\d+)?)$")


@dataclass(frozen=True)
class FolderCheck:
    """The check of one folder of a submission. It is accepted if there are no problems."""

    folder: str
    task: str | None
    model: str | None
    layout: str | None
    problems: tuple[str, ...]

    @property
    def accepted(self) -> bool:
        return not self.problems


@dataclass(frozen=True)
class SubmissionCheck:
    """What the check of a submission found: per folder, and for all together."""

    folders: tuple[FolderCheck, ...]
    problems: tuple[str, ...]

    @property
    def accepted(self) -> bool:
        return not self.problems and all(check.accepted for check in self.folders)

    def record(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        folders = [vars(check) | {"accepted": check.accepted} for check in self.folders]
        return {"accepted": self.accepted, "problems": self.problems, "folders": folders}


def folder_name(task: str, model: str) -> str:
    """Return the folder's name for a task and a model. Raise InputError if MIB doesn't have them."""
    task = task.lower().replace("_", "-")
    if task not in TASKS:
        raise unknown_name("MIB task", task, list(TASKS))
    if model not in MODELS:
        raise unknown_name("MIB model", model, list(MODELS))
    if model not in TASKS[task]:
        raise InputError(f"MIB has no task {task!r} for model {model!r}, only for: {', '.join(TASKS[task])}")
    return f"{task}_{model}"


def write_importances(folder: Path, task: str, model: str, scores: EdgeScores, suffix: str = ".pt") -> Path:
    """Write the folder of a task and model with one file of mean scores. Return that file."""
    target = folder / folder_name(task, model)
    _check_graph(scores.graph, model, suffix, "the scores are")
    with _new_folder(target, suffix) as draft:
        Circuit.empty(scores.graph).save(draft / f"importances{suffix}", scores.mean(), scores.provenance)
    return target / f"importances{suffix}"


def write_circuits(
    folder: Path, task: str, model: str, circuits: Sequence[Circuit], suffix: str = ".pt"
) -> tuple[Path, ...]:
    """Write the folder of a task and model with nine circuits, one per size. Return their files, smallest first."""
    target = folder / folder_name(task, model)
    for circuit in circuits:
        _check_graph(circuit.graph, model, suffix, "a circuit is")
    counts = [_count_edges(circuit) for circuit in circuits]
    problems = _size_problems([f"circuit {place}" for place in range(1, len(counts) + 1)], counts, MODELS[model])
    if problems:
        raise InputError("; ".join(problems))
    names = [f"{share:g}{suffix}" for share in SHARES]
    with _new_folder(target, suffix) as draft:
        for name, circuit in zip(names, sorted(circuits, key=_count_edges), strict=True):
            circuit.save(draft / name, about={"task": task, "model": model})
    return tuple(target / name for name in names)


def check_submission(folder: str | Path) -> SubmissionCheck:
    """Check whether MIB would accept a submission, folder by folder."""
    folder = Path(folder)
    if not os.path.isdir(folder):
        raise InputError(
            f"{folder} is no folder; give the one that holds a folder per task and model, such as ioi_gpt2"
        )
    paths: list[Path] = []
    for path in _subfolders(folder):  # the tasks and models are one level down, or below `abs-True` and `abs-False`
        name = path.name.lower()
        paths += _subfolders(path) if "abs" in name and ("true" in name or "false" in name) else [path]
    checks = tuple(_check_folder(path, str(path.relative_to(folder))) for path in paths)
    if not checks:
        return SubmissionCheck(
            (), (f"{folder} has no folder for a task and a model, such as ioi_gpt2; if it is one, give that above it",)
        )
    tasks = {check.task for check in checks if check.task}
    models = {check.model for check in checks if check.model}
    problems = []
    if len(tasks) < MIN_TASKS or len(models) < MIN_MODELS:
        problems.append(
            f"a submission needs at least {MIN_TASKS} tasks and {MIN_MODELS} models, "
            f"but this one has {len(tasks)} and {len(models)}"
        )
    return SubmissionCheck(checks, tuple(problems))


def circuit_files(folder: Path, suffixes: Collection[str] = tuple(FORMATS)) -> list[Path]:
    """Return the files in a folder that have a suffix of circuits, by name and then by the size at its end."""
    with wrap_read_errors(folder):
        paths = [
            path
            for path in folder.iterdir()
            if path.suffix in suffixes and path.name[0] != "." and os.path.isfile(path)
        ]

    def name_and_size(path: Path) -> tuple[str, float, Path]:
        size = SIZE_SUFFIX.search(path.stem)
        return (path.stem, 0.0, path) if size is None else (path.stem[: size.start()], float(size[1]), path)

    return sorted(paths, key=name_and_size)


def _subfolders(folder: Path) -> list[Path]:
    with wrap_read_errors(folder):
        return sorted(path for path in folder.iterdir() if path.name[0] != "." and os.path.isdir(path))


def _check_folder(path: Path, name: str) -> FolderCheck:
    """Check the folder of one task and model."""
    stem, _, model = path.name.lower().rpartition("_")
    try:
        task = folder_name(stem, model).removesuffix(f"_{model}")
    except InputError as error:
        problem = str(error) if stem else f"{path.name!r} names no task and model, such as ioi_gpt2"
        return FolderCheck(name, None, None, None, (problem,))
    paths = circuit_files(path, EAP_SUFFIXES)
    if not paths:
        return FolderCheck(name, task, model, None, (f"it has no file that ends in {' or '.join(EAP_SUFFIXES)}",))
    layout = LAYOUTS[len(paths) > 1]
    problems, counts = [], {}
    for file_path in paths:
        try:
            file = read_edge_file(file_path)
            _check_graph(file.graph, model, file_path.suffix, f"{file_path} is")
            if layout == "importances":
                file.require_scores()
            if file.mask is None:
                advice = ", which MIB's reader needs; false will do" if layout == "importances" else ""
                raise InputError(f"{file_path}: no edge says whether it is in_graph{advice}")
            counts[file_path.name] = _count_edges(Circuit(file.graph, file.mask))
        except InputError as error:
            problems.append(str(error))
    if layout == "circuits":
        problems += _size_problems(list(counts), list(counts.values()), MODELS[model])
    return FolderCheck(name, task, model, layout, tuple(problems))


def _check_graph(graph: BaseGraph, model: str, suffix: str, subject_and_verb: str) -> None:
    """Raise InputError if MIB would not read a graph from a file with this suffix as that of the model."""
    if graph.plain != MODELS[model]:
        raise InputError(f"{subject_and_verb} of {graph.plain}, but MIB's {model} has {MODELS[model]}")
    if isinstance(graph, NeuronGraph) and suffix == ".json":
        raise InputError(
            f"{subject_and_verb} of neurons in a json, from which MIB reads the neurons of a layer's last head for all "
            "its heads; use .pt"
        )


def _count_edges(circuit: Circuit) -> int:
    """Return the number of edges, each counted as the share of its source's neurons in the circuit."""
    plain, outputs = circuit.plain(), circuit.graph.output_mask(circuit.mask)
    if outputs is None:
        return plain.n_edges
    return int(np.ceil(outputs.mean(1)[plain.graph.plain.edge_source[plain.mask]].sum() - 1e-9))


def _size_problems(names: Sequence[str], counts: Sequence[int], graph: Graph) -> list[str]:
    """Return why circuits with these numbers of edges aren't one for each size, at most that large."""
    limits = {share: size_to_edges(share, graph.n_edges) for share in SHARES}
    free, too_large = dict(limits), []
    # Starting with the smallest, each circuit takes the smallest free size that it fits.
    for count, name in sorted(zip(counts, names, strict=True)):
        share = next((share for share, limit in free.items() if count <= limit), None)
        if share is None:
            too_large.append(f"{name} has {count:,} edges, more than any size that is left holds")
        else:
            del free[share]
    missing = [
        f"no circuit for {share:.1%}".replace(".0%", "%") + f" (at most {limit:,} edges)"
        for share, limit in free.items()
    ]
    if len(names) > len(limits):
        many = f"there are {len(names)} circuits, but MIB reads {len(limits)} of them, in no fixed order"
        return [f"{many}: keep one per size", *missing]
    return missing + too_large


def _new_folder(target: Path, suffix: str) -> AbstractContextManager[Path]:
    """Open a folder that is written atomically. Raise InputError for a wrong suffix, or if the folder isn't empty."""
    if suffix not in EAP_SUFFIXES:
        raise unknown_name("suffix", suffix, EAP_SUFFIXES)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise InputError(f"{target} exists already; remove it, or choose another folder for the submission")
    return atomic_folder(target)
