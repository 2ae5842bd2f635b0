"""The result folder of a run. `write_run_data` writes a `Discovery`, `read_result` in reading.py reads it back.

run.json          model, examples, seed, versions, seconds, settings, accuracy, tuning, overlap
scores/           scores, [example, edge]
statistics.npz    per edge: mean, low, high, kept, sign_unstable
circuits.npz      the circuits of every recipe and size as packed bits, and the metric of every circuit and example
learned.npz       learned rankings, one array [edge] per learner; missing if there are none
learned.json      how they were learned: steps, seconds, area on validation by step, choice and calibration by size
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
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.scores import fill_folder
from ..io.arrays import write_arrays
from ..io.atomic import write_json, write_text
from ..io.formats import NPZ
from ..learn import Learner
from ..method import parameters, plain, record_name
from ..recipes import Discovery, Outcome
from ..recipes.recipe import GREEDY
from ..recipes.run_info import Prompt, RunInfo
from ..recipes.settings import published_words
from ..recipes.stability import mean_overlap

FORMAT, VERSION = "edgewise-result", 4
# A regular expression of the paths in a result folder.
FILE_PATTERN = (
    r"run\.json|statistics\.npz|circuits\.npz|curve\.(csv|json)|scores/scores\.(npy|json)"
    r"|circuits/[^/]+-(1|0(\.\d+)?|\d(\.\d+)?e-\d+)\.(npz|json)|figures/[a-z]+(-[a-z]+)*\.(png|svg)"
    r"|README\.md|viewer(-truth)?\.html|verification\.(html|json)|examples\.json|attention\.npz|learned\.(npz|json)"
)
STATISTICS = {"mean": "f", "low": "f", "high": "f", "kept": "b", "sign_unstable": "b"}


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


def write_run_data(folder: Path, result: Discovery, suffix: str = NPZ) -> None:
    """Write a discovery into an existing, empty folder. `suffix` is the format of the files in circuits/."""
    (folder / "scores").mkdir()
    fill_folder(folder / "scores", result.scores)
    _write_outcomes(folder, result, suffix)
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


def _write_outcomes(folder: Path, result: Discovery, suffix: str) -> None:
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
            path = folder / "circuits" / f"{measure.name.lower()}-{share:g}{suffix}"
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
