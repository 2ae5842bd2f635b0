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
    task, validation = _add_reversed(problem.task), problem.validation
    both_validation = None if validation is None else _add_reversed(validation)
    can_reverse = (both_validation is None) == (validation is None)
    if task is None or not can_reverse or problem.positions or not problem.metric.is_difference:
        return problem
    of_model = problem.evaluate([], session, task[: 2 * MAX_SAMPLE]).full
    if of_model[1::2].mean() < LEAST_SHARE * of_model[::2].mean():
        return problem
    return replace(problem, task=task, validation=both_validation)


def _add_reversed(task: Task) -> Task | None:
    """Return the task with every pair followed by its reverse; None if a pair can't be reversed."""
    reverses = [example.reversed for example in task]
    pairs = [(reverse.reversed, reverse) for reverse in reverses if reverse is not None]
    if len(pairs) < len(task):
        return None
    return replace(task, examples=tuple(example for pair in pairs for example in pair if example is not None))
