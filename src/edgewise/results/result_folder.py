"""The result folder: every outcome of a run as data, from which everything else can be rebuilt.

run.json          settings, versions, seed, timings, the definition of faithfulness, accuracy of the model, areas
scores/           [example, edge] scores
statistics.npz    per edge: mean, low, high, kept, sign_unstable
circuits.npz      every circuit of every recipe and size, as packed bits, and the values of every curve
learned.npz       the rankings that were learned, one array [edge] for each goal; missing if there are none
circuits/         a circuit per size, a bit per edge (or as EAP-IG json), of what was chosen beforehand (a portfolio, a
                  tuned recipe), or else of the best on the evaluated examples
curve.csv/.json   asked and kept edges, metric and faithfulness per recipe and size; in the json also every area's
                  interval over the evaluated examples, and its paired comparison with greedy
examples.json     the evaluated prompts, token by token; attention.npz has where heads look on a few of them

`report` adds what these are shown by: figures/, viewer.html, and README.md, which says what every file and array is.
"""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict

import numpy as np

from ..core.circuit import Circuit
from ..core.scores import fill_folder
from ..core.statistics import EdgeStatistics
from ..errors import InputError
from ..evaluate import FAITHFULNESS, MEASURES, Curve, Measure, Resampled, check_metric, resample
from ..io.arrays import read_arrays, write_arrays
from ..io.atomic import write_json, write_text
from ..io.formats import NPZ
from ..io.records import convert_record, read_format, read_json
from ..method import choose, plain, record_name
from ..recipes.recipe import GREEDY, PORTFOLIO, TUNED
from .examples import fill_examples
from .run_record import IntervalRecord, RunRecord, check_interval, exported_record

if TYPE_CHECKING:
    from ..pipeline import Discovery, Outcome

FORMAT, VERSION = "edgewise-result", 2
# The files of a result folder, by their paths in it.
FILES = (
    r"run\.json|statistics\.npz|circuits\.npz|curve\.(csv|json)|scores/scores\.(npy|json)"
    r"|circuits/[^/]+-(1|0(\.\d+)?|\d(\.\d+)?e-\d+)\.(npz|json)|figures/[a-z]+(-[a-z]+)*\.(png|svg)"
    r"|README\.md|viewer\.html|examples\.json|attention\.npz|learned\.npz"
)
BY_VALUES = ("metric", "faithfulness")
RECIPE = ("solver", "filter", "pnr", "learner", "choices")
STATISTICS = ("mean", "low", "high", "kept", "sign_unstable")
BOOLEAN = ("kept", "sign_unstable")


@dataclass(frozen=True, eq=False)
class ResultRow:
    """One recipe's curve, as read back from a folder.

    recipe  as plain data: solver, filter, pnr, learner, choices
    area    by the curve's own values
    """

    measure: Measure
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
    def measures(self) -> tuple[Measure, ...]:
        """Those that recipes were tried for."""
        return tuple(dict.fromkeys(row.measure for row in self.rows))

    def of(self, measure: Measure) -> list[ResultRow]:
        """The rows of one benchmark."""
        return [row for row in self.rows if row.measure == measure]

    def best(self, measure: Measure) -> ResultRow:
        """The row of the best area; of equals the first."""
        return max(self.of(measure), key=lambda row: measure.better * row.area)

    def exported(self, measure: Measure) -> ResultRow:
        """The row whose circuits the folder has as files: one that was chosen beforehand, or else the best."""
        rows = {row.name: row for row in self.of(measure)}
        beforehand = [PORTFOLIO] * (measure.name in self.run.portfolio) + [TUNED] * (self.run.tuning is not None)
        return next((rows[name] for name in beforehand if name in rows), self.best(measure))

    def __repr__(self) -> str:
        return f"Result({self.run.model!r} on {self.run.task!r}, {len(self.rows)} curves)"


def fill_result(folder: Path, found: Discovery, circuits: str = NPZ) -> RunRecord:
    """Fill a folder that exists with all that a discovery found; gives its record.

    circuits  what the files in circuits/ end in, and so their format
    """
    (folder / "scores").mkdir()
    fill_folder(folder / "scores", found.scores)
    statistics = found.statistics
    write_arrays(folder / "statistics.npz", {name: getattr(statistics, name) for name in STATISTICS})
    _write_arrays(folder / "circuits.npz", found)
    _write_learned(folder / "learned.npz", found)
    _write_exported(folder / "circuits", found, circuits)
    fill_examples(folder, found)
    areas = [resample(outcome.curve, outcome.measure) for outcome in found.outcomes]
    greedy = {o.measure: area for o, area in zip(found.outcomes, areas, strict=True) if o.recipe == GREEDY}
    records = [
        _record(outcome, area, greedy.get(outcome.measure)) for outcome, area in zip(found.outcomes, areas, strict=True)
    ]
    write_json(folder / "curve.json", records)
    _write_csv(folder / "curve.csv", records)
    record = RunRecord.of(found)
    write_json(folder / "run.json", {"format": FORMAT, "version": VERSION} | record.record())
    return record


