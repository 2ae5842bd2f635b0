"""Measure the cost of work, simulate a cluster, and estimate the cost for large models.

    python benchmarks/scale.py                    # takes some minutes; prints the tables of docs/results/scale.md
    python benchmarks/scale.py --costs FILE.json  # the same from saved costs (--out)

Measured on one thread, for a random model of GPT-2 small's shape: the cost of a piece of work by its tokens, of sending
it to a Ray worker, of saving its result, of starting a worker, and of selecting circuits. The simulation splits work by
edgewise's own rules, schedules it like the Ray engine, and uses the measured times.
"""

from __future__ import annotations

import argparse
import heapq
import json
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from edgewise import CMD, Circuit, EapIg, Graph, Greedy, SelectionProblem, load_model, load_task
from edgewise.evaluate import SIZES, Patching
from edgewise.evaluate.run_circuits import EvaluateJob
from edgewise.learn.training import GradientJob
from edgewise.models import Model, inspect_model, plan_batches, wrap_model
from edgewise.recipes.recipe import paper_recipes
from edgewise.recipes.settings import Settings
from edgewise.recipes.stages import attach_rankings, select_recipes, summarise_filters
from edgewise.runtime import DEFAULT_SESSION, IN_PROCESS, ray_engine as cluster
from edgewise.runtime.engine import WorkItem, choose_item_size, order_longest_first
from edgewise.runtime.store import Store
from edgewise.score.run_scorer import ScoreJob
from edgewise.select import solve_path
from edgewise.tasks import Example, LogitDifference

EXAMPLES, STEPS, CIRCUITS, LENGTH, PIECE = 1000, 5, 100, 20, 4
# Assumed speed of a GPU: FLOP/s in bfloat16, the share of it that is reached, and FLOP/s in float32.
PEAK, USED, PEAK_FLOAT32 = 312e12, 0.35, 19.5e12
# A study: every recipe of the grid at every size on validation, the chosen ones on test, three seeds.
STUDY_CIRCUITS, SEEDS = 700, 3


@dataclass(frozen=True)
class Costs:
    """Measured costs on one thread, in seconds.

    rate      floating-point operations per second of a large matrix product
    score     of a piece of four examples: a constant and a cost per token; `circuit` and `learn` likewise
    circuit   per circuit of a curve
    send      send a piece to a worker; `keep`: save the scores of a piece
    begin     start a worker process: imports and the model
    select    select all circuits of a run
    """

    rate: float
    score: tuple[float, float]
    circuit: tuple[float, float]
    learn: tuple[float, float]
    send: float
    keep: float
    begin: float
    select: float


