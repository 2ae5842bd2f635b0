"""Models over several devices: nothing meets what lies elsewhere, and every number is that of one device.

There is no second device here, so devices are pretended: tensors that hold their numbers on the CPU, but say that they
are elsewhere, and refuse to meet tensors of another place, as real ones do.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from conftest import build, first_in_every_family, random_task
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map
from transformers import LlamaConfig, LlamaForCausalLM

from edgewise import Circuit, Eap, EapIg, InputError, evaluate_circuits
from edgewise.evaluate import ABLATIONS, CMD, Zero
from edgewise.evaluate.attention import record_attention
from edgewise.learn.training import GradientJob
from edgewise.models import Model, wrap_model
from edgewise.models.families import build_transformer
from edgewise.models.memory import Need
from edgewise.models.model import choose_devices, place_layers
from edgewise.runtime import IN_PROCESS
from edgewise.score import MaskIg
from edgewise.score.run_scorer import ScoreJob
from edgewise.tasks import Kl, LogitDifference

ELSEWHERE = "meta"  # the one kind of device that torch lets a subclass pretend to be on; its numbers are real here
HOME = torch.device("cpu")
aten = torch.ops.aten


class Pretended(torch.Tensor):
    """A tensor that says it is on `device`, and holds its numbers on the CPU."""

    @staticmethod
    def __new__(cls, held, device):
        return torch.Tensor._make_wrapper_subclass(
            cls, held.shape, strides=held.stride(), storage_offset=held.storage_offset(), dtype=held.dtype,
            device=device,
        )  # fmt: skip

    def __init__(self, held, device):
        self.held = held

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        return meet(function, args, kwargs or {})


class Pretending(TorchDispatchMode):
    """Inside, tensors that are made on a pretended device, or sent there, are of it."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        return meet(function, args, kwargs or {})


def meet(function, args, kwargs):
    """What torch would do, on the CPU; refuses tensors of several devices."""
    given = [one for one in tree_leaves((args, kwargs)) if isinstance(one, torch.Tensor)]
    places = {one.device for one in given if isinstance(one, Pretended) or one.ndim}
    where = kwargs.get("device")
    if function is aten.copy_.default:
        where = args[0].device
    elif len(places) > 1:
        raise RuntimeError(f"{function} of tensors on {sorted(map(str, places))}")
    where = where or next(iter(places), HOME)
    held = {id(one.held): one for one in given if isinstance(one, Pretended)}
    kwargs = {**kwargs, "device": HOME} if kwargs.get("device") else kwargs
    args, kwargs = tree_map(lambda one: one.held if isinstance(one, Pretended) else one, (args, kwargs))

    def wrapped(one):
        if not isinstance(one, torch.Tensor) or where == HOME:
            return one
        return held.get(id(one)) if id(one) in held else Pretended(one, where)

    return tree_map(wrapped, function(*args, **kwargs))


def spread(loaded, places):
    """The model with its layers on pretended devices; what is before them on the first, what is after on the last."""
    body = getattr(loaded, "transformer", None) or getattr(loaded, "gpt_neox", None) or loaded.model
    body = getattr(body, "decoder", body)
    blocks = list(body.h if hasattr(body, "h") else body.layers)
    homes = {part: place for block, place in zip(blocks, places, strict=True) for part in block.modules()}
    final = [module for name, module in loaded.named_modules() if name.endswith(("norm", "ln_f", "head", "embed_out"))]
    homes = dict.fromkeys(final, places[-1]) | homes
    for module in loaded.modules():
        place = torch.device(ELSEWHERE, homes.get(module, places[0]))
        for held in (module._parameters, module._buffers):
            for name, tensor in held.items():
                if tensor is not None:
                    held[name] = Pretended(tensor.detach(), place)
    return loaded


@pytest.fixture
def pair(family):
    """A model on one device and the same over several, with its last layers, and parts of it, out of turn."""
    one = wrap_model(build(family), name="tiny")
    again = build(family).eval().requires_grad_(False)
    places = {2: (0, 1), 3: (0, 2, 1)}[one.graph.n_layers]
    with Pretending():
        several = Model("tiny", build_transformer(spread(again, places)))
    assert len(several.transformer.devices) == len(places)
    return one, several


@pytest.fixture
def examples():
    return random_task(4, seed=5).examples


def test_what_is_elsewhere_is_refused():
    """Or else none of these tests could fail."""
    with Pretending():
        here, there = (torch.ones(3, device=torch.device(ELSEWHERE, place)) for place in (0, 1))
        with pytest.raises(RuntimeError, match="tensors on"):
            here + there
        assert (here + there.to(here.device)).cpu().tolist() == [2, 2, 2]


