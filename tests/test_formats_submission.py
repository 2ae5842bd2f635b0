"""MIB submissions: written ones are accepted, and every defect is reported."""

import json
import shutil

import numpy as np
import pytest

from edgewise import Circuit, EdgeScores, Graph, InputError
from edgewise.evaluate import SIZES
from edgewise.graph import NeuronGraph
from edgewise.results import convert_to_submission, submission
from edgewise.results.submission import check_submission, folder_name, write_circuits, write_importances

SMALL = Graph(4, 4, 64)
OTHER = Graph(3, 5, 32)
LIMITS = [int(share * SMALL.n_edges) for share in SIZES[:-1]]


@pytest.fixture(autouse=True)
def small_models(monkeypatch):
    """Replace MIB's models by small ones."""
    monkeypatch.setitem(submission.MODELS, "gpt2", SMALL)
    monkeypatch.setitem(submission.MODELS, "gemma2", OTHER)


def scores_of(graph, examples=3):
    return EdgeScores(graph, np.random.default_rng(0).normal(size=(examples, graph.n_edges)))


def circuit_of(graph, count):
    return Circuit(graph, np.arange(graph.n_edges) < count)


def circuits_of(graph):
    return [circuit_of(graph, int(share * graph.n_edges)) for share in SIZES[:-1]]


def test_mibs_models_have_the_published_numbers_of_edges(monkeypatch):
    monkeypatch.undo()
    counts = {name: graph.n_edges for name, graph in submission.MODELS.items()}
    assert counts == {"gpt2": 32_491, "gemma2": 74_218, "qwen2.5": 179_749, "llama3": 1_592_881}


@pytest.mark.parametrize("suffix", [".json", ".pt"])
def test_written_submissions_are_accepted(tmp_path, suffix):
    path = write_importances(tmp_path, "ioi", "gpt2", scores_of(SMALL), suffix)
    np.testing.assert_allclose(EdgeScores.load(path).values[0], scores_of(SMALL).values.mean(0))
    paths = write_circuits(tmp_path, "arc_easy", "gemma2", circuits_of(OTHER)[::-1], suffix)
    assert [Circuit.load(path) for path in paths] == circuits_of(OTHER)
    found = check_submission(tmp_path)
    assert found.accepted and json.loads(json.dumps(found.record()))["accepted"]
    assert [(c.folder, c.task, c.model, c.layout) for c in found.folders] == [
        ("arc-easy_gemma2", "arc-easy", "gemma2", "circuits"),
        ("ioi_gpt2", "ioi", "gpt2", "importances"),
    ]


def test_circuits_for_cmd_and_cpr_may_lie_in_separate_folders(tmp_path):
    for part in ("abs-True", "abs-False"):
        write_circuits(tmp_path / part, "ioi", "gpt2", circuits_of(SMALL))
        write_importances(tmp_path / part, "mcqa", "gemma2", scores_of(OTHER))
    found = check_submission(tmp_path)
    assert found.accepted and len(found.folders) == 4


def test_circuits_may_be_smaller_than_their_size(tmp_path):
    write_circuits(tmp_path, "ioi", "gpt2", [circuit_of(SMALL, count) for count in (0, 0, 0, 0, 1, 1, 30, 30, 30)])
    assert check_submission(tmp_path).folders[0].accepted


def problems(folder):
    """Return the problems of the only folder of a submission."""
    (check,) = check_submission(folder).folders
    assert not check.accepted
    return " | ".join(check.problems)


@pytest.mark.parametrize(
    "name, words",
    [("ioi_gpt3", "unknown MIB model 'gpt3'; choose one of: gpt2"), ("iou_gpt2", "unknown MIB task 'iou'"),
     ("mcqa_gpt2", "no task 'mcqa' for model 'gpt2', only for: qwen2.5"), ("results", "names no task and model")],
)  # fmt: skip
def test_unknown_names_are_problems(tmp_path, name, words):
    (tmp_path / name).mkdir()
    assert words in problems(tmp_path)


def test_each_defect_of_importances_is_named(tmp_path):
    path = write_importances(tmp_path, "ioi", "gpt2", scores_of(SMALL), ".json")
    good = json.loads(path.read_text())

    def found(change):
        data = json.loads(json.dumps(good))
        change(data)
        path.write_text(json.dumps(data))
        return problems(tmp_path)

    assert "NaN" in found(lambda d: d["edges"]["m0->logits"].update(score=float("nan")))
    assert "m0->logits" in found(lambda d: d["edges"].pop("m0->logits"))
    assert "no scores" in found(lambda d: [info.pop("score") for info in d["edges"].values()])
    assert "in_graph" in found(lambda d: [info.pop("in_graph") for info in d["edges"].values()])
    wrong = found(lambda d: d["cfg"].update(d_model=65))
    assert "width 65" in wrong and "MIB's gpt2 has 4 layers x 4 heads, width 64" in wrong
    path.write_text("{")
    assert "isn't JSON" in problems(tmp_path)
    path.rename(path.with_suffix(".pt"))
    assert "isn't a torch file" in problems(tmp_path)
    path.with_suffix(".pt").unlink()
    assert "no file that ends in .json or .pt" in problems(tmp_path)


