"""The Ray engine on a cluster of two nodes on this machine: the same results, also if workers or a node are lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import test_cli
from conftest import build, random_task
from test_engines import assert_same, everything

from edgewise import Eap, InputError, load_model, score_edges, wrap_model
from edgewise.runtime import Session
from edgewise.runtime.engine import run_batches
from edgewise.runtime.ray_engine import Ray

try:
    import ray
    from ray.cluster_utils import Cluster
except ImportError:
    pytest.skip("the package ray isn't installed here", allow_module_level=True)

edgewise = test_cli.edgewise
# All in one process of the test run: a cluster takes seconds to start.
pytestmark = pytest.mark.xdist_group("ray")


@pytest.fixture(scope="module")
def cluster():
    found = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    found.add_node(num_cpus=1)
    yield found
    ray.shutdown()
    found.shutdown()


@pytest.fixture(scope="module")
def engine(cluster):
    with Ray(cluster.address) as found:
        yield found


@dataclass(frozen=True)
class Slow(Eap):
    """Leaves a mark for every batch: its process and its node. After `free` batches, waits for the file `go`."""

    folder: str = ""
    free: int = 0

    def score(self, batch, metric):
        node = ray.get_runtime_context().get_node_id()
        marks = Path(self.folder)
        (marks / f"{time.time_ns()}-{node}-{os.getpid()}").touch()
        if len(list(marks.iterdir())) > self.free:
            wait_for((marks.parent / "go").exists)
        return super().score(batch, metric)


def seen(folder, part):
    return {path.name.split("-")[part] for path in folder.iterdir()}


def wait_for(is_so):
    deadline = time.monotonic() + 180
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_missing_cluster_is_an_error_with_advice(tmp_path, edgewise):
    line = test_cli.refused(edgewise, "score", "--engine", "ray", "--address", "127.0.0.1:1", "--out", tmp_path / "out")
    assert "no Ray cluster at '127.0.0.1:1'" in line and "ray start --head" in line


def test_ray_workers_give_the_same_bits(engine, tmp_path):
    model, task = load_model("demo"), random_task(13)
    assert engine.workers(model) == 2
    assert_same(everything(model, task, engine), everything(model, task))
    # Each worker loads the model once.
    assert load_counts(model, task, engine) <= {1}


def load_counts(model, task, engine):
    """Return how many models each worker process has."""
    return {found for _, found in run_batches(engine, model, task.examples, [[row] for row in range(8)], models_here)}


def models_here(model, examples):
    from edgewise.runtime import ray_engine as cluster

    return len(cluster._MODELS)


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
        wait_for(lambda: len(list(marks.iterdir())) > 2)
        os.kill(int(sorted(marks.iterdir())[-1].name.split("-")[2]), signal.SIGKILL)
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


def test_workers_do_not_import_from_the_current_directory(cluster, engine, tmp_path):
    """A folder `edgewise` there, as in somebody's archive, must not run code."""
    fake = tmp_path / "edgewise"
    fake.mkdir()
    (fake / "__init__.py").write_text(f"open({str(tmp_path / 'imported')!r}, 'w').close()")
    source = Path(__file__).parents[1] / "src"
    command = [sys.executable, "-P", "-m", "edgewise", "score", "--engine", "ray", "--address", cluster.address]
    done = subprocess.run(
        [*command, "--examples", "4", "--batch-size", "2", "--out", "scores"],
        cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(source)}, capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["edgewise", "scores"]


def test_errors_of_ray_workers_are_raised_unchanged(engine, tmp_path):
    model, task = load_model("demo"), random_task(4)
    with pytest.raises(InputError, match="as they are"):
        list(run_batches(engine, model, task.examples, [[0, 1], [2, 3]], fails))


def fails(model, examples):
    raise InputError("as they are")


def test_the_items_of_a_lost_node_run_again(cluster, engine, tmp_path):
    model, task = load_model("demo"), random_task(24)
    marks = tmp_path / "marks"
    marks.mkdir()

    def lose():
        wait_for(lambda: len(seen(marks, 1)) == 2)
        cluster.remove_node(cluster.worker_nodes.copy().pop(), allow_graceful=False)
        (tmp_path / "go").touch()

    loser = threading.Thread(target=lose)
    loser.start()
    found = score_edges(model, task, Slow(str(marks)), batch_size=2, session=Session(engine=engine))
    loser.join()
    assert len(seen(marks, 1)) == 2
    np.testing.assert_array_equal(found.values, score_edges(model, task, Eap(), batch_size=2).values)
