"""README.md of a result or study folder: what every file and array there is, how it was made, how to read it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from ..evaluate import ABLATIONS, CMD, CPR, FAITHFULNESS, Measure
from ..io.arrays import ArrayHeader, read_headers
from ..io.atomic import README, README_MARK, is_own_readme, write_text
from ..recipes.discovery import Discovery
from ..results.result_folder import FILES as RESULT_FILES
from ..study import Plan
from ..study.folder import FILES as STUDY_FILES
from .formatting import describe_method, format_number, short_name
from .formatting import markdown_code as code

FIGURES = {
    "faithfulness": "faithfulness of circuits by size, a curve per recipe, with its area",
    "differences": "each recipe's area minus greedy's, with paired intervals",
    "circuit": "a drawing of the exported circuit",
    "scores": "the strongest edges with the intervals of their scores, and the distribution of all scores",
}
# Pattern of paths -> description, in the order of the page.
RESULT_DESCRIPTIONS = {
    r"viewer\.html": "the circuits as a page for the browser; it needs no network",
    **{rf"figures/{name}.*": text for name, text in FIGURES.items()},
    r"figures/.*": "a figure",
    r"circuits/.*\.npz": (
        "circuits, named by measure and size, for `edgewise show`, `view`, `compare`, `evaluate` and "
        "`Circuit.load`; `edgewise convert circuits DIR` writes them as EAP-IG json. Each has `inside`, one bit per "
        "edge as in circuits.npz, `score`, of the edges inside, and `about`, its graph and origin as JSON"
    ),
    r"circuits/.*": (
        "circuits as EAP-IG json: every edge with its score and whether it is in the circuit; named by measure and size"
    ),
    r"curve\.csv": "a row per measure, recipe and size: edges asked for and kept, metric, faithfulness, solver status",
    r"curve\.json": (
        "the same, with every area, its interval over the evaluated examples and its paired comparison with greedy"
    ),
    r"circuits\.npz": "all circuits of all recipes and sizes, and the metric of each on every evaluated example",
    r"scores/scores\.npy": "the scores that circuits were selected by",
    r"scores/scores\.json": "the graph, model, task and scorer of the scores",
    r"statistics\.npz": "the bootstrap's statistics of every edge's score",
    r"learned\.npz": "learned rankings: one value per edge, larger is better",
    r"examples\.json": "the evaluated prompts as tokens, clean and corrupted, with their answers",
    r"attention\.npz": "attention patterns of the strongest heads on a few of the evaluated examples",
    r"run\.json": "the record of the run: settings, digests of weights and prompts, versions, areas, seconds",
}
# Folders in which many files have the same arrays: these are not listed.
UNLISTED_ARRAYS = ("store/", "circuits/")
STUDY_DESCRIPTIONS = {
    r"tables\.md": "the tables, with the recipe that validation chose and its result on test",
    r"tables\.tex": "the same for LaTeX (booktabs)",
    r"tables\.csv": "one row per entry of the tables",
    r"tables\.json": "the same, with the plan and the verdicts",
    r"curves\.csv": "all curves on test: a row per task, model, measure, recipe, seed and size",
    r"figures?[./].*": "faithfulness on test of greedy and of the chosen recipe, and differences from greedy",
    r"study\.json": "the plan, with digests of what it reads; run the same command again to resume",
}
ARRAYS = {
    ("scores/scores.npy", ""): "`[example, edge]`: a positive score marks an edge whose corruption hurts the task",
    ("statistics.npz", "mean"): "`[edge]`: the mean score over resamples of the examples",
    ("statistics.npz", "low"): "`[edge]`: the lower end of its interval",
    ("statistics.npz", "high"): "`[edge]`: the upper end of its interval",
    ("statistics.npz", "kept"): "`[edge]`: whether the edge passes the filter: its interval excludes 0",
    ("statistics.npz", "sign_unstable"): "`[edge]`: whether its mean has both signs among the resamples",
    ("circuits.npz", "masks"): (
        "`[curve, size, byte]`: whether each edge is in the circuit, as packed bits: "
        "`np.unpackbits(masks, axis=-1, count=EDGES)`"
    ),
    ("circuits.npz", "values"): "`[curve, size, example]`: the metric of every circuit",
    ("circuits.npz", "full"): "`[example]`: the metric of the model itself",
    ("circuits.npz", "empty"): "`[example]`: the metric of the empty circuit, in which all edges are ablated",
    ("learned.npz", "*"): "`[edge]`: the ranking learned for this measure",
    ("attention.npz", "examples"): "`[example]`: places of the evaluated examples, as in examples.json",
    ("attention.npz", "lengths"): "`[example]`: their numbers of tokens",
    ("attention.npz", "heads"): "`[head]`: nodes of the graph",
    ("attention.npz", "values"): (
        "for each example `[side, head, pair]`, concatenated, in 255ths: a side is clean or corrupted, a pair is a "
        "query position and a key position; `read_result(folder).attention` has them as patterns"
    ),
}


@dataclass(frozen=True)
class FolderFile:
    """A file of a folder: its path in the folder, and the headers of its arrays by name."""

    path: str
    arrays: Mapping[str, ArrayHeader]


def write_result_readme(folder: Path, result: Discovery) -> list[Path]:
    """Write a result folder's README.md unless the user wrote one; return the paths of written files."""
    return _write(folder, result_page(result, _list_files(folder, RESULT_FILES)))


