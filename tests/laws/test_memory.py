"""A run keeps to the memory that it is given: what torch allocates at its peak, beyond the model."""

from __future__ import annotations

import weakref
from dataclasses import replace
from functools import cache, partial

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
)

from edgewise import Circuit, Eap, EapIg, Task, evaluate_circuits, score_edges
from edgewise.evaluate import Mean, Patching
from edgewise.models import make_batch, wrap_model
from edgewise.models.families import build_transformer
from edgewise.models.memory import circuit_need, scoring_need, weighted_need
from edgewise.models.prepare import prepare
from edgewise.score import (
    CleanCorrupted,
    EapIgActivations,
    Exact,
    ExpectedGradients,
    Gim,
    GradDrop,
    InformationFlowRoutes,
    RelP,
)
from edgewise.score.exact import ExactEdges
from edgewise.tasks import Example, LogitDifference

VOCABULARY, LENGTH, BUDGET = 50, 12, 20_000_000
# Estimates are rounded to whole examples, a fifth of these batches or less, and circuits differ.
FACTOR = 1.5


def small(layers, heads, width):
    """GPT-2's shape, but small."""
    torch.manual_seed(0)
    shape = {"n_layer": layers, "n_head": heads, "n_embd": width, "n_positions": LENGTH, "vocab_size": VOCABULARY}
    return wrap_model(GPT2LMHeadModel(GPT2Config(**shape, bos_token_id=0, eos_token_id=0)).eval(), name="small")


@pytest.fixture(scope="module", params=[(4, 8, 256), (3, 4, 192)], ids=["4x8x256", "3x4x192"])
def model(request):
    """So narrow that batches have as many examples as fit."""
    return small(*request.param)


@pytest.fixture(scope="module")
def wide():
    """So wide that batches have few examples on a CPU, whatever fits."""
    return small(3, 4, 384)


def prompts(count, length=LENGTH):
    """Pairs of one length that differ in their first token, so that nothing is shared."""
    rng = np.random.default_rng(0)
    rows = rng.integers(1, VOCABULARY, size=(count, length)).tolist()
    return Task("random", "all", tuple(Example(tuple(row), (row[0] - 1, *row[1:]), 1, 2) for row in rows))


