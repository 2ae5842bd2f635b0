"""What a run's figures and its page are made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from ..circuit import Circuit
from ..evaluate import FAITHFUL, USUAL, Benchmark, Comparison, resample
from ..methods import record_name
from ..results import Result, ResultRow, read_circuits, read_result, read_statistics
from ..scores import EdgeScores
from ..statistics import EdgeStatistics
from ..study import GREEDY
from .numbers import percent
from .tables import short
from .words import drawn

# More methods can't be told apart.
MOST_METHODS = 40
# The size of `Curve.telling`, in words.
TELLING = f"the smallest size that reaches faithfulness {FAITHFUL:g}, else {percent(USUAL)} % of the edges"


@dataclass(frozen=True, eq=False)
class Findings:
    """A run's curves, what it knows of every edge, and its circuits: (benchmark, method) -> one per size.

    Means are those over the training examples, which circuits are selected by; intervals are as wide as the
    bootstrap's, around these means rather than around those over its few resamples.
    """

    result: Result
    statistics: EdgeStatistics
    circuits: Mapping[tuple[Benchmark, str], tuple[Circuit, ...]]

    @classmethod
    def read(cls, folder: str | Path) -> Findings:
        """Those of a result folder."""
        result = read_result(folder)
        known, mean = read_statistics(folder, result), EdgeScores.load(folder).mean()
        known = replace(known, mean=mean, low=mean + known.low - known.mean, high=mean + known.high - known.mean)
        return cls(result, known, read_circuits(folder, result))

    @property
    def title(self) -> str:
        """Which model does which task, scored how."""
        run = self.result.run
        how = (record_name(name, run.settings[name]) for name in ("scorer", "ablation"))
        return "  ·  ".join(drawn(name) for name in (short(run.model), short(run.task), *how))

    def telling(self, benchmark: Benchmark) -> tuple[ResultRow, int]:
        """What to look at first: the exported row, and the place of the size in it that `TELLING` names."""
        row = self.result.exported(benchmark)
        return row, row.curve.telling

    def reference(self, benchmark: Benchmark) -> ResultRow:
        """The row that others are compared with: greedy, or the best if greedy wasn't tried."""
        rows = self.result.of(benchmark)
        return next((row for row in rows if row.name == GREEDY.name), self.result.best(benchmark))

    def rows(self, benchmark: Benchmark) -> list[ResultRow]:
        """The rows to show, the best first; of very many the best, the exported one and the reference."""
        ordered = sorted(self.result.of(benchmark), key=lambda row: -benchmark.better * row.area)
        always = (self.result.exported(benchmark), self.reference(benchmark))
        return [row for at, row in enumerate(ordered) if at < MOST_METHODS or row in always]

    @cached_property
    def differences(self) -> Mapping[Benchmark, Mapping[str, Comparison]]:
        """Benchmark -> method -> its area less that of the reference, paired over the examples."""
        found = {}
        for benchmark in self.result.benchmarks:
            reference = self.reference(benchmark)
            other = resample(reference.curve, benchmark)
            found[benchmark] = {
                row.name: resample(row.curve, benchmark).less(other)
                for row in self.rows(benchmark)
                if row is not reference
            }
        return found

    def __repr__(self) -> str:
        return f"Findings({self.result!r})"


def left_out(found: Findings) -> str:
    """What is to be said of methods that aren't shown; empty if all are."""
    most = max(len(found.result.of(b)) for b in found.result.benchmarks)
    return f" Of {most} methods the best {MOST_METHODS} are shown." if most > MOST_METHODS else ""
