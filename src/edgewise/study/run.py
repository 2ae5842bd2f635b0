"""Run a study, unit by unit: what is on disk already is read, what isn't is worked out and written whole.

Protocol: score on train, choose combination and hyper-parameters on validation, report on test. One scoring pass per
model, task and drawn data serves every recipe.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path

import numpy as np

from ..circuit import Circuit
from ..errors import InputError
from ..evaluate.curve import Curve
from ..evaluate.verb import evaluate_circuits
from ..formats.score_folder import read_scores, write_scores
from ..formats.study_folder import (
    CELLS,
    Selected,
    Values,
    cell_name,
    digest,
    read_plan,
    read_selected,
    read_values,
    write_arrays,
)
from ..formats.write import read_json, whole_folder, write_json
from ..models import Model
from ..recipes import Recipe, select_circuits
from ..score import score_edges
from ..scores import EdgeScores
from ..stability import mean_overlap, recipe_overlap
from ..statistics import Bootstrap, Filter, summarise
from ..tasks import Task, load_task, load_third
from .outcome import Cell, Repeats, Study, best, by_name
from .plan import BENCHMARKS, TEST, TRAIN, VALIDATION, Plan

# So many circuits are run by one call and kept together: few enough calls to share the clean and the corrupted run,
# and no more lost than one call's work when a study is stopped.
PART = 100
OVERLAP_RESAMPLES = 5
# Metrics that are positive where the correct answer beats the incorrect one.
DIFFERENCES = ("logit-difference", "probability-difference")
Progress = Callable[[str, int, int], None]
Choice = tuple[str, Recipe]


def run_study(
    plan: Plan,
    folder: Path,
    load: Callable[[str], Model],
    progress: Progress = lambda stage, done, total: None,
) -> Study:
    """Do what is left of a plan in a folder that `open_study` made ready; `load` makes a model of its name.

    A model whose units are all finished is not loaded.
    """
    cells: dict[tuple[str, str], Cell] = {}
    for name in plan.models:
        model = _Lazy(load, name)
        for task in plan.tasks:
            where = folder / CELLS / cell_name(name, task)
            cells[task, name] = _run_cell(plan, name, task, model, where, progress)
            progress("cells", len(cells), len(plan.models) * len(plan.tasks))
    return Study(plan, tuple(cells[task, name] for task in plan.tasks for name in plan.models))


def read_study(folder: Path) -> Study:
    """A finished study, read back from its folder without a model."""

    def refuse(name: str) -> Model:
        raise InputError(f"the study in {folder} isn't finished; give the command that began it again")

    record = read_plan(folder)
    try:
        plan = Plan.from_record(record)
    except (KeyError, TypeError) as error:
        raise InputError(f"{folder} holds a study of another version of edgewise: {error}") from None
    return run_study(plan, folder, refuse)


def _run_cell(plan: Plan, name: str, task: str, model: _Lazy, where: Path, progress: Progress) -> Cell:
    draws = [
        _Draw(plan, task, seed, seeds, model, where / f"data-{seed}", progress)
        for seed, seeds in plan.data_seeds(task).items()
    ]
    everything = {seed: plan.recipes(seed) for seed in range(plan.seeds)}
    validation = _repeats(draws, VALIDATION, everything)
    picked = {b: [best(group).recipe for group in by_name(validation[b]).values()] for b in BENCHMARKS}
    # A recipe of seed 0 stands for its like of every seed.
    first = everything[0]
    places = [first.index((b, recipe)) for b in BENCHMARKS for recipe in picked[b]]
    chosen = {seed: tuple(recipes[place] for place in places) for seed, recipes in everything.items()}
    test = _repeats(draws, TEST, chosen)
    overlap = {}
    for b in BENCHMARKS:
        both = {"greedy": picked[b][0], "chosen": best(validation[b]).recipe}
        overlap[b] = {
            who: tuple(draw.overlap(b, who, everything[draw.seed][first.index((b, recipe))][1]) for draw in draws)
            for who, recipe in both.items()
        }
    sizes = {split: draws[0].size(split) for split in (TRAIN, VALIDATION, TEST)}
    tested = [draw.evaluated(TEST, chosen) for draw in draws]
    accuracy = float(np.mean([values.accuracy for values in tested]))
    full = np.concatenate([values.full for values in tested])
    beats = float((full > 0).mean()) if plan.settings.metric in DIFFERENCES else None
    return Cell(name, task, sizes, accuracy, beats, validation, test, overlap)


def _repeats(
    draws: Sequence[_Draw], split: str, recipes: dict[int, tuple[Choice, ...]]
) -> dict[str, tuple[Repeats, ...]]:
    """Every recipe's curves over all seeds: benchmark -> recipes."""
    curves = {seed: found for draw in draws for seed, found in draw.curves(split, recipes).items()}
    home = {seed: draw.seed for draw in draws for seed in draw.seeds}
    seeds = sorted(curves)
    found: dict[str, list[Repeats]] = {b: [] for b in BENCHMARKS}
    for place, (benchmark, recipe) in enumerate(recipes[seeds[0]]):
        ours = tuple(curves[seed][place] for seed in seeds)
        found[benchmark].append(Repeats(benchmark, recipe, ours, tuple(home[seed] for seed in seeds)))
    return {b: tuple(repeats) for b, repeats in found.items()}


