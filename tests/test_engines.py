"""Engines: all give the same results, and the work of a lost worker is done again."""

from __future__ import annotations

import json
import os
import pickle
import signal
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from commands import refused
from conftest import VOCABULARY, build, random_task
from transformers import GPT2Config, GPT2LMHeadModel
from waiting import PATIENCE, start_process, wait_for

from edgewise import (
    CPR,
    Circuit,
    Eap,
    EapIg,
    InputError,
    Store,
    TopKLearner,
    evaluate_circuits,
    learn_ranking,
    load_model,
    score_edges,
    wrap_model,
)
from edgewise.evaluate import Mean, Zero
from edgewise.learn import UniformGradientSampling
from edgewise.runtime import Session, local_engine as local, open_engine
from edgewise.runtime.engine import IN_PROCESS, WorkItem, choose_item_size, restore_order, run_batches
from edgewise.runtime.local_engine import Local, make_model_copy
from edgewise.score.run_scorer import ScoreJob
from edgewise.tasks import LogitDifference


def everything(model, task, engine=IN_PROCESS):
    """Run all kinds of jobs, each split into several items."""
    session = Session(engine=engine)
    rng = np.random.default_rng(0)
    circuits = [Circuit(model.graph, rng.random(model.graph.n_edges) < share) for share in (0.1, 0.3, 0.6, 0.9)]
    learner, ugs = TopKLearner(CPR, steps=3, batch=6), UniformGradientSampling(steps=3, batch=6)
    few = 2_000 * model.graph.n_sources  # bytes: a step in parts
    learned = learn_ranking(model, task, learner, memory=few, session=session)
    return {
        "scores": score_edges(model, task, EapIg(2), batch_size=3, session=session).values,
        "patched": evaluate_circuits(model, task, circuits, batch_size=4, session=session).values,
        "zero": evaluate_circuits(model, task, circuits, ablation=Zero(), batch_size=20, session=session).values,
        "mean": evaluate_circuits(model, task, circuits, ablation=Mean(), batch_size=5, session=session).values,
        "nothing": evaluate_circuits(model, task, [], batch_size=5, session=session).full,
        "learned": learned.value,
        "losses": learned.origin["losses"],
        "ugs": learn_ranking(model, task, ugs, memory=few, session=session).value,
    }


def assert_same(found, expected):
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values, err_msg=name)


def test_worker_processes_give_the_same_bits():
    model, task = wrap_model(build("gemma2")), random_task(13)
    with Local(2) as engine:
        assert_same(everything(model, task, engine), everything(model, task))


def test_workers_that_load_the_model_give_the_same_bits():
    """As with several accelerators: each worker has a device of its own."""
    model = load_model("demo")
    task = random_task(9)
    with Local(devices=("cpu", "cpu")) as engine:
        assert engine.workers(model) == 2
        assert_same(everything(model, task, engine), everything(model, task))


def test_one_worker_is_this_process():
    model, seen = wrap_model(build("gpt2")), []
    with Local(1) as engine:
        items = [WorkItem(lambda model, examples: seen.append(os.getpid()), random_task(2).examples)] * 3
        assert [place for place, _ in engine.run(model, items)] == [0, 1, 2]
    assert seen == [os.getpid()] * 3


def test_a_job_that_cannot_be_sent_runs_in_this_process():
    """A custom method may hold values that can't be pickled."""
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
    """Kills its worker process once, or `always`."""

    folder: str = ""
    always: bool = False

    def score(self, batch, metric):
        mark = Path(self.folder) / "died"
        is_worker = os.getpid() != int((Path(self.folder) / "parent").read_text())
        if is_worker and len(batch.last) == 2 and (self.always or not mark.exists()):
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().score(batch, metric)


