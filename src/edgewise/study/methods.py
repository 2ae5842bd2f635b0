"""Compare scorers and learners on the same tasks: faithfulness, cost, and agreement with a known circuit.

A cell is a model on a task. Each of its rows is a call of `discover` with another scorer or learner. One solver
selects the circuits of all rows: an integer program whose circuits have exactly as many edges as are asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np

from ..core.circuit import Circuit
from ..core.ranking import Ranking, tied_ranks
from ..core.statistics import percentile_interval, resampling_weights
from ..errors import InputError
from ..evaluate import BOTH_MEASURES, CMD, CONFIDENCE, Measure, auroc, known_circuit, precision_at_true_size
from ..evaluate.known import read_truth
from ..learn import LEARNERS, Learner, LearningCost, LearningProblem
from ..method import as_known, parameters
from ..models import Model, load_source
from ..models.memory import Need
from ..pipeline import discover
from ..recipes import Discovery, Recipe
from ..recipes.forecast import EvaluateWork, Forecast, LearnWork, ScoreWork, SelectWork, Work
from ..recipes.settings import Settings
from ..recipes.stages import score_task
from ..runtime import DEFAULT_SESSION, IN_PROCESS, Engine, Session
from ..runtime.progress import ignore_progress
from ..score import SCORERS, EapIg, Scorer
from ..score.run_scorer import score_need
from ..select import Ilp, SelectionProblem, Solution
from ..tasks import Metric, Task
from ..tasks.known import KNOWN
from .folder import Repeats
from .plan import TEST, TRAIN, Plan
from .run import forecast_models, load_splits

AnyMethod = Scorer | Learner
M = TypeVar("M", Scorer, Learner)
# All other methods are compared with this one.
BASELINE = EapIg.name
ALL = "all"
RANK_RESAMPLES = 2000
# Examples of a run that isn't timed: the first run of a process is slower than others.
WARM_UP_EXAMPLES = 8


@dataclass(frozen=True)
class FullSizeIlp(Ilp):
    """The ILP of circuits with exactly as many edges as are asked for: edges of negative value are not left out."""

    name: ClassVar[str] = "ilp-full-size"
    title: ClassVar[str] = "ILP of full size"

    def solve(self, problem: SelectionProblem) -> Solution:
        """Solve the problem of values that are shifted above 0. Among circuits of equal size the order is the same."""
        shift = max(0.0, -float(problem.value.min()))
        solution = super().solve(replace(problem, value=problem.value + shift))
        return replace(solution, bound=solution.bound - shift * problem.budget)


@dataclass(frozen=True)
class RandomRanking(Learner):
    """A uniformly random ranking: what a method without information reaches."""

    name: ClassVar[str] = "random"
    measure: Measure = CMD
    seed: int = 0

    def learn(self, problem: LearningProblem, session: Session) -> Ranking:
        graph = problem.graph
        return Ranking(graph, np.random.default_rng(self.seed).random(graph.n_edges), signed=False)

    def cost(self, problem: LearningProblem) -> LearningCost:
        return LearningCost(0, 1, Need(0, 0, 0), lambda *_: None)

    def check(self, metric: Metric) -> None:
        """Accept every metric."""

    def check_kind(self, positions: bool, level: str) -> None:
        """Accept every kind of circuit."""


def choose_methods(
    names: Sequence[str | AnyMethod],
    settings: Settings,
    n_edges: int | None = None,
    scorer_parameters: Mapping[str, Any] | None = None,
    learner_parameters: Mapping[str, Any] | None = None,
) -> tuple[tuple[AnyMethod, ...], dict[str, str]]:
    """Return the methods to compare, EAP-IG first and random last, and why methods of `all` are left out.

    Parameters
    ----------
    names
        Names of scorers and learners, or objects. 'all' stands for every scorer that can use the metric and what
        circuits consist of, and that suits the number of edges.
    settings
        The metric, positions and level that the methods must be able to use.
    n_edges
        Edges of the graph. None leaves no method out for its size.
    scorer_parameters, learner_parameters
        Parameters for those that have them, such as `steps`. None stands for the default.

    Returns
    -------
    The methods, and name -> reason for those that are left out.

    Raises
    ------
    InputError
        If a name is unknown, or if EAP-IG or a named method can't use the settings.
    """
    chosen: dict[str, AnyMethod] = {}
    left_out: dict[str, str] = {}
    for item in (BASELINE, *names):
        if not isinstance(item, str):
            chosen[item.name] = item
            continue
        name = as_known("scorer or learner", item, (*SCORERS, *LEARNERS, RandomRanking.name, ALL))
        if name == ALL:
            for scorer in (_build(kind, scorer_parameters) for kind in SCORERS.values()):
                reason = _misfit(scorer, settings, n_edges)
                if reason:
                    left_out[scorer.name] = reason
                elif scorer.name not in chosen:
                    chosen[scorer.name] = scorer
        elif name in SCORERS:
            chosen.setdefault(name, _build(SCORERS[name], scorer_parameters))
        elif name in LEARNERS:
            chosen.setdefault(name, _build(LEARNERS[name], learner_parameters))
    for method in chosen.values():
        method.check(settings.metric)
        method.check_kind(settings.positions, settings.level)
    chosen.pop(RandomRanking.name, None)
    return (*chosen.values(), RandomRanking()), {name: why for name, why in left_out.items() if name not in chosen}


def _build(kind: type[M], values: Mapping[str, Any] | None) -> M:
    """Return a method with those of the values that it has as parameters and that aren't None."""
    accepted = parameters(kind)
    return kind(**{name: v for name, v in (values or {}).items() if v is not None and name in accepted})


