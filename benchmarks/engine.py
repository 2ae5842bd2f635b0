"""Measure the cost of scoring and evaluating, relative to plain passes of the same HuggingFace model.

    python benchmarks/engine.py                                  # a random model of GPT-2 small's shape
    python benchmarks/engine.py --model smollm2 --threads 2
    python benchmarks/engine.py --peer EAP-IG --peer-python PYTHON   # a checkout of EAP-IG, and a Python with
                                                                 # transformer-lens 2.18

The minimum cost of EAP-IG with five steps is one forward pass and five forward + backward passes (gradients of the
embeddings, logits at the last position only); `SCORERS` has that of every scorer. The minimum cost of a weighted
circuit with the gradient of all weights is one forward + backward pass. Seconds are CPU time per example, the minimum
of several repetitions; wall time is also shown. Rows marked `half` use prompts with an equal first half. Rows marked
`pairs` score or run (edge, span) pairs of five spans: their minimum is the same row of edges. The last column has what
we allow, with an exclamation mark if a row takes more.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from edgewise import BatchScores, Bootstrap, Circuit, Eap, EapIg, EdgeScores, SelectionProblem, summarise
from edgewise.evaluate import SIZES
from edgewise.graph import SpanGraph
from edgewise.models import Batch, Model, make_batch, wrap_model
from edgewise.models.circuits import number_nodes, run_circuits
from edgewise.models.forward import Trace
from edgewise.models.prepare import Prepared, prepare
from edgewise.models.transformer import Transformer
from edgewise.models.weighted import run_weighted
from edgewise.score import (
    AttnLrp,
    CleanCorrupted,
    EapIgActivations,
    ExpectedGradients,
    Gim,
    GradDrop,
    InformationFlowRoutes,
    MaskIg,
    RelP,
    RelPQk,
    Scorer,
)
from edgewise.score.exact import ExactEdges
from edgewise.select import solve_path
from edgewise.tasks import Example, LogitDifference

BATCH, LENGTH = 10, 20
# Scorer -> the plain passes that it needs, from the seconds of a forward, of a forward + backward, and of a backward
# pass, and the number of layers. Exact patching of ten edges needs a forward pass for each.
SCORERS: dict[str, tuple[Scorer, Callable[[float, float, float, int], float]]] = {
    "EAP": (Eap(), lambda forward, both, backward, layers: forward + both),
    "EAP-IG-5": (EapIg(5), lambda forward, both, backward, layers: forward + 5 * both),
    "clean-corrupted": (CleanCorrupted(), lambda forward, both, backward, layers: 2 * both),
    "expected gradients": (ExpectedGradients(), lambda forward, both, backward, layers: 2 * forward + both),
    "EAP-IG-activations-2": (
        EapIgActivations(2), lambda forward, both, backward, layers: 2 * forward + (2 * layers + 1) * 2 * both,
    ),
    "GIM": (Gim(), lambda forward, both, backward, layers: forward + both),
    "GIM, 5 steps": (Gim(steps=5), lambda forward, both, backward, layers: forward + 5 * both),
    "RelP": (RelP(), lambda forward, both, backward, layers: forward + both),
    "RelP with q and k": (RelPQk(), lambda forward, both, backward, layers: forward + both),
    "AttnLRP": (AttnLrp(), lambda forward, both, backward, layers: forward + both),
    "GradDrop": (GradDrop(), lambda forward, both, backward, layers: 2 * forward + layers * backward),
    "mask-IG-2": (MaskIg(2), lambda forward, both, backward, layers: 2 * forward + 2 * both),
    "information flow routes": (InformationFlowRoutes(), lambda forward, both, backward, layers: 2 * forward),
    "exact, 10 edges": (
        ExactEdges(tuple(range(1000, 30000, 3000))), lambda forward, both, backward, layers: 12 * forward,
    ),
}  # fmt: skip
# The most that scorers with gradients may take, in times their minimum; pairs, in times the same row of edges.
# Mask-IG runs weighted circuits, whose 3 H streams per layer cost more than a plain pass.
GRADIENT_LIMIT, PAIR_SCORING_LIMIT, PAIR_CIRCUIT_LIMIT = 1.3, 1.15, 1.5
UNLIMITED = ("mask-IG-2", "information flow routes", "exact, 10 edges")
# Scorers that are also measured by span.
BY_SPAN = ("EAP", "EAP-IG-5", "GradDrop")
SPANS = ("S1", "IO", "S2", "end", "other")
PEER = Path(__file__).with_name("peer_eap_ig.py")


def make_model(name: str) -> tuple[Model, Callable[..., torch.Tensor], torch.nn.Module]:
    """Return the model, the HuggingFace body (tokens or embeddings -> hidden states) and the HuggingFace model."""
    if name == "gpt2-shape":
        from transformers import GPT2Config, GPT2LMHeadModel

        torch.manual_seed(0)
        loaded = GPT2LMHeadModel(GPT2Config()).eval().requires_grad_(False)
        return wrap_model(loaded, name=name), loaded.transformer, loaded
    import transformers

    from edgewise.models.model_files import find_model_files

    transformers.utils.logging.disable_progress_bar()
    arguments = find_model_files(name).pretrained_arguments()
    loaded = transformers.AutoModelForCausalLM.from_pretrained(**arguments, dtype=torch.float32)
    return wrap_model(loaded, name=name), loaded.model, loaded


def make_examples(model: Model, shared: int, seed: int = 0) -> list[Example]:
    """Return random prompt pairs that are equal before position `shared`."""
    rng = np.random.default_rng(seed)
    examples = []
    for _ in range(BATCH):
        clean = rng.integers(model.vocabulary, size=LENGTH)
        corrupted = clean.copy()
        for place in (shared, min(shared + 3, LENGTH - 2)):
            corrupted[place] = (clean[place] + 1) % model.vocabulary
        # As in IOI: four tokens at different places of each prompt have a span of their own.
        spans = np.full(LENGTH, len(SPANS) - 1)
        spans[np.sort(rng.choice(LENGTH - 1, 3, replace=False))] = [0, 1, 2]
        spans[-1] = 3
        examples.append(
            Example(
                tuple(clean.tolist()), tuple(corrupted.tolist()), 11, 12,
                span_names=SPANS, span_indices=tuple(spans.tolist()),
            )
        )  # fmt: skip
    return examples


def clock(work: Callable[[], object], repeats: int) -> tuple[float, float]:
    """Return CPU and wall seconds per example: the minimum of several repetitions, after a warm-up."""
    work()
    cpu = wall = float("inf")
    for _ in range(repeats):
        wall_start, cpu_start = time.perf_counter(), time.process_time()
        work()
        wall, cpu = min(wall, time.perf_counter() - wall_start), min(cpu, time.process_time() - cpu_start)
    return cpu / BATCH, wall / BATCH


def plain_passes(loaded: torch.nn.Module, body: Callable[..., torch.Tensor], batch: Batch, repeats: int) -> dict:
    """Measure the plain passes that everything is compared with."""

    def forward() -> None:
        with torch.no_grad():
            loaded(batch.clean)

    def forward_last() -> None:
        with torch.no_grad():
            loaded.lm_head(body(batch.clean).last_hidden_state[:, -1])

    def forward_backward() -> None:
        embedding = loaded.get_input_embeddings()(batch.clean).requires_grad_()
        logits = loaded.lm_head(body(inputs_embeds=embedding).last_hidden_state[:, -1])
        torch.autograd.grad((logits[:, 11] - logits[:, 12]).sum(), embedding)

    return {
        "forward, all logits": clock(forward, repeats),
        "forward, last logits": clock(forward_last, repeats),
        "forward + backward": clock(forward_backward, repeats),
    }


def measure(name: str, repeats: int, real: str | None, scorers: list[str]) -> tuple[dict, Model, dict]:
    """Measure all rows, of these scorers: label -> (CPU, wall) seconds per example."""
    model, body, loaded = make_model(name)
    transformer, metric = model.transformer, LogitDifference()
    batches = {
        "": make_batch(make_examples(model, 0), transformer.device),
        ", half": make_batch(make_examples(model, LENGTH // 2), transformer.device),
    }
    before = peak_megabytes(lambda: None)
    batch_scores: list[BatchScores] = []
    peak = peak_megabytes(lambda: batch_scores.append(EapIg(5).score(prepare(transformer, batches[""]), metric)))
    weighted = {
        f"peak MB of a weighted circuit in addition to the model, streams {how}": peak_megabytes(
            lambda keep=keep: weighted_pass(*_references(transformer, batches[""]), False, keep)
        )
        - before
        for how, keep in (("recomputed", False), ("kept", True))
    }
    rows = plain_passes(loaded, body, batches[""], repeats)
    for label, batch in batches.items():
        rows |= weighted_rows(transformer, batch, label, repeats)
    for label, batch in batches.items():
        for title in scorers:
            rows[title + label] = clock(
                lambda batch=batch, title=title: SCORERS[title][0].score(prepare(transformer, batch), metric), repeats
            )
            if title not in BY_SPAN:
                continue
            rows[f"{title}, pairs{label}"] = clock(
                lambda batch=batch, title=title: SCORERS[title][0].score(
                    prepare(transformer, batch, by_span=True), metric
                ),
                repeats,
            )
    scores = EdgeScores(model.graph, np.repeat(batch_scores[0].values.numpy(), 10, 0))
    for tau in (10, 1000):
        cpu, wall = clock(lambda tau=tau: summarise(scores, Bootstrap(tau)), 1)
        rows[f"bootstrap {tau}"] = (cpu / 10, wall / 10)
    # Scores of random weights are spread evenly. Squaring them makes them heavy-tailed, as real scores are.
    mean = scores.mean() * np.abs(scores.mean()) if real is None else EdgeScores.load(real).mean()
    problem = SelectionProblem.build(model.graph, mean, "absolute", 0)
    circuits = [s.circuit for s in solve_path(problem, [int(p * model.graph.n_edges) for p in SIZES[:-1]])]
    # As many pairs as edges. Real scores by span aren't in files, so these are the product of the mean and random ones.
    span_graph = SpanGraph(model.graph, SPANS)
    pair_scores = span_graph.from_plain(mean) * np.random.default_rng(0).standard_t(1.5, span_graph.n_edges)
    pair_problem = SelectionProblem.build(span_graph, pair_scores, "absolute", 0)
    pair_circuits = [s.circuit for s in solve_path(pair_problem, [circuit.n_edges for circuit in circuits])]
    with torch.no_grad():
        for label, batch in batches.items():
            curve = [clock(lambda batch=batch: _references(transformer, batch), repeats)]
            ready, reference = _references(transformer, batch)
            for share, circuit in zip(SIZES, circuits, strict=False):
                numbers = number_nodes([circuit])
                curve.append(clock(lambda: _circuit(ready, circuit, numbers, reference), repeats))  # noqa: B023
                rows[f"circuit {share:g}{label}"] = curve[-1]
            rows["curve of ten sizes" + label] = tuple(np.sum(curve, 0).tolist())
            curve = curve[:1]
            for share, circuit in zip(SIZES, pair_circuits, strict=False):
                numbers = number_nodes([circuit])
                curve.append(clock(lambda: _circuit(ready, circuit, numbers, reference), repeats))  # noqa: B023
                rows[f"circuit {share:g}, pairs{label}"] = curve[-1]
            rows[f"curve of ten sizes, pairs{label}"] = tuple(np.sum(curve, 0).tolist())
    facts = {
        "peak MB of scoring in addition to the model": peak - before,
        **weighted,
        "nodes at 0.01": len(circuits[3].nodes),
        "nodes at 0.01, pairs": len(pair_circuits[3].plain().nodes),
    }
    return rows, model, facts


def weighted_rows(transformer: Transformer, batch: Batch, label: str, repeats: int) -> dict:
    """Measure weighted circuits. The clean and the reference run are computed before, as in a learner."""
    ready, reference = _references(transformer, batch)
    weights = torch.full((transformer.graph.n_edges,), 0.5)
    rows = {}
    for name, own, keep in (
        ("weighted + backward", False, True),
        ("weighted + backward, per example", True, True),
        ("weighted + backward, recomputed", False, False),
    ):
        rows[name + label] = clock(lambda own=own, keep=keep: weighted_pass(ready, reference, own, keep), repeats)
    by_span = replace(ready, by_span=True)
    rows[f"weighted + backward, pairs{label}"] = clock(lambda: weighted_pass(by_span, reference, False, True), repeats)
    with torch.no_grad():
        rows["weighted, forward only" + label] = clock(
            lambda: run_weighted(transformer, weights, ready.clean, reference, ready.frame, ready.last), repeats
        )
    return rows


def weighted_pass(ready: Prepared, reference: Trace, own: bool, keep: bool) -> None:
    """Compute the gradient of all weights: summed over examples, or per example if `own`."""
    n_weights = ready.model.graph.n_edges * (len(SPANS) if ready.by_span else 1)
    weights = torch.full((len(ready.last), n_weights) if own else (n_weights,), 0.5).requires_grad_()
    logits = ready.read_stream(ready.run_weighted(weights, reference, keep), False).answer_logits
    torch.autograd.grad((logits[:, 0] - logits[:, 1]).sum(), weights)


def peak_megabytes(work: Callable[[], object]) -> float:
    """Return the peak memory of this process during `work` (Linux only)."""
    Path("/proc/self/clear_refs").write_text("5")  # reset the peak
    work()
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))


def _references(transformer: Transformer, batch: Batch) -> tuple[Prepared, Trace]:
    with torch.no_grad():
        ready = prepare(transformer, batch)
        ready.read_out(ready.run(ready.clean), False)
        return ready, ready.run(ready.corrupted)


def _circuit(ready: Prepared, circuit: Circuit, numbers: NDArray[np.intp], reference: Trace) -> None:
    spans = ready.spans if isinstance(circuit.graph, SpanGraph) else None
    (stream,) = run_circuits(ready.model, [circuit], numbers, 1, ready.clean, reference, ready.frame, ready.last, spans)
    ready.read_stream(stream, False)


def measure_peer(checkout: str, python: str, threads: int) -> dict:
    """Measure EAP-IG in a separate Python process."""
    command = [python, str(PEER), checkout, str(threads), str(BATCH), str(LENGTH)]
    finished = subprocess.run(command, capture_output=True, text=True)
    if finished.returncode:
        raise SystemExit(f"peer_eap_ig.py failed:\n{finished.stderr[-2000:]}")
    return {label: tuple(value) for label, value in json.loads(finished.stdout.splitlines()[-1]).items()}


def allowed(label: str) -> float | None:
    """Return the most that a row may take, in times its minimum; None for any."""
    title = label.removesuffix(", half")
    if title.endswith(", pairs") and title.removesuffix(", pairs") in BY_SPAN:
        return PAIR_SCORING_LIMIT
    if title.endswith(", pairs") and title.startswith(("circuit", "curve")):
        return PAIR_CIRCUIT_LIMIT
    return GRADIENT_LIMIT if title in SCORERS and title not in UNLIMITED else None


def main() -> None:
    """Parse the options, measure, print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--model", default="gpt2-shape", help="gpt2-shape, smollm2, or a folder of a Llama-shaped model"
    )
    parser.add_argument("--scores", help="an EAP-IG score file of the same graph; its circuits are measured")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--scorers", nargs="+", choices=SCORERS, default=list(SCORERS), help="measure these only")
    parser.add_argument("--peer", help="a checkout of EAP-IG (the folder that contains src)")
    parser.add_argument("--peer-python", default=sys.executable)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    rows, model, facts = measure(args.model, args.repeats, args.scores, args.scorers)
    if args.peer:
        rows |= measure_peer(args.peer, args.peer_python, args.threads)
    forward, last, both = (
        rows[name][0] for name in ("forward, all logits", "forward, last logits", "forward + backward")
    )
    needed = {title: passes(last, both, both - last, model.graph.n_layers) for title, (_, passes) in SCORERS.items()}
    least = {name + half: seconds for name, seconds in needed.items() for half in ("", ", half")}
    least |= {label: both for label in rows if label.startswith("weighted")}
    least["peer EAP-IG-5"] = least["EAP-IG-5"]
    least |= {label: rows[label.replace(", pairs", "")][0] for label in rows if ", pairs" in label}
    table = Table(
        title=f"{args.model}, {model.graph}, batch {BATCH} x {LENGTH} tokens, {args.threads} threads",
        title_justify="left",
    )
    for column in ("", "CPU s / example", "wall s / example", "forwards", "times the minimum", "allowed"):
        table.add_column(column, justify="left" if not column else "right")
    for label, (cpu, wall) in rows.items():
        times, most = cpu / least[label] if label in least else None, allowed(label)
        table.add_row(
            label, f"{cpu:.4f}", f"{wall:.4f}", f"{cpu / forward:.2f}", "" if times is None else f"{times:.2f}",
            "" if most is None or times is None else f"{most:g}{' !' if times > most else ''}",
        )  # fmt: skip
    console = Console(width=120)
    console.print(table)
    console.print(
        f"minimum costs: EAP-IG-5 {least['EAP-IG-5']:.4f} s, EAP {least['EAP']:.4f} s, weighted {both:.4f} s; "
        "forwards: plain forward passes with all logits"
    )
    for label, value in facts.items():
        console.print(f"{label}: {value:.0f}")


if __name__ == "__main__":
    main()
