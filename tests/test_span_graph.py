"""Graphs of (edge, span) pairs: names, nodes, pruning, selection, files."""

import json

import networkx
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from edgewise import Circuit, EdgeScores, Graph, InputError, Ranking, solve
from edgewise.graph import NeuronGraph, NodeGraph, SpanGraph

SPANS = ("S1", "IO", "end")
LEVELS = (NodeGraph, NeuronGraph)
PLAIN = [Graph(1, 1, 2), Graph(2, 2, 2), Graph(2, 3, 2, parallel=True)]


def ends(name):
    """Return the nodes of a pair from its name alone: only MLPs have a node for each span."""
    edge, span = name.split("@")
    source, destination = edge.split("->")
    nodes = (source, destination.split("<")[0])
    return [f"{node}@{span}" if node.startswith("m") else node for node in nodes]


@pytest.mark.parametrize("plain", PLAIN)
def test_pairs_are_named_and_counted(plain):
    graph = SpanGraph(plain, SPANS)
    assert graph.n_edges == 3 * plain.n_edges == len(graph.edge_names)
    assert graph.edge_names == tuple(f"{edge}@{span}" for edge in plain.edge_names for span in SPANS)
    assert [graph.edge_index(name) for name in graph.edge_names] == list(range(graph.n_edges))
    assert len(set(graph.node_names)) == graph.n_nodes == len(graph.plain_node)
    for edge, name in enumerate(graph.edge_names):
        assert [graph.node_names[graph.edge_source[edge]], graph.node_names[graph.edge_target[edge]]] == ends(name)
    assert [plain.node_names[node] for node in graph.plain_node] == [name.split("@")[0] for name in graph.node_names]


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(PLAIN), st.integers(0, 10_000), st.floats(0.02, 0.5))
def test_pruning_keeps_what_lies_on_a_path(plain, seed, density):
    """Against reachability in a graph made from the names."""
    graph = SpanGraph(plain, SPANS)
    mask = np.random.default_rng(seed).random(graph.n_edges) < density
    joined = networkx.DiGraph([("input", "input"), ("logits", "logits")])
    joined.add_edges_from(ends(graph.edge_names[edge]) for edge in np.flatnonzero(mask))
    after, before = networkx.descendants(joined, "input"), networkx.ancestors(joined, "logits")
    on_path = [tail in after | {"input"} and head in before | {"logits"} for tail, head in map(ends, graph.edge_names)]
    assert Circuit(graph, mask).prune() == Circuit(graph, mask & np.array(on_path))


def test_a_head_joins_spans_and_an_mlp_does_not():
    graph = SpanGraph(Graph(1, 1, 2), SPANS)
    through_head = Circuit.from_edges(graph, ["input->a0.h0<v>@S1", "a0.h0->logits@end"])
    assert through_head.prune() == through_head and through_head.nodes == ("input", "a0.h0", "logits")
    apart = Circuit.from_edges(graph, ["input->m0@S1", "m0->logits@end"])
    assert apart.prune() == Circuit.empty(graph) and apart.nodes == ("input", "m0@S1", "m0@end", "logits")
    assert apart.plain() == Circuit.from_edges(graph.plain, ["input->m0", "m0->logits"])


def test_one_span_is_the_plain_graph():
    plain = Graph(2, 2, 2)
    graph, score = SpanGraph(plain, ["all"]), np.random.default_rng(0).normal(size=plain.n_edges)
    assert (graph.edge_source == plain.edge_source).all() and (graph.edge_target == plain.edge_target).all()
    for size in (5, 12, 20):
        chosen = solve(Ranking(graph, score), size).circuit
        assert chosen.plain() == solve(Ranking(plain, score), size).circuit


@pytest.mark.parametrize("graph", [SpanGraph(PLAIN[1], SPANS), *(kind(PLAIN[1], ((2, 4),)) for kind in LEVELS)])
def test_files_keep_the_kind_of_graph(tmp_path, graph):
    score = np.random.default_rng(1).normal(size=graph.n_edges).astype(np.float32)
    circuit = solve(Ranking(graph, score), 3).circuit
    circuit.save(tmp_path / "circuit.npz", score)
    assert Circuit.load(tmp_path / "circuit.npz") == circuit
    EdgeScores(graph, score[None]).save(tmp_path / "scores")
    assert EdgeScores.load(tmp_path / "scores").graph == graph
    Ranking(graph, score).save(tmp_path / "ranking")
    assert Ranking.load(tmp_path / "ranking").graph == graph


def test_json_and_pt_have_no_place_for_pairs(tmp_path):
    circuit = Circuit.full(SpanGraph(PLAIN[0], SPANS))
    circuit.plain().save(tmp_path / "plain.json")
    for suffix in ("json", "pt"):
        with pytest.raises(InputError, match=r"no place for \(edge, span\) pairs; write an .npz"):
            circuit.save(tmp_path / f"circuit.{suffix}")


@pytest.mark.parametrize(
    "spans, words",
    [((), "1 to"), (("a", "a"), "must differ"), (("",), "isn't empty"), (("a\n",), "printable"), ("ab", "sequence"),
     ((1, 2), "printable")],
)  # fmt: skip
def test_wrong_spans_are_errors(spans, words):
    with pytest.raises(InputError, match=words):
        SpanGraph(Graph(1, 1, 2), spans)


@pytest.mark.parametrize("kind", ["neither", 7, None, ["spans"]])
def test_unknown_kinds_of_graphs_in_files_are_errors(tmp_path, kind):
    graph = SpanGraph(PLAIN[0], SPANS)
    Ranking(graph, np.ones(graph.n_edges)).save(tmp_path / "ranking")
    path = tmp_path / "ranking" / "ranking.json"
    record = json.loads(path.read_text())
    record["graph"]["kind"] = kind
    path.write_text(json.dumps(record))
    with pytest.raises(InputError, match="kind of graph"):
        Ranking.load(tmp_path / "ranking")


def test_a_name_without_a_known_span_is_an_error():
    graph = SpanGraph(Graph(1, 1, 2), SPANS)
    for name in ("input->m0", "input->m0@S3"):
        with pytest.raises(InputError, match="choose one of: S1, IO, end"):
            graph.edge_index(name)


def test_edges_of_a_name_are_those_at_all_spans_or_at_one():
    graph = SpanGraph(Graph(1, 1, 2), SPANS)

    def names(name):
        return [graph.edge_name(edge) for edge in graph.edges_of(name)]

    assert names("m0") == [f"m0->logits@{span}" for span in SPANS] and names("m0@IO") == ["m0->logits@IO"]
    assert names("a0.h0->m0") == [f"a0.h0->m0@{span}" for span in SPANS] and names("input->m0@S1") == ["input->m0@S1"]
    assert names("a0.h0@end") == ["a0.h0->m0@end", "a0.h0->logits@end"]
