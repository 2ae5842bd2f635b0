"""The figure of a verification: the faithfulness of a circuit against that of random circuits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from . import style
from .style import SCREEN, Page

MAX_BINS = 30


def random_figure(record: Mapping[str, Any], page: Page = SCREEN) -> Figure:
    """Draw how often random circuits have which faithfulness, and a line at the circuit's own."""
    caption = (
        f"Random circuits of {record['edges']:,} {record.get('units', 'edges')} are unions of random paths. Matched "
        "ones are copies of the circuit with other heads of the same layers."
    )
    figure = style.new_figure(6.0, 2.6, "Faithfulness of the circuit and of random circuits", caption, page)
    axes = figure.subplots()
    groups = [
        (name, np.array(record[key]), colour)
        for name, key, colour in (("random", "random", style.GREY), ("matched", "matched", style.BLUE))
        if record[key]
    ]
    own = record["faithfulness"]
    values = np.concatenate([np.array([own["low"], own["high"], 0.0, 1.0]), *(values for _, values, _ in groups)])
    bins = np.linspace(values.min(), values.max(), MAX_BINS + 1)
    handles: list[Artist] = []
    labels: list[str] = []
    for name, group, colour in groups:
        axes.hist(group, bins=bins.tolist(), color=colour, alpha=0.6)
        handles.append(Patch(color=colour, alpha=0.6))
        labels.append(f"{name} ({len(group)})")
    line = axes.axvline(own["estimate"], color=style.VERMILLION, linewidth=1.6)
    axes.axvspan(own["low"], own["high"], color=style.VERMILLION, alpha=0.15, linewidth=0)
    handles.append(line)
    labels.append("this circuit, with its interval")
    axes.set_xlabel("faithfulness (0: empty circuit, 1: model)")
    axes.set_ylabel("circuits")
    style.add_legend(axes, handles, labels, loc="upper center", bbox_to_anchor=(0.5, 1.12), ncols=len(labels))
    return figure
