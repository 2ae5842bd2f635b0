"""What work costs on more machines: measured here, simulated for a cluster, and by arithmetic for large models.

    python benchmarks/scale.py                    # measures for some minutes, then prints the tables of docs/scale.md
    python benchmarks/scale.py --costs FILE.json  # the same from costs that were measured before

Measured, on one thread, for a random model of GPT-2 small's shape: what pieces cost by their tokens, what it takes to
send one to a Ray worker and to keep what comes back, to begin a worker, and to select circuits. The cluster has a fake
clock: pieces are cut by edgewise's own rules, handed out as its Ray engine does, and take as long as was measured.
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
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from edgewise.recipes.remember import select
from rich.console import Console
from rich.table import Table

from edgewise import (
    CMD,
    SIZES,
    Circuit,
    EapIg,
    Greedy,
    SelectionProblem,
    inspect_model,
    load_model,
    load_task,
    solve_path,
)
from edgewise.evaluate import Patching
from edgewise.evaluate.run_circuits import EvaluateJob
from edgewise.learn.top_k_training import GradientJob
from edgewise.models import Model, plan_batches, wrap_model
from edgewise.recipes.curves import enter
from edgewise.recipes.recipe import paper_recipes
from edgewise.recipes.settings import Settings
from edgewise.runtime import ray_engine as cluster
from edgewise.runtime.engine import WorkItem, choose_item_size, order_longest_first
from edgewise.runtime.store import Store
from edgewise.score.run_scorer import ScoreJob
from edgewise.tasks import Example, LogitDifference

EXAMPLES, STEPS, CIRCUITS, LENGTH, PIECE = 1000, 5, 100, 20, 4
# What a cluster of GPUs is taken to do: the share of its peak that passes reach, and float32 sums beside them.
PEAK, USED, PEAK_FLOAT32 = 312e12, 0.35, 19.5e12
# Every recipe of a study's grid at every size on validation, the chosen ones on test, three seeds.
STUDY_CIRCUITS, SEEDS = 700, 3


@dataclass(frozen=True)
class Costs:
    """Seconds that were measured, on one thread.

    rate      floating-point operations a second of a large product
    score     of a piece of four examples: a constant, and for every token; the same for circuits and a step's part
    circuit   for every circuit of a curve
    send      to hand a piece to a worker; `keep` to take a piece's scores and put them on disk
    begin     of a worker process: imports, and the model
    select    all circuits of a run
    """

    rate: float
    score: tuple[float, float]
    circuit: tuple[float, float]
    learn: tuple[float, float]
    send: float
    keep: float
    begin: float
    select: float


def examples_of(length: int, count: int, vocabulary: int, seed: int = 0) -> tuple[Example, ...]:
    """Random pairs that differ from their second token on, as IOI's differ early."""
    rng = np.random.default_rng([seed, length])
    found = []
    for _ in range(count):
        clean = rng.integers(vocabulary, size=length)
        corrupted = clean.copy()
        corrupted[[1, length // 2]] = (clean[[1, length // 2]] + 1) % vocabulary
        found.append(Example(tuple(clean.tolist()), tuple(corrupted.tolist()), 11, 12))
    return tuple(found)


def least(work: Callable[[], Any], repeats: int = 3) -> float:
    """The least seconds of some repetitions, after one to warm up."""
    work()
    seconds = []
    for _ in range(repeats):
        began = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - began)
    return min(seconds)


def by_tokens(work: Callable[[tuple[Example, ...]], Any], vocabulary: int) -> tuple[float, float]:
    """Seconds of a piece as a constant and a slope in its tokens, from two lengths."""
    lengths = (14, 26)
    short, long = (least(lambda n=n: work(examples_of(n, PIECE, vocabulary))) for n in lengths)
    slope = max(0.0, (long - short) / (PIECE * (lengths[1] - lengths[0])))
    return max(0.0, short - slope * PIECE * lengths[0]), slope


def measure() -> Costs:
    """All costs, on this machine."""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    torch.set_num_threads(1)
    loaded = GPT2LMHeadModel(GPT2Config()).eval()
    model = wrap_model(loaded, name="gpt2-shape")
    x = torch.randn(2048, 2048)
    rate = 2 * 2048**3 / least(lambda: x @ x)
    scorer, metric = ScoreJob(EapIg(STEPS), LogitDifference()), LogitDifference()
    score = by_tokens(lambda some: scorer(model, some), model.vocabulary)
    mean = scorer(model, examples_of(LENGTH, PIECE, model.vocabulary))[0]
    circuits = curve(model, mean.mean(0))
    job = EvaluateJob(metric, Patching(), circuits, ())
    whole = by_tokens(lambda some: job(model, some), model.vocabulary)
    weights = torch.full((model.graph.n_edges,), 0.5)

    def step(some: tuple[Example, ...]) -> None:
        GradientJob(CMD, metric, Patching(), weights, dict.fromkeys(some, (1.0, 0.0)), 1.0)(model, some)

    learn = by_tokens(step, model.vocabulary)
    each = (whole[0] / len(circuits), whole[1] / len(circuits))
    send, begin = measure_ray(loaded)
    return Costs(rate, score, each, learn, send, measure_keeping(model), begin, measure_selection(model, mean))


def curve(model: Model, mean: np.ndarray) -> tuple[Circuit, ...]:
    """Greedy circuits of every size; scores of random weights are spread evenly, so squared."""
    problem = SelectionProblem.build(model.graph, mean * np.abs(mean), CMD.rank, 0)
    sizes = [int(share * model.graph.n_edges) for share in SIZES if share < 1]
    return tuple(selection.circuit for selection in solve_path(problem, sizes, Greedy()))


def measure_ray(loaded: torch.nn.Module) -> tuple[float, float]:
    """Seconds to hand a piece to a worker and hear of its end, and to begin a worker with the model."""
    with tempfile.TemporaryDirectory() as folder:
        loaded.save_pretrained(folder)
        model = load_model(folder, bos="no")
        with cluster.Ray(workers=1) as engine:
            began = time.perf_counter()
            pieces = [WorkItem(nothing, examples_of(LENGTH, PIECE, 50)) for _ in range(200)]
            list(engine.run(model, pieces[:1]))
            begin = time.perf_counter() - began
            return least(lambda: list(engine.run(model, pieces))) / len(pieces), begin


def nothing(model: Model, examples: Sequence[Example]) -> None:
    """A job that takes no time."""


def measure_keeping(model: Model) -> float:
    """Seconds to keep a piece's scores."""
    with tempfile.TemporaryDirectory() as folder:
        store, values = Store(Path(folder) / "store").open(), np.ones((PIECE, model.graph.n_edges), np.float32)
        with store.open_partial("scores-0", 50 * PIECE, {"values": ((model.graph.n_edges,), np.float32)}) as filling:
            began = time.perf_counter()
            for piece in range(50):
                filling.put(range(piece * PIECE, (piece + 1) * PIECE), values=values)
            return (time.perf_counter() - began) / 50


def measure_selection(model: Model, values: np.ndarray) -> float:
    """Seconds to select the circuits of a run: all recipes of the paper at every size."""
    from edgewise import EdgeScores

    settings = Settings()
    scores = EdgeScores(model.graph, values * np.abs(values))
    choices = [(b, recipe) for b, some in paper_recipes(settings.bootstrap).items() for recipe in some]
    began = time.perf_counter()
    select(enter(choices, scores), settings, Store(), lambda *_: None)
    return time.perf_counter() - began


def simulate(pieces: Sequence[float], workers: int, ahead: int, send: float, keep: float, begin: float) -> float:
    """The fake clock's time when the last piece is kept.

    pieces  seconds of work each, in the order in which they are handed out; a worker must `begin` before its first.
    The driver does one thing at a time: sending, or keeping what came back; so many pieces are `ahead` at most.
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
    """A stage of a run on so many workers: seconds of work, and the fake clock's."""

    work: float
    clock: float

    def efficiency(self, workers: int, more: float = 0.0) -> float:
        """The share of the workers' time that is work, if the stage takes so much longer."""
        return self.work / (workers * (self.clock + more))


def stages(costs: Costs, workers: int, begin: float) -> dict[str, Stage]:
    """Scoring 1,000 examples of IOI, and 100 circuits on as many, with GPT-2's costs."""
    demo = load_model()
    examples = load_task("ioi", demo, "train", EXAMPLES, 0).examples
    shape = Shaped(768, workers)
    size = choose_item_size(shape, torch.device("cpu"), 18, EXAMPLES)
    batches = [[examples[row] for row in rows] for rows in plan_batches(examples, size)]
    ordered = [
        batches[place] for place in order_longest_first({n: WorkItem(nothing, some) for n, some in enumerate(batches)})
    ]
    tokens = [sum(example.length for example in some) for some in ordered]

    def stage(cost: tuple[float, float], times: int, begin: float) -> Stage:
        work = [
            times * (cost[0] * len(some) / PIECE + cost[1] * count) for some, count in zip(ordered, tokens, strict=True)
        ]
        return Stage(sum(work), simulate(work, workers, cluster.AHEAD, costs.send, costs.keep, begin))

    return {"score": stage(costs.score, 1, begin), "evaluate": stage(costs.circuit, CIRCUITS, 0.0)}


class Shaped:
    """A model on a cluster, as far as cutting cares."""

    def __init__(self, d_model: int, workers: int) -> None:
        self.graph = type("Graph", (), {"d_model": d_model})
        self.engine = type("Engine", (), {"workers": staticmethod(lambda model: workers)})


def simulated(costs: Costs) -> Table:
    """Efficiency of a run on more workers."""
    table = Table(title=f"GPT-2 on IOI, {EXAMPLES:,} examples, {CIRCUITS} circuits: a fake clock", title_justify="left")
    heads = ("workers", "score", "efficiency", "evaluate", "efficiency", "both", "with beginning workers", "and select")
    for head in heads:
        table.add_column(head, justify="right")
    for workers in (1, 8, 64, 256):
        warm, cold = stages(costs, workers, 0.0), stages(costs, workers, costs.begin)
        both, begun = (Stage(sum(s.work for s in some.values()), sum(s.clock for s in some.values()))
                       for some in (warm, cold))  # fmt: skip
        table.add_row(
            f"{workers}",
            f"{warm['score'].clock:.1f} s", f"{warm['score'].efficiency(workers):.1%}",
            f"{warm['evaluate'].clock:.1f} s", f"{warm['evaluate'].efficiency(workers):.1%}",
            f"{both.efficiency(workers):.1%}", f"{begun.efficiency(workers):.1%}",
            f"{begun.efficiency(workers, costs.select):.1%}",
        )  # fmt: skip
    return table


def configs() -> dict[str, Any]:
    """The shapes of models that are too large for this machine."""
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
        """On one GPU, if passes and sums take `factor` times what the arithmetic takes at the rates assumed."""
        return factor * (self.passes / (PEAK * USED) + self.sums / (PEAK_FLOAT32 * USED))

    @property
    def total(self) -> float:
        return self.passes + self.sums


def operations(parameters: int, edges: int, d_model: int) -> dict[str, Operations]:
    """By verb: a clean and a corrupted pass and five forward and backward ones; one pass a circuit, most of whose edges
    are left out; a reference, a weighted pass and its gradients, whose streams are mixed three times."""
    forward, every = 2.0 * parameters * LENGTH, 2.0 * edges * LENGTH * d_model
    return {
        "score": Operations((2 + 2 * STEPS) * forward, every),
        "circuit": Operations(forward, 0.1 * every),
        "learn": Operations(4 * forward, 3 * every),
    }


def factors(costs: Costs) -> dict[str, float]:
    """How many times the arithmetic's time work takes here, on one thread, for GPT-2's shape."""
    config = configs()["GPT-2"]
    layers, width = config.n_layer, config.n_embd
    found = operations(12 * layers * width**2, 32491, width)
    taken = {"score": costs.score, "circuit": costs.circuit, "learn": costs.learn}
    return {
        verb: (cost[0] / PIECE + cost[1] * LENGTH) / (found[verb].total / costs.rate) for verb, cost in taken.items()
    }


def arithmetic(costs: Costs) -> Table:
    """Hours of GPUs, and memory, for models that are too large for this machine."""
    table = Table(
        title=f"bfloat16, prompts of {LENGTH} tokens; s on one GPU unless said otherwise", title_justify="left"
    )
    heads = ("", "edges", "weights", "beside", "GPUs a copy", "score 1,000", "learn", "curve", "study",
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
        found = operations(inside, graph.n_edges, graph.d_model)
        each = {verb: one.seconds(by_verb[verb]) for verb, one in found.items()}
        beside = max(need.of(1) for need in facts.needs(LENGTH).values())
        copies = next(n for n in (1, 2, 4, 8, 16) if n * 78e9 > facts.weight_bytes + n * beside / n)
        score, learn = EXAMPLES * each["score"], 300 * 16 * each["learn"]
        study = SEEDS * (score + STUDY_CIRCUITS * EXAMPLES * each["circuit"])
        table.add_row(
            name, f"{graph.n_edges:,}", f"{facts.weight_bytes / 1e9:.1f} GB", f"{beside / 1e9:.2f} GB", f"{copies}",
            time_of(score * copies), time_of(learn * copies), time_of(len(SIZES) * EXAMPLES * each["circuit"] * copies),
            time_of(study * copies), time_of(study * copies / 8), time_of(study * copies / 64),
        )  # fmt: skip
    return table


def time_of(seconds: float) -> str:
    """For people."""
    if seconds < 100:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def main() -> None:
    """Measure, or read what was measured; simulate; print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--costs", type=Path, help="costs that --out wrote before")
    parser.add_argument("--out", type=Path, help="where to write the costs")
    given = parser.parse_args()
    costs = Costs(**json.loads(given.costs.read_text())) if given.costs else measure()
    if given.out:
        given.out.write_text(json.dumps(asdict(costs), indent=2))
    console = Console(width=150)
    table = Table(title="measured here, one thread, GPT-2 small's shape, 20 tokens", title_justify="left")
    for head in ("", "s an example", "times the arithmetic"):
        table.add_column(head, justify="right" if head else "left")
    for verb, factor in factors(costs).items():
        constant, slope = getattr(costs, verb)
        table.add_row(verb, f"{constant / PIECE + slope * LENGTH:.3f}", f"{factor:.2f}")
    console.print(table)
    console.print(
        f"{costs.rate / 1e9:.0f} GFLOP/s; a piece: {1e3 * costs.send:.1f} ms to send, {1e3 * costs.keep:.1f} ms to "
        f"keep; a worker begins in {costs.begin:.1f} s; the circuits of a run are selected in {costs.select:.1f} s"
    )
    console.print(simulated(costs))
    console.print(arithmetic(costs))


if __name__ == "__main__":
    main()
