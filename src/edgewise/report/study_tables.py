"""Write a study: its data, its tables for the terminal and as Markdown, CSV and JSON, its figures and README."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from ..evaluate import CONFIDENCE
from ..io.atomic import atomic_folder, write_bytes, write_json, write_text
from ..recipes.run_info import LOW_ACCURACY
from ..recipes.settings import published_words
from ..study import Cell, Entry, Plan, Study, StudyTable, study_tables
from ..study.folder import FILE_PATTERN, write_study_data
from ..study.tables import BETTER, DIGITS
from .figures import figures_of
from .figures.style import draw_files
from .formatting import (
    format_interval,
    format_number,
    markdown_cell,
    one_line,
    safe_text,
    short_name,
    with_minus_signs,
)
from .readme import study_page, write_readme
from .tables import csv_text, mark_words, markdown_table, marks_legend, number_tables

# In a narrower terminal intervals are on a line below their value.
NARROW_WIDTH = 60
SPREAD_LEGEND = "±: standard deviation over seeds; a task file with splits gives every seed the same examples"
SCORER_LEGEND = (
    "one integer program selects the circuits of all scorers, of equal size, by signed values for CPR and absolute "
    "values for CMD",
    "seconds: wall time of scoring, or of learning the rankings of both measures, per training example; memory: "
    "estimated peak beyond the model for one example",
)
TRUTH_LEGEND = (
    "AUROC, precision: of absolute scores, or of the ranking that is learned for CMD, against the known circuit; "
    "precision at its size"
)


def write_study(study: Study, folder: str | Path, overwrite: bool = False) -> None:
    """Write a study, its tables, figures and README into a folder, atomically.

    Parameters
    ----------
    study
        What `run_study` returned.
    folder
        The folder to write.
    overwrite
        Whether an earlier study in the folder is replaced.
    """
    with atomic_folder(Path(folder), overwrite, FILE_PATTERN) as draft:
        write_study_data(draft, study)
        write_tables(study, draft)


def summarise_study(study: Study) -> dict[str, Any]:
    """Return the content of tables.json: the plan, and all entries of all tables."""
    return {
        "plan": study.plan.record(),
        "as_published": published_words(study.plan.settings),
        "cells": [
            {"task": cell.task, "model": cell.model, "edges": cell.n_edges, "true_edges": cell.n_true,
             "examples": dict(cell.examples), "accuracy": cell.accuracy.top, "beats": cell.accuracy.beats}
            for cell in study.cells
        ],
        "entries": [{"table": t.name} | asdict(entry) for t in study_tables(study) for entry in t.entries],
    }  # fmt: skip


def write_tables(study: Study, folder: Path) -> None:
    """Write what is derived from a study into its folder."""
    content = summarise_study(study)
    intro = [f"As published: {text}.\n" for text in (content["as_published"] or {}).values()]
    intro += [f"- {markdown_cell(describe_cell(cell, study.plan))}" for cell in study.cells]
    lines = [*intro, "", f"{'. '.join(legend(study))}.", "", *map(markdown, study_tables(study))]
    write_text(folder / "tables.md", "\n".join(lines))
    write_text(folder / "tables.csv", csv_text(content["entries"]))
    curves = [
        {"task": cell.task, "model": cell.model, "measure": measure.name, "row": repeats.name,
         "parameters": repeats.recipe.parameter_text, "seed": seed, **size}
        for cell in study.cells for measure, rows in cell.test.items() for repeats in rows
        for seed, curve in enumerate(repeats.curves) for size in curve.rows()
    ]  # fmt: skip
    write_text(folder / "curves.csv", csv_text(curves))
    write_json(folder / "tables.json", content)
    figures = {name.replace("study", "figure"): draw for name, draw in figures_of(study).items()}
    for name, image in draw_files(figures).items():
        write_bytes(folder / name, image)
    write_readme(folder, study_page(study.plan, folder))  # last: it lists all files


def legend(study: Study) -> list[str]:
    """Return what the marks and columns of the tables mean."""
    scorers = study.plan.scorers
    lines = [
        marks_legend(scorers[0].name if scorers else "greedy"),
        f"{SPREAD_LEGEND}; brackets: {CONFIDENCE:.0%} interval over resamples of the evaluated examples",
    ]
    has_truth = any(cell.n_true is not None for cell in study.cells)
    return [*lines, *(SCORER_LEGEND if scorers else ()), *[TRUTH_LEGEND] * has_truth]


def describe_cell(cell: Cell, plan: Plan) -> str:
    """Return a sentence on a model and a task: edges, examples, accuracy, and scorers that were left out."""
    counts = ", ".join(f"{number} of {split}" for split, number in cell.examples.items())
    beats = cell.accuracy.beats
    beats_text = ""
    if beats is not None:
        fails = ": the model hardly does this task, so its circuits may mean nothing" * (beats < LOW_ACCURACY)
        beats_text = f", the correct answer beats the incorrect one in {beats:.0%}{fails}"
    known = "" if cell.n_true is None else f", {cell.n_true:,} in the known circuit"
    left_out = [scorer.name for scorer in plan.scorers if scorer.name not in cell.costs]
    without = f" Without {', '.join(left_out)}, which suits fewer edges; name it to use it." if left_out else ""
    return (
        f"{short_name(cell.task)}, {short_name(cell.model)}: {cell.n_edges:,} edges{known}; examples {counts}; on test "
        f"the model's top answer is right in {cell.accuracy.top:.0%}{beats_text}.{without}"
    )


def _texts(entry: Entry) -> tuple[str, str, str, str]:
    """Return the marks, number, spread and interval of an entry, with empty strings for what it lacks."""
    is_difference = entry.p is not None
    number = f"{entry.value:.3g} {entry.unit}" if entry.unit else format_number(entry.value, is_difference, DIGITS)
    spread = "" if entry.spread is None else f"±{format_number(entry.spread, digits=DIGITS)}"
    interval = ""
    if entry.low is not None and entry.high is not None:
        interval = format_interval(entry.low, entry.high, is_difference, DIGITS)
    return mark_words(entry.best, entry.verdict), number, spread, interval


def terminal(table: StudyTable, width: int) -> list[Table]:
    """Return a table for the terminal without its caption; several tables if there are too many columns.

    Intervals of areas are in the files only. Marks are in front of numbers.
    """
    heads = [safe_text("\n".join(one_line(short_name(part)) for part in head)) for head in table.heads]

    def cell_text(entry: Entry) -> Text:
        marks, number, spread, interval = _texts(entry)
        details = f" {spread}".rstrip()
        if interval and (entry.p is not None or entry.quantity not in BETTER):
            details += ("\n" if width < NARROW_WIDTH else " ") + interval
        if table.name == "main" and entry.note:
            details += "\n" + entry.note.replace(" (", "\n(")
        return Text(f"{marks} ".lstrip()) + Text(number, "bold" * entry.best) + safe_text(details)

    rows = [(row.label, *(cell_text(entry) if entry else "" for entry in row.entries)) for row in table.rows]
    return number_tables(("", *heads), rows, width, ends=[place - 1 for place in table.lines])


def markdown(table: StudyTable) -> str:
    """Return a table with its caption."""

    def cell_text(entry: Entry | None) -> str:
        if entry is None:
            return ""
        marks, number, *details = _texts(entry)
        number = f"**{number}**" if entry.best else number
        text = with_minus_signs(" ".join(filter(None, (marks, number, *details))))
        return text + (f" <br>{markdown_cell(entry.note)}" if entry.note else "")

    heads = [markdown_cell(", ".join(map(short_name, head))) for head in table.heads]
    rows = [(markdown_cell(row.label), *map(cell_text, row.entries)) for row in table.rows]
    return f"\n**{markdown_cell(table.caption)}**\n\n{markdown_table(['', *heads], rows)}"
