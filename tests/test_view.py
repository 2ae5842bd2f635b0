"""The viewer page: it shows the results, and untrusted text stays inside its data blocks."""

from __future__ import annotations

import base64
import json
import re
import zlib
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
from conftest import build, random_task

from edgewise import CMD, CPR, Circuit, EdgeScores, Graph, InputError, Recipe, Settings, discover, wrap_model
from edgewise.graph import NeuronGraph, NodeGraph
from edgewise.learn import TopKLearner
from edgewise.recipes.recipe import GREEDY
from edgewise.recipes.run_info import Prompt
from edgewise.report import figures
from edgewise.report.overview import centred_statistics
from edgewise.report.viewer import view as view_page
from edgewise.report.viewer.view import View, ViewRow, ViewRun, ViewSize, page_of, plain_view, view_of
from edgewise.report.write_result import NotShownWarning, write_derived, write_result
from edgewise.results import read_result
from edgewise.results.result_folder import read_attention
from edgewise.select import Ilp

EVIL = "</script><script>alert(1)</script><!-- <b>& \"'"
RECIPES = {
    CMD: (GREEDY, Recipe(Ilp()), Recipe(learner=TopKLearner(steps=2, batch=2))),
    CPR: (GREEDY, Recipe(Ilp(), learner=TopKLearner(CPR, steps=2, batch=2))),
}


