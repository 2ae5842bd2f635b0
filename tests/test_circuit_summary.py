"""Circuit summaries, curves and tables in the terminal, graph exports, comparisons of circuits and runs."""

from __future__ import annotations

import io
import json
import re
import shutil
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from conftest import build, random_task
from hypothesis import example, given, strategies as st
from rich.console import Console

from edgewise import CMD, CPR, Circuit, Graph, InputError, Recipe, Settings, discover
from edgewise.evaluate import MIB, Curve, resample
from edgewise.graph import NodeGraph
from edgewise.models import wrap_model
from edgewise.recipes.discovery import Discovery
from edgewise.recipes.stability import jaccard
from edgewise.report import tables
from edgewise.report.circuit_summary import KINDS, OpenCircuit, circuit_tables, describe, open_circuit
from edgewise.report.comparisons import RecipeAreas, compare_recipes, pair_circuits, pair_exported, pair_runs
from edgewise.report.exports import EXPORTS, export_format, export_text
from edgewise.report.formatting import format_interval, format_number, format_score, with_minus_signs
from edgewise.report.tables import area_table, curve_tables, number_tables
from edgewise.results import read_result, write_run_data
from edgewise.runtime import Session
from edgewise.runtime.progress import ignore_progress

GRAPH = Graph(3, 2, 8)
SIZES = (0.05, 0.3, 1.0)


def random_circuit(seed: int, share: float = 0.3, graph: Graph = GRAPH) -> Circuit:
    return Circuit(graph, np.random.default_rng(seed).random(graph.n_edges) < share)


def random_score(seed: int, graph: Graph = GRAPH) -> np.ndarray:
    return np.random.default_rng(seed + 99).normal(size=graph.n_edges)


def ends(edge: str) -> tuple[str, str, str]:
    """The two nodes of an edge and what it ends in, from its name alone."""
    start, end = edge.split("->")
    node, letter = re.fullmatch(r"([^<]+)(?:<(.)>)?", end).groups()
    return start, node, letter or ("logits" if node == "logits" else "MLP")


def printed(tables: list, width: int) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    for table in tables:
        console.print(table)
    return console.file.getvalue()


@pytest.mark.parametrize("seed", range(5))
def test_a_summary_agrees_with_the_names_of_the_edges(seed):
    circuit, score = random_circuit(seed), random_score(seed)
    summary = describe(circuit, score, top=1000)
    by_name = dict(zip(GRAPH.edge_names, score.tolist(), strict=True))
    assert [edge["name"] for edge in summary["strongest"]] == sorted(
        circuit.edges, key=lambda edge: -abs(by_name[edge])
    )
    assert all(edge["score"] == by_name[edge["name"]] for edge in summary["strongest"])
    kinds = [ends(edge)[2] for edge in circuit.edges]
    assert summary["kinds"] == {kind: kinds.count(kind) for kind in KINDS}
    assert summary["signs"] == {
        "positive": sum(by_name[edge] > 0 for edge in circuit.edges),
        "negative": sum(by_name[edge] < 0 for edge in circuit.edges),
        "zero": 0,
    }
    for node in summary["nodes"]:
        incoming = [edge for edge in circuit.edges if ends(edge)[1] == node["name"]]
        outgoing = [edge for edge in circuit.edges if ends(edge)[0] == node["name"]]
        assert (node["edges_in"], node["edges_out"]) == (len(incoming), len(outgoing))
        assert node["total"] == pytest.approx(sum(abs(by_name[edge]) for edge in incoming + outgoing))
    assert all(one["total"] >= other["total"] for one, other in pairwise(summary["nodes"]))
    names = {node for edge in circuit.edges for node in ends(edge)[:2]} - {"input", "logits"}
    assert {node["name"] for node in summary["nodes"]} == names
    assert (summary["heads"], summary["mlps"]) == (
        sum("h" in name for name in names),
        sum("h" not in name for name in names),
    )
    assert (summary["edges"], summary["of"]) == (circuit.n_edges, GRAPH.n_edges)


