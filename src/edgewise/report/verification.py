"""Show the tests of a circuit: tables, a figure, and a page that needs no other file, all from the plain record."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from functools import partial
from html import escape
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from rich.table import Table

from ..errors import InputError
from ..io.atomic import atomic_folder, write_bytes, write_json, write_text
from ..io.records import read_json
from .figures.style import BLUE, GREY, SCREEN, VERMILLION, Page, add_legend, draw_files, new_figure
from .formatting import DIGITS, format_interval, format_number, format_score
from .tables import number_tables

FILE_PATTERN = r"verification\.json|report\.html|random\.(png|svg)|minimal\.json"
RECORD = "verification.json"
TOP_EDGES = 30
MAX_BINS = 30
STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #1a1a1a }
table { border-collapse: collapse; margin: 1rem 0 } th, td { text-align: left; padding: .3rem .8rem .3rem 0;
border-bottom: 1px solid #d4d4d4; vertical-align: top } td.n { text-align: right; font-variant-numeric: tabular-nums }
.passes { color: #00664b } .fails { color: #a03c00 } .few { color: #6b6b6b } img { max-width: 100% }
small { color: #6b6b6b }
"""


# What a failed test says, for a reader who has not read docs/verify.md. Minimality is explained by its list of edges.
NOT_MORE = "which is not significantly more than {quantile:.0%}"
FAILURES = {
    "sufficiency": f"it is closer to the model than {{share:.0%}} of random circuits, {NOT_MORE}",
    "sufficiency, matched": f"it is closer to the model than {{share:.0%}} of matched circuits, {NOT_MORE}",
    "necessity": f"cutting it changes the model more than cutting {{share:.0%}} of random circuits, {NOT_MORE}; "
    "in a small graph, these often share edges with it",
    "necessity, outside": "cutting it changes the model more than cutting {share:.0%} of random circuits without its "
    f"edges, {NOT_MORE}",
    "equivalence": "it beats the model on {share:.0%} of the examples, which is not significantly near one half",
    "independence": "without the circuit, the model's metric still depends on what it was",
    "completeness": f"{{share:.0%}} of the sets of cut nodes change circuit and model alike, {NOT_MORE}",
    "robustness": "it is sufficient under {share:.0%} of the conditions, not under all",
}
CONDITIONS_LEGEND = (
    "a condition passes if the circuit is closer to the model than random circuits, even if its faithfulness is low"
)


def read_verification(folder: Path) -> dict[str, Any] | None:
    """Return the tests of the circuit of a result folder; None if it has none. Raise InputError if they are damaged."""
    path = folder / RECORD
    if not path.is_file():
        return None
    record = read_json(path)
    try:
        verdict_tables(record, 80)
        summary_lines(record)
        summarise_tests(record)
        effects = [float(effect) for kind in ("edge", "node") for effect in dict(record[f"{kind}_effects"]).values()]
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError):
        raise InputError(f"{path} isn't a record of tests; remove it") from None
    if not all(map(isfinite, effects)):
        raise InputError(f"{path} has an effect that isn't finite; remove it")
    return dict(record)


