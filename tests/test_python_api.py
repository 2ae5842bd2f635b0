"""Short forms of the Python API: sizes, names, tasks as sequences, data frames, figures and pages for notebooks."""

from __future__ import annotations

import html
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import build, random_task
from matplotlib.figure import Figure

from edgewise import (
    CMD,
    CPR,
    Circuit,
    EdgeScores,
    Graph,
    Greedy,
    Ilp,
    InputError,
    Recipe,
    SelectionProblem,
    Session,
    Settings,
    Store,
    Task,
    discover,
    evaluate_circuits,
    score_edges,
    solve,
    summarise,
    wrap_model,
)
from edgewise.evaluate import faithfulness
from edgewise.report.write_result import viewer_page

GRAPH = Graph(2, 2, 4)
SIZES = (0.05, 0.3, 1.0)


@pytest.fixture(scope="module")
def scores():
    return EdgeScores(GRAPH, np.random.default_rng(0).normal(size=(6, GRAPH.n_edges)))


@pytest.fixture(scope="module")
def model():
    return wrap_model(build("gpt2"), name="tiny")


@pytest.fixture(scope="module")
def run(model):
    recipes = {m: (Recipe(Greedy()), Recipe(Ilp())) for m in (CMD, CPR)}
    return discover(model, random_task(6), random_task(5, seed=1), Settings(sizes=SIZES), recipes)


def test_solve_takes_scores_statistics_rankings_and_problems(scores):
    statistics = summarise(scores)
    problem = SelectionProblem.of(statistics.ranking, "absolute", 7)
    expected = solve(problem).circuit
    share = 7.5 / GRAPH.n_edges
    for source in (scores, statistics, statistics.ranking, problem):
        assert solve(source, 7).circuit == solve(source, share).circuit == expected
    assert solve(scores, 1.0).circuit == Circuit.full(GRAPH) and solve(scores, 1).n_requested == 1
    signed = SelectionProblem.of(statistics.ranking, "signed", 9, 0.5)
    assert solve(scores, 9, rank="signed", pnr=0.5, solver=Greedy()).circuit == solve(signed, solver=Greedy()).circuit


@pytest.mark.parametrize(
    "source, size, options, words",
    [("scores", None, {}, "give a size"), ("scores", 1.5, {}, "to 1.* as an int"), ("scores", True, {}, "not True"),
     ("scores", "0.05", {}, "a float"), ("scores", -3, {}, "between 0 and"), ("problem", 3, {"pnr": 0.5}, "its own"),
     ("array", 3, {}, "not ndarray"), ("scores", 3, {"rank": "best"}, "signed, absolute")],
)  # fmt: skip
def test_solve_explains_what_it_needs(scores, source, size, options, words):
    problem = SelectionProblem.of(summarise(scores).ranking, "signed", 7)
    with pytest.raises(InputError, match=words):
        solve({"scores": scores, "problem": problem, "array": scores.values}[source], size, **options)


def test_circuits_of_an_outcome_by_size(run):
    for outcome in run.outcomes:
        for share, asked, circuit in zip(SIZES, outcome.curve.n_requested, outcome.circuits, strict=True):
            assert outcome.circuit(share) == outcome.circuit(asked) == circuit
        with pytest.raises(InputError, match=r"no circuit of size 0\.07; choose one of: 0\.05, 0\.3, 1\.0"):
            outcome.circuit(0.07)
        with pytest.raises(InputError, match=r"For another size, use solve\(discovery\.scores, size\)"):
            outcome.circuit(0.03)
        with pytest.raises(InputError, match=f"no circuit of size 3; choose one of: {outcome.curve.n_requested[0]}, "):
            outcome.circuit(3)
        with pytest.raises(InputError, match=r"a size is a share of the edges .* not '5%'"):
            outcome.circuit("5%")


