"""edgewise combine: combine several rankings into one."""

from __future__ import annotations

from pathlib import Path

import typer

from ..core.ranking import HOW, Ranking, combine_rankings
from ..core.scores import EdgeScores
from ..core.statistics import summarise
from ..errors import InputError
from ..io.atomic import SCORE_FILES, check_folder
from ..select.base import RANKS
from . import options
from .console import print_json, say
from .options import option, parse_numbers
from .show import show_strongest


def command(
    *,
    scores: list[Path] = typer.Argument(
        ..., help="Two or more: folders of `edgewise score`, `learn` or `run`, or EAP-IG json or pt files."
    ),
    out_folder: Path = options.RANKING_FOLDER,
    how: str = option("ranks", "Selection", "Take the mean of ranks, or of values on a common scale.", choices=HOW),
    weights: str | None = option(None, "Selection", "One number for each, as 1,1,2. By default all are equal."),
    rank: str | None = option(
        None, "Selection", f"What to combine: {options.RANK_HELP}. By default signed, if all have signs.", choices=RANKS
    ),
    overwrite: bool = options.OVERWRITE,
    json: bool = options.JSON,
) -> None:
    """Combine several rankings of one model's edges into one: the mean of their ranks or values.

    Writes a folder with the ranking, which `edgewise select` reads.
    """
    check_folder(out_folder, overwrite, SCORE_FILES)
    if out_folder.resolve() in [path.resolve() for path in scores]:
        raise InputError(f"{out_folder} is an input of this command; choose another folder to write to")
    if len(scores) < 2:
        raise InputError("give two or more folders or files to combine")
    numbers = None if weights is None else parse_numbers("--weights", weights, float, "1,1,2")
    rankings = [
        Ranking.load(path) if Ranking.is_folder(path) else summarise(EdgeScores.load(path)).ranking for path in scores
    ]
    ranking = combine_rankings(rankings, how, numbers, rank)
    ranking.save(out_folder, overwrite)
    if json:
        print_json(dict(ranking.origin) | {"edges": ranking.graph.n_edges, "out": str(out_folder)})
        return
    show_strongest("value", ranking.graph, ranking.value, signed=ranking.signed)
    say(f"{len(rankings)} rankings, written to {out_folder}")
