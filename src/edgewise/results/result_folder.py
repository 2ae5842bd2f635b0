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
import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile

import numpy as np

from ..circuit import Circuit
from ..disk import write_arrays, write_json, write_text
from ..errors import InputError
from ..evaluate import BENCHMARKS, FAITHFULNESS, Benchmark, Curve, Resampled, resample
from ..methods import choose, plain
from ..reading import read_format, read_json
from ..scores import fill_folder
from ..study import GREEDY
from .record import RunRecord, exported_record

if TYPE_CHECKING:
    from ..pipeline import Discovery, Outcome

FORMAT, VERSION = "edgewise-result", 2
# The files of a result folder, by their paths in it.
FILES = (
    r"run\.json|statistics\.npz|circuits\.npz|curve\.(csv|json)|scores/scores\.(npy|json)"
    r"|circuits/[^/]+-[0-9.e-]+\.json|figures/faithfulness\.(png|svg)"
)
STATISTICS = ("mean", "low", "high", "kept", "sign_unstable")
# A json of a larger graph has over 25 MB; circuits.npz has every circuit anyway.
LARGEST_JSON = 400_000


@dataclass(frozen=True, eq=False)
class ResultRow:
    """One recipe's curve, as read back from a folder; `recipe` is plain data: solver, filter, pnr."""

    benchmark: Benchmark
    name: str
    recipe: Mapping[str, Any]
    area: float
    curve: Curve
    selections: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, eq=False)
class Result:
    """A result folder, read back."""

    run: RunRecord
    rows: tuple[ResultRow, ...]

    @property
    def benchmarks(self) -> tuple[Benchmark, ...]:
        """Those that recipes were tried for."""
        return tuple(dict.fromkeys(row.benchmark for row in self.rows))

    def of(self, benchmark: Benchmark) -> list[ResultRow]:
        """The rows of one benchmark."""
        return [row for row in self.rows if row.benchmark == benchmark]

    def __repr__(self) -> str:
        return f"Result({self.run.model!r} on {self.run.task!r}, {len(self.rows)} curves)"


def fill_result(folder: Path, found: Discovery) -> RunRecord:
    """Fill a folder that exists with all that a discovery found; gives its record."""
    (folder / "scores").mkdir()
    fill_folder(folder / "scores", found.scores)
    statistics = found.statistics
    write_arrays(folder / "statistics.npz", {name: getattr(statistics, name) for name in STATISTICS})
    _write_arrays(folder / "circuits.npz", found)
    _write_exported(folder / "circuits", found)
    areas = [resample(outcome.curve, outcome.benchmark) for outcome in found.outcomes]
    greedy = {o.benchmark: area for o, area in zip(found.outcomes, areas, strict=True) if o.recipe == GREEDY}
    records = [
        _record(outcome, area, greedy.get(outcome.benchmark))
        for outcome, area in zip(found.outcomes, areas, strict=True)
    ]
    write_json(folder / "curve.json", records)
    _write_csv(folder / "curve.csv", records)
    record = RunRecord.of(found)
    write_json(folder / "run.json", {"format": FORMAT, "version": VERSION} | record.record())
    return record


def read_result(folder: str | Path) -> Result:
    """Read a result folder back; says so if it isn't whole."""
    folder = Path(folder)
    if not (folder / "run.json").is_file():
        raise InputError(f"{folder} isn't a result folder; give one made by `edgewise run` or `edgewise study`")
    run = read_format(folder / "run.json", FORMAT, VERSION)
    try:
        with np.load(folder / "circuits.npz") as arrays:
            values, full, empty = (arrays[name] for name in ("values", "full", "empty"))
        records = read_json(folder / "curve.json")
        rows = tuple(_row(record, one, full, empty) for record, one in zip(records, values, strict=True))
        return Result(RunRecord.from_record(run), rows)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, BadZipFile) as error:
        raise InputError(f"{folder} isn't a whole result folder: {error}; run it again") from None


def read_circuits(folder: str | Path) -> dict[tuple[Benchmark, str], tuple[Circuit, ...]]:
    """Every circuit of a result folder: (benchmark, method) -> one per size."""
    result = read_result(folder)
    graph = result.run.graph
    with np.load(Path(folder) / "circuits.npz") as arrays:
        masks = np.unpackbits(arrays["masks"], axis=-1, count=graph.n_edges).astype(bool)
    return {
        (row.benchmark, row.name): tuple(Circuit(graph, mask) for mask in sizes)
        for row, sizes in zip(result.rows, masks, strict=True)
    }


def _row(record: Mapping[str, Any], values: np.ndarray, full: np.ndarray, empty: np.ndarray) -> ResultRow:
    sizes = record["sizes"]
    shares, asked, kept = (tuple(size[name] for size in sizes) for name in ("share", "edges_asked", "edges_kept"))
    definition = choose("faithfulness definition", FAITHFULNESS, record["faithfulness"])
    curve = Curve(shares, asked, kept, values, full, empty, definition)
    benchmark = choose("benchmark", BENCHMARKS, record["benchmark"])
    recipe = {name: record[name] for name in ("solver", "filter", "pnr", "learner", "choices")}
    return ResultRow(benchmark, record["method"], recipe, record["area"], curve, tuple(sizes))


def _record(outcome: Outcome, area: Resampled, greedy: Resampled | None) -> dict[str, Any]:
    sizes = [
        row | {name: value for name, value in selection.record().items() if name not in row}
        for row, selection in zip(outcome.curve.rows(), outcome.selections, strict=True)
    ]
    recipe = outcome.recipe
    return {
        "benchmark": outcome.benchmark.name,
        "method": recipe.name,
        "solver": recipe.solver.name,
        "filter": plain(recipe.filter),
        "pnr": recipe.pnr,
        "learner": plain(recipe.learner),
        "choices": list(outcome.choices),
        "area": area.estimate,
        "interval": area.interval().record(),
        "against_greedy": None if greedy is None or greedy is area else area.less(greedy).record(),
        "faithfulness": outcome.curve.definition.name,
        "sizes": sizes,
    }


def _write_csv(path: Path, records: list[dict[str, Any]]) -> None:
    columns = ["benchmark", "method", *records[0]["sizes"][0]]
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, columns)
    writer.writeheader()
    for record in records:
        for size in record["sizes"]:
            writer.writerow({"benchmark": record["benchmark"], "method": record["method"], **size})
    write_text(path, text.getvalue())


def _write_arrays(path: Path, found: Discovery) -> None:
    masks = [[selection.circuit.mask for selection in outcome.selections] for outcome in found.outcomes]
    curve = found.outcomes[0].curve
    arrays: dict[str, np.ndarray] = {
        "masks": np.packbits(np.array(masks), axis=-1),
        "values": np.stack([outcome.curve.values for outcome in found.outcomes]),
        "full": curve.full,
        "empty": curve.empty,
    }
    write_arrays(path, arrays)


def _write_exported(folder: Path, found: Discovery) -> None:
    if found.model.graph.n_edges > LARGEST_JSON:
        return
    folder.mkdir()
    for benchmark in found.benchmarks:
        best = found.exported(benchmark)
        origin = {"model": found.model.name, "task": found.test.name, **exported_record(found, best)}
        for share, selection, ranking in zip(best.curve.shares, best.selections, best.rankings, strict=True):
            path = folder / f"{benchmark.name.lower()}-{share:g}.json"
            selection.circuit.save(path, ranking.value, origin | selection.record())
