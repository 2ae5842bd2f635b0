"""Engines: whoever does the work, the results are the same, and a lost worker costs nothing but time."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import test_cli
from conftest import build, random_task

from edgewise import (
    CPR,
    Circuit,
    Eap,
    EapIg,
    InputError,
    Store,
    TopKLearner,
    discover,
    evaluate_circuits,
    learn_ranking,
    load_model,
    score_edges,
    wrap_model,
)
from edgewise.evaluate import Mean, Zero
from edgewise.runtime import Session, open_engine
from edgewise.runtime import local_engine as local
from edgewise.runtime.engine import IN_PROCESS, WorkItem, choose_item_size, restore_order, run_batches
from edgewise.runtime.local_engine import Local
from edgewise.runtime.model_copy import make_model_copy
from edgewise.tasks import LogitDifference

edgewise = test_cli.edgewise


def everything(model, task, engine=IN_PROCESS):
    """All kinds of jobs, each cut into several pieces."""
    session = Session(engine=engine)
    rng = np.random.default_rng(0)
    circuits = [Circuit(model.graph, rng.random(model.graph.n_edges) < share) for share in (0.1, 0.3, 0.6, 0.9)]
    learner = TopKLearner(CPR, steps=3, batch=6)
    few = 2_000 * model.graph.n_sources  # bytes: a step in parts
    return {
        "scores": score_edges(model, task, EapIg(2), batch_size=3, session=session).values,
        "patched": evaluate_circuits(model, task, circuits, batch_size=4, session=session).values,
        "zero": evaluate_circuits(model, task, circuits, ablation=Zero(), batch_size=20, session=session).values,
        "mean": evaluate_circuits(model, task, circuits, ablation=Mean(), batch_size=5, session=session).values,
        "nothing": evaluate_circuits(model, task, [], batch_size=5, session=session).full,
        "learned": learn_ranking(model, task, learner, memory=few, session=session).value,
        "losses": learn_ranking(model, task, learner, memory=few, session=session).origin["losses"],
    }


def assert_same(found, expected):
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values, err_msg=name)


@pytest.mark.parametrize("family", ["gpt2", "gemma2"])
def test_processes_give_the_same_bits(family):
    model, task = wrap_model(build(family)), random_task(13)
    with Local(2) as engine:
        assert_same(everything(model, task, engine), everything(model, task))


def test_processes_that_load_the_model_themselves_give_the_same_bits():
    """As on machines with several accelerators: each worker has a device of its own."""
    model = load_model("demo")
    task = random_task(9)
    with Local(devices=("cpu", "cpu")) as engine:
        assert engine.workers(model) == 2
        assert_same(everything(model, task, engine), everything(model, task))


def test_one_worker_is_this_process():
    model, seen = wrap_model(build("gpt2")), []
    with Local(1) as engine:
        pieces = [WorkItem(lambda model, examples: seen.append(os.getpid()), random_task(2).examples)] * 3
        assert [place for place, _ in engine.run(model, pieces)] == [0, 1, 2]
    assert seen == [os.getpid()] * 3


def test_what_has_no_name_elsewhere_is_done_here():
    """One's own method may be made of what can't be sent."""
    model, task = wrap_model(build("gpt2")), random_task(6)
    job = lambda model, examples: os.getpid()  # noqa: E731
    with Local(2) as engine:
        done = list(run_batches(engine, model, task.examples, [[0, 1], [2, 3], [4, 5]], job))
    assert [found for _, found in done] == [os.getpid()] * 3


def test_changed_weights_reach_the_workers():
    module = build("gpt2")
    model, task = wrap_model(module), random_task(8)
    with Local(2) as engine:
        before = score_edges(model, task, Eap(), batch_size=2, session=Session(engine=engine)).values
        module.transformer.h[0].mlp.c_fc.weight.data *= 2
        after = score_edges(model, task, Eap(), batch_size=2, session=Session(engine=engine)).values
    np.testing.assert_array_equal(after, score_edges(model, task, Eap(), batch_size=2).values)
    assert np.abs(after - before).max() > 1e-6


@dataclass(frozen=True)
class Deadly(Eap):
    """Kills its process, once, in the middle of the work; or each time, if it is told to."""

    folder: str = ""
    always: bool = False

    def score(self, batch, metric):
        mark = Path(self.folder) / "died"
        is_worker = os.getpid() != int((Path(self.folder) / "parent").read_text())
        if is_worker and len(batch.last) == 2 and (self.always or not mark.exists()):
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().score(batch, metric)


def test_what_a_killed_process_was_at_is_done_again(tmp_path):
    model, task = wrap_model(build("llama")), random_task(17)
    (tmp_path / "parent").write_text(str(os.getpid()))
    with Local(2) as engine:
        found = score_edges(model, task, Deadly(str(tmp_path)), batch_size=3, session=Session(engine=engine))
    assert (tmp_path / "died").exists()
    np.testing.assert_array_equal(found.values, score_edges(model, task, Eap(), batch_size=3).values)


def test_work_that_always_kills_is_an_error_in_words(tmp_path):
    model, task = wrap_model(build("llama")), random_task(8)
    (tmp_path / "parent").write_text(str(os.getpid()))
    with Local(2) as engine, pytest.raises(InputError, match=r"died 3 times in a row.*--workers"):
        score_edges(model, task, Deadly(str(tmp_path), always=True), batch_size=2, session=Session(engine=engine))


def test_errors_of_workers_arrive_as_they_are():
    model, task = wrap_model(build("gpt2")), random_task(8)

    with Local(2) as engine, pytest.raises(InputError, match="as they are"):
        list(run_batches(engine, model, task.examples, [[0, 1], [2, 3], [4, 5]], fails_elsewhere))


def fails_elsewhere(model, examples):
    if os.getpid() != MAIN:
        raise InputError("as they are")


MAIN = os.getpid()


def test_finished_pieces_are_kept_whichever_engine_goes_on(tmp_path):
    """What one engine has scored, another finds."""
    model, task, store = wrap_model(build("gpt2")), random_task(12), Store(tmp_path / "store").open()
    with Local(2) as engine:
        score_edges(model, task, Eap(), session=Session(store, engine))
    units = sorted(path.name for path in (tmp_path / "store").iterdir())
    score_edges(model, task, Eap(), session=Session(store))
    assert sorted(path.name for path in (tmp_path / "store").iterdir()) == units


def test_workers_that_live_on_hold_no_lock_of_what_was_begun(tmp_path):
    """They were begun while some rows were filled, and have the log of those open."""
    model, task, store = wrap_model(build("gpt2")), random_task(8), Store(tmp_path / "store").open()

    def stop_halfway(stage, done, total):
        if done:
            raise KeyboardInterrupt

    heard = []
    with Local(2) as engine:
        with pytest.raises(KeyboardInterrupt):
            score_edges(
                model, task, Eap(), batch_size=2, session=Session(engine=engine, store=store, progress=stop_halfway)
            )
        found = score_edges(
            model,
            task,
            Eap(),
            batch_size=2,
            session=Session(engine=engine, store=store, progress=lambda *told: heard.append(told)),
        )
    assert heard[0][1] > 0  # it goes on from there
    np.testing.assert_array_equal(found.values, score_edges(model, task, Eap(), batch_size=2).values)


def test_work_that_is_done_in_no_time_begins_no_process(monkeypatch):
    model, task = wrap_model(build("gpt2")), random_task(12)
    monkeypatch.setattr(local, "thread_count", lambda: 4)
    with Local() as engine:
        assert engine.workers(model) == 4
        score_edges(model, task, Eap(), batch_size=2, session=Session(engine=engine))
        assert engine._pool is None
        monkeypatch.setattr(local, "MIN_POOL_SECONDS", 0.0)
        score_edges(model, task, Eap(), batch_size=2, session=Session(engine=engine))
        assert engine._pool is not None or model.digest in engine._slower_in_pool


def test_processes_end_with_the_process_that_began_them(tmp_path):
    """However it ends: none is left behind by a SIGKILL."""
    script = f"""
