"""Attention patterns are the library's own, of every family; what is kept of them says where each head looks."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from conftest import build, random_task

from edgewise import InputError
from edgewise.evaluate import attention, record_attention, strongest_heads
from edgewise.graph import Graph
from edgewise.models import wrap_model


def test_heads_look_where_the_library_says_they_do(model, task):
    graph = model.graph
    heads = [int(node) for node in strongest_heads(graph, np.random.default_rng(0).random(graph.n_edges))]
    assert sorted(heads) == [graph.source_names.index(n) for n in graph.source_names if ".h" in n]
    seen = record_attention(model, task, [2, 0], heads)
    assert seen is not None and seen.examples == (2, 0)
    for row in (0, 2):
        for corrupted in (False, True):
            example = task.examples[row]
            tokens = torch.tensor([example.corrupted if corrupted else example.clean])
            with torch.no_grad():
                theirs = model.module(tokens, output_attentions=True).attentions
            for node in heads:
                layer, head = divmod(node - 1, graph.n_heads + 1)
                ours = seen.pattern(row, node, corrupted)
                assert np.abs(ours - theirs[layer][0, head].float().numpy()).max() <= 0.5 / 255 + 1e-5


def test_heads_are_as_many_as_fit_and_the_first_are_kept(monkeypatch):
    model, task = wrap_model(build("gpt2")), random_task(3)
    heads = [1, 3, 2, 5]
    each = 2 * sum(n * (n + 1) // 2 for n in (task.examples[row].length for row in (0, 1)))
    monkeypatch.setattr(attention, "MAX_BYTES", 2 * each)
    seen = record_attention(model, task, [0, 1], heads)
    assert seen is not None and seen.heads == (1, 3)
    # Of fewer examples if not even one head has room, and none at all if there is no room for that.
    monkeypatch.setattr(attention, "MAX_BYTES", each - 1)
    fewer = record_attention(model, task, [0, 1], heads)
    assert fewer is not None and fewer.examples == (0,) and fewer.heads[0] == 1
    monkeypatch.setattr(attention, "MAX_BYTES", 1)
    assert record_attention(model, task, [0, 1], heads) is None
    with pytest.raises(InputError, match=r"not for example 2 and head 1"):
        seen.pattern(2, 1)


def test_a_heads_strength_is_that_of_all_its_edges():
    graph = Graph(2, 2, 8)
    strength = np.zeros(graph.n_edges)
    strength[graph.edge_index("a0.h1->logits")] = 1.0
    strength[graph.edge_indices(["input->a1.h0<q>", "input->a1.h0<v>"])] = 0.6
    first, second = strongest_heads(graph, strength)[:2]
    assert [graph.node_names[first], graph.node_names[second]] == ["a1.h0", "a0.h1"]
