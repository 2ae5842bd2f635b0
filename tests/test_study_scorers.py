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
from edgewise.recipes.run_info import ModelAccuracy
from edgewise.report.figures.curves import costs_figure
from edgewise.report.figures.style import figure_settings
from edgewise.report.study_tables import terminal
from edgewise.runtime.session import Session
from edgewise.score import SCORERS
from edgewise.study import (
    Cell,
    Entry,
    Plan,
    Repeats,
    Study,
    StudyTable,
    TableRow,
    choose_scorers,
    mean_ranks,
    read_study,
    run_study,
)
from edgewise.study.plan import FullSizeIlp
from edgewise.study.run import scorers_for
from edgewise.tasks import METRICS, LogitDifference

MODEL = "known/induction"
WORDS = ("study", "--scorers", "eap,learned", "--learn-steps", "3", "--model", MODEL, "--seeds", "2", "--examples", "8")
QUIET = Session(progress=lambda *_: None)


def run_plan(names, truth=None, examples=4, **settings):
    """The only cell of a study of scorers."""
    scorers, _ = choose_scorers(names, Settings(**settings))
    plan = Plan(
        *(("demo", "ioi") if settings else (MODEL, MODEL)), seeds=1, examples=examples, settings=Settings(**settings),
        scorers=scorers, truth=truth,
    )  # fmt: skip
    return run_study(plan, session=QUIET).cells[0]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The folder of a comparison, and scorer -> number -> entry of its table. Tests must not change it."""
    folder = tmp_path_factory.mktemp("scorers") / "scorers"
    code, out, err = run_command(*WORDS, "--out", folder, "--json")
    assert code == 0, err
    return folder, by_scorer(json.loads(out))


def by_scorer(content):
    rows = {}
    for entry in content["entries"]:
        if entry["table"] == "scorers":
            rows.setdefault(entry["row"], {})[entry["quantity"]] = entry
    return rows


@pytest.fixture(scope="module")
def compared():
    """The cell of a comparison of EAP with the baselines, of one seed."""
    return run_plan(["eap"], examples=8)


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
    row = finished[1][name]
    results, truth = [by_hand(method, seed) for seed in range(2)], known_circuit(MODEL).mask
    for measure in (CMD, CPR):
        areas = [result.of(measure)[0].area for result in results]
        assert row[measure.name]["value"] == pytest.approx(np.mean(areas), abs=1e-6)
        assert row[measure.name]["spread"] == pytest.approx(np.std(areas, ddof=1), abs=1e-6)
    values = [np.abs(result.of(CMD)[0].rankings[0].value) for result in results]
    assert row["AUROC"]["value"] == pytest.approx(
        np.mean([brute_force_auroc(value, truth) for value in values]), abs=1e-9
    )
    best = [np.argsort(-value)[: truth.sum()] for value in values]
    assert row["precision"]["value"] == pytest.approx(np.mean([truth[edges].mean() for edges in best]), abs=1e-9)
    assert row["memory"]["value"] > 0 and row["seconds per example"]["value"] > 0


def test_differences_are_paired_with_eap_ig(finished, compared):
    rows, (one, other) = finished[1], (by_hand(Eap(), 0), by_hand(EapIg(), 0))
    for measure in (CMD, CPR):
        expected = compare(one.of(measure)[0].curve, other.of(measure)[0].curve, measure)
        areas = {name: repeats.resampled for name, repeats in compared.tested(measure).items()}
        assert areas["eap"].minus(areas["eap-ig"]).record() == pytest.approx(expected.record(), abs=1e-6)
        assert rows["eap"][measure.name]["verdict"] in ("better", "worse", "no significant difference")
        assert rows["eap-ig"][measure.name]["verdict"] == ""
    with (finished[0] / "tables.csv").open() as file:
        differences = [row["row"] for row in csv.DictReader(file) if row["table"] == "test-cmd"]
    assert differences == ["eap", "learned", "random"]


def test_random_is_last_and_differs_between_seeds(finished):
    rows = finished[1]
    assert list(rows) == ["eap-ig", "eap", "learned", "random"]
    random = rows["random"]
    assert random["seconds per example"]["value"] == random["memory"]["value"] == 0 and random["CMD"]["spread"] > 0
    assert random["CMD"]["verdict"] == "worse" and 0.3 < random["AUROC"]["value"] < 0.7


def test_a_folder_of_scorers_is_a_study(edgewise, finished, tmp_path):
    folder, rows = finished
    cell = read_study(folder).cells[0]
    assert {name: repeats.mean for name, repeats in cell.tested(CMD).items()} == {
        name: row["CMD"]["value"] for name, row in rows.items()
    }
    assert cell.costs["eap"].seconds == rows["eap"]["seconds per example"]["value"]
    assert by_scorer(json.loads(edgewise("report", folder, "--json")[1])) == rows
    (pair, _) = json.loads(edgewise("compare", folder, "eap", "eap-ig", "--json")[1])
    assert pair["verdict"] == rows["eap"]["CMD"]["verdict"]


def test_the_figure_of_costs_has_a_point_per_scorer_and_a_line_for_random(finished):
    study = read_study(finished[0])
    cell = study.cells[0]
    with figure_settings():
        panels = costs_figure(study).axes
    for axes, measure in zip(panels, (CMD, CPR), strict=True):
        areas = {repeats.name: repeats.mean for repeats in cell.test[measure]}
        points = [tuple(np.concatenate(line.get_data())) for line in axes.lines]
        costs = {name: cost.seconds for name, cost in cell.costs.items()}
        assert points[:-1] == [(costs[name], areas[name]) for name in costs if name != "random"]
        assert points[-1] == (0, 1, areas["random"], areas["random"]) and costs["random"] == 0


def test_circuits_of_all_methods_have_equal_sizes(compared):
    for measure in (CMD, CPR):
        curves = [row.curves[0] for row in compared.test[measure]]
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
    folder = tmp_path / "scorers"
    calls = []

    def stop_later(*arguments, **options):
        calls.append(arguments)
        if len(calls) == 5:
            raise KeyboardInterrupt
        return discover(*arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr("edgewise.study.run.discover", stop_later)
        assert edgewise(*WORDS, "--out", folder)[0] == 130
    assert not folder.exists() and (tmp_path / ".scorers.partial").is_dir()
    scored = []
    monkeypatch.setattr(Eap, "score", lambda *_: scored.append(1))
    monkeypatch.setattr("edgewise.study.run.WARM_UP_EXAMPLES", 1)
    code, out, err = edgewise(*WORDS, "--out", folder, "--json")
    # EAP's second draw of examples was scored when the command was stopped in the call after it.
    assert code == 0 and not scored, err
    for name, row in by_scorer(json.loads(out)).items():
        expected = finished[1][name]
        assert {k: row[k] for k in row if "seconds" not in k} == {k: expected[k] for k in row if "seconds" not in k}
    assert not (tmp_path / ".scorers.partial").exists()


def test_a_finished_comparison_is_only_replaced_with_overwrite(edgewise, tmp_path):
    words = (*"study --scorers eap --seeds 1 --examples 4 --model".split(), MODEL, "--out", tmp_path / "out")
    code, table, _ = edgewise(*words)
    assert code == 0
    before = (tmp_path / "out" / "tables.json").read_bytes()
    code, out, err = edgewise(*words)  # the same command shows the result
    assert (code, out) == (0, table) and "nothing is computed again" in err
    assert (tmp_path / "out" / "tables.json").read_bytes() == before
    message = refused(edgewise, *words, "--ablation", "zero")
    assert "made from other inputs" in message and "ablation" in message and "--overwrite" in message
    assert edgewise(*words, "--overwrite")[0] == 0
    (tmp_path / "out" / "notes.txt").write_text("mine")
    assert "notes.txt" in refused(edgewise, *words, "--overwrite")


def test_the_terminal_has_a_table_per_model_and_task_and_a_legend(edgewise, tmp_path):
    models = ("--model", f"demo,{MODEL}", "--task", f"ioi,{MODEL}")
    words = ("study", "--scorers", "eap", *models, "--seeds", "1", "--examples", "4", "--out", tmp_path / "out")
    code, out, _ = edgewise(*words)
    assert code == 0 and out.count("random") >= 2
    legend = ("AUROC", "seconds per example", "Mean rank over the 2 models and tasks", "no significant difference")
    assert all(text in out.replace("\n", " ") for text in ("ioi, demo", MODEL, *legend))
    content = json.loads((tmp_path / "out" / "tables.json").read_text())
    assert {entry["model"] for entry in content["entries"] if entry["quantity"] == "AUROC"} == {MODEL}


@pytest.mark.parametrize("width", [60, 80, 120])
def test_names_of_scorers_are_in_every_part_of_a_table(width):
    """With seeds, marks and a known circuit, the columns that don't fit are below the others."""
    heads, names = ("CPR", "CMD", "seconds", "memory", "AUROC", "precision"), ("mask-ig", "eap-ig")
    rows = tuple(
        TableRow(name, tuple(Entry(head, name, "ioi", "demo", 0.1234, 0.01, verdict="worse") for head in heads))
        for name in names
    )
    text = StringIO()
    for part in terminal(StudyTable("scorers", "", tuple((head,) for head in heads), rows), width):
        Console(file=text, width=width).print(part)
    lines = text.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    shown = [line.split() for line in lines if set(line.split()) & set(heads)]
    assert [head for part in shown for head in part] == list(heads)
    for name in names:
        assert sum(line.startswith(f"{name} ") for line in lines) == len(shown)


