"""README.md of a result or study folder: what its files are, how they were made, how to read them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from ..evaluate import CMD, CPR, Measure
from ..io.atomic import README, README_MARK, is_own_readme, write_text
from ..recipes.discovery import Discovery
from ..study import Plan
from .formatting import format_number, markdown_code as code, short_name
from .overview import run_facts

# Glob pattern -> description; patterns without files are left out.
RESULT_FILES = {
    "viewer.html": "the circuits as a page for the browser; it needs no network",
    "verification.html": "tests of the chosen circuit: null hypotheses, p-values, superfluous edges",
    "verification.json": "the same as data",
    "figures/faithfulness.*": "faithfulness of circuits by size, a curve per recipe, with its area",
    "figures/differences.*": "each recipe's area minus greedy's, with paired intervals",
    "figures/circuit.*": "a drawing of the circuit of the chosen recipe",
    "figures/scores.*": "the strongest edges with the intervals of their scores, and the distribution of all scores",
    "circuits/*.npz": "circuits of the chosen recipe by measure and size, for `edgewise show`, `view`, `compare`, "
    "`evaluate` and `Circuit.load`: `inside`, one bit per edge; `score`, by which they were selected; `about`, the "
    "graph and origin as JSON",
    "curve.csv": "a row per measure, recipe and size: edges asked for and kept, metric, faithfulness, solver status",
    "curve.json": "the same, with every area, its interval over the evaluated examples and its paired comparison with "
    "greedy",
    "circuits.npz": "all circuits. `masks` [curve, size, byte]: bits, `np.unpackbits(masks, axis=-1, count=EDGES)`;"
    " `values` [curve, size, example]: the metric of every circuit; `full`, `empty` [example]: the metric of the model "
    "and of the empty circuit, in which all edges are ablated",
    "scores/scores.npy": "[example, edge] the scores: a positive one marks an edge whose corruption hurts the task",
    "scores/scores.json": "the graph, model, task and scorer of the scores",
    "statistics.npz": "the bootstrap's statistics of scores [edge]. `mean`, `low`, `high`: the mean over resamples "
    "of the examples and its interval; `kept`: whether the interval excludes 0, so that the edge passes the filter; "
    "`sign_unstable`: whether its mean has both signs among the resamples",
    "learned.npz": "[edge] the ranking learned for each measure; larger is better",
    "learned.json": "how rankings were learned: steps, seconds, area on validation by step; by size, the choice and "
    "the calibration",
    "examples.json": "the evaluated prompts as tokens, clean and corrupted, with their answers",
    "attention.npz": "attention patterns of the strongest heads on a few evaluated examples, for "
    "`read_result(folder).attention`. `examples`, `lengths` [example]: places in examples.json and numbers of tokens; "
    "`heads` [head]: nodes; `values`: [side, head, pair of positions] of each example, concatenated, in 255ths",
    "run.json": "the record of the run: settings, digests of weights and prompts, versions, accuracy, tuning, seconds",
}
STUDY_FILES = {
    "tables.md": "the tables, and what their marks and columns mean",
    "tables.csv": "one row per entry of the tables",
    "tables.json": "the same, with the plan",
    "curves.csv": "all curves on test: a row per task, model, measure, row of the tables, seed and size",
    "figure.*": "faithfulness on test of the reference and of the chosen row, and differences from the reference",
    "costs.*": "areas of scorers and learners against their seconds per example",
    "study.json": "the plan, and digests of what it was made from",
    "cells/": "for every model and task, the metric of every circuit and example: `read_study` reads them",
}


def write_readme(folder: Path, page: str) -> list[Path]:
    """Write README.md into a folder unless the user wrote one; return the paths of written files."""
    path = folder / README
    if os.path.lexists(path) and not is_own_readme(path):
        return []
    write_text(path, page)
    return [path]


def result_page(result: Discovery, folder: Path) -> str:
    """Return the README of a result folder, which lists its files."""
    run, best = result.run, map(result.best, result.measures)
    curves = ", ".join(f"{row.measure.name} {code(row.name)}" for row in result.outcomes)
    return _page(
        f"Circuits of {code(short_name(run.model))} for {code(short_name(run.task))}",
        {
            "Results": [
                *(f"- {row.measure.name} {format_number(row.area)}, by {code(row.name)}" for row in best),
                "",
                *_meanings(result.measures, result.settings.faithfulness.summary),
            ],
            "Files": _list_files(folder, RESULT_FILES),
            "Axes of the arrays": [
                "- example: in the task's order; `scores.npy` has the scored ones, `circuits.npz` the evaluated ones",
                f"- edge: the {run.graph.count(run.graph.n_edges)} in the order of `result.run.graph.edge_names` below",
                f"- curve: as in `curve.json`: {curves}",
                f"- size: {', '.join(f'{share:.4g}' for share in result.settings.sizes)} of the {run.graph.units}",
            ],
            "How to read it": [
                "```python",
                "import edgewise, numpy as np",
                'result = edgewise.read_result(".")                # result.run are facts; result.outcomes the curves',
                "circuit = result.best(result.measures[0]).circuit()  # the smallest faithful one; .circuit(0.05): 5 %",
                "scores = result.scores                            # scores.values is [example, edge]",
                'intervals = np.load("statistics.npz")             # intervals["low"] is [edge]',
                "```",
            ],
            "How it was made": [
                *(f"- {name}: {code(text)}" for name, text in run_facts(result).items()),
                f"- seed: {run.seed}; `run.json` has all settings, and the versions of everything",
            ],
        },
    )


def study_page(plan: Plan, folder: Path) -> str:
    """Return the README of a study folder, which lists its files."""
    examples = "all" if plan.examples is None else f"{plan.examples:,}"
    return _page(
        f"A study of {_codes(map(short_name, plan.models))} on {_codes(map(short_name, plan.tasks))}",
        {
            "What is measured": _meanings((CMD, CPR), plan.settings.faithfulness.summary),
            "Files": _list_files(folder, STUDY_FILES),
            "How to read it": [
                "```python",
                "import edgewise, csv",
                'study = edgewise.read_study(".")                  # study.cells: the results of every model and task',
                'entries = list(csv.DictReader(open("tables.csv")))',
                "```",
            ],
            "How it was made": [
                f"- models: {_codes(plan.models)}",
                f"- tasks: {_codes(plan.tasks)}; {examples} examples of a split",
                f"- seeds: {plan.seeds}; hyper-parameters are chosen on validation and measured on test"
                if not plan.scorers
                else f"- seeds: {plan.seeds}; scorers and learners: {_codes(scorer.name for scorer in plan.scorers)}",
                "- `study.json` has all settings",
            ],
        },
    )


def _page(title: str, parts: Mapping[str, Iterable[str]]) -> str:
    lines = [README_MARK, f"# {title}", "", "Written by edgewise; `edgewise report` writes this page again."]
    for heading, text in parts.items():
        lines += ["", f"## {heading}", "", *text]
    return "\n".join(lines) + "\n"


def _list_files(folder: Path, descriptions: Mapping[str, str]) -> list[str]:
    return [f"- `{pattern}`: {text}" for pattern, text in descriptions.items() if any(folder.glob(pattern))]


def _meanings(measures: Iterable[Measure], faithfulness: str) -> list[str]:
    definition = f" ({faithfulness})" if faithfulness else ""
    return [
        f"Faithfulness{definition} says how closely a circuit behaves like the model. By circuit size it is a curve, "
        "over a linear axis:",
        "",
        *(f"- {m.name}, the {m.full_name}: {m.meaning}; {m.improves}" for m in measures),
    ]


def _codes(names: Iterable[object]) -> str:
    return ", ".join(map(code, names))
