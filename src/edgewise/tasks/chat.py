"""Chat templates: prompts as messages to an instruction-tuned model, whose reply begins with the answer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..errors import InputError
from ..io.reading import wrap_read_errors
from .spans import END, CharacterSpan, end_span
from .task import Task, TokenReader
from .tokens import tokenize


def use_chat(task: Task, model: TokenReader) -> Task:
    """Return the task with every prompt as a message of the user, in the chat template of the model's tokenizer.

    The prompt ends where the reply begins, so answers have no leading space there. An answer that is compared with
    another stands for its first token. Raise InputError if the tokenizer has no chat template, or the task is made of
    tokens.
    """
    if getattr(model.tokenizer, "chat_template", None) is None:
        raise InputError(f"model {model.name!r} has no chat template; use it without chat")
    pairs = []
    for example in task.examples:
        if example.text is None:
            raise InputError(f"task {task.name!r} is made of tokens; a chat template needs text")
        pair = example.text
        clean, corrupted = (_render(text, model.tokenizer, model.bos) for text in (pair.clean, pair.corrupted))
        pairs.append(
            replace(
                pair,
                clean=clean,
                corrupted=corrupted,
                correct=pair.correct.lstrip(" "),
                incorrect=None if pair.incorrect is None else pair.incorrect.lstrip(" "),
                also_correct=tuple(answer.lstrip(" ") for answer in pair.also_correct),
                also_incorrect=tuple(answer.lstrip(" ") for answer in pair.also_incorrect),
                first_token_decides=pair.first_token_decides or pair.incorrect is not None,
                spans=_move_spans(pair.spans, pair.clean, clean),
                corrupted_spans=_move_spans(pair.corrupted_spans, pair.corrupted, corrupted),
            )
        )
    return replace(task, examples=tokenize(pairs, model.tokenizer, model.bos, f"task {task.name!r}"))


def _render(prompt: str, tokenizer: Any, bos: int | None) -> str:
    messages = [{"role": "user", "content": prompt}]
    with wrap_read_errors("the chat template", "it fails on a message of the user"):
        text: str = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    if prompt.strip() not in text:
        raise InputError("the chat template changes the text of prompts; use the model without chat")
    # Many templates begin with the BOS token, which edgewise puts before every prompt itself.
    return text if bos is None else text.removeprefix(str(tokenizer.bos_token))


def _move_spans(spans: tuple[CharacterSpan, ...], prompt: str, text: str) -> tuple[CharacterSpan, ...]:
    """Return spans of a prompt as spans of the text that contains it. `end` is where the metric is read."""
    content = prompt.strip()
    shift = text.rindex(content) - prompt.index(content)
    moved = (CharacterSpan(name, start + shift, stop + shift) for name, start, stop in spans if name != END)
    return (*moved, end_span(text)) if any(span.name == END for span in spans) else tuple(moved)
