"""The store: units are read back only if they equal what would be computed again."""

from __future__ import annotations

import json
import os
import shutil
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import build, random_task

from edgewise import (
    Bootstrap,
    Eap,
    EapIg,
    InputError,
    Metric,
    Settings,
    Store,
    discover,
    load_model,
    load_task,
    score_edges,
    wrap_model,
)
from edgewise.models import ModelSource, load_source
from edgewise.recipes import stages
from edgewise.runtime import Session, store as store_module
from edgewise.runtime.store import NO_STORE, PartialUnit, Unit, open_partial_store
from edgewise.runtime.unit_keys import code_digest, unit_key
from edgewise.score import run_scorer as scoring
from edgewise.tasks import Example, Kl, LogitDifference, Task

SIZES = (0.05, 0.3, 1.0)


def quiet(stage, done, total):
    pass


@pytest.fixture
def saved(tmp_path) -> Path:
    """A model in HuggingFace's layout, its weights as .bin, which says nothing of its contents by name or date."""
    folder = tmp_path / "model"
    loaded = build("gpt2", torch.float32)
    loaded.save_pretrained(folder)
    (folder / "model.safetensors").unlink()
    torch.save(loaded.state_dict(), folder / "pytorch_model.bin")
    return folder


def test_a_unit_is_read_back_as_it_was_saved(tmp_path):
    store = Store(tmp_path / "s").open()
    assert store.is_empty and store.find("a-1") is None
    arrays = {"x": np.arange(6).reshape(2, 3), "y": np.zeros(0)}
    store.save("a-1", Unit(arrays, {"why": [1, None]}))
    found = Store(tmp_path / "s").open().find("a-1")
    assert not store.is_empty and found.about == {"why": [1, None]} and set(found.arrays) == {"x", "y"}
    for name, array in arrays.items():
        np.testing.assert_array_equal(found.arrays[name], array)
    store.remove()
    assert not (tmp_path / "s").exists()
    assert NO_STORE.save("a-1", found) is found and NO_STORE.find("a-1") is None and NO_STORE.is_empty


@pytest.mark.parametrize("damage", ["cut", "gone", "no record", "not json", "another format"])
def test_a_damaged_unit_is_not_found(tmp_path, damage):
    store = Store(tmp_path / "s").open()
    store.save("a-1", Unit({"x": np.arange(1000.0)}))
    array, record = store.folder / "a-1" / "x.npy", store.folder / "a-1" / "unit.json"
    if damage == "cut":
        array.write_bytes(array.read_bytes()[:500])
    elif damage == "gone":
        array.unlink()
    elif damage == "no record":
        record.unlink()
    elif damage == "not json":
        record.write_text("{")
    else:
        record.write_text(json.dumps({"format": "other", "version": 1}))
    assert store.find("a-1") is None
    store.save("a-1", Unit({"x": np.ones(2)}))
    np.testing.assert_array_equal(store.find("a-1").arrays["x"], np.ones(2))


def test_a_failed_save_is_no_unit(tmp_path):
    store = Store(tmp_path / "s").open()
    with pytest.raises(ValueError, match="JSON"):
        store.save("a-1", Unit({"x": np.ones(3)}, float("nan")))
    assert store.find("a-1") is None and store.is_empty
    store.save("a-1", Unit({"x": np.ones(2)}, 1))
    assert store.find("a-1").arrays["x"].tolist() == [1, 1]


def test_a_folder_with_other_files_is_no_store(tmp_path):
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(InputError, match=r"aren't part of it: .*thesis\.txt"):
        Store(tmp_path).open()
    Store(tmp_path).remove()
    assert (tmp_path / "thesis.txt").exists()


def test_a_key_depends_on_parameters_and_on_the_source_of_custom_methods():
    def own(factor):
        text = f"lambda x: {factor} * x"

        @dataclass(frozen=True)
        class Own(Metric):
            factor: int = 1

            def value(self, run, clean):
                return eval(text)(run.answer_logits[:, 0])

        return Own

    keys = [
        unit_key("scores", how=(EapIg(5), Kl())),
        unit_key("scores", how=(EapIg(4), Kl())),
        unit_key("scores", how=(Eap(), Kl())),
        unit_key("values", how=(EapIg(5), Kl())),
        unit_key("scores", how=(EapIg(5), own(1)())),
        unit_key("scores", how=(EapIg(5), own(1)(2))),
        unit_key("scores", how=(Bootstrap(), Kl())),
        unit_key("scores", how=(Bootstrap(seed=1), Kl())),
    ]
    assert len(set(keys)) == len(keys)
    assert unit_key("scores", how=(EapIg(), Kl())) == keys[0]