def test_the_items_of_a_killed_worker_run_again(tmp_path):
    model, task = wrap_model(build("llama")), random_task(17)
    (tmp_path / "parent").write_text(str(os.getpid()))
    with Local(2) as engine:
        found = score_edges(model, task, Deadly(str(tmp_path)), batch_size=3, session=Session(engine=engine))
    assert (tmp_path / "died").exists()
    np.testing.assert_array_equal(found.values, score_edges(model, task, Eap(), batch_size=3).values)


def test_workers_that_always_die_are_an_error_with_advice(tmp_path):
    model, task = wrap_model(build("llama")), random_task(8)
    (tmp_path / "parent").write_text(str(os.getpid()))
    with Local(2) as engine, pytest.raises(InputError, match=r"died 3 times in a row.*fewer workers"):
        score_edges(model, task, Deadly(str(tmp_path), always=True), batch_size=2, session=Session(engine=engine))


def test_errors_of_workers_are_raised_unchanged():
    model, task = wrap_model(build("gpt2")), random_task(8)

    with Local(2) as engine, pytest.raises(InputError, match="as they are"):
        list(run_batches(engine, model, task.examples, [[0, 1], [2, 3], [4, 5]], fails_elsewhere))


def fails_elsewhere(model, examples):
    if os.getpid() != MAIN:
        raise InputError("as they are")


MAIN = os.getpid()


def test_an_engine_finds_the_finished_work_of_another(tmp_path):
    model, task, store = wrap_model(build("gpt2")), random_task(12), Store(tmp_path / "store").open()
    with Local(2) as engine:
        score_edges(model, task, Eap(), session=Session(store, engine))
    units = sorted(path.name for path in (tmp_path / "store").iterdir())
    score_edges(model, task, Eap(), session=Session(store))
    assert sorted(path.name for path in (tmp_path / "store").iterdir()) == units


def test_workers_hold_no_lock_of_a_stopped_unit(tmp_path):
    """They were forked while a unit was filled, and inherited its lock."""
    model, task, store = wrap_model(build("gpt2")), random_task(8), Store(tmp_path / "store").open()

    def stop_halfway(stage, done, total):
        if done:
            raise KeyboardInterrupt

    reports = []
    with Local(2) as engine:
        with pytest.raises(KeyboardInterrupt):
            score_edges(model, task, Eap(), batch_size=2, session=Session(store, engine, stop_halfway))
        session = Session(store, engine, lambda *report: reports.append(report))
        found = score_edges(model, task, Eap(), batch_size=2, session=session)
    assert reports[0][1] > 0  # it resumed
    np.testing.assert_array_equal(found.values, score_edges(model, task, Eap(), batch_size=2).values)


def test_quick_work_starts_no_process(monkeypatch):
    model, task = wrap_model(build("gpt2")), random_task(12)
    monkeypatch.setattr(local, "thread_count", lambda: 4)
    with Local() as engine:
        assert engine.workers(model) == 4
        monkeypatch.setattr(local, "MIN_POOL_SECONDS", np.inf)
        score_edges(model, task, Eap(), batch_size=2, session=Session(engine=engine))
        assert engine._pool is None
        monkeypatch.setattr(local, "MIN_POOL_SECONDS", 0.0)
        score_edges(model, task, Eap(), batch_size=2, session=Session(engine=engine))
        assert engine._pool is not None or model.digest in engine._slower_in_pool


def test_a_pool_starts_for_a_few_items_if_many_more_follow(monkeypatch):
    """As the steps of learning, each of which has a few items."""
    model, task = wrap_model(build("gpt2")), random_task(2)
    items = [WorkItem(ScoreJob(Eap(), LogitDifference()), [example]) for example in task.examples]
    monkeypatch.setattr(local, "thread_count", lambda: 2)
    monkeypatch.setattr(local, "MIN_POOL_SECONDS", 1e6)
    with Local() as engine:
        dict(engine.run(model, items))
        assert engine._pool is None
        dict(engine.run(model, items, n_items_in_all=10**15))
        assert engine._pool is not None


def mark_and_wait(folder, model, examples):
    (folder / str(os.getpid())).touch()
    signal.pause()


