"""edgewise roc: compare rankings with a known circuit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import typer

from ..core.ranking import COMBINED, Ranking
from ..core.scores import EdgeScores
from ..errors import InputError
from ..evaluate.known import auroc, precision_at_true_size, read_truth
from ..io.formats import read_edge_file
from ..report.formatting import format_number
from ..report.tables import number_tables
from ..results import is_result, read_result
from ..select.base import RANKS
from . import options
from .console import explain, out, print_json, print_tables, say
from .options import option
from .run_options import find_truth


def command(
    *,
    scores: list[Path] = typer.Argument(
        ..., help="Folders of `edgewise score`, `learn` or `run`, or EAP-IG json or pt files."
    ),
    truth: str = option(
        options.AUTO,
        "Circuit",
        "The true circuit: a circuit file (npz, EAP-IG json or pt), or known/NAME; auto: that of the run's own model.",
    ),
    json: bool = options.JSON,
) -> None:
    """Compare rankings with a known circuit: AUROC, and precision at the size of that circuit.

    Scores are ranked by their signed and by their absolute value. Of a run, its learned rankings are compared, too.
    """
    truth = find_truth(truth, scores)
    circuit = read_truth(truth)
    rows: list[dict[str, Any]] = []
    for path in scores:
        for name, ranking in _read_rankings(path):
            if ranking.graph != circuit.graph:
                raise InputError(
                    f"{truth} is a circuit of {circuit.graph.describe()}, but {path} has {ranking.graph.describe()}"
                )
            for rank in RANKS if ranking.signed else RANKS[:1]:
                value = np.abs(ranking.value) if rank == "absolute" else ranking.value
                measured = {"auroc": auroc(value, circuit), "precision": precision_at_true_size(value, circuit)}
                rows.append({"input": str(path), "ranking": name, "rank": rank if ranking.signed else None} | measured)
    if json:
        print_json({"truth": truth, "edges": circuit.n_edges, "of": circuit.graph.n_edges, "rankings": rows})
        return
    cells = [
        (row["input"], row["ranking"], row["rank"] or "-", format_number(row["auroc"]), format_number(row["precision"]))
        for row in rows
    ]
    print_tables(number_tables(("input", "ranking", "rank", "AUROC", "precision"), cells, out.width, left=range(3)))
    unit, units = circuit.graph.unit, circuit.graph.units
    say(f"{circuit.n_edges:,} of {circuit.graph.n_edges:,} {units}", truth)
    explain(f"AUROC: the chance that a true {unit} ranks above another one; 0.5 is chance, 1 is best")
    explain(f"precision: the share of true {units} among the best {circuit.n_edges:,}")


def _read_rankings(path: Path) -> Iterator[tuple[str, Ranking]]:
    """Yield every ranking in a folder or file, with its name."""
    if Ranking.is_folder(path):
        ranking = Ranking.load(path)
        method = ranking.origin.get("method")
        is_combined = isinstance(method, dict) and method.get("name") == COMBINED
        yield COMBINED if is_combined else "learned", ranking
        return
    if path.is_file():
        file = read_edge_file(path)
        has_score = np.zeros(file.graph.n_edges, bool) if file.score is None else np.isfinite(file.score)
        if not has_score.all() or not np.any(file.score):
            n_scored = 0 if file.score is None else np.count_nonzero(np.nan_to_num(file.score))
            raise InputError(
                f"{path} is no ranking: {n_scored:,} of its {file.graph.n_edges:,} {file.graph.units} have a score. "
                f"Give scores of all; `edgewise view {path} --truth FILE` shows which {file.graph.units} are true"
            )
    if not is_result(path):
        loaded = EdgeScores.load(path)
        yield str(loaded.provenance.get("method", "scores")), Ranking(loaded.graph, loaded.mean())
        return
    result = read_result(path)
    yield result.settings.scorer.name, Ranking(result.run.graph, result.mean_scores)
    for learner, ranking in result.learned.items():
        outcome = next(outcome for outcome in result.outcomes if outcome.recipe.learner == learner)
        yield f"{outcome.name} ({outcome.measure.name})", ranking
