"""edgewise compare: is one method better than another?"""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import Annotated

import typer

from . import options
from .console import out, print_json, say

NAME = "compare"


def command(
    folder: Annotated[Path, typer.Argument(help="A folder made by `edgewise run` or `edgewise study`.")],
    method: Annotated[
        str | None, typer.Argument(help="A method, such as 'ILP + PNR'; default: the best of each metric.")
    ] = None,
    other: Annotated[str | None, typer.Argument(help="What to compare it with; default: every method with it.")] = None,
    json: options.Json = False,
) -> None:
    """Compare methods on the same examples: difference, its interval, p.

    With two methods, the first less the second. With one, all others less that one. With none, all others less the
    best: what can't be told apart from it is as good, as far as these examples say. A study's methods are compared
    on test, with the hyper-parameters that validation chose.
    """
    from ..report.comparisons import contests_of_run, contests_of_study, pair_table, pairs
    from ..results import read_result
    from ..study import is_study, read_study

    contests = contests_of_study(read_study(folder)) if is_study(folder) else contests_of_run(read_result(folder))
    found = pairs(contests, method, other)
    if json:
        print_json([pair.record() for pair in found])
        return
    for _, same in groupby(found, key=lambda pair: id(pair.contest)):
        out.print(pair_table(list(same)))
        out.print()
    say(f"*: the interval excludes 0; bold: on the better side; faithfulness: {contests[0].faithfulness.words}")
    if method is None:
        say("The best was chosen by looking at these examples, so its lead is flattered.")
