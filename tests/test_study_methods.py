"""`edgewise study --scorers`: one table of scorers and learners on the same tasks."""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass, replace
from functools import cache
from io import StringIO
from itertools import product
from typing import ClassVar

import numpy as np
import pytest
from commands import refused, run_command
from rich.console import Console

from edgewise import (
    CMD,
    CPR,
    Eap,
    EapIg,
    Graph,
    Greedy,
    Ilp,
    InputError,
    Recipe,
    SelectionProblem,
    Settings,
    TopKLearner,
    discover,
    known_circuit,
    load_model,
    load_task,
    solve,
)
from edgewise.evaluate import compare
from edgewise.learn import LEARNERS
from edgewise.report.methods_table import methods_terminal
from edgewise.runtime.session import Session
from edgewise.score import SCORERS
from edgewise.study import Plan, choose_methods, compare_methods, list_cells, mean_ranks
from edgewise.study.folder import Repeats
from edgewise.study.methods import FullSizeIlp, MethodCell, MethodComparison, MethodRow
from edgewise.tasks import METRICS, LogitDifference

MODEL = "known/induction"
WORDS = ("study", "--scorers", "eap,learned", "--learn-steps", "3", "--model", MODEL, "--seeds", "2", "--examples", "8")
QUIET = Session(progress=lambda *_: None)
FILES = {"methods.md", "methods.csv", "methods.json", "figure.png", "figure.svg"}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The folder and the JSON of a comparison. Tests must not change it."""
    folder = tmp_path_factory.mktemp("methods") / "methods"
    code, out, err = run_command(*WORDS, "--out", folder, "--json")
    assert code == 0, err
    return folder, json.loads(out)


@pytest.fixture(scope="module")
def compared():
    """The rows of a comparison of EAP with the baselines, of one seed."""
    plan = Plan(MODEL, MODEL, seeds=1, examples=8)
    return compare_methods(plan, ["eap"], session=QUIET).cells[0].rows


@cache
def by_hand(method, seed):
    """What `discover` finds for a scorer or a learner, with the examples of a seed."""
    model = load_model(MODEL)
    train, test = (load_task(MODEL, model, split, 8, seed) for split in ("train", "test"))
    settings = Settings(scorer=EapIg())
    if isinstance(method, TopKLearner):
        learners = {measure: replace(method, measure=measure, seed=seed) for measure in (CMD, CPR)}
    else:
        settings, learners = replace(settings, scorer=method), dict.fromkeys((CMD, CPR))
    recipes = [(measure, Recipe(FullSizeIlp(), learner=learners[measure])) for measure in (CMD, CPR)]
    return discover(model, train, test, settings, recipes, attention=0, session=QUIET)


def brute_force_auroc(score, inside):
    """The chance that a true edge scores higher than another one, pair by pair."""
    pairs = list(product(score[inside], score[~inside]))
    return sum((a > b) + (a == b) / 2 for a, b in pairs) / len(pairs)


@pytest.mark.parametrize("name, method", [("eap-ig", EapIg()), ("eap", Eap()), ("learned", TopKLearner(steps=3))])
def test_numbers_of_the_table_are_those_of_discover(finished, name, method):
    row = next(row for row in finished[1]["rows"] if row["method"] == name)
    results, truth = [by_hand(method, seed) for seed in range(2)], known_circuit(MODEL).mask
    for measure in (CMD, CPR):
        areas = [result.of(measure)[0].area for result in results]
        assert row[measure.name] == pytest.approx(np.mean(areas), abs=1e-6)
        assert row[f"{measure.name} spread"] == pytest.approx(np.std(areas, ddof=1), abs=1e-6)
    values = [np.abs(result.of(CMD)[0].rankings[0].value) for result in results]
    assert row["AUROC"] == pytest.approx(np.mean([brute_force_auroc(value, truth) for value in values]), abs=1e-9)
    best = [np.argsort(-value)[: truth.sum()] for value in values]
    assert row["precision"] == pytest.approx(np.mean([truth[edges].mean() for edges in best]), abs=1e-9)
    assert row["memory"] > 0 and row["seconds per example"] > 0


def test_differences_are_paired_with_eap_ig(finished, compared):
    row = next(row for row in finished[1]["rows"] if row["method"] == "eap")
    one, other = by_hand(Eap(), 0), by_hand(EapIg(), 0)
    for measure in (CMD, CPR):
        expected = compare(one.of(measure)[0].curve, other.of(measure)[0].curve, measure)
        areas = {row.name: row.repeats[measure].resampled for row in compared}
        assert areas["eap"].minus(areas["eap-ig"]).record() == pytest.approx(expected.record(), abs=1e-6)
        assert row[f"{measure.name} verdict"] in ("better", "worse", "no significant difference")
    baseline = next(row for row in finished[1]["rows"] if row["method"] == "eap-ig")
    assert baseline["CMD difference"] is None and baseline["CMD verdict"] is None


def test_random_is_last_and_differs_between_seeds(finished):
    folder, content = finished
    assert [row["method"] for row in content["rows"]] == ["eap-ig", "eap", "learned", "random"]
    random = content["rows"][-1]
    assert random["seconds per example"] == random["memory"] == 0 and random["CMD spread"] > 0
    assert random["CMD verdict"] == "worse" and 0.3 < random["AUROC"] < 0.7
    assert {path.name for path in folder.iterdir()} == FILES
    with (folder / "methods.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [float(row["CPR"]) for row in rows] == [row["CPR"] for row in content["rows"]]


def test_circuits_of_all_methods_have_equal_sizes(compared):
    for measure in (CMD, CPR):
        curves = [row.repeats[measure].curves[0] for row in compared]
        assert {curve.n_requested for curve in curves} == {curve.n_kept for curve in curves} and len(curves) == 3


def test_the_solver_uses_its_whole_budget_for_the_largest_total_value():
    graph = Graph(2, 2, 4)
    for seed in range(20):
        value = np.random.default_rng(seed).normal(-0.5, 1, graph.n_edges)
        for budget in (5, graph.n_edges // 2, graph.n_edges - 2):
            problem = SelectionProblem.build(graph, value, "signed", budget)
            selection, greedy = solve(problem, solver=FullSizeIlp()), solve(problem, solver=Greedy(), fill=True)
            assert selection.n_kept == budget and selection.bound >= selection.objective - 1e-9
            if greedy.n_kept == budget:
                assert selection.objective >= greedy.objective - 1e-9
            positive = SelectionProblem.build(graph, np.abs(value), "absolute", budget)
            assert solve(positive, solver=FullSizeIlp()).circuit == solve(positive, solver=Ilp()).circuit


def test_a_stopped_comparison_resumes_with_the_same_numbers(edgewise, finished, tmp_path, monkeypatch):
    folder = tmp_path / "methods"
    calls = []

    def stop_later(*arguments, **options):
        calls.append(arguments)
        if len(calls) == 5:
            raise KeyboardInterrupt
        return discover(*arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr("edgewise.study.methods.discover", stop_later)
        assert edgewise(*WORDS, "--out", folder)[0] == 130
    assert not folder.exists() and (tmp_path / ".methods.partial").is_dir()
    scored = []
    monkeypatch.setattr(Eap, "score", lambda *_: scored.append(1))
    monkeypatch.setattr("edgewise.study.methods.WARM_UP_EXAMPLES", 1)
    code, out, err = edgewise(*WORDS, "--out", folder, "--json")
    # EAP's second draw of examples was scored when the command was stopped in the call after it.
    assert code == 0 and not scored, err
    times = ("seconds per example",)
    for row, expected in zip(json.loads(out)["rows"], finished[1]["rows"], strict=True):
        assert {k: v for k, v in row.items() if k not in times} == {k: v for k, v in expected.items() if k not in times}
    assert not (tmp_path / ".methods.partial").exists()


def test_a_finished_comparison_is_only_replaced_with_overwrite(edgewise, tmp_path):
    words = (*"study --scorers eap --seeds 1 --examples 4 --model".split(), MODEL, "--out", tmp_path / "out")
    code, table, _ = edgewise(*words)
    assert code == 0
    before = (tmp_path / "out" / "methods.json").read_bytes()
    code, out, err = edgewise(*words)  # the same command shows the result
    assert (code, out) == (0, table) and "nothing is computed again" in err
    assert (tmp_path / "out" / "methods.json").read_bytes() == before
    message = refused(edgewise, *words, "--ablation", "zero")
    assert "made from other inputs" in message and "ablation" in message and "--overwrite" in message
    assert edgewise(*words, "--overwrite")[0] == 0
    record = json.loads(before)
    (tmp_path / "out" / "methods.json").write_text(json.dumps(record | {"rows": [{}]}))
    assert "methods.json can't be read" in refused(edgewise, *words)
    (tmp_path / "out" / "notes.txt").write_text("mine")
    assert "notes.txt" in refused(edgewise, *words, "--overwrite")


def test_the_terminal_has_one_table_and_a_legend(edgewise, tmp_path):
    models = ("--model", f"demo,{MODEL}", "--task", f"ioi,{MODEL}")
    words = ("study", "--scorers", "eap", *models, "--seeds", "1", "--examples", "4", "--out", tmp_path / "out")
    code, out, _ = edgewise(*words)
    assert code == 0 and out.count("  random") >= 2
    legend = ("AUROC", "s/example", "mean rank for CMD over 2 cells", "no significant difference")
    assert all(text in out for text in ("ioi, demo", MODEL, *legend))
    content = json.loads((tmp_path / "out" / "methods.json").read_text())
    assert [row["AUROC"] is None for row in content["rows"]] == [True] * 3 + [False] * 3


@pytest.mark.parametrize("width", [60, 80, 120])
def test_names_of_methods_are_not_folded(width):
    """With seeds, marks and a known circuit, the columns that don't fit are below the others."""
    names = ["information-flow-routes", "eap-ig"]
    numbers = {"seconds per example": 0.001, "memory": 1e6, "AUROC": 0.5, "precision": 0.5}
    for measure in ("CPR", "CMD"):
        numbers |= {measure: 0.1234, f"{measure} spread": 0.01, f"{measure} best": False, f"{measure} verdict": "worse"}
    cell = {"model": "demo", "task": "ioi", "true_edges": 3}
    content = {"cells": [cell], "rows": [{"model": "demo", "task": "ioi", "method": name} | numbers for name in names]}
    text = StringIO()
    for table in methods_terminal(content, width):
        Console(file=text, width=width).print(table)
    lines = text.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    heads = " ".join(line for line in lines if line.startswith("method")).split()
    assert [head for head in heads if head != "method"] == ["CPR", "CMD", "s/example", "memory", "AUROC", "precision"]
    for name in names:
        assert sum(line.startswith(f"  {name} ") for line in lines) == heads.count("method")


