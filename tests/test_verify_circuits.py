"""The tests of circuits on models whose circuit is known, and the command."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from functools import cache, partial
from html import escape

import numpy as np
import pytest
from commands import refused, run_command, run_json

from edgewise import (
    Circuit,
    EapIg,
    InputError,
    Session,
    Store,
    evaluate_circuits,
    known_circuit,
    load_model,
    load_task,
    score_edges,
    solve,
    verify_circuit,
)
from edgewise.cli import verify as verify_command
from edgewise.evaluate import Mean, Patching
from edgewise.recipes.settings import Settings
from edgewise.report.verification import read_verification, summary_lines
from edgewise.report.viewer.view import view_of_run
from edgewise.results import read_result
from edgewise.tasks import Kl
from edgewise.tasks.known import KNOWN
from edgewise.verify import VerifySettings, add_path, draw_circuit, plan_verification
from edgewise.verify.circuit_tests import binomial_at_most, distance, holm
from edgewise.verify.verify_circuit import run_until_farther

NAMES = [name.removeprefix("known/") for name in KNOWN]
SETTINGS = VerifySettings(n_circuits=40, tolerance=0.05)


@cache
def known(name: str, examples: int = 20):
    model = load_model(f"known/{name}", device="cpu")
    return model, load_task(f"known/{name}", model, "test", examples), known_circuit(name)


@pytest.mark.parametrize("name", NAMES)
def test_the_true_circuit_passes(name):
    """Where it does not, the reason is known: see docs/verify.md."""
    tests = ["sufficiency", "necessity", "minimality", "completeness"]
    result = verify_circuit(*known(name), SETTINGS, tests=tests)
    assert result.test("sufficiency").passes and result.test("necessity, outside").passes
    # Without the redundant head, a copy of the circuit is as good.
    assert result.test("sufficiency, matched").passes == (name != "backup")
    # One of the two redundant heads can be removed: only the backup head is superfluous.
    assert all(("a2.h2" in edge) == (name == "backup") for edge in result.superfluous)
    assert result.test("minimality").passes == (name != "backup")
    # Heads outside the circuit of ioi copy a little if others are cut.
    assert result.test("completeness").details["mean_difference"] < 0.06
    assert result.test("completeness").passes == (name != "ioi")
    assert result.random.max() < result.faithfulness.estimate and abs(result.faithfulness.estimate - 1) < 0.02


@pytest.mark.parametrize("name", NAMES)
def test_the_true_circuit_is_equivalent_up_to_a_tolerance(name):
    assert verify_circuit(*known(name, 100), SETTINGS, tests=["equivalence"]).test("equivalence").passes


@pytest.mark.parametrize("name", ["greater-than", "induction"])
def test_the_true_circuit_is_robust_but_for_zero_ablation(name):
    """The models have a large constant part in the stream, which zero ablation removes."""
    model, task, truth = known(name)
    others = {"train": load_task(f"known/{name}", model, "train", 20)}
    result = verify_circuit(model, task, truth, VerifySettings(n_circuits=60), tests=["robustness"], other_tasks=others)
    assert result.metric.name != "auto"
    rows = {row["condition"]: row["passes"] for row in result.test("robustness").details["conditions"]}
    assert rows.pop("ablation: zero") in (True, False)
    assert len(rows) == 7 and "metric: auto" not in rows and all(rows.values())


def test_without_incorrect_answers_robustness_has_the_metrics_that_need_none():
    model, task, truth = known("induction")
    alone = replace(task, examples=tuple(replace(e, incorrect=None, text=None) for e in task.examples))
    result = verify_circuit(model, alone, truth, VerifySettings(n_circuits=5), tests=["robustness"])
    names = {row["condition"] for row in result.test("robustness").details["conditions"]}
    assert {name for name in names if name.startswith("metric")} == {"metric: kl", "metric: accuracy"}


@pytest.mark.parametrize("name", ["greater-than", "ioi"])
def test_an_added_path_is_superfluous(name):
    model, task, truth = known(name, 12)
    n_detected = 0
    for seed in range(6):
        larger, added = add_path(truth, np.random.default_rng(seed))
        settings = VerifySettings(n_circuits=40, seed=seed)
        result = verify_circuit(model, task, larger, settings, tests=["minimality"])
        names = {model.graph.edge_names[edge] for edge in added}
        assert not set(result.superfluous) & set(truth.edges)
        n_detected += bool(set(result.superfluous) & names)
        assert result.minimal_faithfulness is None or abs(result.minimal_faithfulness.estimate - 1) < 0.03
    assert n_detected >= 5


@pytest.mark.parametrize(("name", "seed"), [("greater-than", 11), ("induction", 26), ("ioi", 10)])
def test_an_added_path_that_fewer_draws_and_a_correction_miss_is_superfluous(name, seed):
    model, task, truth = known(name)
    larger, added = add_path(truth, np.random.default_rng([seed, 1]))
    result = verify_circuit(model, task, larger, VerifySettings(seed=seed), tests=["minimality"])
    names = {model.graph.edge_names[edge] for edge in added}
    assert result.superfluous and set(result.superfluous) <= names
    details = result.test("minimality").details
    first_draws = np.array(details["random"][:100])
    assert details["draws"] == 400
    p = [binomial_at_most(int((row["change"] > first_draws).sum()), 100, 0.9) for row in details["edges"]]
    assert holm(p).min() > 0.05


@pytest.mark.parametrize("name", ["greater-than", "induction"])
def test_without_an_edge_the_circuit_fails_sufficiency_or_equivalence(name):
    model, task, truth = known(name, 100)
    for edge in truth.edges[::3]:
        settings = VerifySettings(n_circuits=30, tolerance=0.03)
        result = verify_circuit(model, task, truth.without(edge), settings, tests=["sufficiency", "equivalence"])
        assert not (result.test("sufficiency").passes and result.test("equivalence").passes), edge


def test_almost_the_whole_model_passes_equivalence_and_fails_minimality():
    model, task, truth = known("greater-than", 8)
    outside = [edge for edge in model.graph.edge_names if edge not in truth.edges]
    drawn = np.random.default_rng(0).choice(outside, 40, replace=False).tolist()
    circuit = Circuit.full(model.graph).without(drawn)
    result = verify_circuit(model, task, circuit, VerifySettings(n_circuits=30), tests=["minimality"])
    assert result.test("minimality").statistic > 0.6
    assert not set(result.superfluous) & set(truth.edges)
    model, task, _ = known("greater-than", 100)
    settings = VerifySettings(tolerance=0.02)
    assert verify_circuit(model, task, circuit, settings, tests=["equivalence"]).test("equivalence").passes


def test_p_values_are_uniform_if_the_circuit_is_a_random_one():
    """50 tests of a random circuit against 19 others, on a model: the rank of the first is uniform."""
    model, task, _ = known("induction", 6)
    rng = np.random.default_rng(0)
    circuits = [draw_circuit(model.graph, 60, rng) for _ in range(1000)]
    ran = evaluate_circuits(model, task, circuits)
    rows = distance(ran.values, ran.full, ran.full.mean() - ran.empty.mean()).reshape(50, 20)
    ranks = np.sort((rows <= rows[:, :1]).sum(1) / 20 - rng.random(50) / 20)
    steps = np.arange(51) / 50
    assert max(np.abs(ranks - steps[1:]).max(), np.abs(ranks - steps[:-1]).max()) < 1.95 / np.sqrt(50)


def test_a_selected_circuit_of_the_demo_beats_random_ones():
    model = load_model("demo", device="cpu")
    train, test = (load_task("ioi", model, split, 24) for split in ("train", "test"))
    circuit = solve(score_edges(model, train, EapIg()), 0.05).circuit
    result = verify_circuit(model, test, circuit, SETTINGS, tests=["sufficiency", "minimality"])
    assert result.test("sufficiency").passes
    assert result.test("sufficiency, matched").statistic > 0.8  # a head that hardly matters may be another one
    # The effect of an edge is the faithfulness that its own circuit lacks.
    edge = circuit.edges[0]
    ran = evaluate_circuits(model, test, [circuit, circuit.without(edge)])
    np.testing.assert_allclose(result.edge_effects[0], -np.diff(ran.faithfulness)[0], atol=1e-5)
    assert set(result.node_effects) == set(circuit.nodes) - {"input", "logits"}
    random = draw_circuit(model.graph, circuit.n_edges, np.random.default_rng(1))
    assert not verify_circuit(model, test, random, SETTINGS, tests=["sufficiency"]).test("sufficiency").passes


def test_pairs_at_spans_that_do_not_matter_are_superfluous(tmp_path, monkeypatch):
    """The true circuit at all spans: the queries of the last layer and the logits matter at the last token only."""
    model, task, truth = known("induction")
    graph = task.span_graph(model.graph)
    pairs = Circuit(graph, graph.from_plain(truth.mask))
    dead = [name for name in pairs.edges if not name.endswith("@end") and ("->a2.h0<q>" in name or "->logits" in name)]
    settings, tests = VerifySettings(n_circuits=40), ["sufficiency", "minimality", "completeness"]
    result = verify_circuit(model, task, pairs, settings, tests=tests)
    assert result.test("sufficiency").passes and result.test("completeness").passes and "pairs" in repr(result)
    assert set(dead) & set(result.circuit.edges) and set(dead) & set(result.circuit.edges) <= set(result.superfluous)
    assert result.minimal_faithfulness.estimate == pytest.approx(1, abs=0.05)
    # Random paths reach the logits where the circuit does: here at the last token, so that none of them is dead.
    drawn = plan_verification(pairs.without(dead), settings, ["sufficiency"]).groups["random"]
    assert {name.partition("@")[2] for circuit in drawn for name in circuit.edges if "->logits" in name} == {"end"}
    monkeypatch.chdir(tmp_path)
    pairs.save("pairs.npz")
    words = ("pairs.npz", "--model", "known/induction", "--examples", "20", "--circuits", "30", "--tests", "minimality")
    code, out, _ = verify(*words, "--minimal", "minimal.npz")
    assert code == 0 and "superfluous (edge, span) pairs: " in out and Circuit.load("minimal.npz").graph == graph
    assert "EAP-IG's .json files have no place for (edge, span) pairs" in refused(verify, *words, "--minimal", "m.json")
    with pytest.raises(InputError, match="the spans A, B, end, other, but task 'known/induction' has none"):
        plain = replace(task, examples=tuple(replace(e, span_names=(), span_indices=()) for e in task.examples))
        verify_circuit(model, plain, pairs)


def test_by_kl_no_circuit_beats_the_model():
    model, task, truth = known("induction", 76)
    test = verify_circuit(model, task, truth, SETTINGS, tests=["equivalence"], metric=Kl()).test("equivalence")
    assert test.details["wins"] == 0 and "no circuit beats the model by kl" in test.advice


def test_a_stopped_verification_resumes(tmp_path):
    calls = []
    model, task, truth = known("greater-than", 8)
    settings, tests = VerifySettings(n_circuits=5), ["sufficiency", "robustness"]

    def stop(stage, done, total):
        calls.append((stage, done))
        if len([call for call in calls if call[1]]) == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        session = Session(Store(tmp_path / "store"), progress=stop)
        verify_circuit(model, task, truth, settings, tests=tests, session=session)
    resumed = []
    session = Session(Store(tmp_path / "store"), progress=lambda *report: resumed.append(report))
    result = verify_circuit(model, task, truth, settings, tests=tests, session=session)
    plain = verify_circuit(model, task, truth, settings, tests=tests)
    # What ran before is not repeated, and the progress of a stage never falls.
    assert {stage for stage, _ in calls} == {"verify"}
    for stage in ("verify", "robustness"):
        done, totals = zip(*(report[1:] for report in resumed if report[0] == stage), strict=True)
        assert list(done) == sorted(done) and {done[-1]} == set(totals)
        assert done[0] >= max([0, *(count for name, count in calls[:-1] if name == stage)])
    assert [test.record() for test in result.tests] == [test.record() for test in plain.tests]


@pytest.mark.parametrize("ablation", [Patching(), Mean()])
@pytest.mark.parametrize("quality", ["true circuit", "most of it", "random circuit"])
def test_random_circuits_that_stop_early_are_farther_from_the_model(quality, ablation):
    """Whether they stop depends on the circuit: better circuits are decided sooner, random ones hardly ever are."""
    model, task, truth = known("induction", 30)
    rng = np.random.default_rng(3)
    damaged = [Circuit(model.graph, truth.mask & (rng.random(truth.graph.n_edges) < 0.8)).prune() for _ in range(9)]
    circuit = {"true circuit": truth, "most of it": max(damaged, key=lambda c: c.n_edges)}.get(quality)
    circuit = circuit or draw_circuit(model.graph, 40, rng)
    random = [draw_circuit(model.graph, 40, rng) for _ in range(30)] + [circuit]
    own = evaluate_circuits(model, task, [circuit], ablation=ablation)
    all_values = evaluate_circuits(model, task, random, ablation=ablation).values
    evaluate = partial(evaluate_circuits, model, task, ablation=ablation)
    runs = run_until_farther(evaluate, own.values[0], own.full, own.empty, random, Session())
    span = own.full.mean() - own.empty.mean()
    distances, own_distance = distance(all_values, own.full, span), distance(own.values[0], own.full, span)
    assert ((own_distance < runs.distances) == (own_distance < distances)).all()
    on_all = runs.n_examples == len(task)
    assert on_all[-1] and runs.distances[-1] == own_distance  # the circuit itself is not farther
    np.testing.assert_allclose(runs.distances[on_all], distances[on_all], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(
        runs.faithfulness[on_all], (all_values[on_all].mean(1) - own.empty.mean()) / span, rtol=1e-4, atol=1e-5
    )
    assert quality != "true circuit" or runs.n_examples[:-1].max() < len(task) / 2


def test_means_are_computed_once_per_ablation(monkeypatch):
    model, task, truth = known("induction", 12)
    calls, prepare = [], Mean.prepare
    monkeypatch.setattr(Mean, "prepare", lambda self, *rest: calls.append(self.name) or prepare(self, *rest))
    settings, tests = VerifySettings(n_circuits=5), ["sufficiency", "robustness"]
    result = verify_circuit(model, task, truth, settings, tests=tests, ablation=Mean())
    assert calls == ["mean", "positional-mean"] and result.ablation == Mean()


def test_a_circuit_of_another_model():
    model, task, _ = known("greater-than")
    with pytest.raises(InputError, match="the circuit is one of 4 layers"):
        verify_circuit(model, task, known_circuit("ioi"))


def test_tests_may_come_from_a_generator():
    """It was read once, to check the names, and then no test was run."""
    model, task, truth = known("induction", 12)
    names = ["sufficiency", "minimality"]
    result = verify_circuit(model, task, truth, VerifySettings(n_circuits=3), tests=(name for name in names))
    assert [test.name for test in result.tests if test.name in names] == names


@pytest.mark.parametrize(
    "arguments, message",
    [
        (lambda task, truth: (truth, task), "a task is needed, not Circuit"),
        (lambda task, truth: (task, truth.mask), "a circuit is needed, not array"),
        (lambda task, truth: (task, truth, {"n_circuits": 5}), "settings must be"),
    ],
)
def test_wrong_arguments_raise(arguments, message):
    model, task, truth = known("induction", 12)
    with pytest.raises(InputError, match=message):
        verify_circuit(model, *arguments(task, truth))


@pytest.mark.parametrize(
    "options, message",
    [
        ({"tests": "sufficiency"}, "tests come in a list"),
        ({"tests": 3}, "tests come in a list"),
        ({"tests": ()}, "no test is to be run"),
        ({"other_tasks": ["train"]}, "other_tasks maps names to tasks"),
    ],
)
def test_wrong_options_raise(options, message):
    model, task, truth = known("induction", 12)
    with pytest.raises(InputError, match=message):
        verify_circuit(model, task, truth, VerifySettings(n_circuits=3), **options)


def test_settings_take_numbers_of_numpy():
    settings = VerifySettings(n_circuits=np.int64(5), quantile=np.float32(0.5), seed=np.int32(3))
    assert settings == VerifySettings(n_circuits=5, quantile=0.5, seed=3)
    assert json.loads(json.dumps(asdict(settings)))["n_circuits"] == 5


@pytest.mark.parametrize(
    "values", [{"seed": -1}, {"seed": 0.5}, {"quantile": "0.9"}, {"n_circuits": True}, {"tolerance": float("nan")}]
)
def test_impossible_settings_raise(values):
    with pytest.raises(InputError, match=next(iter(values))):
        VerifySettings(**values)


def verify(*words):
    return run_command("verify", *words, "--device", "cpu")


GREATER_THAN = ["known/greater-than", "--examples", "12", "--circuits", "30"]


def test_command_writes_a_report(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, _ = verify(*GREATER_THAN, "--out", "out", "--minimal", "minimal.json")
    assert code == 0
    for name in ("sufficiency", "necessity", "minimality", "equivalence", "independence", "completeness", "robustness"):
        assert name in out
    assert "needs at least 76 examples, not 12" in out
    assert Circuit.load("minimal.json") == known_circuit("greater-than")
    record = json.loads((tmp_path / "out" / "verification.json").read_text())
    page = (tmp_path / "out" / "report.html").read_text()
    assert all(escape(test["null"]) in page for test in record["tests"]) and "data:image/png" in page
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "verification.json", "report.html", "random.png", "random.svg"
    }  # fmt: skip
    code, out, err = verify(*GREATER_THAN, "--out", "out", "--json")
    assert code == 0 and "nothing is computed again" in err and json.loads(out) == record
    assert "alpha was 0.05, is 0.01" in refused(verify, *GREATER_THAN, "--out", "out", "--alpha", "0.01")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["known/ioi", "--model", "known/greater-than"], "known/ioi is a circuit of 4 layers"),
        (["empty.json", "--model", "known/greater-than"], "the circuit is empty"),
        (["full.json", "--model", "known/greater-than"], "the circuit is the whole model"),
        ([*GREATER_THAN, "--tests", "power"], "there is no test 'power'"),
        ([*GREATER_THAN, "--quantile", "2"], "quantile must lie between 0 and 1"),
        ([*GREATER_THAN, "--tests", "equivalence", "--minimal", "m.json"], "--minimal needs the test of minimality"),
    ],
)
def test_bad_input_is_one_line(words, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    graph = known_circuit("greater-than").graph
    Circuit.empty(graph).save("empty.json")
    Circuit.full(graph).save("full.json")
    code, _, error = verify(*words, "--quiet")
    assert code == 2 and message in error and error.count("\n") == 1 and not list(tmp_path.glob("m.json"))


def test_a_folder_made_with_another_model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(verify_command, "QUICK_EXAMPLES", 6)  # the circuit would be tested by default
    words = "run --model known/induction --examples 6 --no-learned --out result --stability 0 --device cpu".split()
    assert run_command(*words, "--no-verify")[0] == 0
    assert not (tmp_path / "result" / "verification.json").exists()
    assert run_json(*words, "--no-verify")["verification"] is None
    # known/backup has the same number of layers and heads, but another width.
    assert "is a circuit of" in refused(verify, "result", "--model", "known/backup")
    quick = ("--examples", "6", "--circuits", "3", "--tests", "sufficiency", "--json")
    code, out, err = verify("result", "--size", "0.05", *quick)
    assert code == 0 and json.loads(out)["edges"] <= 13 and "--model known/induction" in err


RUN = "run --model known/greater-than --examples 8 --no-learned --out result --stability 0 --device cpu".split()


@pytest.fixture(scope="module")
def tested_run(tmp_path_factory):
    """A folder with a run that tested its circuit by default, with few examples and draws."""
    folder = tmp_path_factory.mktemp("tested")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(verify_command, "QUICK_EXAMPLES", 8)
        patch.setattr(verify_command, "QUICK_CIRCUITS", 5)
        assert run_command(*RUN)[0] == 0
    return folder


def test_a_run_can_test_its_circuit(tested_run, monkeypatch):
    monkeypatch.chdir(tested_run)
    record = json.loads((tested_run / "result" / "verification.json").read_text())
    assert {test["name"] for test in record["tests"]} >= {"sufficiency", "minimality", "robustness"}
    assert record["settings"]["n_circuits"] == 5 and record["examples"] == 8
    assert "Tests of" in (tested_run / "result" / "verification.html").read_text()
    assert "verification.html" in (tested_run / "result" / "README.md").read_text()
    code, out, err = run_command(*RUN)  # nothing is computed, and the tests are shown
    assert code == 0 and all(test["name"] in out for test in record["tests"]) and "nothing is computed" in err
    verification = run_json(*RUN)["verification"]
    assert verification["superfluous"] == record["superfluous"] and verification["circuit"] == record["circuit"]
    verdicts = {test["name"]: (test["p"], test["verdict"]) for test in verification["tests"]}
    assert verdicts == {test["name"]: (test["p"], test["verdict"]) for test in record["tests"]}
    for word in ("--verify", "--no-verify"):
        assert "made from other inputs (verify was" in refused(run_command, *RUN, word)


def test_failed_tests_are_explained_in_words():
    """Neither passed tests nor those that have advice of their own."""
    verdicts = {"necessity": "fails", "equivalence": "fails", "independence": "fails", "completeness": "passes"}
    tests = [{"name": name, "verdict": verdict, "statistic": 0.24, "advice": ""} for name, verdict in verdicts.items()]
    tests[2]["advice"] = "own words"
    numbers = {"estimate": 0.97, "low": 0.96, "high": 0.98}
    record = {"tests": tests, "faithfulness": numbers, "minimal": {}, "edges": 3, "of": 9, "examples": 80, "task": "a",
              "split": "test", "ablation": "patching", "superfluous": [], "settings": {"quantile": 0.9}}  # fmt: skip
    necessity, equivalence, independence = summary_lines(record)[1:]
    assert "cutting 24% of random circuits, which is not significantly more than 90%; in a small graph" in necessity
    assert "beats the model on 24% of the examples, which is not significantly near one half" in equivalence
    assert independence == "independence: own words"


def test_a_run_tests_its_circuit_of_pairs_if_asked(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = [*RUN, "--positions", "--verify"]
    stages = {stage["name"] for stage in run_json(*words, "--dry-run")["stages"]}
    assert {"verify", "robustness"} <= stages
    code, out, _ = run_command(*words)
    record = read_verification(tmp_path / "result")
    assert code == 0 and "(edge, span) pairs, faithfulness" in out and record["units"] == "(edge, span) pairs"
    assert all("@" in name for name in record["edge_effects"]) and view_of_run(read_result("result"), record)


def test_a_run_tests_its_circuit_only_if_that_takes_seconds(tested_run, monkeypatch):
    model, task, _ = known("greater-than", 8)
    discovery = read_result(tested_run / "result")
    verify_run = partial(verify_command.verify_run, model, task, discovery, 0)
    assert verify_run(False, Session()) is None  # too few examples
    monkeypatch.setattr(verify_command, "QUICK_EXAMPLES", 4)
    monkeypatch.setattr(verify_command, "QUICK_CIRCUITS", 3)
    assert verify_run(False, Session())["examples"] == 4
    monkeypatch.setattr(verify_command, "QUICK_OPERATIONS", 1)
    assert verify_run(False, Session()) is None
    record = verify_run(True, Session())
    assert record["examples"] == 8 and record["settings"]["n_circuits"] == VerifySettings().n_circuits


@pytest.mark.parametrize("name", ["demo", *KNOWN])
def test_runs_of_the_embedded_models_test_their_circuits(name):
    model = load_model(name, device="cpu")
    task = load_task("ioi" if name == "demo" else name, model, "test", 80)
    assert verify_command.forecast_tests(model, task, Settings(), 0, False)


def test_a_dry_run_forecasts_the_tests_that_the_run_would_make(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(verify_command, "QUICK_EXAMPLES", 8)
    monkeypatch.setattr(verify_command, "QUICK_CIRCUITS", 3)

    def tested_stages(*words):
        stages = run_json(*RUN, "--dry-run", *words)["stages"]
        tested = [stage for stage in stages if stage["name"] in ("verify", "robustness") and stage["seconds"] > 0]
        return [(stage["name"], stage["examples"]) for stage in tested]

    # Random circuits are expected to run on a quarter of the examples.
    assert tested_stages() == [("verify", 8), ("verify", 2), ("robustness", 2)] and tested_stages("--no-verify") == []
    monkeypatch.setattr(verify_command, "QUICK_OPERATIONS", 1)
    assert tested_stages() == []


def test_the_viewer_knows_which_circuit_was_tested(tested_run, tmp_path):
    discovery, record = read_result(tested_run / "result"), read_verification(tested_run / "result")
    view = view_of_run(discovery, record)
    assert view.size in view.rows[view.shown].tested
    for row in view.rows:
        for place in row.tested:
            assert set(row.circuits[place].prune().edges) == set(record["edge_effects"])
    names = discovery.run.graph.edge_names
    effects = {name: effect for name, effect in zip(names, view.runs[0].edge_effects, strict=True) if effect}
    assert effects == {name: effect for name, effect in record["edge_effects"].items() if effect}
    assert {names[edge] for edge in view.runs[0].superfluous.nonzero()[0]} == set(record["superfluous"])
    assert read_verification(tmp_path) is None
    for text in ("[]", "{}", json.dumps(record | {"edge_effects": {"a": "x"}}), json.dumps(record | {"tests": 3})):
        (tmp_path / "verification.json").write_text(text)
        with pytest.raises(InputError, match="isn't a record of tests"):
            read_verification(tmp_path)
