"""The stages with a memory: what was finished once is found in the store, and what wasn't is worked out and kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..circuit import Circuit
from ..evaluate import Benchmark
from ..evaluate.evaluation import Evaluation, evaluate_circuits
from ..learn import Learned, learn_ranking
from ..models import Model
from ..progress import Progress
from ..ranking import Ranking
from ..score import score_edges
from ..scores import EdgeScores
from ..select import Selection
from ..store import Store, Unit, unit_key
from ..tasks import Metric, Task
from .measured import Contender
from .recipes import Recipe, select_circuits
from .settings import Settings
from .stability import recipe_overlap

# So many recipes, or circuits, are worked out by one call and kept together: few enough calls to share the clean and
# the corrupted run, and no more lost than one call's work when somebody stops it.
PART = 100


def score(model: Model, task: Task, settings: Settings, store: Store, progress: Progress) -> EdgeScores:
    """The scores of a task's examples."""
    return score_edges(
        model, task, settings.scorer, settings.metric, batch_size=settings.batch_size, memory=settings.memory,
        store=store, progress=progress,
    )  # fmt: skip


def learn(model: Model, task: Task, learner: Learned, settings: Settings, store: Store, progress: Progress) -> Ranking:
    """The ranking that a learner makes of a task's examples."""
    return learn_ranking(
        model, task, learner, settings.metric, settings.ablation, sizes=settings.sizes, memory=settings.memory,
        store=store, progress=progress,
    )  # fmt: skip


def select(
    contenders: Sequence[Contender], settings: Settings, store: Store, progress: Progress
) -> list[tuple[Selection, ...]]:
    """For every contender, a circuit of every size."""
    found: list[tuple[Selection, ...]] = []
    progress("select", 0, len(contenders))
    for start in range(0, len(contenders), PART):
        some = contenders[start : start + PART]
        rankings = [one.ranking.digest for one in some]
        recipes = [_described(one.benchmark, one.recipe) for one in some]
        key = unit_key("selections", rankings=rankings, recipes=recipes, how=_how(settings))
        kept = store.find(key) or _select(key, some, settings, store, _after(progress, start, len(contenders)))
        found += _read_selections(kept, some[0].ranking)
        progress("select", len(found), len(contenders))
    return found


def _select(key: str, contenders: Sequence[Contender], settings: Settings, store: Store, progress: Progress) -> Unit:
    """Circuits as packed bits [contender, size, byte], and how each selection ended."""
    size = (len(settings.sizes), -(-contenders[0].ranking.graph.n_edges // 8))
    with store.filling(key, len(contenders), {"masks": (size, np.uint8)}) as filling:
        for row, one in enumerate(contenders):
            if filling.lacks([row]):
                made = select_circuits(one.ranking, one.recipe, one.benchmark, settings)
                masks = np.stack([np.packbits(selection.circuit.mask) for selection in made])
                filling.put([row], [selection.record() for selection in made], masks=masks[None])
            progress("select", row + 1, len(contenders))
        return store.finish(key, filling, [filling.said[row] for row in range(len(contenders))])


def evaluate(
    model: Model,
    task: Task,
    circuits: Sequence[Circuit],
    settings: Settings,
    store: Store,
    progress: Progress,
    of_model: Sequence[Metric] = (),
) -> Evaluation:
    """The metric of circuits on a task; further metrics `of_model` come with the first part."""
    parts = []
    for start in range(0, max(1, len(circuits)), PART):
        parts.append(
            evaluate_circuits(
                model, task, circuits[start : start + PART], settings.metric, settings.ablation,
                of_model=() if start else of_model, batch_size=settings.batch_size, memory=settings.memory,
                store=store, progress=_after(progress, start * len(task), len(circuits) * len(task)),
            )
        )  # fmt: skip
        progress("evaluate", min(start + PART, len(circuits)) * len(task), len(circuits) * len(task))
    return replace(parts[0], values=np.concatenate([part.values for part in parts]))


def overlap_by_size(
    scores: EdgeScores,
    recipe: Recipe,
    benchmark: Benchmark,
    settings: Settings,
    resamples: int,
    seed: int,
    store: Store,
) -> NDArray[np.float64]:
    """[size] the overlap of a recipe's circuits over resamples of the scored examples; NaN where they are empty."""
    how = (*_how(settings), resamples, seed)
    key = unit_key("overlap", scores=scores.digest, recipe=_described(benchmark, recipe), how=how)
    kept = store.find(key)
    if kept is None:
        made = recipe_overlap(scores, recipe, benchmark, settings, resamples, seed)
        kept = store.keep(key, Unit({"overlap": made}))
    return kept.arrays["overlap"]


def _described(benchmark: Benchmark, recipe: Recipe) -> tuple[Any, ...]:
    return (benchmark, recipe.solver, recipe.filter, recipe.pnr)


def _how(settings: Settings) -> tuple[Any, ...]:
    """What selecting depends on beyond ranking and recipe."""
    return (settings.sizes, settings.fill, settings.nested, settings.pnr_after_absolute)


def _read_selections(unit: Unit, ranking: Ranking) -> list[tuple[Selection, ...]]:
    bits = np.unpackbits(unit.arrays["masks"], axis=-1, count=ranking.graph.n_edges).astype(bool)
    return [
        tuple(Selection.from_record(Circuit(ranking.graph, mask), one) for mask, one in zip(*row, strict=True))
        for row in zip(bits, unit.about, strict=True)
    ]


def _after(progress: Progress, before: int, total: int) -> Progress:
    """Progress of one part as progress of all."""
    return lambda stage, done, _: progress(stage, before + done, max(1, total))
