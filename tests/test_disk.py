"""Atomic writes: never partial, never through a link, never over foreign files."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from commands import contents
from waiting import PATIENCE

from edgewise import Circuit, EdgeScores, Graph, InputError
from edgewise.io import atomic as disk
from edgewise.io.arrays import read_array, write_array, write_arrays
from edgewise.io.atomic import atomic_file, atomic_folder, check_file, check_folder, write_text

OURS = r"run\.json|data/\d+\.txt"


def old_folder(path: Path) -> Path:
    (path / "data").mkdir(parents=True)
    (path / "run.json").write_text('{"format": "edgewise-result"}')
    (path / "data" / "1.txt").write_text("old")
    return path


def replace(path: Path, text: str = "new") -> None:
    with atomic_folder(path, True, OURS) as draft:
        (draft / "run.json").write_text(text)


def test_a_file_is_replaced_not_written_through_a_link(tmp_path):
    (tmp_path / "precious.txt").write_text("mine")
    (tmp_path / "link.txt").symlink_to(tmp_path / "precious.txt")
    write_text(tmp_path / "link.txt", "new")
    assert (tmp_path / "precious.txt").read_text() == "mine"
    assert (tmp_path / "link.txt").read_text() == "new" and not (tmp_path / "link.txt").is_symlink()


def test_content_is_on_the_disk_before_it_has_its_name(tmp_path, monkeypatch):
    """Or else a power cut could leave a name without content."""
    events, replace_file, replace_folder = [], os.replace, disk.replace_folder
    monkeypatch.setattr(os, "fsync", lambda handle: events.append(os.fstat(handle).st_ino))
    monkeypatch.setattr(os, "replace", lambda *names: [events.append("named"), replace_file(*names)])
    monkeypatch.setattr(disk, "replace_folder", lambda *names: [events.append("named"), replace_folder(*names)])
    write_text(tmp_path / "file", "new")
    parent = tmp_path.stat().st_ino
    assert events == [(tmp_path / "file").stat().st_ino, "named", parent]
    events.clear()
    with atomic_folder(tmp_path / "folder") as draft:
        write_text(draft / "inner" / "file", "new")
    folder = tmp_path / "folder"
    assert set(events[:-2]) - {"named"} == {
        path.stat().st_ino for path in (folder, folder / "inner", folder / "inner" / "file")
    }
    assert events[-2:] == ["named", parent]


def test_devices_folders_and_existing_files_raise_before_the_work(tmp_path):
    with pytest.raises(InputError, match="device"):
        check_file(Path("/dev/null"))
    with pytest.raises(InputError, match="is a folder"):
        check_file(tmp_path)
    (tmp_path / "there").write_text("x")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    for name in ("there", "dangling"):
        with pytest.raises(InputError, match="overwrite=True"):
            check_file(tmp_path / name, overwrite=False)
        check_file(tmp_path / name, overwrite=True)
    with pytest.raises(InputError, match="is an input"):
        check_file(tmp_path / "there", True, [tmp_path / "there"])
    with pytest.raises(InputError, match=r"is not a folder"):
        check_file(tmp_path / "there" / "deeper" / "file")


def test_folders_that_cannot_be_written_raise_before_the_work(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "file").write_text("")
    for path, words in ((".", "you are in"), ("..", "you are in"), (str(tmp_path), "you are in"), ("/", "you are in"),
                        ("link", "is a link"), ("file", "is a file"), ("/proc", "mount point")):  # fmt: skip
        with pytest.raises(InputError, match=words):
            check_folder(Path(path), True, OURS)
    check_folder(tmp_path / "real")
    check_folder(tmp_path / "link" / "inside")  # where a link leads may be written to, the link itself not


@pytest.mark.parametrize("stranger", ["notes.txt", "data/thesis.tex", "data/1.txt.bak", "deep/er/1.txt"])
def test_a_folder_with_a_foreign_file_is_not_replaced(tmp_path, stranger):
    folder = old_folder(tmp_path / "r")
    (folder / stranger).parent.mkdir(exist_ok=True, parents=True)
    (folder / stranger).write_text("mine")
    before = contents(folder)
    with pytest.raises(InputError, match=rf"aren't part of it: .*{Path(stranger).name}"):
        replace(folder)
    assert contents(folder) == before


def test_links_and_records_of_other_tools_are_foreign(tmp_path):
    folder = old_folder(tmp_path / "r")
    (folder / "more").symlink_to(tmp_path)
    with pytest.raises(InputError, match="more"):
        replace(folder)
    (folder / "more").unlink()
    (folder / "run.json").write_text('{"title": "a marathon"}')
    with pytest.raises(InputError, match=r"run\.json"):
        replace(folder)


def test_a_folder_without_a_record_is_foreign(tmp_path):
    folder = old_folder(tmp_path / "r")
    (folder / "run.json").unlink()
    with pytest.raises(InputError, match=r"aren't part of it: .*1\.txt"):
        replace(folder)
    assert contents(folder) == {"data/1.txt": b"old"}


def test_drafts_of_names_with_the_same_prefix_stay(tmp_path):
    draft = tmp_path / f".r.x.{'0' * 16}.draft"
    draft.mkdir()
    write_text(tmp_path / "r", "new")
    assert draft.is_dir()
    write_text(tmp_path / "r.x", "new")
    assert not draft.exists()


def test_folders_are_replaced_atomically(tmp_path):
    folder = old_folder(tmp_path / "r")
    (folder / ".DS_Store").write_text("of a file manager")
    before = contents(folder)
    with pytest.raises(InputError, match="overwrite=True"):
        check_folder(folder, False, OURS)
    with pytest.raises(RuntimeError), atomic_folder(folder, True, OURS) as draft:
        (draft / "run.json").write_text("new")
        raise RuntimeError
    assert contents(folder) == before and [path.name for path in tmp_path.iterdir()] == ["r"]
    replace(folder)
    assert contents(folder) == {"run.json": b"new"} and [path.name for path in tmp_path.iterdir()] == ["r"]


def test_folders_are_exchanged_in_one_step(tmp_path, monkeypatch):
    """No moment without a result: no rename moves the old one away."""
    folder = old_folder(tmp_path / "r")
    if not disk._exchange(folder, old_folder(tmp_path / "other")):
        pytest.skip("LOUD: this file system can't exchange folders")
    monkeypatch.setattr(os, "rename", lambda *names: pytest.fail("renamed"))
    replace(folder)
    assert contents(folder) == {"run.json": b"new"}


def test_without_exchange_a_failure_restores_the_old_folder(tmp_path, monkeypatch):
    folder = old_folder(tmp_path / "r")
    before, rename, calls = contents(folder), os.rename, []

    def failing(source, target):
        calls.append(source)
        if len(calls) == 2:
            raise OSError(errno.EIO, "Input/output error", str(target))
        rename(source, target)

    monkeypatch.setattr(disk, "_exchange", lambda *names: False)
    with monkeypatch.context() as broken:
        broken.setattr(os, "rename", failing)
        with pytest.raises(InputError, match=r"/r can't be written: Input/output error"):
            replace(folder)
    assert contents(folder) == before and [path.name for path in tmp_path.iterdir()] == ["r"]
    replace(folder)
    assert contents(folder) == {"run.json": b"new"} and [path.name for path in tmp_path.iterdir()] == ["r"]


def test_a_folder_that_appeared_meanwhile_is_not_replaced(tmp_path):
    with pytest.raises(InputError, match="exists already"), atomic_folder(tmp_path / "r") as draft:
        (draft / "run.json").write_text("new")
        before = contents(old_folder(tmp_path / "r"))
    assert contents(tmp_path / "r") == before and [path.name for path in tmp_path.iterdir()] == ["r"]


def test_a_file_of_an_input_folder_is_not_replaced(tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    with pytest.raises(InputError, match="is an input"):
        check_file(tmp_path / "model" / "config.json", True, [tmp_path / "model"])


def test_parent_folders_are_removed_after_an_error(tmp_path):
    (tmp_path / "there").mkdir()
    with pytest.raises(RuntimeError), atomic_file(tmp_path / "there" / "a" / "b" / "file"):
        raise RuntimeError
    with pytest.raises(RuntimeError), atomic_folder(tmp_path / "c" / "d"):
        raise RuntimeError
    assert [path.name for path in tmp_path.rglob("*")] == ["there"]


def test_drafts_of_killed_processes_are_removed_and_others_stay(tmp_path):
    text = f"""
