"""Make tests/parity/data/circuitry: what the tests of blei-lab/circuitry say about given metrics of circuits.

    python tools/make_circuitry_fixture.py --peer CIRCUITRY     # a checkout of circuitry; needs SciPy

Its runner needs an old TransformerLens. Its tests do not: they ask a task for the metric of circuits. Here a stand-in
task answers with metrics that edgewise computed for known/induction, a model of GPT-2's architecture: of the true
circuit, of random circuits, and of their complements. So the same circuits are judged by both implementations.
"""

from __future__ import annotations

import argparse
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import torch

from edgewise import evaluate_circuits, known_circuit, load_model, load_task
from edgewise.verify import VerifySettings, plan_verification

OUT = Path(__file__).parents[1] / "tests" / "parity" / "data" / "circuitry" / "statistics.npz"
MODEL, EXAMPLES, SETTINGS = "known/induction", 30, VerifySettings(n_circuits=60)
PERMUTATIONS = 50


class Anything:
    """What the type annotations of circuitry need of packages that aren't installed."""

    def __class_getitem__(cls, _: Any) -> type:
        return cls


def load_peer(folder: Path) -> dict[str, Any]:
    """Return the functions of circuitry's tests, without importing its runner."""
    for name in ("circuitry", "circuitry.circuit", "circuitry.circuit.circuit", "circuitry.utils", "jaxtyping",
                 "circuitry.mechanistic_interpretability"):  # fmt: skip
        module = types.ModuleType(name)
        module.Circuit = module.Edge = module.BaseTask = module.Float = Anything  # type: ignore[attr-defined]
        module.to_numpy = np.asarray  # type: ignore[attr-defined]
        sys.modules[name] = module
    names: dict[str, Any] = {}
    for test in ("sufficiency", "partial_necessity", "minimality", "non_independence"):
        exec((folder / "circuitry" / "hypothesis_testing" / f"{test}.py").read_text(), names)
    return names


class Edges:
    """A circuit that the peer's tests handle: a row of metrics, and what they draw from it.

    drawn  the circuits that sampling returns, one after the other
    """

    def __init__(self, row: torch.Tensor, complement: torch.Tensor | None = None, drawn: Any = (), edges: Any = ()):
        self.row, self.complement, self.drawn, self.edges = row, complement, iter(drawn), list(edges)
        self.present, self.is_placeholder, self.src_node, self.dst_node = False, False, self, self
        self.edge_lookup = {self: {self: self}}

    def sample_circuit(self, _: int) -> Any:
        return next(self.drawn)

    sample_inflated = sample_circuit

    def get_present_edges(self) -> Any:
        return self.edges

    def remove_edge(self, source: Any, _: Any) -> Any:
        return source

    def __len__(self) -> int:
        return 1

    __hash__ = object.__hash__


def main() -> None:
    """Compute the metrics and write what circuitry says about them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peer", type=Path, required=True, help="a checkout of circuitry")
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    peer = load_peer(options.peer)
    model = load_model(MODEL, device="cpu")
    plan = plan_verification(known_circuit(MODEL), SETTINGS, ["sufficiency", "necessity", "minimality"])
    task = load_task(MODEL, model, "test", EXAMPLES)
    values, arrays = {}, {}
    for name, circuits in plan.groups.items():
        if circuits:
            # The first 60 of the added paths, which are more than the random circuits, are enough for a comparison.
            ran = evaluate_circuits(model, task, circuits[: SETTINGS.n_circuits])
            values[name] = torch.tensor(ran.values)
            arrays[name.replace(" ", "_")] = ran.values
    full = torch.tensor(ran.full)

    class Task:
        name, complete_circuit = MODEL, Edges(full, full)

        @staticmethod
        def score_and_logits(circuit: Any, invert: bool = False) -> Any:
            return (circuit.complement if invert else circuit.row), None

        @staticmethod
        def eval_metric(first: Any, second: Any, use_mean: bool = False) -> Any:
            return (first - second).abs().mean()  # its distance "l1", which is METHODS' d without the span

    random = [Edges(r, c) for r, c in zip(values["random"], values["random complement"], strict=True)]
    own, cut = values["circuit"][0], values["complement"][0]
    for name in ("sufficiency", "partial_necessity"):
        result = peer[f"{name}_test"](Task, Edges(own, cut, random), n_random_circuits=len(random))
        p = result["p_value"]
        arrays[f"{name}_share"] = np.array(result["empirical_quantile"])
        arrays[f"{name}_p"] = np.array(getattr(p, "pvalue", p))
    larger = [
        Edges(with_path, edges=[Edges(without)])
        for with_path, without in zip(values["with path"], values["without path edge"], strict=True)
    ]
    candidate = Edges(own, drawn=larger, edges=[Edges(row) for row in values["without edge"]])
    candidate.edge_lookup = type("All", (dict,), {"__missing__": lambda *_: candidate.edge_lookup})()
    candidate.edge_lookup.present = False  # every edge of the added path is new
    result = peer["minimality_test"](Task, candidate, n_random_circuits=len(larger))
    arrays["minimality_share"] = np.array(result["empirical_quantiles"])
    arrays["minimality_p"] = np.array([p.pvalue for p in result["p_values"]])
    x, y = full[:, None].float(), cut[:, None].float()  # its centring matrix is float32
    widths = np.array([0.5, 2.0, float(torch.cdist(x, y).median())])
    arrays["hsic_width"] = widths
    arrays["hsic"] = np.array([peer["_hsic"](x, y, width).item() for width in widths])
    order = torch.stack([torch.randperm(len(full), generator=torch.Generator().manual_seed(s)) for s in range(20)])
    arrays["hsic_order"] = order.numpy()
    arrays["hsic_permuted"] = np.array([peer["_hsic"](x, y[o], widths[0]).item() for o in order])
    arrays["full"] = full.numpy()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(options.out, **arrays)
    print({name: array.shape for name, array in arrays.items()})
    for name in ("sufficiency_share", "sufficiency_p", "partial_necessity_share", "partial_necessity_p", "hsic"):
        print(name, arrays[name])


if __name__ == "__main__":
    main()
