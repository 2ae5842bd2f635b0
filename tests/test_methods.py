"""Methods as values: verbs take objects, one's own too, and refuse names and classes in words."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from conftest import build, random_task

from edgewise import (
    CMD,
    CPR,
    Ablation,
    Accuracy,
    BatchScores,
    Bootstrap,
    Circuit,
    Eap,
    EapIg,
    EdgeScores,
    Graph,
    Greedy,
    Ilp,
    InputError,
    Metric,
    NoFilter,
    Recipe,
    Scorer,
    SelectionProblem,
    Settings,
    Solution,
    Solver,
    Status,
    TopN,
    compare,
    discover,
    evaluate_circuits,
    score_edges,
    solve,
    summarise,
    wrap_model,
)
from edgewise.core.statistics import FILTERS, EdgeStatistics, Filter
from edgewise.evaluate import (
    ABLATIONS,
    FAITHFULNESS,
    MEASURES,
    Curve,
    Faithfulness,
    Measure,
    MibFaithfulness,
    Patching,
    faithfulness,
    resample,
)
from edgewise.evaluate.measures import CircuitModelDistance
from edgewise.method import choose, from_record
from edgewise.recipes import select_circuits
from edgewise.runtime import Session
from edgewise.runtime.unit_keys import unit_key
from edgewise.score import SCORERS
from edgewise.select import SOLVERS, solve_path
from edgewise.tasks import METRICS, Kl, LogitDifference

GRAPH = Graph(2, 2, 2)
PROBLEM = SelectionProblem.build(GRAPH, np.random.default_rng(0).normal(size=GRAPH.n_edges), "absolute", 9)
SCORES = EdgeScores(GRAPH, np.random.default_rng(1).normal(0.3, 1, (12, GRAPH.n_edges)))
CURVE = Curve((0.1, 0.5, 1.0), (1, 2, 3), (1, 2, 3), np.array([[1.0, 2], [3, 1], [4, 5]]), np.ones(2), np.zeros(2))


@pytest.fixture(scope="module")
def model():
    return wrap_model(build("gpt2"), name="tiny")


VERBS = {  # family -> how a verb is given one, a name, a class
    "score_edges": (Scorer, lambda model, it: score_edges(model, random_task(2), it), "eap-ig", EapIg),
    "score_edges, metric": (Metric, lambda model, it: score_edges(model, random_task(2), metric=it), "kl", Kl),
    "evaluate, metric": (Metric, lambda model, it: evaluate_circuits(model, random_task(2), [], it), "kl", Kl),
    "evaluate, of_model": (
        Metric, lambda model, it: evaluate_circuits(model, random_task(2), [], of_model=[it]), "accuracy", Accuracy
    ),
    "evaluate, ablation": (
        Ablation, lambda model, it: evaluate_circuits(model, random_task(2), [], ablation=it), "patching", Patching
    ),
    "solve": (Solver, lambda model, it: solve(PROBLEM, solver=it), "greedy", Greedy),
    "solve_path": (Solver, lambda model, it: solve_path(PROBLEM, [3, 9], it), "ilp", Ilp),
    "summarise": (Filter, lambda model, it: summarise(SCORES, it), "bootstrap", Bootstrap),
    "Curve.area": (Measure, lambda model, it: CURVE.area(it), "CMD", CircuitModelDistance),
    "resample": (Measure, lambda model, it: resample(CURVE, it), "CMD", CircuitModelDistance),
    "compare": (Measure, lambda model, it: compare(CURVE, CURVE, it), "CMD", CircuitModelDistance),
    "select_circuits": (
        Measure, lambda model, it: select_circuits(summarise(SCORES).ranking, Recipe(), it), "CMD", CircuitModelDistance
    ),
    "faithfulness": (Faithfulness, lambda model, it: faithfulness([1.0], 2.0, 0.0, it), "mib", MibFaithfulness),
    "Recipe, solver": (Solver, lambda model, it: Recipe(it), "top-n", TopN),
    "Recipe, filter": (Filter, lambda model, it: Recipe(filter=it), "none", NoFilter),
    "Settings, scorer": (Scorer, lambda model, it: Settings(it), "eap", Eap),
    "Settings, metric": (Metric, lambda model, it: Settings(metric=it), "kl", Kl),
    "Settings, ablation": (Ablation, lambda model, it: Settings(ablation=it), "patching", Patching),
    "Settings, faithfulness": (Faithfulness, lambda model, it: Settings(faithfulness=it), "mib", MibFaithfulness),
    "Settings, bootstrap": (Bootstrap, lambda model, it: Settings(bootstrap=it), "bootstrap", Bootstrap),
}  # fmt: skip


@pytest.mark.parametrize("verb", VERBS)
def test_names_and_classes_instead_of_methods_are_errors(model, verb):
    family, call, name, kind = VERBS[verb]
    call(model, kind())
    for given, shown in ((name, repr(name)), (kind, kind.__name__), (None, "None"), (3, "3")):
        with pytest.raises(
            InputError, match=rf"^an? [a-z ]+ must be an .*from {family.__name__}, not {shown}($|; write )"
        ):
            call(model, given)


@pytest.mark.parametrize(
    ("given", "advice"),
    [("eap-ig", r"not 'eap-ig'; write EapIg\(\), from edgewise\.score$"),
     (SCORERS["eap"], r"not Eap; write Eap\(\), from edgewise\.score$"), ("eap-igg", "not 'eap-igg'$")],
)  # fmt: skip
def test_names_and_classes_are_told_what_to_write(given, advice):
    with pytest.raises(InputError, match=advice):
        Settings(scorer=given)


def test_a_method_of_another_family_is_an_error(model):
    with pytest.raises(InputError, match=r"an ablation must be .* Ablation, not Greedy\(\)"):
        evaluate_circuits(model, random_task(2), [], ablation=Greedy())


def test_choose_reads_names_and_options():
    assert choose("solver", SOLVERS, "ILP", time_limit=2.0) == Ilp(2.0)
    assert choose("scorer", SCORERS, "eap-ig", steps=None) == EapIg()
    with pytest.raises(InputError, match="takes no steps"):
        choose("scorer", SCORERS, "eap", steps=3)
    for solver in (Ilp(3.0), Greedy()):
        assert from_record("solver", SOLVERS, solver.record()) == solver


@pytest.mark.parametrize("known", [SCORERS, SOLVERS, METRICS, MEASURES, FAITHFULNESS, ABLATIONS, FILTERS])
def test_an_unknown_name_is_an_error_that_lists_the_known_ones(known):
    with pytest.raises(InputError, match=f"unknown kind 'magic'; choose one of: {', '.join(known)}$"):
        choose("kind", known, "magic")
    for name in known:
        with pytest.raises(InputError, match=f"did you mean '{name}'\\?$"):
            choose("kind", known, f"{name.upper()}x")


# A user's own, of every family.


@dataclass(frozen=True)
class Scaled(Scorer):
    """EAP, times a factor."""

    factor: float = -2.0

    def score(self, batch, metric):
        found = Eap().score(batch, metric)
        return BatchScores(found.values * self.factor, found.clean_metric, found.corrupted_metric)


class Logit(Metric):
    """One answer's logit: without parameters, so not even a dataclass."""

    answer = 0

    def value(self, run, clean):
        return run.answer_logits[:, self.answer]


