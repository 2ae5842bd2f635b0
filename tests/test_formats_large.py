"""Large graphs on disk: circuits in few bytes, and json."""

import json
import tracemalloc

import numpy as np
import pytest
import test_cli
from hypothesis import given, settings, strategies as st

from edgewise import Circuit, EdgeScores, Graph, InputError
from edgewise.io.formats import read_edge_file
from edgewise.report.viewer.view import view_of
from edgewise.results import convert

edgewise = test_cli.edgewise
GRAPH = Graph(2, 2, 8)
# As many edges as Qwen2.5 0.5B has.
LARGE = Graph(24, 14, 896)
SHARES = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)


def drawn(graph: Graph, share: float = 0.3, seed: int = 0) -> tuple[Circuit, np.ndarray]:
    rng = np.random.default_rng(seed)
    return Circuit(graph, rng.random(graph.n_edges) < share), rng.normal(size=graph.n_edges)


def same(one, other):
    """Whether two files say the same; NaN for no score."""
    assert one.graph == other.graph and one.about == other.about and one.unread == other.unread
    for name in ("score", "mask"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


def test_keys_may_come_in_any_order_and_edges_may_be_empty(tmp_path):
    circuit, score = drawn(GRAPH)
    path = tmp_path / "c.json"
    circuit.save(path, score)
    first = read_edge_file(path)
    data = json.loads(path.read_text())
    path.write_text(json.dumps(dict(reversed(data.items()))))
    same(read_edge_file(path), first)
    path.write_text(json.dumps(data | {"edges": {}}))
    assert read_edge_file(path).score is None and not read_edge_file(path).mask.any()
    for key in ("cfg", "nodes", "edges"):
        for lacking in ({k: v for k, v in data.items() if k != key}, data | {key: []}):
            path.write_text(json.dumps(lacking))
            with pytest.raises(InputError, match=r"the keys cfg, nodes and edges|cfg must map|nodes must be"):
                read_edge_file(path)


@pytest.mark.parametrize(
    "old, new, words",
    [
        ('"input->a0.h1<q>"', '"input->a0.h0<q>"', "an edge is there more than once"),
        ('"nodes"', '"cfg"', "missing required field `nodes`"),
        ('"input->m0": {', '"input->m0": {"more": {}, ', "unknown field `more`"),
        ('}, "edgewise"', ',}, "edgewise"', "isn't JSON"),
        ('}}, "edgewise"', '}, "edgewise"', "isn't JSON|Expected `object`"),
        ('"edgewise"', '"x": "\\ud800", "edgewise"', "isn't JSON"),
        ('"edges": {', '"edges": {"input->m0": 1, ', "Expected `object`, got `int`"),
        ('"input->m0": {"score": ', '"input->m0": {"score": NaN', "NaN or infinite"),
    ],
)
def test_errors_of_a_json_name_the_file_and_the_problem(tmp_path, old, new, words):
    circuit, score = drawn(GRAPH)
    path = tmp_path / "c.json"
    circuit.save(path, score)
    text = path.read_text()
    assert text.count(old) == 1
    path.write_text(text.replace(old, new))
    with pytest.raises(InputError, match=words):
        read_edge_file(path)
    path.write_text(text + "x")
    with pytest.raises(InputError, match="isn't JSON"):
        read_edge_file(path)


def test_an_edge_without_membership_raises_if_others_have_it(tmp_path):
    circuit, score = drawn(GRAPH)
    path = tmp_path / "c.json"
    circuit.save(path, score)
    data = json.loads(path.read_text())
    del data["edges"]["input->m1"]["in_graph"]
    path.write_text(json.dumps(data))
    with pytest.raises(InputError, match="some edges say whether they are in_graph"):
        read_edge_file(path)
    for info in data["edges"].values():
        info.pop("in_graph", None)
    path.write_text(json.dumps(data))
    assert read_edge_file(path).mask is None
    np.testing.assert_array_equal(EdgeScores.load(path).values[0], score)


@pytest.mark.parametrize("suffix", [".json", ".npz"])
def test_reading_and_writing_take_little_more_memory_than_the_arrays(tmp_path, suffix):
    graph = Graph(16, 12, 4)
    circuit, score = drawn(graph)
    path = tmp_path / f"c{suffix}"
    assert graph.n_edges > 50_000 and graph.edge_head.size and graph.source_names  # made once for all
    for act in (lambda: circuit.save(path, score), lambda: read_edge_file(path)):
        tracemalloc.start()
        act()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < (60e6 if suffix == ".json" else 3e6), f"{peak:,}"


def test_circuits_of_every_size_take_few_bytes(tmp_path):
    for share in SHARES:
        circuit, score = drawn(LARGE, share)
        circuit.save(tmp_path / f"{share}.npz", score, {"model": "large"})
        assert Circuit.load(tmp_path / f"{share}.npz") == circuit
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 2e6


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 4), st.integers(1, 4), st.booleans(), st.floats(0, 1), st.integers(0, 99))
def test_a_circuit_survives_npz(tmp_path_factory, layers, heads, parallel, share, seed):
    circuit, score = drawn(Graph(layers, heads, 4, parallel), share, seed)
    score = score.astype(np.float32).astype(np.float64)
    folder = tmp_path_factory.mktemp("packed")
    circuit.save(folder / "c.npz", score, {"origin": "ü"})
    held = read_edge_file(folder / "c.npz")
    assert Circuit(held.graph, held.require_mask()) == circuit and held.about == {"origin": "ü"}
    np.testing.assert_array_equal(held.score[circuit.mask], score[circuit.mask])
    assert np.isnan(held.score[~circuit.mask]).all()
    if circuit.n_edges:  # by way of the field's files, and back
        for suffix in (".json", ".pt"):
            convert(folder / "c.npz", folder / f"c{suffix}")
            convert(folder / f"c{suffix}", folder / "back.npz", overwrite=True)
            assert (folder / "back.npz").read_bytes() == (folder / "c.npz").read_bytes()


