"""Files: save and load are inverse; a file that isn't right is refused in words, and nothing is half-written."""

import json

import numpy as np
import pytest

from edgewise import Circuit, EdgeScores, Graph, InputError
from edgewise.formats import eap_json, score_folder
from edgewise.formats.write import whole_file, whole_folder

GRAPH = Graph(2, 2, 6, parallel=True)


def some_circuit(seed=0):
    return Circuit(GRAPH, np.random.default_rng(seed).random(GRAPH.n_edges) < 0.3)


def test_a_circuit_survives_its_file(tmp_path):
    score = np.random.default_rng(1).normal(size=GRAPH.n_edges)
    path = tmp_path / "deep" / "circuit.json"
    eap_json.write_circuit(path, some_circuit(), score, {"method": "ILP"})
    assert eap_json.read_circuit(path) == some_circuit()
    np.testing.assert_array_equal(eap_json.read_scores(path).values[0], score)
    data = json.loads(path.read_text())
    assert data["cfg"] == {"n_layers": 2, "n_heads": 2, "parallel_attn_mlp": True, "d_model": 6}
    assert list(data["nodes"]) == [*GRAPH.source_names, "logits"] and data["edgewise"]["method"] == "ILP"


def test_scores_survive_their_folder(tmp_path):
    values = np.random.default_rng(0).normal(size=(4, GRAPH.n_edges)).astype(np.float32)
    scores = EdgeScores(GRAPH, values, {"task": "ioi"})
    score_folder.write_scores(tmp_path, scores)
    again = score_folder.read_scores(tmp_path)
    np.testing.assert_array_equal(again.values, values)
    assert again.graph == GRAPH and dict(again.provenance) == {"task": "ioi"}


def test_the_fields_file_is_read_as_it_is(shared):
    path = shared / "fixtures" / "qwen2" / "importances.json"
    scores = score_folder.read_scores(path)
    arrays = np.load(shared / "fixtures" / "qwen2" / "scores.npz")
    graph = scores.graph
    expected = arrays["EAP-IG-inputs|f64"][graph.edge_source, graph.edge_destination]
    np.testing.assert_allclose(scores.values[0], expected, rtol=1e-5, atol=1e-7)


def edited(tmp_path, change):
    path = tmp_path / "file.json"
    eap_json.write_circuit(path, some_circuit(), np.ones(GRAPH.n_edges), {})
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))
    return path


@pytest.mark.parametrize(
    "change, words",
    [(lambda d: d.pop("cfg"), "keys cfg"), (lambda d: d["cfg"].pop("n_heads"), "lacks n_heads"),
     (lambda d: d["edges"].pop("input->logits"), "edges"),
     (lambda d: d["edges"]["input->logits"].pop("score"), "no score"),
     (lambda d: d["edges"].update({"a7.h0->logits": d["edges"].pop("input->logits")}), "a7.h0->logits"),
     (lambda d: d["edges"]["input->logits"].update(score=float("nan")), "NaN")],
)  # fmt: skip
def test_scores_of_a_broken_file_are_refused(tmp_path, change, words):
    with pytest.raises(InputError, match=words):
        score_folder.read_scores(edited(tmp_path, change))


def test_what_is_no_file_of_ours_is_refused(tmp_path):
    (tmp_path / "not.json").write_text("{")
    for path, words in (
        (tmp_path / "not.json", "isn't JSON"),
        (tmp_path / "none.json", "no scores"),
        (tmp_path, "no scores"),
    ):
        with pytest.raises(InputError, match=words):
            score_folder.read_scores(path)
    with pytest.raises(InputError, match="no file"):
        eap_json.read_circuit(tmp_path / "none.json")
    (tmp_path / "scores.json").write_text(json.dumps({"format": "edgewise-scores", "version": 99}))
    with pytest.raises(InputError, match="version 99"):
        score_folder.read_scores(tmp_path)


def test_nothing_is_half_written(tmp_path):
    (tmp_path / "old.txt").write_text("old")
    for write in (lambda: whole_file(tmp_path / "old.txt"), lambda: whole_folder(tmp_path / "folder")):
        with pytest.raises(RuntimeError), write() as draft:
            (draft if draft.is_file() else draft / "part").write_text("half")
            raise RuntimeError
    assert (tmp_path / "old.txt").read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["old.txt"]


def test_folders_of_others_are_never_written_over(tmp_path):
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "thesis.tex").write_text("...")
    with (
        pytest.raises(InputError, match="isn't a folder that edgewise wrote"),
        whole_folder(tmp_path / "precious", True),
    ):
        pass
    assert (tmp_path / "precious" / "thesis.tex").exists()
