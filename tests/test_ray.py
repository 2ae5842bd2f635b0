"""A Ray cluster of two nodes on this machine: the results of this process, also when workers or a node are lost."""

from __future__ import annotations

import json
import os
import signal
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
# All in one process of the test run: a cluster takes seconds to begin.
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


def test_a_cluster_that_is_not_there_is_told(tmp_path, edgewise):
    line = test_cli.refused(edgewise, "score", "--engine", "ray", "--address", "127.0.0.1:1", "--out", tmp_path / "out")
    assert "no Ray cluster at '127.0.0.1:1'" in line and "ray start --head" in line


def test_workers_give_the_same_bits(engine, tmp_path):
    model, task = load_model("demo"), random_task(13)
    assert engine.workers(model) == 2
    assert_same(everything(model, task, engine), everything(model, task))
    # Each worker loads the model once.
    assert load_counts(model, task, engine) <= {1}


def load_counts(model, task, engine):
    """How many models each process has that does some of the work."""
    return {found for _, found in run_batches(engine, model, task.examples, [[row] for row in range(8)], models_here)}


def models_here(model, examples):
    from edgewise.runtime import ray_engine as cluster

    return len(cluster._MODELS)


def test_a_model_that_was_made_in_memory_goes_to_the_workers(engine):
    model, task = wrap_model(build("gemma2")), random_task(9)
    found, expected = (
        score_edges(model, task, Eap(), batch_size=3, session=session)
        for session in (Session(engine=engine), Session())
    )
    np.testing.assert_array_equal(found.values, expected.values)


def test_a_killed_worker_costs_nothing_but_time(engine, tmp_path):
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


def test_a_plan_is_printed_where_results_are(cluster, engine, edgewise, tmp_path):
    words = ("--engine", "ray", "--address", cluster.address, "--dry-run", "--json", "--examples", 8)
    code, out, err = edgewise("score", *words, "--out", tmp_path / "out")
    assert code == 0 and json.loads(out)["workers"] == 2, err
    assert not list(tmp_path.iterdir())


def test_errors_arrive_in_words(engine, tmp_path):
    model, task = load_model("demo"), random_task(4)
    with pytest.raises(InputError, match="as they are"):
        list(run_batches(engine, model, task.examples, [[0, 1], [2, 3]], fails))


def fails(model, examples):
    raise InputError("as they are")


def test_a_lost_node_costs_nothing_but_time(cluster, engine, tmp_path):
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
