"""Measure the cost of testing circuits, relative to plain evaluations, and the power of the test of minimality.

    python benchmarks/verify.py                                             # a random model of GPT-2 small's shape
    python benchmarks/verify.py --model smollm2 --task ioi                  # greedy's circuit of 1 % of the edges
    python benchmarks/verify.py --model FOLDER --task stories.jsonl --sizes 0.02 0.05 0.1    # see make_stories.py
    python benchmarks/verify.py --power    # how often a superfluous path is detected, on the models with known circuits

A plain evaluation is the evaluation of no circuit: a clean and a corrupted forward pass, and the metric of both.
Sufficiency compares circuits with 100 random circuits of their size on 100 examples. How long that takes depends on the
circuit: random circuits stop when they are known to be farther from the model. Circuits of a real model are those of
greedy on EAP-IG scores of 64 training examples. Minimality runs a circuit of 300 edges without each of its edges and of
its nodes, and 400 added paths with and without one of their edges. Seconds are CPU time per example; of minimality the
minimum of several repetitions after a warm-up.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Mapping
from functools import partial

import numpy as np
import torch
from engine import make_examples, make_model
from numpy.typing import NDArray

from edgewise import (
    Eap,
    EapIg,
    Model,
    Session,
    Task,
    evaluate_circuits,
    known_circuit,
    load_model,
    load_task,
    score_edges,
    solve,
    verify_circuit,
)
from edgewise.core.circuit import Circuit
from edgewise.evaluate.ablations import Patching
from edgewise.evaluate.run_circuits import EvaluateJob
from edgewise.select import Greedy
from edgewise.tasks import LogitDifference
from edgewise.tasks.known import KNOWN
from edgewise.verify import VerifySettings, add_path, draw_circuit, plan_verification
from edgewise.verify.circuit_tests import distance
from edgewise.verify.random_circuits import draw_reference
from edgewise.verify.verify_circuit import run_until_farther

TRAIN_EXAMPLES, BATCH = 64, 4
# Power: seeds, and the examples and random edges that say which paths are truly superfluous.
SEEDS, TRUE_EXAMPLES, TRUE_DRAWS = 50, 200, 2000


def cost_on_random_weights(repeats: int, n_circuits: int) -> None:
    """Print the cost of sufficiency and minimality on a random model of GPT-2 small's shape."""
    model, _, _ = make_model("gpt2-shape")
    examples = make_examples(model, shared=1)[:BATCH]

    def seconds(circuits: tuple[Circuit, ...]) -> float:
        job = EvaluateJob(LogitDifference(), Patching(), tuple(c.prune() for c in circuits), ())
        job(model, examples)
        best = float("inf")
        for _ in range(repeats):
            start = time.process_time()
            job(model, examples)
            best = min(best, time.process_time() - start)
        return best / len(examples)

    plain = seconds(())
    print(f"a plain evaluation: {plain:.3f} s")
    rng = np.random.default_rng(0)
    plan = plan_verification(draw_circuit(model.graph, 300, rng), VerifySettings(n_circuits=100), ["minimality"])
    measured = seconds(plan.circuits)
    print(f"minimality: {len(plan.circuits)} circuits, {measured:.2f} s = {measured / plain:.1f} plain evaluations")
    task = Task("random", "test", tuple(example for seed in range(10) for example in make_examples(model, 1, seed)))
    scores, n_edges = score_edges(model, task[:20], Eap()), 324
    circuits = {"random": draw_circuit(model.graph, n_edges, rng), "greedy": solve(scores, n_edges).circuit}
    cost_of_sufficiency(model, task, circuits, plain, n_circuits)


def cost_on_model(name: str, task: str, sizes: list[float], n_examples: int, n_circuits: int) -> None:
    """Print the cost of sufficiency for greedy's circuits of a model."""
    model = load_model(name, device="cpu")
    train, test = load_task(task, model, "train", TRAIN_EXAMPLES), load_task(task, model, "test", n_examples)
    scores = score_edges(model, train, EapIg())
    circuits = {f"greedy {size:.1%}": solve(scores, size, solver=Greedy(), fill=True).circuit for size in sizes}
    evaluate_circuits(model, test[:BATCH], [])
    start = time.process_time()
    evaluate_circuits(model, test, [])
    plain = (time.process_time() - start) / len(test)
    print(f"a plain evaluation: {plain:.3f} s")
    cost_of_sufficiency(model, test, circuits, plain, n_circuits)


