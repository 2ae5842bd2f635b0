"""The options that several commands share. A group of options is a frozen dataclass; its fields are the options.

`load_command` in cli/__init__.py puts the fields of its groups into a command's signature. Choices come from the
registry of each family, so that `--help` lists them without importing torch.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import typer

from .. import models, recipes, runtime, tasks
from ..core.circuit import Circuit
from ..core.statistics import INTERVALS, Bootstrap
from ..errors import InputError
from ..evaluate import ABLATIONS, FAITHFULNESS, MEASURES, Ablation, Faithfulness
from ..graph import LEVELS, Graph, SpanGraph
from ..learn import TopKLearner
from ..method import choose, parameters
from ..models.memory import parse_bytes
from ..recipes.settings import Settings
from ..report.circuit_summary import OpenCircuit, open_circuit
from ..runtime.store import NO_STORE, open_partial_store
from ..score import SCORERS, Scorer
from ..tasks.data_sets import parse_columns
from ..tasks.known import KNOWN
from .console import detail, note, redirect_prints, status, watch_ray

Number = TypeVar("Number", int, float)
# A command with a parameter `given_options` gets the names of the options that it was called with.
GivenOptions = frozenset[str]
AUTO = "auto"
# A file without splits is split if it has at least this many distinct rows that share no prompt.
LEAST_SPLIT = 30


def option(default: Any, panel: str, help: str, *names: str, choices: Iterable[str] = (), **more: Any) -> Any:
    """Return an option that `--help` lists under `panel`. Its name is that of the parameter, or one of `names`.

    `choices` may be the registry of a family: an option that is annotated with the family gets the chosen method.
    """
    info = typer.Option(default, *names, help=help, rich_help_panel=panel, case_sensitive=False, **more)
    info.choices = choices
    return info


def default_task(model: str) -> str:
    """Return the task to use with a model if none is given."""
    return model if model in KNOWN else "ioi"


def parse_numbers(option_name: str, text: str, kind: type[Number], example: str) -> tuple[Number, ...]:
    """Return the numbers of a text such as 0.1,0.2. Raise InputError with an example if it has anything else."""
    try:
        return tuple(kind(part) for part in text.split(",") if part.strip())
    except ValueError:
        raise InputError(f"{option_name} takes numbers such as {example}, not {text[:80]!r}") from None


def join_names(names: Iterable[str]) -> str:
    """Return names as part of a sentence: 'a, b or c'."""
    *most, last = names
    return f"{', '.join(most)} or {last}" if most else last


WITH_STEPS = join_names(name for name, scorer in SCORERS.items() if "steps" in parameters(scorer))
DEFINITIONS = "; ".join(f"{name}: {definition.summary}" for name, definition in FAITHFULNESS.items())
RANK_HELP = join_names(f"{measure.rank} (for {name})" for name, measure in MEASURES.items())

# Arguments and options of several commands that are in no group.
CIRCUIT = typer.Argument(..., help="A circuit (npz, EAP-IG json or pt), or a folder made by `edgewise run`.")
FOLDER = typer.Argument(..., help="A folder made by `edgewise run` or `edgewise study`.")
DTYPE = option(
    "auto", "Model", "Number format of the model.", choices=("auto", "float32", "bfloat16", "float16", "float64")
)
TRUST_REMOTE_CODE = option(False, "Model", "Run code that comes with the model. It is never run otherwise.")
EXAMPLES = option(None, "Task", "Most prompt pairs per split: by default 200 for a generator, else all.", min=1)
SPLIT_HELP = "The examples to use: train, validation or test; all: every row of a file without splits."
SCORED_SPLIT = option("train", "Task", SPLIT_HELP)
EVALUATED_SPLIT = option("test", "Task", SPLIT_HELP)
CHAT = option(False, "Task", "Write prompts as messages in the model's chat template.")
SPANS = option(
    None, "Task", "Spans for --positions. Default: those that the task names; token: one per token position.",
    choices=("token",),
)  # fmt: skip
SKIP_BAD = option(False, "Task", "Leave out rows of a task file that can't be used.")
COLUMNS = option(
    None, "Task", "Names of the columns of a file, or of the fields of hub:NAME: clean=prompt,corrupted=other.prompt."
)
METRIC = option(
    AUTO,
    "Scoring",
    "The number that is computed per example; auto: the one that suits the task.",
    choices=tasks.METRICS,
)
ABLATION = option("patching", "Evaluation", "What replaces the edges outside a circuit.", choices=ABLATIONS)
POSITIONS = option(
    False, "Scoring", "Circuits of (edge, span) pairs: edges that act only at some spans of tokens (see `tasks`)."
)
LEVEL = option(
    "edge", "Scoring", "What circuits consist of. neuron: one output dimension (of d_model) of a node.", choices=LEVELS
)
FILE_LEVEL = option(
    None, "Circuit", "Read edges, nodes or neurons of EAP-IG files that have several (default: what they are about).",
    "--level", choices=LEVELS,
)  # fmt: skip
KAPPA = option(None, "Selection", "Filter: shrink scores by this many standard errors of their mean.")
LEARNING_RATE = option(None, "Learning", "Initial learning rate; the default depends on measure and graph.")
LEARN_FROM = option(
    None, "Learning", "Start from the ranking in this folder of `run` or `learn`: of another task, or checkpoint."
)
BATCH_SIZE = option(
    None, "Machine",
    "Examples per batch; by default as many as fit. Another batch size changes rounding (up to 1.5e-6).", min=1,
)  # fmt: skip
RANKING_FOLDER = option(..., "Output", "The folder to write the ranking to.", "--out")
TOP = option(8, "Output", "Number of edges and nodes to list.", min=1)
OVERWRITE = option(False, "Output", "Replace an earlier result.")
DRY_RUN = option(False, "Output", "Only estimate the cost: memory, disk, and time from a first batch.")
JSON = option(False, "Output", "Print the result as JSON.")
QUIET = option(False, "Output", "Print results only: no notes, no progress.", "--quiet", "-q")
VERBOSE = option(False, "Output", "Also print versions, and where the model runs, for bug reports.", "--verbose", "-v")


@dataclass(frozen=True)
class ModelOptions:
    """Which model to load, and how."""

    model: str = option(
        "demo", "Model", "demo, smollm2, known/NAME, a HuggingFace folder, a .gguf file, or a name on the hub."
    )
    dtype: str = DTYPE
    bos: str = option(
        "auto", "Model", "Start prompts with the BOS token; auto: if it was trained with BOS.",
        choices=("auto", "yes", "no"),
    )  # fmt: skip
    trust_remote_code: bool = TRUST_REMOTE_CODE
    device: str = option(
        "auto", "Machine",
        "A torch device; auto: the best one; cuda:0,cuda:1 splits the layers over these; all: over all GPUs, then the "
        "CPU.",
    )  # fmt: skip

    def load(self) -> models.Model:
        """Load the model, with a status line."""
        began = time.perf_counter()
        options = (self.device, self.dtype, self.bos, self.trust_remote_code)
        with status(f"loading {self.model}"):
            model = models.load_source(models.ModelSource(self.model, *options))
        where = f"on {model.transformer.device_names}, {model.transformer.dtype}, {runtime.thread_count()} threads"
        detail(f"loaded {self.model} in {time.perf_counter() - began:.2f} s {where}: {model.graph}")
        return model


@dataclass(frozen=True)
class TaskOptions:
    """Which examples to use.

    Commands read one split with `load_part`. `run` reads several, with `load_whole` once, then `load_split` for each.
    """

    task: str = option(
        AUTO, "Task",
        "A generator (see `edgewise tasks`), mib/NAME, mib/NAME=PATH, hub:NAME (with --columns), FILE.jsonl, .json or "
        ".csv; auto: the task of a known/NAME model, else ioi.",
    )  # fmt: skip
    examples: int | None = EXAMPLES
    seed: int = option(0, "Task", "Random seed (examples, bootstrap, learning).", min=0)
    spans: str | None = SPANS
    chat: bool = CHAT
    skip_bad: bool = SKIP_BAD
    columns: str | None = COLUMNS

    def load(self, model: models.Model, split: str) -> tasks.Task:
        """Return the examples of a split that the task itself has, in the model's tokens."""
        return tasks.load_task(
            self.task, model, split, self.examples, self.seed, self.spans, self.chat, self.skip_bad, self.column_names
        )

    @property
    def column_names(self) -> dict[str, str] | None:
        """Return column of a task -> column of the file or data set, as far as --columns names them."""
        return None if self.columns is None else parse_columns(self.columns)

    def has_splits(self, split: str | None = None) -> bool:
        """Whether the task, a file, has rows with a split, or rows of that split."""
        return tasks.has_splits(Path(self.task), split, self.column_names)

    def load_part(self, model: models.Model, split: str) -> tasks.Task:
        """Return the examples of a split as `run` uses them.

        Of a file without splits that is large enough (`LEAST_SPLIT`), these are a third; of a smaller one, all rows.
        """
        whole = self.load_whole(model) if split in tasks.SPLITS else None
        if whole is not None:
            third = f"a third of its rows is used for {split}, as in `run` (--split all uses every row)"
            note(f"{self.task} has no splits, so {third}")
        return self.load_split(whole, model, split)

    def load_split(self, whole: tasks.Task | None, model: models.Model, split: str) -> tasks.Task:
        """Return the examples of a split: a third of `whole`, the result of `load_whole`; if it is None, as `load`."""
        if whole is None or split not in tasks.SPLITS:
            return self.load(model, split)
        return tasks.split_task(whole, split).head(self.examples)

    def load_whole(self, model: models.Model) -> tasks.Task | None:
        """Return all examples of a file without splits that has enough distinct rows to be split; else None."""
        if not tasks.is_task_file(self.task) or self.has_splits():
            return None
        whole = replace(self, examples=None).load(model, "train")
        return whole if len(tasks.group_by_prompt(whole.examples)) >= LEAST_SPLIT else None


