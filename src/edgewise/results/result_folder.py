"""The result folder of a run. `write_run_data` writes a `Discovery`, `read_result` reads it back.

`RESULT_FILES` in report/readme.py describes every file and array. curve.csv and the areas in curve.json are for people:
readers compute areas from the arrays. `report` adds figures/, viewer.html and README.md.
"""

from __future__ import annotations

import csv
import io
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from ..core.circuit import Circuit
from ..core.ranking import Ranking
from ..core.scores import EdgeScores, fill_folder
from ..core.statistics import EdgeStatistics, summarise
from ..errors import InputError
from ..evaluate import BOTH_MEASURES, MEASURES, Attention, Curve, Measure, check_metric
from ..evaluate.attention import pairs
from ..graph import BaseGraph, SpanGraph
from ..io.arrays import read_arrays, write_arrays
from ..io.atomic import write_json, write_text
from ..io.formats import NPZ
from ..io.records import convert_record, read_json, read_versioned_json
from ..learn import Learner
from ..method import from_record, parameters, plain, record_name
from ..recipes import Discovery, Outcome, Recipe, Settings, Tuning
from ..recipes.recipe import GREEDY
from ..recipes.run_info import MAX_PROMPTS, Prompt, RunInfo
from ..recipes.settings import published_words
from ..recipes.stability import mean_overlap
from ..select import Selection, Status

FORMAT, VERSION = "edgewise-result", 4
# A regular expression of the paths in a result folder.
FILE_PATTERN = (
    r"run\.json|statistics\.npz|circuits\.npz|curve\.(csv|json)|scores/scores\.(npy|json)"
    r"|circuits/[^/]+-(1|0(\.\d+)?|\d(\.\d+)?e-\d+)\.npz|figures/[a-z]+(-[a-z]+)*\.(png|svg)"
    r"|README\.md|viewer(-truth)?\.html|verification\.(html|json)|examples\.json|attention\.npz|learned\.(npz|json)"
)
STATISTICS = {"mean": "f", "low": "f", "high": "f", "kept": "b", "sign_unstable": "b"}
# The arrays of attention.npz; `values` are those of `Attention` in one row.
ATTENTION = {name: ("i8", (None,)) for name in ("examples", "lengths", "heads")} | {"values": ("u1", (None,))}


class ExtraRunFields(TypedDict):
    """What run.json holds besides the fields of `RunInfo`. `overlap`: measure -> recipe -> a share per size."""

    settings: Mapping[str, Any]
    tuning: Mapping[str, Any] | None
    overlap: Mapping[str, Mapping[str, list[float | None]]]


class SelectionRecord(TypedDict):
    """How the solver ended at one size, in curve.json; fields as in `Selection` (`rounds`, `columns`: of the ILP)."""

    share: float
    solver: str
    edges_asked: int
    edges_kept: int
    objective: float
    bound: float
    gap: float
    status: Status
    seconds: float
    rounds: int
    columns: int
    free_objective: float | None
    possible_pnr: float | None


class CurveRecord(TypedDict):
    """One recipe in curve.json. Area, interval and comparison are for people: readers compute them from the values."""

    measure: Any
    recipe: str
    solver: Any
    filter: Any
    pnr: Any
    alias: Any
    learner: Any
    chosen_on: str
    choices: tuple[str, ...]
    validation: tuple[float, ...]
    area: Any
    interval: Any
    against_greedy: Any
    sizes: list[SelectionRecord]


@dataclass(frozen=True)
class LearnedRecord:
    """How a ranking was learned, an entry of learned.json; the defaults are for learners that don't record it.

    steps                number of steps done
    validation           (step, area on validation examples)
    validation_examples  how many examples that were
    choices              (size, the ranking that it takes: that of the warm start, the learned one or one between them)
    calibration          (size, faithfulness before calibration, after it)
    """

    steps: int | None = None
    seconds: float | None = None
    validation: Sequence[tuple[int, float]] = ()
    validation_examples: int | None = None
    choices: Sequence[tuple[float, str]] = ()
    calibration: Sequence[tuple[float, float, float]] = ()


@dataclass(frozen=True)
class ExamplesRecord:
    """The content of examples.json: the first prompts, and how many more were evaluated."""

    split: str
    prompts: tuple[Prompt, ...]
    left_out: int


