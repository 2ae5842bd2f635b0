"""A small fuzz run with the same inputs every time. `make fuzz` is the large one."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from edgewise import InputError

from . import watch as watching
from .inputs import ACCEPT, REFUSE, Input
from .readers import READERS, warm_up
from .watch import RAN, FailedError, watch


@pytest.mark.parametrize("name", sorted(READERS))
def test_readers_keep_their_promises_on_hostile_files(name: str, tmp_path: Path) -> None:
    """They raise only InputError, within two seconds and 500 MB, and accept nothing that is wrong."""
    reader, count = READERS[name], iter(range(10**9))
    warm_up(name, tmp_path / "valid")

    @settings(max_examples=reader.small, deadline=None, suppress_health_check=list(HealthCheck))
    @given(reader.inputs())
    def attack(one):
        watch(reader.read, one, tmp_path / str(next(count)) / "input")

    attack()


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
    monkeypatch.setattr(watching, "SECONDS", 0.2)
    monkeypatch.setattr(watching, "PATIENCE", 1)
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    given = Input({"file": b""}, "nothing was done", verdict)
    if words is None:
        assert watch(lambda *_: act(), given, tmp_path / "input").accepted == (verdict == ACCEPT)
    else:
        with pytest.raises(FailedError, match=words):
            watch(lambda *_: act(), given, tmp_path / "input")
    os.environ.pop(RAN, None)
    assert not (tmp_path / "input").exists()
