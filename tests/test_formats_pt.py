"""EAP-IG's pt: what goes in comes out, it is what EAP-IG writes, and it never runs code."""

import itertools
import json
import pickle
import re
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from hypothesis.extra.numpy import arrays

from edgewise import Circuit, EdgeScores, Graph, InputError
from edgewise.io.formats import read_edge_file
from edgewise.results import convert

GRAPH = Graph(2, 2, 6)
FINITE = {32: st.floats(width=32, allow_nan=False, allow_infinity=False),
          64: st.floats(width=64, allow_nan=False, allow_infinity=False)}  # fmt: skip


@st.composite
def circuits_with_scores(draw):
    graph = Graph(draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.integers(1, 9)), draw(st.booleans()))
    mask = draw(arrays(bool, graph.n_edges))
    width = draw(st.sampled_from([32, 64]))
    return Circuit(graph, mask), draw(arrays(f"f{width // 8}", graph.n_edges, elements=FINITE[width]))


@settings(max_examples=40, deadline=None)
@given(circuits_with_scores(), st.permutations([".json", ".pt", ".json", ".pt"]))
def test_conversions_between_json_and_pt_are_the_identity(given_, suffixes):
    circuit, score = given_
    about = {"method": "ILP", "share": 0.1, "sizes": [1, 2], "pnr": None}
    with TemporaryDirectory() as folder:
        paths = [Path(folder) / f"{step}{suffix}" for step, suffix in enumerate(suffixes)]
        circuit.save(paths[0], score, about)
        for source, target in itertools.pairwise(paths):
            convert(source, target)
        file = read_edge_file(paths[-1])
        assert Circuit.load(paths[-1]) == circuit and file.graph == circuit.graph and dict(file.about) == about
        np.testing.assert_array_equal(file.require_scores(), score)
        assert paths[-1].suffix == ".json" or score.dtype == np.float64 or file.score.dtype == np.float32


@pytest.mark.parametrize("suffix", [".json", ".pt", ".npz"])
@pytest.mark.parametrize("kind", [str, Path])
def test_a_circuit_without_scores_is_saved_with_zeros(tmp_path, suffix, kind):
    circuit, path = Circuit(GRAPH, np.arange(GRAPH.n_edges) % 2 == 0), kind(tmp_path / "new" / f"c{suffix}")
    circuit.save(path)
    again, file = Circuit.load(path), read_edge_file(Path(path))
    assert again == circuit and hash(again) == hash(circuit)
    assert not file.score[circuit.mask].any() and not file.about


@settings(max_examples=40, deadline=None)
@given(circuits_with_scores(), st.randoms())
def test_a_circuit_is_made_again_from_the_names_of_its_edges(given_, random):
    circuit, _ = given_
    names = list(circuit.edges)
    assert names == [name for name, inside in zip(circuit.graph.edge_names, circuit.mask, strict=True) if inside]
    random.shuffle(names)
    assert Circuit.from_edges(circuit.graph, iter(names)) == circuit
    if names:
        with pytest.raises(InputError, match="is given 2 times"):
            Circuit.from_edges(circuit.graph, iter(names + names[:1]))


@pytest.mark.parametrize("name", ["m1->m0", "a0.h0->m2", "input", "", "logits->input", "input->a0.h0", 7])
def test_an_unknown_edge_raises_with_its_name(name):
    with pytest.raises(InputError, match=re.escape(repr(name))):
        Circuit.from_edges(GRAPH, ["input->logits", name])


@settings(max_examples=20, deadline=None)
@given(circuits_with_scores(), st.sampled_from([".json", ".pt"]))
def test_one_row_of_scores_survives_every_format(given_, suffix):
    circuit, score = given_
    with TemporaryDirectory() as folder:
        first, file, last = (Path(folder) / name for name in ("first", f"file{suffix}", "last"))
        EdgeScores(circuit.graph, score[None]).save(first)
        convert(first, file)
        convert(file, last)
        again = EdgeScores.load(last)
        assert again.graph == circuit.graph
        np.testing.assert_array_equal(again.values[0], score)


