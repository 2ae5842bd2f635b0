"""The commands that read and write files of the field, as a user types them."""

import json

import numpy as np
import pytest
import test_cli
from test_cli import DEMO, refused, score_file

from edgewise import Circuit, Graph
from edgewise.formats import files, submission
from edgewise.formats.result_folder import read_circuits, read_result

# The same fixtures: a command in this process, and a folder of scores.
edgewise, scores = test_cli.edgewise, test_cli.scores


def test_pt_goes_all_the_way(edgewise, scores, tmp_path):
    assert edgewise("convert", scores, tmp_path / "scores.pt")[0] == 0
    found = []
    for source, target in ((scores, "a.json"), (tmp_path / "scores.pt", "b.pt")):
        words = ("select", source, "--edges", 40, "--solver", "greedy", "--out", tmp_path / target, "--json")
        code, out, _ = edgewise(*words)
        assert code == 0 and json.loads(out)["edges_asked"] == 40
        found.append(files.read_circuit(tmp_path / target))
    assert found[0] == found[1]
    code, out, _ = edgewise("evaluate", tmp_path / "a.json", tmp_path / "b.pt", "--examples", 4, "--json")
    one, two = json.loads(out)["circuits"]
    assert code == 0 and one["metric"] == two["metric"]


def test_convert_says_what_it_did(edgewise, scores, tmp_path):
    code, out, _ = edgewise("convert", scores, tmp_path / "scores.json", "--json")
    done = json.loads(out)
    assert code == 0 and done["written"] == [str(tmp_path / "scores.json")] and done["edges"] == DEMO.n_edges
    assert "scores are the mean over 20 examples" in done["notes"]
    code, out, _ = edgewise("convert", tmp_path / "scores.json", tmp_path / "again")
    assert code == 0 and "wrote" in out and "in_graph isn't kept" in out
    np.testing.assert_array_equal(
        files.read_scores(tmp_path / "again").values[0], files.read_scores(tmp_path / "scores.json").values[0]
    )


def test_convert_refuses_in_one_line(edgewise, tmp_path):
    given = score_file(tmp_path / "scores.json")
    target = tmp_path / "sub"
    for words, expected in (
        ((given, given), "--overwrite"),
        ((given, tmp_path / "x.npz"), ".json or .pt"),
        ((tmp_path / "none.pt", tmp_path / "x.json"), "no file"),
        ((tmp_path / "none", tmp_path / "x.json"), "no scores"),
        ((given, target, "--task", "ioi"), "--submission"),
        ((given, target, "--submission", "importances"), "--task and --model"),
        ((given, target, "--submission", "all", "--task", "ioi", "--model", "gpt2"), "importances, circuits"),
        ((given, target, "--submission", "importances", "--task", "ioi", "--model", "gpt5"), "gpt2, qwen2.5"),
        ((given, target, "--submission", "importances", "--task", "ioi", "--model", "gpt2"), "12 layers x 12 heads"),
        ((given, target, "--submission", "circuits", "--task", "ioi", "--model", "gpt2"), "no folder of circuits"),
        ((given, target, "--submission", "importances", "--task", "ioi", "--model", "gpt2", "--overwrite"), "never"),
    ):
        assert expected in refused(edgewise, "convert", *words)
    assert [path.name for path in tmp_path.iterdir()] == ["scores.json"]
    assert ".json or .pt" in refused(edgewise, "select", given, "--edges", 3, "--out", tmp_path / "circuit.txt")
    assert "is no folder" in refused(edgewise, "check", tmp_path / "none")


def test_a_run_becomes_a_submission_that_check_accepts(edgewise, tmp_path, monkeypatch):
    monkeypatch.setitem(submission.MODELS, "gpt2", DEMO)
    monkeypatch.setitem(submission.MODELS, "llama3", DEMO)
    run, target = tmp_path / "run", tmp_path / "sub"
    assert edgewise("run", "--examples", 8, "--out", run, "--json")[0] == 0
    words = ("convert", run, target, "--task", "ioi", "--model", "gpt2", "--submission", "circuits")
    code, out, _ = edgewise(*words, "--benchmark", "cpr", "--json")
    done = json.loads(out)
    rows = [row for row in read_result(run).rows if row.benchmark == "CPR"]
    best = max(rows, key=lambda row: row.area)
    assert code == 0 and done["notes"] == [f"circuits by {best.name}, the best by CPR"]
    masks = sorted(circuit.n_edges for circuit in read_circuits(run)["CPR", best.name][:-1])
    assert [files.read_circuit(target / "ioi_gpt2" / f"{s:g}.pt").n_edges for s in submission.SHARES] == masks
    code, out, _ = edgewise("check", target)
    assert code == 1 and "at least 2 tasks" in out and "accepted" in out
    words = ("convert", run, target, "--task", "arc_challenge", "--model", "llama3", "--submission", "importances")
    assert edgewise(*words, "--format", "json")[0] == 0
    code, out, _ = edgewise("check", target, "--json")
    assert code == 0 and json.loads(out)["accepted"]
    (target / "ioi_gpt2" / "0.5.pt").unlink()
    code, out, _ = edgewise("check", target)
    assert code == 1 and "no circuit for 50%" in out and "would be refused" in out


@pytest.mark.parametrize("suffix", [".json", ".pt"])
@pytest.mark.parametrize("other", [Graph(2, 4, 64), Graph(4, 2, 64), Graph(4, 4, 32), Graph(4, 4, 64, parallel=True)])
def test_a_circuit_of_another_shape_is_refused_with_both(edgewise, tmp_path, suffix, other):
    files.write_circuit(tmp_path / f"other{suffix}", Circuit.full(other), np.zeros(other.n_edges), {})
    line = refused(edgewise, "evaluate", tmp_path / f"other{suffix}")
    assert str(other) in line and str(DEMO) in line


@pytest.mark.parametrize("command", ["convert", "check"])
def test_both_commands_explain_themselves(edgewise, command):
    code, out, _ = edgewise(command, "--help")
    assert code == 0 and "Usage" in out and "--json" in out
