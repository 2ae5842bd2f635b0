"""Learners of masks (edge pruning, UGS), and Matryoshka attribution."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from commands import refused
from conftest import build, random_task

from edgewise import CMD, CPR, Accuracy, Eap, InputError, Session, Store, TopKLearner, learn_ranking, wrap_model
from edgewise.evaluate import Patching
from edgewise.evaluate.run_circuits import evaluate_circuits
from edgewise.learn import (
    LEARNERS,
    EdgePruning,
    Ensemble,
    Matryoshka,
    UniformGradientSampling,
    learner_from_record,
    training,
)
from edgewise.learn.training import GradientJob
from edgewise.tasks import Kl

QUIET = Session(progress=lambda *_: None)
UGS = UniformGradientSampling
SHORT = {"steps": 8, "batch": 4}
MASKS = [EdgePruning(**SHORT), UGS(**SHORT)]
# Midpoints of equal parts of (0, 1): a mean over these is an expectation.
GRID = torch.tensor((np.arange(20_000) + 0.5) / 20_000)[:, None]


@pytest.fixture(scope="module")
def tiny():
    return wrap_model(build("gpt2", torch.float32), name="tiny"), random_task(8)


def with_multipliers(theta, linear=0.0, squared=0.0):
    return torch.cat([torch.as_tensor(theta, dtype=torch.float64), torch.tensor([linear, squared]).double()])


def test_a_hard_concrete_gate_is_open_as_often_as_the_formula_says():
    theta = torch.tensor([-6.0, -2.0, 0.0, 1.0, 5.0]).double()
    learner = EdgePruning()
    gates = learner.draw_weights(with_multipliers(theta), GRID)
    formula = 1 / (1 + (0.1 / 1.1) ** (2 / 3) * torch.exp(-theta))  # sigmoid(log alpha - beta log(-low / high))
    np.testing.assert_allclose(learner.open_probability(with_multipliers(theta)), formula, rtol=1e-9)
    np.testing.assert_allclose((gates > 0).double().mean(0), formula, atol=1e-4)
    # By symmetry, a gate is fully open as often as the gate of the opposite parameter is closed.
    of_opposite = learner.open_probability(with_multipliers(-theta))
    np.testing.assert_allclose((gates == 1).double().mean(0), 1 - of_opposite, atol=1e-4)


def test_a_ugs_gate_has_mean_p_and_is_partly_open_in_a_window_of_p_times_1_minus_p():
    theta = torch.tensor([-4.0, -1.0, 0.0, 0.5, 3.0]).double().requires_grad_()
    p = theta.detach().sigmoid()
    gates = UGS().draw_weights(theta, GRID)
    np.testing.assert_allclose(gates.detach().mean(0), p, atol=1e-4)
    partly = ((gates > 0) & (gates < 1)).double().mean(0)
    np.testing.assert_allclose(partly, p * (1 - p), atol=1e-4)
    # The gradient is the mean over partly open gates, so for a linear loss it is that of the expectation.
    slopes = torch.tensor([1.0, -2.0, 3.0, 0.5, 1.0]).double()
    (gradient,) = torch.autograd.grad((gates * slopes).mean(0).sum(), theta)
    np.testing.assert_allclose(gradient, slopes * p * (1 - p), rtol=1e-9)


def test_gradients_of_gates_and_penalties_agree_with_finite_differences():
    rng = np.random.default_rng(0)
    learner = EdgePruning(steps=100, sizes=(0.2,))
    parameters = with_multipliers(rng.normal(0, 2, 7), 0.3, 0.7).requires_grad_()
    uniform, slopes = (torch.tensor(rng.uniform(0.01, 0.99, (3, 7))) for _ in range(2))

    def loss(values):
        return (learner.draw_weights(values, uniform) * slopes).sum()

    (gradient,) = torch.autograd.grad(loss(parameters), parameters)
    (of_penalty,) = torch.autograd.grad(learner.penalty(parameters, 50), parameters)

    def constraint(values):
        """The Lagrangian's term by its definition."""
        excess = learner.open_probability(values).mean() - learner.target_at(50)
        linear, squared = values[-2:] * 2400 / (learner.rate * learner.steps)
        return linear * excess + squared * excess**2

    for place in range(9):
        step = torch.zeros(9).double()
        step[place] = 1e-6
        base = parameters.detach()
        expected = float(loss(base + step) - loss(base - step)) / 2e-6
        assert float(gradient[place]) == pytest.approx(expected, rel=1e-4, abs=1e-6)
        # The gates descend, the multipliers ascend.
        expected = float(constraint(base + step) - constraint(base - step)) / 2e-6 * (1 if place < 7 else -1)
        assert float(of_penalty[place]) == pytest.approx(expected, rel=1e-4, abs=1e-6)