def test_a_task_is_a_sequence_of_examples():
    task = random_task(6)
    assert tuple(task) == task.examples and task[2] is task.examples[2] and task[-1] in task
    part = task[1:4]
    assert isinstance(part, Task) and part.examples == task.examples[1:4] and part.split == task.split
    with pytest.raises(InputError, match="no examples"):
        task[6:]


def test_an_evaluation_has_faithfulness(model):
    circuits = [Circuit.empty(model.graph), Circuit.full(model.graph), solve(_random_scores(model), 0.3).circuit]
    evaluation = evaluate_circuits(model, random_task(5), circuits)
    values = evaluation.values.mean(1)
    np.testing.assert_allclose(evaluation.faithfulness, (values - values[0]) / (values[1] - values[0]))
    assert faithfulness(values[2], values[1], values[0]) == pytest.approx(evaluation.faithfulness[2])


def _random_scores(model):
    return EdgeScores(model.graph, np.random.default_rng(1).normal(size=(1, model.graph.n_edges)))


def test_nodes_of_a_circuit_are_the_ends_of_its_edges(scores):
    circuit = solve(scores, 0.2).circuit
    ends = {end.partition("<")[0] for edge in circuit.edges for end in edge.split("->")}
    assert set(circuit.nodes) == ends and len(circuit.nodes) == circuit.node_mask.sum() == len(ends)


def test_data_frames(run, scores):
    outcome = run.best("CMD")
    circuit = outcome.circuit(0.3)
    frame = circuit.to_frame(run.mean_scores)
    assert tuple(frame["edge"]) == circuit.edges
    named = frame["source"] + "->" + frame["destination"] + frame["input"].map(lambda name: f"<{name}>" if name else "")
    assert tuple(named) == circuit.edges
    np.testing.assert_array_equal(frame["score"], run.mean_scores[circuit.mask])
    assert list(circuit.to_frame()) == ["edge", "source", "destination", "input"]
    for use in (circuit.to_frame, lambda score: circuit.save("circuit.json", score)):
        with pytest.raises(InputError, match=r"not EdgeScores; EdgeScores have one as `.mean\(\)`"):
            use(scores)
    with pytest.raises(InputError, match=r"score has shape \(3,\)"):
        circuit.to_frame(np.zeros(3))
    of_scores = scores.to_frame()
    np.testing.assert_allclose(of_scores["mean"], scores.values.mean(0))
    np.testing.assert_allclose(of_scores["sd"], scores.values.std(0, ddof=1))
    np.testing.assert_array_equal(outcome.curve.to_frame()["faithfulness"], outcome.curve.faithfulness)
    assert list(outcome.to_frame()["recipe"]) == [outcome.name] * 3
    table = run.to_frame()
    assert list(table["area"]) == [o.area for o in run.outcomes]
    assert ((table["low"] <= table["area"]) & (table["area"] <= table["high"])).all()
    assert sorted(table["chosen_on"]) == ["", "", "all", "all"]