def test_a_summary_without_scores_has_the_graphs_order_and_no_signs():
    circuit = random_circuit(1)
    summary = describe(circuit, top=3)
    assert [edge["name"] for edge in summary["strongest"]] == list(circuit.edges[:3]) and summary["signs"] is None
    assert all(edge["score"] is None for edge in summary["strongest"]) and len(summary["nodes"]) == 3
    touched = [node["edges_in"] + node["edges_out"] for node in summary["nodes"]]
    assert touched == sorted(touched, reverse=True) and all(node["total"] is None for node in summary["nodes"])
    assert "total" not in printed(circuit_tables(summary, 80), 80)
    assert describe(circuit, random_score(1), signed=False)["signs"] is None
    assert circuit_tables(describe(Circuit.empty(GRAPH)), 80) == []
    with pytest.raises(InputError, match="at least 1"):
        describe(circuit, top=0)


def test_edges_and_nodes_stand_side_by_side_if_there_is_room():
    summary = describe(random_circuit(1), random_score(1))
    assert len(circuit_tables(summary, 80)) == 1 and len(circuit_tables(summary, 40)) == 2
    for width in (40, 80):
        text = printed(circuit_tables(summary, width), width)
        assert max(map(len, text.splitlines())) <= width
        assert all(edge["name"] in text and format_score(edge["score"]) in text for edge in summary["strongest"])


@given(st.floats(-1e6, 1e6), st.booleans())
@example(-0.00001, False)
@example(-0.00001, True)
def test_no_number_is_a_negative_zero(value, signed):
    text = format_number(value, signed)
    assert not re.match(r"-0\.0+$", text) and float(text) == pytest.approx(value, abs=5.1e-5)
    assert text.startswith(("+", "-")) or not signed
    assert format_interval(value, value) == f"[{format_number(value)}, {format_number(value)}]"


def test_huge_numbers_have_an_exponent_and_differences_a_sign():
    values = [format_number(value, True, 2) for value in (-0.001, 0.001, -0.01, 0.25)]
    assert values == ["+0.00", "+0.00", "-0.01", "+0.25"]
    assert format_number(-1.23456e200) == "-1.235e+200"
    assert with_minus_signs(format_interval(-1, -2, True, 0)) == "[−1, −2]"


def test_the_interval_of_a_difference_shows_whether_it_excludes_zero():
    assert format_interval(2e-5, 0.0011, signed=True) == "[+2e-05, +0.0011]"
    assert format_interval(-0.0006, -4.9e-5, signed=True) == "[-0.0006, -5e-05]"
    assert format_interval(-2e-5, 0.0, signed=True) == "[-2e-05, +0.0000]"
    assert format_interval(-1e-17, 1e-17, signed=True) == "[+0.0000, +0.0000]"
    assert format_interval(2e-5, 0.5) == "[0.0000, 0.5000]"


def test_scores_of_any_magnitude_keep_their_digits():
    values = (19.2573, -0.0000123456, 5.2, 196.4, 0.0, -1234567.0)
    expected = ("+19.3", "-1.23e-05", "+5.20", "+196", "0", "-1.23e+06")
    assert tuple(map(format_score, values)) == expected


@pytest.mark.parametrize("width", [30, 40, 60, 80, 120])
def test_tables_fold_names_and_never_numbers(width):
    rng = np.random.default_rng(0)
    heads = ("method", "CMD", "95% interval", "kept")
    rows = [(f"ILP + Bootstrapping + PNR {n}", format_number(rng.random()),
             format_interval(-rng.random(), rng.random()), n) for n in range(4)]  # fmt: skip
    tables = number_tables(heads, rows, width, "a title")
    text = printed(tables, width)
    assert "…" not in text and max(map(len, text.splitlines())) <= width
    for _, area, bounds, _ in rows:
        assert area in text and bounds in text
    assert "kept" in text and (len(tables) == 1) == (width >= 60)