def test_known_models_go_with_their_own_task_only():
    plan = Plan(("demo", "known/ioi"), ("ioi", "mcqa", "known/ioi"))
    assert list_cells(plan) == [("demo", "ioi"), ("demo", "mcqa"), ("known/ioi", "known/ioi")]
    assert list_cells(Plan("my-model", ("known/ioi",))) == [("my-model", "known/ioi")]


def test_all_has_every_scorer_that_metric_and_graph_allow():
    settings = Settings(metric=LogitDifference())
    names = [method.name for method in choose_methods(["all"], settings, 10)[0]]
    assert names == [*SCORERS, "random"]
    large, left_out = choose_methods(["all"], settings, 10**6)
    assert {method.name for method in large} | set(left_out) == {*SCORERS, "random"}
    assert set(left_out) == {"exact"} & set(SCORERS)
    flat, reasons = choose_methods(["all"], Settings(metric=METRICS["kl"]()), 10)
    assert "eap" in reasons and "eap" not in [method.name for method in flat]
    of_pairs, reasons = choose_methods(["all"], replace(settings, positions=True), 10)
    assert set(reasons) == {name for name, kind in SCORERS.items() if not kind.by_span}
    assert {method.name for method in of_pairs} == {*SCORERS, "random"} - set(reasons)
    _, reasons = choose_methods(["all"], replace(settings, level="neuron"), 10)
    assert set(reasons) == {name for name, kind in SCORERS.items() if "neuron" not in kind.levels}
    every, _ = choose_methods(["all", *LEARNERS, "all"], settings, 10, {"steps": 3}, {"steps": 4})
    steps = {method.name: method.steps for method in every if hasattr(method, "steps")}
    assert steps["eap-ig"] == 3 and steps["learned"] == 4 and len({m.name for m in every}) == len(every)


