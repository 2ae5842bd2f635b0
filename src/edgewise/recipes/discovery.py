"""The result of a run: the outcomes of recipes, how one was tuned, and all together. Needs no torch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from ..core.circuit import Circuit
from ..core.notebook import Frame, data_frame, from_report, html_table
from ..core.ranking import Ranking
from ..core.scores import EdgeScores
from ..core.statistics import EdgeStatistics
from ..errors import InputError
from ..evaluate import MEASURES, Attention, Comparison, Curve, Measure, Resampled, resample
from ..io.records import Decoders, convert_record
from ..learn import Learner
from ..method import as_known, from_record
from ..select import Selection
from .recipe import GREEDY, TUNED, Recipe
from .run_info import Prompt, RunInfo
from .settings import Settings

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame


FloatArray = NDArray[np.float64]
RULE = "the best area of the curve over all held-out examples; ties go to the first, which is the simpler"


@dataclass(frozen=True, eq=False)
class Outcome:
    """The circuits of one recipe for one measure, one per size, and their curve.

    selections  one per size. Read from a folder, circuits are loaded when they are accessed.
    rankings    what the circuits were selected from, one per size. Empty if the outcome was read from a folder.
    chosen_on   the split whose examples chose this recipe among others: that of a validation task, that of train if
                the recipe was tuned, or the evaluated split itself. Empty if the recipe wasn't chosen.
    choices     in a portfolio, the name of the recipe that each size takes; empty in other outcomes
    validation  faithfulness [size] on validation examples, which choose the default size. Empty without such examples
    """

    measure: Measure
    recipe: Recipe
    selections: Sequence[Selection]
    curve: Curve
    rankings: tuple[Ranking, ...] = ()
    chosen_on: str = ""
    choices: tuple[str, ...] = ()
    validation: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if len(self.validation) not in (0, len(self.curve.shares)):
            raise InputError(f"{len(self.curve.shares)} sizes can't have {len(self.validation)} values on validation")

    @property
    def name(self) -> str:
        return self.recipe.name

    @property
    def circuits(self) -> tuple[Circuit, ...]:
        return tuple(selection.circuit for selection in self.selections)

    @cached_property
    def area(self) -> float:
        """CPR, CMD or the area of a custom measure."""
        return self.curve.area(self.measure)

    @cached_property
    def resampled(self) -> Resampled:
        """The area on bootstrap resamples of the evaluated examples: its interval, and paired comparisons."""
        return resample(self.curve, self.measure)

    @property
    def default_size(self) -> int:
        """Index of the size to show by default: the smallest that is faithful by the measure; see `sized_on`."""
        return self.curve.default_size(self.measure, self.sizing_faithfulness)

    @property
    def sizing_faithfulness(self) -> NDArray[np.float64]:
        """Faithfulness [size] on the examples that choose the default size."""
        return np.array(self.validation) if self.validation else self.curve.faithfulness

    @property
    def sized_on(self) -> str:
        """The examples that choose the default size, in words: those of validation, else the evaluated ones."""
        return "validation" if self.validation else "the evaluated examples"

    def circuit(self, size: float | None = None) -> Circuit:
        """Return the circuit of a size.

        Parameters
        ----------
        size
            A float is a share of the edges, such as 0.05; an int is the number of edges that was asked for. By default
            the smallest that is faithful by the measure, on validation if there was such a task, else on test.

        Examples
        --------
        >>> discovery.best("CMD").circuit(0.05).edges
        """
        index = self.default_size if size is None else self.curve.index_of(size)
        circuit: Circuit = self.selections[index].circuit
        return circuit

    def to_frame(self) -> DataFrame:
        """Return a pandas DataFrame with a row per size: measure, recipe, and the columns of `Curve.to_frame`."""
        n_sizes = len(self.curve.shares)
        frame = self.curve.to_frame()
        return data_frame({"measure": [self.measure.name] * n_sizes, "recipe": [self.name] * n_sizes} | dict(frame))

    def plot(self) -> Figure:
        """Return a matplotlib figure of faithfulness by size, with the area that the measure integrates."""
        figure: Figure = from_report("figures", "plot_outcome")(self)
        return figure

    def __repr__(self) -> str:
        chosen = f", chosen on {self.chosen_on}" if self.chosen_on else ""
        return f"Outcome({self.measure.name} {self.name}: {self.area:.4f}{chosen})"


def list_measures(outcomes: Iterable[Outcome]) -> tuple[Measure, ...]:
    """Return the measures that have outcomes."""
    return tuple(dict.fromkeys(outcome.measure for outcome in outcomes))


def best_outcome(outcomes: Iterable[Outcome], measure: Measure) -> Outcome:
    """Return the outcome of the best area of a measure on the evaluated examples. Ties go to the first."""
    candidates = (outcome for outcome in outcomes if outcome.measure == measure)
    return max(candidates, key=lambda outcome: measure.better * outcome.area)


def chosen_outcome(outcomes: Iterable[Outcome], measure: Measure) -> Outcome | None:
    """Return the outcome that was chosen for a measure by `choose_outcomes`; None if none was.

    If there is a portfolio, it is returned; it is stored last.
    """
    chosen = [outcome for outcome in outcomes if outcome.measure == measure and outcome.chosen_on]
    return chosen[-1] if chosen else None


class TuningRecord(TypedDict):
    """What `Tuning.record` writes."""

    folds: int
    examples: int
    rule: str
    chosen: Mapping[str, Mapping[str, Any]]
    candidates: Mapping[str, Sequence[Mapping[str, Any]]]


@dataclass(frozen=True)
class Candidate:
    """A recipe and its area on the held-out examples: of all folds together, and of each (None if undefined there)."""

    recipe: Recipe
    area: float
    folds: tuple[float | None, ...]

    def record(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {"recipe": self.recipe.name, **self.recipe.record(), "area": self.area, "folds": list(self.folds)}


@dataclass(frozen=True)
class Tuning:
    """The result of a cross-validation.

    candidates  measure -> candidates. Ties go to the first.
    lead        measure -> the best candidate's area minus the baseline's, paired over the held-out examples. The best
                was chosen on these examples, so this is slightly optimistic.
    """

    examples: int
    n_folds: int
    candidates: Mapping[Measure, tuple[Candidate, ...]]
    lead: Mapping[Measure, Comparison]

    def best(self, measure: Measure) -> Candidate:
        """Return the candidate of the best area."""
        return max(self.candidates[measure], key=lambda candidate: measure.better * candidate.area)

    def baseline(self, measure: Measure) -> Candidate:
        """Return the candidate that others are compared with: greedy, or else the first."""
        return self.candidates[measure][find_baseline([candidate.recipe for candidate in self.candidates[measure]])]

    @property
    def chosen(self) -> dict[Measure, tuple[Recipe, ...]]:
        """Measure -> the best candidate's recipe, with the alias 'Tuned'."""
        return {measure: (replace(self.best(measure).recipe, alias=TUNED),) for measure in self.candidates}

    def record(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        chosen = {}
        for measure in self.candidates:
            lead, baseline = self.lead[measure].record(), self.baseline(measure).recipe
            against = {"against_greedy": lead} if baseline == GREEDY else {"against_first": lead}
            named = {} if baseline == GREEDY else {"baseline": baseline.name}
            chosen[measure.name] = self.best(measure).record() | against | named
        candidates = {m.name: [candidate.record() for candidate in listed] for m, listed in self.candidates.items()}
        about = {"folds": self.n_folds, "examples": self.examples, "rule": RULE}
        return about | {"chosen": chosen, "candidates": candidates}

    @classmethod
    def from_record(cls, record: Any) -> Tuning:
        """Return the tuning that `record` wrote."""
        fields: TuningRecord = convert_record(TuningRecord, record, "tuning")
        candidates: dict[Measure, tuple[Candidate, ...]] = {}
        lead: dict[Measure, Comparison] = {}
        for name, listed in fields["candidates"].items():
            measure = from_record("measure", MEASURES, name, Measure)
            decoders: Decoders = {Recipe: Recipe.from_record, Measure: lambda _, measure=measure: measure}  # type: ignore[misc]
            candidates[measure] = ()
            for candidate in listed:
                recipe = {key: value for key, value in candidate.items() if key not in ("recipe", "area", "folds")}
                parts = {key: candidate[key] for key in ("area", "folds") if key in candidate} | {"recipe": recipe}
                candidates[measure] += (convert_record(Candidate, parts, f"tuning.{name}", decoders),)
            chosen = fields["chosen"].get(name, {})
            compared = chosen.get("against_greedy", chosen.get("against_first"))
            compared = {"measure": name, **compared} if isinstance(compared, Mapping) else compared
            lead[measure] = convert_record(Comparison, compared, f"tuning.chosen.{name}", decoders)
        if not candidates or not all(candidates.values()):
            raise InputError("tuning has no candidates")
        return cls(fields["examples"], fields["folds"], candidates, lead)

    def __repr__(self) -> str:
        best = ", ".join(f"{m.name} {self.best(m).recipe.name} {self.best(m).area:.4f}" for m in self.candidates)
        return f"Tuning({best}; {self.examples:,} examples in {self.n_folds} folds)"


def find_baseline(recipes: Sequence[Recipe]) -> int:
    """Return the index of greedy, or else of the first."""
    return recipes.index(GREEDY) if GREEDY in recipes else 0


@dataclass(frozen=True, eq=False)
class Discovery:
    """The result of a run, as `discover` returns it and as `read_result` reads it from a folder.

    run          facts about the run: model, examples, seed, accuracy, seconds, versions
    statistics   statistics of every edge, by the bootstrap of the settings
    outcomes     one per measure and recipe
    learned      learner -> ranking, for recipes that have a learner
    tuning       how one more recipe was chosen by cross-validation on train. None without tuning.
    overlap      measure -> recipe name -> overlap of circuits over resamples of train, [size]. NaN where they are
                 empty.
    prompts      the first of the evaluated examples, as text
    attention    attention of the heads in chosen circuits, on a few evaluated examples. None if it wasn't recorded.
    load_scores  returns the scores of train. They are large, so those of a folder are read when `scores` is first used.
    """

    run: RunInfo
    settings: Settings
    statistics: EdgeStatistics
    outcomes: tuple[Outcome, ...]
    learned: Mapping[Learner, Ranking]
    tuning: Tuning | None
    overlap: Mapping[Measure, Mapping[str, FloatArray]]
    prompts: tuple[Prompt, ...]
    attention: Attention | None
    load_scores: Callable[[], EdgeScores]

    @cached_property
    def scores(self) -> EdgeScores:
        """The scores of train, [example, edge]."""
        return self.load_scores()

    @cached_property
    def mean_scores(self) -> FloatArray:
        """[edge] the mean over the examples of train, which circuits are selected by without a filter."""
        return self.scores.mean()

    @property
    def measures(self) -> tuple[Measure, ...]:
        """The measures that have outcomes."""
        return list_measures(self.outcomes)

    def of(self, measure: Measure | str) -> tuple[Outcome, ...]:
        """Return the outcomes of one measure, which may be given by its name."""
        by_name = {known.name: known for known in self.measures}
        measure = by_name[as_known("measure", measure, by_name)] if isinstance(measure, str) else measure
        outcomes = tuple(outcome for outcome in self.outcomes if outcome.measure == measure)
        if not outcomes:
            raise InputError(f"no recipe was tried for {measure!r}; this run has {', '.join(by_name)}")
        return outcomes

    def best(self, measure: Measure | str, *, on_test: bool = False) -> Outcome:
        """Return the outcome of the recipe that was chosen for a measure. Its `chosen_on` is the split that chose it.

        Recipes are chosen on the validation task of `discover`, or by tuning on train. Only without both, the evaluated
        examples choose, so that the area is a little optimistic: `chosen_on` is then the evaluated split.

        Parameters
        ----------
        measure
            The measure, or its name: 'CMD', 'CPR'.
        on_test
            Return the outcome of the best area on the evaluated examples instead. Ties go to the first.

        Examples
        --------
        >>> edgewise.discover(model, train, test, validation=validation).best("CMD").chosen_on
        'validation'
        """
        outcomes = self.of(measure)
        chosen = None if on_test else chosen_outcome(outcomes, outcomes[0].measure)
        if chosen is not None or len(outcomes) == 1:
            return chosen or outcomes[0]
        return replace(best_outcome(outcomes, outcomes[0].measure), chosen_on=self.run.test.split)

    def choice(self, measure: Measure | str) -> str:
        """Return in words how the recipe of `best` was chosen."""
        split = self.best(measure).chosen_on
        if not split:
            return "the only recipe"
        return f"chosen on {split}" + ", the evaluated examples" * (split == self.run.test.split)

    def to_frame(self) -> DataFrame:
        """Return a pandas DataFrame with a row per outcome: measure, recipe, parameters, area, low, high, chosen_on.

        `low` and `high` are the interval of the area over resamples of the evaluated examples.
        """
        intervals = [outcome.resampled.interval() for outcome in self.outcomes]
        return data_frame({
            "measure": [outcome.measure.name for outcome in self.outcomes],
            "recipe": [outcome.name for outcome in self.outcomes],
            "parameters": [outcome.recipe.parameter_text for outcome in self.outcomes],
            "area": [outcome.area for outcome in self.outcomes],
            "low": [interval.low for interval in intervals],
            "high": [interval.high for interval in intervals],
            "chosen_on": [outcome.chosen_on for outcome in self.outcomes],
        })  # fmt: skip

    def plot(self, figure: str = "faithfulness") -> Figure:
        """Return a matplotlib figure: 'faithfulness', 'differences', 'circuit' or 'scores', as in a result folder."""
        drawn: Figure = from_report("figures", "plot_discovery")(self, figure)
        return drawn

    def view(self, height: int = 720) -> Frame:
        """Return the viewer page as a value that a notebook shows in a frame of this height. It opens no browser."""
        page: str = from_report("write_result", "viewer_page")(self)
        return Frame(page, height)

    def _repr_html_(self) -> str:
        rows = [(o.measure.name, o.name, o.area, o.chosen_on) for o in self.outcomes]
        return html_table(repr(self), ("measure", "recipe", "area", "chosen on"), rows, len(rows))

    def __repr__(self) -> str:
        names = ", ".join(f"{m.name} of {len(self.of(m))} recipes" for m in self.measures)
        return f"Discovery({self.run.model!r} on {self.run.task!r}: {names})"