def write_study_readme(folder: Path, plan: Plan) -> None:
    """Write a study folder's README.md unless the user wrote one."""
    _write(folder, study_page(plan, _list_files(folder, STUDY_FILES)))


def result_page(result: Discovery, files: Sequence[FolderFile]) -> str:
    """Return the README of a result folder with these files."""
    run, settings = result.run, result.settings.record()
    recipes = list(dict.fromkeys(outcome.name for outcome in result.outcomes))
    best = {b: result.best(b) for b in result.measures}
    curves = ", ".join(f"{row.measure.name} {code(row.name)}" for row in result.outcomes)
    origin = [
        f"model: {code(run.model)}, {code(run.graph)}, {run.graph.n_edges:,} edges, {code(run.dtype)}",
        f"task: {code(run.task)}; scored on {run.train.examples:,} examples of {code(run.train.split)}, evaluated on "
        f"{run.test.examples:,} of {code(run.test.split)}",
        *_settings_lines(settings),
        f"recipes: {_codes(recipes)}",
        f"seed: {run.seed}; versions: {_codes(f'{name} {version}' for name, version in run.versions.items())}",
    ]
    axes = [
        "example: in the task's order; `scores.npy` has the scored ones, `circuits.npz` the evaluated ones",
        f"edge: the {run.graph.n_edges:,} edges in the order of `result.run.graph.edge_names` below",
        f"curve: as in `curve.json`: {curves}",
        f"size: {_sizes(settings['sizes'])} of the edges",
    ]
    reading = [
        "import edgewise, numpy as np",
        'result = edgewise.read_result(".")                # result.run are facts; result.outcomes the curves',
        "circuits = result.best(edgewise.CMD).circuits     # a circuit per size",
        "scores = result.scores                            # scores.values is [example, edge]",
        'intervals = np.load("statistics.npz")             # intervals["low"][result.run.graph.edge_index(NAME)]',
    ]
    best_areas = [f"best {b.name}: {format_number(row.area)}, by {code(row.name)}" for b, row in best.items()]
    return _page(
        f"Circuits of {code(short_name(run.model))} for {code(short_name(run.task))}",
        {
            "Results": [
                *_bullets(best_areas),
                "",
                *_meanings(result.measures, result.settings.faithfulness.name),
            ],
            "Files": _file_lines(files, RESULT_DESCRIPTIONS),
            "Axes of the arrays": _bullets(axes),
            "How to read it": ["```python", *reading, "```"],
            "How it was made": _bullets(origin),
        },
    )


def study_page(plan: Plan, files: Sequence[FolderFile]) -> str:
    """Return the README of a study folder with these files."""
    listed = [file for file in files if not file.path.startswith("store/")]
    origin = [
        f"models: {_codes(plan.models)}",
        f"tasks: {_codes(plan.tasks)}; {'all' if plan.examples is None else f'{plan.examples:,}'} examples of a split",
        *_settings_lines(plan.settings.record()),
        f"seeds: {plan.seeds}; hyper-parameters are chosen on validation and measured on test",
    ]
    reading = [
        "import edgewise, csv",
        'study = edgewise.read_study(".")                  # study.cells: the results of every model and task',
        'entries = list(csv.DictReader(open("tables.csv")))',
    ]
    store = ["- `store/`: finished work, by digests of what it depends on; the same command resumes from it"]
    return _page(
        f"A study of {_codes(map(short_name, plan.models))} on {_codes(map(short_name, plan.tasks))}",
        {
            "What is measured": _meanings((CMD, CPR), plan.settings.faithfulness.name),
            "Files": _file_lines(listed, STUDY_DESCRIPTIONS) + store * (len(listed) < len(files)),
            "How to read it": ["```python", *reading, "```"],
            "How it was made": _bullets(origin),
        },
    )


