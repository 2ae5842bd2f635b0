"""A study's tables for the terminal and as Markdown, CSV, JSON and LaTeX."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from ..evaluate import CONFIDENCE
from ..io.atomic import write_bytes, write_json, write_text
from ..recipes.settings import published_words
from ..study import Entry, Study, StudyTable, TableRow, study_tables
from ..study.tables import DIGITS, verdicts
from .figures import figure_settings, render
from .figures.study import study_figure
from .formatting import MINUS, format_interval, format_number, one_line, safe_text, short_name, with_minus_signs
from .readme import write_study_readme
from .tables import BEST, LOW_ACCURACY, MARKS_LEGEND, number_tables

# In a narrower terminal intervals are on a line below their value.
NARROW_WIDTH = 60
LEGEND = (
    "Best **bold**, better than greedy <ins>underlined</ins>. ± is the standard deviation over seeds; brackets are "
    f"the {CONFIDENCE:.0%} interval over resamples of the evaluated examples."
)
TERMINAL_LEGEND = (MARKS_LEGEND, "±: standard deviation over seeds; the files have all intervals")


def write_study(study: Study, folder: str | Path) -> dict[str, Any]:
    """Write a study's tables and figure into its folder; return the content of tables.json."""
    folder, tables = Path(folder), study_tables(study)
    sentences, published = verdicts(study), published_words(study.plan.settings)
    content: dict[str, Any] = {
        "plan": study.plan.record(),
        "as_published": published,
        "cells": [
            {
                "task": cell.task,
                "model": cell.model,
                "examples": dict(cell.examples),
                "accuracy": cell.accuracy.top,
                "beats": cell.accuracy.beats,
            }
            for cell in study.cells
        ],
        "verdicts": sentences,
        "entries": records(tables, bool(published)),
    }
    intro = "".join(f"As published: {text}.\n\n" for text in (published or {}).values())
    intro += "".join(f"- {_page(describe_cell(cell))}\n" for cell in content["cells"]) + "\n"
    remarks = "".join(f"% As published: {text}.\n" for text in (published or {}).values())
    texts = {
        "tables.md": intro + markdown(tables, sentences),
        "tables.csv": csv_text(content["entries"]),
        "tables.tex": remarks + latex(tables),
        "curves.csv": csv_text(curve_records(study)),
    }
    for name, text in texts.items():
        write_text(folder / name, text)
    write_json(folder / "tables.json", content)
    with figure_settings():
        images = render(study_figure(study))
    for file_type, image in images.items():
        write_bytes(folder / f"figure.{file_type}", image)
    write_study_readme(folder, study.plan)  # last: it lists all files
    return content


def describe_cell(cell: Mapping[str, Any]) -> str:
    """Return a sentence on the accuracy of a model on a task and the number of examples."""
    counts = ", ".join(f"{number} of {split}" for split, number in cell["examples"].items())
    return (
        f"{short_name(cell['task'])}, {short_name(cell['model'])}: examples {counts}; on test the model's top answer "
        f"is right in {cell['accuracy']:.0%}, the correct answer beats the incorrect one in {cell['beats']:.0%}"
        f"{': the model hardly does this task, so its circuits may mean nothing' * (cell['beats'] < LOW_ACCURACY)}."
    )


def terminal(table: StudyTable, width: int) -> list[Table]:
    """Return a table for the terminal without its caption; several tables if there are too many columns.

    Intervals are shown for differences only; those of areas are in the files.
    """
    heads = [safe_text(f"{one_line(short_name(task))}\n{one_line(short_name(model))}") for task, model in table.columns]
    between = "\n" if width < NARROW_WIDTH else " "
    rows = [
        (row.label, *(_styled(table, row, column, between) for column in range(len(table.columns))))
        for row in table.rows
    ]
    ends = [place for place, following in enumerate(table.rows[1:]) if following.rule]
    return number_tables(("recipe", *heads), rows, width, ends=ends)


def _styled(table: StudyTable, row: TableRow, column: int, between: str) -> Text:
    """Return an entry with its mark in front; `between` separates it from its interval."""
    entry = row.entries[column]
    if entry is None:
        return Text()
    bold, underlined = table.marks(row, column)
    mark = BEST * bold
    if table.is_difference:
        is_worse = entry.low is not None and entry.high is not None and entry.low < entry.high
        is_worse = is_worse and (entry.high < 0 if row.better > 0 else entry.low > 0)  # type: ignore[operator]
        mark = "better" if bold else "worse" if is_worse else ""
    details = _details(table, entry, " ±{}", between + "{}" if table.is_difference else "")
    chosen = entry.note.replace(" (", "\n(") if table.name == "main" else ""
    style = "bold " * bold + "underline" * underlined
    rest = safe_text("".join(details) + (f"\n{chosen}" if chosen else ""))
    return Text(f"{mark} " if mark else "") + Text(_number(table, entry), style) + rest


def markdown(tables: Sequence[StudyTable], verdicts: Sequence[dict[str, Any]]) -> str:
    """Return all tables as a page without a heading."""
    parts = [LEGEND, "", *(f"- {_page(sentence(verdict, MINUS))}" for verdict in verdicts)]
    for table in tables:
        parts += ["", f"**{_page(table.caption)}**", "", *_markdown_rows(table)]
    return "\n".join(parts) + "\n"