class _Lazy:
    """A model that is loaded when somebody needs it."""

    def __init__(self, load: Callable[[str], Model], name: str) -> None:
        self._load, self._name = load, name

    @cached_property
    def model(self) -> Model:
        return self._load(self._name)


class _Draw:
    """The units of a model and a task whose examples were drawn with one seed.

    seed     draws the examples; `seeds` of the study share them
    """

    def __init__(
        self, plan: Plan, task: str, seed: int, seeds: tuple[int, ...], lazy: _Lazy, where: Path, progress: Progress
    ) -> None:
        self.seed, self.seeds = seed, seeds
        self._plan, self._name, self._lazy, self._where, self._progress = plan, task, lazy, where, progress
        self._tasks: dict[str, Task] = {}

    def _task(self, split: str) -> Task:
        if split not in self._tasks:
            load = load_third if self._name in self._plan.unsplit else load_task
            self._tasks[split] = load(self._name, self._lazy.model, split, self._plan.examples, self.seed)
        return self._tasks[split]

    def size(self, split: str) -> int:
        """How many examples a split has."""
        if split == TRAIN:
            return self.scores(TRAIN).n_examples
        values = read_values(self._where / f"{split}-values-0.npz")
        return len(self._task(split)) if values is None else len(values.full)

    def scores(self, split: str) -> EdgeScores:
        """Scores of a split's examples."""
        folder = self._where / ("scores" if split == TRAIN else f"scores-{split}")
        if not folder.is_dir():
            settings = self._plan.settings
            for needed in (TRAIN, VALIDATION, TEST):
                self._task(needed)  # a split that is missing is found before the work, not after it
            with whole_folder(folder) as draft:
                scores = score_edges(
                    self._lazy.model, self._task(split), settings.method, settings.steps, settings.metric,
                    settings.batch_size, lambda done, total: self._progress("score", done, total),
                    draft / "scores.npy", memory=settings.memory,
                )  # fmt: skip
                write_scores(draft, scores)
        return read_scores(folder)

    def selected(self, split: str, seed: int, recipes: Sequence[Choice]) -> Selected:
        """Circuits of all recipes at all sizes, as they are evaluated on a split."""
        path, made_for = self._where / f"{split}-selected-{seed}.npz", digest(repr(tuple(recipes)).encode())
        kept = read_selected(path, made_for)
        if kept is not None:
            return kept
        settings = self._plan.settings
        statistics = {
            way: summarise(self._rows(split, way), way) for way in dict.fromkeys(r.filter for _, r in recipes)
        }
        rows = []
        for done, (benchmark, recipe) in enumerate(recipes):
            self._progress("select", done, len(recipes))
            rows.append(select_circuits(statistics[recipe.filter], recipe, benchmark, settings))
        self._progress("select", len(recipes), len(recipes))
        circuits = list(dict.fromkeys(selection.circuit for row in rows for selection in row))
        place = {circuit: number for number, circuit in enumerate(circuits)}
        found = Selected(
            made_for,
            np.stack([np.packbits(circuit.mask) for circuit in circuits]),
            np.array([[place[selection.circuit] for selection in row] for row in rows]),
            np.array([[selection.asked for selection in row] for row in rows]),
            np.array([[selection.kept for selection in row] for row in rows]),
        )
        write_arrays(path, found)
        return found

    def _rows(self, split: str, way: Filter | None) -> EdgeScores:
        """The scores that a filter sees: those of train, or of the evaluated split, as the public script has it."""
        on_test = self._plan.settings.filter_on_test and isinstance(way, Bootstrap)
        return self.scores(split if on_test else TRAIN)

    def evaluated(self, split: str, recipes: dict[int, tuple[Choice, ...]]) -> Values:
        """The metric of the distinct circuits of all seeds that share these examples, in order of appearance."""
        masks = self._distinct(split, recipes)[0]
        parts = []
        for part in range(-(-len(masks) // PART)):
            some = masks[part * PART : (part + 1) * PART]
            path, made_for = self._where / f"{split}-values-{part}.npz", digest(some.tobytes())
            kept = read_values(path, made_for)
            if kept is None:
                kept = self._evaluate(split, some, made_for)
                write_arrays(path, kept)
            parts.append(kept)
        return replace(parts[0], values=np.concatenate([part.values for part in parts]))

    def _evaluate(self, split: str, masks: np.ndarray, made_for: str) -> Values:
        model, task, settings = self._lazy.model, self._task(split), self._plan.settings
        bits = np.unpackbits(masks, axis=-1, count=model.graph.n_edges).astype(bool)
        found = evaluate_circuits(
            model, task, [Circuit(model.graph, mask) for mask in bits], settings.metric, settings.ablation,
            settings.batch_size, lambda done, total: self._progress("evaluate", done, total), settings.memory,
        )  # fmt: skip
        accuracy = evaluate_circuits(
            model, task, [], "accuracy", batch_size=settings.batch_size, memory=settings.memory
        ).full
        return Values(made_for, found.values, found.full, found.empty, float(accuracy.mean()))

    def _distinct(self, split: str, recipes: dict[int, tuple[Choice, ...]]) -> tuple[np.ndarray, dict[bytes, int]]:
        """The distinct masks of all seeds, packed, and the place of each."""
        every = [mask for seed in self.seeds for mask in self.selected(split, seed, recipes[seed]).masks]
        place: dict[bytes, int] = {}
        for mask in every:
            place.setdefault(mask.tobytes(), len(place))
        masks = np.stack([np.frombuffer(mask, np.uint8) for mask in place])
        return masks, place

    def curves(self, split: str, recipes: dict[int, tuple[Choice, ...]]) -> dict[int, list[Curve]]:
        """Every recipe's curve on a split, by seed."""
        values = self.evaluated(split, recipes)
        place = self._distinct(split, recipes)[1]
        settings, found = self._plan.settings, {}
        for seed in self.seeds:
            selected = self.selected(split, seed, recipes[seed])
            global_place = np.array([place[mask.tobytes()] for mask in selected.masks])
            found[seed] = [
                Curve(
                    settings.sizes, tuple(asked.tolist()), tuple(kept.tolist()), values.values[global_place[places]],
                    values.full, values.empty, settings.faithfulness,
                )
                for places, asked, kept in zip(selected.place, selected.asked, selected.kept, strict=True)
            ]  # fmt: skip
        return found

    def overlap(self, benchmark: str, who: str, recipe: Recipe) -> float:
        """The mean overlap of a recipe's circuits over resamples of train, over the sizes that leave a choice."""
        path, made_for = self._where / f"overlap-{benchmark}-{who}.json", digest(repr(recipe).encode())
        kept = read_json(path) if path.is_file() else None
        if not isinstance(kept, dict) or kept.get("made_for") != made_for:
            by_size = recipe_overlap(self.scores(TRAIN), recipe, benchmark, self._plan.settings, OVERLAP_RESAMPLES)
            kept = {"made_for": made_for, "overlap": mean_overlap(by_size, self._plan.settings.sizes)}
            write_json(path, kept)
        return float(kept["overlap"])