def is_result(path: str | Path) -> bool:
    """Whether a path is a result folder, whole or not."""
    return os.path.isfile(Path(path) / "run.json")


def read_result(folder: str | Path) -> Result:
    """Read a result folder back; says so if it isn't whole."""
    folder = Path(folder)
    if not is_result(folder):
        raise InputError(f"{folder} isn't a result folder; give one made by `edgewise run` or `edgewise study`")
    try:
        run = RunRecord.from_record(read_format(folder / "run.json", FORMAT, VERSION))
        records: list[CurveRecord] = convert_record(list[CurveRecord], read_json(folder / "curve.json"), "curve.json")
        _check_records(records, run)
        arrays = read_arrays(
            folder / "circuits.npz", _shapes(len(records), len(records[0]["sizes"]), run), ("values", "full", "empty")
        )
        for name, array in arrays.items():
            check_metric(f"{name} in circuits.npz", array)
        rows = tuple(
            _row(record, values, arrays["full"], arrays["empty"], run)
            for record, values in zip(records, arrays["values"], strict=True)
        )
        return Result(run, rows)
    except InputError as error:
        raise InputError(f"{folder} isn't a whole result folder: {error}; run it again") from None


def read_circuits(folder: str | Path, result: Result | None = None) -> dict[tuple[Measure, str], tuple[Circuit, ...]]:
    """Every circuit of a result folder: (benchmark, method) -> one per size. Give `result` if it was read already."""
    result = result or read_result(folder)
    graph = result.run.graph
    shapes = _shapes(len(result.rows), len(result.rows[0].selections), result.run)
    masks = read_arrays(Path(folder) / "circuits.npz", shapes, ("masks",))["masks"]
    found = {}
    for row, packed in zip(result.rows, masks, strict=True):
        ours = tuple(Circuit(graph, np.unpackbits(one, count=graph.n_edges).astype(bool)) for one in packed)
        if tuple(circuit.n_edges for circuit in ours) != row.curve.kept:
            raise InputError(
                f"{folder} isn't a whole result folder: circuits of {row.name} have other edges; run it again"
            )
        found[row.measure, row.name] = ours
    return found


def read_learned(folder: str | Path, result: Result) -> list[np.ndarray | None]:
    """For every row of a result folder the learned ranking [edge] that its circuits were chosen by; None for scores,
    and for folders of an earlier edgewise, which didn't keep them."""
    path = Path(folder) / "learned.npz"
    names = _learned_names([row.recipe["learner"] for row in result.rows])
    if not os.path.isfile(path):
        return [None] * len(result.rows)
    shapes = {name: ("f", (result.run.graph.n_edges,)) for name in dict.fromkeys(names) if name}
    found = read_arrays(path, shapes)
    if not all(np.isfinite(values).all() for values in found.values()):
        raise InputError(f"{path} has rankings that aren't finite")
    return [found.get(name) for name in names]


def read_statistics(folder: str | Path, result: Result | None = None) -> EdgeStatistics:
    """What a result folder says of every edge, as the settings' bootstrap found it; edges that failed have score 0.
    Give `result` if it was read already."""
    folder, graph = Path(folder), (result or read_result(folder)).run.graph
    shapes = {name: ("b" if name in BOOLEAN else "f", (graph.n_edges,)) for name in STATISTICS}
    try:
        arrays = read_arrays(folder / "statistics.npz", shapes)
        for name in ("mean", "low", "high"):
            check_metric(f"{name} in statistics.npz", arrays[name])
        score = np.where(arrays["kept"], arrays["mean"], 0.0)
        return EdgeStatistics(graph, score=score, **arrays)
    except InputError as error:
        raise InputError(f"{folder} isn't a whole result folder: {error}; run it again") from None


class SizeRecord(TypedDict):
    """What curve.json says of one size of a curve."""

    share: float
    edges_asked: int
    edges_kept: int
    metric: float
    faithfulness: float
    solver: str
    objective: float
    bound: float
    gap: float
    status: str
    seconds: float
    rounds: int
    columns: int
    free_objective: float | None
    possible_pnr: float | None


class CurveRecord(TypedDict):
    """What curve.json says of one recipe's curve."""

    benchmark: Literal["CMD", "CPR"]
    method: str
    solver: str
    filter: str | Mapping[str, Any]
    pnr: float | None
    learner: str | Mapping[str, Any] | None
    choices: list[str]
    area: float
    interval: IntervalRecord
    against_greedy: ComparisonRecord | None
    faithfulness: str
    sizes: list[SizeRecord]


class ComparisonRecord(TypedDict):
    """A paired comparison."""

    difference: float
    low: float
    high: float
    p: float
    confidence: float


