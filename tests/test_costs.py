"""Forecasts of the cost of a run."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from conftest import build, random_task

from edgewise import Bootstrap, Circuit, InputError, Local, discover, load_model, load_task
from edgewise.evaluate import Mean
from edgewise.evaluate.run_circuits import circuit_groups
from edgewise.learn import TopKLearner
from edgewise.models import wrap_model
from edgewise.models.model import free_bytes
from edgewise.recipes.forecast import EvaluateWork, LearnWork, ScoreWork, SelectWork, Timer, forecast
from edgewise.recipes.recipe import list_recipes, paper_recipes
from edgewise.recipes.settings import Settings
from edgewise.runtime.engine import IN_PROCESS

SETTINGS = Settings(batch_size=3)


def random_circuits(model, count):
    """Distinct circuits that pruning leaves as they are."""
    draw, circuits = np.random.default_rng(0), {}
    while len(circuits) < count:
        circuit = Circuit(model.graph, draw.random(model.graph.n_edges) < 0.5).prune()
        circuits |= {circuit: None} if circuit.n_edges else {}
    return tuple(circuits)


@pytest.fixture
def model():
    return wrap_model(build("gpt2", torch.float32), name="tiny")


def test_examples_batches_passes_memory_and_disk(model):
    task, learner = random_task(7), TopKLearner(steps=5, resamples=1)
    circuits = random_circuits(model, 12)
    works = [ScoreWork(task, SETTINGS), LearnWork(task, SETTINGS, learner), EvaluateWork(task, SETTINGS, circuits)]
    result = forecast(model, works, exact=True)
    score, learn, evaluate = result.stages
    assert [stage.passes for stage in result.stages] == [1, 10, 12]
    assert (score.examples, score.batches, score.batch_size, score.length) == (7, math.ceil(7 / 3), 3, task.longest)
    # A step runs four circuits on four examples.
    assert learn.batch_size == 4 and evaluate.batches == 3
    assert result.disk == 7 * model.graph.n_edges * 4
    assert result.weights == sum(weight.nbytes for weight in model.module.parameters())
    assert all(0 < stage.least <= stage.need for stage in result.stages)
    assert result.seconds == pytest.approx(sum(stage.seconds for stage in result.stages)) and result.seconds > 0
    # A step of learning is one piece here, and scoring has three.
    assert (score.pieces, learn.pieces, evaluate.pieces) == (3, 1, 3)
    assert replace(result, workers=4).seconds == pytest.approx(score.seconds / 3 + learn.seconds + evaluate.seconds / 3)
    json.dumps(result.record(), allow_nan=False)


def test_repeated_work_costs_more(model):
    works = [ScoreWork(random_task(7), SETTINGS, times=times) for times in (1, 3)]
    once, thrice = forecast(model, works, exact=True).stages
    assert (once.passes, thrice.passes) == (1, 3)


def test_batches_are_only_timed_if_the_run_may_take_minutes(model, monkeypatch):
    work = ScoreWork(random_task(7), SETTINGS)
    assert forecast(model, [work]).seconds is None and not forecast(model, [work]).is_long
    monkeypatch.setattr("edgewise.recipes.forecast.SLOW_FLOPS", 1.0)
    assert forecast(model, [work]).seconds > 0


def test_more_circuits_take_longer(model, monkeypatch):
    task = random_task(30)
    means = replace(SETTINGS, ablation=Mean())
    assert (
        forecast(model, [EvaluateWork(task, means, random_circuits(model, 1))], exact=True).seconds > 0
    )  # means need a task of their own
    groups = len(circuit_groups(IN_PROCESS, model, 100, 10))
    monkeypatch.setattr(Timer, "time", lambda *args: ((2.0 + len(args[3].circuits)) / len(task), None))
    few, many = (
        forecast(model, [EvaluateWork(task, means, random_circuits(model, n))], exact=True).seconds for n in (1, 100)
    )
    assert few == pytest.approx(3) and many == pytest.approx(100 + 2 * groups)


def test_equal_work_gets_equal_times(model):
    circuits = random_circuits(model, 3)
    works = [EvaluateWork(random_task(8, seed, 7, 7), SETTINGS, circuits) for seed in (0, 1)]
    first, second = forecast(model, works, exact=True).stages
    assert first.seconds == second.seconds > 0


def test_equal_circuits_are_counted_once(model):
    circuits = random_circuits(model, 3)
    (stage,) = forecast(model, [EvaluateWork(random_task(7), SETTINGS, circuits * 5)], exact=True).stages
    assert stage.passes == 3


def test_the_forecast_of_a_run_has_the_circuits_that_recipes_select(monkeypatch):
    """The oracle is the run itself: its distinct circuits. Two rows of equal work take about as long."""
    model = load_model("demo")
    train, test = (load_task("ioi", model, split, 24) for split in ("train", "test"))
    pairs = tuple(list_recipes(paper_recipes(Bootstrap())))
    settings = Settings()
    selected = SelectWork(train, settings, pairs)
    evaluated = [EvaluateWork(test, settings, selected=selected)] * 2
    works = [ScoreWork(train, settings), selected, *evaluated]
    monkeypatch.setattr("edgewise.recipes.forecast.SELECT_SECONDS", math.inf)
    _, select, first, second = forecast(model, works, exact=True).stages
    outcomes = discover(model, train, test, settings, learn_budget=0).outcomes
    selected = {circuit for outcome in outcomes for circuit in outcome.circuits}
    assert len(selected) / 2 < first.passes < 2 * len(selected) < len(pairs) * len(settings.sizes)
    assert first.passes == second.passes and select.passes == len(pairs)
    # With no time for more than one recipe, its circuits are extrapolated to all.
    monkeypatch.setattr("edgewise.recipes.forecast.SELECT_SECONDS", 0.0)
    one_recipe = forecast(model, works, exact=True).stages[2]
    assert first.passes < one_recipe.passes <= len(pairs) * len(settings.sizes)


def test_the_difference_of_two_noisy_times_is_never_zero(model, monkeypatch):
    """A measurement of the circuits that is shorter than one without any must not make them free."""
    times = iter([1.0, 1.0, 0.9, 0.9])
    monkeypatch.setattr(Timer, "_run", lambda *_: (next(times), None))
    (stage,) = forecast(model, [EvaluateWork(random_task(3), SETTINGS, random_circuits(model, 4))], exact=True).stages
    assert stage.seconds > 1.0


def test_the_first_run_is_warm_up_unless_it_takes_long(model, monkeypatch):
    scores = [np.ones((1, model.graph.n_edges), np.float32)]
    for times, expected in (([2.0, 3.0], 3.0 * 7 / 3), ([2.9, 0.5], 0.5 * 7 / 3), ([4.0], 4.0 * 7)):
        left = iter(times)
        monkeypatch.setattr(
            Timer,
            "_run",
            lambda *_, left=left: (next(left), scores),
        )
        assert forecast(model, [ScoreWork(random_task(7), SETTINGS)], exact=True).seconds == pytest.approx(expected)


def test_too_little_memory_raises_with_advice(model, monkeypatch):
    work = ScoreWork(random_task(7), SETTINGS)
    monkeypatch.setattr("edgewise.recipes.forecast.free_bytes", lambda device: 10_000)
    with pytest.raises(InputError, match=r"one example of \d+ tokens needs .* would fit: prompts of up to \d+ tok"):
        forecast(model, [work])
    need = SETTINGS.scorer.need(model.transformer.shape, work.task.longest).total(1)
    monkeypatch.setattr("edgewise.recipes.forecast.free_bytes", lambda device: need)
    forecast(model, [work])
    with pytest.raises(InputError, match="fewer workers"):
        forecast(model, [work], Local(2))
    monkeypatch.setattr("edgewise.recipes.forecast.free_bytes", lambda device: None)  # not reported
    forecast(model, [work])


def test_a_model_that_does_not_fit_raises_before_its_weights_are_read(monkeypatch):
    import transformers

    monkeypatch.setattr(
        transformers.AutoModelForCausalLM, "from_pretrained", lambda *_, **__: pytest.fail("weights are read")
    )
    monkeypatch.setattr("edgewise.models.load.free_bytes", lambda device: 600_000)
    with pytest.raises(InputError, match=r"'demo' doesn't fit: .* float32.*cpu has .* left; what would fit: a smaller"):
        load_model("demo")


def test_free_memory_of_a_cpu():
    assert 10**7 < free_bytes(torch.device("cpu")) < 10**14
    assert free_bytes(torch.device("meta")) is None


def test_files_in_the_cache_of_a_control_group_count_as_free_memory(tmp_path, monkeypatch):
    """The system drops them when a process needs memory. A model that was just read may fill the limit with them."""
    used, cached = 900_000, 700_000
    (tmp_path / "memory.max").write_text("1000000\n")
    (tmp_path / "memory.current").write_text(f"{used}\n")
    (tmp_path / "memory.stat").write_text(f"anon 200000\nfile {cached}\nactive_file 100000\ninactive_file 600000\n")
    monkeypatch.setattr("edgewise.models.model.CONTROL_GROUP", tmp_path)
    assert free_bytes(torch.device("cpu")) == 1_000_000 - used + cached
    (tmp_path / "memory.max").write_text("max\n")
    assert free_bytes(torch.device("cpu")) > 10**7


@pytest.mark.parametrize(
    "words, stages",
    [
        (("run", "--no-learned"), ["score", "select", "evaluate", "evaluate"]),
        (
            ("run", "--no-learned", "--verify"),
            ["score", "select", "evaluate", "evaluate", "verify", "verify", "robustness"],
        ),
        (("run", "--learned"), ["score", "learn", "learn", "select", "evaluate", "evaluate"]),
        (("score", "--out", "out"), ["score"]),
        (("learn", "--out", "out"), ["learn"]),
        (("evaluate", "full", "--out", "out.json"), ["evaluate"]),
        (("study", "--learned"), ["score", "learn", "learn", "select", "evaluate", "evaluate"]),
    ],
    ids=" ".join,
)
def test_a_dry_run_shows_the_plan_and_writes_nothing(edgewise, words, stages, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, _ = edgewise(*words, "--examples", 6, "--dry-run", "--json")
    result = json.loads(out)
    for each in result.get("forecasts", [result]):
        assert [stage["name"] for stage in each["stages"]] == stages
        assert all(stage["seconds"] > 0 for stage in each["stages"])
        # Random circuits of the tests are expected to run on a quarter of the examples.
        expected = [6] * 5 + [2] * 2 if "--verify" in words else [6] * len(stages)
        assert [stage["examples"] for stage in each["stages"]] == expected
    if words[0] in ("score", "study"):  # the others print what `score` prints
        code_of_text, text, _ = edgewise(*words, "--examples", 6, "--dry-run")
        assert code_of_text == 0 and "nothing was written" in text and "memory: " in text
    assert code == 0 and not list(tmp_path.iterdir())
