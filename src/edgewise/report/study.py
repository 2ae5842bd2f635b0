"""A study's tables on the terminal and as Markdown, CSV and LaTeX; its figure."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from itertools import chain, groupby
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from rich.table import Table
from rich.text import Text

from ..disk import write_bytes, write_json, write_text
from ..evaluate import BOTH, CONFIDENCE, Benchmark
from ..study import GREEDY, Cell, Entry, Study, StudyTable, TableRow, published_words, study_tables
from ..study.tables import DIGITS, verdicts
from .figures import add_legend, drawing, rendered
from .readme import write_study_readme
from .tables import LOW_ACCURACY, short
from .words import drawn, one_line, shown

LEGEND = (
    "Best **bold**, better than greedy <ins>underlined</ins>. ± is the standard deviation over seeds; brackets hold "
    f"the {CONFIDENCE:.0%} interval over resamples of the evaluated examples."
)


def write_study(study: Study, folder: str | Path) -> dict[str, Any]:
    """Write a study's tables and figure into its folder; gives what tables.json holds."""
    folder, tables = Path(folder), study_tables(study)
    told, published = verdicts(study), published_words(study.plan.settings)
    about: dict[str, Any] = {
        "plan": study.plan.record(),
        "as_published": published,
        "cells": [
            {
                "task": cell.task,
                "model": cell.model,
                "examples": dict(cell.examples),
                "accuracy": cell.competence.top,
                "beats": cell.competence.beats,
            }
            for cell in study.cells
        ],
        "verdicts": told,
        "entries": records(tables, bool(published)),
    }
    words = "".join(f"As published: {text}.\n\n" for text in (published or {}).values())
    words += "".join(f"- {_page(competence(cell))}\n" for cell in about["cells"]) + "\n"
    remarks = "".join(f"% As published: {text}.\n" for text in (published or {}).values())
    texts = {
        "tables.md": words + markdown(tables, told),
        "tables.csv": csv_text(about["entries"]),
        "tables.tex": remarks + latex(tables),
        "curves.csv": csv_text(curve_records(study)),
    }
    for name, text in texts.items():
        write_text(folder / name, text)
    write_json(folder / "tables.json", about)
    with drawing():
        image = rendered(_figure(study), "png", dpi=90)
    write_bytes(folder / "figure.png", image)
    write_study_readme(folder, study.plan)  # last: it names every file
    return about


def competence(cell: Mapping[str, Any]) -> str:
    """How well a model does a task, and on how many examples, in a sentence."""
    counts = ", ".join(f"{number} of {split}" for split, number in cell["examples"].items())
    poor = cell["beats"] < LOW_ACCURACY
    return (
        f"{short(cell['task'])}, {short(cell['model'])}: examples {counts}; on test the model's top answer is right in "
        f"{cell['accuracy']:.0%}, the correct answer beats the incorrect one in {cell['beats']:.0%}"
        f"{': it hardly does this task, so a circuit may mean nothing' * poor}."
    )


