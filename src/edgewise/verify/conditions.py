"""Robustness: a circuit and random circuits under other ablations, metrics, examples and lengths of prompts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.circuit import Circuit
from ..errors import InputError
from ..evaluate.ablations import ABLATIONS, Ablation
from ..evaluate.measures import MIB
from ..evaluate.run_circuits import evaluate_circuits, prepare_ablation
from ..models import Model
from ..runtime.session import Session
from ..tasks import Metric, Task
from ..tasks.metrics import METRICS
from .circuit_tests import Condition, distance
from .random_runs import Evaluate, run_until_farther
from .verification_plan import VerificationPlan

# Prompts of one length are a condition if there are at least this many.
MIN_PROMPTS = 10


def run_conditions(
    model: Model,
    task: Task,
    plan: VerificationPlan,
    metric: Metric,
    ablation: Ablation,
    prepared: Ablation,
    other_tasks: Mapping[str, Task],
    how: Mapping[str, Any],
    session: Session,
) -> Iterator[Condition]:
    """Yield a circuit under other conditions: each length of prompts, other ablations, other metrics, other examples.

    metric    that of `task`
    prepared  the ablation with what it needs of `task`
    how       further arguments of `evaluate_circuits`
    """
    # Prompts of one length are those of a few templates.
    lengths = np.array([example.length for example in task.examples])
    sizes, counts = np.unique(lengths, return_counts=True)
    same_length = {f"prompts of {n} tokens": np.flatnonzero(lengths == n) for n in sizes[counts >= MIN_PROMPTS]}
    everything, jobs = np.arange(len(task)), list[tuple[str, Task, NDArray[np.int64], Metric, Ablation]]()
    if len(sizes) > 1:
        jobs += [(name, task, rows, metric, prepared) for name, rows in same_length.items()]
    others = (kind() for name, kind in ABLATIONS.items() if name != ablation.name)
    jobs += [(f"ablation: {other.name}", task, everything, metric, other) for other in others]
    metrics: dict[str, Metric] = {}
    for kind in METRICS.values():
        with suppress(InputError):  # without incorrect answers, there are no differences
            usable = kind().for_task(task)
            metrics[usable.name] = usable
    metrics.pop(metric.name, None)
    jobs += [(f"metric: {name}", task, everything, each, prepared) for name, each in metrics.items()]
    jobs += [(f"examples: {n}", each, np.arange(len(each)), metric, ablation) for n, each in other_tasks.items()]
    random = plan.groups["random"]
    done, total = 0, (1 + len(random)) * sum(len(rows) for _, _, rows, _, _ in jobs)
    for name, examples, rows, each_metric, each_ablation in jobs:
        means = prepare_ablation(model, examples, each_ablation, **how, session=session)
        evaluate: Evaluate = partial(evaluate_circuits, model, examples, metric=each_metric, ablation=means, **how)
        part = session.as_part("robustness", done, total)
        yield _condition(name, evaluate, plan.circuit, random, rows, part)
        done += (1 + len(random)) * len(rows)
        session.report("robustness", done, total)


def _condition(
    name: str,
    evaluate: Evaluate,
    circuit: Circuit,
    random: Sequence[Circuit],
    rows: NDArray[np.int64],
    session: Session,
) -> Condition:
    """Return how often a circuit is closer to the model than random circuits under a condition."""
    ran = evaluate([circuit], rows=rows.tolist(), session=session)
    own, full, empty = ran.values[0], ran.full, ran.empty
    own_faithfulness = float(MIB.compute(own.mean(), full.mean(), empty.mean()))
    if np.isnan(own_faithfulness):
        return Condition(name, own_faithfulness, 0, len(random))
    after = session.as_part(name, len(rows))
    distances = run_until_farther(evaluate, own, full, empty, random, after, rows).distances
    wins = distance(own, full, float(full.mean() - empty.mean())) < distances
    return Condition(name, own_faithfulness, int(wins.sum()), len(random))
