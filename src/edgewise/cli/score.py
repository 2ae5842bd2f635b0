"""edgewise score: the first stage."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from . import options
from .console import open_model, out, print_json, progress_bars, say

NAME = "score"
SHOWN = 10


def command(
    out_folder: Annotated[Path, typer.Option("--out", help="The folder to write the scores to.")],
    model: options.ModelName = "demo",
    task: options.TaskName = "ioi",
    split: Annotated[str, typer.Option(help="train, validation or test.")] = "train",
    examples: options.Examples = None,
    method: options.Method = "eap-ig",
    steps: options.Steps = 5,
    metric: options.Metric = "logit-difference",
    device: options.Device = "auto",
    dtype: options.Dtype = "auto",
    bos: options.Bos = "auto",
    batch_size: options.BatchSize = None,
    memory: options.Memory = "1GB",
    seed: options.Seed = 0,
    overwrite: options.Overwrite = False,
    json: options.Json = False,
) -> None:
    """Score every edge for every example: how much would corrupting it hurt?

    Writes scores.npy [example, edge] and scores.json. A positive score marks an edge that helps the task.
    """
    import numpy as np

    from ..formats.score_folder import write_scores
    from ..formats.write import refuse_existing, whole_folder
    from ..models.memory import parse_bytes
    from ..report.tables import list_table
    from ..score import check_scoring, score_edges
    from ..tasks import load_task

    refuse_existing(out_folder, overwrite)
    room = parse_bytes(memory)
    check_scoring(method, steps, metric)
    loaded = open_model(model, device, dtype, bos)
    pairs = load_task(task, loaded, split, examples, seed)
    started = time.perf_counter()
    with whole_folder(out_folder, overwrite) as draft, progress_bars() as progress:
        scores = score_edges(
            loaded, pairs, method, steps, metric, batch_size,
            lambda done, total: progress("score", done, total), draft / "scores.npy", {"seed": seed}, room,
        )  # fmt: skip
        write_scores(draft, scores)
        mean = scores.mean()
    seconds = time.perf_counter() - started
    if json:
        print_json(
            dict(scores.provenance) | {"edges": loaded.graph.n_edges, "seconds": seconds, "out": str(out_folder)}
        )
        return
    names = loaded.graph.edge_names
    rows = [(names[edge], f"{mean[edge]:+.4f}") for edge in np.argsort(-np.abs(mean), kind="stable")[:SHOWN]]
    out.print(list_table(["strongest edges", "score"], rows))
    say(f"{len(pairs)} examples x {loaded.graph.n_edges:,} edges in {seconds:.1f} s, written to {out_folder}")
