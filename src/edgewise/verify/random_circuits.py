"""The circuits that the tests of a circuit run: random ones, knock-outs, added paths, sets of nodes. NumPy only.

A random path walks backwards from the logits. At every node it chooses one of the incoming edges, all with the same
probability, until it reaches the input. A random circuit is a union of random paths; one of nodes or neurons has a part
of `input`, which connects all others, and any others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..core.circuit import Circuit
from ..errors import InputError
from ..graph import BaseGraph, Graph, NodeGraph, SpanGraph
from .circuit_tests import DEFAULTS, TESTS, VerifySettings

Rng = np.random.Generator
# Paths that are drawn at once, to find one that adds an edge to a circuit.
PATHS_AT_ONCE = 256
MAX_COPIES = 20
MAX_PATHS = 1000  # per edge of a circuit
# Groups of circuits that are compared with the circuit. They run only until the comparison is decided.
RANDOM_GROUPS = ("random", "matched")
# Minimality adds this many paths per random circuit. More paths detect more superfluous edges, and they are cheap:
# circuits that run together share the nodes that read the same.
PATHS_PER_CIRCUIT = 4


def edge_graph(circuit: Circuit) -> Graph | SpanGraph:
    """Return the graph of a circuit. Raise InputError if the circuit has other parts than edges, or pairs of edges."""
    if not isinstance(circuit.graph, Graph | SpanGraph):
        raise InputError(
            f"tests take circuits of edges or of (edge, span) pairs, but this is one of {circuit.graph.units}; "
            "circuit.plain() is the circuit of their edges"
        )
    return circuit.graph


def logit_spans(circuit: Circuit) -> NDArray[np.int64]:
    """Return the spans at which a circuit of pairs reads the logits. Pairs of other spans may have no effect at all."""
    into_logits = circuit.mask & (circuit.graph.edge_target == circuit.graph.n_nodes - 1)
    return np.unique(np.flatnonzero(into_logits) % (circuit.graph.n_edges // circuit.graph.plain.n_edges))


def draw_paths(graph: BaseGraph, n_paths: int, rng: Rng, spans: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
    """Return random paths [path, step]: their edges from the logits to the input, and -1 after the last.

    In a graph of (edge, span) pairs, an MLP reads at the span at which it is read; heads read at any, and so do the
    logits, or at `spans` if given.
    """
    plain, n_spans = graph.plain, graph.n_edges // graph.plain.n_edges
    # [node] the number of its sources, its first destination, and whether it is a head
    n_sources, destination = np.zeros((2, plain.n_nodes), np.int64)
    is_head = np.zeros(plain.n_nodes, bool)
    for layer in range(plain.n_layers):
        n_before, mlp = plain.n_attention_sources(layer), plain.mlp_source_index(layer)
        heads = slice(n_before, n_before + plain.n_heads)
        n_sources[heads], is_head[heads] = n_before, True
        destination[heads] = plain.attention_destinations(layer).start + np.arange(plain.n_heads)
        n_sources[mlp], destination[mlp] = plain.n_mlp_sources(layer), plain.mlp_destination(layer)
    n_sources[-1], destination[-1] = plain.n_sources, plain.n_destinations - 1
    node, span = np.full(n_paths, plain.n_nodes - 1), np.zeros(n_paths, np.int64)
    steps: list[NDArray[np.int64]] = []
    while node.any():  # `input` is node 0
        source = (rng.random(n_paths) * n_sources[node]).astype(np.int64)
        letter = rng.integers(3, size=n_paths) * is_head[node]
        edge = plain.edges_between(source, destination[node] + letter * plain.n_heads)
        if n_spans > 1:
            any_span = rng.integers(n_spans, size=n_paths)
            if not steps and spans is not None:
                any_span = rng.choice(spans, n_paths)
            span = np.where(is_head[node] | (node == plain.n_nodes - 1), any_span, span)
        steps.append(np.where(node > 0, edge * n_spans + span, -1))
        node = np.where(node > 0, source, 0)
    return np.stack(steps, 1)


def draw_circuit(
    graph: BaseGraph,
    n_edges: int,
    rng: Rng,
    outside: Circuit | None = None,
    spans: NDArray[np.int64] | None = None,
) -> Circuit:
    """Return a random circuit of `n_edges`: the union of random paths.

    Surplus edges of the last path, those nearest to the input, are dropped. What is then on no path is pruned, so the
    circuit may have a few edges less. In a graph of nodes or neurons, one part of `input` and any others are drawn.

    Parameters
    ----------
    graph
        The graph of a model, of any kind.
    n_edges
        At least 1, at most all edges.
    rng
        A NumPy generator.
    outside
        If given, paths that share an edge with this circuit are left out. Not for nodes and neurons.
    spans
        If given, the indices of the spans at which paths of pairs reach the logits. `n_edges` of them must exist.

    Returns
    -------
    Circuit

    Raises
    ------
    InputError
        If the graph has fewer edges, or too few paths share no edge with `outside`.
    """
    if not 1 <= n_edges <= graph.n_edges:
        raise InputError(f"a random circuit of {graph} has 1 to {graph.n_edges:,} {graph.units}, not {n_edges:,}")
    mask = np.zeros(graph.n_edges, bool)
    if isinstance(graph, NodeGraph):
        of_input = rng.choice(np.flatnonzero(graph.edge_source == 0))
        mask[rng.choice(np.delete(np.arange(graph.n_edges), of_input), n_edges - 1, replace=False)] = True
        mask[of_input] = True
        return Circuit(graph, mask)
    edges, n_paths = np.empty(0, np.int64), 0
    while len(edges) < n_edges:
        paths = draw_paths(graph, max(8, n_edges // 2), rng, spans)
        if outside is not None:
            paths = paths[~(outside.mask[paths] & (paths >= 0)).any(1)]
            n_paths += max(8, n_edges // 2)
            if n_paths > MAX_PATHS * n_edges:
                raise InputError(f"too few paths share no edge with a circuit of {outside.n_edges:,} edges")
        _, first = np.unique(both := np.concatenate([edges, paths[paths >= 0]]), return_index=True)
        edges = both[np.sort(first)]
    mask[edges[:n_edges]] = True
    return Circuit(graph, mask).prune()


def draw_matched(circuit: Circuit, rng: Rng) -> Circuit:
    """Return the circuit with its heads replaced by random heads of the same layers.

    It has as many edges of each kind between each two layers as the circuit, and is connected in the same way. It is
    the circuit itself only if other copies are very rare, or if there are none: if the circuit has no heads, or all.

    Parameters
    ----------
    circuit
        Any circuit.
    rng
        A NumPy generator.

    Returns
    -------
    Circuit
    """
    graph, plain = circuit.graph, circuit.graph.plain
    n_spans = graph.n_edges // plain.n_edges
    for _ in range(MAX_COPIES):
        source, destination = np.arange(plain.n_sources), np.arange(plain.n_destinations)
        for layer in range(plain.n_layers):
            heads = rng.permutation(plain.n_heads)
            first, start = plain.n_attention_sources(layer), plain.attention_destinations(layer).start
            source[first : first + plain.n_heads] = first + heads
            for letter in range(start, start + 3 * plain.n_heads, plain.n_heads):  # q, k, v
                destination[letter : letter + plain.n_heads] = letter + heads
        edges = np.flatnonzero(circuit.mask)
        if isinstance(graph, NodeGraph):
            node, dimension = np.divmod(graph.members[edges], graph.width)
            edges = np.searchsorted(graph.members, source[node] * graph.width + dimension)
        else:
            edges, span = np.divmod(edges, n_spans)
            edges = plain.edges_between(source[plain.edge_source[edges]], destination[plain.edge_destination[edges]])
            edges = edges * n_spans + span
        mask = np.zeros(graph.n_edges, bool)
        mask[edges] = True
        if (mask != circuit.mask).any():
            return Circuit(graph, mask)
    return circuit


def add_path(circuit: Circuit, rng: Rng) -> tuple[Circuit, NDArray[np.int64]]:
    """Return the circuit with one random path that adds edges to it, and the edges that were added.

    Parameters
    ----------
    circuit
        A circuit that lacks edges.
    rng
        A NumPy generator.

    Returns
    -------
    The larger circuit, and the indices of the new edges

    Raises
    ------
    InputError
        If no path that adds an edge was drawn: the circuit has almost all edges.
    """
    graph, spans = edge_graph(circuit), logit_spans(circuit)
    for _ in range(MAX_PATHS):
        for path in draw_paths(graph, PATHS_AT_ONCE, rng, spans):
            edges = path[path >= 0]
            added = edges[~circuit.mask[edges]]
            if len(added):
                mask = circuit.mask.copy()
                mask[added] = True
                return Circuit(circuit.graph, mask), added
    raise InputError(
        f"the circuit has {circuit.n_edges:,} of {circuit.graph.n_edges:,} edges: no random path adds one to it"
    )


@dataclass(frozen=True, eq=False)
class VerificationPlan:
    """The circuits that the tests run, by purpose.

    circuit    the tested circuit, pruned
    groups     purpose -> circuits
    """

    circuit: Circuit
    groups: Mapping[str, tuple[Circuit, ...]]

    @property
    def circuits(self) -> tuple[Circuit, ...]:
        """All circuits, in the order of the groups."""
        return tuple(circuit for group in self.groups.values() for circuit in group)

    def split(self) -> tuple[dict[str, tuple[Circuit, ...]], tuple[Circuit, ...]]:
        """Return the groups that run on all examples, and the random and matched circuits, which may need fewer."""
        on_all = {name: group for name, group in self.groups.items() if name not in RANDOM_GROUPS}
        return on_all, tuple(circuit for name in RANDOM_GROUPS for circuit in self.groups[name])


def plan_verification(
    circuit: Circuit, settings: VerifySettings = DEFAULTS, tests: Iterable[str] = TESTS
) -> VerificationPlan:
    """Draw the circuits that the tests need. Equal settings draw equal circuits.

    Parameters
    ----------
    circuit
        The circuit of edges, or of (edge, span) pairs, to test. It is pruned first. Random paths of pairs reach the
        logits at the spans at which the circuit does.
    settings
        Number of random circuits, seed, and what the tests need.
    tests
        Some of `TESTS`.

    Returns
    -------
    VerificationPlan

    Raises
    ------
    InputError
        If the circuit is empty or full: it can not be compared with random circuits of its size. If completeness alone
        is to be tested, and the circuit has neither heads nor MLPs.
    """
    tests = check_tests(tests)
    pruned, graph, n = circuit.prune(), edge_graph(circuit), settings.n_circuits
    if not pruned.n_edges:
        lost = f" (none of its {circuit.n_edges:,} edges is on a path from input to logits)" if circuit.n_edges else ""
        raise InputError(f"the circuit is empty{lost}: there is nothing to test; select a larger one")
    if pruned.n_edges == graph.n_edges:
        raise InputError("the circuit is the whole model: there is nothing to test; select a smaller one")
    if set(tests) == {"completeness"} and not inner_nodes(pruned):
        raise InputError("completeness cuts heads and MLPs of the circuit, but it has none; choose other tests")
    # A generator per purpose: what one test draws does not depend on which others are run.
    rngs = [np.random.default_rng([settings.seed, number]) for number in range(5)]
    spans = logit_spans(pruned)
    groups: dict[str, list[Circuit]] = {"circuit": [pruned], "complement": [], "random": [], "matched": []}
    if {"necessity", "independence"} & set(tests):
        groups["complement"] = [pruned.complement()]
    random = (draw_circuit(graph, pruned.n_edges, rngs[0], spans=spans) for _ in range(n))
    if {"sufficiency", "robustness"} & set(tests):
        groups["random"] = list(random)
    if "sufficiency" in tests:
        groups["matched"] = [draw_matched(pruned, rngs[1]) for _ in range(n)]
    if "necessity" in tests:
        groups["random complement"] = [circuit.complement() for circuit in groups["random"] or random]
        with suppress(InputError):  # hardly any path shares no edge with a large circuit
            outside = [draw_circuit(graph, pruned.n_edges, rngs[4], pruned, spans) for _ in range(n)]
            groups["outside complement"] = [circuit.complement() for circuit in outside]
    if "minimality" in tests:
        groups["without edge"] = [pruned.without(edge) for edge in pruned.edges]
        groups["without node"] = [pruned.without(node) for node in inner_nodes(pruned)]
        groups["with path"], groups["without path edge"] = draw_reference(pruned, PATHS_PER_CIRCUIT * n, rngs[2])
    if "completeness" in tests and inner_nodes(pruned):
        sets, full = draw_node_sets(pruned, n, rngs[3]), Circuit.full(graph)
        groups["cut circuit"] = [pruned.without(nodes) for nodes in sets]
        groups["cut model"] = [full.without(nodes) for nodes in sets]
    return VerificationPlan(pruned, {name: tuple(circuits) for name, circuits in groups.items()})


def check_tests(tests: Iterable[str]) -> tuple[str, ...]:
    """Return names of tests, each once. Raise InputError if there are none, or a name is unknown."""
    if isinstance(tests, str) or not isinstance(tests, Iterable):
        raise InputError(f"tests come in a list, even a single one, such as [{TESTS[0]!r}], not {tests!r}")
    names = tuple(dict.fromkeys(tests))
    if unknown := [name for name in names if name not in TESTS]:
        raise InputError(f"there is no test {unknown[0]!r}; choose from {', '.join(TESTS)}")
    if not names:
        raise InputError(f"no test is to be run; choose from {', '.join(TESTS)}")
    return names


def draw_reference(circuit: Circuit, draws: int, rng: Rng) -> tuple[list[Circuit], list[Circuit]]:
    """Return circuits with one random path added, and the same circuits without one of the added edges."""
    with_path, without_edge = [], []
    for _ in range(draws):
        larger, added = add_path(circuit, rng)
        mask = larger.mask.copy()
        mask[rng.choice(added)] = False
        with_path.append(larger)
        without_edge.append(Circuit(circuit.graph, mask))
    return with_path, without_edge


def inner_nodes(circuit: Circuit) -> list[str]:
    """Return the heads and MLPs of a circuit."""
    return [name for name in circuit.nodes if name not in ("input", "logits")]


def draw_node_sets(circuit: Circuit, draws: int, rng: Rng) -> list[list[str]]:
    """Return random sets of a circuit's heads and MLPs, of 1 to half of them, all sizes with the same probability."""
    names = inner_nodes(circuit)
    largest = max(1, len(names) // 2)
    return [rng.choice(names, rng.integers(1, largest + 1), replace=False).tolist() for _ in range(draws)]