def _misfit(scorer: Scorer, settings: Settings, n_edges: int | None) -> str:
    """Return why a scorer can't be used, or shouldn't. Empty if it can."""
    try:
        scorer.check(settings.metric)
        scorer.check_kind(settings.positions, settings.level)
    except InputError as error:
        return str(error)
    most = scorer.max_edges
    if most is not None and n_edges is not None and n_edges > most:
        return f"it runs every example once per edge, and {n_edges:,} edges are more than {most:,}; name it to use it"
    return ""


@dataclass(frozen=True, eq=False)
class MethodRow:
    """The results of one scorer or learner on a cell.

    repeats            measure -> the curves over seeds
    seconds            wall seconds of scoring or learning per training example, mean over draws of examples. Those of a
                       learner are the sum over its two rankings, without scores that it starts from.
    memory             estimated bytes beyond the model for one example
    aurocs, precisions [seed] of the ranking for CMD, against the known circuit. Empty if none is known.
    """

    name: str
    repeats: Mapping[Measure, Repeats]
    seconds: float
    memory: int
    aurocs: tuple[float, ...] = ()
    precisions: tuple[float, ...] = ()


@dataclass(frozen=True, eq=False)
class MethodCell:
    """All methods on one model and task: the baseline first, random last.

    left_out  name -> why a method of `all` isn't there
    n_true    edges of the known circuit. None if none is known.
    """

    model: str
    task: str
    n_edges: int
    examples: Mapping[str, int]
    rows: tuple[MethodRow, ...]
    left_out: Mapping[str, str]
    n_true: int | None = None


@dataclass(frozen=True, eq=False)
class MethodComparison:
    """A finished comparison: a cell for every model and task."""

    plan: Plan
    cells: tuple[MethodCell, ...]

    def __repr__(self) -> str:
        names = ", ".join(row.name for row in self.cells[0].rows)
        return f"MethodComparison({len(self.cells)} cells; {names})"


@dataclass(frozen=True)
class MeanRank:
    """The mean rank of a method over cells, 1 is best, with its interval over resampled cells."""

    method: str
    mean: float
    low: float
    high: float


def mean_ranks(comparison: MethodComparison, measure: Measure) -> tuple[MeanRank, ...]:
    """Return the mean rank over cells of every method that is in all cells, the best first.

    A method's rank in a cell is its place by mean area over seeds; equal areas share the mean of their places. The
    interval is that of the mean over cells drawn with replacement.
    """
    cells = [{row.name: row.repeats[measure].mean for row in cell.rows} for cell in comparison.cells]
    names = [name for name in cells[0] if all(name in areas for areas in cells)]
    ranks = np.stack([tied_ranks(-measure.better * np.array([cell[name] for name in names])) for cell in cells])
    draws = resampling_weights(len(cells), RANK_RESAMPLES, 0) @ ranks  # [resample, method]
    low, high = percentile_interval(draws, CONFIDENCE)
    listed = [MeanRank(*row) for row in zip(names, ranks.mean(0).tolist(), low.tolist(), high.tolist(), strict=True)]
    return tuple(sorted(listed, key=lambda rank: rank.mean))


