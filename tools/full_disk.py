"""Run commands on disks that are too small, and check their messages and what they leave.

    sudo python tools/full_disk.py                  # all commands
    sudo python tools/full_disk.py score report     # some

Small disks are tmpfs mounts, which only root can make (on Linux). A command whose result does not fit must exit with
2, print exactly one line that begins with `error:` and names a file on that disk, print no traceback, and leave the
files of before unchanged, byte for byte. Every command runs on five disks:

    64 KB, 1 MB     empty; a command whose result fits may succeed
    full            an earlier result of the same name, --overwrite, and no free space
    half, last      the same, with space for half of the new result, or for all of it except its last pages

Exits with 1 if anything went wrong.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

PAGE = 4096
GRIDS = ("--seeds", "1", "--resamples-grid", "5", "--kappa-grid", "1", "--pnr-grid", ".5")
DISKS = ("64 KB", "1 MB", "full", "half", "last")


@dataclass(frozen=True)
class Command:
    """A command line; `OUT` stands for the path of its result, `SCORES` for scores to read.

    earlier    the command line that wrote the result of before; `report` writes into that
    name       the file or folder name of the result
    """

    words: tuple[str, ...]
    earlier: tuple[str, ...]
    name: str = "result"


COMMANDS = {
    "score": Command(
        ("score", "--examples", "200", "--out", "OUT"), ("score", "--examples", "4", "--out", "OUT")
    ),
    "learn": Command(
        ("learn", "--examples", "8", "--steps", "20", "--out", "OUT"),
        ("learn", "--examples", "4", "--steps", "5", "--out", "OUT"),
    ),
    "run": Command(
        ("run", "--examples", "12", "--no-learned", "--stability", "0", "--out", "OUT"),
        ("run", "--examples", "4", "--no-learned", "--stability", "0", "--out", "OUT"),
    ),
    "select": Command(
        ("select", "SCORES", "--edges", "40", "--out", "OUT"), ("select", "SCORES", "--edges", "9", "--out", "OUT"),
        "circuit.json",
    ),
    "select-several": Command(
        ("select", "SCORES", "--size", "0.1,0.2,0.5", "--out", "OUT"),
        ("select", "SCORES", "--size", "0.1,0.2,0.5", "--solver", "greedy", "--out", "OUT"),
    ),
    "convert": Command(
        ("convert", "SCORES", "OUT"), ("select", "SCORES", "--edges", "9", "--out", "OUT"), "scores.json"
    ),
    "convert-pt": Command(
        ("convert", "SCORES", "OUT"), ("select", "SCORES", "--edges", "9", "--out", "OUT"), "scores.pt"
    ),
    "evaluate": Command(
        ("evaluate", "full", "--examples", "12", "--out", "OUT", "--json"),
        ("evaluate", "empty", "--examples", "4", "--out", "OUT", "--json"), "outcome.json",
    ),
    "study": Command(
        ("study", "--examples", "8", *GRIDS, "--out", "OUT"), ("study", "--examples", "6", *GRIDS, "--out", "OUT")
    ),
    "report": Command(
        ("report", "OUT"), ("run", "--examples", "12", "--no-learned", "--stability", "0", "--out", "OUT")
    ),
    "report-study": Command(("report", "OUT"), ("study", "--examples", "8", *GRIDS, "--out", "OUT")),
}  # fmt: skip


def main() -> int:
    """Fill disks, run commands and check them; print a table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("commands", nargs="*", default=list(COMMANDS), help=f"of {', '.join(COMMANDS)}")
    options = parser.parse_args()
    if unknown := set(options.commands) - set(COMMANDS):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; choose from {', '.join(COMMANDS)}")
    if sys.platform != "linux" or os.geteuid() != 0:
        parser.error("small disks are tmpfs mounts, which only root can make, on Linux")
    wrong = right = 0
    print(f"{'command':15} {'disk':6} {'exit':>4}  verdict")
    with tempfile.TemporaryDirectory(prefix="edgewise-disks-") as text:
        place = Path(text)
        scores = place / "scores"
        _check_success(_edgewise(("score", "--examples", "12", "--out", str(scores))))
        for name in options.commands:
            made = place / name
            made.mkdir()
            for disk in DISKS:
                outcome = _run_on(COMMANDS[name], disk, made, scores, place / "disk")
                if outcome is None:
                    continue
                code, problems, line = outcome
                verdict = "; ".join(problems) or (f"fine: {line}" if code else "fits")
                print(f"{name:15} {disk:6} {code:4}  {verdict}", flush=True)
                wrong, right = wrong + bool(problems), right + (not problems)
    print(f"{right} as they should be, {wrong} not")
    return int(bool(wrong))