def cost_of_sufficiency(
    model: Model, task: Task, circuits: Mapping[str, Circuit], plain: float, n_circuits: int
) -> None:
    """Print the cost of sufficiency for circuits by name; `plain` are the seconds of a plain evaluation."""
    evaluate = partial(evaluate_circuits, model, task)
    for name, circuit in circuits.items():
        random = plan_verification(circuit, VerifySettings(n_circuits), ["sufficiency"]).groups["random"]
        start = time.process_time()
        own = evaluate([circuit])
        runs = run_until_farther(evaluate, own.values[0], own.full, own.empty, random, Session())
        measured = (time.process_time() - start) / len(task)
        print(
            f"sufficiency of the {name} circuit, {circuit.n_edges} edges, faithfulness {own.faithfulness[0]:.2f}: "
            f"{len(random)} random circuits run on {runs.n_examples.mean():.1f} of {len(task)} examples, "
            f"{measured:.2f} s = {measured / plain:.1f} plain evaluations",
            flush=True,
        )


def power(models: list[str], examples: int, circuits: int, first_seed: int) -> None:
    """Print how often the test of minimality detects a random path that was added to a true circuit.

    A random path may matter, so not all of them should be detected. A path is truly superfluous if removing one of its
    edges changes the model, on 200 training examples, less than removing 90 % (`quantile`) of 2,000 edges of other
    random paths. Neither these examples nor these draws are those of the test.
    """
    for name in models:
        model, truth = load_model(name, device="cpu"), known_circuit(name)
        task = load_task(name, model, "test", examples)
        larger, added, detected, n_edges_detected, n_wrong = [], [], [], 0, 0
        for seed in range(first_seed, first_seed + SEEDS):
            circuit, path = add_path(truth, np.random.default_rng([seed, 1]))
            settings = VerifySettings(n_circuits=circuits, seed=seed)
            superfluous = {*verify_circuit(model, task, circuit, settings, tests=["minimality"]).superfluous}
            path_edges = {model.graph.edge_names[edge] for edge in path}
            larger.append(circuit)
            added.append(path_edges)
            detected.append(bool(superfluous & path_edges))
            n_edges_detected += len(superfluous & path_edges)
            n_wrong += bool(superfluous - path_edges)
        is_true = find_superfluous(model, load_task(name, model, "train", TRUE_EXAMPLES), truth, larger, added)
        print(
            f"{name}: detected {(is_true & detected).sum()} of {is_true.sum()} truly superfluous paths, and "
            f"{(~is_true & detected).sum()} of {(~is_true).sum()} others; {n_edges_detected} of "
            f"{sum(map(len, added))} added edges; a true edge called superfluous in {n_wrong} of {SEEDS} seeds",
            flush=True,
        )


def find_superfluous(
    model: Model, task: Task, truth: Circuit, larger: list[Circuit], added: list[set[str]]
) -> NDArray[np.bool_]:
    """Return which paths [seed] are truly superfluous, see `power`; `larger` are the circuits with paths `added`."""
    reference = draw_reference(truth, TRUE_DRAWS, np.random.default_rng(0))
    without = [circuit.without(edge) for circuit, edges in zip(larger, added, strict=True) for edge in sorted(edges)]
    with_path = [circuit for circuit, edges in zip(larger, added, strict=True) for _ in edges]
    first, second = [*reference[0], *with_path], [*reference[1], *without]
    ran = evaluate_circuits(model, task, first + second)
    changes = distance(ran.values[: len(first)], ran.values[len(first) :], float(ran.full.mean() - ran.empty.mean()))
    random, of_paths = np.split(changes, [TRUE_DRAWS])
    starts = np.cumsum([0, *(len(edges) for edges in added[:-1])])
    return np.minimum.reduceat(of_paths, starts) < np.quantile(random, VerifySettings().quantile)


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=list(KNOWN), help="for --power")
    parser.add_argument("--power", action="store_true")
    parser.add_argument("--model", help="measure the cost on this model: a name or a folder")
    parser.add_argument("--task", default="ioi", help="for --model: a name or a file")
    parser.add_argument("--sizes", type=float, nargs="+", default=[0.01], help="for --model: shares of the edges")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--examples", type=int, help="default: 100; for --power 20")
    parser.add_argument("--circuits", type=int, default=100)
    parser.add_argument("--first-seed", type=int, default=0, help="for --power")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    warnings.simplefilter("ignore")
    if options.power:
        power(options.models, options.examples or 20, options.circuits, options.first_seed)
    elif options.model:
        cost_on_model(options.model, options.task, options.sizes, options.examples or 100, options.circuits)
    else:
        cost_on_random_weights(options.repeats, options.circuits)


if __name__ == "__main__":
    main()