class WrongLogit(Logit):
    name = "wrong"
    answer = 1


class Nothing(Ablation):
    """What is outside the circuit is as it is in the model."""

    shares_prefix = True

    def reference(self, batch):
        return batch.run(batch.clean)


class ByHand(Ablation):
    """Patching, by what the sources give on the corrupted prompt."""

    def reference(self, batch):
        there = batch.run(batch.corrupted)
        return batch.run_from_sources(there.embedding, there.mix, there.mlp_out)


@dataclass(frozen=True)
class Worst(Solver):
    """The worst edges."""

    title = "Worst"

    def solve(self, problem):
        mask = problem.required.copy()
        order = problem.optional_order[::-1]
        mask[order[: problem.budget - int(mask.sum())]] = True
        return Solution(mask, Status.HEURISTIC, problem.upper_bound)


@dataclass(frozen=True)
class Median(Filter):
    """The median; edges below a quantile fail."""

    title = "Median"
    quantile: float = 0.25

    @property
    def parameters(self):
        return {"q": self.quantile}

    def statistics(self, scores):
        middle = np.median(scores.values, 0).astype(float)
        kept = np.abs(middle) >= np.quantile(np.abs(middle), self.quantile)
        never = np.zeros(len(middle), bool)
        return EdgeStatistics(scores.graph, middle, middle, middle, kept, never, np.where(kept, middle, 0.0))