import os, sys, time
sys.path.insert(0, {str(Path(__file__).parent)!r})
from conftest import build, random_task
from edgewise import wrap_model
from edgewise import Local
from edgewise.runtime.engine import run_batches
def job(model, examples):
    open(f"{tmp_path}/{{os.getpid()}}", "w").close()
    time.sleep(600 if os.getpid() != main else 0)
main = os.getpid()
model = wrap_model(build("gpt2"))
list(run_batches(Local(2), model, random_task(3).examples, [[0], [1], [2]], job))
"""
    process = subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while len(pids := [path.name for path in tmp_path.iterdir()]) < 2:
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    process.kill()
    process.wait()
    deadline = time.monotonic() + 120
    while any(Path(f"/proc/{pid}").exists() for pid in pids):
        assert time.monotonic() < deadline, "workers outlive their parent"
        time.sleep(0.1)


def test_threads_of_this_process_do_not_make_workers_wait():
    """OpenMP's threads don't survive a fork: a worker that asked for them, if only to send much, would hang."""
    script = f"""
import os, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
import torch
from transformers import GPT2Config, GPT2LMHeadModel
from conftest import VOCABULARY, random_task
from edgewise import Local, Session, TopKLearner, learn_ranking, wrap_model
del os.environ["OMP_NUM_THREADS"]  # a narrow model has one thread, then, and its workers are forked
torch.set_num_threads(4)
torch.ones(10_000_000).exp().sum()
config = GPT2Config(vocab_size=VOCABULARY, n_positions=32, n_embd=48, n_layer=8, n_head=24)
model, task = wrap_model(GPT2LMHeadModel(config)), random_task(6)
assert model.graph.n_edges > 40_000
with Local(2) as engine:
    learner = TopKLearner(steps=2, batch=6, warm=None)
    learn_ranking(model, task, learner, memory=1_000_000, session=Session(engine=engine))
    assert engine._pool is not None
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=300, capture_output=True)