@first_in_every_family("scorer", [EapIg(2), Eap(), MaskIg(2)])
def test_scores(pair, examples, scorer):
    job = ScoreJob(scorer, Kl() if scorer == EapIg(2) else LogitDifference())
    expected = job(pair[0], examples)
    with Pretending():
        found = job(pair[1], examples)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-9)


@first_in_every_family("ablation", [kind() for kind in ABLATIONS.values()])
def test_circuits_and_what_is_learned(pair, examples, ablation, monkeypatch):
    if ablation == Zero():
        monkeypatch.setattr("edgewise.models.memory.MAX_KEPT_STREAM_BYTES", 0)  # so streams are mixed again
    task = random_task(4, seed=5)
    graph, rng = pair[0].graph, np.random.default_rng(0)
    circuits = [Circuit(graph, rng.random(graph.n_edges) < share) for share in (0.05, 0.3, 0.9)]
    ends = {example: (1.0, 0.0) for example in examples}
    weights = torch.tensor(rng.random((2, graph.n_edges)))

    def work(model):
        prepared = ablation.prepare(model, task, [list(range(len(examples)))], IN_PROCESS)
        loss, gradient = GradientJob(CMD, LogitDifference(), prepared, weights, ends, 1.0)(model, examples)
        return evaluate_circuits(model, task, circuits, ablation=ablation).values, loss, gradient

    expected_values, expected_loss, expected = work(pair[0])
    with Pretending():
        values, loss, gradient = work(pair[1])
    np.testing.assert_allclose(values, expected_values, rtol=1e-6)
    assert loss == pytest.approx(expected_loss)
    np.testing.assert_allclose(gradient, expected, rtol=1e-5, atol=1e-6 * float(expected.abs().max()))


def test_attention(pair):
    task = random_task(2, seed=5)
    heads = range(1, pair[0].graph.n_heads + 1)
    expected = record_attention(pair[0], task, [0], heads)
    with Pretending():
        found = record_attention(pair[1], task, [0], heads)
    assert np.array_equal(found.values[0], expected.values[0])


NO_STORE = Need(0, 0, 0)
GB = 10**9


def wide_llama():
    """Eight layers of 0.16 GB and embeddings of 0.26 GB each in bfloat16, but no numbers."""
    config = LlamaConfig(
        num_hidden_layers=8, num_attention_heads=32, hidden_size=4096, intermediate_size=1100, vocab_size=32000,
        num_key_value_heads=32,
    )  # fmt: skip
    with torch.device("meta"):
        return LlamaForCausalLM(config).bfloat16()


def held(module, places):
    """Bytes on each device; every weight lies on exactly one."""
    found = {}
    for name, weight in module.named_parameters():
        (place,) = [place for part, place in places.items() if name == part or name.startswith(f"{part}.")]
        found[str(place)] = found.get(str(place), 0) + weight.numel() * 2
    return found


def rooms(**amounts):
    return {torch.device(name.replace("_", ":")): int(amount * GB) for name, amount in amounts.items()}


def test_layers_are_spread_evenly_where_there_is_room():
    module = wide_llama()
    places = place_layers(module, torch.bfloat16, NO_STORE, rooms(cuda_0=40, cuda_1=40, cpu=40))
    found = held(module, places)
    assert set(found) == {"cuda:0", "cuda:1"}
    assert max(found.values()) - min(found.values()) < 0.6 * GB
    of_layers = [places[f"model.layers.{index}"].index for index in range(8)]  # whole ones
    assert of_layers == sorted(of_layers) and places["model.embed_tokens"].index == 0


def test_the_cpu_takes_what_has_no_room_elsewhere():
    module = wide_llama()
    places = place_layers(module, torch.bfloat16, NO_STORE, rooms(cuda_0=2, cpu=10))
    found = held(module, places)
    assert 0 < found["cuda:0"] <= GB and found["cpu"] > 0  # half a GB each are for the batch and the driver
    more = Need(0, int(1.6 * GB), 0)
    assert held(module, place_layers(module, torch.bfloat16, more, rooms(cuda_0=2, cpu=10)))["cuda:0"] < found["cuda:0"]


def test_what_fits_nowhere_is_refused_with_what_would():
    with pytest.raises(InputError, match=r"weights of 1\.\d GB .* \(cuda:0 1\.0 GB, cuda:1 1\.2 GB\); use more"):
        place_layers(wide_llama(), torch.bfloat16, NO_STORE, rooms(cuda_0=1, cuda_1=1.2))


def test_devices_by_name():
    assert choose_devices("cpu, cpu") == choose_devices("all") == choose_devices("cpu") == (torch.device("cpu"),)
    for name in ("cpu,nowhere", "cpu,,cpu", "meta,cpu", ""):
        with pytest.raises(InputError, match="can't be used here"):
            choose_devices(name)