def test_known_models_go_with_their_own_task_only():
    plan = Plan(("demo", "known/ioi"), ("ioi", "mcqa", "known/ioi"))
    assert plan.cells == (("ioi", "demo"), ("mcqa", "demo"), ("known/ioi", "known/ioi"))
    assert Plan("my-model", ("known/ioi",)).cells == (("known/ioi", "my-model"),)


def test_all_has_every_scorer_that_metric_and_graph_allow():
    settings = Settings(metric=LogitDifference())
    every, left_out = choose_scorers(["all"], settings)
    assert [method.name for method in every] == [*SCORERS, "random"] and not left_out
    plan = Plan(scorers=every, skip_large=True)
    assert scorers_for(plan, 10) == list(every) == scorers_for(replace(plan, skip_large=False), 10**6)
    assert {method.name for method in scorers_for(plan, 10**6)} == {*SCORERS, "random"} - {"exact"}
    flat, reasons = choose_scorers(["all"], Settings(metric=METRICS["kl"]()))
    assert "eap" in reasons and "eap" not in [method.name for method in flat]
    of_pairs, reasons = choose_scorers(["all"], replace(settings, positions=True))
    assert set(reasons) == {name for name, kind in SCORERS.items() if not kind.by_span}
    assert {method.name for method in of_pairs} == {*SCORERS, "random"} - set(reasons)
    _, reasons = choose_scorers(["all"], replace(settings, level="neuron"))
    assert set(reasons) == {name for name, kind in SCORERS.items() if "neuron" not in kind.levels}
    every, _ = choose_scorers(["all", *LEARNERS, "all"], settings, {"steps": 3}, {"steps": 4})
    steps = {method.name: method.steps for method in every if hasattr(method, "steps")}
    assert steps["eap-ig"] == 3 and steps["learned"] == 4 and len({m.name for m in every}) == len(every)