import os, signal, sys
from pathlib import Path
from edgewise.io.atomic import atomic_file, atomic_folder
kind = atomic_file if sys.argv[1] == "file" else atomic_folder
with kind(Path({str(tmp_path)!r}) / "out.json") as draft:
    draft.touch() if sys.argv[1] == "file" else None
    print("ready", flush=True)
    sys.stdin.readline()
"""
    for kind in ("file", "folder"):
        words = [sys.executable, "-c", text, kind]
        living, killed = (
            subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2)
        )
        assert living.stdout.readline() == killed.stdout.readline() == "ready\n"
        assert len(list(tmp_path.iterdir())) == 2
        killed.kill()
        killed.wait()
        (tmp_path / ".out.json.mine").write_text("")
        with atomic_file(tmp_path / "out.json") as draft:
            assert len(list(tmp_path.iterdir())) == 3
            draft.write_text("")
        (tmp_path / "out.json").unlink()
        (tmp_path / ".out.json.mine").unlink()
        living.communicate("\n", timeout=PATIENCE)
        assert [path.name for path in tmp_path.iterdir()] == ["out.json"]
        disk.remove(tmp_path / "out.json")


def test_concurrent_writers_do_not_remove_each_others_drafts(tmp_path):
    text = f"""
from pathlib import Path
from edgewise.io.atomic import write_text
for number in range(100):
    write_text(Path({str(tmp_path)!r}) / "out.txt", "whole")
