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
# By a pattern of paths, what files are, in the order in which the page lists them.
OF_RESULT = {
    r"viewer\.html": "the circuits to look at: open it in a browser, no network needed",
    **{rf"figures/{name}.*": words for name, words in FIGURES.items()},
    r"figures/.*": "a figure",
    r"circuits/.*\.npz": (
        "circuits, named by metric and share of the edges, for `edgewise show`, `view`, `compare`, `evaluate` and "
        "`Circuit.load`; `edgewise convert circuits DIR` writes them in EAP-IG's json. Each has `inside`, a bit for "
        "every edge as in circuits.npz, `score`, of the edges inside, and `about`, its graph and origin as JSON"
    ),
    r"circuits/.*": (
        "circuits for others to read, in EAP-IG's json: every edge with its score and whether it is in the circuit; "
        "named by metric and share of the edges"
    ),
    r"curve\.csv": "a row per metric, method and size: edges asked for and kept, metric, faithfulness, how solved",
    r"curve\.json": (
        "the same with every area, its interval over the evaluated examples and its paired comparison with greedy"
    ),
    r"circuits\.npz": "every circuit of every method and size, and the metric of each on every evaluated example",
    r"scores/scores\.npy": "the scores that circuits were selected by",
    r"scores/scores\.json": "what the scores are of: the graph, model, task, method",
    r"statistics\.npz": "what the bootstrap says of every edge's score",
    r"learned\.npz": "the learned rankings, one value per edge, the larger the better, without sign",
    r"examples\.json": "the evaluated prompts as tokens, clean and corrupted, with their answers",
    r"attention\.npz": "attention patterns of the strongest heads on a few of the evaluated examples",
    r"run\.json": "the record of the run: settings, digests of weights and prompts, versions, areas, seconds",
}
# Where many files have the same arrays.
ALIKE = ("store/", "circuits/")
OF_STUDY = {
    r"tables\.md": "the tables, with what validation chose and how that did on test",
    r"tables\.tex": "the same for LaTeX (booktabs)",
    r"tables\.csv": "every entry of the tables, a row each",
    r"tables\.json": "the same with the plan and the verdicts",
    r"curves\.csv": "every curve on test: a row per task, model, metric, method, seed and size",
    r"figures?[./].*": "faithfulness on test of greedy and of what validation chose",
    r"study\.json": "the plan, with digests of what it reads; run the same command again to resume",
}
ARRAYS = {
    ("scores/scores.npy", ""): "`[example, edge]`: a positive score marks an edge whose corruption hurts the task",
    ("statistics.npz", "mean"): "`[edge]`: the mean score over resamples of the examples",
    ("statistics.npz", "low"): "`[edge]`: the lower end of its interval",
    ("statistics.npz", "high"): "`[edge]`: the upper end of its interval",
    ("statistics.npz", "kept"): "`[edge]`: whether the edge passes the filter, so that its interval leaves out 0",
    ("statistics.npz", "sign_unstable"): "`[edge]`: whether its mean had both signs among the resamples",
    ("circuits.npz", "masks"): (
        "`[curve, size, byte]`: whether each edge is in the circuit, as packed bits: "
        "`np.unpackbits(masks, axis=-1, count=EDGES)`"
    ),
    ("circuits.npz", "values"): "`[curve, size, example]`: the metric of every circuit",
    ("circuits.npz", "full"): "`[example]`: the metric of the model itself",
    ("circuits.npz", "empty"): "`[example]`: the metric of the empty circuit, which is all ablation",
    ("learned.npz", "*"): "`[edge]`: the ranking that was learned for this metric",
    ("attention.npz", "examples"): "`[example]`: rows of the evaluated examples, as in examples.json",
    ("attention.npz", "lengths"): "`[example]`: how many tokens they have",
    ("attention.npz", "heads"): "`[head]`: nodes of the graph",
    ("attention.npz", "values"): (
        "for each example `[side, head, pair]`, one after the other, in 255ths: a side is clean or corrupted, a pair "
        "is a position and one that it looks at; `edgewise.results.read_attention` gives them as patterns"
    ),
}


