"""What a run records about the circuits of the chosen recipes: their overlap over resamples, their heads' attention."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ..core.scores import EdgeScores
from ..core.statistics import EdgeStatistics
from ..evaluate import Attention, Measure, record_attention, strongest_heads
from ..models import Model
from ..runtime.session import Session
from ..tasks import Task
from .outcome import Outcome, best_outcome, chosen_outcome, list_measures
from .recipe import GREEDY, PORTFOLIO
from .settings import Settings
from .stability import recipe_overlap

# Each resample copies the scores: larger ones than this many bytes are not resampled for the overlap.
MAX_OVERLAP_BYTES = 2_000_000_000
FloatArray = NDArray[np.float64]


def overlap_of_chosen(
    scores: EdgeScores, outcomes: Sequence[Outcome], settings: Settings, resamples: int, seed: int, session: Session
) -> dict[Measure, dict[str, FloatArray]]:
    """Return measure -> recipe name -> overlap [size] over resamples of train, of greedy and of the chosen recipe."""
    if not resamples or scores.n_examples < 2 or scores.values.nbytes > MAX_OVERLAP_BYTES:
        return {}
    return {
        measure: {
            recipe.name: recipe_overlap(scores, recipe, measure, settings, resamples, seed, session.store)
            for recipe in dict.fromkeys((GREEDY, _chosen(outcomes, measure).recipe))
            if recipe.learner is None and recipe.alias != PORTFOLIO  # these aren't selected from resampled scores
        }
        for measure in list_measures(outcomes)
    }


def attention_of_chosen(
    model: Model, test: Task, outcomes: Sequence[Outcome], statistics: EdgeStatistics, n_examples: int
) -> Attention | None:
    """Return the attention of heads that are in the most circuits of the chosen recipes, the strongest first.

    The examples go from the worst to the best of the first measure's chosen circuit.
    """
    if not n_examples:
        return None
    chosen = [_chosen(outcomes, measure) for measure in list_measures(outcomes)]
    n_circuits = np.zeros(model.graph.n_nodes)
    for outcome in chosen:
        n_circuits += np.sum([circuit.plain().node_mask for circuit in outcome.circuits], axis=0)
    heads = strongest_heads(model.graph, statistics.graph.plain_score(np.abs(statistics.mean)))
    heads = heads[np.argsort(-n_circuits[heads], kind="stable")]
    measure, curve = chosen[0].measure, chosen[0].curve
    by_example = curve.definition.compute(curve.values[chosen[0].default_size], curve.full, curve.empty)
    order = np.argsort(measure.better * measure.height(by_example), kind="stable")  # undefined ones come last
    order = order[: np.count_nonzero(~np.isnan(by_example))]
    spread = np.linspace(0, len(order) - 1, min(n_examples, len(order))).round().astype(int)
    return record_attention(model, test, order[np.unique(spread)].tolist(), heads.tolist())


def _chosen(outcomes: Sequence[Outcome], measure: Measure) -> Outcome:
    """Return the outcome that was chosen for a measure, or the only one."""
    return chosen_outcome(outcomes, measure) or best_outcome(outcomes, measure)
