"""What the pages show is run, and what they list exists."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import edgewise
from edgewise.evaluate import ABLATIONS, BENCHMARKS, FAITHFULNESS
from edgewise.score import SCORERS
from edgewise.select import SOLVERS
from edgewise.statistics import INTERVALS
from edgewise.tasks import METRICS

ROOT = Path(__file__).parents[1]


def blocks(page: str) -> list[str]:
    """The Python of a page, one piece per heading's block."""
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), flags=re.S)


def test_methods_of_ones_own_run_straight_from_the_page(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    pieces = blocks("docs/how-to-extend.md")
    assert len(pieces) == 6
    for piece in pieces:
        exec(piece, names)
    for kind in ("Halfway", "LogitsFirst", "LogProbability", "Blend"):
        body = next(piece for piece in pieces if f"class {kind}" in piece).split("@dataclass")[1].split("\n\n\n")[0]
        assert len(body.strip().splitlines()) <= 14, kind

    model, train, circuit = (names[name] for name in ("model", "train", "circuit"))
    assert names["scores"].values.shape == (20, model.graph.n_edges) and circuit.n_edges <= 60
    # Halfway is the gradient of EAP-IG with two steps less that at the corrupted end.
    two, one = (edgewise.score_edges(model, train, edgewise.EapIg(steps)).values for steps in (2, 1))
    np.testing.assert_allclose(names["scores"].values, 2 * two - one, rtol=1e-3, atol=1e-4)
    result = edgewise.read_result("results/mine")
    assert [row.name for row in result.rows] == ["Greedy", "LogitsFirst + Shrinkage"]
    assert result.run.settings["scorer"] == "Halfway"
    assert result.run.settings["ablation"] == {"name": "Blend", "share": 0.25}


def test_the_readmes_python_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for piece in blocks("README.md"):
        exec(piece.replace('"train")', '"train", 20)').replace('"test")', '"test", 20)'), {})
    assert "->" in capsys.readouterr().out


FAMILIES = [SCORERS, SOLVERS, METRICS, ABLATIONS, FAITHFULNESS, INTERVALS, BENCHMARKS]


@pytest.mark.parametrize("known", FAMILIES, ids=lambda known: next(iter(known)))
def test_how_to_choose_knows_every_name(known):
    page = (ROOT / "docs" / "how-to-choose.md").read_text(encoding="utf-8").lower()
    assert [name for name in known if f"`{name.lower()}`" not in page and f"**{name.lower()}**" not in page] == []


def test_the_assumptions_page_knows_every_scorer_and_ablation():
    page = (ROOT / "docs" / "assumptions.md").read_text(encoding="utf-8")
    assert [name for name in (*SCORERS, *ABLATIONS) if f"| `{name}` |" not in page] == []
