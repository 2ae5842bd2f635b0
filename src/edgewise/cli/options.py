"""Options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

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
Device = Annotated[str, typer.Option("--device", help="Any device torch offers; auto takes the best there is.")]
Dtype = Annotated[str, typer.Option("--dtype", help="auto, float32, bfloat16, float16 or float64.")]
BatchSize = Annotated[
    int | None,
    typer.Option("--batch-size", min=1, help="Examples at once; chosen from memory by default. Changes no result."),
]
Memory = Annotated[
    str, typer.Option("--memory", help="Memory for a batch beyond the model, such as 800MB or 2GB. Changes no result.")
]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Seed of the built-in tasks and of the bootstrap.")]
Metric = Annotated[str, typer.Option("--metric", help="logit-difference, probability-difference, kl or accuracy.")]
Ablation = Annotated[
    str,
    typer.Option("--ablation", help="What replaces edges outside a circuit: patching, zero, mean or positional-mean."),
]
Faithfulness = Annotated[
    str, typer.Option("--faithfulness", help="mib: 0 for the empty circuit, 1 for the model; or ratio.")
]
Method = Annotated[str, typer.Option("--method", help="Attribution method: eap-ig or eap.")]
Steps = Annotated[int, typer.Option("--steps", min=1, help="Integration steps of eap-ig.")]
Interval = Annotated[str, typer.Option("--interval", help="Confidence interval: paper, normal or percentile.")]
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
TimeLimit = Annotated[
    float | None, typer.Option("--time-limit", help="Seconds for one ILP; then its best circuit so far, with its gap.")
]
Fill = Annotated[
    bool, typer.Option("--fill", help="Ask greedy and top-n for more until pruning leaves the size asked for.")
]
Nested = Annotated[bool, typer.Option("--nested", help="Each size contains the smaller ones.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Write over an earlier result.")]
Json = Annotated[bool, typer.Option("--json", help="Print the outcome as JSON, for machines.")]