def list_cells(plan: Plan) -> list[tuple[str, str]]:
    """Return the (model, task) pairs of a plan. A model known/NAME and the task of that name go with each other only,
    if the plan has both."""
    pairs = {name for name in KNOWN if name in plan.models and name in plan.tasks}
    return [(m, t) for m in plan.models for t in plan.tasks if m == t or (m not in pairs and t not in pairs)]


def compare_methods(
    plan: Plan,
    methods: Sequence[str | AnyMethod],
    truth: str | Path | None = None,
    *,
    scorer_parameters: Mapping[str, Any] | None = None,
    learner_parameters: Mapping[str, Any] | None = None,
    session: Session = DEFAULT_SESSION,
) -> MethodComparison:
    """Compare methods on every model and task of a plan: rank on train, evaluate on test, over seeds.

    Parameters
    ----------
    plan
        Models, tasks, seeds, examples and settings. Of its grid, only the time limit is used; its learner and scorer
        are not.
    methods, scorer_parameters, learner_parameters
        As `names` and so on in `choose_methods`.
    truth
        The true circuit of the models, a file or known/NAME. By default that of models known/NAME on their own task.
    session
        Store, engine and progress. With a store, a stopped call resumes, and EAP-IG scores are computed once.

    Returns
    -------
    MethodComparison
        A cell for every model and task, with a row per method. `write_methods` writes it as a table and a figure.

    Raises
    ------
    InputError
        If a method is unknown or can't use the metric, or if the true circuit has another graph than a model.
    """
    settings = plan.settings
    choose_methods(methods, settings, None, scorer_parameters, learner_parameters)  # raises before any work
    ranks_edges = not settings.positions and settings.level == "edge"
    if truth is not None and not ranks_edges:
        raise InputError("truth is compared with rankings of edges; leave out truth, or positions and level")
    known = None if truth is None else read_truth(str(truth))
    pairs = list_cells(plan)
    cells: list[MethodCell] = []
    with session.reporting() as session:
        for name in plan.models:
            tasks = [task for model, task in pairs if model == name]
            model = load_source(plan.source(name))
            if known is not None and known.graph != model.graph:
                raise InputError(f"{truth} is a circuit of {known.graph}, but {name} is {model.graph}")
            listed, left_out = choose_methods(
                methods, settings, model.graph.n_edges, scorer_parameters, learner_parameters
            )
            splits = {  # task -> data seed -> split -> examples; a missing split raises before the work
                task: {seed: load_splits(plan, model, task, seed, (TRAIN, TEST)) for seed in set(plan.data_seeds(task))}
                for task in tasks
            }
            for task in tasks:
                session.report("study", len(cells), len(pairs))
                of_task = known
                if known is None and ranks_edges and name == task and name in KNOWN:
                    of_task = known_circuit(name)
                rows = _run_cell(plan, model, listed, splits[task], plan.data_seeds(task), of_task, session)
                first = splits[task][0]
                counts = {split: len(examples) for split, examples in first.items()}
                n_true = None if of_task is None else of_task.n_edges
                n_edges = settings.graph(model.graph, first[TRAIN]).n_edges
                cells.append(MethodCell(name, task, n_edges, counts, rows, left_out, n_true))
        session.report("study", len(cells), len(pairs))
    return MethodComparison(plan, tuple(cells))