@dataclass(frozen=True)
class Weighted(Metric):
    """A metric with a parameter of any kind."""

    weight: object = None

    def value(self, run, clean):
        return run.answer_logits[:, 0]


def test_a_key_depends_on_every_value_of_an_array():
    big = np.zeros(5000)
    other = big.copy()
    other[2500] = 1
    made = [big, other, big[:-1], torch.tensor(big), torch.tensor(other), torch.tensor(big).bfloat16(), {"a": big},
            {"a": other}, (1, "1"), (1, 1), Path("a"), Kl(), Weighted(big), True, None]  # fmt: skip
    keys = [unit_key("a", how=Weighted(one)) for one in made]
    assert len(set(keys)) == len(keys)
    assert keys == [unit_key("a", how=Weighted(deepcopy(one))) for one in made]
    assert unit_key("a", how=Weighted(np.float64(2.5))) == unit_key("a", how=Weighted(2.5))
    for strange in (object(), lambda: 1, [open]):
        with pytest.raises(InputError, match="doesn't say what it holds"):
            unit_key("a", how=Weighted(strange))


def test_numpy_numbers_are_written_as_plain_numbers(tmp_path):
    store = Store(tmp_path / "s")
    store.save("a-1", Unit(about={"n": np.int64(3), "x": np.float32(0.5), "v": np.arange(2)}))
    assert store.find("a-1").about == {"n": 3, "x": 0.5, "v": [0, 1]}
    assert Settings(EapIg(np.int64(3))).record()["scorer"] == {"name": "eap-ig", "steps": 3}


def test_a_store_takes_a_path_as_text(tmp_path):
    store = Store(str(tmp_path / "s"))
    store.save("a-1", Unit(about=1))
    assert store.open().find("a-1").about == 1 and store == Store(tmp_path / "s")


COLUMNS = {"x": ((3,), np.float32), "n": ((), np.int64)}


def fill(partial, rows):
    partial.write_rows(rows, [f"row {rows[0]}"], x=np.array(rows)[:, None] + np.zeros(3), n=np.array(rows))


def test_processes_that_share_a_store_do_not_disturb_each_other(tmp_path):
    one, other = Store(tmp_path / "s").open(), Store(tmp_path / "s")
    with one.open_partial("a-1", 2, COLUMNS) as mine:
        fill(mine, [0])
        other.open()
        with other.open_partial("a-1", 2, COLUMNS) as theirs:
            assert theirs.n_done == 0  # they don't wait for each other
            one.open()
            fill(theirs, [0, 1])
            assert other.finish("a-1", theirs, "second").arrays["n"].tolist() == [0, 1]
        fill(mine, [1])
        assert one.finish("a-1", mine, "first").arrays["n"].tolist() == [0, 1]
    assert one.find("a-1").about == "first"
    one.save("a-1", Unit(about="third"))
    assert one.find("a-1").about == "first"
    assert [path.name for path in sorted(one.folder.iterdir())] == ["a-1", "store.json"]


@pytest.mark.parametrize("folder", ["s", None])
def test_a_partial_unit_becomes_a_unit_of_its_rows(tmp_path, folder):
    store = Store(None if folder is None else tmp_path / folder)
    with store.open_partial("a-1", 4, COLUMNS) as partial:
        for rows in ([2, 0], [3], [1]):
            assert partial.is_missing(rows)
            fill(partial, rows)
            assert not partial.is_missing(rows)
        unit = store.finish("a-1", partial, "done")
    assert unit.about == "done" and unit.arrays["n"].tolist() == [0, 1, 2, 3]
    np.testing.assert_array_equal(unit.arrays["x"], np.repeat(np.arange(4.0), 3).reshape(4, 3))
    if folder is not None:
        assert store.find("a-1").arrays["n"].tolist() == [0, 1, 2, 3]
        assert sorted(path.name for path in (store.folder / "a-1").iterdir()) == ["n.npy", "unit.json", "x.npy"]


def stop_partial_unit(store):
    with pytest.raises(KeyboardInterrupt), store.open_partial("a-1", 4, COLUMNS) as partial:
        for rows in ([2, 0], [3]):
            fill(partial, rows)
        raise KeyboardInterrupt
    return store.folder / "a-1"


