"""edgewise models: what can be loaded, and how large its graph is."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from . import options
from .console import open_model, out, print_json

NAME = "models"


def command(
    name: Annotated[
        str | None, typer.Argument(help="A model to look at: demo, a folder, or a name on the hub.")
    ] = None,
    json: options.Json = False,
) -> None:
    """List the model families that are supported, or look at one model's graph."""
    from ..models import FAMILIES
    from ..report.tables import key_value_table, list_table

    if name is None:
        if json:
            families = {
                kind: {"honours": sorted(family.honours), "demands": dict(family.demands)}
                for kind, family in FAMILIES.items()
            }
            print_json({"models": ["demo"], "families": families})
            return
        rows = [
            (kind, "; ".join(f"{k} = {' or '.join(map(str, v))}" for k, v in family.demands.items()) or "-")
            for kind, family in FAMILIES.items()
        ]
        out.print(list_table(["family (model_type)", "demands on the config"], rows))
        out.print(
            "--model demo is embedded; others come from a folder in HuggingFace's layout or from the hub by name."
        )
        return
    model = open_model(name, "cpu", "auto")
    graph = model.graph
    facts = {
        "model": name,
        **asdict(graph),
        "nodes": graph.n_nodes,
        "edges": graph.n_edges,
        "vocabulary": model.vocabulary,
        "longest_prompt": model.transformer.max_length,
        "bos": model.bos,
    }
    if json:
        print_json(facts)
        return
    out.print(key_value_table(name, facts))
