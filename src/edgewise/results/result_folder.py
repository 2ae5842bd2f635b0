"""The result folder of a run. `write_run_data` writes a `Discovery`, `read_result` reads it back.

run.json          model, examples, seed, versions, seconds, settings, accuracy, tuning, overlap
scores/           scores, [example, edge]
statistics.npz    per edge: mean, low, high, kept, sign_unstable
circuits.npz      the circuits of every recipe and size as packed bits, and the metric of every circuit and example
learned.npz       learned rankings, one array [edge] per learner; missing if there are none
learned.json      how they were learned: steps, seconds, area on validation by step, the choice of every size
circuits/         one file per size of the recipe that was chosen for each measure
curve.json        every recipe and how its solver ended; for people also areas, which readers ignore
curve.csv         a table for people: edges, metric and faithfulness per recipe and size
examples.json     the first 500 evaluated prompts and answers as text, fewer if they are long
attention.npz     the attention of heads on a few of them: examples, lengths, heads (nodes) and values

`report` adds figures/, viewer.html and README.md, which explains every file and array.
"""

from __future__ import annotations

import csv
import io
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

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
from ..recipes.discovery import Discovery
from ..recipes.outcome import Outcome
from ..recipes.recipe import GREEDY, Recipe
from ..recipes.run_info import MAX_PROMPTS, Prompt, RunInfo
from ..recipes.settings import Settings, published_words
from ..recipes.stability import mean_overlap
from ..recipes.tuning_result import Tuning
from ..select import Selection
from .records import (
    CurveRecord,
    ExamplesRecord,
    ExtraRunFields,
    LearnedFile,
    LearnedRecord,
    SelectionRecord,
)

FORMAT, VERSION = "edgewise-result", 3
# A regular expression of the paths in a result folder.
FILE_PATTERN = (
    r"run\.json|statistics\.npz|circuits\.npz|curve\.(csv|json)|scores/scores\.(npy|json)"
    r"|circuits/[^/]+-(1|0(\.\d+)?|\d(\.\d+)?e-\d+)\.(npz|json)|figures/[a-z]+(-[a-z]+)*\.(png|svg)"
    r"|README\.md|viewer(-truth)?\.html|verification\.(html|json)|examples\.json|attention\.npz|learned\.(npz|json)"
)
STATISTICS = {"mean": "f", "low": "f", "high": "f", "kept": "b", "sign_unstable": "b"}
EXAMPLES_FORMAT, EXAMPLES_VERSION = "edgewise-examples", 1
LEARNED_FORMAT, LEARNED_VERSION = "edgewise-learned", 1
# What learned.json holds of a ranking's origin, and the values for learners that don't say it.
LEARNED: Mapping[str, Any] = {
    "steps": None, "seconds": None, "validation": [], "validation_examples": None, "choices": [],
}  # fmt: skip
# The arrays of attention.npz; `values` are those of `Attention` in one row.
ATTENTION = {name: ("i8", (None,)) for name in ("examples", "lengths", "heads")} | {"values": ("u1", (None,))}


def is_result(path: str | Path) -> bool:
    """Return whether a path is a result folder, complete or not."""
    return os.path.isfile(Path(path) / "run.json")


def write_run_data(folder: Path, result: Discovery, suffix: str = NPZ) -> None:
    """Write a discovery into an existing, empty folder. `suffix` is the format of the files in circuits/."""
    (folder / "scores").mkdir()
    fill_folder(folder / "scores", result.scores)
    _write_outcomes(folder, result)
    _write_exported(folder / "circuits", result, suffix)
    write_arrays(folder / "statistics.npz", {name: getattr(result.statistics, name) for name in STATISTICS})
    _write_learned(folder, result)
    _write_prompts(folder, result)
    _write_attention(folder, result.attention)
    write_json(folder / "run.json", {"format": FORMAT, "version": VERSION} | _run_record(result))


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
    >>> edgewise.read_result("results/demo-ioi").best("CMD").area

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
        # 0.2.0 has no made_from.
        info = {"made_from": {}} | {name: record.pop(name) for name in parameters(RunInfo) if name in record}
        run: RunInfo = convert_record(RunInfo, info, "run.json")
        extra: ExtraRunFields = convert_record(ExtraRunFields, record, "run.json")
        curves = convert_record(list[CurveRecord], read_json(folder / "curve.json"), "curve.json")
        settings = Settings.from_record(extra["settings"])
        outcomes = _read_outcomes(folder, run, settings, curves)
        return Discovery(
            run=run,
            settings=settings,
            statistics=_read_statistics(folder, run.graph),
            outcomes=outcomes,
            learned=_read_learned(folder, run.graph, outcomes),
            tuning=None if extra["tuning"] is None else Tuning.from_record(extra["tuning"]),
            overlap=_read_overlap(extra["overlap"], settings),
            prompts=_read_prompts(folder, run),
            attention=read_attention(folder, run),
            load_scores=load_scores,
        )
    except InputError as error:
        raise InputError(f"{folder} isn't a complete result folder: {error}; run it again") from None


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