@pytest.mark.parametrize("damage", ["none", "log cut", "log junk", "row", "array cut", "array gone", "other shape"])
def test_undamaged_rows_are_read_back_after_a_stop(tmp_path, damage):
    store = Store(tmp_path / "s")
    part = stop_partial_unit(store)
    assert store.has("a-1") and not store.is_empty
    log, array = part / "done.jsonl", part / "x.npy"
    if damage == "log cut":
        log.write_bytes(log.read_bytes()[:-5])
    elif damage == "log junk":
        log.write_bytes(b"\xff{]\n" + log.read_bytes())
    elif damage == "row":
        held = bytearray(array.read_bytes())
        held[-2] ^= 1  # of row 3
        array.write_bytes(held)
    elif damage == "array cut":
        array.write_bytes(array.read_bytes()[:-1])
    elif damage == "array gone":
        array.unlink()
    elif damage == "other shape":
        np.save(array, np.zeros((5, 3), np.float32))
    whole, first = damage in ("none", "log junk"), damage in ("none", "log junk", "log cut", "row")
    with store.open_partial("a-1", 4, COLUMNS) as partial:
        assert (not partial.is_missing([0]), not partial.is_missing([2]), not partial.is_missing([3])) == (
            first,
            first,
            whole,
        )
        for rows in ([0, 2], [3], [1]):
            if partial.is_missing(rows):
                fill(partial, rows)
        unit = store.finish("a-1", partial)
    assert unit.arrays["n"].tolist() == [0, 1, 2, 3] and unit.arrays["x"][3].tolist() == [3, 3, 3]


def test_rows_logged_after_a_cut_off_entry_count(tmp_path):
    store = Store(tmp_path / "s")
    log = stop_partial_unit(store) / "done.jsonl"
    log.write_bytes(log.read_bytes()[:-5])
    with pytest.raises(KeyboardInterrupt), store.open_partial("a-1", 4, COLUMNS) as partial:
        fill(partial, [3])
        raise KeyboardInterrupt
    with store.open_partial("a-1", 4, COLUMNS) as partial:
        assert not partial.is_missing([0, 2, 3])


def test_a_partial_unit_without_rows_is_empty(tmp_path):
    store = Store(tmp_path / "s")
    log = stop_partial_unit(store) / "done.jsonl"
    log.write_bytes(b"")
    assert store.is_empty


@pytest.mark.parametrize("is_written", [False, True])
def test_a_partial_unit_killed_while_it_is_finished_loses_nothing(tmp_path, monkeypatch, is_written):
    """The log is needed until the record, which is written last, is in place."""
    store, write_json = Store(tmp_path / "s"), store_module.write_json

    def killed(*given):
        if is_written:
            write_json(*given)
        raise SystemExit

    with monkeypatch.context() as broken, pytest.raises(SystemExit), store.open_partial("a-1", 4, COLUMNS) as partial:
        fill(partial, [0, 1, 2, 3])
        broken.setattr(store_module, "write_json", killed)
        store.finish("a-1", partial, "done")
    if not is_written:
        assert store.find("a-1") is None
        with store.open_partial("a-1", 4, COLUMNS) as partial:
            assert partial.n_done == 4
            store.finish("a-1", partial, "done")
    assert store.open().find("a-1").arrays["n"].tolist() == [0, 1, 2, 3]


def test_a_partial_unit_without_rows_leaves_no_files(tmp_path):
    store = Store(tmp_path / "s")
    with pytest.raises(KeyboardInterrupt), store.open_partial("a-1", 4, COLUMNS):
        raise KeyboardInterrupt
    assert store.is_empty and not store.has("a-1")


def test_a_locked_store_has_one_owner_and_is_removed_if_empty(tmp_path):
    with open_partial_store(tmp_path / "new" / "out") as store:
        with (
            pytest.raises(InputError, match="is being written by"),
            open_partial_store(tmp_path / "new/out"),
        ):
            pass
        assert store.folder.is_dir()
    assert not store.folder.exists()
    with pytest.raises(RuntimeError), open_partial_store(tmp_path / "never" / "out"):
        raise RuntimeError
    assert not (tmp_path / "never").exists()
    with pytest.raises(RuntimeError), open_partial_store(tmp_path / "out") as store:
        store.save("a-1", Unit(about=1))
        raise RuntimeError
    assert sorted(path.name for path in store.folder.iterdir()) == ["a-1", "store.json"]
    with open_partial_store(tmp_path / "out") as store:
        assert store.find("a-1").about == 1
    assert not store.folder.exists()