def test_a_file_holds_the_mean_score(tmp_path):
    values = np.random.default_rng(0).normal(size=(5, GRAPH.n_edges)).astype(np.float32)
    EdgeScores(GRAPH, values, {"task": "ioi"}).save(tmp_path / "scores")
    for name in ("scores.json", "scores.pt"):
        done = convert(tmp_path / "scores", tmp_path / name)
        assert any("mean over 5 examples" in note for note in done.notes)
        held = read_edge_file(tmp_path / name)
        np.testing.assert_allclose(held.score, values.astype(np.float64).mean(0), rtol=1e-12, atol=1e-15)
        assert not held.mask.any() and held.about["task"] == "ioi"
    done = convert(tmp_path / "scores", tmp_path / "copy")
    assert not done.notes
    np.testing.assert_array_equal(EdgeScores.load(tmp_path / "copy").values, values)


def test_converting_without_scores_writes_zeros_and_a_note(tmp_path):
    path = broken(tmp_path, lambda data: data.pop("edges_scores"))
    done = convert(path, tmp_path / "out.json")
    assert any("every score is 0" in note for note in done.notes)
    held = read_edge_file(tmp_path / "out.json")
    assert Circuit(held.graph, held.require_mask()) == Circuit.load(path) and not held.score.any()


def test_conversion_names_the_content_it_drops(tmp_path):
    path = broken(tmp_path, lambda data: data.update(nodes_scores=torch.zeros(GRAPH.n_sources)))
    assert any("nodes_scores" in note for note in convert(path, tmp_path / "out.json").notes)


def test_eap_ig_files_are_read(parity_folder):
    from_json, from_pt = (read_edge_file(parity_folder / f"importances{suffix}") for suffix in (".json", ".pt"))
    graph = from_json.graph
    assert graph == from_pt.graph and np.array_equal(from_json.require_mask(), from_pt.require_mask())
    np.testing.assert_array_equal(from_json.score, from_pt.score)
    expected = np.load(parity_folder / "scores.npz")["EAP-IG-inputs|f64"][graph.edge_source, graph.edge_destination]
    np.testing.assert_allclose(from_pt.score, expected, rtol=1e-5, atol=1e-7)


def test_written_files_equal_those_of_eap_ig(parity_folder, tmp_path):
    folder = parity_folder
    convert(folder / "importances.json", tmp_path / "ours.pt")
    convert(folder / "importances.pt", tmp_path / "ours.json")
    theirs = torch.load(folder / "importances.pt", weights_only=True)
    ours = torch.load(tmp_path / "ours.pt", weights_only=True)
    assert set(ours) == {*theirs, "edgewise"}
    for key, value in theirs.items():
        if isinstance(value, torch.Tensor):
            assert ours[key].dtype == value.dtype and torch.equal(ours[key], value)
        else:
            assert ours[key] == value
    data = json.loads((tmp_path / "ours.json").read_text())
    data.pop("edgewise")
    assert data == json.loads((folder / "importances.json").read_text())


def broken(tmp_path, change):
    path = tmp_path / "file.pt"
    rng = np.random.default_rng(0)
    circuit = Circuit(GRAPH, rng.random(GRAPH.n_edges) < 0.3)
    circuit.save(path, rng.normal(size=GRAPH.n_edges), {})
    data = torch.load(path, weights_only=True)
    change(data)
    torch.save(data, path)
    return path


def set_at(key, source, destination, value):
    def change(data):
        data[key][GRAPH.source_names.index(source), GRAPH.destination_names.index(destination)] = value

    return change


@pytest.mark.parametrize(
    "change, words",
    [(lambda d: d.pop("cfg"), "keys cfg"), (lambda d: d.pop("edges_in_graph"), "keys cfg"),
     (lambda d: d.pop("edges_scores"), "no scores"), (lambda d: d["cfg"].pop("d_model"), "cfg must map .*d_model"),
     (lambda d: d.update(cfg=3), "cfg must map"), (lambda d: d["cfg"].update(n_layers=10**12), "larger"),
     (lambda d: d["cfg"].update(n_layers=3), r"shape \[7, 15\].*\[10, 22\]"),
     (lambda d: d.update(edges_scores=d["edges_scores"].T), r"edges_scores has shape \[15, 7\]"),
     (lambda d: d.update(edges_in_graph=d["edges_in_graph"][1:]), r"edges_in_graph has shape \[6, 15\]"),
     (lambda d: d.update(nodes_in_graph=torch.ones(8)), r"nodes_in_graph has shape \[8\]"),
     (lambda d: d.update(edges_scores=[1.0]), "dense tensor"),
     (lambda d: d.update(edges_scores=d["edges_in_graph"]), "holds bool"),
     (lambda d: d.update(edges_scores=d["edges_scores"].to_sparse()), "_rebuild_sparse_tensor"),
     (lambda d: d["src_nodes"].pop(), "src_nodes must list the nodes"),
     (lambda d: d.update(src_nodes=7), "not iterable"),
     (lambda d: d["dst_nodes"].reverse(), "dst_nodes must list the nodes"),
     (lambda d: d.update(edges_in_graph=d["edges_in_graph"] * 2), "true or false"),
     (set_at("edges_scores", "m0", "logits", float("nan")), "NaN.*m0->logits"),
     (set_at("edges_scores", "m0", "logits", float("inf")), "infinite.*m0->logits"),
     (set_at("edges_in_graph", "m1", "m0", True), "false where .* has no edge")],
)  # fmt: skip
def test_a_broken_pt_raises(tmp_path, change, words):
    with pytest.raises(InputError, match=words):
        EdgeScores.load(broken(tmp_path, change))