def _read_overlap(
    record: Mapping[str, Mapping[str, list[float | None]]], settings: Settings
) -> dict[Measure, dict[str, NDArray[np.float64]]]:
    overlap: dict[Measure, dict[str, NDArray[np.float64]]] = {}
    for measure, by_recipe in record.items():
        arrays = {name: np.array(values, np.float64) for name, values in by_recipe.items()}
        for values in arrays.values():
            if values.shape != (len(settings.sizes),) or not ((values >= 0) & (values <= 1) | np.isnan(values)).all():
                raise InputError("an overlap in run.json must be a share per size, from 0 to 1")
        overlap[from_record("measure", MEASURES, measure, Measure)] = arrays
    return overlap


def _write_outcomes(folder: Path, result: Discovery) -> None:
    """Write circuits.npz, curve.json and curve.csv."""
    first, outcomes = result.outcomes[0].curve, result.outcomes
    arrays = {
        "masks": np.array([[np.packbits(circuit.mask) for circuit in outcome.circuits] for outcome in outcomes]),
        "values": np.stack([outcome.curve.values for outcome in outcomes]),
        "full": first.full,
        "empty": first.empty,
    }
    write_arrays(folder / "circuits.npz", arrays)
    write_json(folder / "curve.json", [_curve_record(result, outcome) for outcome in outcomes])
    rows = [
        {"benchmark": outcome.measure.name, "method": outcome.name} | size | selection.record()
        for outcome in outcomes
        for size, selection in zip(outcome.curve.rows(), outcome.selections, strict=True)
    ]
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    write_text(folder / "curve.csv", text.getvalue())


def _read_outcomes(
    folder: Path, run: RunInfo, settings: Settings, records: Sequence[CurveRecord]
) -> tuple[Outcome, ...]:
    names = [(str(record["benchmark"]), record["method"]) for record in records]
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
            raise InputError(f"the curve of {record['method']} has other sizes than the settings")
        if not all(0 <= fewer <= more <= graph.n_edges for fewer, more in zip(n_kept, n_requested, strict=True)):
            raise InputError(f"the curve of {record['method']} has impossible numbers of edges")
        if tuple(n_edges) != n_kept:
            raise InputError(f"the circuits of {record['method']} have other numbers of edges than its curve")
        recipe = Recipe.from_record({name: record[name] for name in parameters(Recipe)})  # type: ignore[literal-required]
        if recipe.name != record["method"]:
            raise InputError(f"the recipe of {record['method']} is that of {recipe.name}")
        measure = from_record("measure", MEASURES, record["benchmark"], Measure)
        curve = Curve(
            settings.sizes, n_requested, n_kept, values, arrays["full"], arrays["empty"], settings.faithfulness
        )
        selections = _PackedSelections(graph, sizes, masks)
        outcomes.append(
            Outcome(
                measure,
                recipe,
                selections,
                curve,
                chosen_on=record["chosen_on"],
                choices=record["choices"],
                validation=record.get("validation", ()),
            )
        )
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


def _curve_record(result: Discovery, outcome: Outcome) -> dict[str, Any]:
    greedy = next((o for o in result.of(outcome.measure) if o.recipe == GREEDY and o is not outcome), None)
    return {
        "benchmark": plain(outcome.measure),
        "method": outcome.name,
        **outcome.recipe.record(),
        "chosen_on": outcome.chosen_on,
        "choices": list(outcome.choices),
        "validation": list(outcome.validation),
        "area": outcome.area,
        "interval": outcome.resampled.interval().record(),
        "against_greedy": outcome.resampled.minus(greedy.resampled).record() if greedy else None,
        "sizes": [
            {"share": share} | selection.record()
            for share, selection in zip(outcome.curve.shares, outcome.selections, strict=True)
        ],
    }


def _write_exported(folder: Path, result: Discovery, suffix: str) -> None:
    folder.mkdir()
    for measure in result.measures:
        outcome = result.best(measure)
        origin = {"model": result.run.model, "task": result.run.task, **_chosen_record(outcome)}
        for size, (share, selection) in enumerate(zip(outcome.curve.shares, outcome.selections, strict=True)):
            path = folder / f"{measure.name.lower()}-{share:g}{suffix}"
            score = outcome.rankings[size].value if outcome.rankings else None
            # Without the seconds, so that the same run gives the same bytes.
            record = {name: value for name, value in selection.record().items() if name != "seconds"}
            selection.circuit.save(path, score, origin | record)