def _check_records(records: Sequence[CurveRecord], run: RunRecord) -> None:
    """Refuse curves that aren't those of the run."""
    areas: dict[str, dict[str, float]] = {}
    sizes = list(run.settings["sizes"])
    _learned_names([record["learner"] for record in records])  # refuses a goal that has no name
    for record in records:
        record_name("the filter of a curve", record["filter"])
        areas.setdefault(record["benchmark"], {})[record["method"]] = record["area"]
        check_interval(record["interval"])
        if record["interval"]["estimate"] != record["area"] or [s["share"] for s in record["sizes"]] != sizes:
            raise InputError(f"the curve of {record['method']} has another interval or other sizes than the run")
    if sum(map(len, areas.values())) != len(records) or not records:
        raise InputError("curve.json must have a curve for every method, each once")
    if areas != run.areas:
        raise InputError("curve.json has other methods or areas than run.json")
    if len({record["faithfulness"] for record in records}) != 1:
        raise InputError("the curves in curve.json must be by the same faithfulness")


def _shapes(rows: int, sizes: int, run: RunRecord) -> dict[str, tuple[str, tuple[int, ...]]]:
    """What circuits.npz holds: name -> kind and shape."""
    examples = (run.test.examples,)
    return {
        "masks": ("u1", (rows, sizes, (run.graph.n_edges + 7) // 8)),
        "values": ("f", (rows, sizes, *examples)),
        "full": ("f", examples),
        "empty": ("f", examples),
    }


def _row(record: CurveRecord, values: np.ndarray, full: np.ndarray, empty: np.ndarray, run: RunRecord) -> ResultRow:
    sizes = record["sizes"]
    shares = tuple(size["share"] for size in sizes)
    asked, kept = (tuple(size["edges_asked"] for size in sizes), tuple(size["edges_kept"] for size in sizes))
    if not all(0 <= share <= 1 for share in shares) or not all(
        0 <= less <= more <= run.graph.n_edges for less, more in zip(kept, asked, strict=True)
    ):
        raise InputError(f"the curve of {record['method']} has sizes or edges that can't be")
    definition = choose("faithfulness definition", FAITHFULNESS, record["faithfulness"])
    curve = Curve(shares, asked, kept, values, full, empty, definition)
    measure = choose("benchmark", MEASURES, record["benchmark"])
    area = curve.area(measure)
    said = [record["area"], *(size[name] for size in sizes for name in BY_VALUES)]  # type: ignore[literal-required]
    found = [area, *(row[name] for row in curve.rows() for name in BY_VALUES)]
    if not np.allclose(said, found, rtol=1e-6, atol=1e-9):
        raise InputError(f"the {measure.name} of {record['method']}, {record['area']:g}, contradicts its values")
    recipe = {name: record[name] for name in RECIPE}  # type: ignore[literal-required]
    return ResultRow(measure, record["method"], recipe, area, curve, tuple(sizes))


def _record(outcome: Outcome, area: Resampled, greedy: Resampled | None) -> dict[str, Any]:
    sizes = [
        row | {name: value for name, value in selection.record().items() if name not in row}
        for row, selection in zip(outcome.curve.rows(), outcome.selections, strict=True)
    ]
    recipe = outcome.recipe
    return {
        "benchmark": outcome.measure.name,
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


def _write_learned(path: Path, found: Discovery) -> None:
    learners = [outcome.recipe.learner for outcome in found.outcomes]
    names = _learned_names([plain(learner) for learner in learners])
    arrays = {name: found.learned[one].value for name, one in zip(names, learners, strict=True) if one is not None}
    if arrays:
        write_arrays(path, arrays)


def _learned_names(learners: Sequence[Any]) -> list[str]:
    """What each learner's ranking is called in learned.npz: by its goal, further ones of that goal numbered; empty for
    None."""
    names: dict[str, str] = {}
    for learner in learners:
        if learner is not None and _text(learner) not in names:
            goal = record_name("goal", learner.get("goal", "learned")) if isinstance(learner, Mapping) else "learned"
            taken = sum(name.partition("-")[0] == goal for name in names.values())
            names[_text(learner)] = f"{goal}-{taken + 1}" if taken else goal
    return ["" if learner is None else names[_text(learner)] for learner in learners]


def _text(record: Any) -> str:
    return json.dumps(record, sort_keys=True)


def _write_exported(folder: Path, found: Discovery, suffix: str) -> None:
    folder.mkdir()
    for measure in found.measures:
        best = found.exported(measure)
        origin = {"model": found.model.name, "task": found.test.name, **exported_record(found, best)}
        for share, selection, ranking in zip(best.curve.shares, best.selections, best.rankings, strict=True):
            path = folder / f"{measure.name.lower()}-{share:g}{suffix}"
            selection.circuit.save(path, ranking.value, origin | selection.record())