def test_scores_of_pairs_without_an_edge_are_ignored(tmp_path):
    plain = EdgeScores.load(broken(tmp_path, lambda data: None)).values
    again = EdgeScores.load(broken(tmp_path, set_at("edges_scores", "m1", "m0", float("nan")))).values
    np.testing.assert_array_equal(again, plain)


def test_half_precision_flags_as_numbers_and_names_as_keys_are_read(tmp_path):
    def change(data):
        data["edges_scores"] = data["edges_scores"].to(torch.bfloat16).requires_grad_()
        data["edges_in_graph"] = data["edges_in_graph"].float()
        data["src_nodes"] = dict.fromkeys(data["src_nodes"], True)

    plain = read_edge_file(broken(tmp_path, lambda data: None))
    path = broken(tmp_path, change)
    held = read_edge_file(path)
    assert held.graph == plain.graph and np.array_equal(held.require_mask(), plain.require_mask())
    np.testing.assert_allclose(EdgeScores.load(path).values[0], plain.score, rtol=2**-8)


def test_circuits_of_neurons_raise(tmp_path):
    path = broken(tmp_path, lambda data: data.update(neurons_in_graph=torch.ones(GRAPH.n_sources, 6)))
    with pytest.raises(InputError, match="circuit of neurons"):
        Circuit.load(path)


class Hostile:
    """Makes a file where it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


@pytest.mark.parametrize("save", [torch.save, lambda data, path: path.write_bytes(pickle.dumps(data))])
@pytest.mark.parametrize("read", [EdgeScores.load, Circuit.load])
def test_a_file_with_code_raises_and_runs_nothing(tmp_path, save, read):
    path, mark = tmp_path / "file.pt", tmp_path / "mark"
    save({"cfg": Hostile(mark), "edges_scores": torch.ones(2)}, path)
    pickle.loads(pickle.dumps(Hostile(mark))).close()
    assert mark.exists()  # the threat is real
    mark.unlink()
    with pytest.raises(InputError, match=r"could run code|not by torch") as refusal:
        read(path)
    assert not mark.exists() and "weights_only=False" not in str(refusal.value)


@pytest.mark.parametrize("content", [b"", b"not torch", b"PK\x03\x04 half a zip", b"\x80\x02}.", None])
def test_files_of_other_formats_and_truncated_files_raise(tmp_path, content):
    path = broken(tmp_path, lambda data: None)
    path.write_bytes(path.read_bytes()[:-100] if content is None else content)
    with pytest.raises(InputError, match="isn't a torch file"):
        Circuit.load(path)


@pytest.mark.parametrize("suffix", [".json", ".pt"])
def test_wrong_targets_raise_and_write_nothing(tmp_path, suffix):
    source = tmp_path / f"circuit{suffix}"
    Circuit.full(GRAPH).save(source, np.ones(GRAPH.n_edges), {})
    before = source.read_bytes()
    with pytest.raises(InputError, match="overwrite=True"):
        convert(source, source)
    with pytest.raises(InputError, match=r"\.json, \.pt or \.npz"):
        convert(source, tmp_path / "out.npy")
    convert(source, source, overwrite=True)
    assert source.read_bytes() == before
    partial = tmp_path / "partial.json"
    Circuit.full(GRAPH).save(partial, np.ones(GRAPH.n_edges), {})
    data = json.loads(partial.read_text())
    data["edges"].pop("input->logits")
    partial.write_text(json.dumps(data))
    with pytest.raises(InputError, match="input->logits"):
        convert(partial, tmp_path / "out.pt")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted({source.name, "partial.json"})