@pytest.mark.parametrize("kind", ["folder", "store", "strange store", "file", "link"])
def test_a_partial_store_with_other_files_is_left_alone(tmp_path, kind):
    path = tmp_path / ".out.partial"
    if kind in ("folder", "store", "strange store"):
        path.mkdir()
        (path / "mine.txt").write_text("mine")
        if kind != "folder":
            (path / "store.json").write_text('{"format": "edgewise-store"}' if kind == "store" else "{}")
    elif kind == "file":
        path.write_text("mine")
    else:
        (tmp_path / "elsewhere").mkdir()
        path.symlink_to(tmp_path / "elsewhere")
    before = sorted(tmp_path.rglob("*"))
    with (
        pytest.raises(InputError, match=r"isn't a store|aren't part of it: .*mine\.txt"),
        open_partial_store(tmp_path / "out"),
    ):
        pass
    assert sorted(tmp_path.rglob("*")) == before


def test_versions_and_the_code_are_part_of_every_key(monkeypatch, tmp_path):
    keys = [unit_key("scores", a=1)]
    monkeypatch.setattr("edgewise.runtime.unit_keys.VERSIONS", ("edgewise 99",))
    keys.append(unit_key("scores", a=1))
    monkeypatch.setattr("edgewise.runtime.unit_keys.code_digest", lambda: "other")
    assert len({*keys, unit_key("scores", a=1)}) == 3


def test_the_digest_of_the_code_changes_with_every_file_that_computes(monkeypatch, tmp_path):
    for name in ("score/eap.py", "models/forward.py", "cli/run.py", "runtime/unit_keys.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x = 1")
    monkeypatch.setattr("edgewise.runtime.unit_keys.__file__", str(tmp_path / "runtime" / "unit_keys.py"))
    digests = [code_digest.__wrapped__()]
    for name, changes in (("score/eap.py", True), ("models/forward.py", True), ("cli/run.py", False)):
        (tmp_path / name).write_text("x = 2")
        digests.append(code_digest.__wrapped__())
        assert (digests[-1] != digests[-2]) == changes
    (tmp_path / "models" / "forward.py").rename(tmp_path / "score" / "forward.py")
    assert code_digest.__wrapped__() != digests[-1]


def test_the_digest_of_a_model_depends_on_the_bytes_of_its_files(saved):
    before = ModelSource(str(saved)).digest
    weights, times = saved / "pytorch_model.bin", (saved / "pytorch_model.bin").stat()
    state = torch.load(weights, weights_only=True)
    state["transformer.ln_f.bias"] = state["transformer.ln_f.bias"] + 1
    torch.save(state, weights)
    os.utime(weights, ns=(times.st_atime_ns, times.st_mtime_ns))
    changed = ModelSource(str(saved)).digest
    config = json.loads((saved / "config.json").read_text()) | {"layer_norm_epsilon": 1e-3}
    (saved / "config.json").write_text(json.dumps(config))
    copy = saved.with_name("copy")
    shutil.copytree(saved, copy)
    configured = ModelSource(str(saved)).digest
    assert len({before, changed, configured}) == 3 and ModelSource(str(copy)).digest == configured
    assert ModelSource(str(saved), dtype="float64").digest != configured


