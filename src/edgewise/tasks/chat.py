"""Chat templates: prompts as messages to an instruction-tuned model, whose reply begins with the answer."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

from ..errors import InputError
from ..io.reading import wrap_read_errors
from .spans import END, CharacterSpan, end_span
from .task import PromptPair, Task, TokenReader
from .tokens import tokenize


def use_chat(task: Task, model: TokenReader) -> Task:
    """Return the task with every prompt as a message of the user, in the chat template of the model's tokenizer.

    The prompt ends where the reply begins, so answers have a leading space only if the template puts one there. An
    answer that is compared with another stands for its first token. Raise InputError if the tokenizer has no chat
    template, or the task is made of tokens.
    """
    if getattr(model.tokenizer, "chat_template", None) is None:
        raise InputError(f"model {model.name!r} has no chat template; use it without chat")
    pairs = [example.text for example in task.examples if example.text is not None]
    if len(pairs) < len(task):
        raise InputError(f"task {task.name!r} is made of tokens; a chat template needs text")
    space = ""  # what the template puts between a prompt and its reply; Llama 2 has a space
    with suppress(InputError):  # some templates take no message of the assistant
        text = _apply_template(model.tokenizer, False, user=pairs[0].clean, assistant="Yes")
        if text.partition(_render(pairs[0].clean, model))[2].startswith(" Yes"):
            space = " "

    def reply(answer: str) -> str:
        return space + answer.lstrip(" ")

    messages = []
    for pair in pairs:
        clean, corrupted = _render(pair.clean, model), _render(pair.corrupted, model)
        message = PromptPair(
            clean=clean,
            corrupted=corrupted,
            correct=reply(pair.correct),
            incorrect=None if pair.incorrect is None else reply(pair.incorrect),
            first_token_decides=pair.first_token_decides or pair.incorrect is not None,
            also_correct=tuple(map(reply, pair.also_correct)),
            also_incorrect=tuple(map(reply, pair.also_incorrect)),
            spans=_move_spans(pair.spans, pair.clean, clean),
            corrupted_spans=_move_spans(pair.corrupted_spans, pair.corrupted, corrupted),
        )
        messages.append(message)
    return replace(task, examples=tokenize(messages, model.tokenizer, model.bos, f"task {task.name!r}"))


def _apply_template(tokenizer: Any, add_generation_prompt: bool, **messages: str) -> str:
    """Return messages, role=content, in the chat template."""
    with wrap_read_errors("the chat template", "it fails on a message of the user"):
        listed = [{"role": role, "content": content} for role, content in messages.items()]
        text: str = tokenizer.apply_chat_template(listed, tokenize=False, add_generation_prompt=add_generation_prompt)
        return text


def _render(prompt: str, model: TokenReader) -> str:
    """Return a prompt as a message of the user, up to where the reply begins."""
    text = _apply_template(model.tokenizer, True, user=prompt)
    if prompt.strip() not in text:
        raise InputError("the chat template changes the text of prompts; use the model without chat")
    # Many templates begin with the BOS token, which edgewise puts before every prompt itself.
    return text if model.bos is None else text.removeprefix(str(model.tokenizer.bos_token))


def _move_spans(spans: tuple[CharacterSpan, ...], prompt: str, text: str) -> tuple[CharacterSpan, ...]:
    """Return spans of a prompt as spans of the text that contains it. `end` is where the metric is read."""
    content = prompt.strip()
    shift = text.rindex(content) - prompt.index(content)
    moved = (CharacterSpan(name, start + shift, stop + shift) for name, start, stop in spans if name != END)
    return (*moved, end_span(text)) if any(span.name == END for span in spans) else tuple(moved)
