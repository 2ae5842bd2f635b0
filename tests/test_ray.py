"""The Ray engine on a cluster of two nodes on this machine: the same results, also if workers or a node are lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from commands import refused
from conftest import build, random_task
from test_engines import assert_same, everything
from waiting import PATIENCE, wait_for

from edgewise import Eap, InputError, load_model, score_edges, wrap_model
from edgewise.runtime import Session
from edgewise.runtime.engine import run_batches
from edgewise.runtime.ray_engine import Ray

try:
    import ray
    from ray.cluster_utils import Cluster
    from ray_jobs import Slow, count_models, fail
except ImportError:
    pytest.skip("the package ray isn't installed here", allow_module_level=True)

# For a busy machine: workers may start slowly, and no node is lost because it answers late or memory is short.
PATIENT = {
    "RAY_worker_register_timeout_seconds": str(PATIENCE),
    "RAY_health_check_timeout_ms": str(1000 * PATIENCE),
    "RAY_health_check_period_ms": "500",  # by default, it takes Ray fifteen seconds to see that a node is gone
    "RAY_memory_monitor_refresh_ms": "0",
    "RAY_worker_niceness": "0",  # by default, workers hardly run while other tests keep the cores busy
}


@pytest.fixture(scope="module")
def cluster():
    with pytest.MonkeyPatch.context() as patch:
        for name, value in PATIENT.items():
            patch.setenv(name, value)
        cluster = start_cluster()
        yield cluster
        ray.shutdown()
        cluster.shutdown()


def start_cluster(attempts=3):
    """Start two nodes. Ray gives a node thirty seconds to start, too few on a very busy machine, so it gets a retry."""
    cluster = Cluster()
    try:
        cluster.add_node(num_cpus=1, include_dashboard=False)
        cluster.add_node(num_cpus=1)
        return cluster
    except Exception:
        cluster.shutdown()
        if attempts == 1:
            raise
        return start_cluster(attempts - 1)


@pytest.fixture(scope="module")
def engine(cluster):
    with Ray(cluster.address) as found:
        yield found


def waiting(marks, part):
    """Return the nodes (part 1) or processes (part 2) that wait in a batch."""
    return {path.name.split("-")[part] for path in marks.glob("waiting-*")}


def test_a_missing_cluster_is_an_error_with_advice(tmp_path, edgewise):
    line = refused(edgewise, "score", "--engine", "ray", "--address", "127.0.0.1:1", "--out", tmp_path / "out")
    assert "no Ray cluster at '127.0.0.1:1'" in line and "ray start --head" in line


def test_ray_workers_give_the_same_bits(engine, tmp_path):
    model, task = load_model("demo"), random_task(13)
    assert engine.workers(model) == 2
    assert_same(everything(model, task, engine), everything(model, task))
    # Each worker loads the model once.
    assert load_counts(model, task, engine) <= {1}


def load_counts(model, task, engine):
    """Return how many models each worker process has."""
    return {found for _, found in run_batches(engine, model, task.examples, [[row] for row in range(8)], count_models)}


def test_a_model_from_memory_is_sent_to_the_workers(engine):
    model, task = wrap_model(build("gemma2")), random_task(9)
    found, expected = (
        score_edges(model, task, Eap(), batch_size=3, session=session)
        for session in (Session(engine=engine), Session())
    )
    np.testing.assert_array_equal(found.values, expected.values)


def test_the_items_of_a_killed_worker_run_again(engine, tmp_path):
    model, task = load_model("demo"), random_task(24)
    marks = tmp_path / "marks"
    marks.mkdir()

    def kill():
        try:
            wait_for(lambda: waiting(marks, 2), "a worker that waits")
            os.kill(int(waiting(marks, 2).pop()), signal.SIGKILL)
        finally:
            (tmp_path / "go").touch()

    killer = threading.Thread(target=kill)
    killer.start()
    found = score_edges(model, task, Slow(str(marks), free=2), batch_size=2, session=Session(engine=engine))
    killer.join()
    assert len(list(marks.iterdir())) > 12  # something was done twice
    np.testing.assert_array_equal(found.values, score_edges(model, task, Eap(), batch_size=2).values)


def test_a_run_on_the_cluster_has_the_same_numbers(cluster, engine, edgewise, tmp_path):
    areas = []
    for name, words in (("here", ()), ("ray", ("--engine", "ray", "--address", cluster.address))):
        words = (*words, "--examples", 12, "--learned", "--learn-steps", 5, "--out", tmp_path / name, "--json")
        code, out, err = edgewise("run", *words)
        assert code == 0, err
        areas.append(json.loads(out)["areas"])
    assert areas[0] == areas[1]


def test_a_dry_run_on_the_cluster_prints_its_forecast(cluster, engine, edgewise, tmp_path):
    words = ("--engine", "ray", "--address", cluster.address, "--dry-run", "--json", "--examples", 8)
    code, out, err = edgewise("score", *words, "--out", tmp_path / "out")
    assert code == 0 and json.loads(out)["workers"] == 2, err
    assert not list(tmp_path.iterdir())


# Which edgewise a worker imports, once the engine has connected.
IMPORTED = """
import importlib, sys
import ray
from edgewise.runtime.ray_engine import Ray

