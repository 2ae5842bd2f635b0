"""The large run: `python -m tests.fuzz`, or `make fuzz`. Prints per reader what was read, refused, accepted and failed.

Workers read in process, one chunk after the other, so that imports are paid once; one that dies is replaced, and what
it was reading is kept. What fails is written to a folder, with the reason.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

CHUNK = 200
# Of one kind of failure, these many are kept.
KEPT = 3
# A worker that says nothing for so long hangs where no signal reaches it.
SILENCE = 300
INPUT = "input"


@dataclass
class Count:
    """What was seen of one reader: seconds of computing, memory in bytes."""

    inputs: int = 0
    refused: int = 0
    accepted: int = 0
    slowest: float = 0.0
    memory: int = 0
    failures: dict[str, int] = field(default_factory=dict)

    def add(self, other: dict[str, Any]) -> None:
        """Count what a chunk saw as well."""
        for name in ("inputs", "refused", "accepted"):
            setattr(self, name, getattr(self, name) + other[name])
        self.slowest, self.memory = max(self.slowest, other["slowest"]), max(self.memory, other["memory"])
        self.failures = dict(Counter(self.failures) + Counter(other["failures"]))


def main() -> int:
    """Run, print the counts; 1 if anything failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--examples", type=int, default=100_000, help="inputs over all readers")
    parser.add_argument("--seconds", type=float, default=1800, help="at most so long")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--keep", type=Path, default=Path("fuzz-failures"), help="where inputs that fail are written")
    parser.add_argument("--readers", help="only these, by name, as: result,study")
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    return work(given.worker, given.keep) if given.worker else run(given)


