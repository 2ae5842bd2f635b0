"""Knock-outs: cut nodes and edges from the model."""

from __future__ import annotations

import json

import numpy as np
import pytest
from commands import refused, run_command, run_json

from edgewise import (
    Circuit,
    InputError,
    evaluate_circuits,
    knock_out,
    known_circuit,
    load_model,
    load_task,
    score_edges,
)
from edgewise.evaluate import Zero
from edgewise.score import Exact


@pytest.fixture(scope="module")
def demo():
    model = load_model("demo", device="cpu")
    return model, load_task("ioi", model, "test", 12)


def test_cutting_input_leaves_the_empty_circuit(demo):
    ran = knock_out(*demo, "input")
    np.testing.assert_array_equal(ran.values[0], ran.empty)
    np.testing.assert_allclose(ran.shares, 1)


def test_the_metric_auto_is_named_as_the_metric_of_the_task(demo):
    assert knock_out(*demo, "m0").metric.name == "logit-difference"


def test_a_node_is_all_edges_out_of_it(demo):
    edges = [name for name in demo[0].graph.edge_names if name.startswith("a1.h2->")]
    np.testing.assert_array_equal(knock_out(*demo, "a1.h2").values, knock_out(*demo, edges).values)


def test_each_equals_one_after_the_other(demo):
    names = ["m0", "a3.h2", "m0->logits"]
    each = knock_out(*demo, names, each=True)
    single = np.concatenate([knock_out(*demo, [name]).effects for name in names])
    np.testing.assert_allclose(each.effects, single, atol=1e-4)
    assert each.names == (("m0",), ("a3.h2",), ("m0->logits",))
    assert list(each.order) == np.argsort(-single.mean(1)).tolist()
    assert knock_out(*demo, each=True).names[0] == ("input",)


def test_effects_of_single_edges_are_the_scores_of_exact_patching(demo):
    model, task = demo
    circuit = Circuit.from_edges(model.graph, ["m0->a3.h2<v>", "input->m0", "a3.h2->logits"])
    scores = score_edges(model, task, Exact()).values[:, circuit.mask]
    np.testing.assert_allclose(knock_out(model, task, circuit, each=True).effects.T, scores, atol=1e-3)


def test_cutting_what_is_outside_a_known_circuit_changes_little():
    model = load_model("known/induction", device="cpu")
    task, truth = load_task("known/induction", model, "test", 20), known_circuit("induction")
    heads = [f"a{layer}.h{head}" for layer in range(3) for head in range(4)]
    ran = knock_out(model, task, heads, each=True)
    inside = np.array([name in truth.nodes for name in heads])
    assert np.abs(ran.shares[~inside]).max() < 0.02 < 0.05 < np.abs(ran.shares[inside]).min()


def test_intervals_contain_the_mean_and_narrow_with_confidence(demo):
    ran = knock_out(*demo, ["m0", "a3.h2"], each=True)
    for wide, narrow, effects in zip(ran.intervals(), ran.intervals(confidence=0.5), ran.effects, strict=True):
        assert wide.low < narrow.low < effects.mean() < narrow.high < wide.high
        # The usual standard error of a mean is an oracle of the bootstrap's.
        error = effects.std(ddof=1) / np.sqrt(len(effects))
        assert 0.7 < (wide.high - wide.low) / (2 * 1.96 * error) < 1.15


@pytest.mark.parametrize("values", [{"resamples": 0}, {"seed": -1}, {"confidence": 2}])
def test_impossible_intervals_raise(demo, values):
    with pytest.raises(InputError, match=next(iter(values))):
        knock_out(*demo, "m0").intervals(**values)