@dataclass(frozen=True)
class Piece:
    """A file of a folder, by its path there, and the headers of its arrays, by name."""

    path: str
    arrays: Mapping[str, ArrayHeader]


def write_result_readme(folder: Path, result: Discovery) -> list[Path]:
    """Write a result folder's README.md, unless one lies there that edgewise didn't write; gives what was written."""
    return _write(folder, result_page(result, _pieces(folder, RESULT_FILES)))


def write_study_readme(folder: Path, plan: Plan) -> None:
    """Write a study folder's README.md, unless one lies there that edgewise didn't write."""
    _write(folder, study_page(plan, _pieces(folder, STUDY_FILES)))


def result_page(result: Discovery, pieces: Sequence[Piece]) -> str:
    """The page of a result folder that holds these files."""
    run, settings = result.run, result.settings.record()
    methods = list(dict.fromkeys(row.name for row in result.outcomes))
    best = {b: result.best(b) for b in result.measures}
    curves = ", ".join(f"{row.measure.name} {code(row.name)}" for row in result.outcomes)
    made = [
        f"model: {code(run.model)}, {code(run.graph)}, {run.graph.n_edges:,} edges, {code(run.dtype)}",
        f"task: {code(run.task)}; scored on {run.train.examples:,} examples of {code(run.train.split)}, evaluated on "
        f"{run.test.examples:,} of {code(run.test.split)}",
        *_settings_lines(settings),
        f"methods: {_codes(methods)}",
        f"seed: {run.seed}; versions: {_codes(f'{name} {version}' for name, version in run.versions.items())}",
    ]
    axes = [
        "example: in the task's order; `scores.npy` has those that were scored, `circuits.npz` those evaluated",
        f"edge: the {run.graph.n_edges:,} edges in the order of `result.run.graph.edge_names` below",
        f"curve: as in `curve.json`: {curves}",
        f"size: {_sizes(settings['sizes'])} of the edges",
    ]
    read = [
        "import edgewise, numpy as np",
        'result = edgewise.read_result(".")                # result.run are facts; result.outcomes the curves',
        "circuits = result.best(edgewise.CMD).circuits     # a circuit per size",
        "scores = result.scores                            # scores.values is [example, edge]",
        'intervals = np.load("statistics.npz")             # intervals["low"][result.run.graph.edge_index(NAME)]',
    ]
    found = [f"best {b.name}: {format_number(row.area)}, by {code(row.name)}" for b, row in best.items()]
    return _page(
        f"Circuits of {code(short_name(run.model))} for {code(short_name(run.task))}",
        {
            "What came out": [
                *_bullets(found),
                "",
                *_meanings(result.measures, result.settings.faithfulness.name),
            ],
            "Files": _file_lines(pieces, OF_RESULT),
            "Axes of the arrays": _bullets(axes),
            "How to read it": ["```python", *read, "```"],
            "How it was made": _bullets(made),
        },
    )


def study_page(plan: Plan, pieces: Sequence[Piece]) -> str:
    """The page of a study folder that holds these files."""
    files = [piece for piece in pieces if not piece.path.startswith("store/")]
    made = [
        f"models: {_codes(plan.models)}",
        f"tasks: {_codes(plan.tasks)}; {'all' if plan.examples is None else f'{plan.examples:,}'} examples of a split",
        *_settings_lines(plan.settings.record()),
        f"seeds: {plan.seeds}; hyper-parameters are chosen on validation, and what was chosen is measured on test",
    ]
    read = [
        "import edgewise, csv",
        'study = edgewise.read_study(".")                  # study.cells: what every model and task came to',
        'entries = list(csv.DictReader(open("tables.csv")))',
    ]
    store = ["- `store/`: finished work, by digests of what it depends on; the same command resumes from it"]
    return _page(
        f"A study of {_codes(map(short_name, plan.models))} on {_codes(map(short_name, plan.tasks))}",
        {
            "What is measured": _meanings((CMD, CPR), plan.settings.faithfulness.name),
            "Files": _file_lines(files, OF_STUDY) + store * (len(files) < len(pieces)),
            "How to read it": ["```python", *read, "```"],
            "How it was made": _bullets(made),
        },
    )


