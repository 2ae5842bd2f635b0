"""The record of a run: what it was told, with what, and what came out, as a typed value."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np

from ..core.statistics import Bootstrap
from ..errors import InputError
from ..evaluate import Ablation, Faithfulness, resample
from ..graph import Graph
from ..io.records import Decoders, convert_fields, convert_record
from ..method import plain, record_name
from ..recipes.outcome import Competence
from ..recipes.settings import Settings, published_words
from ..recipes.stability import mean_overlap
from ..score import Scorer
from ..tasks import Metric, Task

if TYPE_CHECKING:
    from ..pipeline import Discovery, Outcome

VERSIONED = ("edgewise", "numpy", "torch", "transformers", "highspy")


@dataclass(frozen=True)
class Examples:
    """Which examples: their split, how many, and a hash of their tokens."""

    split: str
    examples: int
    prompts: str

    @classmethod
    def of(cls, task: Task) -> Examples:
        """Those of a task."""
        return cls(task.split, len(task), task.digest)


@dataclass(frozen=True)
class RunRecord:
    """All there is to say about a run beyond its arrays; run.json is this, as JSON.

    weights        a hash of the model's files, or of its weights in memory
    bos            the token in front of every prompt, or None
    accuracy       how well the model does the evaluated examples
    settings       as plain data, methods by name
    as_published   which behaviours of the paper's script are repeated, in words; None for none
    areas          benchmark -> method -> CPR or CMD; `intervals` the same with their error bars
    tuning         how a method was chosen by cross-validation; None if it wasn't asked for
    overlap        benchmark -> method -> the overlap of circuits over resamples of train: by size, and its mean
    portfolio      benchmark -> size -> the method that validation preferred there; empty without a portfolio
    circuits       benchmark -> which method's circuits are written, and on which examples it was chosen
    seconds        that each stage took
    """

    model: str
    weights: str
    task: str
    train: Examples
    test: Examples
    seed: int
    device: str
    dtype: str
    threads: int
    bos: int | None
    accuracy: Competence
    settings: Mapping[str, Any]
    as_published: Mapping[str, str] | None
    graph: Graph
    sign_instability: float
    edges_kept_by_bootstrap: int
    areas: Mapping[str, Mapping[str, float]]
    intervals: Mapping[str, Mapping[str, Any]]
    tuning: Mapping[str, Any] | None
    overlap: Mapping[str, Mapping[str, Any]]
    portfolio: Mapping[str, Mapping[str, str]]
    circuits: Mapping[str, Mapping[str, Any]]
    seconds: Mapping[str, float]
    versions: Mapping[str, str]

    @classmethod
    def of(cls, found: Discovery) -> RunRecord:
        """The record of a discovery."""
        from ..runtime.engine import thread_count  # torch isn't loaded to read a record

        transformer, outcomes = found.model.transformer, {b: found.of(b) for b in found.measures}
        return cls(
            model=found.model.name,
            weights=found.model.content,
            task=found.test.name,
            train=Examples.of(found.train),
            test=Examples.of(found.test),
            seed=found.seed,
            device=transformer.where,
            dtype=str(transformer.dtype).removeprefix("torch."),
            threads=thread_count(),
            bos=found.model.bos,
            accuracy=found.competence,
            settings=found.settings.record(),
            as_published=published_words(found.settings),
            graph=found.model.graph,
            sign_instability=found.statistics.sign_instability,
            edges_kept_by_bootstrap=int(found.statistics.kept.sum()),
            areas={b.name: {o.recipe.name: o.area for o in some} for b, some in outcomes.items()},
            intervals={
                b.name: {o.recipe.name: resample(o.curve, b).interval().record() for o in some}
                for b, some in outcomes.items()
            },
            tuning=found.tuning.record() if found.tuning else None,
            overlap=_overlap(found),
            portfolio={
                o.measure.name: {f"{share:g}": one for share, one in zip(o.curve.shares, o.choices, strict=True)}
                for o in found.outcomes
                if o.choices
            },
            circuits={b.name: exported_record(found, found.exported(b)) for b in found.measures},
            seconds=dict(found.seconds),
            versions={"python": platform.python_version()} | {name: version(name) for name in VERSIONED},
        )

    def __repr__(self) -> str:
        return f"RunRecord({self.model!r} on {self.task!r}, {', '.join(self.areas)}, seed {self.seed})"

    def record(self) -> dict[str, Any]:
        """As plain data, for JSON."""
        record = {field.name: plain(getattr(self, field.name)) for field in fields(self)}
        return record | {"graph": asdict(self.graph) | {"edges": self.graph.n_edges}}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> RunRecord:
        """The record that was written as JSON; says what it lacks, and what isn't of its type."""
        found = convert_record(cls, record, "the run's record", {Graph: _graph})
        for name, hint in WITHIN.items():
            convert_record(hint, getattr(found, name), f"the run's {name}")
        convert_fields(Settings, found.settings, "the run's settings", NAMED)
        _check(found)
        return found


