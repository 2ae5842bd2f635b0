"""The result of a run. Needs no torch, so that reading a result folder is fast."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..core.notebook import Frame, data_frame, from_report, html_table
from ..core.ranking import Ranking
from ..core.scores import EdgeScores
from ..core.statistics import EdgeStatistics
from ..errors import InputError
from ..evaluate import Attention, Measure
from ..learn import Learner
from ..method import as_known
from .outcome import Outcome, best_outcome, chosen_outcome, list_measures
from .run_info import Prompt, RunInfo
from .settings import Settings
from .tuning_result import Tuning

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Discovery:
    """The result of a run, as `discover` returns it and as `read_result` reads it from a folder.

    run          facts about the run: model, examples, seed, accuracy, seconds, versions
    statistics   of every edge, by the bootstrap of the settings
    outcomes     one per measure and recipe
    learned      learner -> ranking, for recipes that have a learner
    tuning       how one more recipe was chosen by cross-validation on train. None without tuning.
    overlap      measure -> recipe name -> overlap of circuits over resamples of train, [size]. NaN where they are
                 empty.
    prompts      the first of the evaluated examples, as text
    attention    of the heads in chosen circuits, on a few of the evaluated examples. None if there is none.
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
