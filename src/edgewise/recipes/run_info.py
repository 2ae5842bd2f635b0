"""Facts about a run, and its prompts as text. Needs no torch."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import EdgewiseWarning, InputError, SwappedWarning, warn
from ..graph import BaseGraph
from ..runtime.unit_keys import VERSIONS

if TYPE_CHECKING:
    from ..models import Model
    from ..tasks import Example, Task

MAX_PROMPTS = 500
# Of all prompts together: more would fit neither into the viewer's page nor into a file that is read back.
MAX_TOKENS = 100_000
# Below this share of examples with the correct answer above the incorrect one, a model hardly does a task. A share of
# at most SWAPPED suggests that the answers are swapped.
LOW_ACCURACY, SWAPPED = 0.6, 0.3
# What SentencePiece writes for a space.
SENTENCEPIECE_SPACE = "▁"


@dataclass(frozen=True)
class ModelAccuracy:
    """How well the model does a task, as shares of the examples.

    top    examples whose most likely next token is a correct answer
    beats  examples whose correct answer has a higher logit than the incorrect one; None if there are no incorrect ones
    """

    top: float
    beats: float | None

    @property
    def problem(self) -> str:
        """A sentence on how the model fails the task; empty if it does the task."""
        if self.beats is None:
            return ""
        if self.beats <= SWAPPED:
            return (
                f"the model prefers the incorrect answer in {1 - self.beats:.0%} of the examples: correct and "
                "incorrect, or clean and corrupted, may be swapped"
            )
        if self.beats < LOW_ACCURACY:
            return (
                f"the model prefers the correct answer in only {self.beats:.0%} of the examples: it hardly does this "
                "task, so its circuit may mean nothing"
            )
        return ""


def mean_accuracy(accuracies: Sequence[ModelAccuracy]) -> ModelAccuracy:
    """Return the mean over several draws of examples."""
    beats = [accuracy.beats for accuracy in accuracies if accuracy.beats is not None]
    top = float(np.mean([accuracy.top for accuracy in accuracies]))
    return ModelAccuracy(top, float(np.mean(beats)) if beats else None)


def warn_of_failure(accuracy: ModelAccuracy) -> None:
    """Warn if the model fails the task, or if the answers seem swapped."""
    if accuracy.problem:
        is_swapped = accuracy.beats is not None and accuracy.beats <= SWAPPED
        warn(accuracy.problem, SwappedWarning if is_swapped else EdgewiseWarning)


@dataclass(frozen=True)
class TaskInfo:
    """The examples of a run: their split, their number, and a hash of their tokens."""

    split: str
    examples: int
    prompts: str


@dataclass(frozen=True)
class Prompt:
    """A pair of prompts as the texts of their tokens, and the two answers.

    spans  [token] the index of its span in the run's graph; () if circuits don't consist of (edge, span) pairs
    """

    clean: tuple[str, ...]
    corrupted: tuple[str, ...]
    correct: str
    incorrect: str
    spans: tuple[int, ...] = ()


@dataclass(frozen=True)
class RunInfo:
    """Facts about a run.

    weights      a hash of the model's files, or of its weights in memory
    train, test  the scored and the evaluated examples
    bos          the token in front of every prompt, or None
    accuracy     accuracy of the model on the evaluated examples
    seconds      stage -> seconds. Scores that were found in the store count with the time that computing them took.
    versions     package -> version
    made_from    what `edgewise run` was called with, by which it recognises its own result. Empty in Python.
    """

    model: str
    weights: str
    task: str
    train: TaskInfo
    test: TaskInfo
    seed: int
    device: str
    dtype: str
    threads: int
    bos: int | None
    accuracy: ModelAccuracy
    graph: BaseGraph
    seconds: Mapping[str, float]
    versions: Mapping[str, str]
    made_from: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        top, beats = self.accuracy.top, self.accuracy.beats
        if not (0 <= top <= 1 and (beats is None or 0 <= beats <= 1)):
            raise InputError(f"accuracies are shares, from 0 to 1, not {top} and {beats}")
        if min(self.train.examples, self.test.examples) < 1:
            raise InputError("a run needs at least one example to score and one to evaluate")


def describe_run(
    model: Model,
    graph: BaseGraph,
    train: Task,
    test: Task,
    accuracy: ModelAccuracy,
    seed: int,
    seconds: Mapping[str, float],
    made_from: Mapping[str, Any],
) -> RunInfo:
    """Return what is recorded about a run."""
    from ..runtime.engine import thread_count  # imports torch, which reading a result doesn't need

    return RunInfo(
        model=model.name,
        weights=model.content,
        task=test.name,
        train=TaskInfo(train.split, len(train), train.digest),
        test=TaskInfo(test.split, len(test), test.digest),
        seed=seed,
        device=model.transformer.device_names,
        dtype=str(model.transformer.dtype).removeprefix("torch."),
        threads=thread_count(),
        bos=model.bos,
        accuracy=accuracy,
        graph=graph,
        seconds=seconds,
        versions=versions(),
        made_from=made_from,
    )


def versions() -> dict[str, str]:
    """Return the versions of everything that results depend on."""
    return {"python": platform.python_version()} | dict(text.split() for text in VERSIONS)


def decode_prompts(examples: Sequence[Example], tokenizer: Any, with_spans: bool = False) -> tuple[Prompt, ...]:
    """Return the first examples as texts, at most `MAX_PROMPTS` and `MAX_TOKENS`. Without a tokenizer, as numbers."""
    lengths = np.cumsum([2 * example.length for example in examples[:MAX_PROMPTS]])
    examples = examples[: int(np.count_nonzero(lengths <= MAX_TOKENS))]
    tokens = {token for e in examples for token in (*e.clean, *e.corrupted, *e.answers)}
    text = {token: _token_text(token, tokenizer) for token in tokens}
    return tuple(
        Prompt(
            tuple(text[token] for token in example.clean),
            tuple(text[token] for token in example.corrupted),
            "".join(text[token] for token in (example.correct, *example.continuation)),
            ""
            if example.incorrect is None
            else "".join(text[token] for token in (example.incorrect, *example.other_continuation)),
            tuple(example.span_indices) if with_spans else (),
        )
        for example in examples
    )


def _token_text(token: int, tokenizer: Any) -> str:
    """Return a token as it stands in a text, with its leading space."""
    if tokenizer is None:
        return str(token)
    try:
        piece = tokenizer.convert_ids_to_tokens(token)
        # Decoding a single token would drop the space in front of it.
        in_text = SENTENCEPIECE_SPACE in piece
        text = piece.replace(SENTENCEPIECE_SPACE, " ") if in_text else tokenizer.decode([token])
        text.encode("utf-8")
    except Exception:  # a custom tokenizer may raise anything, and these texts are only shown
        return f"<{token}>"
    return str(text)
