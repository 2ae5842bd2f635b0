"""Measure the cost of testing circuits, relative to plain evaluations, and the power of the test of minimality.

    python benchmarks/verify.py            # cost, on a random model of GPT-2 small's shape
    python benchmarks/verify.py --power    # how often a superfluous path is detected, on the models with known circuits

A plain evaluation is the evaluation of no circuit: a clean and a corrupted forward pass, and the metric of both.
Sufficiency compares circuits of 1 % of the edges with 100 random circuits of their size on 100 examples. How long that
takes depends on the circuit: random circuits stop when they are known to be farther from the model. Minimality runs a
circuit of 300 edges without each of its edges and of its nodes, and 400 added paths with and without one of their
edges. Seconds are CPU time per example; of minimality the minimum of several repetitions after a warm-up.
"""

from __future__ import annotations

import argparse
import time
import warnings
from functools import partial

import numpy as np
import torch
from engine import make_examples, make_model

from edgewise import (
    Eap,
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
from edgewise.tasks import LogitDifference
from edgewise.tasks.known import KNOWN
from edgewise.verify import VerifySettings, add_path, draw_circuit, plan_verification
from edgewise.verify.random_runs import run_until_farther

EXAMPLES, SEEDS = 4, 50


def cost(repeats: int) -> None:
    """Print the cost of sufficiency and minimality."""
    model, _, _ = make_model("gpt2-shape")
    examples = make_examples(model, shared=1)[:EXAMPLES]

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
    random = plan_verification(circuits["random"], VerifySettings(n_circuits=100), ["sufficiency"]).groups["random"]
    evaluate = partial(evaluate_circuits, model, task, batch_size=EXAMPLES)
    for name, circuit in circuits.items():
        start = time.process_time()
        own = evaluate([circuit])
        runs = run_until_farther(evaluate, own.values[0], own.full, own.empty, random, Session())
        measured = (time.process_time() - start) / len(task)
        print(
            f"sufficiency of the {name} circuit, faithfulness {own.faithfulness[0]:.2f}: random circuits run on "
            f"{runs.n_examples.mean():.0f} of {len(task)} examples, {measured:.2f} s = {measured / plain:.1f} plain "
            "evaluations",
            flush=True,
        )


def power(models: list[str], examples: int, circuits: int, first_seed: int) -> None:
    """Print how often the test of minimality detects a random path that was added to a true circuit.

    A random path may matter. It counts as superfluous, by the definition of the test, if the change of one of its edges
    exceeds less than `quantile` of those of random paths. This is estimated with the reference draws of other seeds.
    """
    for name in models:
        model, truth = load_model(name, device="cpu"), known_circuit(name)
        task = load_task(name, model, "test", examples)
        rows, random, n_wrong = [], [], 0
        for seed in range(first_seed, first_seed + SEEDS):
            larger, added = add_path(truth, np.random.default_rng([seed, 1]))
            settings = VerifySettings(n_circuits=circuits, seed=seed)
            details = verify_circuit(model, task, larger, settings, tests=["minimality"]).test("minimality").details
            names = {model.graph.edge_names[edge] for edge in added}
            rows.append([row for row in details["edges"] if row["edge"] in names])
            random.append(details["random"])
            n_wrong += bool(set(details["superfluous"]) - names)
        detected = np.array([any(row["superfluous"] for row in path) for path in rows])
        least = np.array([min(row["change"] for row in path) for path in rows])
        others = [np.concatenate(random[:row] + random[row + 1 :]) for row in range(SEEDS)]
        shares = np.array([(change > other).mean() for change, other in zip(least, others, strict=True)])
        superfluous = shares < VerifySettings().quantile
        edges = [row["superfluous"] for path in rows for row in path]
        print(
            f"{name}: path detected in {detected.sum()} of {SEEDS} seeds, {sum(edges)} of {len(edges)} added edges; "
            f"of the {superfluous.sum()} superfluous paths {(detected & superfluous).sum()}; "
            f"a true edge called superfluous in {n_wrong} seeds",
            flush=True,
        )


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=list(KNOWN), help="for --power")
    parser.add_argument("--power", action="store_true")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--examples", type=int, default=20, help="for --power")
    parser.add_argument("--circuits", type=int, default=100, help="for --power")
    parser.add_argument("--first-seed", type=int, default=0, help="for --power")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    warnings.simplefilter("ignore")
    if options.power:
        power(options.models, options.examples, options.circuits, options.first_seed)
    else:
        cost(options.repeats)


if __name__ == "__main__":
    main()