def test_weights_per_example_have_gradients_per_example():
    model, task = wrap_model(build("llama")), random_task(4)
    evaluation = evaluate_circuits(model, task, [], Kl(), session=QUIET)
    ends = dict(zip(task.examples, zip(evaluation.full.tolist(), evaluation.empty.tolist(), strict=True), strict=True))
    weights = torch.tensor(np.random.default_rng(0).uniform(size=(3, model.graph.n_edges)))
    rows = dict(zip(task.examples, (2, 0, 1, 0), strict=True))
    job = GradientJob(CPR, Kl(), Patching(), weights, ends, 1.3, rows)
    _, gradient = job(model, task.examples)
    assert gradient.shape == (4, model.graph.n_edges)
    for example, row in ((0, 2), (3, 0)):
        alone = replace(job, weights=weights[row], rows=None)(model, task.examples[example : example + 1])
        np.testing.assert_allclose(gradient[example], alone[1], rtol=1e-4, atol=1e-7)
    for edge in range(0, model.graph.n_edges, 41):
        ends_of_step = []
        for change in (1e-5, -1e-5):
            moved = weights.clone()
            moved[0, edge] += change
            ends_of_step.append(replace(job, weights=moved)(model, task.examples)[0])
        expected = (ends_of_step[0] - ends_of_step[1]) / 2e-5
        assert float(gradient[1, edge] + gradient[3, edge]) == pytest.approx(expected, rel=1e-3, abs=1e-6)


def test_the_target_falls_from_all_edges_to_the_size_and_the_rate_to_0():
    learner = EdgePruning(steps=100, sizes=(0.1,), warm_up=0.5)
    assert [learner.target_at(step) for step in (0, 25, 50, 99)] == pytest.approx([1, 0.55, 0.1, 0.1])
    assert replace(learner, warm_up=0.0).target_at(0) == pytest.approx(0.1)
    rates = [learner.rate_at(step) for step in range(100)]
    peak = int(np.argmax(rates))
    assert 3 <= peak <= 9 and rates[-1] < 0.02 * max(rates) and max(rates) <= learner.rate
    assert rates[: peak + 1] == sorted(rates[: peak + 1]) and rates[peak:] == sorted(rates[peak:], reverse=True)


def test_without_a_reason_to_close_gates_all_stay_open(tiny):
    model, task = tiny
    for learner in (EdgePruning(sizes=(1.0,), **SHORT), UGS(penalties=(0.0,), start=3.0, **SHORT)):
        ranking = learn_ranking(model, task, learner, session=QUIET)
        assert (ranking.value > 0.9).all() and ranking.origin["open"][0] > 0.9


@pytest.fixture(scope="module")
def one_path():
    """A model in which only the embedding and the second MLP write. What the MLP writes decides the metric."""
    module = build("gpt2", torch.float32)
    with torch.no_grad():
        for index, block in enumerate(module.transformer.h):
            for projection in [block.attn.c_proj] + ([] if index == 1 else [block.mlp.c_proj]):
                projection.weight.zero_()
                projection.bias.zero_()
            if index == 1:
                block.mlp.c_proj.weight.mul_(20)
        module.lm_head.weight.mul_(5)
    return wrap_model(module, name="one path"), random_task(8)


@pytest.mark.parametrize(
    "learner",
    [EdgePruning(CMD, "measure", sizes=(0.02,), steps=80, batch=4), UGS(CMD, "measure", 60, 8, 0.2),
     Matryoshka(steps=150), TopKLearner(steps=60, batch=4, warm=None),
     Ensemble(scorers=(Eap(),), learners=(UGS(CMD, "measure", 60, 8, 0.2),))],
    ids=lambda learner: learner.name,
)  # fmt: skip
def test_every_learner_ranks_the_one_path_that_matters_first(one_path, learner):
    model, task = one_path
    ranking = learn_ranking(model, task, learner, session=QUIET)
    names = model.graph.edge_names
    best = {names[edge] for edge in np.argsort(-ranking.value, kind="stable")[:2]}
    assert best == {"input->m1", "m1->logits"}


