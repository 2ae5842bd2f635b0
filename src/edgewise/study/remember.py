"""The stages with a memory: what was finished once is found in the store, and what wasn't is worked out and kept."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
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
    how = (settings.scorer, settings.metric)
    cut: dict[str, Any] = {"batch_size": settings.batch_size, "memory": settings.memory, "progress": progress}
    if store.folder is None:
        return score_edges(model, task, *how, **cut)
    key = scores_key(model, task, settings)
    found = store.find(key) or store.make(
        key, lambda draft: dict(score_edges(model, task, *how, **cut, file=draft / "values.npy").provenance)
    )
    names = {"model": model.name, "task": task.name, "split": task.split}  # the same work under other names
    return EdgeScores(model.graph, found.arrays["values"], found.about | names)


def scores_key(model: Model, task: Task, settings: Settings) -> str:
    """What the scores of a task's examples are kept under."""
    return unit_key("scores", model=model.digest, task=task.digest, how=(settings.scorer, settings.metric))


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
    progress("select", 0, len(contenders))
    found: list[tuple[Selection, ...]] = []
    for start in range(0, len(contenders), PART):
        some = contenders[start : start + PART]
        rankings = [one.ranking.digest for one in some]
        recipes = [_described(one.benchmark, one.recipe) for one in some]
        key = unit_key("selections", rankings=rankings, recipes=recipes, how=_how(settings))
        kept = store.find(key)
        if kept is not None:
            found += _read_selections(kept, some[0].ranking)
        else:
            made = []
            for done, one in enumerate(some, start=start + 1):
                made.append(select_circuits(one.ranking, one.recipe, one.benchmark, settings))
                progress("select", done, len(contenders))
            store.keep(key, _selections_unit(made))
            found += made
        progress("select", len(found), len(contenders))
    return found


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
    how, parts = (settings.metric, settings.ablation), []
    for start in range(0, max(1, len(circuits)), PART):
        some, further = circuits[start : start + PART], tuple(of_model) if not start else ()
        masks = hashlib.sha256(b"".join(np.packbits(circuit.mask).tobytes() for circuit in some)).hexdigest()
        key = unit_key("values", model=model.digest, task=task.digest, how=how, circuits=masks, of_model=further)
        unit = store.find(key)
        if unit is None:
            made = evaluate_circuits(
                model, task, some, *how, of_model=further, batch_size=settings.batch_size, memory=settings.memory,
                progress=_within(progress, start, len(circuits)),
            )  # fmt: skip
            arrays = {"values": made.values, "full": made.full, "empty": made.empty}
            unit = store.keep(key, Unit(arrays | {f"model-{name}": row for name, row in made.of_model.items()}))
        parts.append(unit.arrays)
        progress("evaluate", min(start + PART, len(circuits)) * len(task), len(circuits) * len(task))
    first = parts[0]
    said = {metric.name: first[f"model-{metric.name}"] for metric in of_model}
    values = np.concatenate([part["values"] for part in parts])
    return Evaluation(*how, values, first["full"], first["empty"], said)


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


def _selections_unit(rows: Sequence[tuple[Selection, ...]]) -> Unit:
    """Distinct circuits as packed bits [circuit, byte], which of them a recipe has at a size, and how it ended."""
    place: dict[Circuit, int] = {}
    for row in rows:
        for selection in row:
            place.setdefault(selection.circuit, len(place))
    masks = np.stack([np.packbits(circuit.mask) for circuit in place])
    places = np.array([[place[selection.circuit] for selection in row] for row in rows])
    return Unit({"masks": masks, "place": places}, [[selection.record() for selection in row] for row in rows])


def _read_selections(unit: Unit, ranking: Ranking) -> list[tuple[Selection, ...]]:
    graph = ranking.graph
    bits = np.unpackbits(unit.arrays["masks"], axis=-1, count=graph.n_edges).astype(bool)
    circuits = [Circuit(graph, mask) for mask in bits]
    return [
        tuple(Selection.from_record(circuits[at], record) for at, record in zip(places, records, strict=True))
        for places, records in zip(unit.arrays["place"].tolist(), unit.about, strict=True)
    ]


def _within(progress: Progress, start: int, circuits: int) -> Progress:
    """Progress of one part as progress of all."""

    def report(stage: str, done: int, total: int) -> None:
        examples = total // max(1, min(PART, circuits - start))
        progress(stage, start * examples + done, max(1, circuits) * examples)

    return report
