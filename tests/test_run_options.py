"""Commands that take circuits of a run measure them as the run did, unless an option says otherwise."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from commands import GOOD, refused, run_json

from edgewise import read_result
from edgewise.models.model_files import find_model_files

RUN = ("--no-learned", "--no-verify", "--stability", 0)


def make_run(edgewise, folder, *words):
    """Run the demo model on 8 examples; return the chosen circuit of 10 % and its faithfulness in the run."""
    code, _, err = edgewise("run", *RUN, "--examples", 8, *words, "--out", folder)
    assert code == 0, err
    best = read_result(folder).best("CMD")
    return folder / "circuits" / "cmd-0.1.npz", best.curve.faithfulness[best.curve.shares.index(0.1)]


@pytest.mark.parametrize(
    "words",
    [
        ("--ablation", "zero"),
        ("--bos", "no"),
        ("--dtype", "bfloat16"),
        ("--seed", 3),
        ("--metric", "log-probability"),
        ("--faithfulness", "ratio", "--ablation", "mean"),
    ],
)
def test_evaluate_measures_circuits_as_their_run_did(edgewise, tmp_path, words):
    """The run itself is the oracle."""
    circuit, expected = make_run(edgewise, tmp_path / "run", *words)
    record = run_json("evaluate", circuit)
    assert record["circuits"][0]["faithfulness"] == pytest.approx(expected, abs=1e-5)


def test_verify_and_knock_out_measure_as_the_run_did(edgewise, tmp_path):
    circuit, expected = make_run(edgewise, tmp_path / "run", "--ablation", "zero", "--seed", 3, "--task", "mcqa")
    record = run_json("verify", circuit, "--tests", "equivalence")
    assert record["ablation"] == "zero" and record["faithfulness"]["estimate"] == pytest.approx(expected, abs=1e-5)
    record = run_json("knock-out", "--each", "--circuit", tmp_path / "run")
    assert record["task"] == "mcqa" and record["ablation"] == "zero"
    # The command that has the option decides, even if it is the default.
    code, out, err = edgewise("evaluate", circuit, "--ablation", "patching", "--examples", 8, "--json")
    assert code == 0 and json.loads(out)["ablation"] == "patching"
    assert "--task mcqa --bos yes --seed 3 --metric logit-difference, as in the run" in err


def test_rows_that_a_run_left_out_are_left_out_again(edgewise, tmp_path):
    path = tmp_path / "t.jsonl"
    rows = [{**GOOD, "clean": GOOD["clean"].replace("Mary", name)} for name in ("Mary", "Anna", "Emma")]
    bad = {**GOOD, "clean": "When Mary met"}
    path.write_text("".join(f"{json.dumps(row)}\n" for row in (*rows, bad)))
    circuit, expected = make_run(edgewise, tmp_path / "run", "--task", path, "--skip-bad")
    code, out, err = edgewise("evaluate", circuit, "--json")
    assert code == 0 and "--skip-bad --metric logit-difference, as in the run" in err
    assert json.loads(out)["circuits"][0]["faithfulness"] == pytest.approx(expected, abs=1e-5)


def test_relative_paths_of_a_run_are_found_from_another_folder(edgewise, tmp_path, monkeypatch):
    """They are relative to where the run was started: a folder above the run, usually."""
    project, elsewhere = tmp_path / "project", tmp_path / "elsewhere"
    project.mkdir(), elsewhere.mkdir()
    rows = [{**GOOD, "clean": GOOD["clean"].replace("Mary", name)} for name in ("Mary", "Anna", "Emma")]
    (project / "t.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    shutil.copytree(find_model_files("demo").location, project / "my-model")
    monkeypatch.chdir(project)
    _, expected = make_run(edgewise, Path("results/run"), "--task", "t.jsonl", "--model", "my-model")
    monkeypatch.chdir(elsewhere)
    circuit = "../project/results/run/circuits/cmd-0.1.npz"
    assert run_json("evaluate", circuit)["circuits"][0]["faithfulness"] == pytest.approx(expected, abs=1e-5)
    (project / "t.jsonl").rename(elsewhere / "other.jsonl")
    message = refused(edgewise, "evaluate", circuit)
    assert "the task file of the run of the circuits, 't.jsonl', is neither here nor in a folder above" in message
    assert "give --task" in message and edgewise("evaluate", circuit, "--task", "other.jsonl")[0] == 0


def test_circuits_of_runs_that_differ_need_the_option(edgewise, tmp_path):
    circuits = [make_run(edgewise, tmp_path / name, "--ablation", name)[0] for name in ("zero", "mean")]
    message = refused(edgewise, "evaluate", *circuits)
    assert "different --ablation (zero, mean); give --ablation" in message
    assert edgewise("evaluate", *circuits, "--ablation", "zero", "--examples", 4)[0] == 0


def test_a_changed_task_file_and_changed_weights_are_reported(edgewise, demo, tmp_path, monkeypatch):
    """A file without splits is split by its rows: with more rows, others are for testing, some of which were scored."""
    path = tmp_path / "t.jsonl"
    names = ("Anna", "Emma", "Kate", "Lisa", "Ruth", "Rose", "Jane", "Amy")
    places = ("store", "garden", "school", "office", "park")
    pairs = [(name, place) for name in names for place in places]

    def write(n_rows):
        lines = []
        for name, place in pairs[:n_rows]:
            row = {key: text.replace("Mary", name).replace("store", place) for key, text in GOOD.items()}
            lines.append(json.dumps(row))
        path.write_text("\n".join(lines))

    write(36)
    circuit, _ = make_run(edgewise, tmp_path / "run", "--task", path)
    assert "have changed" not in edgewise("evaluate", circuit)[2]
    write(40)
    assert "have changed since" in edgewise("evaluate", circuit)[2]
    assert "have changed" not in edgewise("evaluate", circuit, "--task", path)[2]
    record = tmp_path / "run" / "run.json"
    record.write_text(record.read_text().replace(demo.content, "0" * len(demo.content)))
    assert "was made with other weights of model 'demo'" in refused(edgewise, "evaluate", circuit)
    assert edgewise("evaluate", circuit, "--model", "demo")[0] == 0