@pytest.mark.parametrize("family", ["gpt2", "llama", "gemma3"])
def test_the_digest_of_a_model_depends_on_every_tensor(family):
    """A single number, in place, of any parameter or buffer, also of those that aren't saved; and results follow it."""
    module = build(family, torch.float32)
    model, task = wrap_model(module), random_task(2)
    assert model.digest == wrap_model(build(family, torch.float32)).digest != replace(model, bos=3).digest
    for tensor in (*module.parameters(), *module.buffers()):
        before = model.digest, model.content
        tensor.data.view(-1)[tensor.numel() // 2] += 1
        assert model.digest != before[0] and model.content != before[1]
    np.testing.assert_array_equal(score_edges(model, task).values, score_edges(wrap_model(module), task).values)


def test_scores_of_a_model_that_was_edited_in_memory_are_its_own(tmp_path):
    """A single number of an embedding, changed in a way that torch doesn't count as a change."""
    model, store = load_model("demo"), Store(tmp_path / "s").open()
    task = load_task("ioi", model, examples=3)
    before = score_edges(model, task, session=Session(store, progress=quiet)).values
    model.module.transformer.wte.weight.data[task.examples[0].clean[-1], 1] += 1
    after = score_edges(model, task, session=Session(store, progress=quiet)).values
    np.testing.assert_array_equal(after, score_edges(model, task).values)
    assert not np.array_equal(before, after)


def test_scores_of_a_model_whose_files_were_replaced_after_loading_are_its_own(saved, tmp_path):
    task, session = random_task(4), Session(Store(tmp_path / "s").open(), progress=quiet)
    old, expected = load_model(saved), load_model(saved).content
    torch.save(build("gpt2", torch.float32, seed=5).state_dict(), saved / "pytorch_model.bin")
    new = load_model(saved)
    assert old.content == expected != new.content
    for model in (old, new):
        np.testing.assert_array_equal(score_edges(model, task, session=session).values, score_edges(model, task).values)


@pytest.mark.parametrize("same_times", [False, True])
def test_files_that_change_while_they_are_read_raise_an_input_error(saved, monkeypatch, same_times):
    """Written in place, or replaced by a file of the same size and time."""

    def change_files(files, trust_remote_code):
        weights, times = saved / "pytorch_model.bin", (saved / "pytorch_model.bin").stat()
        if same_times:
            shutil.copy(weights, saved / "new")
            os.replace(saved / "new", weights)
            os.utime(weights, ns=(times.st_atime_ns, times.st_mtime_ns))
        else:
            weights.write_bytes(weights.read_bytes())

    monkeypatch.setattr("edgewise.models.load.load_tokenizer", change_files)
    with pytest.raises(InputError, match="changed while they were read; load it again"):
        load_model(saved)


def test_a_source_that_has_read_old_files_loads_the_new_ones(saved):
    source = ModelSource(str(saved))
    before = source.content
    config = json.loads((saved / "config.json").read_text()) | {"layer_norm_epsilon": 1e-3}
    (saved / "config.json").write_text(json.dumps(config))
    assert load_source(source).content == ModelSource(str(saved)).content != before


def test_a_pinned_model_computes_its_digest_once(monkeypatch):
    model, calls = wrap_model(build("gpt2")), []
    monkeypatch.setattr("edgewise.models.model.weights_digest", lambda module: calls.append(module) or str(len(calls)))
    pinned = model.pin()
    assert not calls and pinned.pin() is pinned
    assert pinned.digest == pinned.digest and pinned.content == "1" and len(calls) == 1
    assert model.digest != model.digest


def test_the_content_of_a_model_depends_on_its_files_only(saved):
    one, other = load_model(saved), load_model(saved, dtype="float64", bos="no")
    assert one.content == other.content and one.digest != other.digest
    for name in ("README.md", "train.log", "optimizer.pt", "training_args.bin", "trainer_state.json"):
        (saved / name).write_text("new")
    assert load_model(saved).content == one.content
    (saved / "tokenizer.model").write_text("new")
    assert ModelSource(str(saved)).content != one.content
    in_memory = wrap_model(build("gpt2"))
    assert in_memory.content == replace(in_memory, bos=3).content


def test_a_model_knows_how_another_process_loads_it():
    model = load_model("demo", dtype="float64", bos="no")
    again = load_source(model.source)
    assert again.source == model.source and again.digest == model.digest
    assert again.transformer.dtype == torch.float64 and wrap_model(model.module).source is None


def test_the_digest_of_a_task_depends_on_its_tokens():
    task = random_task(4)
    first = task.examples[0]
    changed = [
        Task("other", "name", task.examples),
        Task(task.name, task.split, task.examples[::-1]),
        Task(task.name, task.split, (replace(first, correct=first.correct + 1), *task.examples[1:])),
        Task(task.name, task.split, (replace(first, also_correct=(5,)), *task.examples[1:])),
        Task(task.name, task.split, (Example(first.clean, first.clean[::-1], 1, 2), *task.examples[1:])),
    ]
    digests = [one.digest for one in changed]
    assert digests[0] == task.digest and len({task.digest, *digests}) == 5


def test_a_discovery_stopped_at_any_point_resumes_with_the_same_results(tmp_path, monkeypatch):
    """Stopped after each of its batches and selections in turn; every one is made once."""
    model, train, test = wrap_model(build("gpt2")), random_task(8), random_task(8, seed=1)
    settings = Settings(sizes=SIZES, batch_size=3)
    plain = discover(model, train, test, settings, learn_budget=0, stability=3)
    put, made = PartialUnit.write_rows, []

    def stop(self, rows, *about, **arrays):
        made.append((self.folder.name, *rows))
        put(self, rows, *about, **arrays)
        raise KeyboardInterrupt

    store = Store(tmp_path / "s").open()
    for _ in range(100):
        with monkeypatch.context() as broken:
            broken.setattr(PartialUnit, "write_rows", stop)
            try:
                found = discover(model, train, test, settings, learn_budget=0, stability=3, session=Session(store))
                break
            except KeyboardInterrupt:
                pass
    assert len(set(made)) == len(made) > 10
    assert [o.area for o in found.outcomes] == [o.area for o in plain.outcomes]
    for one, other in zip(found.outcomes, plain.outcomes, strict=True):
        assert [s.circuit for s in one.selections] == [s.circuit for s in other.selections]
        assert [replace(s, seconds=0).record() for s in one.selections] == [
            replace(s, seconds=0).record() for s in other.selections
        ]
    for b, both in plain.overlap.items():
        for recipe, by_size in both.items():
            np.testing.assert_array_equal(found.overlap[b][recipe], by_size)


def test_scores_are_computed_again_if_anything_they_depend_on_changed(saved, tmp_path, monkeypatch):
    """Weights of the same name and date, config, prompts, scorer, metric: never the scores of others."""
    task, store, settings = random_task(6), Store(tmp_path / "s").open(), Settings(sizes=SIZES)
    calls, running = [], scoring.run_batches
    monkeypatch.setattr(scoring, "run_batches", lambda *g, **more: (calls.append(g), running(*g, **more))[1])

    def scores(task=task, settings=settings):
        found = stages.score_task(load_model(str(saved)), task, settings, Session(store, progress=quiet))
        fresh = stages.score_task(load_model(str(saved)), task, settings, Session(progress=quiet))
        np.testing.assert_array_equal(found.values, fresh.values)
        return found

    first = scores()
    assert len(calls) == 2
    again = scores(replace(task, name="other"))
    assert len(calls) == 3 and again.provenance["task"] == "other"
    assert again.provenance["seconds"] == first.provenance["seconds"]
    weights, times = saved / "pytorch_model.bin", (saved / "pytorch_model.bin").stat()
    state = torch.load(weights, weights_only=True)
    state["transformer.h.0.mlp.c_fc.weight"] *= 2
    torch.save(state, weights)
    os.utime(weights, ns=(times.st_atime_ns, times.st_mtime_ns))
    others = [scores(), scores(settings=replace(settings, scorer=EapIg(3)))]
    others += [scores(settings=replace(settings, metric=Kl())), scores(random_task(6, seed=4))]
    config = json.loads((saved / "config.json").read_text()) | {"layer_norm_epsilon": 0.1}
    (saved / "config.json").write_text(json.dumps(config))
    others.append(scores())
    assert len(calls) == 3 + 2 * len(others)
    assert len({one.digest for one in (first, *others)}) == 1 + len(others)


def scaled_metric(factor):
    @dataclass(frozen=True)
    class Scaled(LogitDifference):
        def value(self, run, clean):
            return factor * super().value(run, clean)

    return Scaled()


def test_a_class_inside_a_function_has_a_key_of_its_own():
    """It may read variables of the function, which its source doesn't tell."""
    one, other = scaled_metric(1.0), scaled_metric(1.0)
    keys = [unit_key("values", how=metric) for metric in (one, other, scaled_metric(2.0), one)]
    assert len(set(keys)) == 3 and keys[0] == keys[3]


def test_classes_that_a_function_makes_share_no_key():
    """Their source is the same, but they may read other values of the function."""

    def scaled(factor):
        @dataclass(frozen=True)
        class Scaled(Kl):
            name = "scaled"

            def compute(self, readout, clean):
                return factor * super().compute(readout, clean)

        return Scaled

    one, two = scaled(1), scaled(2)
    assert unit_key("scores", how=one()) != unit_key("scores", how=two())
    assert unit_key("scores", how=one()) == unit_key("scores", how=one())