def check_spans(spans: str | None, positions: bool) -> None:
    """Raise InputError if spans are chosen, but nothing is scored or learned by span."""
    if spans is not None and not positions:
        raise InputError("--spans needs --positions: without it, circuits are not of (edge, span) pairs")


@dataclass(frozen=True)
class CircuitOptions:
    """Which circuit of a result folder to open."""

    recipe: str | None = option(
        None, "Circuit", "If the input is a result folder: which recipe (default: the one saved in circuits/)."
    )
    measure: str | None = option(
        None, "Circuit", "If the input is a result folder: which measure (default: its first).", choices=MEASURES
    )
    size: str | None = option(
        None, "Circuit",
        "If the input is a result folder: which share of the edges, such as 0.05 (default: the smallest faithful one).",
    )  # fmt: skip

    level: str | None = FILE_LEVEL

    def open(self, path: Path) -> OpenCircuit:
        """Return the circuit of a file or of a result folder."""
        return open_circuit(path, self.recipe, self.measure, self.size, self.level)


def check_edges(path: Path, circuit: Circuit, has_positions: bool = False) -> None:
    """Raise InputError if a circuit consists of nodes or neurons, or of pairs, unless `has_positions`."""
    if not isinstance(circuit.graph, Graph | SpanGraph if has_positions else Graph):
        options = "--level" if has_positions else "--positions and --level"
        raise InputError(
            f"{path} is a circuit of {circuit.graph.units}, but this command takes circuits of edges; make one without "
            f"{options}"
        )


