"""The lower bounds of the dependencies: those that pyproject.toml allows are those that `make test-floor` installs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
EXTRAS = ("hub", "gguf", "devices", "ray", "pandas")


def test_the_floor_constraints_are_the_lower_bounds_of_pyproject():
    tomllib = pytest.importorskip("tomllib")  # Python 3.11
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [requirement for extra in EXTRAS for requirement in project["optional-dependencies"][extra]]
    bounds = dict(re.fullmatch(r"([\w-]+)>=([\d.]+)", text).groups() for text in project["dependencies"] + extras)
    lines = (ROOT / "constraints-floor.txt").read_text().splitlines()
    floor = dict(line.split("==") for line in lines if not line.startswith("#"))
    assert f"torch=={floor.pop('torch')}" in (ROOT / "constraints.txt").read_text().splitlines()
    assert bounds.pop("torch") == "2.7"
    assert floor == bounds