@dataclass(frozen=True)
class Squared(Measure):
    """The area of the squared distance."""

    rank = "absolute"
    better = -1
    uses_pnr = True
    power: int = 2

    def height(self, faithfulness):
        return np.abs(1 - faithfulness) ** self.power


class Raw(Faithfulness):
    """The metric itself."""

    def compute(self, circuit, full, empty):
        return circuit


def test_a_custom_scorer(model):
    task = random_task(3, seed=1)
    found, expected = score_edges(model, task, Scaled()), score_edges(model, task, Eap())
    np.testing.assert_allclose(found.values, -2 * expected.values, rtol=1e-6)
    assert found.provenance["method"] == "Scaled" and found.provenance["factor"] == -2
    assert found.provenance["clean_metric"] == expected.provenance["clean_metric"]


@pytest.mark.parametrize("scorer", [Eap(), EapIg(3)])
def test_a_custom_metric_is_scored_and_evaluated(model, scorer):
    """Scores are linear in the metric: those of the two logits differ by those of the logit difference."""
    task = random_task(3, seed=2)
    right, wrong, both = (score_edges(model, task, scorer, one) for one in (Logit(), WrongLogit(), LogitDifference()))
    scale = np.abs(both.values).max()
    np.testing.assert_allclose(right.values - wrong.values, both.values, rtol=1e-4, atol=1e-5 * scale)
    circuits = [Circuit(model.graph, np.random.default_rng(0).random(model.graph.n_edges) < 0.6)]
    found = evaluate_circuits(model, task, circuits, Logit(), of_model=[WrongLogit()])
    difference = evaluate_circuits(model, task, circuits)
    other = evaluate_circuits(model, task, circuits, WrongLogit())
    np.testing.assert_allclose(found.values - other.values, difference.values, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(found.of_model["wrong"], other.full, rtol=1e-9, atol=1e-9)
    assert right.provenance["metric"] == "Logit"


def test_a_custom_ablation(model):
    task = random_task(4, seed=3)
    rng = np.random.default_rng(0)
    circuits = [Circuit(model.graph, rng.random(model.graph.n_edges) < share) for share in (0.1, 0.5, 0.9)]
    kept = evaluate_circuits(model, task, circuits, ablation=Nothing())
    for values in (*kept.values, kept.empty):
        np.testing.assert_allclose(values, kept.full, rtol=1e-9, atol=1e-9)
    found, expected = (evaluate_circuits(model, task, circuits, ablation=one) for one in (ByHand(), Patching()))
    np.testing.assert_allclose(found.values, expected.values, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(found.empty, expected.empty, rtol=1e-9, atol=1e-9)
    assert np.abs(expected.values - expected.full).max() > 1e-3


def test_a_custom_solver_is_pruned_filled_and_nested(model):
    found = solve(PROBLEM, solver=Worst())
    mask = np.zeros(GRAPH.n_edges, bool)
    mask[np.argsort(PROBLEM.value)[: PROBLEM.budget]] = True
    assert found.circuit == Circuit(GRAPH, mask).prune() and found.solver == "Worst"
    filled = solve(PROBLEM, solver=Worst(), fill=True)
    assert found.n_kept <= filled.n_kept <= PROBLEM.budget
    budgets = [3, 9, 20]
    path = solve_path(PROBLEM, budgets, Worst())
    for budget, one in zip(budgets, path, strict=True):
        assert one.circuit == solve(PROBLEM.with_budget(budget), solver=Worst()).circuit
    small, *_, large = solve_path(PROBLEM, budgets, Worst(), nested=True)
    assert (small.circuit.mask <= large.circuit.mask).all()


def test_a_custom_filter():
    found = summarise(SCORES, Median())
    middle = np.sort(SCORES.values, 0)[5:7].mean(0)
    kept = np.abs(middle) >= np.quantile(np.abs(middle), 0.25)
    np.testing.assert_allclose(found.ranking.value, np.where(kept, middle, 0))
    np.testing.assert_array_equal(found.ranking.kept, kept)
    assert Recipe(Worst(), Median()).name == "Worst + Median"
    assert Recipe(Worst(), Median(), 0.5).parameter_text == "q 0.25, PNR 0.5"


def test_a_custom_measure_and_faithfulness():
    # Of the metric's means 1.5, 2, 4.5 the distances to 1 are 0.5, 1, 3.5: squared 0.25, 1, 12.25.
    curve = replace(CURVE, definition=Raw())
    assert curve.faithfulness.tolist() == [1.5, 2.0, 4.5]
    assert curve.area(Squared()) == pytest.approx(0.4 * (0.25 + 1) / 2 + 0.5 * (1 + 12.25) / 2)
    assert resample(curve, Squared(), 50).estimate == curve.area(Squared())
    worse = replace(curve, values=CURVE.values + 1)
    many, many_worse = (each.subset(np.tile([0, 1], 5)) for each in (curve, worse))
    assert compare(many, many_worse, Squared()).is_better and compare(many_worse, many, Squared()).is_worse
    assert faithfulness([3.0], 1.0, 1.0, Raw()).tolist() == [3.0]


def test_a_discovery_with_custom_methods(model):
    """Every stage by a user's own method, against the same stages one by one."""
    train, test = random_task(6, seed=4), random_task(5, seed=5)
    settings = Settings(Scaled(), Logit(), ByHand(), Raw(), sizes=(0.1, 0.4, 1.0))
    recipe = Recipe(Worst(), Median())
    found = discover(model, train, test, settings, {Squared(): [recipe]}, session=Session(progress=lambda *_: None))
    (outcome,) = found.of(Squared())
    scores = score_edges(model, train, Scaled(), Logit())
    np.testing.assert_allclose(found.scores.values, scores.values, rtol=1e-6)
    selections = select_circuits(summarise(scores, Median()).ranking, recipe, Squared(), settings)
    evaluation = evaluate_circuits(model, test, [one.circuit for one in selections], Logit(), ByHand())
    np.testing.assert_allclose(outcome.curve.values, evaluation.values, rtol=1e-9, atol=1e-9)
    expected = np.abs(1 - evaluation.values.mean(1)) ** 2
    assert outcome.area == pytest.approx(0.3 * expected[:2].sum() / 2 + 0.6 * expected[1:].sum() / 2)
    assert found.best(Squared()) is outcome
    for measure in (CMD, CPR):
        with pytest.raises(InputError, match="no recipe was tried"):
            found.of(measure)


def test_methods_with_hidden_parameters_are_errors(model):
    class Hidden(Metric):
        def __init__(self, factor):
            self.factor = factor

        def value(self, run, clean):
            return run.answer_logits[:, 0] * self.factor

    class Undecorated(EapIg):
        pass

    @dataclass
    class Mutable(Metric):
        factor: float = 1.0

        def value(self, run, clean):
            return run.answer_logits[:, 0] * self.factor

    for wrong in (Hidden(2), Mutable()):
        with pytest.raises(InputError, match=r"decorate the class with @dataclass\(frozen=True\)"):
            Settings(metric=wrong)
        with pytest.raises(InputError, match="decorate the class"):
            unit_key("scores", how=wrong)
    assert unit_key("scores", how=Undecorated(3)) != unit_key("scores", how=Undecorated(4))
    assert Settings(Undecorated(3)).record()["scorer"] == {"name": "Undecorated", "steps": 3}
