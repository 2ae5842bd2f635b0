"""What a run's figures and its page are made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from ..core.circuit import Circuit
from ..core.statistics import EdgeStatistics
from ..evaluate import DEFAULT_SHARE, FAITHFUL_ENOUGH, Comparison, Measure
from ..pipeline import Discovery
from ..recipes.outcome import Outcome
from ..recipes.recipe import GREEDY
from ..results import read_result
from .formatting import format_percent, short_name, shorten

# More methods can't be told apart.
MOST_METHODS = 40
# The size of `Curve.default_size`, in words.
TELLING = (
    f"the smallest size that reaches faithfulness {FAITHFUL_ENOUGH:g}, else {format_percent(DEFAULT_SHARE)} % "
    "of the edges"
)


@dataclass(frozen=True, eq=False)
class Findings:
    """A run's curves, what it knows of every edge, and its circuits: (benchmark, method) -> one per size.

    Means are those over the training examples, which circuits are selected by; intervals are as wide as the
    bootstrap's, around these means rather than around those over its few resamples.
    """

    result: Discovery

    @classmethod
    def read(cls, folder: str | Path) -> Findings:
        """Those of a result folder."""
        return cls(read_result(folder))

    @cached_property
    def statistics(self) -> EdgeStatistics:
        """Of every edge, around the means over the training examples."""
        known, mean = self.result.statistics, self.result.mean_scores
        return replace(known, mean=mean, low=mean + known.low - known.mean, high=mean + known.high - known.mean)

    @cached_property
    def circuits(self) -> Mapping[tuple[Measure, str], tuple[Circuit, ...]]:
        """(measure, recipe) -> one circuit per size."""
        return {(outcome.measure, outcome.name): outcome.circuits for outcome in self.result.outcomes}

    @property
    def title(self) -> str:
        """Which model does which task, scored how."""
        run, settings = self.result.run, self.result.settings
        how = (settings.scorer.name, settings.ablation.name)
        return "  ·  ".join(shorten(name) for name in (short_name(run.model), short_name(run.task), *how))

    def telling(self, measure: Measure) -> tuple[Outcome, int]:
        """What to look at first: the exported row, and the place of the size in it that `TELLING` names."""
        row = self.result.exported(measure)
        return row, row.curve.default_size

    def reference(self, measure: Measure) -> Outcome:
        """The row that others are compared with: greedy, or the best if greedy wasn't tried."""
        rows = self.result.of(measure)
        return next((row for row in rows if row.name == GREEDY.name), self.result.best(measure))

    def rows(self, measure: Measure) -> list[Outcome]:
        """The rows to show, the best first; of very many the best, the exported one and the reference."""
        ordered = sorted(self.result.of(measure), key=lambda row: -measure.better * row.area)
        always = (self.result.exported(measure), self.reference(measure))
        return [row for at, row in enumerate(ordered) if at < MOST_METHODS or row in always]

    @cached_property
    def differences(self) -> Mapping[Measure, Mapping[str, Comparison]]:
        """Benchmark -> method -> its area less that of the reference, paired over the examples."""
        found = {}
        for measure in self.result.measures:
            reference = self.reference(measure)
            found[measure] = {
                row.name: row.resampled.minus(reference.resampled)
                for row in self.rows(measure)
                if row is not reference
            }
        return found

    def __repr__(self) -> str:
        return f"Findings({self.result!r})"


def left_out(found: Findings) -> str:
    """What is to be said of methods that aren't shown; empty if all are."""
    most = max(len(found.result.of(b)) for b in found.result.measures)
    return f" Of {most} methods the best {MOST_METHODS} are shown." if most > MOST_METHODS else ""
