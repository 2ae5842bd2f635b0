"""Stopped, killed, or out of space: a line that says so, nothing lost, nothing half."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from commands import contents, refused, score_file
from paused_command import start_paused
from waiting import PATIENCE

from edgewise.__main__ import is_resumable

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


# What a shell starts in the background ignores SIGINT, and so would all that it starts.
hear = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)


def start(*words, python=("-m", "edgewise")):
    command = [sys.executable, *python, *map(str, words)]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, **streams, text=True, env=ENVIRONMENT, preexec_fn=hear)


# The command stops itself when it looks for a module: always at the same place, however busy the machine is.
STOPPED_BY_IMPORT = """
import os, signal, sys
class Stop:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.{signal})
sys.meta_path.insert(0, Stop())
sys.argv[0] = "edgewise"
import edgewise.__main__
edgewise.__main__.main()
"""


@pytest.mark.parametrize(
    "name, module",
    [("SIGINT", "typer.main"), ("SIGTERM", "torch.nn.modules"), ("SIGINT", "transformers.configuration_utils")],
)
def test_a_stop_during_imports_prints_one_line(tmp_path, name, module):
    script = STOPPED_BY_IMPORT.format(module=module, signal=name)
    process = start("score", "--out", tmp_path / "out", python=("-c", script))
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 128 + getattr(signal, name)
    assert (out, err) == ("", "stopped; run the same command again to resume\n")
    assert list(tmp_path.iterdir()) == []


SWALLOWED = """
import os, signal, sys, time
import edgewise.__main__, edgewise.cli

class Dies:
    def __del__(self):  # what is raised here is lost
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.01)

def command():
    dies = Dies()
    del dies
    time.sleep(200)
    print("finished")

