"""What chance achieves: random circuits as rows of a study, and models with random weights."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from edgewise import (
    CMD,
    Circuit,
    Graph,
    InputError,
    Plan,
    SelectionProblem,
    Settings,
    discover,
    load_model,
    load_task,
    run_study,
    solve,
)
from edgewise.graph import BaseGraph, NeuronGraph, NodeGraph, SpanGraph
from edgewise.models import ModelSource
from edgewise.recipes.recipe import Recipe
from edgewise.select import Greedy
from edgewise.study import Grid
from edgewise.study.plan import BASELINES, MatchedCircuits, RandomCircuits

GRAPH = Graph(3, 4, 16)
GRAPHS = (GRAPH, SpanGraph(GRAPH, ("S1", "S2", "end")), NodeGraph(GRAPH), NeuronGraph(GRAPH))


def problem(budget: int, seed: int = 0, graph: BaseGraph = GRAPH) -> SelectionProblem:
    value = np.random.default_rng(seed).random(graph.n_edges)
    return SelectionProblem(graph, value, np.ones(graph.n_edges, bool), budget)


@pytest.mark.parametrize("kind", BASELINES)
@pytest.mark.parametrize("graph", GRAPHS, ids=lambda graph: graph.kind)
@pytest.mark.parametrize("share", [0, 1 / 262, 10 / 262, 100 / 262, 261 / 262, 1])
def test_random_circuits_keep_to_the_budget(kind, graph, share):
    budget = round(share * graph.n_edges)
    selection = solve(problem(budget, graph=graph), solver=kind(3))
    assert selection.n_kept <= budget and selection.circuit == selection.circuit.prune()
    assert selection.n_kept == budget or (budget < graph.n_edges and not isinstance(graph, NodeGraph))
    assert selection.circuit == solve(problem(budget, graph=graph), solver=kind(3)).circuit


def test_a_random_circuit_ignores_values_and_a_matched_one_follows_greedy():
    first, second = (solve(problem(30, seed), solver=RandomCircuits(1)).circuit for seed in (0, 1))
    assert first == second != solve(problem(30), solver=RandomCircuits(2)).circuit
    matched, greedy = (solve(problem(30), solver=solver).circuit for solver in (MatchedCircuits(1), Greedy()))
    assert matched.n_edges == greedy.n_edges and matched != greedy
    within = Circuit.from_edges(GRAPH, ["input->m0", "m0->logits"])
    nested = SelectionProblem(GRAPH, problem(9).value, problem(9).is_positive, 9, within=within)
    for kind in BASELINES:
        chosen = solve(nested, solver=kind()).circuit
        assert chosen.n_edges <= 9 and chosen.mask[within.mask].all()


def test_rows_of_a_study():
    grid = Grid(tau=(), kappa=(), pnr=(), solvers=(Greedy(),))
    plan = Plan("known/greater-than", "known/greater-than", seeds=2, examples=8, grid=grid)
    study = run_study(plan)
    rows = {repeats.recipe.name: repeats.mean for repeats in study.cells[0].test[CMD]}
    assert list(rows) == ["Greedy", "Random circuit", "Random, matched by kind and layer"]
    assert rows["Greedy"] < 0.1 < min(rows["Random circuit"], rows["Random, matched by kind and layer"])
    assert study.cells[0].chosen(CMD).name == "Greedy"
    assert Plan.from_record(plan.record()) == plan
    assert Plan.from_record((hub := replace(plan, tasks=("hub:a",), columns=(("clean", "b"),))).record()) == hub


@pytest.mark.parametrize("options", [{"positions": True}, {"level": "node"}, {"level": "neuron"}])
def test_a_study_of_all_kinds_of_circuits(options):
    """The shares of sizes are those of pairs, nodes or neurons, and the informed circuits beat random ones."""
    grid = Grid(tau=(), kappa=(), pnr=(), solvers=(Greedy(),))
    plan = Plan("demo", "ioi", seeds=1, examples=12, grid=grid, settings=Settings(**options))
    rows = {repeats.recipe.name: repeats for repeats in run_study(plan).cells[0].test[CMD]}
    model = load_model("demo", device="cpu")
    n_edges = plan.settings.graph(model.graph, load_task("ioi", model, "test", 12)).n_edges
    assert rows["Greedy"].curves[0].n_requested == tuple(int(size * n_edges) for size in plan.settings.sizes)
    assert rows["Greedy"].mean < min(row.mean for name, row in rows.items() if name != "Greedy")


def test_spans_of_a_study():
    """The rows of a study with a span per token are those of `discover` on such tasks."""
    grid = Grid(tau=(), kappa=(), pnr=(), solvers=(Greedy(),))
    settings = Settings(positions=True)
    plan = Plan("known/induction", "known/induction", 1, 4, grid, settings, spans="token")
    (row, *_) = run_study(plan).cells[0].test[CMD]
    model = load_model("known/induction", device="cpu")
    train, test = (load_task("known/induction", model, split, 4, spans="token") for split in ("train", "test"))
    result = discover(model, train, test, plan.settings, {CMD: [Recipe(Greedy())]}, attention=0)
    np.testing.assert_allclose(row.curves[0].values, result.of(CMD)[0].curve.values, rtol=1e-6)
    assert Plan.from_record(plan.record()) == plan


def test_an_untrained_model_has_the_architecture_and_random_weights():
    trained, first, second = (load_model(name, device="cpu") for name in ("demo", *["untrained/demo"] * 2))
    assert first.graph == trained.graph and first.name == "untrained/demo"
    weights = [dict(model.module.named_parameters()) for model in (trained, first, second)]
    name = max(weights[0], key=lambda key: weights[0][key].numel())
    assert not torch.equal(weights[0][name], weights[1][name])
    assert all(torch.equal(weights[1][key], weights[2][key]) for key in weights[1])
    assert trained.digest != first.digest == second.digest
    assert ModelSource("untrained/demo").content != ModelSource("demo").content
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    load_model("untrained/demo", device="cpu")
    assert torch.equal(torch.rand(1), expected)  # the user's random numbers stay the same


def test_an_unknown_untrained_model():
    with pytest.raises(InputError, match="known/nothing"):
        load_model("untrained/known/nothing")
