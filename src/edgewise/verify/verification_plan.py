"""The circuits that the tests of a circuit run: random ones, knock-outs, added paths, sets of nodes. NumPy only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from ..core.circuit import Circuit
from ..errors import InputError
from .random_circuits import Rng, add_path, draw_circuit, draw_matched, edge_graph, logit_spans
from .verification import DEFAULTS, TESTS, VerifySettings

# Groups of circuits that are compared with the circuit. They run only until the comparison is decided.
RANDOM_GROUPS = ("random", "matched")
# Minimality adds this many paths per random circuit. More paths detect more superfluous edges, and they are cheap:
# circuits that run together share the nodes that read the same.
PATHS_PER_CIRCUIT = 4


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