def is_result(path: str | Path) -> bool:
    """Return whether a path is a result folder, complete or not."""
    return os.path.isfile(Path(path) / "run.json")


def write_run_data(folder: Path, result: Discovery) -> None:
    """Write a discovery into an existing, empty folder."""
    (folder / "scores").mkdir()
    fill_folder(folder / "scores", result.scores)
    _write_outcomes(folder, result)
    write_arrays(folder / "statistics.npz", {name: getattr(result.statistics, name) for name in STATISTICS})
    if result.learned:
        rankings = {name: result.learned[learner] for learner, name in learner_names(result.outcomes).items()}
        write_arrays(folder / "learned.npz", {name: ranking.value for name, ranking in rankings.items()})
        known = set(parameters(LearnedRecord))
        records = {
            name: LearnedRecord(**{key: value for key, value in ranking.origin.items() if key in known})
            for name, ranking in rankings.items()
        }
        write_json(folder / "learned.json", {name: asdict(record) for name, record in records.items()})
    test = result.run.test
    examples = ExamplesRecord(test.split, result.prompts, test.examples - len(result.prompts))
    write_json(folder / "examples.json", asdict(examples))
    if result.attention is not None:
        names = ("examples", "lengths", "heads")
        arrays: dict[str, NDArray[Any]] = {n: np.array(getattr(result.attention, n), np.int64) for n in names}
        values = np.concatenate([patterns.ravel() for patterns in result.attention.values])
        write_arrays(folder / "attention.npz", arrays | {"values": values})
    write_json(folder / "run.json", {"format": FORMAT, "version": VERSION} | _run_record(result))


def _write_outcomes(folder: Path, result: Discovery) -> None:
    """Write circuits.npz, curve.json, curve.csv and circuits/."""
    first, outcomes = result.outcomes[0].curve, result.outcomes
    arrays = {
        "masks": np.array([[np.packbits(circuit.mask) for circuit in outcome.circuits] for outcome in outcomes]),
        "values": np.stack([outcome.curve.values for outcome in outcomes]),
        "full": first.full,
        "empty": first.empty,
    }
    write_arrays(folder / "circuits.npz", arrays)
    curves: list[dict[str, Any]] = []
    rows: list[dict[str, Any]] = []
    for outcome in outcomes:
        greedy = next((o for o in result.of(outcome.measure) if o.recipe == GREEDY and o is not outcome), None)
        sizes = list(zip(outcome.curve.rows(), outcome.selections, strict=True))
        curves.append({
            "measure": plain(outcome.measure),
            "recipe": outcome.name,
            **outcome.recipe.record(),
            "chosen_on": outcome.chosen_on,
            "choices": list(outcome.choices),
            "validation": list(outcome.validation),
            "area": outcome.area,
            "interval": outcome.resampled.interval().record(),
            "against_greedy": outcome.resampled.minus(greedy.resampled).record() if greedy else None,
            "sizes": [{"share": row["share"]} | selection.record() for row, selection in sizes],
        })  # fmt: skip
        named = {"measure": outcome.measure.name, "recipe": outcome.name}
        rows += [named | row | selection.record() for row, selection in sizes]
    write_json(folder / "curve.json", curves)
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    write_text(folder / "curve.csv", text.getvalue())
    (folder / "circuits").mkdir()
    for measure in result.measures:
        outcome = result.best(measure)
        origin = {"model": result.run.model, "task": result.run.task, **_chosen_record(outcome)}
        for size, (share, selection) in enumerate(zip(outcome.curve.shares, outcome.selections, strict=True)):
            path = folder / "circuits" / f"{measure.name.lower()}-{share:g}{NPZ}"
            score = outcome.rankings[size].value if outcome.rankings else None
            # Without the seconds, so that the same run gives the same bytes.
            record = {name: value for name, value in selection.record().items() if name != "seconds"}
            selection.circuit.save(path, score, origin | record)


def _run_record(result: Discovery) -> dict[str, Any]:
    """Return the content of run.json."""
    record = {name: plain(getattr(result.run, name)) for name in parameters(RunInfo)}
    return record | {
        "settings": result.settings.record(),
        "tuning": None if result.tuning is None else result.tuning.record(),
        "overlap": {
            measure.name: {name: _nan_to_none(by_size) for name, by_size in by_recipe.items()}
            for measure, by_recipe in result.overlap.items()
        },
    }


