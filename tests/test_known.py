"""The embedded models whose circuits are known: the circuits are true, and rankings can be compared with them."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from functools import cache
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
import torch

from edgewise import (
    Accuracy,
    Circuit,
    Eap,
    EdgeScores,
    Graph,
    InputError,
    MaskIg,
    Model,
    Ranking,
    evaluate_circuits,
    known_circuit,
    load_model,
    load_task,
    score_edges,
)
from edgewise.evaluate.known import auroc, precision_at_true_size, read_truth
from edgewise.models import make_batch
from edgewise.models.prepare import prepare
from edgewise.tasks.known import KNOWN

EDGES = Graph(3, 4, 64)  # that of known/induction
NAMES = [name.removeprefix("known/") for name in KNOWN]


def load_tool():
    """Import tools/build_known.py, which verifies the circuits, too."""
    spec = importlib.util.spec_from_file_location("build_known", Path(__file__).parents[1] / "tools" / "build_known.py")
    module = sys.modules["build_known"] = importlib.util.module_from_spec(spec)  # its dataclasses look it up
    spec.loader.exec_module(module)
    return module


TOOL = load_tool()


@cache
def known_model(name: str) -> Model:
    return load_model(f"known/{name}", device="cpu")


def known_task(name: str, split: str = "test", examples: int = 20):
    return load_task(f"known/{name}", known_model(name), split, examples)


@pytest.mark.parametrize("name", NAMES)
def test_exact_patching_of_every_edge_agrees_with_the_known_circuit(name):
    result = TOOL.check_truth(known_model(name), known_task(name), known_circuit(name), TOOL.CUTS.get(name, ()))
    assert result.strongest_outside <= TOOL.MAX_OUTSIDE == 0.01
    assert result.weakest_inside >= TOOL.MIN_INSIDE == 0.05
    assert result.faithfulness >= 0.99
    assert result.is_verified


@pytest.mark.parametrize("name", NAMES)
def test_patching_all_edges_outside_at_once_changes_little_on_any_example(name):
    model, task, truth = known_model(name), known_task(name, "validation"), known_circuit(name)
    ran = evaluate_circuits(model, task, [truth], of_model=[Accuracy()])
    assert ran.of_model["accuracy"].mean() == 1
    assert np.abs(ran.values[0] - ran.full).mean() < 0.05 * (ran.full.mean() - ran.empty.mean())


def test_a_wrong_circuit_is_not_verified():
    model, task, truth = (
        known_model("greater-than"),
        known_task("greater-than", examples=8),
        known_circuit("greater-than"),
    )
    edges = truth.edges
    missing = TOOL.check_truth(model, task, Circuit.from_edges(model.graph, edges[1:]))
    assert missing.strongest_outside > TOOL.MAX_OUTSIDE and not missing.is_verified
    extra = TOOL.check_truth(model, task, Circuit.from_edges(model.graph, [*edges, "m0->m1"]))
    assert extra.weakest_inside < TOOL.MIN_INSIDE and not extra.is_verified
    with pytest.raises(InputError, match="has none"):
        TOOL.check_truth(model, task, Circuit.empty(model.graph))


def test_a_backup_head_matters_only_if_the_other_head_is_cut():
    model, task, truth = known_model("backup"), known_task("backup", examples=8), known_circuit("backup")
    effects = TOOL.check_truth(model, task, truth).effects
    edge = model.graph.edge_index
    assert abs(effects[edge("a2.h2->logits")]) < 0.01 and abs(effects[edge("input->a1.h0<q>")]) < 0.01
    assert effects[edge("a1.h0->a2.h2<q>")] < -0.5  # cut, both heads copy
    cut = TOOL.check_truth(model, task, truth, TOOL.CUTS["backup"]).effects
    assert cut[edge("a2.h2->logits")] > 0.5 and cut[edge("input->a1.h0<q>")] > 0.5


@pytest.mark.parametrize("name", NAMES)
def test_no_node_is_silent(name):
    """Nodes outside the circuit respond to the corruption too; only the backup head waits."""
    model = known_model(name)
    transformer = model.transformer
    with torch.no_grad():
        batch = prepare(transformer, make_batch(known_task(name).examples, transformer.device), False)
        clean, corrupted = batch.run(batch.clean), batch.run(batch.corrupted)
    for index, layer in enumerate(transformer.layers):
        mix = clean.mix[index] - corrupted.mix[index]
        sizes = torch.einsum("bphd,mhd->bphm", mix, layer.out).norm(dim=-1).amax(1).mean(0)
        silent = [f"a{index}.h{head}" for head, size in enumerate(sizes) if size < 0.1]
        assert silent == (["a2.h2"] if name == "backup" and index == 2 else [])
        assert (clean.mlp_out[index] - corrupted.mlp_out[index]).norm(dim=-1).amax(1).mean() > 0.1


def test_the_models_tell_scorers_apart():
    model, truth = known_model("induction"), known_circuit("induction")
    areas = [
        auroc(np.abs(score_edges(model, known_task("induction", "train"), s).mean()), truth) for s in (Eap(), MaskIg())
    ]
    assert areas[0] < 0.9 < areas[1]


def test_precision_at_the_true_size_is_the_mean_over_orders_of_ties():
    graph = Graph(1, 1, 2)
    truth = Circuit.from_edges(graph, graph.edge_names[1:4])
    score = np.array([2, 1, 2, 1, 0, 1, 0, 0][: graph.n_edges], float)
    orders = [np.array(order) for order in permutations(range(graph.n_edges))]
    best = [order[np.argsort(-score[order], kind="stable")][:3] for order in orders]
    assert precision_at_true_size(score, truth) == pytest.approx(np.mean([truth.mask[edges].mean() for edges in best]))
    assert precision_at_true_size(truth.mask, truth) == 1
    with pytest.raises(InputError, match="lack some"):
        precision_at_true_size(score, Circuit.full(graph))


def test_a_known_task_needs_its_own_model():
    with pytest.raises(
        InputError, match="words such as 'sun' as single tokens, which this model lacks; use model 'known/induction'"
    ):
        load_task("known/induction", known_model("ioi"))


def test_names_and_files_of_known_circuits(tmp_path):
    assert known_circuit("known/ioi") == known_circuit("ioi") == read_truth("known/ioi")
    known_circuit("ioi").save(tmp_path / "truth.npz")
    assert read_truth(str(tmp_path / "truth.npz")) == known_circuit("ioi")
    for read in (known_circuit, read_truth, load_model):
        with pytest.raises(InputError, match=r"'known/nothing'; choose one of: .*induction"):
            read("known/nothing")


def test_a_run_of_a_known_model_uses_its_task_and_its_rankings_are_compared_with_the_truth(edgewise, tmp_path):
    common = ("--model", "known/induction", "--examples", 12, "--json")
    learn = ("--stability", 0, "--learn-steps", 5)
    code, text, _ = edgewise("run", *common, *learn, "--learned", "--out", tmp_path / "run")
    assert code == 0 and json.loads(text)["task"] == "known/induction"
    code, text, _ = edgewise("roc", tmp_path / "run", "--truth", "known/induction", "--json")
    rows = json.loads(text)["rankings"]
    assert code == 0 and [(row["ranking"], row["rank"]) for row in rows[:2]] == [
        ("eap-ig", "signed"),
        ("eap-ig", "absolute"),
    ]
    assert len(rows) >= 4 and all(0 <= row[key] <= 1 for row in rows for key in ("auroc", "precision"))
    truth, score = known_circuit("induction"), EdgeScores.load(tmp_path / "run").mean()
    assert rows[1]["auroc"] == auroc(np.abs(score), truth)
    assert rows[1]["precision"] == precision_at_true_size(np.abs(score), truth)
    # A run of a known model has its own truth, which its commands use without being told.
    assert json.loads(edgewise("roc", tmp_path / "run", "--json")[1]) == json.loads(text)
    plain = (tmp_path / "run" / "viewer.html").read_bytes()
    code, text, _ = edgewise("view", tmp_path / "run", "--truth", "auto", "--no-open", "--json")
    assert code == 0 and json.loads(text)["truth"] == "known/induction"
    assert (tmp_path / "run" / "viewer.html").read_bytes() == plain and Path(json.loads(text)["out"]).is_file()
    # The page with the truth is one of the run's own files: the run can still be replaced.
    assert edgewise("run", *common, "--stability", 0, "--no-learned", "--out", tmp_path / "run", "--overwrite")[0] == 0
    # Circuits of a run are evaluated on its model and task.
    for given in (tmp_path / "run", tmp_path / "run" / "circuits", tmp_path / "run" / "circuits" / "cmd-0.05.npz"):
        code, text, message = edgewise("evaluate", given, "--examples", 4, "--json")
        record = json.loads(text)
        assert code == 0 and record["model"] == record["task"] == "known/induction" and "as in the run" in message
    code, text, message = edgewise("evaluate", "full", "--examples", 4, "--json")
    assert code == 0 and json.loads(text)["task"] == "ioi" and "no --task was given" in message
    code, _, message = edgewise("roc", tmp_path / "run" / "circuits" / "cmd-0.05.npz", "--truth", "known/induction")
    assert code == 2 and "is no ranking: " in message and "edgewise view" in message
    code, _, message = edgewise("view", tmp_path / "run", "--out")
    assert code == 2 and "see `edgewise view --help`" in message


def test_roc_takes_scores_rankings_and_files_and_a_truth_from_a_file(edgewise, tmp_path):
    truth, rng = known_circuit("induction"), np.random.default_rng(0)
    truth.save(tmp_path / "truth.npz")
    EdgeScores(EDGES, rng.normal(size=(3, EDGES.n_edges))).save(tmp_path / "scores")
    Ranking(EDGES, truth.mask.astype(float), signed=False).save(tmp_path / "ranking")
    Circuit.full(EDGES).save(tmp_path / "file.json", -2.0 * truth.mask)
    inputs = [tmp_path / name for name in ("scores", "ranking", "file.json")]
    code, text, _ = edgewise("roc", *inputs, "--truth", tmp_path / "truth.npz", "--json")
    rows = {(row["input"].split("/")[-1], row["rank"]): row for row in json.loads(text)["rankings"]}
    signed = [(name, rank) for name in ("scores", "file.json") for rank in ("signed", "absolute")]
    assert code == 0 and set(rows) == {*signed, ("ranking", None)}
    assert rows["ranking", None]["auroc"] == rows["file.json", "absolute"]["precision"] == 1
    assert rows["file.json", "signed"]["auroc"] == rows["file.json", "signed"]["precision"] == 0
    code, text, _ = edgewise("roc", *inputs, "--truth", tmp_path / "truth.npz")
    assert code == 0 and "13 of 262 edges" in text and "AUROC" in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("roc", "{scores}", "--truth", "known/nothing"),
            "unknown known circuit 'known/nothing'; choose one of: induction",
        ),
        (("roc", "{scores}", "--truth", "known/ioi"), "known/ioi is a circuit of edges of 4 layers x 4 heads"),
        (("roc", "{scores}", "--truth", "nothing.json"), "there is no file nothing.json"),
        (("roc", "nothing", "--truth", "known/ioi"), "nothing holds no scores"),
        (("roc", "{scores}"), "there is no true circuit to compare with"),
        (("run", "--model", "known/nothing"), "unknown model 'known/nothing'; choose one of: known/induction"),
        (("score", "--task", "known/ioi", "--out", "{scores}-2"), "task 'known/ioi' needs words such as"),
    ],
)
def test_bad_input_is_one_line(edgewise, tmp_path, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    EdgeScores(EDGES, np.ones((1, EDGES.n_edges))).save("scores")
    code, text, error = edgewise(*(word.format(scores="scores") for word in words))
    assert code == 2 and not text and error.count("\n") == 1
    assert error.startswith(f"error: {message}")


def test_commands_list_the_known_models_and_tasks(edgewise):
    assert set(KNOWN) <= set(json.loads(edgewise("models", "--json")[1])["models"])
    assert set(KNOWN) <= set(json.loads(edgewise("tasks", "--json")[1])["tasks"])
    assert all(name in edgewise("models")[1] for name in KNOWN)
    shown = json.loads(edgewise("tasks", "known/backup", "--json")[1])  # its own model is the default
    assert shown["task"] == "known/backup" and len(shown["examples"]) == 4


def test_the_code_of_the_page_runs(capsys):
    page = Path(__file__).parents[1] / "docs" / "known-circuits.md"
    (block,) = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.S)
    exec(block, {})
    area, precision = map(float, capsys.readouterr().out.split())
    assert 0.7 < area < 0.9 and 0.4 < precision < 0.7


def test_a_combined_ranking_is_not_called_learned(edgewise, tmp_path):
    for name in ("one", "two"):
        Ranking(Graph(3, 4, 64), np.arange(262.0)).save(tmp_path / name)
    assert edgewise("combine", tmp_path / "one", tmp_path / "two", "--out", tmp_path / "both")[0] == 0
    code, text, err = edgewise("roc", tmp_path / "both", "--truth", "known/induction", "--json")
    assert code == 0, err
    assert {row["ranking"] for row in json.loads(text)["rankings"]} == {"combined"}