def peak(work):
    """The most bytes that torch held at once during `work` on top of those before it, by its own trace."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        work()
    events = [event for event in profile.profiler.kineto_results.events() if event.name() == "[memory]"]
    return int(np.cumsum([event.nbytes() for event in sorted(events, key=lambda event: event.start_ns())]).max())


# More examples than fit.
@pytest.mark.parametrize("scorer, count", [(Eap(), 30), (EapIg(10), 20)])
def test_scoring_fits_into_its_memory_and_makes_use_of_it(model, scorer, count):
    used = peak(lambda: score_edges(model, prompts(count), scorer, memory=BUDGET))
    assert BUDGET / FACTOR < used < BUDGET * FACTOR


@pytest.mark.parametrize("budget", [BUDGET // 4, 2 * BUDGET])
def test_wide_models_keep_to_their_memory_too(wide, budget):
    """The smaller budget is less than the few examples of a batch would take."""
    mask = np.random.default_rng(0).random(wide.graph.n_edges) < 0.5
    used = peak(lambda: score_edges(wide, prompts(5), EapIg(5), memory=budget))
    assert used < budget * 1.1
    used = peak(lambda: evaluate_circuits(wide, prompts(5), [Circuit(wide.graph, mask)], memory=budget))
    assert used < budget * 1.1


@pytest.mark.parametrize("share", [0.1, 0.9])
@pytest.mark.parametrize("ablation", [Patching(), Mean()], ids=lambda one: one.name)
def test_evaluation_fits_into_its_memory_and_makes_use_of_it(model, ablation, share):
    mask = np.random.default_rng(0).random(model.graph.n_edges) < share
    circuits = [Circuit(model.graph, mask)]
    used = peak(lambda: evaluate_circuits(model, prompts(50), circuits, ablation=ablation, memory=BUDGET))
    # Of a small circuit less runs than is planned for.
    assert BUDGET / (FACTOR if share > 0.1 else 2) < used < BUDGET * FACTOR


@pytest.mark.parametrize("share", [0.3, 0.6])
def test_circuits_at_once_fit_into_the_memory_together_and_make_use_of_it(model, share):
    rng = np.random.default_rng(0)
    circuits = [Circuit(model.graph, rng.random(model.graph.n_edges) < share) for _ in range(40)]
    task = prompts(8)
    budget = 2 * BUDGET
    used = peak(lambda: evaluate_circuits(model, task, circuits, memory=budget))
    alone = peak(lambda: evaluate_circuits(model, task, circuits[:1], memory=budget))
    assert budget / 2.5 < used < budget * 1.1 and alone < used / 1.5


# Name -> the model with so many layers.
SHAPES = {
    "gpt2": lambda layers: GPT2LMHeadModel(GPT2Config(n_layer=layers, n_head=12, n_embd=768, vocab_size=VOCABULARY)),
    "llama-3.1-8b": lambda layers: LlamaForCausalLM(
        LlamaConfig(
            num_hidden_layers=layers, num_attention_heads=32, num_key_value_heads=8, hidden_size=4096,
            intermediate_size=14336, vocab_size=VOCABULARY,
        )
    ),
    "gemma-2-2b": lambda layers: Gemma2ForCausalLM(
        Gemma2Config(
            num_hidden_layers=layers, num_attention_heads=8, num_key_value_heads=4, hidden_size=2304, head_dim=256,
            intermediate_size=9216, vocab_size=VOCABULARY,
        )
    ),
}  # fmt: skip


class Held(TorchDispatchMode):
    """The most bytes that tensors made inside took at once; on the device `meta`, nothing is computed for it."""

    def __init__(self):
        super().__init__()
        self.now = self.most = 0
        self.known = set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        self.track((args, kwargs), counts=False)
        self.track(result, counts=True)
        return result

    def track(self, tensors, counts):
        """Add storages that are new. All are forgotten when they are freed: another one may get their address."""
        for tensor in filter(torch.is_tensor, tree_leaves(tensors)):
            storage = tensor.untyped_storage()
            if storage._cdata not in self.known:
                size = storage.nbytes() if counts else 0
                self.known.add(storage._cdata)
                self.now += size
                self.most = max(self.most, self.now)
                weakref.finalize(storage, self.forget, storage._cdata, size)

    def forget(self, key, size):
        self.known.remove(key)
        self.now -= size


def evaluate(batch):
    graph = batch.model.graph
    mask = np.random.default_rng(0).random(graph.n_edges) < 0.5
    reference, clean = batch.run(batch.corrupted), batch.run(batch.clean)
    return list(batch.run_circuits([Circuit(graph, mask).prune()], reference)), clean


def learn(batch, keep, n_spans=1):
    if n_spans > 1:  # of which the device `meta` has no values
        tokens = replace(batch.batch, spans=torch.zeros_like(batch.batch.clean), n_spans=n_spans)
        batch = replace(batch, batch=tokens, by_span=True)
    n_weights = batch.model.graph.n_edges * n_spans
    weights = torch.full((n_weights,), 0.5, device=batch.model.device, requires_grad=True)
    reference = batch.run(batch.corrupted)  # kept until the backward pass is done, as learners keep it
    graph = batch.model.graph
    with pytest.MonkeyPatch.context() as patch:
        # All heads run, because no weight is 0. The device `meta` has no weights to see that from.
        all_heads = [torch.arange(graph.n_heads)] * graph.n_layers
        patch.setattr("edgewise.models.weighted._running_heads", lambda *_: all_heads)
        return torch.autograd.grad(batch.run_weighted(weights, reference, keep).sum(), weights)


WORK = {
    "eap": (lambda batch: Eap().score(batch, LogitDifference()), scoring_need),
    "eap-ig-3": (lambda batch: EapIg(3).score(batch, LogitDifference()), partial(scoring_need, runs=3)),
    "evaluate": (evaluate, circuit_need),
    "exact": (lambda batch: ExactEdges(tuple(range(0, 24, 4))).score(batch, LogitDifference()), Exact().need),
    "learn": (partial(learn, keep=True), partial(weighted_need, keep_streams=True)),
    "learn, streams mixed again": (partial(learn, keep=False), partial(weighted_need, keep_streams=False)),
    "learn, pairs": (partial(learn, keep=False, n_spans=5), partial(weighted_need, keep_streams=False, by_span=True)),
}


class Midpoints(ExpectedGradients):
    """Without tokens, which the device `meta` has none of."""

    def draw_points(self, batch):
        return [0.5] * len(batch.clean)


# Every scorer with its own estimate; Mask-IG runs what learners run.
SCORED = [CleanCorrupted(), EapIgActivations(2), Midpoints(), GradDrop(), InformationFlowRoutes()]
SCORED += [Gim(), RelP(), RelP(steps=3)]
SCORED_IN_WORK = {
    f"{scorer.name} {getattr(scorer, 'steps', '')}": (partial(scorer.score, metric=LogitDifference()), scorer.need)
    for scorer in SCORED
}
# The work of every command on every shape. Two shapes are enough for the other scorers, and one for the slowest.
SHAPED = (("gpt2", torch.float32), ("gemma-2-2b", torch.bfloat16), ("llama-3.1-8b", torch.bfloat16))
ESTIMATED = [
    (name, dtype, verb) for name, dtype in SHAPED for verb in WORK if (name, verb) != ("llama-3.1-8b", "exact")
]
ESTIMATED += [("llama-3.1-8b", torch.float32, verb) for verb in ("eap", "exact")]
ESTIMATED += [
    (name, dtype, verb) for verb in SCORED_IN_WORK for name, dtype in SHAPED[: 1 if "activations" in verb else 2]
]
WORK |= SCORED_IN_WORK


@cache
def on_meta(name, dtype, layers):
    """A model at the width of real ones, without weights."""
    with torch.device("meta"):
        return build_transformer(SHAPES[name](layers).to(dtype).eval().requires_grad_(False))


@pytest.mark.parametrize("name, dtype, verb", ESTIMATED, ids=str)
def test_the_estimate_is_the_memory_that_work_takes(name, dtype, verb):
    work, need = WORK[verb]
    # Of the circuits of few layers less runs than is planned for.
    model = on_meta(name, dtype, 4 if verb in ("evaluate", "exact") else 2)
    with Held() as held:
        work(prepare(model, make_batch(prompts(3, 20).examples, model.device)))
    expected = need(model.shape, 20).total(3)
    assert 0.9 < expected / held.most < 1.4, expected / held.most