def test_a_worker_with_other_files_is_refused(tmp_path):
    """A recipe that was sent brings nothing along that hides what lies there."""
    build("gpt2").save_pretrained(tmp_path)
    sent = pickle.dumps(make_model_copy(load_model(str(tmp_path), bos="no")))
    pickle.loads(sent).load()
    other = build("gpt2")
    other.transformer.h[0].mlp.c_fc.weight.data *= 2
    other.save_pretrained(tmp_path)
    with pytest.raises(InputError, match="a worker has other files"):
        pickle.loads(sent).load()


def test_results_in_order_come_in_order():
    found = restore_order(iter([(2, [([0], "c")]), (0, [([0], "a")]), (1, [([0], "b")])]))
    assert [place for place, _ in found] == [0, 1, 2]


class Wide:
    """A model, as far as cutting cares."""

    def __init__(self, d_model):
        self.graph = type("Graph", (), {"d_model": d_model})


@pytest.mark.parametrize("examples", [1, 24, 1000, 5000])
@pytest.mark.parametrize("fits", [1, 3, 18, 64])
def test_pieces_fit_and_are_the_same_for_every_engine_on_a_cpu(examples, fits):
    import torch

    sizes = {
        choose_item_size(engine, Wide(768), torch.device("cpu"), fits, examples)
        for engine in (IN_PROCESS, Local(2), Local(64))
    }
    assert len(sizes) == 1 and 1 <= sizes.pop() <= fits
    assert choose_item_size(IN_PROCESS, Wide(64), torch.device("cpu"), fits, examples) == fits


def test_engines_are_refused_in_words(edgewise, tmp_path):
    for words, expected in (
        (("--engine", "slurm"), "'slurm' is not one of 'local', 'ray'"),
        (("--address", "auto"), "did you mean --engine ray?"),
    ):
        assert expected in test_cli.refused(edgewise, "score", "--out", tmp_path / "out", *words)
    assert not list(tmp_path.iterdir())
    with pytest.raises(InputError, match="at least 1 worker"):
        Local(0)
    with pytest.raises(InputError, match=r"3 workers.*2 devices"):
        Local(3, devices=("cpu", "cpu"))
    with pytest.raises(InputError, match=r"such as Local\(\)"):
        Session(engine="local")
    with open_engine("LOCAL", workers=1) as engine:
        assert engine.name == "local"


def test_a_run_with_workers_has_the_same_numbers(edgewise, tmp_path):
    areas = []
    for workers in (1, 2):
        out = tmp_path / str(workers)
        code, text, err = edgewise(
            "run", "--examples", 12, "--no-learned", "--workers", workers, "--out", out, "--json"
        )
        assert code == 0, err
        areas.append(json.loads(text)["areas"])
    assert areas[0] == areas[1]


def test_discover_on_an_engine():
    model, task = load_model("demo"), random_task(12)
    plain = discover(model, task, task, attention=0)
    with Local(2) as engine:
        found = discover(model, task, task, attention=0, session=Session(engine=engine))
    assert [o.area for o in found.outcomes] == [o.area for o in plain.outcomes]
    assert found.scores.provenance["metric"] == LogitDifference().name