class Scripts(HTMLParser):
    """The contents of a page's scripts, by id or type, as a browser cuts them out; and all its tags."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: dict[str, str] = {}
        self.tags: list[str] = []
        self._open = ""
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        said = dict(attributes)
        self.tags.append(tag)
        self._open = (said.get("id") or said.get("type") or "") if tag == "script" else ""

    def handle_data(self, data):
        if self._open:
            self.found[self._open] = self.found.get(self._open, "") + data

    def handle_endtag(self, tag):
        self._open = ""


def unpacked(page: str) -> tuple[dict, dict[str, np.ndarray]]:
    """A page's words and arrays, read by what view_page's docstring says."""
    scripts = Scripts(page).found
    about, held = json.loads(scripts["about"]), zlib.decompress(base64.b64decode(scripts["arrays"]))
    arrays = {}
    for name, place in about["arrays"].items():
        shape, at = tuple(place["shape"]), place["at"]
        count = int(np.prod(shape))
        if place["kind"] == "f4":
            planes = np.frombuffer(held, np.uint8, 4 * count, at).reshape(4, count)
            arrays[name] = np.ascontiguousarray(planes.T).view("<f4").reshape(shape)
        elif place["kind"] == "bits":
            wide = (*shape[:-1], (shape[-1] + 7) // 8)
            packed = np.frombuffer(held, np.uint8, int(np.prod(wide)), at).reshape(wide)
            arrays[name] = np.unpackbits(packed, axis=-1, count=shape[-1]).astype(bool)
        else:
            arrays[name] = np.frombuffer(held, f"<{place['kind']}", count, at).reshape(shape)
    return about, arrays


def tiny_run(test=None, tokenizer=None):
    """The result of the smallest run, with greedy only."""
    model = replace(wrap_model(build("gpt2"), name="tiny"), tokenizer=tokenizer)
    test = test or random_task(2, seed=1)
    return discover(model, random_task(3), test, Settings(sizes=(0.1, 1.0)), {CMD: (GREEDY,)})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    model = wrap_model(build("gpt2"), name="tiny")
    found = discover(model, random_task(6), random_task(5, seed=1), Settings(sizes=(0.001, 0.05, 0.3, 1.0)), RECIPES)
    path = tmp_path_factory.mktemp("view") / "result"
    write_result(found, path)
    return path


def test_the_page_of_a_run_has_its_results(folder):
    result = read_result(folder)
    about, arrays = unpacked((folder / "viewer.html").read_text("utf-8"))
    graph, statistics = result.run.graph, centred_statistics(read_result(folder))
    np.testing.assert_allclose(statistics.mean, EdgeScores.load(folder).mean())
    resampled = result.statistics
    np.testing.assert_allclose(statistics.high - statistics.low, resampled.high - resampled.low)
    edges = graph.edges_between(arrays["source"].astype(int), arrays["destination"].astype(int))
    assert sorted(edges) == list(range(graph.n_edges))
    assert (np.diff(np.abs(statistics.mean[edges])) <= 0).all()
    for name in ("mean", "low", "high"):
        np.testing.assert_allclose(arrays[f"run0.{name}"], getattr(statistics, name)[edges], rtol=2**-12)
    assert (arrays["run0.unstable"] == statistics.sign_unstable[edges]).all()
    names = [(outcome.measure.name, outcome.name) for outcome in result.outcomes]
    assert [(row["measure"], row["method"]) for row in about["rows"]] == names
    for place, row in enumerate(result.outcomes):
        learned = result.learned.get(row.recipe.learner)
        said, masks = about["rows"][place], arrays[f"row{place}.masks"]
        # A size that asks for no edge isn't shown.
        kept = [at for at, asked in enumerate(row.curve.n_requested) if asked]
        assert 0 < len(kept) < len(row.curve.n_requested)
        assert [size["share"] for size in said["sizes"]] == [row.curve.shares[at] for at in kept]
        for size, at in enumerate(kept):
            assert (masks[size] == row.circuits[at].mask[edges]).all()
            assert said["sizes"][size]["kept"] == masks[size].sum()
            assert said["sizes"][size]["faithfulness"] == pytest.approx(row.curve.faithfulness[at])
        np.testing.assert_allclose(arrays[f"row{place}.metric"], row.curve.values[kept], rtol=2**-12, atol=1e-30)
        assert said["area"] == row.area and said["interval"][0] <= row.area <= said["interval"][1]
        assert (f"row{place}.value" in arrays) == (row.recipe.learner is not None)
        if learned is not None:
            np.testing.assert_allclose(arrays[f"row{place}.value"], learned.value[edges], rtol=2**-12)
    seen = result.attention
    assert seen is not None and about["runs"][0]["patterns"] == {
        "examples": list(seen.examples),
        "heads": list(seen.heads),
    }
    for place, values in enumerate(seen.values):
        assert (arrays[f"run0.pattern{place}"] == values).all()


def test_learned_rankings_are_stored_with_the_result(folder):
    result = read_result(folder)
    learned = {learner.measure: ranking.value for learner, ranking in result.learned.items()}
    assert set(learned) == {CMD, CPR} and not np.array_equal(learned[CMD], learned[CPR])
    with np.load(folder / "learned.npz") as held:
        assert sorted(held.files) == ["CMD", "CPR"]
        np.testing.assert_array_equal(held["CPR"], learned[CPR])


def test_equal_views_give_equal_pages_and_the_exported_recipe_is_shown_first(folder):
    view = view_of([folder])
    assert page_of(view) == page_of(view_of([folder])) == (folder / "viewer.html").read_text("utf-8")
    best = max((row for row in view.rows if row.measure == "CMD"), key=lambda row: -row.area)
    assert view.rows[view.shown] is best


def evil_view() -> View:
    graph = Graph(1, 2, 4)
    score = np.linspace(-1, 1, graph.n_edges)
    prompt = Prompt((EVIL, "\n"), ("\u2028", EVIL), EVIL, "x")
    run = ViewRun(EVIL, {EVIL: EVIL}, score, full=np.ones(1), empty=np.zeros(1), prompts=(prompt,))
    row = ViewRow(0, "CMD", EVIL, (ViewSize(1.0, graph.n_edges, graph.n_edges),), (Circuit.full(graph),), EVIL)
    return View(EVIL, graph, (run,), (row,))


def test_names_and_tokens_cannot_break_out_of_the_data_blocks():
    page = page_of(evil_view())
    scripts, honest = Scripts(page), Scripts(page_of(replace(evil_view(), title="x")))
    assert scripts.tags == honest.tags
    about, _ = unpacked(page)
    assert about["title"] == about["runs"][0]["name"] == about["rows"][0]["method"] == EVIL
    assert about["runs"][0]["prompts"][0]["corrupted"] == ["\u2028", EVIL]


def test_a_page_makes_no_requests(folder):
    page = (folder / "viewer.html").read_text("utf-8")
    assert re.search(r"Content-Security-Policy\" content=\"default-src 'none'", page)
    scripts = json.loads(Scripts(page).found["importmap"])["imports"]
    sources = [base64.b64decode(source.partition(",")[2]).decode() for source in scripts.values()]
    assert not [text for text in (page, *sources) if re.search(r"(src|href)\s*=\s*[\"']?(https?:)?//", text)]
    for text in sources:
        assert all(name in scripts for name in re.findall(r"from \"(.*?)\"", text))
        assert not re.search(r"innerHTML|outerHTML\s*=|insertAdjacentHTML|document\.write|\beval\(", text)


def test_a_page_of_a_very_large_graph_has_the_edges_of_the_smallest_circuits(monkeypatch):
    monkeypatch.setattr(view_page, "MAX_EDGES", 20)
    graph = Graph(2, 2, 4)
    draw = np.random.default_rng(0)
    score = draw.normal(size=graph.n_edges)
    weakest = np.argsort(np.abs(score))[:5]
    small = Circuit(graph, np.isin(np.arange(graph.n_edges), weakest))
    row = ViewRow(0, "", "small", (ViewSize(0.1, 5, 5),), (small,))
    about, arrays = unpacked(page_of(View("large", graph, (ViewRun("run", {}, score),), (row,))))
    edges = graph.edges_between(arrays["source"].astype(int), arrays["destination"].astype(int))
    assert about["graph"]["edges"] == graph.n_edges and about["graph"]["held"] == len(edges) == 20
    assert set(weakest) < set(edges.tolist()) and arrays["row0.masks"].sum() == 5
    strongest = np.argsort(-np.abs(score))[:15]
    assert set(edges.tolist()) == {*weakest.tolist(), *strongest.tolist()}


def test_a_known_circuit_is_part_of_the_page(folder):
    graph = read_result(folder).run.graph
    truth = Circuit(graph, np.arange(graph.n_edges) % 3 == 0)
    about, arrays = unpacked(page_of(view_of([folder], truth)))
    edges = graph.edges_between(arrays["source"].astype(int), arrays["destination"].astype(int))
    assert (arrays["truth"] == truth.mask[edges]).all() and about["arrays"]["truth"]["kind"] == "bits"
    assert "truth" not in unpacked(page_of(view_of([folder])))[0]["arrays"]
    with pytest.raises(InputError, match="known circuit"):
        view_of([folder], Circuit.full(Graph(7, 3, 4)))


def test_the_goal_of_a_curve_is_the_size_that_is_shown_by_default(folder):
    about, result = unpacked((folder / "viewer.html").read_text("utf-8"))[0], read_result(folder)
    for row, outcome in zip(about["rows"], result.outcomes, strict=True):
        curve = outcome.curve
        values = [size["faithfulness"] for size in row["sizes"] if size["share"] < 1]
        reached = [abs(value - 1) <= 0.1 if outcome.measure == CMD else value >= 0.9 for value in values]
        assert row["goal"] == ("within 0.1 of 1" if outcome.measure == CMD else "0.9 or more")
        assert row["reached"] == (reached.index(True) if any(reached) else None)
        if row["reached"] is not None:
            assert row["sizes"][row["reached"]]["share"] == curve.shares[outcome.default_size]


def test_circuit_files_and_folders_of_them_are_shown(folder, tmp_path):
    graph = Graph(2, 2, 4)
    draw = np.random.default_rng(1)
    score = draw.normal(size=graph.n_edges)
    for name, edges in (("a-0.1", 5), ("a-0.5", 20), ("b-0.1", 7)):
        Circuit(graph, np.arange(graph.n_edges) < edges).save(tmp_path / f"{name}.json", score)
    one = view_of([tmp_path / "a-0.5.json"])
    assert one.title == "a-0.5" and [size.kept for size in one.rows[0].sizes] == [20]
    np.testing.assert_allclose(one.runs[0].mean, score)
    every = view_of([tmp_path])
    assert {row.method: [size.kept for size in row.sizes] for row in every.rows} == {"a": [5, 20], "b": [7]}
    unpacked(page_of(every))
    # Names that don't end in a size are circuits of their own, not sizes of one another.
    for name in ("greedy", "best-ilp", "best-2e-05"):
        Circuit(graph, np.arange(graph.n_edges) < 3).save(tmp_path / "more" / f"{name}.json", score)
    assert {row.method: len(row.sizes) for row in view_of([tmp_path / "more"]).rows} == {
        "greedy": 1,
        "best-ilp": 1,
        "best": 1,
    }
    two = view_of([tmp_path / "a-0.1.json", tmp_path / "b-0.1.json"])
    assert [row.run for row in two.rows] == [0, 1] and two.title == "a-0.1 and b-0.1"
    with pytest.raises(InputError, match="show them on separate pages"):
        view_of([folder, tmp_path])


def test_runs_of_equal_names_get_unique_names(folder):
    both = view_of([folder, folder])
    assert len({run.name for run in both.runs}) == 2
    assert [row.run for row in both.rows] == [0] * 5 + [1] * 5


def test_paths_without_circuits_raise_an_error_with_advice(folder, tmp_path):
    for path in (folder / "scores", tmp_path, tmp_path / "missing.json"):
        with pytest.raises(InputError):
            view_of([path])


@pytest.mark.parametrize(
    "change",
    [{"heads": [0]}, {"heads": [4]}, {"heads": [1, 1]}, {"examples": [5]}, {"examples": [0, 0]}, {"lengths": [0, 5]},
     {"lengths": [10**9, 10**9]}, {"values": []}],
)  # fmt: skip
def test_damaged_attention_raises_an_error(folder, tmp_path, change):
    run = read_result(folder).run
    held = {"examples": [0, 1], "lengths": [2, 2], "heads": [1], "values": [255, 100, 155] * 4}
    kinds = {"values": np.uint8}
    for given, fits in ((held, True), (held | change, False)):
        np.savez(tmp_path / "attention.npz", **{k: np.array(v, kinds.get(k, np.int64)) for k, v in given.items()})
        if fits:
            seen = read_attention(tmp_path, run)
            np.testing.assert_allclose(seen.pattern(1, 1), [[1, 0], [100 / 255, 155 / 255]])
        else:
            with pytest.raises(InputError, match=r"attention\.npz"):
                read_attention(tmp_path, run)


class StrangeTokenizer:
    """A tokenizer that fails in its own way on every token."""

    def __init__(self, piece):
        self.piece = piece

    def convert_ids_to_tokens(self, token):
        if isinstance(self.piece, Exception):
            raise self.piece
        return self.piece

    def decode(self, tokens):
        return self.piece


@pytest.mark.parametrize("piece", [IndexError("no"), b"bytes", 7, None, "\ud800", ["a"]])
def test_a_failing_tokenizer_does_not_lose_the_run(tmp_path, piece):
    write_result(tiny_run(tokenizer=StrangeTokenizer(piece)), tmp_path / "r")
    first = random_task(2, seed=1).examples[0]
    said = read_result(tmp_path / "r").prompts
    assert said[0].clean == tuple(f"<{token}>" for token in first.clean) and said[0].correct == f"<{first.correct}>"


def test_a_failing_figure_does_not_lose_the_run(tmp_path, monkeypatch):
    result = tiny_run()
    monkeypatch.setattr(figures, "FIGURES", {"circuit": lambda *_: 1 / 0})
    with pytest.warns(NotShownWarning, match=r"all data.*division by zero.*edgewise report"):
        write_result(result, tmp_path / "r")
    assert [row.name for row in read_result(tmp_path / "r").outcomes] == ["Greedy"]
    monkeypatch.undo()
    write_derived(tmp_path / "r", read_result(tmp_path / "r"))
    assert (tmp_path / "r" / "viewer.html").is_file() and (tmp_path / "r" / "README.md").is_file()


@pytest.mark.parametrize("attention", [-1, 2.5, None, True])
def test_an_invalid_number_of_attention_examples_raises_before_any_work(attention):
    with pytest.raises(InputError, match="number of examples"):
        discover(None, None, None, attention=attention)


def test_attention_examples_range_from_the_worst_to_the_best():
    model, test = wrap_model(build("gpt2")), random_task(9, seed=1)
    found = discover(model, random_task(3), test, Settings(sizes=(0.02, 0.3, 1.0)), {CMD: (GREEDY,)})
    curve = found.outcomes[0].curve
    distance = np.abs(1 - (curve.values[found.outcomes[0].default_size] - curve.empty) / (curve.full - curve.empty))
    assert found.attention.examples[0] == distance.argmax() and found.attention.examples[-1] == distance.argmin()


def test_circuit_files_show_their_own_scores_or_none(tmp_path):
    graph = Graph(2, 2, 4)
    draw = np.random.default_rng(1)
    scores = {name: draw.normal(size=graph.n_edges) for name in ("a", "b")}
    for name, score in scores.items():
        Circuit(graph, np.arange(graph.n_edges) < 9).save(tmp_path / f"{name}-0.1.json", score)
    Circuit.empty(graph).save(tmp_path / "a-0.json", scores["a"])
    view = view_of([tmp_path])
    assert [row.method for row in view.rows] == ["a", "b"] and all(row.value is None for row in view.rows)
    for row in view.rows:
        np.testing.assert_allclose(view.runs[row.run].mean, scores[row.method])
        assert [size.kept for size in row.sizes] == [9]  # of an empty circuit there is nothing to see
    Circuit.full(graph).save(tmp_path / "plain.json")
    about, _ = unpacked(page_of(view_of([tmp_path / "plain.json", tmp_path / "a-0.1.json"])))
    assert [run["scored"] for run in about["runs"]] == [False, True]


def test_long_prompts_are_truncated(tmp_path, monkeypatch):
    test = random_task(4, seed=1)
    first, second = (2 * example.length for example in test.examples[:2])
    monkeypatch.setattr("edgewise.recipes.run_info.MAX_TOKENS", first + second + 1)
    write_result(tiny_run(test), tmp_path / "r")
    assert [len(prompt.clean) for prompt in read_result(tmp_path / "r").prompts] == [first / 2, second / 2]
    about, arrays = unpacked((tmp_path / "r" / "viewer.html").read_text("utf-8"))
    assert len(about["runs"][0]["prompts"]) == 2 and arrays["row0.metric"].shape[1] == 4
    path = tmp_path / "r" / "examples.json"
    path.write_text(path.read_text().replace('"left_out": 2', '"left_out": 1'))
    with pytest.raises(InputError, match="other prompts"):
        read_result(tmp_path / "r")


def test_the_sign_of_a_sum_over_neurons_is_not_said_to_change():
    """The statistics are of single neurons: of their sum, neither the interval nor the sign is known."""
    graph, score = Graph(2, 2, 4), np.ones
    for kind, is_known in ((NodeGraph(graph), True), (NeuronGraph(graph), False)):
        n = kind.n_edges
        run = ViewRun("run", {}, score(n), score(n), score(n), np.arange(n) % 2 == 0)
        row = ViewRow(0, "", "all", (ViewSize(1.0, n, n),), (Circuit.full(kind),))
        shown = plain_view(View("x", kind, (run,), (row,))).runs[0]
        assert [values is not None for values in (shown.low, shown.high, shown.unstable)] == [is_known] * 3


def test_each_run_of_a_page_has_the_unit_of_its_sizes(tmp_path):
    plain = Graph(2, 2, 4)
    for name, graph in (("edges", plain), ("nodes", NodeGraph(plain))):
        Circuit.full(graph).save(tmp_path / f"{name}.json", np.ones(graph.n_edges))
    about, _ = unpacked(page_of(view_of([tmp_path / "edges.json", tmp_path / "nodes.json"])))
    assert [run["unit"] for run in about["runs"]] == ["edge", "node"]
