"""Compare scorers and learners on the same tasks: faithfulness, cost, and agreement with a known circuit.

A cell is a model on a task. Each of its rows is a call of `discover` with another scorer or learner. One solver
selects the circuits of all rows: an integer program whose circuits have exactly as many edges as are asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ..core.circuit import Circuit
from ..errors import InputError
from ..evaluate import BOTH_MEASURES, CMD, auroc, known_circuit, precision_at_true_size
from ..evaluate.known import read_truth
from ..learn import Learner
from ..method import parameters
from ..models import Model, load_source
from ..pipeline import discover
from ..recipes import Discovery, Recipe
from ..recipes.forecast import EvaluateWork, Forecast, LearnWork, ScoreWork, SelectWork, Work, forecast
from ..recipes.stages import score_task
from ..runtime import DEFAULT_SESSION, IN_PROCESS, Engine, Session
from ..runtime.progress import ignore_progress
from ..score import Scorer
from ..score.run_scorer import score_need
from ..tasks import Task
from ..tasks.known import KNOWN
from .folder import Repeats
from .methods import AnyMethod, FullSizeIlp, MethodCell, MethodComparison, MethodRow, RandomRanking, choose_methods
from .plan import TEST, TRAIN, Plan
from .run import load_splits

# Examples of a run that isn't timed: the first run of a process is slower than others.
WARM_UP_EXAMPLES = 8


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
    cache: bool = True,
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
    cache
        As in `load_model`.
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
            model = load_source(plan.source(name, cache))
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
    cache: bool = True,
    engine: Engine = IN_PROCESS,
) -> list[Forecast]:
    """Forecast the cost of a comparison for each model. The examples of seed 0 stand for those of all seeds."""
    forecasts = []
    for name in plan.models:
        model = load_source(plan.source(name, cache))
        listed, _ = choose_methods(methods, plan.settings, model.graph.n_edges, scorer_parameters, learner_parameters)
        works: list[Work] = []
        for task in (task for of_model, task in list_cells(plan) if of_model == name):
            splits, settings = load_splits(plan, model, task, 0, (TRAIN, TEST)), plan.settings
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
            works.append(EvaluateWork(splits[TEST], settings, selected=selected, times=times))
        forecasts.append(forecast(model, works, engine, exact=True))
    return forecasts