@pytest.mark.parametrize("width", [24, 40, 60, 80, 200])
def test_a_curve_has_every_value_and_bars_in_proportion(width):
    shares, values = (0.001, 0.01, 0.1, 0.5, 1.0), (-0.25, 0.1, 0.6, 1.125, 1.0)
    text = printed(curve_tables(shares, values, width), width)
    assert text.replace("─", "").isascii()
    assert max(map(len, text.splitlines())) <= width
    assert all(format_number(value, digits=2) in text and f"{100 * share:g} %" in text
               for share, value in zip(shares, values, strict=True))  # fmt: skip
    if width >= 80:
        bars = [line.count("#") for line in text.splitlines() if "%" in line]
        assert bars == [round(max(0, value) / 1.125 * 40) for value in values]
    assert "1.00" in printed(curve_tables((1.0,), (1.0,), width), width)


@pytest.mark.parametrize("scored", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_exported_graphs_have_the_nodes_and_edges_of_the_circuit(seed, scored):
    circuit = random_circuit(seed, 0.5)
    score = random_score(seed) if scored else None
    root = ElementTree.fromstring(export_text("graphml", circuit, score))
    space = "{http://graphml.graphdrawing.org/xmlns}"
    keys = {key.get("id"): key.get("attr.name") for key in root.iter(f"{space}key")}
    page = {edge.get("id"): {keys[data.get("key")]: data.text for data in edge} for edge in root.iter(f"{space}edge")}
    data = json.loads(export_text("cytoscape", circuit, score))
    assert data["directed"] and data["multigraph"]
    edges = {edge["data"]["key"]: edge["data"] for edge in data["elements"]["edges"]}
    dot = export_text("dot", circuit, score)
    listed = re.findall(r'^  "([^"]+)" -> "([^"]+)" \[key="([^"]+)"', dot, re.M)
    assert sorted(key for _, _, key in listed) == sorted(circuit.edges) == sorted(edges) == sorted(page)
    for start, end, key in listed:
        assert (start, end) == ends(key)[:2] == (edges[key]["source"], edges[key]["target"])
        letter = ends(key)[2] if ends(key)[2] in "qkv" else ""
        assert edges[key]["letter"] == letter and (page[key]["letter"] or "") == letter
        if scored:
            value = score[GRAPH.edge_index(key)]
            assert edges[key]["score"] == value == float(page[key]["score"])
            assert edges[key]["sign"] == page[key]["sign"] == ("positive" if value > 0 else "negative")
        else:
            assert "score" not in edges[key] and "score" not in page[key]
    nodes = {node["data"]["id"]: node["data"] for node in data["elements"]["nodes"]}
    assert set(nodes) == {node for start, end, _ in listed for node in (start, end)}
    assert set(nodes) == {node.get("id") for node in root.iter(f"{space}node")}
    for name, about in nodes.items():
        kind, layer, head = about["kind"], about.get("layer"), about.get("head")
        assert name == {"head": f"a{layer}.h{head}", "mlp": f"m{layer}"}.get(kind, kind)


def test_names_in_exported_graphs_are_escaped():
    name = 'a "circuit"\\ <b>&amp;</b> \x00 ]; evil [x="'
    circuit = random_circuit(0)
    graph = ElementTree.fromstring(export_text("graphml", circuit, name=name)).find("{*}graph")
    shown = 'a "circuit"\\ <b>&amp;</b> \\x00 ]; evil [x="'
    assert graph.find("{*}data").text == shown
    assert json.loads(export_text("cytoscape", circuit, name=name))["data"]["name"] == shown
    first = export_text("dot", circuit, name=name).splitlines()[0]
    quoted = re.fullmatch(r'digraph "((?:[^"\\]|\\.)*)" \{', first)
    assert quoted and re.sub(r"\\(.)", r"\1", quoted[1]) == shown


def test_the_export_format_comes_from_its_name_or_the_suffix(tmp_path):
    assert [export_format(name, None) for name in ("DOT", "GraphML", "cytoscape")] == list(EXPORTS)
    for suffix, kind in ((".dot", "dot"), (".graphml", "graphml"), (".cyjs", "cytoscape"), (".JSON", "cytoscape")):
        assert export_format(None, tmp_path / f"x{suffix}") == kind
    assert export_format("dot", tmp_path / "x.json") == "dot"
    for name, path in ((None, None), (None, tmp_path / "x.png"), ("png", None)):
        with pytest.raises(InputError, match="dot, graphml, cytoscape"):
            export_format(name, path)


@pytest.mark.parametrize("seed", range(4))
def test_shared_edges_agree_with_set_operations(seed):
    one, other = (OpenCircuit(str(n), random_circuit(seed + n), random_score(seed + n)) for n in (0, 50))
    pair, back = pair_circuits(one, other, top=1000), pair_circuits(other, one, top=1000)
    here, there = set(one.circuit.edges), set(other.circuit.edges)
    parts = {"shared": here & there, "only_here": here - there, "only_there": there - here}
    for name, part in parts.items():
        assert {edge["name"] for edge in pair["strongest"][name]} == part and pair[name] == len(part)
    assert pair["overlap"] == back["overlap"] == len(here & there) / len(here | there)
    assert back["only_here"] == pair["only_there"]
    assert all(e["score"] == other.score[GRAPH.edge_index(e["name"])] for e in pair["strongest"]["only_there"])
    json.dumps(pair, allow_nan=False)
    with pytest.raises(InputError, match="two graphs"):
        pair_circuits(one, OpenCircuit("x", Circuit.full(Graph(2, 2, 8)), None))


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Result folders: of two draws of train on the same test, of another test, of another graph."""
    folder = tmp_path_factory.mktemp("runs")
    settings, recipes = Settings(sizes=SIZES), {b: [Recipe(), Recipe(alias="Mine")] for b in (CMD, CPR)}
    model, test = wrap_model(build("gpt2"), name="tiny"), random_task(8, seed=1)
    for name, found in {
        "one": (model, random_task(9), test),
        "two": (model, random_task(9, seed=3), test),
        "three": (model, random_task(9), random_task(8, seed=2)),
        "llama": (wrap_model(build("llama"), name="tiny"), random_task(9), test),
    }.items():
        write(folder / name, discover(*found, settings, recipes, session=Session(progress=ignore_progress)))
    chosen = {"validated": {"validation": random_task(6, seed=4)}, "tuned": {"tune_among": recipes}}
    for name, how in chosen.items():
        write(
            folder / name,
            discover(model, random_task(9), test, settings, recipes, session=Session(progress=ignore_progress), **how),
        )
    return folder


def read_circuits(folder: Path):
    """(measure, recipe) -> one circuit per size."""
    return {(outcome.measure, outcome.name): outcome.circuits for outcome in read_result(folder).outcomes}


def write(folder: Path, found: Discovery) -> None:
    """A result folder without figures, which take most of the time."""
    folder.mkdir()
    write_run_data(folder, found)


def test_runs_on_the_same_examples_are_compared_in_pairs(runs):
    same = pair_runs(runs / "one", runs / "one")
    assert same["paired"] and not same["notes"]
    assert all(size["overlap"] == 1 for recipe in same["overlap"] for size in recipe["sizes"])
    assert all(recipe["difference"] == 0 and recipe["p"] == 1 for recipe in same["areas"])
    pair = pair_runs(runs / "one", runs / "two")
    assert pair["paired"] and [(recipe["measure"], recipe["recipe"]) for recipe in pair["overlap"]] == [
        (measure, name) for measure in ("CMD", "CPR") for name in ("Greedy", "Mine")
    ]
    results = [read_result(runs / name) for name in ("one", "two")]
    for overlap, areas in zip(pair["overlap"], pair["areas"], strict=True):
        here, there = (
            next(row for row in result.outcomes if (row.measure.name, row.name) == (areas["measure"], areas["recipe"]))
            for result in results
        )
        assert tuple(size["share"] for size in overlap["sizes"]) == SIZES
        expected = [jaccard(*two) for two in zip(here.circuits, there.circuits, strict=True)]
        assert [size["overlap"] for size in overlap["sizes"]] == expected
        assert (areas["area"], areas["other_area"]) == (here.area, there.area)
        assert areas["difference"] == pytest.approx(here.area - there.area)
    json.dumps(pair, allow_nan=False)


def test_runs_on_other_examples_are_unpaired_and_other_graphs_raise(runs, tmp_path):
    pair = pair_runs(runs / "one", runs / "three")
    assert not pair["paired"] and "other examples" in pair["notes"][0] and pair["areas"]
    # The same areas on examples that are said to be others: resamples of each run are drawn on their own.
    shutil.copytree(runs / "one", tmp_path / "copy")
    run = json.loads((tmp_path / "copy" / "run.json").read_text())
    run["test"]["prompts"] = "0" * 64
    (tmp_path / "copy" / "run.json").write_text(json.dumps(run))
    pair = pair_runs(runs / "one", tmp_path / "copy")
    assert not pair["paired"] and all(recipe["difference"] == 0 for recipe in pair["areas"])
    assert all(recipe["high"] - recipe["low"] > 1e-4 for recipe in pair["areas"])
    with pytest.raises(InputError, match=r"3 layers x 3 heads.*2 layers x 4 heads"):
        pair_runs(runs / "one", runs / "llama")


def test_areas_of_different_metrics_are_not_compared(runs, tmp_path):
    shutil.copytree(runs / "one", tmp_path / "copy")
    run = json.loads((tmp_path / "copy" / "run.json").read_text())
    run["settings"]["metric"] = "kl"
    (tmp_path / "copy" / "run.json").write_text(json.dumps(run))
    pair = pair_runs(runs / "one", tmp_path / "copy")
    assert "differently" in pair["notes"][0] and not pair["areas"]
    assert all(size["overlap"] == 1 for recipe in pair["overlap"] for size in recipe["sizes"])


def test_circuits_of_two_recipes_and_of_two_runs_are_compared_edge_by_edge(runs):
    circuits = {name: read_circuits(runs / name) for name in ("one", "two")}
    for here, there, recipes in (("one", "one", ("mine", "GREEDY")), ("one", "two", (None, None))):
        pair = pair_exported(runs / here, runs / there, "CPR", recipes, top=10_000)
        opened = open_circuit(runs / here, recipes[0], "CPR")
        other = recipes[1] or read_result(runs / there).best(CPR).name
        edges = set(opened.circuit.edges)
        other_edges = set(circuits[there][CPR, other.capitalize()][opened.size_index].edges)
        parts = {"shared": edges & other_edges, "only_here": edges - other_edges, "only_there": other_edges - edges}
        for name, part in parts.items():
            assert {edge["name"] for edge in pair["strongest"][name]} == part and pair[name] == len(part)


def test_a_circuit_of_a_run_is_chosen_by_recipe_measure_and_size(runs):
    circuits, result = read_circuits(runs / "one"), read_result(runs / "one")
    for measure in (CMD, CPR):
        for size, place in (("0.05", 0), ("30%", 1), ("1", 2)):
            opened = open_circuit(runs / "one", "mine", measure.name.lower(), size)
            assert opened.circuit == circuits[measure, "Mine"][place] and not opened.reason
            assert (opened.outcome.measure, opened.outcome.name, opened.size_index) == (measure, "Mine", place)
    usual = open_circuit(runs / "one")
    curve, row = usual.outcome.curve, result.best(result.measures[0])
    assert usual.outcome.name == row.name and usual.reason and curve.shares[usual.size_index] < 1
    reached = [place for place, value in enumerate(curve.faithfulness[:-1]) if abs(value - 1) <= 0.1]
    assert usual.size_index == (reached[0] if reached else 0)
    for name, chosen in (("one", "all"), ("validated", "all"), ("tuned", "all")):
        found = read_result(runs / name)
        assert all(found.best(b).chosen_on == chosen for b in found.measures)
        for file in sorted((runs / name / "circuits").iterdir()):
            metric, size = file.stem.split("-", 1)
            assert open_circuit(runs / name, measure=metric, size=size).circuit == Circuit.load(file)
    for words, expected in (
        ({"recipe": "magic"}, "Greedy, Mine"), ({"measure": "kl"}, "choose one of: CMD, CPR"),
        ({"size": "0.2"}, "0.05, 0.3, 1"), ({"size": "51"}, "takes shares"), ({"size": "nan"}, "takes shares"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=expected):
            open_circuit(runs / "one", **words)


def test_paths_without_a_circuit_raise_an_error_with_advice(runs, tmp_path):
    with pytest.raises(InputError, match="edgewise select"):
        open_circuit(runs / "one" / "scores")
    (tmp_path / "study.json").write_text("{}")
    with pytest.raises(InputError, match="keeps no circuits"):
        open_circuit(tmp_path)
    with pytest.raises(InputError, match="has no circuits"):
        open_circuit(runs)
    with pytest.raises(InputError, match=r"none\.json"):
        open_circuit(tmp_path / "none.json")
    with pytest.raises(InputError, match="choose from a result folder"):
        open_circuit(runs / "one" / "circuits" / "cmd-0.3.npz", size="0.3")


def test_files_without_scores_open_without_scores(tmp_path):
    circuit, score = random_circuit(0), random_score(0)
    circuit.save(tmp_path / "zeros.json")
    circuit.save(tmp_path / "scored.json", score)
    assert open_circuit(tmp_path / "zeros.json").score is None
    opened = open_circuit(tmp_path / "scored.json")
    assert opened.circuit == circuit and (opened.score == score).all() and opened.outcome is None
    data = json.loads((tmp_path / "scored.json").read_text())
    data["edges"][circuit.edges[0]]["score"] = None
    (tmp_path / "some.json").write_text(json.dumps(data))
    assert open_circuit(tmp_path / "some.json").score is None


def test_of_a_folder_of_files_the_largest_circuit_is_opened(tmp_path):
    nodes = NodeGraph(GRAPH)
    circuits = [Circuit(nodes, np.arange(nodes.n_edges) < n_nodes) for n_nodes in (4, 10)]
    for circuit in circuits:
        circuit.save(tmp_path / f"nodes-{circuit.n_edges}.json", np.ones(nodes.n_edges))
    opened = open_circuit(tmp_path, level="edge")
    assert opened.circuit == circuits[1].plain() and "the last of 2 circuits" in opened.name


def test_a_run_of_one_recipe_has_nothing_to_compare():
    area = resample(Curve((0.1, 1.0), (1, 2), (1, 2), np.ones((2, 3)), np.ones(3), np.zeros(3)), CMD)
    group = RecipeAreas("task", "model", CMD, MIB, {"Greedy": area})
    for recipe in (None, "Greedy"):
        with pytest.raises(InputError, match="only one recipe, Greedy"):
            compare_recipes([group], recipe)


def test_kept_shares_are_shown_and_explained_at_the_sizes_of_the_run(runs):
    result = read_result(runs / "one")
    other = replace(result.outcomes[0], curve=replace(result.outcomes[0].curve, shares=(0.1, 0.5, 1.0)))
    for outcome, sizes in ((result.outcomes[0], ""), (other, "at 10, 50 % of all edges")):
        assert ("kept" in printed(area_table([outcome], CMD), 100)) == bool(sizes)
        assert tables.kept_legend([outcome]).endswith(sizes) and bool(tables.kept_legend([outcome])) == bool(sizes)


def test_recipes_that_are_all_equal_are_not_called_best(runs):
    outcome = read_result(runs / "one").of(CMD)[0]
    empty = np.tile(outcome.curve.empty, (len(outcome.curve.shares), 1))
    worse = replace(outcome, curve=replace(outcome.curve, values=empty))
    assert worse.area > outcome.area
    for outcomes, n_best in (([outcome, outcome], 0), ([outcome, outcome, worse], 2), ([outcome], 0)):
        assert printed(area_table(outcomes, CMD), 100).count("best") == n_best


def test_a_size_that_asks_for_no_node_has_no_share_that_was_kept(runs):
    outcome = read_result(runs / "one").outcomes[0]
    curve = replace(outcome.curve, shares=(0.1, 0.5, 1.0), n_requested=(0, 2, 4), n_kept=(0, 1, 4))
    assert "-, 50" in printed(area_table([replace(outcome, curve=curve)], CMD), 100)