def test_each_defect_of_circuits_is_named(tmp_path):
    paths = write_circuits(tmp_path, "ioi", "gpt2", circuits_of(SMALL), ".json")
    good = tmp_path.with_name(f"{tmp_path.name}-good")
    shutil.copytree(tmp_path, good)

    def found(change):
        shutil.rmtree(tmp_path / "ioi_gpt2")
        shutil.copytree(good / "ioi_gpt2", tmp_path / "ioi_gpt2")
        change()
        return problems(tmp_path)

    def rewrite(place, circuit):
        circuit.save(paths[place])

    assert LIMITS == [0, 0, 2, 4, 9, 23, 47, 95, 239]
    assert found(paths[5].unlink) == "no circuit for 5% (at most 23 edges)"
    assert found(paths[0].unlink) == "no circuit for 0.2% (at most 0 edges)"
    assert found(lambda: rewrite(3, circuit_of(SMALL, 5))) == "no circuit for 1% (at most 4 edges) | " + (
        "0.5.json has 239 edges, more than any size that is left holds"
    )
    assert "0.5.json has 240 edges" in found(lambda: rewrite(8, circuit_of(SMALL, 240)))
    other = found(lambda: rewrite(2, circuit_of(OTHER, 1)))
    assert "0.005.json is of 3 layers x 5 heads" in other and "no circuit for 0.5% (at most 2 edges)" in other
    assert "isn't JSON" in found(lambda: paths[1].write_text("{"))
    assert "10 circuits, but MIB reads 9" in found(lambda: Circuit.empty(SMALL).save(paths[0].with_name("0.json")))


def test_a_submission_needs_two_tasks_and_two_models(tmp_path):
    assert "no folder for a task and a model" in check_submission(tmp_path).problems[0]
    write_importances(tmp_path, "ioi", "gpt2", scores_of(SMALL))
    found = check_submission(tmp_path)
    assert found.folders[0].accepted and not found.accepted
    assert "2 tasks and 2 models, but this one has 1 and 1" in found.problems[0]
    with pytest.raises(InputError, match="is no folder"):
        check_submission(tmp_path / "none")


def test_invalid_submissions_are_not_written(tmp_path):
    circuits = circuits_of(SMALL)
    for write, words in (
        (lambda: write_importances(tmp_path, "ioi", "gpt2", scores_of(OTHER)), "3 layers x 5 heads.*4 layers x 4"),
        (lambda: write_importances(tmp_path, "ioi", "gpt2", scores_of(SMALL), ".npz"), r"'\.npz'"),
        (lambda: write_circuits(tmp_path, "ioi", "gemma2", circuits), "4 layers x 4 heads.*3 layers x 5"),
        (lambda: write_circuits(tmp_path, "ioi", "gpt2", circuits[1:]), "no circuit for 0.2%"),
        (lambda: write_circuits(tmp_path, "ioi", "gpt2", [*circuits, circuits[0]]), "10 circuits"),
        (lambda: write_circuits(tmp_path, "ioi", "gpt2", [Circuit.full(SMALL)] * 9), "479 edges"),
        (lambda: write_circuits(tmp_path, "ioi", "gpt2", []), "no circuit for 0.1%"),
        (lambda: folder_name("ioi", "GPT-2"), "unknown MIB model"),
    ):
        with pytest.raises(InputError, match=words):
            write()
    assert not list(tmp_path.iterdir())
    path = write_importances(tmp_path, "ioi", "gpt2", scores_of(SMALL))
    with pytest.raises(InputError, match="exists already"):
        write_circuits(tmp_path, "ioi", "gpt2", circuits)
    assert path.exists() and [p.name for p in tmp_path.iterdir()] == ["ioi_gpt2"]


def test_neurons_are_submitted_as_pt(tmp_path):
    """From a json, MIB reads the neurons of a layer's last head for all its heads."""
    scores = scores_of(NeuronGraph(SMALL))
    with pytest.raises(InputError, match=r"neurons in a json.*use \.pt"):
        write_importances(tmp_path, "ioi", "gpt2", scores, ".json")
    path = write_importances(tmp_path, "ioi", "gpt2", scores, ".pt")
    assert check_submission(tmp_path).folders[0].accepted
    path.unlink()
    Circuit.empty(scores.graph).save(path.with_suffix(".json"), scores.mean())
    assert "importances.json is of neurons in a json" in problems(tmp_path)


def test_a_folder_of_nine_files_becomes_a_submission(tmp_path):
    (tmp_path / "mine").mkdir()
    for place, circuit in enumerate(circuits_of(SMALL)):
        suffix = (".json", ".pt")[place % 2]
        circuit.save(tmp_path / "mine" / f"{place}{suffix}")
    done = convert_to_submission(tmp_path / "mine", tmp_path / "sub", "circuits", "ioi", "gpt2")
    assert [Circuit.load(path) for path in done.written] == circuits_of(SMALL)
    with pytest.raises(InputError, match="importances, circuits"):
        convert_to_submission(tmp_path / "mine", tmp_path / "more", "edges", "ioi", "gpt2")
    with pytest.raises(InputError, match="no folder of circuits"):
        convert_to_submission(done.written[0], tmp_path / "more", "circuits", "ioi", "gpt2")


@pytest.mark.parametrize("name", ["abs-True", "abs-False", "ioi_gpt2"])
def test_links_in_circles_are_followed_one_level(tmp_path, name):
    write_importances(tmp_path, "mcqa", "gemma2", scores_of(OTHER))
    (tmp_path / name).symlink_to(".", target_is_directory=True)
    found = check_submission(tmp_path)
    assert not found.accepted and 2 <= len(found.folders) <= 3
