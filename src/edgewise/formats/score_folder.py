"""A folder of scores: `scores.npy` [example, edge] and `scores.json`, which says of what."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import numpy as np

from ..errors import InputError
from ..graph import Graph
from ..scores import EdgeScores
from . import eap_json
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
    """Scores from a score folder, a result folder, or an EAP-IG json; large arrays stay on disk."""
    if path.is_file():
        return eap_json.read_scores(path)
    folder = path / "scores" if (path / "scores").is_dir() else path
    if not (folder / "scores.json").is_file():
        raise InputError(f"{path} holds no scores; give a folder made by `edgewise score` or an EAP-IG json")
    about = read_json(folder / "scores.json")
    if about.get("format") != FORMAT or about.get("version") != VERSION:
        raise InputError(
            f"{folder} is of format {about.get('format')!r} version {about.get('version')!r}; "
            f"this edgewise reads {FORMAT} version {VERSION}"
        )
    try:
        values = np.load(folder / "scores.npy", mmap_mode="r")
    except (OSError, ValueError) as error:
        raise InputError(f"{folder / 'scores.npy'} can't be read: {error}") from None
    return EdgeScores(Graph(**about["graph"]), values, about["provenance"])
