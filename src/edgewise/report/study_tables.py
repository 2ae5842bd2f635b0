"""A study's tables for the terminal and as Markdown, CSV, JSON and LaTeX."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from rich.table import Table
from rich.text import Text

from ..evaluate import CONFIDENCE
from ..io.atomic import write_bytes, write_json, write_text
from ..recipes.run_info import LOW_ACCURACY
from ..recipes.settings import published_words
from ..study import Study, StudyTable, TableRow, study_tables
from ..study.tables import DIGITS, verdicts
from .figures.curves import study_figure
from .figures.style import draw_files
from .formatting import (
    MINUS,
    format_interval,
    format_number,
    markdown_cell,
    one_line,
    safe_text,
    short_name,
    with_minus_signs,
)
from .readme import study_page, write_readme
from .tables import AREA_MARKS_LEGEND, mark_words, number_tables

# In a narrower terminal intervals are on a line below their value.
NARROW_WIDTH = 60
SPREAD_LEGEND = "±: standard deviation over seeds; a task file with splits gives every seed the same examples"
TERMINAL_LEGEND = (AREA_MARKS_LEGEND, f"{SPREAD_LEGEND}; the files have all intervals")
FILE_LEGEND = (
    f"{AREA_MARKS_LEGEND}. {SPREAD_LEGEND}; brackets: {CONFIDENCE:.0%} interval over resamples of the evaluated "
    "examples."
)


def write_study(study: Study, folder: str | Path) -> dict[str, Any]:
    """Write a study's tables and figure into its folder.

    Parameters
    ----------
    study
        What `run_study` or `read_study` returned.
    folder
        The folder of the study.

    Returns
    -------
    dict
        The content of tables.json.
    """
    folder, tables = Path(folder), study_tables(study)
    sentences, published = verdicts(study), published_words(study.plan.settings)
    content: dict[str, Any] = {
        "plan": study.plan.record(),
        "as_published": published,
        "cells": [
            {"task": cell.task, "model": cell.model, "examples": dict(cell.examples), "accuracy": cell.accuracy.top,
             "beats": cell.accuracy.beats}
            for cell in study.cells
        ],
        "verdicts": sentences,
        "entries": records(tables, bool(published)),
    }  # fmt: skip
    intro = "".join(f"As published: {text}.\n\n" for text in (published or {}).values())
    intro += "".join(f"- {markdown_cell(describe_cell(cell))}\n" for cell in content["cells"]) + "\n"
    remarks = "".join(f"% As published: {text}.\n" for text in (published or {}).values())
    write_text(folder / "tables.md", intro + markdown(tables, sentences))
    write_text(folder / "tables.csv", csv_text(content["entries"]))
    write_text(folder / "tables.tex", remarks + latex(tables))
    write_text(folder / "curves.csv", csv_text(curve_records(study)))
    write_json(folder / "tables.json", content)
    for name, image in draw_files({"figure": partial(study_figure, study)}).items():
        write_bytes(folder / name, image)
    write_readme(folder, study_page(study.plan, folder))  # last: it lists all files
    return content


def describe_cell(cell: Mapping[str, Any]) -> str:
    """Return a sentence on the accuracy of a model on a task and the number of examples."""
    counts = ", ".join(f"{number} of {split}" for split, number in cell["examples"].items())
    beats = ""
    if cell["beats"] is not None:
        fails = ": the model hardly does this task, so its circuits may mean nothing" * (cell["beats"] < LOW_ACCURACY)
        beats = f", the correct answer beats the incorrect one in {cell['beats']:.0%}{fails}"
    return (
        f"{short_name(cell['task'])}, {short_name(cell['model'])}: examples {counts}; on test the model's top answer "
        f"is right in {cell['accuracy']:.0%}{beats}."
    )


class _Cell(NamedTuple):
    """The text of an entry, with empty strings for what it lacks, and its marks in words."""

    number: str
    spread: str
    interval: str
    note: str
    is_best: bool
    marks: str


def _cells(table: StudyTable, row: TableRow) -> list[_Cell | None]:
    cells: list[_Cell | None] = []
    for column, entry in enumerate(row.entries):
        if entry is None:
            cells.append(None)
            continue
        number = format_number(entry.value, table.is_difference, DIGITS)
        spread = "" if entry.spread is None else format_number(entry.spread, digits=DIGITS)
        interval = ""
        if entry.low is not None and entry.high is not None:
            interval = format_interval(entry.low, entry.high, table.is_difference, DIGITS)
        is_best = table.is_best(row, column)
        cells.append(_Cell(number, spread, interval, entry.note, is_best, mark_words(is_best, entry.verdict)))
    return cells


def terminal(table: StudyTable, width: int) -> list[Table]:
    """Return a table for the terminal without its caption; several tables if there are too many columns.

    Intervals are shown for differences only; those of areas are in the files. Marks are in front of numbers.
    """
    heads = [safe_text(f"{one_line(short_name(task))}\n{one_line(short_name(model))}") for task, model in table.columns]

    def cell_text(cell: _Cell) -> Text:
        details = f" ±{cell.spread}" if cell.spread else ""
        if table.is_difference:
            details += ("\n" if width < NARROW_WIDTH else " ") + cell.interval
        if table.name == "main" and cell.note:
            details += "\n" + cell.note.replace(" (", "\n(")
        return Text(f"{cell.marks} ".lstrip()) + Text(cell.number, "bold" * cell.is_best) + safe_text(details)

    rows = [(row.label, *(cell_text(cell) if cell else "" for cell in _cells(table, row))) for row in table.rows]
    return number_tables(("recipe", *heads), rows, width, ends=[place - 1 for place in table.lines])


def markdown(tables: Sequence[StudyTable], verdicts: Sequence[dict[str, Any]]) -> str:
    """Return all tables as a page without a heading."""
    lines = [FILE_LEGEND, "", *(f"- {markdown_cell(sentence(verdict, MINUS))}" for verdict in verdicts)]
    for table in tables:
        heads = " | ".join(markdown_cell(f"{short_name(task)}, {short_name(model)}") for task, model in table.columns)
        lines += ["", f"**{markdown_cell(table.caption)}**", "", f"| recipe | {heads} |"]
        lines.append("|---" + "|---:" * len(table.columns) + "|")
        for row in table.rows:
            texts = [""] * len(row.entries)
            for place, cell in enumerate(_cells(table, row)):
                if cell is not None:
                    number = f"**{cell.number}**" if cell.is_best else cell.number
                    parts = (cell.marks, number, cell.spread and f"±{cell.spread}", cell.interval)
                    texts[place] = with_minus_signs(" ".join(filter(None, parts)))
                    texts[place] += f" <br>{markdown_cell(cell.note)}" if cell.note else ""
            lines.append(f"| {markdown_cell(row.label)} | {' | '.join(texts)} |")
    return "\n".join(lines) + "\n"


def sentence(verdict: Mapping[str, Any], sign: str = "-") -> str:
    """Return a sentence on the recipe that validation chose and its result on test; `sign` is the minus sign."""
    chosen = verdict["chosen"] + (f" ({verdict['parameters']})" if verdict["parameters"] else "")
    difference = format_number(verdict["difference"], signed=True)
    interval = format_interval(verdict["low"], verdict["high"], signed=True)
    numbers = (
        f"on test {format_number(verdict['test'])} against greedy's {format_number(verdict['greedy'])}, a difference "
        f"of {difference} {interval}"
    ).replace("-", sign)
    return (
        f"{short_name(verdict['task'])}, {short_name(verdict['model'])}, {verdict['benchmark']}: validation chose "
        f"{chosen}; {numbers}, p {verdict['p']:.3f}: {verdict['verdict']}."
    )


def csv_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return records of the same keys as CSV."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def records(tables: Sequence[StudyTable], as_published: bool = False) -> list[dict[str, Any]]:
    """Return all entries of all tables as plain data."""
    entries = []
    for table in tables:
        for row in table.rows:
            for column, ((task, model), entry) in enumerate(zip(table.columns, row.entries, strict=True)):
                if entry is not None:
                    entries.append(
                        {"table": table.name, "benchmark": row.about, "method": row.label, "task": task, "model": model}
                        | asdict(entry)
                        | {"best": table.is_best(row, column)}
                        | {"faithfulness": table.faithfulness, "as_published": as_published}
                    )
    return entries


def curve_records(study: Study) -> list[dict[str, Any]]:
    """Return all curves on test as plain data, a record per recipe, seed and size."""
    return [
        {"task": cell.task, "model": cell.model, "benchmark": measure.name, "method": repeats.recipe.name,
         "parameters": repeats.recipe.parameter_text, "seed": seed, **size}
        for cell in study.cells for measure, recipes in cell.test.items() for repeats in recipes
        for seed, curve in enumerate(repeats.curves) for size in curve.rows()
    ]  # fmt: skip


def latex(tables: Sequence[StudyTable]) -> str:
    r"""Return all tables for \usepackage{booktabs}, columns grouped by task as in the paper."""
    return "\n".join(_latex_table(table, legend=not place) for place, table in enumerate(tables))


def _latex_table(table: StudyTable, legend: bool) -> str:
    """Return a table; with `legend`, its caption explains the marks of all tables."""
    heads, rules, first = [], [], 2
    for task, same in groupby(task for task, _ in table.columns):
        width = len(list(same))
        heads.append(rf"\multicolumn{{{width}}}{{c}}{{{_escape(short_name(task))}}}")
        rules.append(rf"\cmidrule(lr){{{first}-{first + width - 1}}}")
        first += width
    models = " & ".join(_escape(short_name(model)) for _, model in table.columns)
    rows = []
    for place, row in enumerate(table.rows):
        cells = " & ".join(_latex_cell(cell) if cell else "" for cell in _cells(table, row))
        rows += [r"\midrule"] * (place in table.lines) + [rf"{_escape(row.label)} & {cells} \\"]
    body = "\n    ".join(rows)
    return rf"""\begin{{table*}}[t]
    \centering
    \begin{{tabular}}{{l{"r" * len(table.columns)}}}
    \toprule
    & {" & ".join(heads)} \\{"".join(rules)}
    \textbf{{Recipe}} & {models} \\
    \midrule
    {body}
    \bottomrule
    \end{{tabular}}
    \caption{{{_escape(table.caption + f" {FILE_LEGEND}" * legend)}}}
    \label{{tab:{table.name}}}
\end{{table*}}
"""


def _latex_cell(cell: _Cell) -> str:
    """Return an entry in math mode, with the chosen recipe on a separate line."""
    text = rf"$\mathbf{{{cell.number}}}$" if cell.is_best else f"${cell.number}$"
    text = rf"{{\scriptsize {cell.marks}}} {text}" if cell.marks else text
    details = " ".join(filter(None, (cell.spread and rf"$\pm{cell.spread}$", cell.interval and f"${cell.interval}$")))
    text += rf" {{\scriptsize {details}}}" if details else ""
    note = rf" \\ {{\scriptsize {_escape(cell.note)}}}"
    return rf"\begin{{tabular}}[t]{{@{{}}r@{{}}}}{text}{note}\end{{tabular}}" if cell.note else text


def _escape(text: str) -> str:
    special = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$"}
    marks = special | {mark: rf"\{mark}" for mark in "&%_#${}"}
    return "".join(marks.get(mark, mark) for mark in one_line(text))
