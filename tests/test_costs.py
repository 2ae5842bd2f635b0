"""What a run will cost, before it is begun."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import replace

import pytest
import torch
from conftest import build, random_task

from edgewise import EapIg, InputError, Local, Mean, load_model
from edgewise.__main__ import main
from edgewise.learn import TopKLearner
from edgewise.models import wrap_model
from edgewise.models.placement import free_bytes
from edgewise.recipes.forecast import evaluating, forecast, learning, scoring
from edgewise.recipes.settings import Settings

SETTINGS = Settings(batch_size=3)


@pytest.fixture
def model():
    return wrap_model(build("gpt2", torch.float32), name="tiny")


@pytest.fixture
def edgewise(monkeypatch, capsys):
    def run(*words):
        monkeypatch.setattr(sys, "argv", ["edgewise", *map(str, words)])
        with pytest.raises(SystemExit) as end:
            main()
        return end.value.code or 0, *capsys.readouterr()

    return run


def test_examples_batches_passes_memory_and_disk(model):
    task, learner = random_task(7), TopKLearner(steps=5, resamples=1)
    stages = [scoring(task, SETTINGS), learning(task, learner, SETTINGS), evaluating(task, 12, SETTINGS)]
    found = forecast(model, stages)
    score, learn, evaluate = found.stages
    assert [stage.passes for stage in found.stages] == [1, 10, 12]
    assert (score.examples, score.batches, score.batch_size, score.length) == (7, math.ceil(7 / 3), 3, task.longest)
    assert learn.batch_size == 7 and evaluate.batches == 3
    assert found.disk == 7 * model.graph.n_edges * 4
    assert found.weights == sum(one.nbytes for one in model.module.parameters())
    assert all(0 < stage.least <= stage.need for stage in found.stages)
    assert found.seconds == pytest.approx(sum(stage.seconds for stage in found.stages)) and found.seconds > 0
    # A step of learning is one piece here, and scoring has three.
    shared = score.seconds / 3 + learn.seconds + evaluate.seconds / 3
    assert (score.pieces, learn.pieces, evaluate.pieces) == (3, 1, 3)
    assert replace(found, workers=4).seconds == pytest.approx(shared)
    json.dumps(found.record(), allow_nan=False)


def test_more_work_takes_longer(model):
    """Means, which need a task of their own, are timed like any other ablation."""
    task = random_task(30)
    few, many = (
        forecast(model, [evaluating(task, circuits, replace(SETTINGS, ablation=Mean()))], exact=True).seconds
        for circuits in (1, 1000)
    )
    assert many > 10 * few
    one, ten = (
        forecast(model, [scoring(task, replace(SETTINGS, scorer=EapIg(steps)))], exact=True).seconds
        for steps in (1, 40)
    )
    assert ten > 3 * one


def test_what_has_no_room_is_refused_with_what_would(model, monkeypatch):
    task = random_task(7)
    monkeypatch.setattr("edgewise.recipes.forecast.free_bytes", lambda device: 10_000)
    with pytest.raises(
        InputError, match=r"one example of \d+ tokens needs .* what would fit: prompts of up to \d+ tok"
    ):
        forecast(model, [scoring(task, SETTINGS)])
    need = SETTINGS.scorer.need(model.transformer.shape, task.longest).of(1)
    monkeypatch.setattr("edgewise.recipes.forecast.free_bytes", lambda device: need)
    forecast(model, [scoring(task, SETTINGS)])
    with pytest.raises(InputError, match="fewer --workers"):
        forecast(model, [scoring(task, SETTINGS)], Local(2))
    monkeypatch.setattr("edgewise.recipes.forecast.free_bytes", lambda device: None)  # nobody knows
    forecast(model, [scoring(task, SETTINGS)])


def test_a_model_that_does_not_fit_is_refused_before_its_weights_are_read(monkeypatch):
    import transformers

    monkeypatch.setattr(
        transformers.AutoModelForCausalLM, "from_pretrained", lambda *_, **__: pytest.fail("weights are read")
    )
    monkeypatch.setattr("edgewise.models.load.free_bytes", lambda device: 600_000)
    with pytest.raises(InputError, match=r"'demo' doesn't fit: .* float32.*cpu has .* left; what would fit: a smaller"):
        load_model("demo")


def test_a_cpu_says_how_much_it_has_left():
    assert 10**7 < free_bytes(torch.device("cpu")) < 10**14
    assert free_bytes(torch.device("meta")) is None


@pytest.mark.parametrize(
    "words, stages",
    [
        (("run", "--no-learned"), ["score", "evaluate"]),
        (("run", "--learned"), ["score", "learn", "learn", "evaluate", "evaluate"]),
        (("score", "--out", "out"), ["score"]),
        (("score", "--out", "out", "--method", "learned"), ["learn"]),
        (("evaluate", "full", "--out", "out.json"), ["evaluate"]),
        (("study", "--learned"), ["score", "learn", "learn", "evaluate", "evaluate"]),
    ],
    ids=" ".join,
)
def test_a_dry_run_shows_the_plan_and_writes_nothing(edgewise, words, stages, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, _ = edgewise(*words, "--examples", 6, "--dry-run", "--json")
    found = json.loads(out)
    for one in found.get("forecasts", [found]):
        assert [stage["name"] for stage in one["stages"]] == stages
        assert all(stage["examples"] == 6 for stage in one["stages"])
    code_of_text, text, _ = edgewise(*words, "--examples", 6, "--dry-run")
    assert "no result was written" in text and "memory: " in text
    assert (code, code_of_text) == (0, 0) and not list(tmp_path.iterdir())
