"""Every reader on hostile files: few inputs, the same every time, or many with `make fuzz`."""

from __future__ import annotations

import math
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, seed, settings

from edgewise import InputError

from . import watch as watching
from .inputs import ACCEPT, REFUSE, Input
from .readers import READERS, warm_up
from .watch import RAN, FailedError, watch

# `make fuzz` reads many times as many inputs, with seeds of its own for each round.
TIMES, SEED = int(os.environ.get("EDGEWISE_FUZZ_TIMES", 1)), int(os.environ.get("EDGEWISE_FUZZ_SEED", 0))
TIMES_PER_ROUND = 16


@pytest.mark.parametrize("name", sorted(READERS))
def test_readers_keep_their_promises_on_hostile_files(name: str, tmp_path: Path) -> None:
    """They raise only InputError, within two seconds and 500 MB, and accept nothing that is wrong."""
    reader, rounds = READERS[name], math.ceil(TIMES / TIMES_PER_ROUND)
    warm_up(reader, tmp_path / "valid")

    @settings(max_examples=reader.count * TIMES // rounds, deadline=None, suppress_health_check=list(HealthCheck))
    @given(reader.inputs())
    def attack(one):
        watch(reader.read, one, tmp_path / "input")

    for number in range(rounds):
        seed(SEED * 10**6 + number)(attack)()


def _raise(error: BaseException) -> None:
    raise error


def _lack() -> None:
    try:
        np.ones(10**9)
    except MemoryError:
        raise InputError("that is too large") from None


def _loop() -> None:
    while True:
        pass


@pytest.mark.parametrize(
    "act, verdict, words",
    [
        (lambda: None, ACCEPT, None),
        (lambda: _raise(InputError("no")), REFUSE, None),
        (lambda: None, REFUSE, "accepted"),
        (lambda: _raise(InputError("no")), ACCEPT, "refused"),
        (lambda: _raise(KeyError("x")), None, "KeyError"),
        (lambda: _raise(SystemExit(1)), None, "SystemExit"),
        (lambda: _raise(KeyboardInterrupt()), None, "KeyboardInterrupt"),
        (lambda: np.ones(10**8), None, "too much memory"),
        (_lack, REFUSE, "too much memory"),
        (_loop, None, "too long"),
        (lambda: os.open(Path("pipe").absolute(), os.O_RDONLY), None, "too long"),
        (lambda: os.environ.update({RAN: "1"}), None, "code"),
    ],
)
def test_watch_reports_every_broken_promise(act, verdict, words, tmp_path, monkeypatch):
    if words == "too long":
        monkeypatch.setattr(watching, "SECONDS", 0.2)
        monkeypatch.setattr(watching, "PATIENCE", 1)
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    given = Input({"file": b""}, "nothing was done", verdict)
    if words is None:
        assert watch(lambda *_: act(), given, tmp_path / "input") == (verdict == ACCEPT)
    else:
        with pytest.raises(FailedError, match=words):
            watch(lambda *_: act(), given, tmp_path / "input")
    os.environ.pop(RAN, None)
    assert (tmp_path / "input" / "file").exists() == (words is not None)  # what failed is kept
