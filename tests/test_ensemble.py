"""Combined rankings and ensembles."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from commands import refused
from conftest import build, random_task

from edgewise import (
    CMD,
    CPR,
    Eap,
    EapIg,
    Graph,
    InputError,
    Ranking,
    Session,
    learn_ranking,
    score_edges,
    summarise,
    wrap_model,
)
from edgewise.core.ranking import combine_rankings
from edgewise.evaluate import Patching
from edgewise.graph import NodeGraph
from edgewise.learn import Ensemble, LearningProblem, UniformGradientSampling, choose_weights
from edgewise.tasks import LogitDifference

QUIET = Session(progress=lambda *_: None)
GRAPH = Graph(2, 2, 4)
UGS = UniformGradientSampling(steps=4, batch=4)


def random_ranking(seed: int, signed: bool = True) -> Ranking:
    value = np.random.default_rng(seed).normal(size=GRAPH.n_edges)
    return Ranking(GRAPH, value if signed else np.abs(value), signed)


@pytest.mark.parametrize("how", ["ranks", "values"])
@pytest.mark.parametrize("signed", [True, False])
def test_a_combination_keeps_one_ranking_and_ignores_order_scale_and_weight_0(how, signed):
    first, second, third = (random_ranking(seed, signed) for seed in range(3))
    alone = combine_rankings([first], how)
    assert alone.signed == signed and (np.argsort(alone.value) == np.argsort(first.value)).all()
    both = combine_rankings([first, second], how)
    np.testing.assert_allclose(combine_rankings([second, first], how).value, both.value)
    larger = Ranking(GRAPH, 1e200 * second.value, signed)
    np.testing.assert_allclose(combine_rankings([first, larger], how).value, both.value)
    np.testing.assert_allclose(combine_rankings([first, third, second], how, [2, 0, 2]).value, both.value)
    heavy = combine_rankings([first, second], how, [1e6, 1])
    assert np.corrcoef(heavy.value, alone.value)[0, 1] > 0.999999


def test_ranks_and_values_by_their_definition():
    value = np.tile([0.0, -3.0, 1.0, 1.0], GRAPH.n_edges)[: GRAPH.n_edges]
    ranking, n = Ranking(GRAPH, value), GRAPH.n_edges
    ranks = [np.mean([r for r in range(1, n + 1) if sorted(np.abs(value))[r - 1] == abs(x)]) for x in value]
    np.testing.assert_allclose(combine_rankings([ranking]).value, np.sign(value) * ranks / n)
    np.testing.assert_allclose(combine_rankings([ranking], "values").value, value / np.sqrt(np.mean(value**2)))
    assert not combine_rankings([Ranking(GRAPH, np.zeros(n))], "values").value.any()


def test_signs_are_combined_for_cpr_and_dropped_for_cmd():
    signed, unsigned = random_ranking(0), random_ranking(1, signed=False)
    mixed = combine_rankings([signed, unsigned])
    assert not mixed.signed
    absolute = combine_rankings([Ranking(GRAPH, np.abs(signed.value), False), unsigned])
    np.testing.assert_array_equal(mixed.value, absolute.value)
    with_signs = combine_rankings([signed, unsigned], rank="signed")
    harmful = signed.value < 0
    assert with_signs.signed and (with_signs.value[harmful] < mixed.value[harmful]).all()
    np.testing.assert_allclose(with_signs.value[~harmful], mixed.value[~harmful])


def test_an_edge_must_pass_every_filter():
    masks = np.random.default_rng(0).random((2, GRAPH.n_edges)) < 0.5
    filtered = [Ranking(GRAPH, random_ranking(seed).value, kept=mask) for seed, mask in enumerate(masks)]
    np.testing.assert_array_equal(combine_rankings([*filtered, random_ranking(2)]).kept, masks.all(0))
    assert combine_rankings([random_ranking(0)]).kept is None


@pytest.mark.parametrize(
    "arguments, words",
    [(([],), "at least one"), ((["a"],), "at least one"), (([random_ranking(0)], "mean"), "ranks or values"),
     (([random_ranking(0)], "ranks", [1, 2]), "weights"), (([random_ranking(0)], "ranks", [0]), "not all 0"),
     (([random_ranking(0)], "ranks", [-1]), "at least 0"), (([random_ranking(0)], "ranks", [float("nan")]), "weights"),
     (([random_ranking(0)], "ranks", None, "best"), "absolute or signed"),
     (([random_ranking(0), Ranking(Graph(1, 1, 4), np.ones(8))],), "different graphs"),
     (([random_ranking(0), Ranking(NodeGraph(GRAPH), np.ones(NodeGraph(GRAPH).n_edges))],), r"number 2 has \d+ nodes")],
)  # fmt: skip
def test_rankings_that_can_not_be_combined_are_errors(arguments, words):
    with pytest.raises(InputError, match=words):
        combine_rankings(*arguments)


@pytest.fixture(scope="module")
def tiny():
    return wrap_model(build("gpt2", torch.float32), name="tiny"), random_task(8)


@pytest.mark.parametrize("measure", [CMD, CPR])
def test_an_ensemble_is_the_combination_of_its_members(tiny, measure):
    model, task = tiny
    ensemble = Ensemble(measure, (Eap(), EapIg(2)), (UGS,), weights=(1.0, 2.0, 1.0))
    ranking = learn_ranking(model, task, ensemble, session=QUIET)
    members = [summarise(score_edges(model, task, scorer, session=QUIET)).ranking for scorer in ensemble.scorers]
    members.append(learn_ranking(model, task, UGS, session=QUIET))
    expected = combine_rankings(members, "ranks", (1, 2, 1), measure.rank)
    np.testing.assert_array_equal(ranking.value, expected.value)
    assert ranking.signed == (measure == CPR) and ranking.origin["weights"] == [0.25, 0.5, 0.25]
    assert ranking.origin["method"]["scorers"] == ["eap", {"name": "eap-ig", "steps": 2}]


def test_weights_are_chosen_by_the_area_on_other_examples(tiny):
    model, task = tiny
    good = summarise(score_edges(model, task, EapIg(), session=QUIET)).ranking
    bad = Ranking(model.graph, -good.value)
    problem = LearningProblem(model, task, LogitDifference(), Patching(), (0.01, 0.05, 0.1, 0.2, 0.5, 1.0), 10**9)
    assert choose_weights(problem, [bad, good], CPR, "ranks", QUIET) == (0.0, 1.0)
    assert choose_weights(problem, [good, good, good], CPR, "ranks", QUIET) == (1.0, 1.0, 1.0)
    ensemble = Ensemble(CPR, (Eap(), EapIg(2)), (), held_out=0.25)
    ranking = learn_ranking(model, task, ensemble, session=QUIET)
    assert ranking.origin["weights"] in ([0.5, 0.5], [1.0, 0.0], [0.0, 1.0])
    with pytest.raises(InputError, match="leaves none"):
        learn_ranking(model, task, Ensemble(scorers=(Eap(),), learners=(), held_out=0.1), session=QUIET)


@pytest.mark.parametrize(
    "wrong, words",
    [({"scorers": (), "learners": ()}, "at least one"), ({"scorers": ("eap",)}, "derives from Scorer"),
     ({"learners": (Eap(),)}, "derives from Learner"), ({"weights": (1.0,)}, "as many weights"),
     ({"scorers": (Eap(),), "learners": (), "weights": (0.0,)}, "not all 0"), ({"how": "best"}, "'ranks' or 'values'"),
     ({"held_out": 1.0}, "below 1"), ({"weights": (1.0,) * 4, "held_out": 0.5}, "aren't given"),
     ({"measure": "CMD"}, "derives from Measure"), ({"seed": -1}, "at least 0")],
)  # fmt: skip
def test_wrong_parameters_of_an_ensemble_are_errors(wrong, words):
    with pytest.raises(InputError, match=words):
        Ensemble(**wrong)


def test_rankings_are_combined_on_the_command_line(edgewise, tmp_path):
    for name, scorer in (("a", "eap"), ("b", "eap-ig")):
        assert edgewise("score", "--scorer", scorer, "--examples", 6, "--out", tmp_path / name)[0] == 0
    both = (tmp_path / "a", tmp_path / "b")
    words = ("combine", *both, "--how", "values", "--weights", "1,3", "--out", tmp_path / "c", "--json")
    code, out, err = edgewise(*words)
    assert code == 0 and json.loads(out)["method"]["weights"] == [0.25, 0.75], err
    combined = Ranking.load(tmp_path / "c")
    assert combined.signed and combined.graph.n_edges == 479
    code, out, err = edgewise("combine", tmp_path / "c", *both, "--rank", "absolute", "--out", tmp_path / "d")
    assert code == 0 and "3 rankings" in out and not Ranking.load(tmp_path / "d").signed, err
    assert edgewise("select", tmp_path / "d", "--edges", 47, "--out", tmp_path / "circuit.json")[0] == 0
    random_ranking(0).save(tmp_path / "other")
    new = ("--out", tmp_path / "new")
    assert "different graphs" in refused(edgewise, "combine", tmp_path / "a", tmp_path / "other", *new)
    assert "two or more" in refused(edgewise, "combine", tmp_path / "a", *new)
    assert "as many weights" in refused(edgewise, "combine", *both, "--weights", "1", *new)
    assert "--weights takes numbers" in refused(edgewise, "combine", *both, "--weights", "a,b", *new)
    assert "--overwrite" in refused(edgewise, "combine", *both, "--out", tmp_path / "c")
    assert not (tmp_path / "new").exists()