@pytest.mark.parametrize(
    "learner", [*MASKS, Matryoshka(steps=8), TopKLearner(**SHORT)], ids=lambda learner: learner.name
)
def test_learning_is_deterministic_and_resumes_with_the_same_ranking(tiny, learner, tmp_path, monkeypatch):
    """Stopped twice; finished work is read from the store."""
    model, task = tiny
    whole, again, other = (learn_ranking(model, task, replace(learner, seed=s), session=QUIET) for s in (0, 0, 1))
    np.testing.assert_array_equal(again.value, whole.value)
    assert not np.array_equal(other.value, whole.value) and len(whole.origin["losses"]) == 8
    assert not whole.signed and whole.value.min() >= 0
    monkeypatch.setattr(training, "SAVE_SECONDS", 0.0)
    store, stopped, calls = Store(tmp_path / "s").open(), [], []

    def stop(stage, done, total):
        if stage.startswith("learn") and done in (3, 6) and done not in stopped:
            stopped.append(done)
            raise KeyboardInterrupt

    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            learn_ranking(model, task, learner, session=Session(store=store, progress=stop))
    session = Session(store=store, progress=lambda stage, done, total: calls.append((stage.split(":")[0], done)))
    resumed = learn_ranking(model, task, learner, session=session)
    assert next(done for stage, done in calls if stage == "learn") == 6 and "score" not in dict(calls)
    np.testing.assert_array_equal(resumed.value, whole.value)
    assert resumed.origin["losses"] == whole.origin["losses"]
    units = {path.name.partition("-")[0] for path in store.folder.iterdir() if path.is_dir()}
    assert units == {"learned"} | ({"scores"} if getattr(learner, "warm", None) else set())
    session = Session(store=store, progress=lambda *_: pytest.fail("it is stored"))
    np.testing.assert_array_equal(learn_ranking(model, task, learner, session=session).value, whole.value)


@pytest.mark.parametrize("learner", [*MASKS, TopKLearner(**SHORT)], ids=lambda learner: learner.name)
def test_splitting_a_step_changes_only_rounding(tiny, learner):
    model, task = tiny
    whole, split = (learn_ranking(model, task, learner, memory=memory, session=QUIET) for memory in (10**9, 1))
    np.testing.assert_allclose(whole.value, split.value, atol=1e-3)


@pytest.mark.parametrize("learner", MASKS, ids=lambda learner: learner.name)
def test_the_kl_divergence_ignores_measure_and_metric_and_reuses_the_work(tiny, learner, tmp_path):
    model, task = tiny
    store = Store(tmp_path / "s").open()
    first = learn_ranking(model, task, learner, session=Session(store=store, progress=lambda *_: None))
    session = Session(store=store, progress=lambda *_: pytest.fail("it is stored"))
    same = learn_ranking(model, task, learner.for_measure(CPR), Accuracy(), session=session)
    np.testing.assert_array_equal(first.value, same.value)
    of_measure = replace(learner, loss="measure")
    values = [learn_ranking(model, task, of_measure.for_measure(m), session=QUIET).value for m in (CMD, CPR)]
    assert not np.array_equal(*values) and not np.array_equal(values[0], first.value)
    with pytest.raises(InputError, match="no gradient"):
        learn_ranking(model, task, of_measure, Accuracy(), session=QUIET)


@pytest.mark.parametrize(
    "learner, parameter, values", [(MASKS[0], "sizes", (0.1, 0.5)), (MASKS[1], "penalties", (0.01, 0.1))]
)
def test_several_masks_are_the_mean_of_each(tiny, learner, parameter, values):
    model, task = tiny
    several = learn_ranking(model, task, replace(learner, **{parameter: values}), session=QUIET)
    alone = [learn_ranking(model, task, replace(learner, **{parameter: (v,)}), session=QUIET) for v in values]
    np.testing.assert_allclose(several.value, np.mean([ranking.value for ranking in alone], axis=0))
    assert several.origin["open"] == [ranking.origin["open"][0] for ranking in alone]


def test_published_settings():
    pruning, ugs, matryoshka = EdgePruning.published(), UGS.published(seed=3), Matryoshka.published()
    assert (pruning.steps, pruning.batch, pruning.rate, pruning.loss) == (3000, 32, 0.8, "kl")
    assert (ugs.steps, ugs.penalties, ugs.loss, ugs.seed) == (3000, (1e-3,), "kl", 3)
    assert EdgePruning.published(sizes=(0.1,)).sizes == (0.1,)
    assert (matryoshka.steps, matryoshka.batch, matryoshka.rate, matryoshka.temperature) == (5000, 1, 0.05, 0.5)
    assert matryoshka.warm is None and matryoshka.noise == 0 and matryoshka.forward == "soft"
    assert matryoshka.measure == CPR and matryoshka.rate_at(4999, None) == 0.05
    assert Ensemble.published().learners == (EdgePruning.published(),)
    with pytest.raises(InputError, match="no published settings"):
        TopKLearner.published()