def terminal(table: StudyTable, width: int) -> list[Table]:
    """A table for a terminal of some width, without its caption; several tables, below each other, if there are too
    many columns. The intervals of areas are in the files."""
    labels = max(shown(row.label).cell_len for row in table.rows)
    heads = [shown(f"{one_line(short(task))}\n{one_line(short(model))}") for task, model in table.columns]
    cells = [[_styled(table, row, column) for column in range(len(table.columns))] for row in table.rows]
    widest = max(line.cell_len for cell in (*heads, *chain(*cells)) for line in cell.split("\n", allow_blank=True))
    room = max(1, (width - labels - 4) // (widest + 3))
    found = []
    for start in range(0, len(table.columns), room):
        part = Table()
        part.add_column("method", no_wrap=True)
        for head in heads[start : start + room]:
            part.add_column(head, justify="right", no_wrap=True)
        for row, found_cells, following in zip(table.rows, cells, (*table.rows[1:], None), strict=True):
            ends = following is not None and following.rule
            part.add_row(shown(row.label), *found_cells[start : start + room], end_section=ends)
        found.append(part)
    return found


def _styled(table: StudyTable, row: TableRow, column: int) -> Text:
    entry = row.entries[column]
    if entry is None:
        return Text()
    number = _marked(table, row, column, "[bold]{}[/]", "[underline]{}[/]")
    details = _details(entry, " ±{}", " ({}, {})" if table.is_difference else "")
    chosen = entry.note.replace(" (", "\n(") if table.name == "main" else ""
    return Text.from_markup(number) + shown("".join(details) + (f"\n{chosen}" if chosen else ""))


def markdown(tables: Sequence[StudyTable], verdicts: Sequence[dict[str, Any]]) -> str:
    """All tables as one page, without a heading of its own."""
    parts = [LEGEND, "", *(f"- {_page(sentence(verdict))}" for verdict in verdicts)]
    for table in tables:
        parts += ["", f"**{_page(table.caption)}**", "", *_markdown_rows(table)]
    return "\n".join(parts) + "\n"


def _markdown_rows(table: StudyTable) -> list[str]:
    heads = " | ".join(_page(f"{short(task)}, {short(model)}") for task, model in table.columns)
    lines = [f"| method | {heads} |", "|---" + "|---:" * len(table.columns) + "|"]
    for row in table.rows:
        cells = [_markdown_cell(table, row, column) for column in range(len(table.columns))]
        lines.append(f"| {_page(row.label)} | {' | '.join(cells)} |")
    return lines


def _page(text: str) -> str:
    """Text for a Markdown page, where a bar would end a cell and < begin HTML."""
    return one_line(text).replace("<", "&lt;").replace("|", r"\|")


def _markdown_cell(table: StudyTable, row: TableRow, column: int) -> str:
    entry = row.entries[column]
    if entry is None:
        return ""
    text = _marked(table, row, column, "**{}**", "<ins>{}</ins>")
    return " ".join([text, *_details(entry, "±{}", "[{}, {}]"), *([f"<br>{_page(entry.note)}"] if entry.note else [])])


def _marked(table: StudyTable, row: TableRow, column: int, bold: str, underlined: str) -> str:
    """A number, inside the formats for bold and underlined where it is."""
    entry = row.entries[column]
    assert entry is not None
    text = f"{entry.value:+.{DIGITS}f}" if table.is_difference else f"{entry.value:.{DIGITS}f}"
    is_bold, is_underlined = table.marks(row, column)
    text = underlined.format(text) if is_underlined else text
    return bold.format(text) if is_bold else text


def _details(entry: Entry, spread: str, interval: str) -> list[str]:
    parts = []
    if entry.spread is not None:
        parts.append(spread.format(f"{entry.spread:.{DIGITS}f}"))
    if interval and entry.low is not None and entry.high is not None:
        parts.append(interval.format(f"{entry.low:.{DIGITS}f}", f"{entry.high:.{DIGITS}f}"))
    return parts


def sentence(verdict: Mapping[str, Any]) -> str:
    """What was chosen on validation, and how it did on test."""
    chosen = verdict["chosen"] + (f" ({verdict['parameters']})" if verdict["parameters"] else "")
    return (
        f"{short(verdict['task'])}, {short(verdict['model'])}, {verdict['benchmark']}: validation chose {chosen}; "
        f"on test {verdict['test']:.4f} against greedy's {verdict['greedy']:.4f}, a difference of "
        f"{verdict['difference']:+.4f} [{verdict['low']:+.4f}, {verdict['high']:+.4f}], p {verdict['p']:.3f}: "
        f"{verdict['verdict']}."
    )


def csv_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """Records of the same keys as CSV."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def records(tables: Sequence[StudyTable], as_published: bool = False) -> list[dict[str, Any]]:
    """All entries of all tables as plain data."""
    found = []
    for table in tables:
        for row in table.rows:
            for column, ((task, model), entry) in enumerate(zip(table.columns, row.entries, strict=True)):
                if entry is not None:
                    bold, underlined = table.marks(row, column)
                    about = {"table": table.name, "benchmark": row.about, "method": row.label}
                    how = {"faithfulness": table.faithfulness, "as_published": as_published}
                    marks = {"bold": bold, "underlined": underlined}
                    found.append(about | {"task": task, "model": model} | entry.record() | marks | how)
    return found


def curve_records(study: Study) -> list[dict[str, Any]]:
    """Every curve on test as plain data, a record per method, seed and size."""
    return [
        {"task": cell.task, "model": cell.model, "benchmark": benchmark.name, "method": one.recipe.name,
         "parameters": one.recipe.words, "seed": seed, **size}
        for cell in study.cells for benchmark, repeats in cell.test.items() for one in repeats
        for seed, curve in enumerate(one.curves) for size in curve.rows()
    ]  # fmt: skip


def latex(tables: Sequence[StudyTable]) -> str:
    r"""All tables for \usepackage{booktabs}, columns grouped by task as in the paper."""
    return "\n".join(_latex_table(table) for table in tables)


def _latex_table(table: StudyTable) -> str:
    groups = [(task, len(list(same))) for task, same in groupby(table.columns, key=lambda column: column[0])]
    heads, rules, first = [], [], 2
    for task, width in groups:
        heads.append(rf"\multicolumn{{{width}}}{{c}}{{{_escape(short(task))}}}")
        rules.append(rf"\cmidrule(lr){{{first}-{first + width - 1}}}")
        first += width
    lines = [
        r"\begin{table*}[t]",
        r"    \centering",
        rf"    \begin{{tabular}}{{l{'r' * len(table.columns)}}}",
        r"    \toprule",
        f"    & {' & '.join(heads)} \\\\{''.join(rules)}",
        rf"    \textbf{{Method}} & {' & '.join(_escape(short(model)) for _, model in table.columns)} \\",
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
    entry = row.entries[column]
    if entry is None:
        return ""
    details = " ".join(_details(entry, r"$\pm${}", r"[{}, {}]"))
    text = _marked(table, row, column, r"\textbf{{{}}}", r"\underline{{{}}}")
    return text + (rf" {{\scriptsize {details}}}" if details else "")


def _escape(text: str) -> str:
    special = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    marks = special | {mark: rf"\{mark}" for mark in "&%_#${}"}
    return "".join(marks.get(mark, mark) for mark in one_line(text))


def _figure(study: Study) -> Figure:
    """Faithfulness of greedy and of the chosen method on test, per metric and column: mean and range over seeds."""
    columns = len(study.cells)
    figure = Figure(figsize=(3.4 * columns + 0.6, 5.4), layout="constrained")
    axes = figure.subplots(2, columns, squeeze=False, sharex=True)
    for row, benchmark in enumerate(BOTH):
        for axis, cell in zip(axes[row], study.cells, strict=True):
            _draw(axis, cell, benchmark)
        definition = drawn(study.plan.settings.faithfulness.name)
        axes[row][0].set_ylabel(f"faithfulness ({definition})", fontsize=8, parse_math=False)
    for axis in axes[-1]:
        axis.set_xlabel("edges asked for, share of all", fontsize=8)
    return figure


def _draw(axis: Axes, cell: Cell, benchmark: Benchmark) -> None:
    chosen = cell.chosen(benchmark)
    compared = {GREEDY.name: cell.test[benchmark][0], chosen.name: cell.on_test(benchmark, chosen)}
    axis.axhline(1, color="#111827", linewidth=0.8)
    lines: list[Line2D] = []
    for (name, repeats), colour in zip(compared.items(), ("#6b7280", "#2563eb"), strict=False):
        heights = [curve.faithfulness for curve in repeats.curves]
        points = [
            (share, sum(ys) / len(ys), min(ys), max(ys))
            for share, *ys in zip(repeats.curves[0].shares, *heights, strict=True)
            if share > 0
        ]
        x, mean, low, high = zip(*points, strict=True)
        axis.fill_between(x, low, high, color=colour, alpha=0.2, linewidth=0)
        lines += axis.plot(x, mean, color=colour, marker="o", markersize=2.5, linewidth=1.4,
                           label=f"{drawn(name)}  {repeats.mean:.4f}")  # fmt: skip
    axis.set_xscale("log")
    axis.set_title(f"{drawn(short(cell.task))} · {drawn(short(cell.model))}", fontsize=9, parse_math=False)
    look = {"title": benchmark.name, "title_fontsize": 7, "loc": "lower right"}
    add_legend(axis, lines, fontsize=7, frameon=False, **look)
    axis.spines[["top", "right"]].set_visible(False)