def run(given: argparse.Namespace) -> int:
    """Give chunks to workers until all inputs are read or the time is up."""
    from .readers import READERS

    names = given.readers.split(",") if given.readers else list(READERS)
    total = sum(READERS[name].share for name in names)
    left = {name: max(1, round(given.examples * READERS[name].share / total)) for name in names}
    counts = {name: Count() for name in names}
    lock, began, seeds = threading.Lock(), time.monotonic(), iter(range(given.seed * 10**6, 10**12))

    def next_chunk() -> dict[str, Any] | None:
        """Of the reader that has the largest part of its share to go, so that a run cut short has read of all."""
        with lock:
            if time.monotonic() - began > given.seconds or not any(left.values()):
                return None
            name = max(names, key=lambda one: left[one] / READERS[one].share)
            # Slow readers in small chunks, so that the clock is looked at in time.
            size = min(left[name], CHUNK if READERS[name].share > 0.04 else CHUNK // 8)
            left[name] -= size
            return {"reader": name, "seed": next(seeds), "count": size}

    def serve() -> None:
        worker = Worker(given.keep)
        while (chunk := next_chunk()) is not None:
            found = worker.do(chunk)
            with lock:
                counts[chunk["reader"]].add(found)
        worker.end()

    threads = [threading.Thread(target=serve) for _ in range(given.processes)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    show(counts, time.monotonic() - began, given)
    return int(any(count.failures for count in counts.values()))


class Worker:
    """A process that reads chunks; another takes its place if it dies. What it reads lies in a folder of its own."""

    def __init__(self, keep: Path) -> None:
        self.keep = keep
        self.place = Path(tempfile.mkdtemp(prefix="edgewise-fuzz-"))
        self.process: subprocess.Popen[str] | None = None

    def do(self, chunk: dict[str, Any]) -> dict[str, Any]:
        """What a chunk came to."""
        if self.process is None:
            words = [sys.executable, "-m", __package__, "--worker", str(self.place), "--keep", str(self.keep)]
            self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdin is not None and self.process.stdout is not None
        alarm = threading.Timer(SILENCE, self.process.kill)
        alarm.start()
        try:
            self.process.stdin.write(json.dumps(chunk) + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        finally:
            alarm.cancel()
        if line:
            return json.loads(line)
        what = f"the process died with {self.process.wait()}"
        self.process = None
        kept = _keep(self.keep, chunk["reader"], f"{what} in chunk {chunk}", what)
        if kept is not None and (self.place / INPUT).is_dir():
            (self.place / INPUT).rename(kept / INPUT)
        shutil.rmtree(self.place / INPUT, ignore_errors=True)
        return asdict(Count(inputs=1)) | {"failures": {what: 1}}

    def end(self) -> None:
        """Let the process end."""
        if self.process is not None:
            self.process.communicate()
        shutil.rmtree(self.place, ignore_errors=True)


def work(place: Path, keep: Path) -> int:
    """A worker: chunks come in as lines, counts go out as lines."""
    from .readers import READERS, warm_up

    out, sys.stdout = sys.stdout, sys.stderr
    warnings.simplefilter("ignore")  # of libraries, on files that are odd on purpose
    warm: set[str] = set()
    for line in sys.stdin:
        chunk = json.loads(line)
        name = chunk["reader"]
        if name not in warm:
            warm_up(name, place / "valid" / name)
            warm.add(name)
        count = read_chunk(READERS[name], chunk["seed"], chunk["count"], place, keep)
        out.write(json.dumps(asdict(count)) + "\n")
        out.flush()
    return 0


def read_chunk(reader: Any, seed: int, size: int, place: Path, keep: Path) -> Count:
    """So many inputs, drawn with a seed."""
    import hypothesis

    from .watch import FailedError, watch

    count = Count()

    def attack(given: Any) -> None:
        count.inputs += 1
        try:
            seen = watch(reader.read, given, place / INPUT)
        except FailedError as error:
            count.failures[error.signature] = count.failures.get(error.signature, 0) + 1
            kept = _keep(keep, reader.name, f"{error.signature}\n\n{error}", error.signature)
            if kept is not None:
                given.write(kept / INPUT)
            return
        count.accepted += seen.accepted
        count.refused += not seen.accepted
        count.slowest, count.memory = max(count.slowest, seen.seconds), max(count.memory, seen.memory)

    drawn = hypothesis.given(reader.inputs())(attack)
    settled = hypothesis.settings(
        max_examples=size,
        deadline=None,
        database=None,
        phases=[hypothesis.Phase.generate],
        suppress_health_check=list(hypothesis.HealthCheck),
    )(drawn)
    hypothesis.seed(seed)(settled)()
    return count


def _keep(keep: Path, reader: str, words: str, signature: str = "") -> Path | None:
    """A folder for what failed; None if there are enough of its kind."""
    import hashlib

    kind = hashlib.sha256((signature or words).encode()).hexdigest()[:8]
    for number in range(KEPT):
        folder = keep / f"{reader}-{kind}-{number}"
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        (folder / "why.txt").write_text(words, encoding="utf-8", errors="backslashreplace")
        return folder
    return None


def show(counts: dict[str, Count], seconds: float, given: argparse.Namespace) -> None:
    """The counts, one line per reader."""
    print(f"{'reader':<12}{'inputs':>9}{'refused':>9}{'accepted':>9}{'failed':>8}{'slowest':>10}{'memory':>10}")
    total = Count()
    for name, count in counts.items():
        _line(name, count)
        total.add(asdict(count))
    _line("all", total)
    print(f"{seconds:,.0f} s on {given.processes} processes, seed {given.seed}")
    for name, count in counts.items():
        for signature, times in Counter(count.failures).most_common():
            print(f"FAILED {name}: {times} x {signature}")
    if total.failures:
        print(f"inputs that failed are in {os.path.abspath(given.keep)}")


def _line(name: str, count: Count) -> None:
    failed = sum(count.failures.values())
    numbers = f"{count.inputs:>9,}{count.refused:>9,}{count.accepted:>9,}{failed:>8,}"
    print(f"{name:<12}{numbers}{count.slowest:>8.2f} s{count.memory / 2**20:>7.0f} MB")


if __name__ == "__main__":
    sys.exit(main())