class IntervalRecord(TypedDict):
    """An area and its interval."""

    estimate: float
    low: float
    high: float
    confidence: float


class OverlapRecord(TypedDict):
    """The overlap of circuits: by size, and its mean."""

    sizes: list[float | None]
    mean: float


class ExportedRecord(TypedDict):
    """Which method's circuits are written."""

    recipe: str
    parameters: str
    chosen_on: str


# What the mappings of a record hold, by benchmark and mostly by method.
WITHIN: Mapping[str, Any] = {
    "intervals": Mapping[str, Mapping[str, IntervalRecord]],
    "overlap": Mapping[str, Mapping[str, OverlapRecord]],
    "circuits": Mapping[str, ExportedRecord],
}


# A run may have used methods that only its author has: they are known by name.
NAMED: Decoders = {
    family: partial(record_name, family.__name__.lower())
    for family in (Scorer, Metric, Ablation, Faithfulness, Bootstrap)
}


def _check(run: RunRecord) -> None:
    """Refuse numbers that can't be, and intervals of other areas."""
    shares = [run.accuracy.top, run.accuracy.beats, run.sign_instability]
    for both in run.overlap.values():
        shares += [share for one in both.values() for share in (one["mean"], *one["sizes"]) if share is not None]
    if not all(0 <= share <= 1 for share in shares):
        raise InputError("the run's record has an accuracy, a sign instability or an overlap that is no share")
    if min(run.train.examples, run.test.examples) < 1 or not 0 <= run.edges_kept_by_bootstrap <= run.graph.n_edges:
        raise InputError("the run's record has numbers of examples or of edges that can't be")
    estimates = {b: {name: one["estimate"] for name, one in ours.items()} for b, ours in run.intervals.items()}
    if estimates != run.areas:
        raise InputError("the run's record has intervals of other areas")
    for ours in run.intervals.values():
        for one in ours.values():
            check_interval(one)


def check_interval(one: IntervalRecord) -> None:
    """Refuse an interval that doesn't hold its estimate."""
    if not one["low"] <= one["estimate"] <= one["high"] or not 0 < one["confidence"] < 1:
        raise InputError("an interval doesn't hold its estimate")


def _graph(record: Any) -> Graph:
    """A graph that is written with the number of its edges."""
    given = convert_record(Mapping[str, Any], record, "the run's graph")
    graph: Graph = convert_record(
        Graph, {name: value for name, value in given.items() if name != "edges"}, "the run's graph"
    )
    if type(given.get("edges")) is not int or given["edges"] != graph.n_edges:
        raise InputError(f"the run's graph has {graph.n_edges:,} edges, but its record says otherwise")
    return graph


def exported_record(found: Discovery, outcome: Outcome) -> dict[str, Any]:
    """Which method's circuits are written, and on which examples it was chosen, as plain data."""
    what = outcome.recipe.name if outcome.choices else outcome.recipe.combination
    chosen_on = outcome.chosen_on or found.test.split
    return {"recipe": what, "parameters": outcome.recipe.words, "chosen_on": chosen_on}


def _overlap(found: Discovery) -> dict[str, dict[str, Any]]:
    sizes = found.settings.sizes
    return {
        b.name: {
            recipe.name: {
                "sizes": [None if np.isnan(value) else float(value) for value in by_size],
                "mean": mean_overlap(by_size, sizes),
            }
            for recipe, by_size in both.items()
        }
        for b, both in found.overlap.items()
    }
