"""Kill commands at random moments, run them again, and compare the result with that of an undisturbed run.

    python tools/kill_runs.py                       # fifty kills each of run, score and study; half an hour
    python tools/kill_runs.py --kills 5 run         # a quick look

SIGKILL ends a command and its child processes at a random moment between its start and its usual end. Then the
command runs again, and may be killed again, up to three times, until it ends by itself. It must leave the files of an
undisturbed command, byte for byte except for recorded times, and no others. Two undisturbed commands are compared
first, so that any difference comes from the kills. Exits with 1 if anything differs.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

COMMANDS = {
    "run": ("run", "--examples", "40", "--learn-steps", "10", "--stability", "3"),
    "learn": ("learn", "--examples", "60", "--steps", "100"),
    "score": ("score", "--examples", "300", "--steps", "10", "--batch-size", "10"),
    "study": (
        "study",
        "--examples",
        "8",
        "--seeds",
        "2",
        "--resamples-grid",
        "5",
        "--kappa-grid",
        "1",
        "--pnr-grid",
        ".5",
    ),
}
NAME = "result"
TIMES = {"seconds", "date", "time", "created"}
# How often a command that was killed is killed again, and how many kills it gets at the most.
AGAIN, MOST = 1 / 3, 3


@dataclass
class Tally:
    """Counts over all trials of one command."""

    kills: int = 0
    resumed: int = 0
    equal: int = 0
    leftovers: int = 0
    trials: int = 0
    remarks: list[str] = field(default_factory=list)


def main() -> int:
    """Kill, resume and compare every command; print a table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("commands", nargs="*", default=["run", "score", "study"], help=f"of {', '.join(COMMANDS)}")
    parser.add_argument("--kills", type=int, default=50, help="of every command, at the least")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if unknown := set(options.commands) - set(COMMANDS):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; choose from {', '.join(COMMANDS)}")
    tallies = {}
    for name in options.commands:
        tallies[name] = _run_trials(name, options.kills, random.Random(f"{options.seed}/{name}"))
    print(f"{'command':8} {'trials':>7} {'kills':>6} {'resumed':>8} {'equal':>6} {'leftovers':>10}")
    for name, tally in tallies.items():
        counts = f"{tally.trials:7} {tally.kills:6} {tally.resumed:8} {tally.equal:6} {tally.leftovers:10}"
        print(f"{name:8} {counts}")
    return int(any(t.equal < t.trials or t.resumed < t.trials or t.leftovers for t in tallies.values()))


def _run_trials(name: str, kills: int, rng: random.Random) -> Tally:
    tally = Tally()
    with tempfile.TemporaryDirectory(prefix="edgewise-kills-") as text:
        _, expected = _undisturbed(name, Path(text) / "first")
        usual, second = _undisturbed(name, Path(text) / "second")
        if differing := _differing(expected, second):
            print(f"{name}: two undisturbed commands differ: {', '.join(differing)}", file=sys.stderr)
            sys.exit(1)
        print(f"{name}: {usual:.1f} s undisturbed", flush=True)
        while tally.kills < kills:
            _run_trial(name, Path(text) / f"trial{tally.trials}", usual, expected, rng, tally)
            tally.trials += 1
            print(f"\r{name}: {tally.kills} kills, {tally.equal} of {tally.trials} equal", end="", flush=True)
    print()
    for remark in tally.remarks:
        print(f"  {remark}")
    return tally


def _undisturbed(name: str, place: Path) -> tuple[float, dict[str, Any]]:
    started = time.monotonic()
    process = _start(name, place)
    _, output = process.communicate()
    if process.returncode:
        sys.exit(f"{name} fails undisturbed: {output.decode()}")
    return time.monotonic() - started, _contents(place / NAME)


def _run_trial(
    name: str, place: Path, usual: float, expected: dict[str, Any], rng: random.Random, tally: Tally
) -> None:
    """Kill one command one to three times, let it finish, and compare what it left."""
    moments: list[float] = []
    while not moments or (len(moments) < MOST and rng.random() < AGAIN):
        moments.append(rng.uniform(0, usual))
        process = _start(name, place)
        try:
            process.wait(timeout=moments[-1])
            break  # faster than usual: it had ended by itself
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            tally.kills += 1
    process = _start(name, place)
    _, output = process.communicate()
    message = output.decode(errors="replace").strip()
    tally.resumed += process.returncode == 0  # also after a kill at the last step: the result is shown again
    differing = _differing(expected, _contents(place / NAME))
    beside = sorted(path.name for path in place.iterdir() if path.name != NAME)
    tally.equal += not differing
    tally.leftovers += len(beside)
    if differing or beside or process.returncode:
        when = ", ".join(f"{moment:.2f} s" for moment in moments)
        last = message.splitlines()[-1:] or [""]
        tally.remarks.append(f"killed at {when}: differing {differing}, beside {beside}, {last[0]}")


def _start(name: str, place: Path) -> subprocess.Popen[bytes]:
    place.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "edgewise", *COMMANDS[name], "--out", str(place / NAME), "--json"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    return subprocess.Popen(
        command, env=environment, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )


def _contents(folder: Path) -> dict[str, Any]:
    """Return every file below a folder by its name: its bytes, or its data without recorded times."""
    return {str(path.relative_to(folder)): _timeless(path) for path in sorted(folder.rglob("*")) if not path.is_dir()}


def _timeless(path: Path) -> Any:
    if path.suffix == ".json":
        return _without_times(json.loads(path.read_bytes()))
    if path.suffix == ".csv":
        return _without_times(list(csv.DictReader(io.StringIO(path.read_text(encoding="utf-8")))))
    return path.read_bytes()


def _without_times(data: Any) -> Any:
    if isinstance(data, dict):
        return {key: _without_times(value) for key, value in data.items() if key not in TIMES}
    return [_without_times(value) for value in data] if isinstance(data, list) else data


def _differing(expected: dict[str, Any], actual: dict[str, Any]) -> Sequence[str]:
    names = sorted(set(expected) | set(actual))
    return [name for name in names if name not in actual or name not in expected or expected[name] != actual[name]]


if __name__ == "__main__":
    sys.exit(main())
