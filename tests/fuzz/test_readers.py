"""Readers under attack, in small: the same inputs every time. `make fuzz` is the large run."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from .readers import READERS, warm_up
from .watch import watch


@pytest.mark.parametrize("name", sorted(READERS))
def test_only_refusals_come_out_of_a_reader(name: str, tmp_path: Path) -> None:
    """Within two seconds and 500 MB each, and nothing is accepted that a strict reading forbids."""
    reader, count = READERS[name], iter(range(10**9))
    warm_up(name, tmp_path / "valid")

    @settings(max_examples=reader.small, deadline=None, suppress_health_check=list(HealthCheck))
    @given(reader.inputs())
    def attack(one):
        watch(reader.read, one, tmp_path / str(next(count)) / "input")

    attack()