def _chosen_record(outcome: Outcome) -> dict[str, str]:
    """Return which recipe's circuits are written, and on which split it was chosen; "" if it is the only one."""
    name = outcome.name if outcome.choices else outcome.recipe.combination
    return {"recipe": name, "parameters": outcome.recipe.parameter_text, "chosen_on": outcome.chosen_on}


def _read_statistics(folder: Path, graph: BaseGraph) -> EdgeStatistics:
    """Return the statistics of every edge. Edges that failed the filter have score 0."""
    arrays = read_arrays(
        folder / "statistics.npz", {name: (kind, (graph.n_edges,)) for name, kind in STATISTICS.items()}
    )
    for name in ("mean", "low", "high"):
        check_metric(f"{name} in statistics.npz", arrays[name])
    return EdgeStatistics(graph, score=np.where(arrays["kept"], arrays["mean"], 0.0), **arrays)


def _learner_names(outcomes: Sequence[Outcome]) -> dict[Learner, str]:
    """Return the name in learned.npz of every learner: its measure, numbered from the second of one measure on."""
    names: dict[Learner, str] = {}
    counts: Counter[str] = Counter()
    for learner in (outcome.recipe.learner for outcome in outcomes):
        if learner is not None and learner not in names:
            measure = record_name("goal", learner.record().get("goal", "learned"))
            counts[measure] += 1
            names[learner] = f"{measure}-{counts[measure]}" if counts[measure] > 1 else measure
    return names


def _write_learned(folder: Path, result: Discovery) -> None:
    if result.learned:
        names = _learner_names(result.outcomes)
        write_arrays(folder / "learned.npz", {name: result.learned[learner].value for learner, name in names.items()})
        origins = {name: result.learned[learner].origin for learner, name in names.items()}
        records = {
            name: {key: origin.get(key, empty) for key, empty in LEARNED.items()} for name, origin in origins.items()
        }
        write_json(folder / "learned.json", {"format": LEARNED_FORMAT, "version": LEARNED_VERSION, "learned": records})


def _read_learned(folder: Path, graph: BaseGraph, outcomes: Sequence[Outcome]) -> dict[Learner, Ranking]:
    """Return learner -> ranking."""
    names = _learner_names(outcomes)
    if not names:
        return {}
    arrays = read_arrays(folder / "learned.npz", {name: ("f", (graph.n_edges,)) for name in names.values()})
    records: Mapping[str, LearnedRecord] = {}
    if os.path.isfile(folder / "learned.json"):  # 0.2.0 has none
        content = read_versioned_json(folder / "learned.json", LEARNED_FORMAT, LEARNED_VERSION)
        records = convert_record(LearnedFile, content, "learned.json")["learned"]
    return {
        learner: Ranking(graph, arrays[name], signed=bool((arrays[name] < 0).any()), origin=dict(records.get(name, {})))
        for learner, name in names.items()
    }


def _write_prompts(folder: Path, result: Discovery) -> None:
    record = {
        "split": result.run.test.split,
        "left_out": result.run.test.examples - len(result.prompts),
        "prompts": [asdict(prompt) for prompt in result.prompts],
    }
    write_json(folder / "examples.json", {"format": EXAMPLES_FORMAT, "version": EXAMPLES_VERSION} | record)


def _read_prompts(folder: Path, run: RunInfo) -> tuple[Prompt, ...]:
    """Return the prompts of a run's evaluated examples, or of the first of them."""
    path = folder / "examples.json"
    record: ExamplesRecord = convert_record(
        ExamplesRecord, read_versioned_json(path, EXAMPLES_FORMAT, EXAMPLES_VERSION), str(path)
    )
    prompts = tuple(record["prompts"])
    is_complete = record["left_out"] >= 0 and len(prompts) + record["left_out"] == run.test.examples
    if not is_complete or len(prompts) > MAX_PROMPTS or record["split"] != run.test.split:
        raise InputError(f"{path} has other prompts than those that the run was evaluated on")
    if not all(len(prompt.clean) == len(prompt.corrupted) > 0 for prompt in prompts):
        raise InputError(f"{path} has a pair of prompts of different lengths")
    spans = range(run.graph.n_spans if isinstance(run.graph, SpanGraph) else 0)
    if not all(len(p.spans) in (0, len(p.clean)) and all(span in spans for span in p.spans) for p in prompts):
        raise InputError(f"{path} has other spans of tokens than the run's circuits")
    return prompts


def _write_attention(folder: Path, attention: Attention | None) -> None:
    if attention is not None:
        arrays: dict[str, NDArray[Any]] = {
            name: np.array(getattr(attention, name), np.int64) for name in ("examples", "lengths", "heads")
        }
        values = np.concatenate([patterns.ravel() for patterns in attention.values])
        write_arrays(folder / "attention.npz", arrays | {"values": values})


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