def random_examples(length: int, count: int, vocabulary: int, seed: int = 0) -> tuple[Example, ...]:
    """Return random prompt pairs that differ from their second token on, like those of IOI."""
    rng = np.random.default_rng([seed, length])
    examples = []
    for _ in range(count):
        clean = rng.integers(vocabulary, size=length)
        corrupted = clean.copy()
        corrupted[[1, length // 2]] = (clean[[1, length // 2]] + 1) % vocabulary
        examples.append(Example(tuple(clean.tolist()), tuple(corrupted.tolist()), 11, 12))
    return tuple(examples)


def measure_seconds(work: Callable[[], Any], repeats: int = 3) -> float:
    """Return the minimum seconds of several repetitions, after a warm-up."""
    work()
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def fit_by_tokens(work: Callable[[tuple[Example, ...]], Any], vocabulary: int) -> tuple[float, float]:
    """Return the seconds of a piece as a constant and a slope per token, from two prompt lengths."""
    lengths = (14, 26)
    short, long = (measure_seconds(lambda n=n: work(random_examples(n, PIECE, vocabulary))) for n in lengths)
    slope = max(0.0, (long - short) / (PIECE * (lengths[1] - lengths[0])))
    return max(0.0, short - slope * PIECE * lengths[0]), slope


def measure() -> Costs:
    """Measure all costs on this machine."""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    torch.set_num_threads(1)
    loaded = GPT2LMHeadModel(GPT2Config()).eval()
    model = wrap_model(loaded, name="gpt2-shape")
    x = torch.randn(2048, 2048)
    rate = 2 * 2048**3 / measure_seconds(lambda: x @ x)
    scorer, metric = ScoreJob(EapIg(STEPS), LogitDifference()), LogitDifference()
    score = fit_by_tokens(lambda examples: scorer(model, examples), model.vocabulary)
    mean = scorer(model, random_examples(LENGTH, PIECE, model.vocabulary))[0]
    circuits = select_curve(model, mean.mean(0))
    job = EvaluateJob(metric, Patching(), circuits, ())
    whole = fit_by_tokens(lambda examples: job(model, examples), model.vocabulary)
    weights = torch.full((model.graph.n_edges,), 0.5)

    def step(examples: tuple[Example, ...]) -> None:
        GradientJob(CMD, metric, Patching(), weights, dict.fromkeys(examples, (1.0, 0.0)), 1.0)(model, examples)

    learn = fit_by_tokens(step, model.vocabulary)
    each = (whole[0] / len(circuits), whole[1] / len(circuits))
    send, begin = measure_ray(loaded)
    return Costs(rate, score, each, learn, send, measure_saving(model), begin, measure_selection(model, mean))


def select_curve(model: Model, mean: np.ndarray) -> tuple[Circuit, ...]:
    """Return greedy circuits of every size. Scores are squared: those of random weights are spread evenly."""
    problem = SelectionProblem.build(model.graph, mean * np.abs(mean), CMD.rank, 0)
    sizes = [int(share * model.graph.n_edges) for share in SIZES if share < 1]
    return tuple(selection.circuit for selection in solve_path(problem, sizes, Greedy()))


def measure_ray(loaded: torch.nn.Module) -> tuple[float, float]:
    """Return the seconds to send a piece to a worker and get its result, and to start a worker with the model."""
    with tempfile.TemporaryDirectory() as folder:
        loaded.save_pretrained(folder)
        model = load_model(folder, bos="no")
        with cluster.Ray(workers=1) as engine:
            start = time.perf_counter()
            pieces = [WorkItem(no_work, random_examples(LENGTH, PIECE, 50)) for _ in range(200)]
            list(engine.run(model, pieces[:1]))
            begin = time.perf_counter() - start
            return measure_seconds(lambda: list(engine.run(model, pieces))) / len(pieces), begin


def no_work(model: Model, examples: Sequence[Example]) -> None:
    """A job that takes no time."""


def measure_saving(model: Model) -> float:
    """Return the seconds to save the scores of a piece."""
    with tempfile.TemporaryDirectory() as folder:
        store, values = Store(Path(folder) / "store").open(), np.ones((PIECE, model.graph.n_edges), np.float32)
        with store.open_partial("scores-0", 50 * PIECE, {"values": ((model.graph.n_edges,), np.float32)}) as partial:
            start = time.perf_counter()
            for piece in range(50):
                partial.write_rows(range(piece * PIECE, (piece + 1) * PIECE), values=values)
            return (time.perf_counter() - start) / 50


def measure_selection(model: Model, values: np.ndarray) -> float:
    """Return the seconds to select the circuits of a run: all recipes of the paper at every size."""
    from edgewise import EdgeScores

    settings = Settings()
    scores = EdgeScores(model.graph, values * np.abs(values))
    recipes = paper_recipes(settings.bootstrap)
    pairs = [(measure, recipe) for measure, group in recipes.items() for recipe in group]
    start = time.perf_counter()
    by_filter = summarise_filters([recipe.filter for _, recipe in pairs], scores)
    select_recipes(attach_rankings(pairs, by_filter), settings, DEFAULT_SESSION)
    return time.perf_counter() - start


def simulate(pieces: Sequence[float], workers: int, ahead: int, send: float, keep: float, begin: float) -> float:
    """Return the simulated time at which the last result is saved.

    pieces  seconds of work each, in the order in which they are sent
    ahead   the maximum number of unfinished pieces per worker
    begin   seconds to start a worker

    The main process does one thing at a time: send a piece, or save a result.
    """
    waiting, free, running, now = list(pieces)[::-1], [begin] * workers, [], 0.0
    while waiting or running:
        while waiting and len(running) < ahead * workers:
            now += send
            end = max(now, heapq.heappop(free)) + waiting.pop()
            heapq.heappush(free, end)
            heapq.heappush(running, end)
        now = max(now, heapq.heappop(running)) + keep
    return now


@dataclass(frozen=True)
class Stage:
    """A stage of a run: seconds of work, and the simulated seconds until it ends."""

    work: float
    clock: float

    def efficiency(self, workers: int, more: float = 0.0) -> float:
        """Return the share of the workers' time that is work, if the stage takes `more` seconds longer."""
        return self.work / (workers * (self.clock + more))


def simulate_stages(costs: Costs, workers: int, begin: float) -> dict[str, Stage]:
    """Simulate scoring 1,000 examples of IOI and evaluating 100 circuits on them, with the costs of GPT-2."""
    demo = load_model()
    examples = load_task("ioi", demo, "train", EXAMPLES, 0).examples
    shape = SimpleNamespace(graph=Graph(12, 12, 768))
    size = choose_item_size(IN_PROCESS, shape, torch.device("cpu"), 18, EXAMPLES)
    batches = [[examples[row] for row in rows] for rows in plan_batches(examples, size)]
    ordered = [
        batches[place]
        for place in order_longest_first({n: WorkItem(no_work, batch) for n, batch in enumerate(batches)})
    ]
    tokens = [sum(example.length for example in batch) for batch in ordered]

    def stage(cost: tuple[float, float], times: int, begin: float) -> Stage:
        work = [
            times * (cost[0] * len(batch) / PIECE + cost[1] * count)
            for batch, count in zip(ordered, tokens, strict=True)
        ]
        return Stage(sum(work), simulate(work, workers, cluster.ITEMS_AHEAD, costs.send, costs.keep, begin))

    return {"score": stage(costs.score, 1, begin), "evaluate": stage(costs.circuit, CIRCUITS, 0.0)}


def simulation_table(costs: Costs) -> Table:
    """Return a table of the efficiency of a run by number of workers."""
    table = Table(title=f"GPT-2 on IOI, {EXAMPLES:,} examples, {CIRCUITS} circuits: simulated", title_justify="left")
    heads = ("workers", "score", "efficiency", "evaluate", "efficiency", "both", "with worker start", "and selection")
    for head in heads:
        table.add_column(head, justify="right")
    for workers in (1, 8, 64, 256):
        warm, cold = simulate_stages(costs, workers, 0.0), simulate_stages(costs, workers, costs.begin)
        both, begun = (Stage(sum(s.work for s in group.values()), sum(s.clock for s in group.values()))
                       for group in (warm, cold))  # fmt: skip
        table.add_row(
            f"{workers}",
            f"{warm['score'].clock:.1f} s", f"{warm['score'].efficiency(workers):.1%}",
            f"{warm['evaluate'].clock:.1f} s", f"{warm['evaluate'].efficiency(workers):.1%}",
            f"{both.efficiency(workers):.1%}", f"{begun.efficiency(workers):.1%}",
            f"{begun.efficiency(workers, costs.select):.1%}",
        )  # fmt: skip
    return table


def configs() -> dict[str, Any]:
    """Return the configs of GPT-2 and of larger models."""
    from transformers import GPT2Config, LlamaConfig, Qwen2Config

    llama = {"num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 131072}
    return {
        "GPT-2": GPT2Config(),
        "Qwen2.5 0.5B": Qwen2Config(
            hidden_size=896, intermediate_size=4864, num_hidden_layers=24, num_attention_heads=14,
            num_key_value_heads=2, vocab_size=151936, tie_word_embeddings=True,
        ),
        "Llama-3.1 8B": LlamaConfig(
            hidden_size=4096, intermediate_size=14336, num_hidden_layers=32, num_attention_heads=32, **llama
        ),
        "Llama-3.1 70B": LlamaConfig(
            hidden_size=8192, intermediate_size=28672, num_hidden_layers=80, num_attention_heads=64, **llama
        ),
    }  # fmt: skip


@dataclass(frozen=True)
class Operations:
    """Floating-point operations of one example of 20 tokens: in the model's passes, and in sums over edges."""

    passes: float
    sums: float

    def seconds(self, factor: float) -> float:
        """Return the seconds on one GPU, if the work takes `factor` times its arithmetic at the assumed speed."""
        return factor * (self.passes / (PEAK * USED) + self.sums / (PEAK_FLOAT32 * USED))

    @property
    def total(self) -> float:
        return self.passes + self.sums


def operations(parameters: int, edges: int, d_model: int) -> dict[str, Operations]:
    """Return the operations per stage.

    Scoring: a clean and a corrupted pass, and five forward + backward passes. A circuit: one pass and a tenth of the
    edges. Learning: a reference pass, a weighted pass and its gradients, with three products over all edges.
    """
    forward, every = 2.0 * parameters * LENGTH, 2.0 * edges * LENGTH * d_model
    return {
        "score": Operations((2 + 2 * STEPS) * forward, every),
        "circuit": Operations(forward, 0.1 * every),
        "learn": Operations(4 * forward, 3 * every),
    }


def factors(costs: Costs) -> dict[str, float]:
    """Return measured time / time of the arithmetic alone, per stage, for GPT-2's shape on one thread."""
    config = configs()["GPT-2"]
    layers, width = config.n_layer, config.n_embd
    stage_operations = operations(12 * layers * width**2, 32491, width)
    taken = {"score": costs.score, "circuit": costs.circuit, "learn": costs.learn}
    return {
        verb: (cost[0] / PIECE + cost[1] * LENGTH) / (stage_operations[verb].total / costs.rate)
        for verb, cost in taken.items()
    }


def estimate_table(costs: Costs) -> Table:
    """Return a table of estimated GPU time and memory of large models."""
    table = Table(
        title=f"bfloat16, prompts of {LENGTH} tokens; seconds on one GPU unless stated otherwise", title_justify="left"
    )
    heads = ("", "edges", "weights", "other memory", "GPUs per copy", "score 1,000", "learn", "curve", "study",
             "study, 8 GPUs", "study, 64")  # fmt: skip
    for head in heads:
        table.add_column(head, justify="right" if head else "left")
    by_verb = factors(costs)
    for name, config in configs().items():
        with tempfile.TemporaryDirectory() as folder:
            config.dtype = torch.bfloat16
            config.save_pretrained(folder)
            facts = inspect_model(folder, dtype="bfloat16")
        graph = facts.shape.graph
        inside = facts.parameters - graph.d_model * config.vocab_size * (1 if config.tie_word_embeddings else 2)
        stage_operations = operations(inside, graph.n_edges, graph.d_model)
        each = {verb: count.seconds(by_verb[verb]) for verb, count in stage_operations.items()}
        beside = max(need.total(1) for need in facts.needs(LENGTH).values())
        copies = next(n for n in (1, 2, 4, 8, 16) if n * 78e9 > facts.weight_bytes + n * beside / n)
        score, learn = EXAMPLES * each["score"], 300 * 16 * each["learn"]
        study = SEEDS * (score + STUDY_CIRCUITS * EXAMPLES * each["circuit"])
        table.add_row(
            name, f"{graph.n_edges:,}", f"{facts.weight_bytes / 1e9:.1f} GB", f"{beside / 1e9:.2f} GB", f"{copies}",
            format_time(score * copies), format_time(learn * copies),
            format_time(len(SIZES) * EXAMPLES * each["circuit"] * copies),
            format_time(study * copies), format_time(study * copies / 8), format_time(study * copies / 64),
        )  # fmt: skip
    return table


def format_time(seconds: float) -> str:
    """Format seconds as seconds, minutes or hours."""
    if seconds < 100:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def main() -> None:
    """Measure the costs or read them, then print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--costs", type=Path, help="read costs that --out wrote")
    parser.add_argument("--out", type=Path, help="write the costs to this file")
    args = parser.parse_args()
    costs = Costs(**json.loads(args.costs.read_text())) if args.costs else measure()
    if args.out:
        args.out.write_text(json.dumps(asdict(costs), indent=2))
    console = Console(width=150)
    table = Table(title="measured on one thread, GPT-2 small's shape, 20 tokens", title_justify="left")
    for head in ("", "s per example", "times the arithmetic"):
        table.add_column(head, justify="right" if head else "left")
    for verb, factor in factors(costs).items():
        constant, slope = getattr(costs, verb)
        table.add_row(verb, f"{constant / PIECE + slope * LENGTH:.3f}", f"{factor:.2f}")
    console.print(table)
    console.print(
        f"{costs.rate / 1e9:.0f} GFLOP/s; a piece: {1e3 * costs.send:.1f} ms to send, {1e3 * costs.keep:.1f} ms to "
        f"save; a worker starts in {costs.begin:.1f} s; the circuits of a run are selected in {costs.select:.1f} s"
    )
    console.print(simulation_table(costs))
    console.print(estimate_table(costs))


if __name__ == "__main__":
    main()
