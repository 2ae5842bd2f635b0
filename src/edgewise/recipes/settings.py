"""Settings of a run: everything but the recipes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from numbers import Number
from typing import Any

from ..core.statistics import FILTERS, Bootstrap
from ..errors import InputError, check_number, unknown_name
from ..evaluate import ABLATIONS, FAITHFULNESS, MIB, SIZES, Ablation, Faithfulness, Patching, RatioFaithfulness
from ..graph import LEVELS, BaseGraph, Graph, check_one_kind, graph_of_level
from ..io.records import Decoders, convert_record
from ..method import as_record, check_is, from_record
from ..models.memory import BUDGET, check_batch_size, parse_bytes
from ..score import SCORERS, EapIg, Scorer
from ..tasks import METRICS, Metric, Task, TaskMetric


@dataclass(frozen=True)
class Settings:
    """How to score, resample and evaluate. The defaults are the paper's, with MIB's faithfulness.

    metric              number per example; the default is the one that suits the task
    bootstrap           the bootstrap of the reported statistics, and of the recipes that filter by one
    sizes               shares of the edges, increasing
    fill, nested        whether solvers fill up circuits after pruning, and whether larger circuits contain the smaller
                        ones
    pnr_after_absolute  read signs after taking absolute values, so that every edge counts as positive. The paper's
                        public script does this; see `as_published`.
    positions           score, select and evaluate (edge, span) pairs instead of edges; needs a task with spans
    level               what circuits consist of: 'edge', 'node' or 'neuron'
    batch_size, memory  examples in a batch, or bytes that a batch may take (a number, or text such as '2GB'). Changing
                        the batch size changes rounding.
    """

    scorer: Scorer = field(default_factory=EapIg)
    metric: Metric = field(default_factory=TaskMetric)
    ablation: Ablation = field(default_factory=Patching)
    faithfulness: Faithfulness = MIB
    bootstrap: Bootstrap = field(default_factory=Bootstrap)
    sizes: tuple[float, ...] = SIZES
    fill: bool = False
    nested: bool = False
    pnr_after_absolute: bool = False
    positions: bool = False
    level: str = "edge"
    batch_size: int | None = None
    memory: int = BUDGET

    def __post_init__(self) -> None:
        for kind, family, method in (
            ("scorer", Scorer, self.scorer),
            ("metric", Metric, self.metric),
            ("ablation", Ablation, self.ablation),
            ("definition of faithfulness", Faithfulness, self.faithfulness),
            ("bootstrap", Bootstrap, self.bootstrap),
        ):
            check_is(kind, family, method)
        if isinstance(self.sizes, str | Number):
            raise InputError(f"sizes are two or more shares of the edges, such as (0.01, 0.1, 1.0), not {self.sizes!r}")
        sizes = tuple(self.sizes)
        for size in sizes:
            check_number("a size", size)
        sizes = tuple(map(float, sizes))
        if len(sizes) < 2 or not (sizes[0] >= 0 and sizes[-1] <= 1) or sorted(set(sizes)) != list(sizes):
            raise InputError(f"sizes are two or more shares of the edges, increasing, from 0 to 1, not {self.sizes}")
        if self.level not in LEVELS:
            raise unknown_name("level", str(self.level), LEVELS)
        check_one_kind(self.positions, self.level)
        if self.batch_size is not None:
            check_batch_size(self.batch_size)
        memory = parse_bytes(self.memory)
        object.__setattr__(self, "sizes", sizes)
        object.__setattr__(self, "memory", memory)
        self.scorer.check(self.metric)

    @property
    def can_learn(self) -> bool:
        """Whether rankings can be learned. The paper's public script learns none."""
        is_learnable = self.metric.differentiable and self.level != "neuron"
        return is_learnable and published_words(self) is None

    def graph(self, plain: Graph, task: Task) -> BaseGraph:
        """Return the graph that circuits are selected from, for a model's graph and a task."""
        return task.span_graph(plain) if self.positions else graph_of_level(plain, self.level)

    def record(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return as_record(self)

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Settings:
        """Return the settings that `record` wrote. Custom methods that aren't registered become placeholders."""
        decoders: Decoders = {
            Scorer: lambda value: from_record("scorer", SCORERS, value, Scorer),
            Metric: lambda value: from_record("metric", METRICS, value, Metric),
            Ablation: lambda value: from_record("ablation", ABLATIONS, value, Ablation),
            Faithfulness: lambda value: from_record("faithfulness definition", FAITHFULNESS, value, Faithfulness),
            Bootstrap: lambda value: from_record("filter", FILTERS, value),
        }
        return convert_record(cls, record, "settings", decoders)


DEFAULTS = Settings()
# Minutes for learning rankings, for both measures together.
LEARN_MINUTES = 3.0
# What the paper's public script does differently from the paper's text and from the defaults here.
PUBLISHED: Mapping[str, str] = {
    "faithfulness": "faithfulness is the ratio m(circuit) / m(model), not MIB's, which is 0 for the empty circuit",
    "sizes": "size 0 joins the ten sizes of the curve",
    "drop_failed": "edges that fail the bootstrap filter are lost, so bootstrapped circuits stop growing",
    "pnr_after_absolute": "PNR reads signs after absolute values: every edge counts as positive, so it binds nothing",
    "filter_on_test": "the bootstrap resamples the evaluated split, not train",
}


def as_published(settings: Settings) -> Settings:
    """Return the settings with the behaviours of the paper's public script, which `PUBLISHED` describes."""
    return replace(
        settings,
        faithfulness=RatioFaithfulness(),
        sizes=tuple(dict.fromkeys((0.0, *settings.sizes))),
        bootstrap=replace(settings.bootstrap, drop_failed=True, on_evaluated=True),
        pnr_after_absolute=True,
    )


def published_words(settings: Settings) -> dict[str, str] | None:
    """Return what the paper's public script does differently, if these are its settings. None for others."""
    return dict(PUBLISHED) if settings == as_published(settings) else None
