"""What must hold for the jobs that batches are run by: pure, picklable, and halved where they don't fit."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from conftest import random_task

from edgewise import Accuracy, Circuit, Eap, EapIg, InputError, Task, evaluate_circuits
from edgewise.evaluate import Mean, Patching, PositionalMean, Zero
from edgewise.evaluate.run_circuits import EvaluateJob
from edgewise.models import make_batch, plan_batches
from edgewise.runtime import IN_PROCESS, Session
from edgewise.runtime.engine import run_batches
from edgewise.score.run_scorer import ScoreJob
from edgewise.tasks import Kl, LogitDifference, ProbabilityDifference

ABLATIONS = [Patching(), Zero(), Mean(), PositionalMean()]
NO_ROOM = [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory")]


@pytest.fixture
def family():
    """Jobs call what has laws for every family; here it has norms after attention."""
    return "gemma2"


def some_circuits(graph):
    rng = np.random.default_rng(0)
    return [Circuit(graph, rng.random(graph.n_edges) < share).prune() for share in (0.2, 0.6, 0.9)]


def evaluate_job(model, task, ablation, metric, of_model=()):
    """As the verb makes it, but that nobody listens."""
    prepared = ablation.prepare(model, task, plan_batches(task.examples, 3), IN_PROCESS)
    circuits = (*some_circuits(model.graph), Circuit.full(model.graph), Circuit.empty(model.graph))
    return EvaluateJob(metric, prepared, circuits, of_model)


def all_jobs(model, task):
    yield from (ScoreJob(EapIg(2), LogitDifference()), ScoreJob(Eap(), ProbabilityDifference()))
    yield from (ScoreJob(EapIg(2), Kl()), evaluate_job(model, task, Patching(), Kl(), (Accuracy(),)))
    yield from (evaluate_job(model, task, ablation, LogitDifference()) for ablation in ABLATIONS)


def arrays(outcome):
    return outcome if isinstance(outcome, tuple) else (outcome,)


def in_rows(task, done):
    """What was found [.., example], in the task's order, by outcomes whose last or first axis is the example."""
    found = {}
    for rows, outcome in done:
        for place, row in enumerate(rows):
            assert row not in found
            is_score = isinstance(outcome, tuple)
            found[row] = [part[place] for part in outcome] if is_score else [outcome[:, place]]
    assert sorted(found) == list(range(len(task)))
    return [np.stack(parts) for parts in zip(*(found[row] for row in range(len(task))), strict=True)]


@dataclass(frozen=True)
class Tight:
    """A job on a machine with room for some examples only."""

    job: Any
    most: int
    error: Exception

    def __call__(self, model, examples):
        if len(examples) > self.most:
            raise self.error
        return self.job(model, examples)


def check_halves(model, job, most, error):
    """Compare a job whose batches don't fit with the same job on all examples at once."""
    task = random_task(9, seed=3)
    whole = in_rows(task, run_batches(IN_PROCESS, model, task.examples, [list(range(len(task)))], job))
    for size in (9, 4):
        batches = plan_batches(task.examples, size)
        done = list(run_batches(IN_PROCESS, model, task.examples, batches, Tight(job, most, error)))
        assert max(len(rows) for rows, _ in done) <= most
        # In order: halves take the place of their batch.
        assert [row for rows, _ in done for row in rows] == [row for rows in batches for row in rows]
        for found, expected in zip(in_rows(task, done), whole, strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6 * np.abs(expected).max())


def test_batches_that_do_not_fit_are_halved_and_every_row_is_done_once(model):
    for job in all_jobs(model, random_task(9, seed=3)):
        check_halves(model, job, 1, torch.OutOfMemoryError("there is no room"))


@pytest.mark.parametrize("error", NO_ROOM, ids=lambda error: type(error).__name__)
def test_every_error_of_a_lack_of_memory_halves_batches(model, error):
    check_halves(model, ScoreJob(Eap(), LogitDifference()), 3, error)


def test_other_errors_are_not_taken_for_a_lack_of_memory(model):
    task = random_task(4)
    with pytest.raises(RuntimeError, match="shapes don't match"):
        list(
            run_batches(
                IN_PROCESS, model, task.examples, [[0, 1, 2, 3]], Tight(None, 0, RuntimeError("shapes don't match"))
            )
        )
    with pytest.raises(InputError, match="single example doesn't fit"):
        list(run_batches(IN_PROCESS, model, task.examples, [[0, 1, 2, 3]], Tight(None, 0, MemoryError())))