def _page(title: str, parts: Mapping[str, Sequence[str]]) -> str:
    lines = [README_MARK, f"# {title}", "", "Written by edgewise; `edgewise report` writes this page again."]
    for heading, words in parts.items():
        lines += ["", f"## {heading}", "", *words]
    return "\n".join(lines) + "\n"


def _write(folder: Path, page: str) -> list[Path]:
    path = folder / README
    if os.path.lexists(path) and not is_own_readme(path):
        return []
    write_text(path, page)
    return [path]


def _list_files(folder: Path, pattern: str) -> list[FolderFile]:
    """Return the files of a folder that edgewise wrote, without the README."""
    paths = [Path(top, name) for top, _, names in os.walk(folder) for name in names]
    places = {path.relative_to(folder).as_posix(): path for path in paths if not path.is_symlink()}
    files = []
    for place, path in sorted(places.items()):
        if re.fullmatch(pattern, place) and place != README:
            has_arrays = path.suffix in (".npy", ".npz") and not place.startswith(UNLISTED_ARRAYS)
            files.append(FolderFile(place, read_headers(path) if has_arrays else {}))
    return files


def _file_lines(files: Sequence[FolderFile], known: Mapping[str, str]) -> list[str]:
    """Return a line per kind of file, and one per array, in the order of the descriptions."""
    patterns = list(known)

    def rank(file: FolderFile) -> int:
        return next((n for n, one in enumerate(patterns) if re.fullmatch(one, file.path, re.S)), len(patterns))

    lines = []
    for place, same in groupby(sorted(files, key=rank), rank):
        group = list(same)
        what = known[patterns[place]] if place < len(patterns) else "a file of edgewise"
        lines.append(f"- {_codes(file.path for file in group)}: {what}")
        lines += [_array_line(file.path, name, header) for file in group for name, header in file.arrays.items()]
    return lines


def _array_line(path: str, name: str, header: ArrayHeader) -> str:
    meaning = ARRAYS.get((path, name)) or ARRAYS.get((path, "*"), "an array")
    shape = " × ".join(f"{length:,}" for length in header.shape) or "a single number"
    return f"  - {code(name) + ', ' if name else ''}{header.dtype.name}, {shape}: {meaning}"


def _settings_lines(settings: Mapping[str, Any]) -> list[str]:
    """Return a line for each setting of scoring and evaluation."""
    ablation = describe_method(settings["ablation"])
    known = ABLATIONS.get(ablation)
    outside = f": {(known.__doc__ or '').partition('.')[0].lower()}" if known else ""
    return [
        f"scores: {code(describe_method(settings['scorer']))}, of the metric "
        f"{code(describe_method(settings['metric']))}",
        f"ablation: {code(ablation)}, the values of edges outside a circuit{outside}",
        f"faithfulness: {code(describe_method(settings['faithfulness']))}",
        f"bootstrap: {code(describe_method(settings['bootstrap']))}",
        f"sizes: {_sizes(settings['sizes'])} of the edges"
        + ", each contains the smaller ones" * bool(settings["nested"])
        + ", filled up after pruning" * bool(settings["fill"]),
    ]


def _meanings(measures: Iterable[Measure], faithfulness: str) -> list[str]:
    """Explain faithfulness and the measures."""
    known = FAITHFULNESS.get(faithfulness)
    definition = f" ({known.summary})" if known else ""
    return [
        f"Faithfulness{definition} says how closely a circuit behaves like the model. By circuit size it is a curve, "
        "over a linear axis of the share of edges:",
        "",
        *_bullets(f"{b.name}, the {b.full_name}: {b.meaning}; {b.improves}" for b in measures),
    ]


def _sizes(shares: Iterable[float]) -> str:
    return ", ".join(f"{share:.4g}" for share in shares)


def _codes(names: Iterable[object]) -> str:
    return ", ".join(map(code, names))


def _bullets(lines: Iterable[str]) -> list[str]:
    return [f"- {line}" for line in lines]
