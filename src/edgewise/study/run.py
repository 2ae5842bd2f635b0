"""Run a study, cell by cell; what the store has already isn't worked out again.

Protocol: score on train, choose combination and hyper-parameters on validation, report on test. One scoring pass per
model, task and drawn data serves every recipe.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path

import numpy as np

from ..core.ranking import Ranking
from ..core.scores import EdgeScores
from ..evaluate import BOTH_MEASURES, Curve, Measure
from ..learn import Learner
from ..models import Model, load_source
from ..recipes.curves import Choice, evaluate_recipes, learn_rankings, rank_edges, score_task
from ..recipes.outcome import Competence, Measured
from ..recipes.stability import mean_overlap, overlap_by_size, ranking_overlap
from ..runtime.progress import Progress
from ..runtime.session import DEFAULT_SESSION, Session
from ..runtime.store import Store
from ..tasks import Task, load_task, load_third
from .cells import Cell, Repeats, Study, best, by_name
from .folder import STORE, OpenStudy, cell_key, find_cell, keep_cell, open_study, read_record
from .plan import TEST, TRAIN, VALIDATION, Plan

OVERLAP_RESAMPLES = 5
SPLITS = (TRAIN, VALIDATION, TEST)


@dataclass(frozen=True, eq=False)
class Draw:
    """Examples of a task that were drawn with one seed, and their scores, by split.

    seeds   of the study that share these examples
    scores  of train, and of the evaluated splits if a filter resamples those
    learned the rankings that were learned on train
    """

    seed: int
    seeds: tuple[int, ...]
    tasks: Mapping[str, Task]
    scores: Mapping[str, EdgeScores]
    learned: Mapping[Learner, Ranking]


def run_study(
    plan: Plan,
    folder: str | Path,
    overwrite: bool = False,
    cache: bool = True,
    session: Session = DEFAULT_SESSION,
) -> Study:
    """Do what is left of a plan in a folder of its own. A model whose cells are all finished is not loaded.

    With `overwrite`, another study's folder is replaced once all is done. `cache` is as in `load_model`. The folder has
    its own store, so that of the session isn't used.
    """
    with open_study(Path(folder), plan, overwrite) as opened:
        return resume_study(plan, opened, cache, session)


def resume_study(plan: Plan, opened: OpenStudy, cache: bool = True, session: Session = DEFAULT_SESSION) -> Study:
    """Do what is left of a plan in a folder that is open for it."""
    store, record = Store(opened.folder / STORE), read_record(opened.folder)
    cells: dict[tuple[str, str], Cell] = {}
    units = {task: _units(plan, task) for task in plan.tasks}
    done, total = 0, len(plan.models) * sum(units.values())
    with session.reporting() as shown:
        shown = replace(shown, store=store)
        shown.report("study", done, total)
        for name in plan.models:
            model = None
            for task in plan.tasks:
                key = cell_key(record, name, task)
                cell = find_cell(store, key, plan)
                if cell is None:
                    model = model or load_source(plan.source(name, cache))
                    cell = _run_cell(plan, model, name, task, shown, partial(_advance, shown.report, done, total))
                    keep_cell(store, key, cell)
                cells[task, name] = cell
                done += units[task]
                shown.report("study", done, total)
    return Study(plan, tuple(cells[task, name] for task in plan.tasks for name in plan.models))


def _units(plan: Plan, task: str) -> int:
    """How many pieces of work a cell has: to score, to try on validation and to test every draw, and the overlap."""
    return 3 * len(plan.data_seeds(task)) + 1


def _advance(progress: Progress, before: int, total: int, units: int) -> None:
    """Report so many units of a cell as progress of the study."""
    progress("study", before + units, total)


def _run_cell(plan: Plan, model: Model, name: str, task: str, session: Session, advance: Callable[[int], None]) -> Cell:
    units, draws = count(1), []
    for data_seed, seeds in plan.data_seeds(task).items():
        draws.append(_draw(plan, model, task, data_seed, seeds, session))
        advance(next(units))
    everything = {seed: plan.recipes(seed) for seed in range(plan.seeds)}

    def measured(split: str, recipes: Mapping[int, Sequence[Choice]]) -> list[Measured]:
        found = []
        for draw in draws:
            seen = (draw.scores[TRAIN], draw.scores.get(split), draw.learned)
            ranked = [one for seed in draw.seeds for one in rank_edges(recipes[seed], *seen)]
            found.append(evaluate_recipes(model, draw.tasks[split], ranked, plan.settings, session))
            advance(next(units))
        return found

    validation = _repeats(draws, measured(VALIDATION, everything), everything)
    picked = {b: [best(group).recipe for group in by_name(validation[b]).values()] for b in BOTH_MEASURES}
    # A recipe of seed 0 stands for its like of every seed.
    first = everything[0]
    places = [first.index((b, recipe)) for b in BOTH_MEASURES for recipe in picked[b]]
    chosen = {seed: tuple(recipes[place] for place in places) for seed, recipes in everything.items()}
    tested = measured(TEST, chosen)
    overlap: dict[Measure, dict[str, tuple[float, ...]]] = {}
    for b in BOTH_MEASURES:
        both = {"greedy": picked[b][0], "chosen": best(validation[b]).recipe}
        overlap[b] = {}
        for who, recipe in both.items():
            ours = [
                _mean_overlap(draw, everything[draw.seed][first.index((b, recipe))], plan, session) for draw in draws
            ]
            overlap[b][who] = tuple(mean for mean in ours if mean is not None)
    tops, beats = zip(*((found.competence.top, found.competence.beats) for found in tested), strict=True)
    competence = Competence(float(np.mean(tops)), float(np.mean(beats)))
    sizes = {split: len(draws[0].tasks[split]) for split in SPLITS}
    return Cell(name, task, sizes, competence, validation, _repeats(draws, tested, chosen), overlap)


def _draw(plan: Plan, model: Model, name: str, seed: int, seeds: tuple[int, ...], session: Session) -> Draw:
    load = load_third if name in plan.unsplit else load_task
    # All splits first: one that is missing is found before the work, not after it.
    tasks = {split: load(name, model, split, plan.examples, seed) for split in SPLITS}
    needed = SPLITS if plan.settings.bootstrap.on_evaluated else (TRAIN,)
    scores = {split: score_task(model, tasks[split], plan.settings, session) for split in needed}
    recipes = [recipe for _, recipe in plan.recipes(0)]
    learned = learn_rankings(model, tasks[TRAIN], recipes, plan.settings, session)
    return Draw(seed, seeds, tasks, scores, learned)


def _mean_overlap(draw: Draw, choice: Choice, plan: Plan, session: Session) -> float | None:
    """The mean overlap of a recipe's circuits over resamples of train, over the sizes that leave a choice; None for a
    ranking that was learned without resamples."""
    measure, recipe = choice
    scores, settings = draw.scores[TRAIN], plan.settings
    if recipe.learner is not None:
        by_size = ranking_overlap(draw.learned[recipe.learner], recipe, measure, settings)
    else:
        by_size = overlap_by_size(scores, recipe, measure, settings, OVERLAP_RESAMPLES, 0, session)
    return None if by_size is None else mean_overlap(by_size, settings.sizes)


def _repeats(
    draws: Sequence[Draw], found: Sequence[Measured], recipes: Mapping[int, Sequence[Choice]]
) -> dict[Measure, tuple[Repeats, ...]]:
    """Every recipe's curves over all seeds: benchmark -> recipes."""
    curves: dict[int, list[Curve]] = {}
    home: dict[int, int] = {}
    for draw, measured in zip(draws, found, strict=True):
        each = len(measured.outcomes) // len(draw.seeds)
        for place, seed in enumerate(draw.seeds):
            curves[seed], home[seed] = measured.curves[place * each : (place + 1) * each], draw.seed
    seeds = sorted(curves)
    repeats: dict[Measure, list[Repeats]] = {b: [] for b in BOTH_MEASURES}
    for place, (measure, recipe) in enumerate(recipes[seeds[0]]):
        ours = tuple(curves[seed][place] for seed in seeds)
        repeats[measure].append(Repeats(measure, recipe, ours, tuple(home[seed] for seed in seeds)))
    return {b: tuple(ones) for b, ones in repeats.items()}