def _nan_to_none(values: NDArray[np.floating]) -> list[float | None]:
    return [None if np.isnan(value) else float(value) for value in values]


def _chosen_record(outcome: Outcome) -> dict[str, str]:
    """Return which recipe's circuits are written, and on which split it was chosen; "" if it is the only one."""
    name = outcome.name if outcome.choices else outcome.recipe.combination
    return {"recipe": name, "parameters": outcome.recipe.parameter_text, "chosen_on": outcome.chosen_on}


def result_summary(result: Discovery) -> dict[str, Any]:
    """Return the record of a run with its areas and intervals, as `edgewise run --json` prints it."""
    overlap = {
        measure.name: {
            name: {"sizes": _nan_to_none(by_size), "mean": mean_overlap(by_size, result.settings.sizes)}
            for name, by_size in by_recipe.items()
        }
        for measure, by_recipe in result.overlap.items()
    }
    chosen = {m.name: _chosen_record(result.best(m)) | {"choice": result.choice(m)} for m in result.measures}
    return _run_record(result) | {
        "as_published": published_words(result.settings),
        "sign_instability": result.statistics.sign_instability,
        "edges_kept_by_bootstrap": int(result.statistics.kept.sum()),
        "areas": {m.name: {o.name: o.area for o in result.of(m)} for m in result.measures},
        "intervals": {m.name: {o.name: o.resampled.interval().record() for o in result.of(m)} for m in result.measures},
        "overlap": overlap,
        "portfolio": {
            o.measure.name: {f"{share:g}": name for share, name in zip(o.curve.shares, o.choices, strict=True)}
            for o in result.outcomes
            if o.choices
        },
        "circuits": chosen,
    }


def learner_names(outcomes: Sequence[Outcome]) -> dict[Learner, str]:
    """Return the name in learned.npz of every learner: its measure, numbered from the second of one measure on."""
    names: dict[Learner, str] = {}
    counts: Counter[str] = Counter()
    for learner in (outcome.recipe.learner for outcome in outcomes):
        if learner is not None and learner not in names:
            measure = record_name("measure", learner.record().get("measure", "learned"))
            counts[measure] += 1
            names[learner] = f"{measure}-{counts[measure]}" if counts[measure] > 1 else measure
    return names


def read_result(folder: str | Path) -> Discovery:
    """Return the discovery that a result folder holds. Scores are loaded when they are first used.

    Parameters
    ----------
    folder
        A folder that `write_result` or `edgewise run` wrote.

    Returns
    -------
    Discovery

    Examples
    --------
    >>> edgewise.read_result("results/demo").best("CMD").area

    Raises
    ------
    InputError
        If the path is no result folder, or a file of it is missing, damaged or contradicts another one.
    """
    folder = Path(folder)
    if not is_result(folder):
        raise InputError(f"{folder} isn't a result folder; give one made by `edgewise run` or `edgewise study`")

    def load_scores() -> EdgeScores:
        scores = EdgeScores.load(folder)
        if scores.graph != run.graph:
            raise InputError(f"{folder} isn't a complete result folder: its scores are of another graph; run it again")
        return scores

    try:
        record = read_versioned_json(folder / "run.json", FORMAT, VERSION)
        info = {name: record.pop(name) for name in parameters(RunInfo) if name in record}
        run: RunInfo = convert_record(RunInfo, info, "run.json")
        extra: ExtraRunFields = convert_record(ExtraRunFields, record, "run.json")
        curves = convert_record(list[CurveRecord], read_json(folder / "curve.json"), "curve.json")
        settings = Settings.from_record(extra["settings"])
        outcomes = _read_outcomes(folder, run, settings, curves)
        overlap = {
            from_record("measure", MEASURES, measure, Measure): {
                name: np.array(shares, np.float64) for name, shares in by_recipe.items()
            }
            for measure, by_recipe in extra["overlap"].items()
        }
        for shares in (shares for by_recipe in overlap.values() for shares in by_recipe.values()):
            if shares.shape != (len(settings.sizes),) or not ((shares >= 0) & (shares <= 1) | np.isnan(shares)).all():
                raise InputError("an overlap in run.json must be a share per size, from 0 to 1")
        kinds = {name: (kind, (run.graph.n_edges,)) for name, kind in STATISTICS.items()}
        arrays = read_arrays(folder / "statistics.npz", kinds)
        for name in ("mean", "low", "high"):
            check_metric(f"{name} in statistics.npz", arrays[name])
        passed = np.where(arrays["kept"], arrays["mean"], 0.0)  # edges that failed the filter have score 0
        return Discovery(
            run=run,
            settings=settings,
            statistics=EdgeStatistics(run.graph, score=passed, **arrays),
            outcomes=outcomes,
            learned=_read_learned(folder, run.graph, outcomes),
            tuning=None if extra["tuning"] is None else Tuning.from_record(extra["tuning"]),
            overlap=overlap,
            prompts=_read_prompts(folder, run),
            attention=read_attention(folder, run),
            load_scores=load_scores,
        )
    except InputError as error:
        raise InputError(f"{folder} isn't a complete result folder: {error}; run it again") from None


