"""The caller's settings of torch (gradients, autocast, default dtype and device) change no result."""

from __future__ import annotations

from contextlib import contextmanager

import numpy as np
import pytest
import torch
from conftest import build, random_task

from edgewise import (
    CMD,
    InputError,
    MaskIg,
    Recipe,
    Settings,
    TopKLearner,
    discover,
    learn_ranking,
    load_model,
    score_edges,
)
from edgewise.evaluate import Mean
from edgewise.models import wrap_model


@contextmanager
def default_dtype(dtype):
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    yield
    torch.set_default_dtype(before)


@contextmanager
def grad_disabled():
    torch.set_grad_enabled(False)
    yield
    torch.set_grad_enabled(True)


MODES = {
    "no_grad": torch.no_grad,
    "grad disabled": grad_disabled,
    "inference": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "float64": lambda: default_dtype(torch.float64),
    "bfloat16": lambda: default_dtype(torch.bfloat16),
    "meta": lambda: torch.device("meta"),
}


def results(module):
    """Return arrays of every function that runs a model."""
    model, task = wrap_model(module), random_task(4)
    learned = learn_ranking(model, task, TopKLearner(steps=2), ablation=Mean())
    result = discover(model, task, random_task(4, seed=1), Settings(sizes=(0.1, 1.0)), {CMD: (Recipe(),)})
    arrays = [score_edges(model, task, MaskIg(2)).values, learned.value, result.statistics.mean]
    return arrays + [outcome.curve.values for outcome in result.outcomes] + list(result.attention.values)


@pytest.fixture(scope="module")
def module():
    return build("gemma2", torch.float32)


@pytest.fixture(scope="module")
def expected(module):
    return results(module)


@pytest.mark.parametrize("mode", MODES)
def test_modes_of_the_caller_change_no_bit(module, expected, mode):
    before = torch.get_default_dtype(), torch.is_grad_enabled(), torch.is_inference_mode_enabled()
    with MODES[mode]():
        inside = torch.get_default_dtype(), torch.is_grad_enabled(), torch.is_autocast_enabled("cpu")
        arrays = results(module)
        assert inside == (torch.get_default_dtype(), torch.is_grad_enabled(), torch.is_autocast_enabled("cpu"))
    assert before == (torch.get_default_dtype(), torch.is_grad_enabled(), torch.is_inference_mode_enabled())
    for array, other in zip(arrays, expected, strict=True):
        np.testing.assert_array_equal(array, other)


@pytest.mark.parametrize("mode", MODES)
def test_a_model_loaded_under_any_mode_is_the_same(mode):
    with MODES[mode]():
        model = load_model("demo")
    plain, task = load_model("demo"), random_task(2)
    assert model.digest == plain.digest and model.transformer.dtype == torch.float32
    np.testing.assert_array_equal(score_edges(model, task).values, score_edges(plain, task).values)


def test_weights_made_in_inference_mode_raise_an_input_error():
    with torch.inference_mode():
        module = build("gpt2")
    with pytest.raises(InputError, match=r"inference_mode\(\).*load the model outside of it"):
        wrap_model(module)


def test_a_model_without_weights_raises_an_input_error():
    with pytest.raises(InputError, match=r"no weights: transformer\.wte\.weight is on the device meta; load them"):
        wrap_model(build("gpt2").to("meta"))
