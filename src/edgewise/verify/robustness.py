"""Robustness: is the circuit still better than random circuits under other ablations, metrics and examples?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..core.circuit import Circuit
from ..errors import InputError
from ..evaluate.ablations import ABLATIONS
from ..evaluate.faithfulness import MIB
from ..evaluate.run_circuits import Evaluation, evaluate_circuits
from ..models import Model
from ..runtime.session import Session
from ..tasks import Metric, Task
from ..tasks.metrics import METRICS
from .comparisons import distance
from .exact_tests import binomial_at_least, draws_needed, holm
from .verification import CircuitTest, VerifySettings, judge

# Prompts of one length are a condition if there are at least this many.
MIN_PROMPTS = 10


@dataclass(frozen=True)
class Condition:
    """A circuit under one condition.

    name          such as 'ablation: zero'
    faithfulness  of the circuit; NaN if the model and the empty circuit have the same metric
    wins, draws   how many of the random circuits it beats
    """

    name: str
    faithfulness: float
    wins: int
    draws: int


def robustness(conditions: Sequence[Condition], settings: VerifySettings) -> CircuitTest:
    """Test sufficiency under every condition, corrected for their number.

    Conditions without faithfulness are skipped; at least one has it. The circuit passes if it is sufficient under every
    condition. The detail `conditions` has a row for each.
    """
    skipped = [condition.name for condition in conditions if np.isnan(condition.faithfulness)]
    conditions = [condition for condition in conditions if condition.name not in skipped]
    corrected = holm([binomial_at_least(c.wins, c.draws, settings.quantile) for c in conditions])
    is_met = corrected <= settings.alpha
    needed = draws_needed(settings.quantile, settings.alpha, len(conditions))
    draws = min(condition.draws for condition in conditions)
    verdict, advice = judge(bool(is_met.all()), draws, needed, "random circuits")
    rows = [
        {"condition": c.name, "faithfulness": c.faithfulness, "share": c.wins / c.draws, "p": p, "passes": bool(met)}
        for c, p, met in zip(conditions, corrected.tolist(), is_met, strict=True)
    ]
    return CircuitTest(
        name="robustness",
        null=f"Under some condition, the circuit is closer to the model than at most {settings.quantile:.0%} of random "
        "circuits of its size.",
        measured="share of conditions under which it is sufficient",
        statistic=float(is_met.mean()),
        p=float(corrected.max()),
        verdict=verdict,
        advice=advice,
        details={"draws": draws, "conditions": rows, "skipped": skipped},
    )


def run_conditions(
    model: Model,
    task: Task,
    circuits: Sequence[Circuit],
    ran: Evaluation,
    metric: Metric,
    other_tasks: Mapping[str, Task],
    how: Mapping[str, Any],
    session: Session,
) -> Iterator[Condition]:
    """Yield a circuit under other conditions: each length of prompts, other ablations, other metrics, other examples.

    circuits  the circuit, and random circuits of its size
    ran       what `evaluate_circuits` returned for them and `metric` on `task`
    how       further arguments of `evaluate_circuits`
    """
    # Prompts of one length are those of a few templates.
    lengths = np.array([example.length for example in task.examples])
    sizes, counts = np.unique(lengths, return_counts=True)
    for size in sizes[counts >= MIN_PROMPTS].tolist() if len(sizes) > 1 else []:
        chosen = lengths == size
        part = replace(ran, values=ran.values[:, chosen], full=ran.full[chosen], empty=ran.empty[chosen])
        yield _condition(f"prompts of {size} tokens", part)
    ablations = [kind() for name, kind in ABLATIONS.items() if name != ran.ablation.name]
    metrics: dict[str, Metric] = {}
    for kind in METRICS.values():
        with suppress(InputError):  # without incorrect answers, there are no differences
            usable = kind().for_task(task)
            metrics[usable.name] = usable
    jobs = [(f"ablation: {ablation.name}", task, ran.metric, ablation) for ablation in ablations]
    jobs += [(f"metric: {name}", task, each, ran.ablation) for name, each in metrics.items() if name != ran.metric.name]
    jobs += [(f"examples: {name}", examples, metric, ran.ablation) for name, examples in other_tasks.items()]
    done, total = 0, len(circuits) * sum(len(examples) for _, examples, _, _ in jobs)
    for name, examples, each_metric, ablation in jobs:
        ran_here = evaluate_circuits(
            model, examples, circuits, each_metric, ablation, **how, session=session.as_part("robustness", done, total)
        )
        yield _condition(name, ran_here)
        done += len(circuits) * len(examples)
        session.report("robustness", done, total)


def _condition(name: str, ran: Evaluation) -> Condition:
    """Return a condition from the evaluation of a circuit and of random circuits."""
    own, random, full, empty = ran.values[0], ran.values[1:], ran.full, ran.empty
    own_faithfulness = float(MIB.compute(own.mean(), full.mean(), empty.mean()))
    span = float(full.mean() - empty.mean())
    wins = 0 if np.isnan(own_faithfulness) else (distance(own, full, span) < distance(random, full, span)).sum()
    return Condition(name, own_faithfulness, int(wins), len(random))