def summarise_tests(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the verdicts of all tests as plain data, without the numbers per edge."""
    columns = ("name", "statistic", "p", "verdict", "advice")
    tests = [{column: test[column] for column in columns} for test in record["tests"]]
    return {name: record[name] for name in ("circuit", "edges", "examples", "superfluous")} | {"tests": tests}


def format_p(p: float) -> str:
    """Return a p-value with two digits."""
    return f"{p:.2g}" if p >= 1e-4 else f"{p:.0e}"


def verdict_tables(record: Mapping[str, Any], width: int) -> list[Table]:
    """Return the table of all tests: statistic, p-value and verdict."""
    rows = [
        (test["name"], format_number(test["statistic"], digits=3), format_p(test["p"]), test["verdict"])
        for test in record["tests"]
    ]
    return number_tables(("test", "statistic", "p", "verdict"), rows, width, left=(3,))


def condition_tables(record: Mapping[str, Any], width: int) -> list[Table]:
    """Return the table of the conditions of robustness; none if it was not tested."""
    rows = _condition_rows(record, digits=3)
    heads = ("robustness", "faithfulness", "beats", "p", "verdict")
    return number_tables(heads, rows, width, left=(4,)) if rows else []


def summary_lines(record: Mapping[str, Any]) -> list[str]:
    """Return what the tests say in sentences."""
    circuit, minimal = record["faithfulness"], record["minimal"]
    interval, units = format_interval(circuit["low"], circuit["high"]), record.get("units", "edges")
    lines = [
        f"{record['edges']:,} of {record['of']:,} {units}, faithfulness {format_number(circuit['estimate'])} "
        f"{interval}, {record['examples']:,} examples of {record['task']} ({record['split']}), {record['ablation']}"
    ]
    for test in record["tests"]:
        failure = FAILURES.get(test["name"], "") if test["verdict"] == "fails" else ""
        numbers = {"share": test["statistic"], "quantile": record["settings"]["quantile"]}
        if text := test["advice"] or failure.format(**numbers):
            lines.append(f"{test['name']}: {text}")
    if record["superfluous"]:
        shown = ", ".join(record["superfluous"][:TOP_EDGES])
        more = len(record["superfluous"]) - TOP_EDGES
        lines.append(f"superfluous {units}: {shown}" + (f" and {more} more" if more > 0 else ""))
        estimate = minimal["faithfulness"]["estimate"]
        lines.append(f"without them: {minimal['edges']:,} {units}, faithfulness {format_number(estimate)}")
    return lines


def verification_page(record: Mapping[str, Any], circuit: str) -> str:
    """Return the page of a verification as HTML, with its figure inside."""
    png = draw_files({"random": partial(random_figure, record)}, file_types=("png",))["random.png"]
    image = base64.b64encode(png).decode("ascii")
    settings = record["settings"]
    tests = [
        (
            test["name"], test["null"], f"{test['measured']}: {format_number(test['statistic'], digits=3)}",
            format_p(test["p"]), test["verdict"] + (f": {test['advice']}" if test["advice"] else ""),
        )
        for test in record["tests"]
    ]  # fmt: skip
    edges = _details(record, "minimality", "edges")
    effects = record["edge_effects"]
    edge_rows = [
        (row["edge"], format_score(effects[row["edge"]]), format_number(row["share"], digits=2), format_p(row["p"]),
         "superfluous" if row["superfluous"] else "")
        for row in sorted(edges, key=lambda row: -abs(effects[row["edge"]]))
    ]  # fmt: skip
    conditions = _condition_rows(record, DIGITS)
    nodes = sorted(record["node_effects"].items(), key=lambda item: -abs(item[1]))
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>",
        f"<title>Tests of a circuit</title><style>{STYLE}</style>",
        f"<h1>Tests of {escape(circuit)}</h1>",
        *(f"<p>{escape(line)}</p>" for line in summary_lines(record)),
        f"<p><small>Model {escape(record['model'])}, metric {escape(record['metric'])}, "
        f"{settings['n_circuits']} random circuits, quantile {settings['quantile']:g}, significance level "
        f"{settings['alpha']:g}, seed {settings['seed']}.</small></p>",
        "<h2>Tests</h2>",
        _html_table(("test", "null hypothesis", "statistic", "p", "verdict"), tests),
        "<p><small>Sufficiency, necessity, equivalence, completeness and robustness pass if the null hypothesis is "
        "rejected. Minimality passes if no edge, and independence if nothing, is rejected. P-values of robustness are "
        "corrected by Holm's method.</small></p>",
        "<h2>Random circuits</h2>",
        f"<p><img alt='Faithfulness of the circuit and of random circuits' src='data:image/png;base64,{image}'></p>",
    ]
    if conditions:
        parts += [f"<h2>Robustness</h2><p>{CONDITIONS_LEGEND.capitalize()}.</p>"]
        parts += [_html_table(("condition", "faithfulness", "beats", "p", ""), conditions)]
    if edge_rows:
        heads = ("edge", "faithfulness lost", "exceeds random", "p", "")
        parts += ["<h2>Edges, cut from the circuit one at a time</h2>", _html_table(heads, edge_rows)]
    if nodes:
        node_rows = [(name, format_score(effect)) for name, effect in nodes]
        parts += ["<h2>Nodes, cut from the circuit</h2>", _html_table(("node", "faithfulness lost"), node_rows)]
    return "\n".join(parts) + "</html>\n"


def random_figure(record: Mapping[str, Any], page: Page = SCREEN) -> Figure:
    """Draw how often random circuits have which faithfulness, and a line at the circuit's own."""
    caption = (
        f"Random circuits of {record['edges']:,} {record.get('units', 'edges')} are unions of random paths. Matched "
        "ones are copies of the circuit with other heads of the same layers."
    )
    figure = new_figure(2.6, "Faithfulness of the circuit and of random circuits", caption, page)
    (part,) = figure.subfigures(1, 1, squeeze=False)[0]
    axes = part.subplots()
    groups = [
        (name, np.array(record[key]), colour)
        for name, key, colour in (("random", "random", GREY), ("matched", "matched", BLUE))
        if record[key]
    ]
    own = record["faithfulness"]
    values = np.concatenate([np.array([own["low"], own["high"], 0.0, 1.0]), *(values for _, values, _ in groups)])
    bins = np.linspace(values.min(), values.max(), MAX_BINS + 1)
    handles: list[Artist] = []
    labels: list[str] = []
    for name, group, colour in groups:
        axes.hist(group, bins=bins.tolist(), color=colour, alpha=0.6)
        handles.append(Patch(color=colour, alpha=0.6))
        labels.append(f"{name} ({len(group)})")
    line = axes.axvline(own["estimate"], color=VERMILLION, linewidth=1.6)
    axes.axvspan(own["low"], own["high"], color=VERMILLION, alpha=0.15, linewidth=0)
    handles.append(line)
    labels.append("this circuit, with its interval")
    axes.set_xlabel("faithfulness (0: empty circuit, 1: model)")
    axes.set_ylabel("circuits")
    add_legend(part, handles, labels, page)
    return figure


def write_verification(folder: Path, record: Mapping[str, Any], circuit: str, overwrite: bool = False) -> None:
    """Write the record, the page and the figure into a folder, atomically."""
    with atomic_folder(folder, overwrite, FILE_PATTERN) as draft:
        write_json(draft / RECORD, record)
        write_text(draft / "report.html", verification_page(record, circuit))
        for name, data in draw_files({"random": partial(random_figure, record)}).items():
            write_bytes(draft / name, data)


def _condition_rows(record: Mapping[str, Any], digits: int) -> list[tuple[str, ...]]:
    """Return the cells of the conditions of robustness; `digits` are those of faithfulness."""
    # With too few random circuits, no condition can pass.
    verdict = next((test["verdict"] for test in record["tests"] if test["name"] == "robustness"), "")
    unmet = "too few" if verdict == "too few" else "fails"
    return [
        (row["condition"], format_number(row["faithfulness"], digits=digits), format_number(row["share"], digits=2),
         format_p(row["p"]), "passes" if row["passes"] else unmet)
        for row in _details(record, "robustness", "conditions")
    ]  # fmt: skip


def _details(record: Mapping[str, Any], name: str, key: str) -> list[dict[str, Any]]:
    return next((test["details"][key] for test in record["tests"] if test["name"] == name), [])


def _html_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    words = {"passes": "passes", "fails": "fails", "superfluous": "fails", "too few": "few"}

    def cell(text: str) -> str:
        kind = "n" if text[:1] in "+-0123456789" else next((words[w] for w in words if text.startswith(w)), "")
        return f"<td class='{kind}'>{escape(text)}</td>"

    head = "".join(f"<th>{escape(name)}</th>" for name in heads)
    body = "".join(f"<tr>{''.join(map(cell, row))}</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"
