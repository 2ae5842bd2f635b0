"""What figures and the viewer show of a run first: the recipes, what they are compared with, and one circuit."""

from __future__ import annotations

from dataclasses import replace

from ..core.statistics import EdgeStatistics
from ..evaluate import Measure
from ..recipes.discovery import Discovery, Outcome, best_outcome
from ..recipes.recipe import GREEDY
from .formatting import short_name, shorten

# Characters of a text that says how a recipe was chosen. It has the name of a split, which may be long.
MAX_CHOICE = 60


def choices(discovery: Discovery) -> str:
    """Return in words how the recipe of each measure was chosen: `CMD: chosen on validation; ...`."""
    words = {m.name: shorten(discovery.choice(m), MAX_CHOICE) for m in discovery.measures}
    return "; ".join(f"{shorten(name)}: {how}" for name, how in words.items())


def run_title(discovery: Discovery) -> str:
    """Return model, task, scorer and ablation in one line."""
    run, settings = discovery.run, discovery.settings
    names = (short_name(run.model), short_name(run.task), settings.scorer.name, settings.ablation.name)
    return "  ·  ".join(shorten(name) for name in names)


def run_facts(discovery: Discovery) -> dict[str, str]:
    """Return what a run did, as name -> text."""
    run, settings = discovery.run, discovery.settings
    return {
        "model": f"{short_name(run.model)}, {run.graph}, {run.graph.count(run.graph.n_edges)}",
        "task": f"{short_name(run.task)}, evaluated on {run.test.examples:,} examples of {run.test.split}",
        "scored by": f"{settings.scorer.name} on {run.train.examples:,} examples of {run.train.split}",
        "exported recipes": choices(discovery),
        "metric": settings.metric.name,
        "ablation": settings.ablation.name,
        "faithfulness": settings.faithfulness.summary,
        "accuracy of the model": f"{run.accuracy.top:.1%}",
        f"{run.graph.units} whose sign is unstable": f"{discovery.statistics.sign_instability:.1%}",
    }


def centred_statistics(discovery: Discovery) -> EdgeStatistics:
    """Return the statistics of edges around their mean scores over the training examples.

    Circuits are selected by these means. Intervals are as wide as the bootstrap's, but around these means rather than
    around the means of its few resamples.
    """
    statistics, mean = discovery.statistics, discovery.mean_scores
    low, high = mean + statistics.low - statistics.mean, mean + statistics.high - statistics.mean
    return replace(statistics, mean=mean, low=low, high=high)


def reference_outcome(discovery: Discovery, measure: Measure) -> Outcome:
    """Return the outcome to compare others with: greedy's, or the best if greedy was not tried."""
    outcomes = discovery.of(measure)
    return next((outcome for outcome in outcomes if outcome.name == GREEDY.name), best_outcome(outcomes, measure))


def ordered_outcomes(discovery: Discovery, measure: Measure) -> list[Outcome]:
    """Return the outcomes of a measure, the best first."""
    return sorted(discovery.of(measure), key=lambda outcome: -measure.better * outcome.area)
