"""The base class of learners, what a learner gets and what it tells about its cost."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from ..core.circuit import Circuit
from ..core.ranking import Ranking
from ..core.statistics import summarise
from ..errors import InputError
from ..evaluate import Ablation, Measure
from ..graph import BaseGraph, graph_of_level
from ..method import TitledMethod
from ..models.memory import Need
from ..score import Scorer
from ..tasks import Metric, Task

if TYPE_CHECKING:
    from ..evaluate.run_circuits import Evaluation
    from ..models import Model
    from ..runtime.session import Session

L = TypeVar("L", bound="Learner")
# A limit for parameters from files: days of work.
MOST_STEPS = 1_000_000


@dataclass(frozen=True, eq=False)
class LearningProblem:
    """What a ranking is learned from.

    model, task  the model, and the examples to learn from
    metric       number per example that circuits should keep
    ablation     what replaces the edges outside a circuit
    sizes        circuit sizes (shares of the edges) over which the measure integrates
    memory       bytes that a batch may use beyond the model
    validation   examples that parameters are chosen on. None: learners that need them hold out examples of the task.
    level        what the ranking is of: 'edge' or 'node'
    positions    whether it is of (edge, span) pairs instead of edges
    start        ranking that a learner with `reads_start` starts from instead of scores, such as that of another task
    """

    model: Model
    task: Task
    metric: Metric
    ablation: Ablation
    sizes: tuple[float, ...]
    memory: int
    validation: Task | None = None
    level: str = "edge"
    start: Ranking | None = None
    positions: bool = False

    @property
    def graph(self) -> BaseGraph:
        """What the ranking is of."""
        plain = self.model.graph
        return self.task.span_graph(plain) if self.positions else graph_of_level(plain, self.level)

    def __post_init__(self) -> None:
        object.__setattr__(self, "metric", self.metric.for_task(self.task))
        if self.start is not None and self.start.graph != self.graph:
            raise InputError(
                f"the ranking to start from is of {self.start.graph}, but the model has {self.graph}; give one of the "
                "same architecture"
            )

    def rank_by(self, scorer: Scorer, session: Session) -> Ranking:
        """Return the ranking of the mean scores on the task."""
        from ..score.run_scorer import score_edges

        scores = score_edges(
            self.model, self.task, scorer, self.metric,
            positions=self.positions, level=self.level, memory=self.memory, session=session,
        )  # fmt: skip
        return summarise(scores).ranking

    def evaluate(self, circuits: Sequence[Circuit], session: Session, task: Task | None = None) -> Evaluation:
        """Run circuits on the task, or on other examples, with the metric and the ablation."""
        from ..evaluate.run_circuits import evaluate_circuits

        examples = self.task if task is None else task
        return evaluate_circuits(
            self.model, examples, circuits, self.metric, self.ablation, memory=self.memory, session=session
        )


@dataclass(frozen=True, eq=False)
class LearningCost:
    """The cost of learning a ranking: `steps` times `job` on `batch` examples, which take the memory `need`.

    part  how many examples run at once, at most; None for as many as fit into memory
    """

    steps: int
    batch: int
    need: Need
    job: Callable[..., Any]
    part: int | None = None


class Learner(TitledMethod, ABC):
    """A method that learns a ranking. Derive from it for a custom learner.

    A learner is a frozen dataclass. Its field `measure` says which measure (CPR or CMD) it learns for. Import torch
    inside the methods, so that the command line can list learners without waiting for torch.
    """

    measure: Measure
    # Whether `learn` starts from `LearningProblem.start`, if there is one.
    reads_start: ClassVar[bool] = False

    @abstractmethod
    def learn(self, problem: LearningProblem, session: Session) -> Ranking:
        """Return the learned ranking. `origin` may hold details, such as losses and seconds."""

    @abstractmethod
    def cost(self, problem: LearningProblem) -> LearningCost:
        """Return what `learn` will cost, without running the model."""

    def check(self, metric: Metric) -> None:
        """Raise InputError if nothing can be learned with a metric."""
        if not metric.differentiable:
            raise InputError(
                f"metric {metric.name!r} has no gradient, so nothing can be learned with it; choose another"
            )

    def check_kind(self, positions: bool, level: str) -> None:
        """Raise InputError if it can't rank (edge, span) pairs, or a level."""
        if level == "neuron":
            raise InputError("rankings are learned for edges and nodes, not for neurons; score neurons instead")

    def for_measure(self: L, measure: Measure) -> L:
        """Return the same learner for another measure."""
        return replace(self, measure=measure)  # type: ignore[type-var]

    @classmethod
    def published(cls: type[L], **options: Any) -> L:
        """Return the learner with the settings of its publication, except for the given options."""
        raise InputError(f"learner {cls.name!r} has no published settings; its defaults are its settings")


def check_choice(parameter: str, value: object, choices: Collection[str]) -> None:
    """Raise InputError if a parameter has none of its values."""
    if value not in choices:
        raise InputError(f"{parameter} must be {' or '.join(map(repr, choices))}, not {value!r}")
