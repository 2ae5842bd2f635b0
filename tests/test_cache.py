"""The cache of de-quantised models: same numbers, within its limit, never a reason to fail."""

import logging
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from fuzz import valid
from waiting import wait_for

from edgewise import load_model
from edgewise.models import gguf as cache, inspect_model
from edgewise.models.model import ModelSource

needs_gguf = pytest.mark.skipif(not valid.HAS_GGUF, reason="gguf isn't installed")
NUMBERS, WEIGHTS = 1000, "model.safetensors"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch, caplog):
    """A cache of its own, empty."""
    monkeypatch.setenv(cache.FOLDER_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setattr(cache, "EXTRA_BYTES", 0)
    caplog.set_level(logging.INFO)
    return tmp_path / "cache" / "models"


@pytest.fixture
def gguf(tmp_path) -> Path:
    path = tmp_path / "tiny.gguf"
    path.write_bytes(valid.gguf()["tiny.gguf"])
    return path


class Reader:
    """Reads a model whose weights take as many bytes as NUMBERS in float32, and counts how often."""

    def __init__(self, error: OSError | None = None) -> None:
        self.times, self.error = 0, error

    def __call__(self) -> tuple[SimpleNamespace, SimpleNamespace]:
        self.times += 1
        model = SimpleNamespace(config=None, save_pretrained=self.save_model)
        return model, SimpleNamespace(save_pretrained=lambda folder: (folder / "tokenizer.json").write_text("{}"))

    def save_model(self, folder: Path) -> None:
        (folder / WEIGHTS).write_bytes(b"w" * 4 * NUMBERS)
        (folder / "config.json").write_text("{}")
        if self.error is not None:
            raise self.error


def take(name: str, read: Reader, dtype: torch.dtype = torch.float32) -> Path | None:
    return cache.find_or_make_copy(Path(f"{name}.gguf"), f"content of {name}", dtype, NUMBERS, read)


def names(folder: Path) -> list[str]:
    return sorted(path.name[0] for path in folder.iterdir() if not path.name.endswith(".lock"))


@needs_gguf
@pytest.mark.parametrize("dtype", ["auto", "bfloat16", "float16", "float64"])
def test_a_copy_has_the_same_weights_bit_for_bit(gguf, folder, dtype):
    plain = load_model(gguf, dtype=dtype, cache=False)
    assert not folder.exists()
    task = plain.tokenizer("a b c d e f")
    for _ in range(2):  # made, then read
        found = load_model(gguf, dtype=dtype)
        assert len(list(folder.glob("tiny-*"))) == 1
        weights, expected = (
            dict([*model.module.named_parameters(), *model.module.named_buffers(), ("head", model.transformer.unembed)])
            for model in (found, plain)
        )
        torch.testing.assert_close(weights, expected, rtol=0, atol=0)
        assert found.tokenizer("a b c d e f") == task and found.bos == plain.bos
        assert found.tokenizer.get_vocab() == plain.tokenizer.get_vocab()
        assert found.name == plain.name and found.source == plain.source and found.digest == plain.digest
        tokens = torch.tensor([task["input_ids"]])
        # Products of equal matrices may differ in the last bit if they lie differently in memory.
        torch.testing.assert_close(found.module(tokens).logits, plain.module(tokens).logits)
    assert inspect_model(gguf) == inspect_model(gguf, cache=False)


@needs_gguf
def test_the_command_line_reports_a_new_copy_and_obeys_no_cache(edgewise, gguf, folder, tmp_path):
    path = tmp_path / "task.jsonl"
    path.write_text('{"clean_ids": [1, 5, 6], "corrupted_ids": [1, 7, 6], "correct_id": 8, "incorrect_id": 9}\n' * 2)
    words = ("score", "--model", gguf, "--task", path, "--out", tmp_path / "out", "--overwrite")
    code, _, err = edgewise(*words, "--no-cache")
    assert code == 0 and "kept" not in err and not folder.exists()
    code, _, err = edgewise(*words)
    assert code == 0 and f"note: tiny.gguf was de-quantised once, kept in {folder}" in err.replace("\n", "")
    assert "kept" not in edgewise(*words)[2]
    weights = next(folder.glob(f"tiny-*/{WEIGHTS}"))
    weights.write_bytes(weights.read_bytes()[:-1])
    code, _, err = edgewise(*words)
    assert code == 2 and f"{weights.parent}; if it is damaged, delete it" in " ".join(err.split())
    shutil.rmtree(weights.parent)
    assert edgewise(*words)[0] == 0


def test_model_sources_are_equal_with_and_without_cache():
    one, two = ModelSource("demo"), ModelSource("demo", cache=False)
    assert one == two and one.digest == two.digest and hash(one) == hash(two)


def test_a_file_is_read_once_for_each_dtype_and_content(folder):
    read = Reader()
    for _ in range(3):
        assert take("a", read) == take("a", read) is not None
    assert read.times == 1
    assert take("a", read, torch.bfloat16) != take("b", read) and read.times == 3
    assert names(folder) == ["a", "a", "b"]


def test_the_least_recently_used_copy_is_removed_first(folder, monkeypatch, caplog):
    read = Reader()
    copies = {name: take(name, read) for name in "abc"}
    for age, name in enumerate("bca"):  # a was used last, but long ago
        os.utime(copies[name], (1000 + age, 1000 + age))
    take("b", read)  # and now b
    size = sum(path.stat().st_size for path in copies["a"].iterdir())
    monkeypatch.setenv(cache.LIMIT_VARIABLE, str(3 * size))
    assert take("d", read) is not None
    assert names(folder) == ["a", "b", "d"] and "the cache is full" in caplog.text and read.times == 4


def test_copies_above_the_limit_are_not_kept(folder, monkeypatch, caplog):
    read = Reader()
    first = take("a", read)
    for limit in ("0", str(4 * NUMBERS - 1)):
        monkeypatch.setenv(cache.LIMIT_VARIABLE, limit)
        assert take("b", read) is None and read.times == 1 and first.exists()
        assert "b.gguf is de-quantised for this command alone: it would take" in caplog.text
    assert take("a", read) == first


def test_a_copy_that_was_just_used_is_not_removed(folder, monkeypatch, caplog):
    read = Reader()
    copy = take("a", read)
    os.utime(copy, (1000, 1000))
    take("a", read)
    monkeypatch.setenv(cache.LIMIT_VARIABLE, str(6 * NUMBERS))
    assert take("b", read) is None and copy.exists() and "used in the last ten minutes" in caplog.text
    os.utime(copy, (1000, 1000))
    assert take("b", read) is not None and not copy.exists()


@pytest.mark.parametrize("where", ["/dev/null/x", "/proc/nowhere", "file/below"])
def test_an_unwritable_cache_only_warns(where, tmp_path, monkeypatch, caplog):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(cache.FOLDER_VARIABLE, str(tmp_path / where))
    read = Reader()
    assert take("a", read) is None and read.times == 0 and "for this command alone" in caplog.text


def test_a_full_disk_only_warns_and_leaves_nothing(folder, caplog):
    full = Reader(error=OSError(28, "No space left on device"))
    assert take("a", full) is None and "No space left on device" in caplog.text and names(folder) == []
    assert take("a", Reader()) is not None


def test_errors_of_the_file_are_raised_and_leave_nothing(folder):
    def broken():
        raise ValueError("no model")

    with pytest.raises(ValueError, match="no model"):
        take("a", broken)
    assert names(folder) == []


def test_concurrent_loads_make_one_copy(folder):
    read, started = Reader(), []

    def read_when_all_have_started():
        wait_for(lambda: len(started) == 4, "four threads")
        return read()

    def load(_):
        started.append(1)
        return take("a", read_when_all_have_started)

    with ThreadPoolExecutor(4) as threads:
        copies = list(threads.map(load, range(4)))
    assert read.times == 1 and len(set(copies)) == 1


def test_the_limit_is_an_amount_of_memory(monkeypatch):
    assert cache.cache_limit() == 20_000_000_000
    monkeypatch.setenv(cache.LIMIT_VARIABLE, "much")
    with pytest.raises(Exception, match=r"\$EDGEWISE_CACHE_LIMIT: 'much' is not an amount of memory"):
        cache.cache_limit()


def test_the_cache_is_where_the_system_has_its_caches(monkeypatch):
    monkeypatch.delenv(cache.FOLDER_VARIABLE)
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    assert cache.cache_folder() == Path("/caches/edgewise")