def check_model(path: Path, circuit: Circuit, model: models.Model) -> None:
    """Raise InputError if a circuit is one of another model."""
    graph = circuit.graph.plain
    if graph != model.graph:
        raise InputError(
            f"{path} is a circuit of {graph}, but model {model.name!r} has {model.graph}; give the circuit's own model "
            "as --model"
        )


@dataclass(frozen=True)
class ScorerOptions:
    """How edges are scored."""

    scorer: str = option("eap-ig", "Scoring", "How edges are scored.", choices=SCORERS)
    steps: int | None = option(None, "Scoring", f"Integration steps of {WITH_STEPS}.", min=1)
    best: int | None = option(
        None, "Scoring", "With exact: the number of edges to patch, the best of eap-ig. Default: all.", min=1
    )

    def build_scorer(self) -> Scorer:
        """Return the scorer."""
        return choose("scorer", SCORERS, self.scorer, steps=self.steps, best=self.best)


@dataclass(frozen=True)
class IntervalOptions:
    """The bootstrap's confidence interval. None stands for the library's default."""

    interval: str | None = option(
        None, "Selection", f"Confidence interval of the bootstrap (default: {Bootstrap.interval}).", choices=INTERVALS
    )
    confidence: float | None = option(
        None, "Selection", f"Confidence level of the interval (default: {Bootstrap.confidence})."
    )
    threshold: float | None = option(
        None, "Selection", "T: keep an edge if its interval lies above +T or below -T (default: 0)."
    )

    @property
    def given_intervals(self) -> dict[str, Any]:
        """The options that were given."""
        values = {"interval": self.interval, "confidence": self.confidence, "threshold": self.threshold}
        return {name: value for name, value in values.items() if value is not None}

    def build_bootstrap(self, resamples: int, seed: int = 0) -> Bootstrap:
        """Return the bootstrap with these intervals."""
        return Bootstrap(resamples, **self.given_intervals, seed=seed)


@dataclass(frozen=True)
class SolverOptions:
    """How circuits are selected."""

    fill: bool = option(
        False, "Selection", "Greedy and top-n: add edges until the circuit has the requested size after pruning."
    )
    nested: bool = option(False, "Selection", "Each size contains the smaller ones.")
    time_limit: float | None = option(
        None, "Selection",
        "Time limit in seconds per ILP; afterwards the best circuit found is used and its gap reported. Without it, a "
        "limit of work, the same on every machine, ends very hard cases.",
    )  # fmt: skip