def test_a_custom_scorer_is_compared():
    @dataclass(frozen=True)
    class Mine(Eap):
        name: ClassVar[str] = "mine"

    areas = {name: repeats.mean for name, repeats in run_plan([Mine(), "eap"]).tested(CMD).items()}
    assert list(areas) == ["eap-ig", "mine", "eap", "random"] and areas["mine"] == areas["eap"]


@dataclass(frozen=True)
class FixedRepeats(Repeats):
    """Repeats of a given mean."""

    value: float = 0.0

    @property
    def mean(self):
        return self.value


def cell_of(**areas):
    test = {
        m: tuple(FixedRepeats(m, name, Recipe(), (), (), value) for name, value in areas.items()) for m in (CMD, CPR)
    }
    return Cell("m", "t", 10, {}, ModelAccuracy(1, 1), test)


def test_mean_ranks():
    cells = [cell_of(a=0.1, b=0.3, c=0.3), cell_of(a=0.2, b=0.1, c=0.4, extra=0.0), cell_of(a=0.1, b=0.2, c=0.3)]
    study = Study(Plan(), tuple(cells))
    cmd = mean_ranks(study, CMD)
    # Ties share their places; a method that isn't in all cells has no rank.
    assert {name: rank.value for name, rank in cmd.items()} == pytest.approx({"a": 4 / 3, "b": 5.5 / 3, "c": 8.5 / 3})
    assert (cmd["a"].low, cmd["a"].high) == (1, 2) and (cmd["c"].low, cmd["c"].high) == (2.5, 3)
    cpr = {name: rank.value for name, rank in mean_ranks(study, CPR).items()}
    assert cpr == pytest.approx({name: 4 - rank.value for name, rank in cmd.items()})