def test_a_custom_scorer_is_compared():
    @dataclass(frozen=True)
    class Mine(Eap):
        name: ClassVar[str] = "mine"

    plan = Plan(MODEL, MODEL, seeds=1, examples=4)
    rows = compare_methods(plan, [Mine(), "eap"], session=QUIET).cells[0].rows
    areas = {row.name: row.repeats[CMD].mean for row in rows}
    assert list(areas) == ["eap-ig", "mine", "eap", "random"] and areas["mine"] == areas["eap"]


@dataclass(frozen=True)
class FixedRepeats(Repeats):
    """Repeats of a given mean."""

    value: float = 0.0

    @property
    def mean(self):
        return self.value


def cell_of(**areas):
    rows = [
        MethodRow(name, {m: FixedRepeats(m, Recipe(), (), (), value) for m in (CMD, CPR)}, 1.0, 1)
        for name, value in areas.items()
    ]
    return MethodCell("m", "t", 10, {}, tuple(rows), {})


def test_mean_ranks():
    cells = [cell_of(a=0.1, b=0.3, c=0.3), cell_of(a=0.2, b=0.1, c=0.4, extra=0.0), cell_of(a=0.1, b=0.2, c=0.3)]
    comparison = MethodComparison(Plan(), tuple(cells))
    cmd = {rank.method: rank for rank in mean_ranks(comparison, CMD)}
    # Ties share their places; a method that isn't in all cells has no rank.
    assert {name: rank.mean for name, rank in cmd.items()} == pytest.approx({"a": 4 / 3, "b": 5.5 / 3, "c": 8.5 / 3})
    assert (cmd["a"].low, cmd["a"].high) == (1, 2) and (cmd["c"].low, cmd["c"].high) == (2.5, 3)
    cpr = {rank.method: rank.mean for rank in mean_ranks(comparison, CPR)}
    assert cpr == pytest.approx({name: 4 - rank.mean for name, rank in cmd.items()})


