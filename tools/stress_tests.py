"""Run the tests that depend on other processes again and again while all cores are busy.

    python tools/stress_tests.py                            # five runs
    python tools/stress_tests.py --runs 20 tests/browser    # other tests

These are the tests of the browser, processes, signals, engines, locks and files: a test that relies on time or on a
quiet machine fails here sooner or later. Prints one line per run. Exits with 1 at the first failure, after its output.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TESTS = (
    "tests/browser",
    "tests/test_disk.py",
    "tests/test_engines.py",
    "tests/test_ray.py",
    "tests/test_interruptions.py",
    "tests/test_store.py",
)


def main() -> int:
    """Run the tests; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("tests", nargs="*", default=TESTS, help="files or folders of tests")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--busy", type=int, default=os.cpu_count() or 1, help="processes that compute all the time")
    options = parser.parse_args()
    with busy_processes(options.busy):
        for number in range(1, options.runs + 1):
            started = time.monotonic()
            code, output = run_tests(options.tests)
            words = "passed" if code == 0 else "FAILED"
            print(f"run {number} of {options.runs}: {words} after {time.monotonic() - started:.0f} s", flush=True)
            if code:
                print(output)
                return 1
    return 0


@contextmanager
def busy_processes(count: int) -> Iterator[None]:
    """Keep so many cores busy."""
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def run_tests(tests: Sequence[str]) -> tuple[int, str]:
    """Run tests as `make test` does, up to the first failure; return the exit code and the output."""
    command = [sys.executable, "-m", "pytest", "-n", "2", "-x", *tests]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    done = subprocess.run(command, cwd=ROOT, env=os.environ | {"PYTHONDONTWRITEBYTECODE": ""}, **streams)
    return done.returncode, done.stdout


if __name__ == "__main__":
    sys.exit(main())
