"""edgewise learn: learn a ranking of the edges."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..core.ranking import Ranking
from ..errors import InputError
from ..evaluate import MEASURES, Ablation, Measure
from ..io.atomic import SCORE_FILES, check_folder
from ..learn import LEARNERS, Learner
from ..method import choose
from ..recipes.settings import Settings
from ..results import read_start
from ..tasks import METRICS, Metric, TaskMetric
from . import options
from .console import print_json, say, show_forecast
from .options import option, parse_numbers
from .repeat import KEY, check_same, describe_examples, made_from, resume
from .show import show_strongest


@dataclass(frozen=True)
class LearnerOptions:
    """How a ranking is learned. None stands for the learner's default."""

    learner: str = option("learned", "Learning", "How to learn.", choices=LEARNERS)
    measure: Measure | None = option(
        None, "Learning", "The measure to learn for (default: CMD; matryoshka: CPR).", choices=MEASURES
    )
    steps: int | None = option(
        None, "Learning",
        "Number of steps, for each mask of edge-pruning and ugs (default: 300; matryoshka: 5000).", min=1,
    )  # fmt: skip
    learning_rate: float | None = options.LEARNING_RATE
    learn_from: Path | None = options.LEARN_FROM
    resamples: int | None = option(
        None, "Learning", "Learn this many more times, from resampled examples, for the spread."
    )
    loss: str | None = option(
        None, "Learning",
        "edge-pruning, ugs: minimise the KL divergence to the model (default), or the loss of measure and metric.",
        choices=("kl", "measure"),
    )  # fmt: skip
    sizes: str | None = option(
        None, "Learning", "edge-pruning: learn a mask for each of these shares of the edges, as 0.02,0.1."
    )
    penalties: str | None = option(
        None, "Learning", "ugs: learn a mask for each of these penalties per edge, as 0.001,0.01."
    )
    as_published: bool = option(False, "Learning", "Use the settings of the learner's publication, and its many steps.")

    def build(self, seed: int) -> Learner:
        """Return the learner. Raise InputError for an option that it doesn't take."""
        values: dict[str, Any] = {
            "steps": self.steps, "rate": self.learning_rate, "resamples": self.resamples, "loss": self.loss,
            "seed": seed, "measure": self.measure,
        }  # fmt: skip
        if self.sizes is not None:
            values["sizes"] = parse_numbers("--sizes", self.sizes, float, "0.02,0.1")
        if self.penalties is not None:
            values["penalties"] = parse_numbers("--penalties", self.penalties, float, "0.001,0.01")
        learner = choose("learner", LEARNERS, self.learner, **values)
        if not self.as_published:
            return learner
        return type(learner).published(**{name: value for name, value in values.items() if value is not None})

    def read_start(self, learner: Learner) -> Ranking | None:
        """Return the ranking that learning starts from; None for the learner's own start."""
        if self.learn_from is None:
            return None
        if not learner.reads_start:
            raise InputError(f"--learn-from has no effect on {self.learner}; it starts from its own parameters")
        return read_start(self.learn_from)[learner.measure]


def command(
    *,
    out_folder: Path = options.RANKING_FOLDER,
    model: options.ModelOptions,
    task: options.TaskOptions,
    machine: options.MachineOptions,
    split: str = options.SCORED_SPLIT,
    metric: Metric | None = option(
        None, "Scoring", "The number that is computed per example (default: that of the task).", choices=METRICS
    ),
    ablation: Ablation = options.ABLATION,
    positions: bool = options.POSITIONS,
    level: str = option("edge", "Learning", "What the ranking is of.", choices=("edge", "node")),
    learning: LearnerOptions,
    overwrite: bool = options.OVERWRITE,
    dry_run: bool = options.DRY_RUN,
    json: bool = options.JSON,
) -> None:
    """Learn one value per edge by gradient descent through weighted circuits.

    Learners: `learned` for all sizes at once, `calibrated` for scores that are calibrated without any step,
    `matryoshka` as published, `edge-pruning` and `ugs` for masks, `ensemble` for the mean of EAP, both EAP-IG and edge
    pruning.

    Writes ranking.npy and ranking.json, which `edgewise select` reads. Run the same command again to resume a
    stopped one.
    """
    from ..learn.run_learner import learn_ranking
    from ..recipes.forecast import LearnWork

    options.check_spans(task.spans, positions)
    has_result = not overwrite and Ranking.is_folder(out_folder)
    check_folder(out_folder, overwrite or has_result, SCORE_FILES)
    learner = learning.build(task.seed)
    if learner.record().get("loss") == "kl" and (learning.measure or metric):
        raise InputError(
            "--measure and --metric have no effect on the KL divergence; give --loss measure, or omit them"
        )
    settings = Settings(
        positions=positions,
        level=level,
        metric=metric or TaskMetric(),
        ablation=ablation,
        memory=machine.memory_bytes,
    )
    start = learning.read_start(learner)
    with machine.session(out_folder, dry_run) as session:
        loaded = model.load()
        examples = task.load_part(loaded, split)
        settings = replace(settings, metric=settings.metric.for_task(examples))
        work = [LearnWork(examples, settings, learner)]
        if show_forecast(loaded, work, session, dry_run, json, has_result):
            return
        inputs = made_from(
            **describe_examples(loaded, task.task, examples), learner=learner, metric=settings.metric,
            ablation=settings.ablation, memory=settings.memory, learn_from=None if start is None else start.digest,
            level=None if level == "edge" else level, positions=examples.span_digest if positions else None,
        )  # fmt: skip
        if has_result:
            ranking = Ranking.load(out_folder)
            check_same(out_folder, ranking.origin.get(KEY), inputs)
        else:
            with resume(session) as session:
                ranking = learn_ranking(
                    loaded, examples, learner, settings.metric, settings.ablation, start=start, level=level,
                    positions=positions, memory=settings.memory, session=session,
                )  # fmt: skip
            ranking = replace(ranking, origin={**ranking.origin, KEY: inputs})
            ranking.save(out_folder, overwrite)
    if json:
        origin = {key: value for key, value in ranking.origin.items() if key != "losses"}
        print_json(origin | {"edges": ranking.graph.n_edges, "out": str(out_folder)})
        return
    show_strongest("value", ranking.graph, ranking.value, signed=ranking.signed)
    details = ranking.origin
    if "trend" in details:
        say(f"loss: {details['trend']:+.0%} from the first to the last third of the steps, at equal sizes")
    if "open" in details:
        say(f"share of open gates, for each mask: {', '.join(f'{share:.3f}' for share in details['open'])}")
    what = f"{len(details['losses'])} steps" if "losses" in details else learner.title
    measured = f"for {learner.measure.name}" if learner.record().get("loss") != "kl" else "for the KL divergence"
    say(f"{what} on {len(examples)} examples {measured} in {details['seconds']:.0f} s, written to {out_folder}")