def _read_outcomes(
    folder: Path, run: RunInfo, settings: Settings, records: Sequence[CurveRecord]
) -> tuple[Outcome, ...]:
    names = [(str(record["measure"]), record["recipe"]) for record in records]
    if not records or len(set(names)) < len(names):
        raise InputError("curve.json must have every recipe of a measure once")
    n_recipes, n_sizes, graph = len(records), len(settings.sizes), run.graph
    shapes: dict[str, tuple[str, tuple[int, ...]]] = {
        "masks": ("u1", (n_recipes, n_sizes, (graph.n_edges + 7) // 8)),
        "values": ("f", (n_recipes, n_sizes, run.test.examples)),
        "full": ("f", (run.test.examples,)),
        "empty": ("f", (run.test.examples,)),
    }
    arrays = read_arrays(folder / "circuits.npz", shapes)
    for name in ("values", "full", "empty"):
        check_metric(f"{name} in circuits.npz", arrays[name])
    outcomes = []
    for record, masks, values in zip(records, arrays["masks"], arrays["values"], strict=True):
        sizes = record["sizes"]
        n_requested = tuple(size["edges_asked"] for size in sizes)
        n_kept = tuple(size["edges_kept"] for size in sizes)
        n_edges = np.unpackbits(masks, axis=1, count=graph.n_edges).sum(1)
        if tuple(size["share"] for size in sizes) != settings.sizes:
            raise InputError(f"the curve of {record['recipe']} has other sizes than the settings")
        if not all(0 <= fewer <= more <= graph.n_edges for fewer, more in zip(n_kept, n_requested, strict=True)):
            raise InputError(f"the curve of {record['recipe']} has impossible numbers of edges")
        if tuple(n_edges) != n_kept:
            raise InputError(f"the circuits of {record['recipe']} have other numbers of edges than its curve")
        recipe = Recipe.from_record({name: record[name] for name in parameters(Recipe)})  # type: ignore[literal-required]
        if recipe.name != record["recipe"]:
            raise InputError(f"the recipe of {record['recipe']} is that of {recipe.name}")
        measure = from_record("measure", MEASURES, record["measure"], Measure)
        ends = (arrays["full"], arrays["empty"])
        curve = Curve(settings.sizes, n_requested, n_kept, values, *ends, settings.faithfulness)
        selections = _PackedSelections(graph, sizes, masks)
        outcome = Outcome(measure, recipe, selections, curve, validation=record["validation"])
        outcomes.append(replace(outcome, chosen_on=record["chosen_on"], choices=record["choices"]))
    return tuple(outcomes)


@dataclass(frozen=True, eq=False)
class _PackedSelections(Sequence[Selection]):
    """The selections of one recipe. Circuits are unpacked when they are accessed: all at once take much memory."""

    graph: BaseGraph
    records: Sequence[SelectionRecord]
    masks: NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[size] for size in range(len(self))[index]]
        mask = np.unpackbits(self.masks[index], count=self.graph.n_edges).astype(bool)
        return Selection.from_record(Circuit(self.graph, mask), self.records[index])


def _read_learned(folder: Path, graph: BaseGraph, outcomes: Sequence[Outcome]) -> dict[Learner, Ranking]:
    """Return learner -> ranking."""
    names = learner_names(outcomes)
    if not names:
        return {}
    arrays = read_arrays(folder / "learned.npz", {name: ("f", (graph.n_edges,)) for name in names.values()})
    content = convert_record(Mapping[str, Any], read_json(folder / "learned.json"), "learned.json")
    if set(content) != set(names.values()):
        raise InputError(f"learned.json must be about {', '.join(names.values())}, each once")
    records = {name: convert_record(LearnedRecord, content[name], f"learned.json.{name}") for name in content}
    return {
        learner: Ranking(graph, arrays[name], signed=bool((arrays[name] < 0).any()), origin=asdict(records[name]))
        for learner, name in names.items()
    }


def _read_prompts(folder: Path, run: RunInfo) -> tuple[Prompt, ...]:
    """Return the prompts of a run's evaluated examples, or of the first of them."""
    path = folder / "examples.json"
    record: ExamplesRecord = convert_record(ExamplesRecord, read_json(path), str(path))
    prompts = record.prompts
    is_complete = record.left_out >= 0 and len(prompts) + record.left_out == run.test.examples
    if not is_complete or len(prompts) > MAX_PROMPTS or record.split != run.test.split:
        raise InputError(f"{path} has other prompts than those that the run was evaluated on")
    if not all(len(prompt.clean) == len(prompt.corrupted) > 0 for prompt in prompts):
        raise InputError(f"{path} has a pair of prompts of different lengths")
    spans = range(run.graph.n_spans if isinstance(run.graph, SpanGraph) else 0)
    if not all(len(p.spans) in (0, len(p.clean)) and all(span in spans for span in p.spans) for p in prompts):
        raise InputError(f"{path} has other spans of tokens than the run's circuits")
    return prompts


def read_attention(folder: Path, run: RunInfo) -> Attention | None:
    """Return the attention of heads on some examples of a run. None if it wasn't written."""
    path = folder / "attention.npz"
    if not os.path.isfile(path):
        return None
    arrays = read_arrays(path, ATTENTION)  # type: ignore[arg-type]
    examples, lengths, heads = (arrays[name].tolist() for name in ("examples", "lengths", "heads"))
    n_values, graph = len(arrays["values"]), run.graph
    is_distinct = len(set(examples)) == len(examples) == len(lengths) > 0 and len(set(heads)) == len(heads) > 0
    is_known = all(0 <= row < run.test.examples for row in examples) and set(heads) <= set(graph.plain.heads.tolist())
    if not is_distinct or not is_known or not all(0 < length <= n_values for length in lengths):
        raise InputError(f"{path} has examples or heads that the run hasn't")
    ends = np.cumsum([2 * len(heads) * pairs(length) for length in lengths])
    if ends[-1] != n_values:
        raise InputError(f"{path} has {n_values:,} numbers, but its heads and examples need {ends[-1]:,}")
    patterns = (part.reshape(2, len(heads), -1) for part in np.split(arrays["values"], ends[:-1]))
    return Attention(tuple(examples), tuple(lengths), tuple(heads), tuple(patterns))


def read_start(folder: str | Path) -> dict[Measure, Ranking]:
    """Return rankings for learning to start from, of a folder of `edgewise run` or `edgewise learn`.

    Parameters
    ----------
    folder
        A result folder, or the folder of a ranking.

    Returns
    -------
    dict
        Measure -> the ranking that was learned for it; else that of the mean scores, or the ranking of the folder.

    Examples
    --------
    >>> edgewise.discover(model, train, test, learn_from=read_start("results/gpt2-ioi"))
    """
    if Ranking.is_folder(folder):
        return dict.fromkeys(BOTH_MEASURES, Ranking.load(folder))
    result = read_result(folder)
    learned = {learner.measure: ranking for learner, ranking in result.learned.items()}
    missing = [measure for measure in BOTH_MEASURES if measure not in learned]
    all_rankings = learned | (dict.fromkeys(missing, summarise(result.scores).ranking) if missing else {})
    return {measure: all_rankings[measure] for measure in BOTH_MEASURES}