def test_any_set_of_edges_can_be_cut_in_python(demo):
    model, task = demo
    cut = Circuit.full(model.graph).without(["m0", "a3.h2->logits"])
    n_out = sum(name.startswith("m0->") for name in model.graph.edge_names)
    assert cut.complement().n_edges == n_out + 1
    values = evaluate_circuits(model, task, [cut], ablation=Zero()).values
    np.testing.assert_allclose(knock_out(model, task, ["m0", "a3.h2->logits"], ablation=Zero()).values, values)
    small = Circuit.from_edges(model.graph, ["input->m0", "m0->logits"])
    assert small.without("m0->logits").edges == ("input->m0",)
    assert small.without("a1.h1") == small


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["a9.h0"], "there is no node 'a9.h0'.*a0.h0 to a3.h3"),
        (["logits"], "no node 'logits' with edges out of it"),
        (["a1.h0->a1.h1<q>"], "there is no edge"),
        ([], "nothing is to be cut"),
    ],
)
def test_names_that_the_model_lacks(demo, names, message):
    with pytest.raises(InputError, match=message):
        knock_out(*demo, names)


def test_a_single_name_or_a_generator_is_cut(demo):
    assert knock_out(*demo, "a3.h2", each=True).names == (("a3.h2",),)
    assert knock_out(*demo, (name for name in ("a3.h2", "m0")), each=True).names == (("a3.h2",), ("m0",))


@pytest.mark.parametrize("names", [3, [3]])
def test_what_is_no_name_is_refused(demo, names):
    with pytest.raises(InputError, match="names of nodes or edges are needed"):
        knock_out(*demo, names)


def test_a_circuit_of_another_model(demo):
    with pytest.raises(InputError, match="the circuit is one of 3 layers"):
        knock_out(*demo, known_circuit("induction"), each=True)


COMMAND = ("knock-out", "--examples", 6, "--device", "cpu")


def test_command(tmp_path):
    code, out, _ = run_command(*COMMAND, "a3.h2", "m0->a3.h0<q>")
    assert code == 0 and "a3.h2, m0->a3.h0<q>" in out
    words = (*COMMAND, "--each", "--per-example", "--out", tmp_path / "knock-outs.json")
    record = run_json(*words)
    assert record == json.loads((tmp_path / "knock-outs.json").read_text())
    effects = [row["effect"] for row in record["knock_outs"]]
    assert len(effects) == 21 and effects == sorted(effects, reverse=True)
    assert all(np.isclose(np.mean(row["per_example"]), row["effect"]) for row in record["knock_outs"])
    code, _, err = run_command(*words, "--json")
    assert code == 0 and "nothing is computed again" in err


def test_command_cuts_the_edges_of_a_circuit():
    rows = run_json(*COMMAND, "--model", "known/induction", "--each", "--circuit", "known/induction")["knock_outs"]
    assert {row["cut"][0] for row in rows} == set(known_circuit("induction").edges)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "nothing is to be cut; give nodes or edges, or --each"),
        (["a3.h9"], "there is no node 'a3.h9'"),
        (["m0", "--circuit", "known/ioi"], "--circuit says which edges --each cuts"),
        (["--each", "--circuit", "known/induction"], "is a circuit of 3 layers"),
        (["m0", "--per-example"], "--per-example adds values to JSON"),
    ],
)
def test_wrong_arguments_are_one_line(words, message):
    assert message in refused(run_command, *COMMAND, *words)


def test_the_text_of_a_result_has_its_means():
    demo = load_model("demo")
    task = load_task("ioi", demo, "test", 4)
    evaluation = evaluate_circuits(demo, task, [Circuit.full(demo.graph)])
    model, empty = f"{evaluation.full.mean():.4g}", f"{evaluation.empty.mean():.4g}"
    assert repr(evaluation) == (
        "Evaluation(1 circuit x 4 examples, logit-difference, patching; "
        f"means: model {model}, empty circuit {empty}, circuits {model})"
    )
    assert repr(evaluate_circuits(demo, task, [])).endswith(f"model {model}, empty circuit {empty})")
    ran = knock_out(demo, task, ["a3.h2", "m0"])
    effect = f"{ran.effects.mean():+.4g}"
    assert repr(ran) == f"KnockOuts(1 set x 4 examples, logit-difference, patching; effects: a3.h2 and 1 more {effect})"
    assert repr(knock_out(demo, task, each=True)).endswith(", ...)")