def _run_cell(
    plan: Plan,
    model: Model,
    methods: Sequence[AnyMethod],
    draws: Mapping[int, Mapping[str, Task]],
    data_seeds: tuple[int, ...],
    truth: Circuit | None,
    session: Session,
) -> tuple[MethodRow, ...]:
    """Return one row per method. Methods without a seed of their own run once per draw of examples."""
    baseline = next(method for method in methods if isinstance(method, Scorer))
    settings = replace(plan.settings, scorer=baseline)
    solver = FullSizeIlp(plan.grid.time_limit)
    train = draws[data_seeds[0]][TRAIN]
    warm_up = Session(engine=session.engine, progress=ignore_progress)
    score_task(model, train.head(WARM_UP_EXAMPLES), settings, warm_up)
    rows = []
    for method in methods:
        results: dict[tuple[int, AnyMethod], Discovery] = {}
        of_seeds = []
        for seed, data_seed in enumerate(data_seeds):
            seeded: AnyMethod = replace(method, seed=seed) if "seed" in parameters(type(method)) else method  # type: ignore[type-var]
            if (data_seed, seeded) not in results:
                of_method, learners = settings, dict.fromkeys(BOTH_MEASURES)
                if isinstance(seeded, Learner):
                    learners = {measure: seeded.for_measure(measure) for measure in BOTH_MEASURES}
                else:
                    of_method = replace(settings, scorer=seeded)
                recipes = [(measure, Recipe(solver, learner=learners[measure])) for measure in BOTH_MEASURES]
                examples = (draws[data_seed][TRAIN], draws[data_seed][TEST])
                results[data_seed, seeded] = discover(
                    model, *examples, of_method, recipes, attention=0, session=session
                )
            of_seeds.append(results[data_seed, seeded])
        repeats = {}
        for measure in BOTH_MEASURES:
            outcomes = [result.of(measure)[0] for result in of_seeds]
            curves = tuple(outcome.curve for outcome in outcomes)
            repeats[measure] = Repeats(measure, outcomes[0].recipe, curves, data_seeds)
        seconds = []
        for result in results.values():  # of scoring, or of learning both rankings
            learning = (float(ranking.origin.get("seconds", 0.0)) for ranking in result.learned.values())
            total = result.run.seconds["score"] if isinstance(method, Scorer) else sum(learning)
            seconds.append(total / result.run.train.examples)
        values = [np.abs(result.of(CMD)[0].rankings[0].value) for result in of_seeds]
        if isinstance(method, Scorer):
            need = score_need(method, settings.graph(model.graph, train), model, train)
        else:
            need = LearnWork(train, settings, method).cost(model).need
        rows.append(
            MethodRow(
                method.name,
                repeats,
                float(np.mean(seconds)),
                need.total(1),
                () if truth is None else tuple(auroc(value, truth) for value in values),
                () if truth is None else tuple(precision_at_true_size(value, truth) for value in values),
            )
        )
    return tuple(rows)


def method_forecasts(
    plan: Plan,
    methods: Sequence[str | AnyMethod],
    *,
    scorer_parameters: Mapping[str, Any] | None = None,
    learner_parameters: Mapping[str, Any] | None = None,
    engine: Engine = IN_PROCESS,
) -> list[Forecast]:
    """Forecast the cost of a comparison for each model. The examples of seed 0 stand for those of all seeds."""

    def list_work(model: Model, task: str) -> list[Work]:
        listed, _ = choose_methods(methods, plan.settings, model.graph.n_edges, scorer_parameters, learner_parameters)
        splits, settings = load_splits(plan, model, task, 0, (TRAIN, TEST)), plan.settings
        works: list[Work] = []
        for method in listed:
            if isinstance(method, Scorer):
                scoring, draws = replace(settings, scorer=method), len(set(plan.data_seeds(task)))
                works.append(ScoreWork(splits[TRAIN], scoring, times=draws))
            elif not isinstance(method, RandomRanking):
                learners = dict.fromkeys(method.for_measure(measure) for measure in BOTH_MEASURES)
                works += [LearnWork(splits[TRAIN], settings, learner, times=plan.seeds) for learner in learners]
        # Circuits of EAP-IG stand for those of all methods.
        recipes = tuple((measure, Recipe(FullSizeIlp(plan.grid.time_limit))) for measure in BOTH_MEASURES)
        selected, times = SelectWork(splits[TRAIN], settings, recipes), plan.seeds * len(listed)
        return [*works, EvaluateWork(splits[TEST], settings, selected=selected, times=times)]

    return forecast_models(plan, list_cells(plan), list_work, engine)