def _page(title: str, parts: Mapping[str, Sequence[str]]) -> str:
    lines = [README_MARK, f"# {title}", "", "Written by edgewise; `edgewise report` writes this page anew."]
    for heading, words in parts.items():
        lines += ["", f"## {heading}", "", *words]
    return "\n".join(lines) + "\n"


def _write(folder: Path, page: str) -> list[Path]:
    path = folder / README
    if os.path.lexists(path) and not is_own_readme(path):
        return []
    write_text(path, page)
    return [path]


def _pieces(folder: Path, ours: str) -> list[Piece]:
    """The files of a folder that edgewise wrote, the page itself left out."""
    files = [Path(top, name) for top, _, names in os.walk(folder) for name in names]
    places = {path.relative_to(folder).as_posix(): path for path in files if not path.is_symlink()}
    return [
        Piece(place, read_headers(path) if path.suffix in (".npy", ".npz") and not place.startswith(ALIKE) else {})
        for place, path in sorted(places.items())
        if re.fullmatch(ours, place) and place != README
    ]


def _file_lines(pieces: Sequence[Piece], known: Mapping[str, str]) -> list[str]:
    """A line per kind of file, and one per array, in the order of what is known."""
    patterns = list(known)

    def rank(piece: Piece) -> int:
        return next((n for n, one in enumerate(patterns) if re.fullmatch(one, piece.path, re.S)), len(patterns))

    lines = []
    for place, same in groupby(sorted(pieces, key=rank), rank):
        group = list(same)
        what = known[patterns[place]] if place < len(patterns) else "a file of edgewise"
        lines.append(f"- {_codes(piece.path for piece in group)}: {what}")
        lines += [_array_line(piece.path, name, header) for piece in group for name, header in piece.arrays.items()]
    return lines


def _array_line(path: str, name: str, header: ArrayHeader) -> str:
    meaning = ARRAYS.get((path, name)) or ARRAYS.get((path, "*"), "an array")
    shape = " × ".join(f"{length:,}" for length in header.shape) or "a single number"
    return f"  - {code(name) + ', ' if name else ''}{header.dtype.name}, {shape}: {meaning}"


def _settings_lines(settings: Mapping[str, Any]) -> list[str]:
    """How edges were scored and circuits run, in words."""
    ablation = describe_method(settings["ablation"])
    known = ABLATIONS.get(ablation)
    outside = f": {(known.__doc__ or '').partition('.')[0].lower()}" if known else ""
    return [
        f"scores: {code(describe_method(settings['scorer']))}, of the metric "
        f"{code(describe_method(settings['metric']))}",
        f"ablation: {code(ablation)}, which is what edges outside a circuit carry{outside}",
        f"faithfulness: {code(describe_method(settings['faithfulness']))}",
        f"bootstrap: {code(describe_method(settings['bootstrap']))}",
        f"sizes: {_sizes(settings['sizes'])} of the edges"
        + ", each containing the smaller ones" * bool(settings["nested"])
        + ", filled up after pruning" * bool(settings["fill"]),
    ]


def _meanings(measures: Iterable[Measure], faithfulness: str) -> list[str]:
    """What the numbers are, for who has never seen them."""
    known = FAITHFULNESS.get(faithfulness)
    definition = f" ({known.summary})" if known else ""
    return [
        f"Faithfulness{definition} says how far a circuit behaves as the model does. Over circuits of growing size it "
        "is a curve, with the share of edges on a linear axis:",
        "",
        *_bullets(f"{b.name}, the {b.full_name}: {b.meaning}; {b.improves}" for b in measures),
    ]


def _sizes(shares: Iterable[float]) -> str:
    return ", ".join(f"{share:.4g}" for share in shares)


def _codes(names: Iterable[object]) -> str:
    return ", ".join(map(code, names))


def _bullets(lines: Iterable[str]) -> list[str]:
    return [f"- {line}" for line in lines]