def keep_two_workers(folder):
    batches = [[0], [1], [2]]
    list(
        run_batches(
            Local(2), wrap_model(build("gpt2")), random_task(3).examples, batches, partial(mark_and_wait, folder)
        )
    )


def test_workers_end_with_their_parent(tmp_path):
    """Also if the parent is killed."""
    process = start_process(keep_two_workers, tmp_path)
    wait_for(lambda: len(list(tmp_path.iterdir())) == 2 or not process.is_alive(), "two workers")
    pids = [path.name for path in tmp_path.iterdir()]
    assert len(pids) == 2 and str(process.pid) not in pids
    process.kill()
    process.join()
    wait_for(lambda: not any(map(is_running, pids)), "workers to end with their parent")


def is_running(pid: str) -> bool:
    """Return whether a process runs. In a container, nobody may collect those that have ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def learn_beside_openmp_threads():
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


def test_forked_workers_do_not_wait_for_openmp_threads():
    """OpenMP's threads don't survive a fork: a worker that used them, even to send a large result, would hang."""
    process = start_process(learn_beside_openmp_threads)
    try:
        process.join(PATIENCE)
        assert process.exitcode == 0
    finally:
        process.kill()


def test_a_worker_with_other_files_of_the_model_is_an_error(tmp_path):
    """A copy that was sent doesn't remember the content of the sender's files."""
    build("gpt2").save_pretrained(tmp_path)
    sent = pickle.dumps(make_model_copy(load_model(str(tmp_path), bos="no")))
    pickle.loads(sent).load()
    other = build("gpt2")
    other.transformer.h[0].mlp.c_fc.weight.data *= 2
    other.save_pretrained(tmp_path)
    with pytest.raises(InputError, match="a worker has other files"):
        pickle.loads(sent).load()


def test_restore_order_yields_results_by_index():
    found = restore_order(iter([(2, [([0], "c")]), (0, [([0], "a")]), (1, [([0], "b")])]))
    assert [place for place, _ in found] == [0, 1, 2]


class Wide:
    """A model with nothing but its width."""

    def __init__(self, d_model):
        self.graph = type("Graph", (), {"d_model": d_model})


@pytest.mark.parametrize("examples", [1, 24, 1000, 5000])
@pytest.mark.parametrize("fits", [1, 3, 18, 64])
def test_items_fit_and_are_the_same_for_every_engine_on_a_cpu(examples, fits):
    sizes = {
        choose_item_size(engine, Wide(768), torch.device("cpu"), fits, examples)
        for engine in (IN_PROCESS, Local(2), Local(64))
    }
    assert len(sizes) == 1 and 1 <= sizes.pop() <= fits
    assert choose_item_size(IN_PROCESS, Wide(64), torch.device("cpu"), fits, examples) == fits


def test_wrong_engine_options_are_errors_with_advice(edgewise, tmp_path):
    for words, expected in (
        (("--engine", "slurm"), "'slurm' is not one of 'local', 'ray'"),
        (("--address", "auto"), "did you mean --engine ray?"),
    ):
        assert expected in refused(edgewise, "score", "--out", tmp_path / "out", *words)
    assert not list(tmp_path.iterdir())
    with pytest.raises(InputError, match="at least 1 worker"):
        Local(0)
    with pytest.raises(InputError, match=r"3 workers.*2 devices"):
        Local(3, devices=("cpu", "cpu"))
    with pytest.raises(InputError, match=r"such as Local\(\)"):
        Session(engine="local")
    with open_engine("LOCAL", workers=1) as engine:
        assert isinstance(engine, Local)


def test_a_run_with_workers_has_the_same_numbers(edgewise, tmp_path):
    areas = []
    for workers in (1, 2):
        out = tmp_path / str(workers)
        code, text, err = edgewise(
            "run", "--examples", 12, "--stability", 0, "--workers", workers, "--out", out, "--json"
        )
        assert code == 0, err
        areas.append(json.loads(text)["areas"])
    assert areas[0] == areas[1]