with Ray(sys.argv[1]):
    print(ray.get(ray.remote(lambda: importlib.import_module("edgewise").__file__).remote()))
"""


def test_workers_do_not_import_from_the_current_directory(cluster, engine, tmp_path):
    """A folder `edgewise` there, as in somebody's archive, must not run code."""
    fake = tmp_path / "edgewise"
    fake.mkdir()
    (fake / "__init__.py").write_text(f"open({str(tmp_path / 'imported')!r}, 'w').close()")
    source = Path(__file__).parents[1] / "src"
    done = subprocess.run(
        [sys.executable, "-P", "-c", IMPORTED, cluster.address],
        cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(source)}, capture_output=True, text=True, timeout=PATIENCE,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{source / 'edgewise' / '__init__.py'}\n"
    assert [path.name for path in tmp_path.iterdir()] == ["edgewise"]


def test_errors_of_ray_workers_are_raised_unchanged(engine, tmp_path):
    model, task = load_model("demo"), random_task(4)
    with pytest.raises(InputError, match="as they are"):
        list(run_batches(engine, model, task.examples, [[0, 1], [2, 3]], fail))


def test_the_items_of_a_lost_node_run_again(cluster, engine, tmp_path):
    model, task = load_model("demo"), random_task(24)
    marks = tmp_path / "marks"
    marks.mkdir()

    def lose():
        try:
            wait_for(lambda: len(waiting(marks, 1)) == 2, "a worker that waits on each node")
            cluster.remove_node(next(iter(cluster.worker_nodes)), allow_graceful=False)
        finally:
            (tmp_path / "go").touch()

    loser = threading.Thread(target=lose)
    loser.start()
    found = score_edges(model, task, Slow(str(marks)), batch_size=2, session=Session(engine=engine))
    loser.join()
    assert len(waiting(marks, 1)) == 2 and len(list(marks.iterdir())) > 12  # something was done twice
    np.testing.assert_array_equal(found.values, score_edges(model, task, Eap(), batch_size=2).values)


# In a process of its own, because the children of this one are killed.
WATCHED = """
import subprocess, sys, threading
from types import SimpleNamespace
from ray._private import worker
from edgewise.runtime.ray_engine import Ray

for name in sys.argv[1:]:
    started = {each: subprocess.Popen(["sleep", "600"]) for each in ("raylet", "gcs_server", "other")}
    listed = {each: [SimpleNamespace(process=process)] for each, process in started.items()}
    worker._global_node = SimpleNamespace(all_processes=listed)
    engine, ended = object.__new__(Ray), []
    engine._is_connection_owner = True
    thread = threading.Thread(target=engine.watch, args=(ended.append, threading.Event()))
    thread.start()
    started[name].kill()
    thread.join()
    print(ended, [process.wait() for process in started.values()])
"""


def test_if_a_process_of_ray_is_killed_the_others_end_too():
    names = ("raylet", "gcs_server")
    done = subprocess.run([sys.executable, "-c", WATCHED, *names], capture_output=True, text=True, timeout=PATIENCE)
    assert done.stdout.splitlines() == [f"['{name}'] [-9, -9, -9]" for name in names], done.stderr


def test_another_address_than_that_of_the_connection_is_refused(engine, cluster):
    with pytest.raises(InputError, match=f"connected to the Ray cluster at '{cluster.address}', not '127.0.0.1:1'"):
        Ray("127.0.0.1:1")
    for address in (None, "auto", cluster.address):
        Ray(address).close()