@dataclass(frozen=True)
class MetricOptions:
    """What circuits are measured by, and what replaces the edges outside them."""

    metric: tasks.Metric = METRIC
    ablation: Ablation = ABLATION

    def build_forecast_settings(self, batch_size: int | None, memory: int) -> Settings:
        """Return settings for the forecast of an evaluation.

        Settings are those of a run, which scores edges. The default metric stands for one without a gradient.
        """
        metric = self.metric if self.metric.differentiable else tasks.TaskMetric()
        return Settings(metric=metric, ablation=self.ablation, batch_size=batch_size, memory=memory)


@dataclass(frozen=True)
class EvaluationOptions(MetricOptions):
    """How circuits are evaluated."""

    faithfulness: Faithfulness = option("mib", "Evaluation", f"{DEFINITIONS}.", choices=FAITHFULNESS)


@dataclass(frozen=True)
class LearningOptions:
    """Whether rankings are learned too, and how. None means that the command decides."""

    learned: bool | None = option(
        None,
        "Learning",
        "Learn rankings too, however long it takes. Default: `run` does within --learn-budget.",
        "--learned/--no-learned",
    )
    learn_steps: int | None = option(None, "Learning", f"Number of steps (default: {TopKLearner.steps}).", min=1)
    learning_rate: float | None = LEARNING_RATE

    def build_learner(self, seed: int) -> TopKLearner:
        """Return the learner."""
        return TopKLearner(steps=self.learn_steps or TopKLearner.steps, rate=self.learning_rate, seed=seed)

    def check_learning(self, why_not: str) -> None:
        """Raise InputError if options of learning were given, but nothing is learned: unless `why_not` is empty."""
        if why_not and (self.learn_steps is not None or self.learning_rate is not None):
            raise InputError(
                "--learn-steps and --learning-rate change learning, but this command learns nothing "
                f"({why_not}); leave them out"
            )


@dataclass(frozen=True)
class MachineOptions:
    """Where the work runs."""

    memory: str = option("1GB", "Machine", "Memory for a batch, not counting the model, such as 800MB or 2GB.")
    engine: str = option(
        "local", "Machine", "Where the work runs. Results are the same up to rounding.", choices=runtime.ENGINES
    )
    address: str | None = option(
        None, "Machine", "Address of a Ray cluster: auto, or HOST:PORT. By default one is started."
    )
    workers: int | None = option(
        None, "Machine", "Number of worker processes. Default: one per GPU; on a CPU: chosen for speed.", min=1
    )

    @property
    def memory_bytes(self) -> int:
        """`memory` as a number of bytes."""
        return parse_bytes(self.memory)

    @contextmanager
    def session(self, target: Path | None = None, dry_run: bool = False) -> Iterator[runtime.Session]:
        """Open the engine, and the store of unfinished work beside `target`. A dry run stores nothing."""
        opened = nullcontext(NO_STORE) if target is None or dry_run else open_partial_store(target)
        with opened as store:
            with status("starting workers"):
                engine = runtime.open_engine(self.engine, self.address, self.workers)
            with engine, watch_ray(engine), redirect_prints():
                yield runtime.Session(store, engine)


@dataclass(frozen=True)
class RunOptions(
    MachineOptions, EvaluationOptions, LearningOptions, SolverOptions, IntervalOptions, ScorerOptions
):  # dataclasses list the fields of the last base first
    """The options that `run` and `study` share."""

    batch_size: int | None = BATCH_SIZE
    positions: bool = POSITIONS
    level: str = LEVEL
    as_published: bool = option(False, "Evaluation", "Follow the paper's public script; the differences are printed.")

    def check_kind(self, spans: str | None) -> None:
        """Raise InputError if there are spans without positions, or if no ranking can be learned at this level."""
        check_spans(spans, self.positions)
        if self.learned and self.level == "neuron":
            raise InputError("rankings are learned for edges and nodes; give one of --learned and --level neuron")

    def build_settings(self, bootstrap: Bootstrap) -> Settings:
        """Return the settings. Raise InputError if they are impossible, before any work is done."""
        same = ("fill", "nested", "positions", "level", "batch_size", "metric", "ablation", "faithfulness")
        values = {name: getattr(self, name) for name in same}
        settings = Settings(scorer=self.build_scorer(), bootstrap=bootstrap, memory=self.memory_bytes, **values)
        return recipes.as_published(settings) if self.as_published else settings