@pytest.mark.parametrize("ablation", ABLATIONS, ids=lambda one: one.name)
def test_the_pass_that_takes_means_is_halved_too(model, ablation, monkeypatch):
    task = random_task(8, seed=4)
    circuits = some_circuits(model.graph)
    whole = evaluate_circuits(model, task, circuits, ablation=ablation, batch_size=8)
    sizes = []

    def tight(examples, *rest):
        if len(examples) > 2:
            raise torch.OutOfMemoryError("there is no room")
        sizes.append(len(examples))
        return make_batch(examples, *rest)

    for place in ("edgewise.models.make_batch", "edgewise.evaluate.run_circuits.make_batch"):
        monkeypatch.setattr(place, tight)
    found = evaluate_circuits(model, task, circuits, ablation=ablation, batch_size=8)
    assert sum(sizes) == len(task) * (2 if isinstance(ablation, Mean) else 1)
    for one, other in ((found.values, whole.values), (found.full, whole.full), (found.empty, whole.empty)):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)


def test_a_job_is_pure(loaded, model):
    task = random_task(5, seed=5)
    weights = [parameter.detach().clone() for parameter in loaded.parameters()]
    for job in all_jobs(model, task):
        examples = list(task.examples)
        first = arrays(job(model, examples))
        job(model, examples[:2])
        for one, other in zip(first, arrays(job(model, examples)), strict=True):
            np.testing.assert_array_equal(one, other)
        assert examples == list(task.examples)
    for parameter, before in zip(loaded.parameters(), weights, strict=True):
        assert torch.equal(parameter, before) and parameter.grad is None


def test_a_job_that_was_pickled_gives_the_same(model):
    task = random_task(5, seed=6)
    for job in all_jobs(model, task):
        again = pickle.loads(pickle.dumps(job))
        assert type(again) is type(job) and again.metric == job.metric
        for one, other in zip(arrays(again(model, task.examples)), arrays(job(model, task.examples)), strict=True):
            np.testing.assert_array_equal(one, other)
    assert pickle.loads(pickle.dumps(ScoreJob(EapIg(3), Kl()))) == ScoreJob(EapIg(3), Kl())


def answered(loaded, task, kinds):
    """The task, with answers such that what the model says is the correct one, also right, the incorrect one, or none
    of them, by turns; and whether it is right."""
    examples, is_right = [], []
    for row, example in enumerate(task.examples):
        said = int(loaded(torch.tensor([example.clean])).logits[0, -1].argmax())
        others = [token for token in range(6) if token != said]
        kind = kinds[row % len(kinds)]
        correct, incorrect = (said if kind == "correct" else others[0]), (said if kind == "incorrect" else others[1])
        # Rows of uneven length, which are filled up.
        also = {"also": (*others[2:4], said), "correct": (), "incorrect": others[2:3], "none": others[2:5]}[kind]
        examples.append(replace(example, correct=correct, incorrect=incorrect, also_correct=tuple(also)))
        is_right.append(kind in ("correct", "also"))
    return Task("answered", "all", tuple(examples)), np.array(is_right, float)


@pytest.mark.parametrize("batch_size", [1, 3, 8])
def test_accuracy_counts_every_answer_that_is_right(loaded, model, batch_size):
    task, expected = answered(loaded, random_task(8, seed=7), ("correct", "also", "incorrect", "none"))
    found = evaluate_circuits(model, task, [Circuit.full(model.graph)], Accuracy(), batch_size=batch_size)
    np.testing.assert_array_equal(found.full, expected)
    np.testing.assert_array_equal(found.values[0], expected)


@pytest.mark.parametrize("metric", [LogitDifference(), Kl()], ids=lambda one: one.name)
def test_metrics_of_the_model_are_those_that_it_has_by_itself(loaded, model, metric):
    task, expected = answered(loaded, random_task(7, seed=8), ("also", "correct", "none"))
    circuits, further = some_circuits(model.graph), (Accuracy(), ProbabilityDifference())
    found = evaluate_circuits(model, task, circuits, metric, of_model=further, batch_size=3)
    assert list(found.of_model) == ["accuracy", "probability-difference"]
    for one in further:
        alone = evaluate_circuits(model, task, [], one, batch_size=4)
        np.testing.assert_allclose(found.of_model[one.name], alone.full, rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(found.of_model["accuracy"], expected)
    without = evaluate_circuits(model, task, circuits, metric, batch_size=3)
    assert not without.of_model
    for name in ("values", "full", "empty"):
        np.testing.assert_array_equal(getattr(found, name), getattr(without, name))


def test_progress_hears_of_every_example_and_circuit(model):
    task, heard = random_task(5, seed=9), []
    evaluate_circuits(
        model,
        task,
        some_circuits(model.graph),
        batch_size=2,
        session=Session(progress=lambda *report: heard.append(report)),
    )
    assert heard[0] == ("evaluate", 0, 15) and heard[-1] == ("evaluate", 15, 15)
    assert [done for _, done, _ in heard] == sorted(done for _, done, _ in heard)