def _run_on(command: Command, disk: str, made: Path, scores: Path, mount: Path) -> tuple[int, list[str], str] | None:
    """Run one command on one disk; return its exit code, problems and message, or None if the disk does not apply."""
    in_place = command.words[0] == "report"
    before, after = made / "before" / command.name, made / "after" / command.name
    if not after.parent.is_dir():
        _write_results(command, before, after, scores, in_place)
    if disk in ("64 KB", "1 MB"):
        if in_place:
            return None
        size, free = (64 if disk == "64 KB" else 1024) * 1024, None
    else:
        need = _room(after)
        free = {"full": 0, "half": need // 2, "last": need - PAGE}[disk] // PAGE * PAGE
        size = _room(before) + free + 16 * PAGE
    with _mount(mount, size):
        out = mount / command.name
        if free is not None:
            _copy(before, out)
            _fill(mount, free)
        was = _digests(mount)
        overwrite = free is not None and _can_overwrite(command.words[0])
        words = (*_fill_in(command.words, out, scores), *(["--overwrite"] if overwrite else []))
        done = _edgewise(words)
        return done.returncode, _problems(done, mount, was), " ".join(_error_lines(done))


@cache
def _can_overwrite(verb: str) -> bool:
    return "--overwrite" in _edgewise((verb, "--help")).stdout


def _write_results(command: Command, before: Path, after: Path, scores: Path, in_place: bool) -> None:
    """Write the result of before, and the result that the command leaves on a disk that is large enough."""
    for path in (before, after):
        path.parent.mkdir()
    out = before.with_suffix(".json") if before.suffix else before
    _check_success(_edgewise(_fill_in(command.earlier, out, scores)))
    if before.suffix == ".pt":  # any file of that name will do
        before.with_suffix(".json").rename(before)
    if in_place:
        _copy(before, after)
    _check_success(_edgewise(_fill_in(command.words, after, scores)))


def _problems(done: subprocess.CompletedProcess[str], mount: Path, was: dict[str, str]) -> list[str]:
    """Return everything that a command on a full disk did wrong."""
    if done.returncode == 0:
        return []
    lines, problems = _error_lines(done), []
    if done.returncode != 2:
        problems.append(f"exit code {done.returncode}")
    if "Traceback" in done.stderr:
        problems.append(f"a traceback: {done.stderr.strip().splitlines()[-1]}")
    elif len(lines) != 1:
        problems.append(f"{len(lines)} lines that begin with error:")
    elif str(mount) not in lines[0]:
        problems.append(f"no file is named: {lines[0]}")
    now = _digests(mount)
    if lost := sorted(name for name in was if now.get(name) != was[name]):
        problems.append(f"no longer whole: {', '.join(lost[:3])}{' ...' * (len(lost) > 3)} ({len(lost)} of {len(was)})")
    return problems


def _error_lines(done: subprocess.CompletedProcess[str]) -> list[str]:
    return [line for line in done.stderr.splitlines() if line.startswith("error:")]


def _edgewise(words: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "COLUMNS": "200"}
    return subprocess.run(
        [sys.executable, "-m", "edgewise", *words],
        env=environment,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
    )


def _check_success(done: subprocess.CompletedProcess[str]) -> None:
    if done.returncode:
        sys.exit(f"a command fails on a large disk too: {done.stderr}")


def _fill_in(words: tuple[str, ...], out: Path, scores: Path) -> tuple[str, ...]:
    names = {"OUT": str(out), "SCORES": str(scores)}
    return tuple(names.get(word, word) for word in words)


@contextmanager
def _mount(place: Path, size: int) -> Iterator[None]:
    place.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(place)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", str(place)], check=True)


def _fill(place: Path, free: int) -> None:
    """Write a file that leaves `free` bytes of space."""
    with (place / "others").open("wb", buffering=0) as file:
        try:
            while os.statvfs(place).f_bavail * os.statvfs(place).f_frsize > free:
                file.write(b"x" * PAGE)
        except OSError:  # full
            pass


def _copy(source: Path, target: Path) -> None:
    (shutil.copytree if source.is_dir() else shutil.copy2)(source, target)


def _room(path: Path) -> int:
    """Return the bytes that a file or folder takes on such a disk."""
    files = [path, *path.rglob("*")] if path.is_dir() else [path]
    return sum(-(-file.stat().st_size // PAGE) * PAGE for file in files if file.is_file())


def _digests(folder: Path) -> dict[str, str]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


if __name__ == "__main__":
    sys.exit(main())
