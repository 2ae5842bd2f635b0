"""Kill commands at random moments, give them again, and see whether they end as if nothing had happened.

    python tools/kill_runs.py                       # fifty kills each of run, score and study; half an hour
    python tools/kill_runs.py --kills 5 run         # a quick look

A command is ended by SIGKILL, with all that it started, at a moment between its start and its usual end; then it is
given again, sometimes killed again, up to three times, until it ends by itself. What it leaves must be what an
undisturbed command leaves: the same files with the same bytes, recorded times aside, and nothing beside them. Two
undisturbed commands are compared first, so that a difference is one of the kills. Exits with 1 if anything differs.
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
    """What became of one command's kills."""

    kills: int = 0
    resumed: int = 0
    equal: int = 0
    leftovers: int = 0
    trials: int = 0
    remarks: list[str] = field(default_factory=list)


def main() -> int:
    """Kill, resume, compare; prints a table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("commands", nargs="*", default=["run", "score", "study"], help=f"of {', '.join(COMMANDS)}")
    parser.add_argument("--kills", type=int, default=50, help="of every command, at the least")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    if unknown := set(given.commands) - set(COMMANDS):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; choose from {', '.join(COMMANDS)}")
    tallies = {}
    for name in given.commands:
        tallies[name] = _trials(name, given.kills, random.Random(f"{given.seed}/{name}"))
    print(f"{'command':8} {'trials':>7} {'kills':>6} {'resumed':>8} {'equal':>6} {'leftovers':>10}")
    for name, found in tallies.items():
        counts = f"{found.trials:7} {found.kills:6} {found.resumed:8} {found.equal:6} {found.leftovers:10}"
        print(f"{name:8} {counts}")
    return int(any(t.equal < t.trials or t.resumed < t.trials or t.leftovers for t in tallies.values()))


def _trials(name: str, kills: int, chance: random.Random) -> Tally:
    found = Tally()
    with tempfile.TemporaryDirectory(prefix="edgewise-kills-") as text:
        calm, again = Path(text) / "calm", Path(text) / "again"
        _, expected = _undisturbed(name, calm)
        usual, second = _undisturbed(name, again)
        if differing := _differing(expected, second):
            print(f"{name}: two undisturbed commands differ: {', '.join(differing)}", file=sys.stderr)
            sys.exit(1)
        print(f"{name}: {usual:.1f} s undisturbed", flush=True)
        while found.kills < kills:
            _trial(name, Path(text) / f"trial{found.trials}", usual, expected, chance, found)
            found.trials += 1
            print(f"\r{name}: {found.kills} kills, {found.equal} of {found.trials} equal", end="", flush=True)
    print()
    for remark in found.remarks:
        print(f"  {remark}")
    return found


def _undisturbed(name: str, place: Path) -> tuple[float, dict[str, Any]]:
    started = time.monotonic()
    process = _start(name, place)
    _, words = process.communicate()
    if process.returncode:
        sys.exit(f"{name} fails undisturbed: {words.decode()}")
    return time.monotonic() - started, _contents(place / NAME)


def _trial(name: str, place: Path, usual: float, expected: dict[str, Any], chance: random.Random, found: Tally) -> None:
    """One command, killed once to three times, and what it left in the end."""
    moments: list[float] = []
    while not moments or (len(moments) < MOST and chance.random() < AGAIN):
        moments.append(chance.uniform(0, usual))
        process = _start(name, place)
        try:
            process.wait(timeout=moments[-1])
            break  # faster than usual: it had ended by itself
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            found.kills += 1
    process = _start(name, place)
    _, words = process.communicate()
    told = words.decode(errors="replace").strip()
    # Killed behind its last step, a command has nothing left to do, and says that its result is there.
    found.resumed += process.returncode == 0 or "exists already" in told
    differing = _differing(expected, _contents(place / NAME))
    beside = sorted(path.name for path in place.iterdir() if path.name != NAME)
    found.equal += not differing
    found.leftovers += len(beside)
    if differing or beside or process.returncode not in (0, 2):
        when = ", ".join(f"{moment:.2f} s" for moment in moments)
        last = told.splitlines()[-1:] or [""]
        found.remarks.append(f"killed at {when}: differing {differing}, beside {beside}, {last[0]}")


def _start(name: str, place: Path) -> subprocess.Popen[bytes]:
    place.mkdir(exist_ok=True)
    words = [sys.executable, "-m", "edgewise", *COMMANDS[name], "--out", str(place / NAME), "--json"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    return subprocess.Popen(
        words, env=environment, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )


def _contents(folder: Path) -> dict[str, Any]:
    """Every file below a folder, by its name: its bytes, or what it says beyond times."""
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


def _differing(expected: dict[str, Any], found: dict[str, Any]) -> Sequence[str]:
    names = sorted(set(expected) | set(found))
    return [name for name in names if name not in found or name not in expected or expected[name] != found[name]]


if __name__ == "__main__":
    sys.exit(main())
