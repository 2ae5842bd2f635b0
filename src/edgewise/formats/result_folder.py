"""The result folder: every outcome of a run as data, from which everything else can be rebuilt.

run.json          settings, versions, seed, timings, the definition of faithfulness, accuracy of the model, areas
scores/           [example, edge] scores
statistics.npz    per edge: mean, low, high, kept, sign_unstable
circuits.npz      every circuit of every recipe and size, as packed bits, and the values of every curve
circuits/         a circuit per size as EAP-IG json, of the tuned recipe, or else of the best on the evaluated examples
curve.csv/.json   asked and kept edges, metric and faithfulness per recipe and size; in the json also every area's
                  interval over the evaluated examples, and its paired comparison with greedy
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile

import numpy as np

from ..circuit import Circuit
from ..errors import InputError
from ..evaluate.curve import Curve
from ..evaluate.intervals import Resampled, resample
from ..graph import Graph
from ..recipes import GREEDY
from ..statistics import Bootstrap
from .eap_json import write_circuit
from .score_folder import write_scores
from .write import read_json, write_json

if TYPE_CHECKING:
    from ..pipeline import Discovery, Outcome

FORMAT, VERSION = "edgewise-result", 1
# A json of a larger graph has over 25 MB; circuits.npz has every circuit anyway.
LARGEST_JSON = 400_000


@dataclass(frozen=True, eq=False)
class ResultRow:
    """One recipe's curve, as read back from a folder."""

    benchmark: str
    name: str
    area: float
    curve: Curve
    selections: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, eq=False)
class Result:
    """A result folder, read back."""

    run: Mapping[str, Any]
    rows: tuple[ResultRow, ...]


def write_result(folder: Path, discovery: Discovery, about: Mapping[str, Any]) -> None:
    """Fill a folder that exists; `about` is what the caller knows beyond the discovery (model, task, seed, ...)."""
    (folder / "scores").mkdir()
    write_scores(folder / "scores", discovery.scores)
    statistics = discovery.filtered
    names = ("mean", "low", "high", "kept", "sign_unstable")
    np.savez_compressed(folder / "statistics.npz", **{name: getattr(statistics, name) for name in names})
    _write_arrays(folder / "circuits.npz", discovery)
    _write_best_circuits(folder / "circuits", discovery, about)
    areas = [resample(outcome.curve, outcome.benchmark) for outcome in discovery.outcomes]
    greedy = {o.benchmark: area for o, area in zip(discovery.outcomes, areas, strict=True) if o.recipe == GREEDY}
    records = [
        _record(outcome, area, greedy[outcome.benchmark])
        for outcome, area in zip(discovery.outcomes, areas, strict=True)
    ]
    write_json(folder / "curve.json", records)
    _write_csv(folder / "curve.csv", records)
    write_json(folder / "run.json", {"format": FORMAT, "version": VERSION, **about})


def read_result(folder: Path) -> Result:
    """Read a result folder back; says so if it isn't whole."""
    try:
        return _read_result(folder)
    except InputError:
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError, BadZipFile) as error:
        raise InputError(f"{folder} isn't a whole result folder: {error}; run it again") from None


def _read_result(folder: Path) -> Result:
    if not (folder / "run.json").is_file():
        raise InputError(f"{folder} isn't a result folder; give one made by `edgewise run` or `edgewise study`")
    run = read_json(folder / "run.json")
    if run.get("format") != FORMAT or run.get("version") != VERSION:
        raise InputError(
            f"{folder} is of format {run.get('format')!r} version {run.get('version')!r}; "
            f"this edgewise reads {FORMAT} version {VERSION}"
        )
    arrays = np.load(folder / "circuits.npz")
    rows = []
    for record, values in zip(read_json(folder / "curve.json"), arrays["values"], strict=True):
        shares, asked, kept = (
            tuple(size[name] for size in record["sizes"]) for name in ("share", "edges_asked", "edges_kept")
        )
        curve = Curve(shares, asked, kept, values, arrays["full"], arrays["empty"], record["faithfulness"])
        rows.append(ResultRow(record["benchmark"], record["method"], record["area"], curve, tuple(record["sizes"])))
    return Result(run, tuple(rows))


def read_circuits(folder: Path) -> dict[tuple[str, str], tuple[Circuit, ...]]:
    """Every circuit of a result folder: (benchmark, method) -> one per size."""
    graph = Graph(**read_json(folder / "scores" / "scores.json")["graph"])
    arrays = np.load(folder / "circuits.npz")
    masks = np.unpackbits(arrays["masks"], axis=-1, count=graph.n_edges).astype(bool)
    records = read_json(folder / "curve.json")
    return {
        (record["benchmark"], record["method"]): tuple(Circuit(graph, mask) for mask in sizes)
        for record, sizes in zip(records, masks, strict=True)
    }


def _record(outcome: Outcome, area: Resampled, greedy: Resampled) -> dict[str, Any]:
    sizes = [
        row | {name: value for name, value in selection.record().items() if name not in row}
        for row, selection in zip(outcome.curve.rows(), outcome.selections, strict=True)
    ]
    recipe = outcome.recipe
    return {
        "benchmark": outcome.benchmark,
        "method": recipe.name,
        "solver": recipe.solver,
        "bootstrap": isinstance(recipe.filter, Bootstrap),
        "filter": None if recipe.filter is None else {"kind": type(recipe.filter).__name__, **asdict(recipe.filter)},
        "pnr": recipe.pnr,
        "area": area.estimate,
        "interval": area.interval().record(),
        "against_greedy": None if greedy is area else area.less(greedy).record(),
        "faithfulness": outcome.curve.definition,
        "sizes": sizes,
    }


def _write_csv(path: Path, records: list[dict[str, Any]]) -> None:
    columns = ["benchmark", "method", *records[0]["sizes"][0]]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        for record in records:
            for size in record["sizes"]:
                writer.writerow({"benchmark": record["benchmark"], "method": record["method"], **size})


def _write_arrays(path: Path, discovery: Discovery) -> None:
    masks = [[selection.circuit.mask for selection in outcome.selections] for outcome in discovery.outcomes]
    curve = discovery.outcomes[0].curve
    np.savez_compressed(
        path,
        masks=np.packbits(np.array(masks), axis=-1),
        values=np.stack([outcome.curve.values for outcome in discovery.outcomes]),
        full=curve.full,
        empty=curve.empty,
    )


def exported_record(outcome: Outcome, about: Mapping[str, Any]) -> dict[str, Any]:
    """Which method's circuits are written, and on which examples it was chosen, as plain data."""
    chosen_on = about.get("train" if outcome.recipe.alias else "test", {}).get("split")
    return {"recipe": outcome.recipe.combination, "parameters": outcome.recipe.parameters, "chosen_on": chosen_on}


def _write_best_circuits(folder: Path, discovery: Discovery, about: Mapping[str, Any]) -> None:
    if discovery.scores.graph.n_edges > LARGEST_JSON:
        return
    folder.mkdir()
    for benchmark in ("CMD", "CPR"):
        best = discovery.exported(benchmark)
        score = discovery.statistics[best.recipe.filter].score
        origin = {"model": about.get("model"), "task": about.get("task"), **exported_record(best, about)}
        for share, selection in zip(best.curve.shares, best.selections, strict=True):
            name = f"{benchmark.lower()}-{share:g}.json"
            write_circuit(folder / name, selection.circuit, score, origin | selection.record())