@pytest.mark.parametrize("name", LEARNERS)
def test_learners_are_read_back_from_their_records(name):
    learner = LEARNERS[name](seed=5).for_measure(CPR)
    assert learner_from_record(json.loads(json.dumps(learner.record()))) == learner


def test_a_record_that_lacks_a_parameter_is_refused():
    record = TopKLearner(CPR, steps=7).record()
    with pytest.raises(InputError, match="lacks steps"):
        learner_from_record({key: value for key, value in record.items() if key != "steps"})


@pytest.mark.parametrize(
    "kind, wrong, words",
    [(EdgePruning, {"sizes": ()}, "sizes"), (EdgePruning, {"sizes": (0.0,)}, "above 0"),
     (EdgePruning, {"sizes": (1.1,)}, "up to 1"), (EdgePruning, {"sizes": (0.1, 0.1)}, "different"),
     (EdgePruning, {"warm_up": 1.5}, "warm_up"), (EdgePruning, {"start": float("nan")}, "finite"),
     (EdgePruning, {"loss": "logits"}, "'kl' or 'measure'"), (EdgePruning, {"rate": 0.0}, "positive"),
     (UGS, {"penalties": (-1.0,)}, "at least 0"), (UGS, {"penalties": (float("inf"),)}, "at least 0"),
     (UGS, {"steps": 0}, "steps must be from 1"), (UGS, {"batch": 0}, "per batch"), (UGS, {"seed": -1}, "at least 0"),
     (UGS, {"measure": "CMD"}, "derives from Measure"), (TopKLearner, {"forward": "half"}, "'sharp' or 'soft'"),
     (TopKLearner, {"node_rate": -1.0}, "node_rate"),
     (TopKLearner, {"steps": 0}, "from 1 to 1,000,000, not 0"), (TopKLearner, {"batch": 0}, "examples per batch"),
     (TopKLearner, {"measure": "CMD"}, "derives from Measure"), (TopKLearner, {"warm": "eap"}, "derives from Scorer"),
     (TopKLearner, {"rate": -1.0}, "positive"), (TopKLearner, {"noise": -1.0}, "at least 0"),
     (TopKLearner, {"temperature": 0.0}, "above"), (TopKLearner, {"seed": -1}, "at least 0"),
     (TopKLearner, {"draw": "even"}, "'log' or 'uniform'"), (TopKLearner, {"circuits": 0}, "at least 1 circuit")],
)  # fmt: skip
def test_wrong_parameters_are_errors(kind, wrong, words):
    with pytest.raises(InputError, match=words):
        kind(**wrong)


def test_learners_on_the_command_line(edgewise, tmp_path):
    short = ("--examples", 6, "--steps", 4)
    words = ("learn", "--learner", "edge-pruning", "--sizes", "0.1,0.3", *short, "--out", tmp_path / "e", "--json")
    code, out, err = edgewise(*words)
    assert code == 0, err
    record = json.loads(out)
    assert record["method"]["sizes"] == [0.1, 0.3] and len(record["open"]) == 2
    code, out, err = edgewise("learn", "--learner", "ugs", *short, "--out", tmp_path / "u")
    assert code == 0 and "open gates" in out and "KL divergence" in out, err
    assert edgewise("learn", "--learner", "matryoshka", *short, "--out", tmp_path / "m")[0] == 0
    new = ("--out", tmp_path / "new")
    for options, message in [
        (("--learner", "ugs", "--sizes", "0.1"), "takes no sizes"),
        (("--learner", "edge-pruning", "--resamples", 3), "takes no resamples"),
        (("--sizes", "0.1"), "takes no sizes"),
        (("--loss", "kl"), "takes no loss"),
        (("--learner", "ugs", "--measure", "cpr"), "no effect"),
        (("--learner", "ugs", "--metric", "kl"), "no effect"),
        (("--learner", "edge-pruning", "--sizes", "few"), "--sizes takes numbers"),
        (("--learner", "edge-pruning", "--sizes", "2"), "up to 1"),
        (("--as-published",), "no published settings"),
        (("--learner", "magic"), "ugs"),
    ]:
        assert message in refused(edgewise, "learn", *options, *new)
    code, out, err = edgewise(
        "learn", "--learner", "ugs", "--as-published", "--examples", 4, "--dry-run", "--json", *new
    )
    assert code == 0 and json.loads(out)["stages"][0]["passes"] == 3000, err
    assert not (tmp_path / "new").exists()
