"""edgewise score: the first stage."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from . import options
from .console import open_model, out, print_json, say

NAME = "score"
SHOWN = 10


def command(
    out_folder: Annotated[Path, typer.Option("--out", help="The folder to write the scores to.")],
    model: options.ModelName = "demo",
    task: options.TaskName = "ioi",
    split: Annotated[str, typer.Option(help="train, validation or test.")] = "train",
    examples: options.Examples = None,
    method: options.Method = "eap-ig",
    steps: options.Steps = None,
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

    from ..disk import refuse_existing, whole_folder
    from ..methods import choose
    from ..models.memory import parse_bytes
    from ..progress import bars
    from ..report.tables import list_table
    from ..score import SCORERS, check_scoring, score_edges
    from ..scores import fill_folder
    from ..tasks import METRICS, load_task

    refuse_existing(out_folder, overwrite)
    room = parse_bytes(memory)
    scorer, measure = choose("scoring method", SCORERS, method, steps=steps), choose("metric", METRICS, metric)
    check_scoring(scorer, measure)
    loaded = open_model(model, device, dtype, bos)
    pairs = load_task(task, loaded, split, examples, seed)
    with whole_folder(out_folder, overwrite) as draft, bars() as progress:
        scores = score_edges(
            loaded, pairs, scorer, measure, batch_size=batch_size, memory=room, file=draft / "scores.npy",
            progress=progress,
        )  # fmt: skip
        scores = replace(scores, provenance={**scores.provenance, "seed": seed})
        fill_folder(draft, scores)
        mean = scores.mean()
    if json:
        print_json(dict(scores.provenance) | {"edges": loaded.graph.n_edges, "out": str(out_folder)})
        return
    names = loaded.graph.edge_names
    rows = [(names[edge], f"{mean[edge]:+.4f}") for edge in np.argsort(-np.abs(mean), kind="stable")[:SHOWN]]
    out.print(list_table(["strongest edges", "score"], rows))
    seconds = scores.provenance["seconds"]
    say(f"{len(pairs)} examples x {loaded.graph.n_edges:,} edges in {seconds:.1f} s, written to {out_folder}")
