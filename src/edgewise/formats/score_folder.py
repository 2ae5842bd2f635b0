"""A folder of scores: `scores.npy` [example, edge] and `scores.json`, which says of what."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import numpy as np

from ..errors import InputError
from ..graph import Graph
from ..scores import EdgeScores
from .write import read_json, write_json

FORMAT, VERSION = "edgewise-scores", 1


def write_scores(folder: Path, scores: EdgeScores) -> None:
    """Fill a folder that exists. An array that already lies there, memory-mapped, is not written again."""
    array = folder / "scores.npy"
    if not array.exists():
        np.save(array, scores.values)
    about = {
        "format": FORMAT,
        "version": VERSION,
        "graph": asdict(scores.graph),
        "examples": scores.n_examples,
        "provenance": dict(scores.provenance),
    }
    write_json(folder / "scores.json", about)


def read_scores(path: Path) -> EdgeScores:
    """Scores from a score folder or a result folder; large arrays stay on disk."""
    folder = path / "scores" if (path / "scores").is_dir() else path
    if not (folder / "scores.json").is_file():
        raise InputError(
            f"{path} holds no scores; give a folder made by `edgewise score` or `edgewise run`, or an EAP-IG json or pt"
        )
    about = read_json(folder / "scores.json")
    about = about if isinstance(about, dict) else {}
    if about.get("format") != FORMAT or about.get("version") != VERSION:
        raise InputError(
            f"{folder} is of format {about.get('format')!r} version {about.get('version')!r}; "
            f"this edgewise reads {FORMAT} version {VERSION}"
        )
    try:
        graph = Graph(**about["graph"])
    except (KeyError, TypeError) as error:
        raise InputError(f"{folder / 'scores.json'} doesn't say of which graph the scores are: {error}") from None
    try:
        values = np.load(folder / "scores.npy", mmap_mode="r")
    except (OSError, EOFError, ValueError) as error:
        raise InputError(f"{folder / 'scores.npy'} can't be read: {error}") from None
    if values.dtype.kind != "f":
        raise InputError(f"{folder / 'scores.npy'} holds {values.dtype}, but scores are floating-point numbers")
    try:
        return EdgeScores(graph, values, about.get("provenance") or {})
    except InputError as error:
        raise InputError(f"{folder}: {error}") from None
