"""Options that several commands share; what can be chosen is read from each family's own mapping."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from ..core.statistics import INTERVALS, Bootstrap
from ..evaluate import ABLATIONS, FAITHFULNESS, MEASURES
from ..method import choose, parameters
from ..runtime import ENGINES
from ..score import SCORERS
from ..select import SOLVERS
from ..tasks.metrics import METRICS

if TYPE_CHECKING:
    from ..learn import TopKLearner
    from ..recipes.settings import Settings


def names(known: Mapping[str, object]) -> str:
    """The names of a family in a sentence: 'a, b or c'."""
    *most, last = known
    return f"{', '.join(most)} or {last}" if most else last


def takers(known: Mapping[str, type], parameter: str) -> str:
    """The names of those of a family that have a parameter."""
    return names({name: kind for name, kind in known.items() if parameter in parameters(kind)})


ModelName = Annotated[
    str,
    typer.Option(
        "--model", help="demo, smollm2, a folder in HuggingFace's layout, a .gguf file, or a name on the hub."
    ),
]
TaskName = Annotated[
    str,
    typer.Option("--task", help="See `edgewise tasks`: a generator, mib/NAME, mib/NAME=PATH, FILE.jsonl or FILE.csv."),
]
Examples = Annotated[int | None, typer.Option("--examples", help="How many prompt pairs to use (built-in tasks: 200).")]
Bos = Annotated[
    str, typer.Option("--bos", help="Put the BOS token in front: yes, no, or auto, if the model was trained so.")
]
TrustRemoteCode = Annotated[
    bool,
    typer.Option("--trust-remote-code", help="Run code that comes with the model; never done without this option."),
]
NoCache = Annotated[
    bool, typer.Option("--no-cache", help="De-quantise a .gguf file anew, and keep nothing in the user's cache.")
]
Device = Annotated[
    str,
    typer.Option(
        "--device",
        help="Any device torch offers; auto: the best there is; cuda:0,cuda:1: layers over several; all: over all, and "
        "the CPU for the rest.",
    ),
]
Dtype = Annotated[str, typer.Option("--dtype", help="auto, float32, bfloat16, float16 or float64.")]
BatchSize = Annotated[
    int | None,
    typer.Option("--batch-size", min=1, help="Examples at once; by default what fits. Other batches round otherwise."),
]
Memory = Annotated[
    str,
    typer.Option("--memory", help="Memory for a batch beyond the model, such as 800MB or 2GB."),
]
Engine = Annotated[
    str,
    typer.Option("--engine", help=f"Where the work runs: {names(dict.fromkeys(ENGINES))}; no result depends on it."),
]
Address = Annotated[
    str | None, typer.Option("--address", help="Of a Ray cluster: auto, or HOST:PORT; by default one is begun here.")
]
Workers = Annotated[
    int | None,
    typer.Option("--workers", min=1, help="Worker processes; by default one a GPU, or as many as help on a CPU."),
]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Seed of the built-in tasks and of the bootstrap.")]
Metric = Annotated[str, typer.Option("--metric", help=f"{names(METRICS)}.")]
Ablation = Annotated[
    str, typer.Option("--ablation", help=f"What replaces edges outside a circuit: {names(ABLATIONS)}.")
]
Faithfulness = Annotated[
    str,
    typer.Option("--faithfulness", help="; ".join(f"{name}: {f.summary}" for name, f in FAITHFULNESS.items()) + "."),
]
Method = Annotated[
    str, typer.Option("--method", help=f"How edges are scored: {names(SCORERS)}; in `score` also learned.")
]
Steps = Annotated[
    int | None, typer.Option("--steps", min=1, help=f"Integration steps of {takers(SCORERS, 'steps')}, or of learning.")
]
Solver = Annotated[str, typer.Option("--solver", help=f"{names(SOLVERS)}; ilp is optimal, and proven so.")]
Rank = Annotated[
    str, typer.Option("--rank", help=" or ".join(f"{one.rank} (for {name})" for name, one in MEASURES.items()) + ".")
]
Interval = Annotated[str, typer.Option("--interval", help=f"Confidence interval: {names(INTERVALS)}.")]
Confidence = Annotated[float, typer.Option("--confidence", help="Level of the confidence interval.")]
Threshold = Annotated[
    float, typer.Option("--threshold", help="An edge is kept if its interval lies above this, or below its negative.")
]
Kappa = Annotated[
    float | None,
    typer.Option(
        "--kappa", help="Shrink scores by this many standard errors of their mean: a filter without threshold."
    ),
]
Learn = Annotated[bool, typer.Option("--learned", help="Learn rankings too; by default where the graph is small.")]
LearnNot = Annotated[bool, typer.Option("--no-learned", help="Learn nothing, however small the graph.")]
LearnSteps = Annotated[int | None, typer.Option("--learn-steps", help="Steps of learning (300 by default).")]
LearnRate = Annotated[
    float | None, typer.Option("--rate", help="Learning rate at first; by default what suits goal and graph.")
]
TimeLimit = Annotated[
    float | None, typer.Option("--time-limit", help="Seconds for one ILP; then its best circuit so far, with its gap.")
]
Fill = Annotated[
    bool, typer.Option("--fill", help="Ask greedy and top-n for more until pruning leaves the size asked for.")
]
Nested = Annotated[bool, typer.Option("--nested", help="Each size contains the smaller ones.")]
MethodOfRun = Annotated[
    str | None, typer.Option("--method", help="Of a result folder: whose circuit; default: whose circuits it wrote.")
]
MetricOfRun = Annotated[
    str | None, typer.Option("--metric", help=f"Of a result folder: a circuit for {names(MEASURES)}.")
]
SizeOfRun = Annotated[
    str | None, typer.Option("--size", help="Of a result folder: a share of the edges that it has, such as 0.05.")
]
Top = Annotated[int, typer.Option("--top", min=1, help="How many edges and nodes to name.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Write over an earlier result.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print results only: no notes, no progress.")]
Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", help="Print versions, times and batch sizes too, as a report of a bug needs.")
]
DryRun = Annotated[
    bool,
    typer.Option("--dry-run", help="Only say what it would cost: memory, disk, time from a first batch."),
]
Json = Annotated[bool, typer.Option("--json", help="Print the outcome as JSON, for machines.")]


def build_settings(
    method: str,
    steps: int | None,
    metric: str,
    ablation: str,
    faithfulness: str,
    bootstrap: Bootstrap,
    fill: bool,
    nested: bool,
    batch_size: int | None,
    memory: str,
) -> Settings:
    """The settings that a command's options mean; refuses what can't be, before any work is done."""
    from ..models.memory import parse_bytes
    from ..recipes.settings import Settings

    return Settings(
        scorer=choose("scoring method", SCORERS, method, steps=steps),
        metric=choose("metric", METRICS, metric),
        ablation=choose("ablation", ABLATIONS, ablation),
        faithfulness=choose("faithfulness definition", FAITHFULNESS, faithfulness),
        bootstrap=bootstrap,
        fill=fill,
        nested=nested,
        batch_size=batch_size,
        memory=parse_bytes(memory),
    )


def build_learner(
    steps: int | None, rate: float | None, seed: int, goal: str = "CMD", resamples: int = 0
) -> TopKLearner:
    """The learner that a command's options mean; refuses what can't be, before any work is done."""
    from ..learn import TopKLearner

    count = TopKLearner.steps if steps is None else steps
    return TopKLearner(choose("goal", MEASURES, goal), count, rate=rate, seed=seed, resamples=resamples)
