"""The large run: `python -m tests.fuzz`, or `make fuzz`. Prints counts per reader and keeps the inputs that failed.

Worker processes read one chunk of inputs after the other. A worker that dies is replaced; its last input is kept.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
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
from pathlib import Path
from typing import Any

CHUNK = 200
MAX_KEPT = 3  # inputs of one kind of failure
SILENCE = 300  # seconds after which a worker that says nothing is killed
INPUT = "input"


def main() -> int:
    """Run; return 1 if anything failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--examples", type=int, default=100_000, help="inputs over all readers")
    parser.add_argument("--seconds", type=float, default=1800, help="time limit")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--keep", type=Path, default=Path("fuzz-failures"), help="where inputs that fail are written")
    parser.add_argument("--readers", help="only these, by name, as: result,study")
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    return run_worker(options.worker, options.keep) if options.worker else run(options)


def run(options: argparse.Namespace) -> int:
    """Give chunks to workers until all inputs are read or the time is up, then print the counts."""
    from .readers import READERS

    names = options.readers.split(",") if options.readers else list(READERS)
    total = sum(READERS[name].share for name in names)
    left = {name: max(1, round(options.examples * READERS[name].share / total)) for name in names}
    counts: dict[str, Counter[str]] = {name: Counter() for name in names}
    lock, start, seeds = threading.Lock(), time.monotonic(), itertools.count(options.seed * 10**6)

    def next_chunk() -> dict[str, Any] | None:
        with lock:
            if time.monotonic() - start > options.seconds or not any(left.values()):
                return None
            # The reader with the largest part of its share left, so that a run cut short has read of all.
            name = max(names, key=lambda name: left[name] / READERS[name].share)
            size = min(left[name], CHUNK if READERS[name].share > 0.04 else CHUNK // 8)
            left[name] -= size
            return {"reader": name, "seed": next(seeds), "count": size}

    def serve() -> None:
        worker = Worker(options.keep)
        while (chunk := next_chunk()) is not None:
            result = worker.read(chunk)
            with lock:
                counts[chunk["reader"]].update(result)
        worker.end()

    threads = [threading.Thread(target=serve) for _ in range(options.processes)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(f"{'reader':<12}{'inputs':>9}{'refused':>9}{'accepted':>9}{'failed':>8}")
    for name, count in (*counts.items(), ("all", sum(counts.values(), Counter()))):
        failed = sum(times for key, times in count.items() if key.startswith("FAILED"))
        print(f"{name:<12}{count['inputs']:>9,}{count['refused']:>9,}{count['accepted']:>9,}{failed:>8,}")
    print(f"{time.monotonic() - start:,.0f} s on {options.processes} processes, seed {options.seed}")
    failures = [
        f"{key} ({name}): {times} times"
        for name, count in counts.items()
        for key, times in count.items()
        if key[:6] == "FAILED"
    ]
    print(*failures, sep="\n")
    if failures:
        print(f"inputs that failed are in {os.path.abspath(options.keep)}")
    return int(bool(failures))


class Worker:
    """A process that reads chunks. If it dies, another takes its place."""

    def __init__(self, keep: Path) -> None:
        self.keep = keep
        self.folder = Path(tempfile.mkdtemp(prefix="edgewise-fuzz-"))
        self.process: subprocess.Popen[str] | None = None

    def read(self, chunk: dict[str, Any]) -> dict[str, int]:
        """Return the counts of a chunk."""
        if self.process is None:
            words = [sys.executable, "-m", __package__, "--worker", str(self.folder), "--keep", str(self.keep)]
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
            counts: dict[str, int] = json.loads(line)
            return counts
        reason = f"the process died with {self.process.wait()}"
        self.process = None
        kept = _make_folder(self.keep, chunk["reader"], reason, f"{reason} in chunk {chunk}")
        if kept is not None and (self.folder / INPUT).is_dir():
            (self.folder / INPUT).rename(kept / INPUT)
        shutil.rmtree(self.folder / INPUT, ignore_errors=True)
        return {"inputs": 1, f"FAILED {reason}": 1}

    def end(self) -> None:
        if self.process is not None:
            self.process.communicate()
        shutil.rmtree(self.folder, ignore_errors=True)


def run_worker(folder: Path, keep: Path) -> int:
    """Read chunks: they come in as lines, their counts go out as lines."""
    from .readers import READERS, warm_up

    out, sys.stdout = sys.stdout, sys.stderr
    warnings.simplefilter("ignore")  # libraries warn of odd files
    warm: set[str] = set()
    for line in sys.stdin:
        chunk = json.loads(line)
        name = chunk["reader"]
        if name not in warm:
            warm_up(name, folder / "valid" / name)
            warm.add(name)
        counts = read_chunk(READERS[name], chunk["seed"], chunk["count"], folder / INPUT, keep)
        out.write(json.dumps(counts) + "\n")
        out.flush()
    return 0


def read_chunk(reader: Any, seed: int, size: int, folder: Path, keep: Path) -> dict[str, int]:
    """Read `size` inputs that are drawn with a seed."""
    import hypothesis

    from .watch import FailedError, watch

    counts: Counter[str] = Counter()

    def attack(given: Any) -> None:
        counts["inputs"] += 1
        try:
            counts["accepted" if watch(reader.read, given, folder).accepted else "refused"] += 1
        except FailedError as error:
            counts[f"FAILED {error.signature}"] += 1
            kept = _make_folder(keep, reader.name, error.signature, f"{error.signature}\n\n{error}")
            if kept is not None:
                given.write(kept / INPUT)

    settings = hypothesis.settings(
        max_examples=size,
        deadline=None,
        database=None,
        phases=[hypothesis.Phase.generate],
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    hypothesis.seed(seed)(settings(hypothesis.given(reader.inputs())(attack)))()
    return counts


def _make_folder(keep: Path, reader: str, signature: str, reason: str) -> Path | None:
    """Return a new folder for an input that failed; None if there are enough of its kind."""
    kind = hashlib.sha256(signature.encode()).hexdigest()[:8]
    for number in range(MAX_KEPT):
        folder = keep / f"{reader}-{kind}-{number}"
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        (folder / "why.txt").write_text(reason, encoding="utf-8", errors="backslashreplace")
        return folder
    return None


if __name__ == "__main__":
    sys.exit(main())
