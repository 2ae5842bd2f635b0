"""The computation graph: counts, order, names."""

import re

import numpy as np
import pytest

from edgewise import Circuit, Graph, InputError


@pytest.mark.parametrize(
    "shape, edges, nodes",
    [
        ((12, 12, 768), 32_491, 158),
        ((26, 8, 2304), 74_218, 236),
        ((24, 14, 896), 179_749, 362),
        ((32, 32, 4096), 1_592_881, 1_058),
    ],
)
def test_counts_of_the_benchmarks_models(shape, edges, nodes):
    graph = Graph(*shape)
    assert (graph.n_edges, graph.n_nodes) == (edges, nodes)


@pytest.mark.parametrize("parallel", [False, True])
def test_edges_join_every_source_to_every_later_destination(parallel):
    graph = Graph(3, 2, 4, parallel)

    def time(name):  # when a node runs: its layer, and attention before the MLP unless they run in parallel
        if name == "input":
            return -1
        if name == "logits":
            return 99
        layer = int(name[1:].split(".")[0])
        return layer + (0.5 if name.startswith("m") and not parallel else 0)

    legal = {
        f"{u}->{v}" for u in graph.source_names for v in graph.destination_names if time(u) < time(v.split("<")[0])
    }
    assert set(graph.edge_names) == legal
    assert len(graph.edge_names) == len(legal) == graph.n_edges


def test_edge_order_is_that_of_eap_ig_files(shared):
    import json

    names = list(json.loads((shared / "data" / "gpt2-ioi-eap-ig.json").read_text())["edges"])
    assert names == list(Graph(12, 12, 768).edge_names)


def test_blocks_cover_the_edges_once_and_hold_one_reader_each():
    graph = Graph(2, 3, 4)
    assert [block.start for block in graph.blocks[1:]] == [block.stop for block in graph.blocks[:-1]]
    for block in graph.blocks:
        readers = {graph.destination_names[d].split(".")[0] for d in graph.edge_destination[block]}
        assert len(readers) == 1


def test_names_and_indices_are_inverse():
    graph = Graph(2, 2, 4)
    assert [graph.edge_index(name) for name in graph.edge_names] == list(range(graph.n_edges))
    assert graph.edge_names[graph.blocks[-1].start] == "input->logits"
    with pytest.raises(InputError, match=r"a9\.h0->logits"):
        graph.edge_index("a9.h0->logits")


def prune_by_definition(circuit):
    """Repeat { drop nodes without in- or out-edge; drop edges with a dropped end } until nothing changes."""
    edges = {
        (*re.sub("<[qkv]>", "", name).split("->"), index)
        for index, name in enumerate(circuit.graph.edge_names)
        if circuit.mask[index]
    }
    while True:
        has_in = {v for _, v, _ in edges} | {"input"}
        has_out = {u for u, _, _ in edges} | {"logits"}
        kept = {(u, v, i) for u, v, i in edges if {u, v} <= has_in & has_out}
        if kept == edges:
            mask = np.zeros(circuit.graph.n_edges, bool)
            mask[[i for _, _, i in edges]] = True
            return mask
        edges = kept


@pytest.mark.parametrize("parallel", [False, True])
@pytest.mark.parametrize("share", [0, 0.02, 0.05, 0.1, 0.3, 1])
def test_prune_follows_its_definition(share, parallel):
    graph = Graph(4, 3, 4, parallel)
    rng = np.random.default_rng(int(share * 100))
    for _ in range(5):
        circuit = Circuit(graph, rng.random(graph.n_edges) < share)
        assert (circuit.prune().mask == prune_by_definition(circuit)).all()
        assert circuit.prune() == circuit.prune().prune()


def test_a_circuit_copies_its_mask():
    graph = Graph(1, 1, 2)
    mask = np.ones(graph.n_edges, bool)
    circuit = Circuit(graph, mask)
    mask[:] = False
    assert circuit == Circuit.full(graph) and hash(circuit) == hash(Circuit.full(graph))
    with pytest.raises(ValueError, match="read-only"):
        circuit.mask[0] = False
    with pytest.raises(InputError, match="8 edges"):
        Circuit(graph, np.ones(3, bool))


@pytest.mark.parametrize("kind", ["scores", "indices", "text"])
def test_a_mask_is_true_or_false(kind):
    """Scores or indices would otherwise be a circuit of all edges that aren't 0."""
    graph = Graph(1, 1, 2)
    n_edges = graph.n_edges
    values = {"scores": np.linspace(-1, 1, n_edges), "indices": np.arange(n_edges), "text": np.array(["1"] * n_edges)}
    with pytest.raises(InputError, match="True or False for each edge"):
        Circuit(graph, values[kind])
    ones = np.arange(n_edges) % 2
    assert Circuit(graph, ones) == Circuit(graph, ones.astype(float)) == Circuit(graph, ones == 1)
