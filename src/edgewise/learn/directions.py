"""Learn from prompt pairs in both directions: as they are, and with prompts and answers exchanged.

What a model prefers whatever the prompt says, such as one name over another, has opposite signs in the two directions.
So it cancels, and few prompts give a ranking that holds for other ones.
"""

from __future__ import annotations

from dataclasses import replace

from ..runtime.session import Session
from ..tasks import Task
from .base import LearningProblem

# Pairs are used in both directions if the model's mean metric on reversed pairs is at least this share of its mean on
# the pairs, for the first pairs of the task, at most MAX_SAMPLE.
LEAST_SHARE, MAX_SAMPLE = 0.5, 16


def in_both_directions(problem: LearningProblem, session: Session) -> LearningProblem:
    """Return the problem with all pairs of task and validation in both directions, without their texts and spans.

    Return the problem as it is if pairs can't be reversed (`Example.reversed`), if the metric does not compare two
    answers, if spans matter, or if the model does not prefer the exchanged answer for the corrupted prompt.
    """
    tasks = [task for task in (problem.task, problem.validation) if task is not None]
    can_reverse = all(example.reversed is not None for task in tasks for example in task)
    if problem.positions or not problem.metric.is_difference or not can_reverse:
        return problem
    both, *both_validation = (_add_reversed(task) for task in tasks)
    sample = both[: 2 * MAX_SAMPLE]
    of_model = problem.evaluate([], session, sample).full
    if of_model[1::2].mean() < LEAST_SHARE * of_model[::2].mean():
        return problem
    return replace(problem, task=both, validation=both_validation[0] if both_validation else None)


def _add_reversed(task: Task) -> Task:
    """Return the task with every pair followed by its reverse."""
    backward = [example.reversed for example in task]
    forward = [None if example is None else example.reversed for example in backward]
    pairs = (example for pair in zip(forward, backward, strict=True) for example in pair)
    return replace(task, examples=tuple(example for example in pairs if example is not None))