@pytest.mark.parametrize(
    "words, message",
    [
        (("--scorers", "magic"), "'magic'"),
        (("--scorers", "eap", "--metric", "accuracy"), "no gradient"),
        (("--scorers", "all", "--metric", "accuracy"), "no gradient"),
        (("--scorers", "eap", "--metric", "kl"), "no slope"),
        (("--scorers", "eap", "--truth", "known/ioi"), "is a circuit of"),
        (("--scorers", "eap", "--truth", "missing.json"), "missing.json"),
        (("--truth", "known/induction"), "truth is for a comparison of scorers"),
        (("--scorers", "eap", "--pnr-grid", ".5"), "--pnr-grid would have no effect"),
        (("--scorers", "eap", "--learned"), "--learned would have no effect"),
        (("--scorers", "eap", "--learn-steps", "3"), "--learn-steps needs a learner in --scorers"),
        (("--scorers", "calibrated", "--learning-rate", "3"), "--learning-rate needs a learner in --scorers"),
        (("--scorers", "exact", "--positions"), "can't score positions"),
        (("--scorers", "eap", "--positions", "--truth", "known/ioi"), "leave out truth, or positions"),
        (("--positions", "--level", "node"), "one of --positions and --level node"),
    ],
)
def test_bad_input_is_refused_and_nothing_is_written(edgewise, tmp_path, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    assert message in refused(edgewise, "study", "--model", MODEL, "--examples", "4", *words)
    assert list(tmp_path.iterdir()) == []


def test_truth_may_be_a_file(tmp_path):
    path = tmp_path / "truth.json"
    known_circuit(MODEL).save(path)
    own, given = (run_plan([], truth) for truth in (None, str(path)))
    for name, cost in own.costs.items():
        assert (cost.aurocs, cost.precisions) == (given.costs[name].aurocs, given.costs[name].precisions)
    assert own.n_true == given.n_true == known_circuit(MODEL).n_edges


@pytest.mark.parametrize("options, unit", [({"positions": True}, "pair"), ({"level": "node"}, "node")])
def test_scorers_are_compared_on_all_kinds_of_circuits(options, unit):
    cell, settings, model = run_plan(["eap"], **options), Settings(**options), load_model("demo", device="cpu")
    graph = settings.graph(model.graph, load_task("ioi", model, "train", 4))
    assert unit in graph.unit and cell.n_edges == graph.n_edges and cell.n_true is None
    sizes = [int(size * graph.n_edges) for size in settings.sizes]
    for name, row in cell.tested(CMD).items():
        assert list(row.curves[0].n_kept) == sizes and not cell.costs[name].aurocs
        assert np.isfinite(row.mean) and (cell.costs[name].memory > 0 or name == "random")


def test_unknown_objects_raise():
    with pytest.raises(InputError, match="scorer or learner"):
        choose_scorers(["nothing"], Settings())


def test_a_dry_run_estimates_and_writes_nothing(edgewise, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ("study", "--scorers", "eap,learned", "--model", MODEL, "--examples", "4", "--dry-run", "--json")
    code, out, err = edgewise(*words)
    assert code == 0, err
    stages = [stage["name"] for stage in json.loads(out)["forecasts"][0]["stages"]]
    assert stages == ["score", "score", "learn", "learn", "evaluate"] and list(tmp_path.iterdir()) == []