@pytest.mark.parametrize(
    "words, message",
    [
        (("--scorers", "magic"), "'magic'"),
        (("--scorers", "eap", "--metric", "accuracy"), "no gradient"),
        (("--scorers", "all", "--metric", "accuracy"), "no gradient"),
        (("--scorers", "eap", "--metric", "kl"), "no slope"),
        (("--scorers", "eap", "--truth", "known/ioi"), "is a circuit of"),
        (("--scorers", "eap", "--truth", "missing.json"), "missing.json"),
        (("--truth", "known/induction"), "needs --scorers"),
        (("--scorers", "eap", "--pnr-grid", ".5"), "--pnr-grid would have no effect"),
        (("--scorers", "eap", "--learned"), "--learned would have no effect"),
        (("--scorers", "eap", "--learn-steps", "3"), "nothing would be learned"),
        (("--scorers", "exact", "--positions"), "can't score positions"),
        (("--scorers", "eap", "--positions", "--truth", "known/ioi"), "one of --truth and --positions"),
        (("--positions", "--level", "node"), "one of --positions and --level node"),
    ],
)
def test_bad_input_is_refused_and_nothing_is_written(edgewise, tmp_path, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    assert message in refused(edgewise, "study", "--model", MODEL, "--examples", "4", *words)
    assert list(tmp_path.iterdir()) == []


def test_truth_without_a_value_is_that_of_the_model(edgewise, tmp_path):
    words = ("study", "--scorers", "eap", "--model", MODEL, "--examples", 4, "--seeds", 1, "--json")
    own, given = (json.loads(edgewise(*words, *more)[1]) for more in (
        ("--out", tmp_path / "a", "--truth"), ("--out", tmp_path / "b", "--truth", MODEL)
    ))  # fmt: skip
    assert own["cells"][0]["true_edges"] == given["cells"][0]["true_edges"] > 0


def test_truth_may_be_a_file(tmp_path):
    known_circuit(MODEL).save(tmp_path / "truth.json")
    plan = Plan(MODEL, MODEL, seeds=1, examples=4)
    cells = [compare_methods(plan, [], truth, session=QUIET).cells[0] for truth in (None, tmp_path / "truth.json")]
    assert [row.aurocs for row in cells[0].rows] == [row.aurocs for row in cells[1].rows]
    assert [row.precisions for row in cells[0].rows] == [row.precisions for row in cells[1].rows]
    assert cells[0].n_true == cells[1].n_true == known_circuit(MODEL).n_edges


@pytest.mark.parametrize("options, unit", [({"positions": True}, "pair"), ({"level": "node"}, "node")])
def test_methods_are_compared_on_all_kinds_of_circuits(options, unit):
    plan = Plan("demo", "ioi", seeds=1, examples=4, settings=Settings(**options))
    cell = compare_methods(plan, ["eap"], session=QUIET).cells[0]
    model = load_model("demo", device="cpu")
    graph = plan.settings.graph(model.graph, load_task("ioi", model, "train", 4))
    assert unit in graph.unit and cell.n_edges == graph.n_edges and cell.n_true is None
    sizes = [int(size * graph.n_edges) for size in plan.settings.sizes]
    for row in cell.rows:
        assert list(row.repeats[CMD].curves[0].n_kept) == sizes and not row.aurocs
        assert np.isfinite(row.repeats[CMD].mean) and (row.memory > 0 or row.name == "random")


def test_unknown_objects_raise():
    with pytest.raises(InputError, match="scorer or learner"):
        choose_methods(["nothing"], Settings())


def test_a_dry_run_estimates_and_writes_nothing(edgewise, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ("study", "--scorers", "eap,learned", "--model", MODEL, "--examples", "4", "--dry-run", "--json")
    code, out, err = edgewise(*words)
    assert code == 0, err
    stages = [stage["name"] for stage in json.loads(out)["forecasts"][0]["stages"]]
    assert stages == ["score", "score", "learn", "learn", "evaluate"] and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["report", "figures"])
def test_a_folder_of_scorers_says_where_its_tables_are(edgewise, tmp_path, command):
    (tmp_path / "methods.json").write_text("{}")
    line = refused(edgewise, command, tmp_path)
    assert "made by `edgewise study --scorers`" in line and "methods.md" in line