edgewise.cli.main, sys.argv = command, ["edgewise", "run"]
edgewise.__main__.main()
"""


def test_a_stop_inside_a_destructor_is_not_lost():
    process = start(python=("-c", SWALLOWED))
    assert process.communicate(timeout=PATIENCE) == ("", "stopped; run the same command again to resume\n")
    assert process.returncode == 130


@pytest.mark.parametrize(("kind", "code"), [("SIGINT", 130), ("SIGKILL", -9)])
def test_finished_batches_of_scoring_survive_a_stop(edgewise, tmp_path, kind, code):
    words = ("score", "--examples", 8, "--batch-size", 2, "--out")
    results = tmp_path / "results"
    assert edgewise(*words, results / "whole")[0] == 0
    process = start_paused(3, tmp_path, *words, results / "out")
    os.kill(process.pid, getattr(signal, kind))
    process.join(PATIENCE)
    logs = [log.read_text().strip() for log in results.glob(".out.partial/*/done.jsonl")]
    assert (
        process.exitcode == code and [len(log.splitlines()) for log in logs] == [3] and not (results / "out").exists()
    )
    if kind != "SIGKILL":
        assert (tmp_path / "err").read_text().splitlines()[-1] == "stopped; run the same command again to resume"
    code, _, err = edgewise(*words, results / "out")
    assert code == 0 and "resuming" in err
    assert (results / "out/scores.npy").read_bytes() == (results / "whole/scores.npy").read_bytes()
    one, other = (json.loads((results / name / "scores.json").read_text()) for name in ("out", "whole"))
    for record in (one, other):
        record["provenance"].pop("seconds")
    assert one == other and sorted(path.name for path in results.iterdir()) == ["out", "whole"]


def test_only_resumable_commands_say_so():
    assert (
        is_resumable(["run"])
        and is_resumable(["study", "--seeds", "2"])
        and is_resumable(["--quiet", "run"])
        and all(is_resumable([name, "c.json", "--out", "e.json"]) for name in ("evaluate", "knock-out", "verify"))
    )
    assert not any(map(is_resumable, ([], ["tasks"], ["evaluate", "c.json"], ["select", "--out", "c.json"])))


def test_finished_batches_of_evaluation_survive_a_stop(edgewise, tmp_path, monkeypatch):
    from edgewise.runtime.store import PartialUnit

    circuit, put, rows = score_file(tmp_path / "c.json"), PartialUnit.write_rows, []

    def stop(self, some, *about, **arrays):
        put(self, some, *about, **arrays)
        rows.append(some)
        if len(rows) in (2, 5):
            raise KeyboardInterrupt

    words = ("evaluate", circuit, "full", "--examples", 12, "--batch-size", 2, "--per-example", "--out")
    assert edgewise(*words, tmp_path / "whole.json")[0] == 0
    monkeypatch.setattr(PartialUnit, "write_rows", stop)
    assert [edgewise(*words, tmp_path / "out.json")[0] for _ in range(3)] == [130, 130, 0]
    assert sorted(row for some in rows for row in some) == list(range(12))
    assert (tmp_path / "out.json").read_bytes() == (tmp_path / "whole.json").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c.json", "out.json", "whole.json"]


def test_the_second_of_two_commands_on_one_folder_is_an_error(edgewise, tmp_path):
    results = tmp_path / "results"
    process = start_paused(1, tmp_path, "score", "--examples", 4, "--batch-size", 2, "--out", results / "out")
    try:
        assert "another process" in refused(edgewise, "score", "--out", results / "out")
        assert "another process" in refused(edgewise, "run", "--out", results / "out", "--model", "no/such")
    finally:
        (tmp_path / "go").touch()
        process.join(PATIENCE)
    assert process.exitcode == 0
    assert [path.name for path in results.iterdir()] == ["out"]


@contextmanager
def files_of_at_most(size):
    """No file may grow beyond a size: what a full disk does, at a place that the test can choose."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_is_one_line_that_names_the_file_and_changes_nothing(edgewise, tmp_path):
    result, study = tmp_path / "r", tmp_path / "study"
    assert edgewise("run", "--examples", 6, "--no-learned", "--stability", 0, "--out", result)[0] == 0
    grids = ("--resamples-grid", "5", "--kappa-grid", "", "--pnr-grid", ".5", "--seeds", 1, "--examples", 6)
    assert edgewise("study", *grids, "--out", study)[0] == 0
    assert edgewise("score", "--examples", 6, "--out", tmp_path / "s")[0] == 0
    assert edgewise("select", result, "--edges", 9, "--out", tmp_path / "c.json")[0] == 0
    assert edgewise("select", result, "--edges", "9,20", "--out", tmp_path / "many")[0] == 0
    before = contents(tmp_path)
    commands = {
        "score": ("score", "--examples", 6, "--out", tmp_path / "s", "--overwrite"),
        "new score": ("score", "--examples", 6, "--out", tmp_path / "new" / "s"),
        "run": ("run", "--examples", 6, "--no-learned", "--stability", 0, "--out", result, "--overwrite", "--json"),
        "select": ("select", result, "--edges", 30, "--out", tmp_path / "c.json", "--overwrite"),
        "select many": ("select", result, "--edges", "5,30", "--out", tmp_path / "many", "--overwrite"),
        "convert": ("convert", result, tmp_path / "c.json", "--overwrite"),
        "convert pt": ("convert", result, tmp_path / "c.pt"),
        "convert folder": ("convert", tmp_path / "c.json", tmp_path / "s", "--overwrite"),
        "study": ("study", *grids, "--seeds", 2, "--out", study, "--overwrite"),
        "report": ("report", result),
        "report study": ("report", study),
        "evaluate": ("evaluate", tmp_path / "c.json", "--examples", 6, "--out", tmp_path / "e.json"),
    }
    for size in (0, 200, 3000):
        if size > 1000:
            commands.pop("evaluate")  # it fits
        for name, words in commands.items():
            with files_of_at_most(size):
                line = refused(edgewise, *words)
            assert "can't be written" in line and str(tmp_path) in line and ".draft" not in line, (name, line)
            kept = {file: data for file, data in contents(tmp_path).items() if ".partial/" not in file}
            assert kept == before, (name, size)
    assert not (tmp_path / "new").exists() or not list((tmp_path / "new").glob("s"))


def test_a_command_in_a_deleted_folder_is_one_line(tmp_path):
    (tmp_path / "gone").mkdir()
    script = 'cd "$1" && rmdir "$1" && exec "$2" -m edgewise score --examples 4 --out "$3"'
    words = ["sh", "-c", script, "sh", str(tmp_path / "gone"), sys.executable, str(tmp_path / "s")]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 2 and done.stderr == "error: the current folder was deleted; change to one that exists\n"
    assert list(tmp_path.iterdir()) == []


def test_a_read_only_folder_is_one_line_before_any_work(edgewise, tmp_path, monkeypatch):
    denied = tmp_path / "denied"
    denied.mkdir()
    # root may write anywhere, so the answer of the system is replaced.
    access = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != denied and access(path, mode))
    monkeypatch.setattr("edgewise.models.load._load_files", lambda *_: pytest.fail("the work has begun"))
    for command in ("score", "run", "learn"):
        assert f"{denied} is not a folder, or you may" in refused(edgewise, command, "--out", denied / "new")
    assert "you may not write" in refused(edgewise, "evaluate", "full", "--out", denied / "new.json")
    assert list(denied.iterdir()) == []