def test_the_viewer_has_the_scores_of_every_circuit_in_a_folder(tmp_path):
    _, score = drawn(GRAPH)
    places = np.arange(GRAPH.n_edges)
    for name, mask in (("c-0.2", places < 9), ("c-0.5", places >= 20)):  # neither holds the other
        Circuit(GRAPH, mask).save(tmp_path / f"{name}.npz", score)
    (seen,) = view_of([tmp_path]).runs
    np.testing.assert_array_equal(seen.mean, np.where((places >= 9) & (places < 20), 0, score.astype(np.float32)))


def test_an_npz_is_no_file_of_scores_and_scores_are_no_npz(tmp_path):
    circuit, score = drawn(GRAPH)
    circuit.save(tmp_path / "c.npz", score)
    with pytest.raises(InputError, match="edges have no score"):
        EdgeScores.load(tmp_path / "c.npz")
    EdgeScores(GRAPH, score[None]).save(tmp_path / "scores")
    with pytest.raises(InputError, match="select a circuit first"):
        convert(tmp_path / "scores", tmp_path / "s.npz")
    with pytest.raises(InputError, match="too large"):
        circuit.save(tmp_path / "d.npz", score * 1e300)
    done = convert(tmp_path / "c.npz", tmp_path / "c.json")
    assert done.notes == ("edges outside have score 0: the source has scores of those inside only",)
    circuit.save(tmp_path / "full.json", score)
    assert convert(tmp_path / "full.json", tmp_path / "e.npz").notes == ("scores of edges outside aren't kept",)


@pytest.mark.parametrize(
    "change, words",
    [
        (lambda a: a | {"inside": a["inside"][:-1]}, "inside has"),
        (lambda a: a | {"score": a["score"][1:]}, "scores for"),
        (lambda a: a | {"score": a["score"] * np.float32("nan")}, "NaN or infinite"),
        (lambda a: a | {"about": a["about"][:-1]}, "about in .* can't be read"),
        (lambda a: a | {"more": a["about"]}, "must hold the arrays about, inside, score"),
        (lambda a: {"score": a["score"]}, "must hold the arrays about, inside, score"),
    ],
)
def test_damaged_npz_circuits_raise(tmp_path, change, words):
    circuit, score = drawn(GRAPH)
    circuit.save(tmp_path / "c.npz", score)
    np.savez(tmp_path / "d.npz", **change(dict(np.load(tmp_path / "c.npz"))))
    with pytest.raises(InputError, match=words):
        read_edge_file(tmp_path / "d.npz")


def test_a_folder_of_circuits_converts_to_eap_ig_files(edgewise, tmp_path):
    made = {f"cmd-{share}": drawn(GRAPH, share) for share in (0.3, 0.5)}
    (tmp_path / "circuits").mkdir()
    for name, (circuit, score) in made.items():
        circuit.save(tmp_path / "circuits" / f"{name}.npz", score)
    for words, suffix in (((), "json"), (("--format", "PT"), "pt")):
        target = tmp_path / f"as {suffix}"
        code, out, _ = edgewise("convert", tmp_path / "circuits", target, *words)
        assert code == 0 and out.count("wrote") == 2 and out.count("note:") == 1
        assert {path.name: Circuit.load(path) for path in target.iterdir()} == {
            f"{name}.{suffix}": circuit for name, (circuit, _) in made.items()
        }
    assert "choose another folder" in test_cli.refused(edgewise, "convert", tmp_path / "circuits", tmp_path / "as json")
    assert "'pt', 'json'" in test_cli.refused(
        edgewise, "convert", tmp_path / "circuits", tmp_path / "x", "--format", "npz"
    )