def test_without_pandas_an_error_says_how_to_install_it(scores, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(InputError, match=r"pip install 'edgewise\[pandas\]'"):
        scores.to_frame()


def test_figures_are_returned_and_shown_as_png(run):
    outcome = run.outcomes[0]
    for figure in (outcome.curve.plot("mine"), outcome.plot(), run.plot(), run.plot("Faithfulness")):
        assert isinstance(figure, Figure) and figure._repr_png_().startswith(b"\x89PNG")
    drawn = outcome.plot().axes[0].get_lines()[-1]
    np.testing.assert_array_equal(drawn.get_ydata(), outcome.curve.faithfulness)
    with pytest.raises(InputError, match="choose one of: faithfulness"):
        run.plot("pie")


def test_the_viewer_page_is_embedded_in_a_frame_without_access_to_the_notebook(run, monkeypatch):
    monkeypatch.setattr("webbrowser.open", lambda *_: pytest.fail("a browser was opened"))
    frame = run.view(height=500)
    text = frame._repr_html_()
    page = re.fullmatch(
        r'<iframe srcdoc="([^"]*)" sandbox="allow-scripts allow-downloads" style="[^"]*500px[^"]*"></iframe>', text
    )
    assert html.unescape(page[1]) == viewer_page(run) and len(repr(frame)) < 100


def test_values_have_short_tables(run, scores):
    circuit = solve(scores, 0.9).circuit
    assert circuit._repr_html_().count("<tr>") == 11 and html.escape(circuit.edges[0]) in circuit._repr_html_()
    assert f"and {circuit.n_edges - 10} more" in circuit._repr_html_()
    best = GRAPH.edge_names[int(np.abs(scores.mean()).argmax())]
    assert scores._repr_html_().index(html.escape(best)) < scores._repr_html_().index("</td>")
    assert run._repr_html_().count("<tr>") == 5
    hostile = Recipe(alias="<script>alert(1)</script>")
    named = discover_with(run, hostile)
    assert "<script>" not in named._repr_html_() and "&lt;script&gt;" in named._repr_html_()


def discover_with(run, recipe):
    from dataclasses import replace

    return replace(run, outcomes=tuple(replace(outcome, recipe=recipe) for outcome in run.outcomes[:1]))


def test_errors_of_the_library_name_arguments_not_options():
    """Messages of the library that name options of the command: none but those of code that only commands call."""
    source = Path(__import__("edgewise").__file__).parent
    command_only = {"report/circuit_summary.py", "report/exports.py", "report/comparisons.py"}
    offenders = []
    for path in sorted(source.rglob("*.py")):
        name = path.relative_to(source).as_posix()
        if name.startswith("cli/") or name in command_only or name == "__main__.py":
            continue
        for number, line in enumerate(path.read_text().splitlines(), start=1):
            has_option = re.search(r"(?<![\w-])--[a-z]{2,}", line)
            if has_option and not re.search(r"pip install|ray start|`edgewise |--edges|--size", line):
                offenders.append(f"{name}:{number}: {line.strip()}")
    assert offenders == []


def test_a_selection_in_place_of_a_circuit_gets_advice(model, run):
    selection = run.best("CMD").selections[1]
    for circuits in (selection, [selection], selection.circuit):
        with pytest.raises(InputError, match=r"\[circuit\].*`\.circuit`"):
            evaluate_circuits(model, random_task(5, seed=1), circuits)


def test_rows_are_places_of_examples(model, tmp_path):
    task = random_task(4)
    circuit = Circuit.full(model.graph).without("m0")
    session = Session(store=Store(tmp_path / "store"))
    values = evaluate_circuits(model, task, [circuit]).values
    chosen = evaluate_circuits(model, task, [circuit], rows=(row for row in (3, 1)), session=session).values
    assert chosen == pytest.approx(values[:, [3, 1]], abs=1e-5)
    for rows in ([4], [-1], [0.0], np.ones(4, bool)):
        with pytest.raises(InputError, match="whole numbers from 0 to 3"):
            evaluate_circuits(model, task, [circuit], rows=rows)


@pytest.mark.parametrize(
    "values, words",
    [
        ({"batch_size": 2.5}, "batch size must be a whole number"),
        ({"batch_size": "4"}, "batch size must be a whole number"),
        ({"batch_size": 0}, "at least 1"),
        ({"sizes": "0.1,1"}, "such as"),
        ({"sizes": 0.1}, "such as"),
        ({"sizes": ("0.1", 1)}, "a size must be a number"),
    ],
)
def test_impossible_settings_raise(values, words):
    with pytest.raises(InputError, match=words):
        Settings(**values)


def test_settings_take_arrays():
    settings = Settings(sizes=np.array([0.1, 1], np.float64))
    assert settings == Settings(sizes=(0.1, 1.0)) and {type(size) for size in settings.sizes} == {float}


def test_arguments_in_the_place_of_others_get_advice(model):
    task = random_task(4)
    with pytest.raises(InputError, match="batch size must be a whole number"):
        score_edges(model, task, batch_size=2.0)
    with pytest.raises(InputError, match="settings must be Settings"):
        discover(model, task, task, [Recipe()])