def _markdown_rows(table: StudyTable) -> list[str]:
    heads = " | ".join(_page(f"{short_name(task)}, {short_name(model)}") for task, model in table.columns)
    lines = [f"| recipe | {heads} |", "|---" + "|---:" * len(table.columns) + "|"]
    for row in table.rows:
        cells = [_markdown_cell(table, row, column) for column in range(len(table.columns))]
        lines.append(f"| {_page(row.label)} | {' | '.join(cells)} |")
    return lines


def _page(text: str) -> str:
    """Escape text for a Markdown table: a bar would end a cell, and < would begin HTML."""
    return one_line(text).replace("<", "&lt;").replace("|", r"\|")


def _markdown_cell(table: StudyTable, row: TableRow, column: int) -> str:
    entry = row.entries[column]
    if entry is None:
        return ""
    bold, underlined = table.marks(row, column)
    text = f"<ins>{_number(table, entry)}</ins>" if underlined else _number(table, entry)
    details = [f"**{text}**" if bold else text, *_details(table, entry, "±{}", "{}")]
    return " ".join([with_minus_signs(" ".join(details)), *([f"<br>{_page(entry.note)}"] if entry.note else [])])


def _number(table: StudyTable, entry: Entry) -> str:
    return format_number(entry.value, table.is_difference, DIGITS)


def _details(table: StudyTable, entry: Entry, spread: str, brackets: str) -> list[str]:
    """Return the spread and the interval in their formats; an empty format leaves one out."""
    parts = []
    if entry.spread is not None:
        parts.append(spread.format(format_number(entry.spread, digits=DIGITS)))
    if brackets and entry.low is not None and entry.high is not None:
        parts.append(brackets.format(format_interval(entry.low, entry.high, table.is_difference, DIGITS)))
    return parts


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
                    bold, underlined = table.marks(row, column)
                    about = {"table": table.name, "benchmark": row.about, "method": row.label}
                    how = {"faithfulness": table.faithfulness, "as_published": as_published}
                    marks = {"bold": bold, "underlined": underlined}
                    entries.append(about | {"task": task, "model": model} | entry.record() | marks | how)
    return entries


def curve_records(study: Study) -> list[dict[str, Any]]:
    """Return all curves on test as plain data, a record per recipe, seed and size."""
    return [
        {"task": cell.task, "model": cell.model, "benchmark": measure.name, "method": one.recipe.name,
         "parameters": one.recipe.parameter_text, "seed": seed, **size}
        for cell in study.cells for measure, repeats in cell.test.items() for one in repeats
        for seed, curve in enumerate(one.curves) for size in curve.rows()
    ]  # fmt: skip


def latex(tables: Sequence[StudyTable]) -> str:
    r"""Return all tables for \usepackage{booktabs}, columns grouped by task as in the paper."""
    return "\n".join(_latex_table(table) for table in tables)


def _latex_table(table: StudyTable) -> str:
    groups = [(task, len(list(same))) for task, same in groupby(table.columns, key=lambda column: column[0])]
    heads, rules, first = [], [], 2
    for task, width in groups:
        heads.append(rf"\multicolumn{{{width}}}{{c}}{{{_escape(short_name(task))}}}")
        rules.append(rf"\cmidrule(lr){{{first}-{first + width - 1}}}")
        first += width
    lines = [
        r"\begin{table*}[t]",
        r"    \centering",
        rf"    \begin{{tabular}}{{l{'r' * len(table.columns)}}}",
        r"    \toprule",
        f"    & {' & '.join(heads)} \\\\{''.join(rules)}",
        rf"    \textbf{{Recipe}} & {' & '.join(_escape(short_name(model)) for _, model in table.columns)} \\",
        r"    \midrule",
    ]
    for row in table.rows:
        cells = [_latex_cell(table, row, column) for column in range(len(table.columns))]
        lines += [r"    \midrule"] * row.rule + [rf"    {_escape(row.label)} & {' & '.join(cells)} \\"]
    lines += [
        r"    \bottomrule",
        r"    \end{tabular}",
        rf"    \caption{{{_escape(table.caption)}}}",
        rf"    \label{{tab:{table.name}}}",
        r"\end{table*}",
        "",
    ]
    return "\n".join(lines)


def _latex_cell(table: StudyTable, row: TableRow, column: int) -> str:
    """Return an entry in math mode, with the chosen recipe on a separate line."""
    entry = row.entries[column]
    if entry is None:
        return ""
    bold, underlined = table.marks(row, column)
    text = rf"$\mathbf{{{_number(table, entry)}}}$" if bold else f"${_number(table, entry)}$"
    text = rf"\underline{{{text}}}" if underlined else text
    details = " ".join(_details(table, entry, r"$\pm{}$", "${}$"))
    text += rf" {{\scriptsize {details}}}" if details else ""
    note = rf" \\ {{\scriptsize {_escape(entry.note)}}}"
    return rf"\begin{{tabular}}[t]{{@{{}}r@{{}}}}{text}{note}\end{{tabular}}" if entry.note else text


def _escape(text: str) -> str:
    special = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    marks = special | {mark: rf"\{mark}" for mark in "&%_#${}"}
    return "".join(marks.get(mark, mark) for mark in one_line(text))