"""
    writers = [subprocess.Popen([sys.executable, "-c", text]) for _ in range(3)]
    assert [writer.wait(timeout=PATIENCE) for writer in writers] == [0, 0, 0]
    assert [path.name for path in tmp_path.iterdir()] == ["out.txt"]


@pytest.mark.parametrize("mask", [0o022, 0o027, 0o077, 0o002])
def test_the_umask_is_respected(tmp_path, mask):
    before = os.umask(mask)
    try:
        EdgeScores(Graph(1, 1, 4), np.ones((2, 8))).save(tmp_path / "scores")
        Circuit.full(Graph(1, 1, 4)).save(tmp_path / "circuit.json")
    finally:
        os.umask(before)
    for path in tmp_path.rglob("*"):
        wanted = (0o777 if path.is_dir() else 0o666) & ~mask
        assert stat.S_IMODE(path.stat().st_mode) == wanted, path


def test_arrays_are_as_numpy_writes_them(tmp_path):
    rng = np.random.default_rng(0)
    for number, array in enumerate(
        (
            np.arange(5),
            rng.normal(size=(3, 4)).T,
            np.float32(rng.normal(size=(2, 3, 4))),
            np.zeros((0, 3)),
            np.array(2.0),
        )
    ):
        write_array(tmp_path / f"{number}.npy", array)
        np.save(tmp_path / "plain.npy", np.ascontiguousarray(array).reshape(array.shape))
        assert (tmp_path / f"{number}.npy").read_bytes() == (tmp_path / "plain.npy").read_bytes()
    write_arrays(tmp_path / "both.npz", {"a": np.arange(3), "b": np.ones(2)})
    with np.load(tmp_path / "both.npz") as found:
        assert found["a"].tolist() == [0, 1, 2] and found["b"].tolist() == [1, 1]


def test_memory_maps_are_written_as_they_were_read_even_if_their_file_has_been_replaced_since(tmp_path):
    write_array(tmp_path / "source.npy", np.arange(12.0).reshape(4, 3))
    whole = read_array(tmp_path / "source.npy")
    write_array(tmp_path / "source.npy", np.zeros((4, 3)))
    parts = {"whole": whole, "rows": whole[1:3], "back": whole[::-1], "turned": whole.T, "flat": whole.reshape(-1)}
    for name, part in parts.items():
        write_array(tmp_path / f"{name}.npy", part)
        np.testing.assert_array_equal(np.load(tmp_path / f"{name}.npy"), part)
    assert whole[3, 2] == 11


class FullDisk:
    """A file whose disk has no room left."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None

    def write(self, data):
        raise OSError(errno.ENOSPC, "No space left on device")


def test_errors_name_the_target_and_not_its_draft(tmp_path, monkeypatch):
    with pytest.raises(InputError, match=r"/a\.txt can't be written: No space left"), atomic_file(tmp_path / "a.txt"):
        FullDisk().write(b"")
    with (
        pytest.raises(InputError, match=r"/r/data/1\.txt can't be written: No space"),
        atomic_folder(tmp_path / "r") as new,
    ):
        raise OSError(errno.ENOSPC, "No space left on device", str(new / "data" / "1.txt"))
    with pytest.raises(InputError, match=r"/r/x\.npy can't be written"), atomic_folder(tmp_path / "r") as new:
        monkeypatch.setattr(Path, "open", lambda *_, **__: FullDisk())
        write_array(new / "x.npy", np.ones(3))
    assert list(tmp_path.iterdir()) == []
