"""Warnings of the library: results that are computed, but probably don't mean what the user expects."""

from __future__ import annotations

import json
import re
import warnings
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from edgewise import (
    CMD,
    EdgewiseWarning,
    Ilp,
    PromptPair,
    Ranking,
    Recipe,
    Settings,
    TopKLearner,
    discover,
    learn_ranking,
    load_model,
    load_task,
    make_task,
)
from edgewise.recipes.run_info import ModelAccuracy

FAST = (Settings(sizes=(0.1, 1.0)), {CMD: (Recipe(Ilp()),)})


@pytest.fixture(scope="module")
def model():
    return load_model("demo")


def messages(call):
    """The texts of the library's warnings during a call, and the files that they are attributed to."""
    with warnings.catch_warnings(record=True) as raised:
        warnings.simplefilter("always")
        call()
    raised = [warning for warning in raised if issubclass(warning.category, EdgewiseWarning)]
    assert all(warning.filename == __file__ for warning in raised)
    return [str(warning.message) for warning in raised]


def test_a_sound_run_has_no_warnings(model):
    train, test = (load_task("ioi", model, split, 12) for split in ("train", "test"))
    assert messages(lambda: discover(model, train, test, *FAST, attention=0)) == []


class WordTokenizer:
    """A token per word, with the space before it, as in byte-level BPE; or without it, as in SentencePiece."""

    def __init__(self, with_space):
        self.pattern, self.tokens = r" ?\w+|\W" if with_space else r"\w+|[^\w ]", {}

    def __call__(self, texts, add_special_tokens=False):
        words = [re.findall(self.pattern, text) for text in texts]
        return {"input_ids": [[self.tokens.setdefault(w, len(self.tokens)) for w in listed] for listed in words]}


class LlamaTokenizer(WordTokenizer):
    """A token per word, with the space before it. A text that does not begin with a space gets one, as in Llama 2."""

    def __init__(self):
        super().__init__(with_space=True)

    def __call__(self, texts, add_special_tokens=False):
        return super().__call__([text if text.startswith(" ") else f" {text}" for text in texts])


@pytest.mark.parametrize(
    ("prompt", "answer", "token"),
    [
        ("the answer is (", "A", "A"),
        ("the answer is\n", "A", "A"),
        ("the answer is", " A", " A"),
        ("the answer is -", "A", "A"),
        ("the answer is", "A", " A"),  # "isA" is another word, so the answer is encoded alone
    ],
)
def test_an_answer_is_the_token_that_follows_the_prompt(prompt, answer, token):
    tokenizer = LlamaTokenizer()
    model = SimpleNamespace(tokenizer=tokenizer, bos=None, vocabulary=99, max_length=9, name="m")
    pair = {"clean": prompt, "corrupted": prompt.replace("the", "an"), "correct": answer}
    sets = {"correct": [answer, answer.replace("A", "B")]}
    for row in (pair, pair | sets):
        assert make_task([row], model)[0].correct == tokenizer.tokens[token]


class OldLlamaTokenizer(WordTokenizer):
    """A text gets a space even if it begins with one, as in the tokenizer.json of Llama 2: " A" alone is " ", " A"."""

    def __init__(self):
        super().__init__(with_space=True)

    def __call__(self, texts, add_special_tokens=False):
        return super().__call__([f" {text}" for text in texts])


@pytest.mark.parametrize("first_token_decides", [False, True])
def test_a_second_space_is_no_token_of_an_answer(first_token_decides):
    tokenizer = OldLlamaTokenizer()
    assert tokenizer([" A"])["input_ids"] == [[0, 1]] and list(tokenizer.tokens) == [" ", " A"]
    model = SimpleNamespace(tokenizer=tokenizer, bos=None, vocabulary=99, max_length=9, name="m")
    pair = PromptPair("the answer is", "an answer is", " A", " B", first_token_decides=first_token_decides)
    example = make_task([pair], model)[0]
    assert (example.correct, example.incorrect) == (tokenizer.tokens[" A"], tokenizer.tokens[" B"])
    for name in ("ioi", "induction", "pronouns", "capitals"):
        assert len(load_task(name, SimpleNamespace(**vars(model) | {"max_length": 99}), examples=3)) == 3


@pytest.mark.parametrize(
    ("prompt", "answer", "is_joined"),
    [("one and one is", "two", True), ("one and one is", " two", False), ("one and one is:", "two", False),
     ("from 17", "20", False), ("一加一等于", "二", False), ("один и один будет", "два", True)],
)  # fmt: skip
def test_answers_that_continue_a_word_are_warned_of(prompt, answer, is_joined):
    pair = {"clean": prompt, "corrupted": prompt.replace("one", "zero", 1), "correct": answer}
    for with_space in (True, False):
        tokens = SimpleNamespace(tokenizer=WordTokenizer(with_space), bos=None, vocabulary=99, max_length=9, name="m")
        warned = messages(lambda tokens=tokens: make_task([pair], tokens))
        joined = [text for text in warned if "leading space" in text]
        assert len(joined) == (is_joined and with_space)
        assert not joined or f"write {f' {answer}'!r}" in joined[0]


@pytest.mark.parametrize(
    ("origin", "expected"),
    [
        ({"trend": 0.6}, ["the loss for CMD rose by 60% while"]),
        ({"trend": 0.4}, []),
        ({"trend": 0.6, "choices": [[0.1, "warm start"]]}, ["learning for CMD gained nothing"]),
        ({"trend": 0.4, "choices": [[0.1, "warm start"], [0.2, "learned"]]}, []),
    ],
)
def test_learning_without_success_is_warned_of(model, origin, expected):
    class Failing(TopKLearner):
        def learn(self, problem, session):
            graph = problem.model.graph
            return Ranking(graph, np.ones(graph.n_edges), signed=False, origin=origin)

    texts = messages(lambda: learn_ranking(model, load_task("ioi", model, "train", 12), Failing()))
    assert [text[: len(start)] for text, start in zip(texts, expected, strict=True)] == expected


def test_overlapping_repeated_and_few_examples_are_warned_of(model):
    train, test = (load_task("ioi", model, split, 12) for split in ("train", "test"))
    repeated = replace(test, examples=(*train.examples[:2], *test.examples[:2], test.examples[0]))
    (few, copies, overlap) = messages(lambda: discover(model, train, repeated, *FAST, attention=0))
    assert "few examples (5)" in few and "use 10 or more" in few
    assert copies == "1 of the 5 examples are copies of others; intervals are too narrow"
    assert overlap.startswith("2 of the 5 evaluated prompts are also scored") and "splits" in overlap
    (same,) = messages(lambda: discover(model, train, train, *FAST, attention=0))
    assert same.startswith("12 of the 12 evaluated prompts are also scored")
    swapped = replace(
        train,
        examples=tuple(
            replace(e, clean=e.corrupted, corrupted=e.clean, correct=e.incorrect, incorrect=e.correct, text=None)
            for e in train.examples
        ),
    )
    (reverse,) = messages(lambda: discover(model, train, swapped, *FAST, attention=0))
    assert reverse.startswith("12 of the 12 evaluated prompts are also scored")
    (chose,) = messages(lambda: discover(model, train, test, *FAST, attention=0, validation=test))
    assert "also used to choose recipes" in chose


def test_swapped_answers_are_warned_of(model):
    def swap(task):
        return replace(
            task, examples=tuple(replace(e, correct=e.incorrect, incorrect=e.correct) for e in task.examples)
        )

    train, test = (swap(load_task("ioi", model, split, 12)) for split in ("train", "test"))
    (lower,) = messages(lambda: discover(model, train, test, *FAST, attention=0))
    assert "lower on clean prompts" in lower and "may be swapped" in lower
    # Only the evaluated examples are wrong: scoring notices nothing.
    (swapped,) = messages(lambda: discover(model, load_task("ioi", model, "train", 12), test, *FAST, attention=0))
    assert "correct and incorrect, or clean and corrupted, may be swapped" in swapped and "100%" in swapped


def test_every_command_warns_once_of_swapped_answers(edgewise, model, tmp_path):
    rows = [
        vars(e.text) | {"correct": e.text.incorrect, "incorrect": e.text.correct, "split": split}
        for split in ("train", "validation", "test")
        for e in load_task("ioi", model, split, 10)
    ]
    columns = ("clean", "corrupted", "correct", "incorrect", "split")
    path = tmp_path / "t.jsonl"
    path.write_text("\n".join(json.dumps({column: row[column] for column in columns}) for row in rows))
    learned = ("--learned", "--learn-steps", 1, "--stability", 0)
    for words in (
        ("tasks", path, "--examples", 1),
        ("score", "--task", path, "--out", tmp_path / "s"),
        ("evaluate", "full", "--task", path),
        ("learn", "--task", path, "--steps", 1, "--out", tmp_path / "l"),
        ("run", "--task", path, *learned, "--out", tmp_path / "r"),
    ):
        code, _, err = edgewise(*words)
        assert code == 0 and err.count("may be swapped") == 1, (words, err)
    assert '" Mary"' in edgewise("tasks", "ioi", "--examples", 30)[1]  # with its leading space


def test_equal_clean_and_corrupted_prompts_are_warned_of_at_load(model):
    texts = [example.text for example in load_task("ioi", model, "train", 3)]
    pairs = [PromptPair(text.clean, text.corrupted, text.correct, text.incorrect) for text in texts]
    assert messages(lambda: make_task(pairs, model)) == []
    pairs[1] = replace(pairs[1], corrupted=pairs[1].clean)
    (text,) = messages(lambda: make_task(pairs, model, "mine"))
    assert text.startswith("in 1 of the 3 examples of mine, the corrupted prompt is the clean one")


@pytest.mark.parametrize("beats, words", [(0.1, "swapped"), (0.3, "swapped"), (0.5, "hardly"), (0.6, ""), (1.0, "")])
def test_the_problem_depends_on_how_often_the_correct_answer_wins(beats, words):
    assert words in ModelAccuracy(0.0, beats).problem and bool(words) == bool(ModelAccuracy(0.0, beats).problem)


def test_prompts_that_end_in_a_space_are_warned_of_with_advice(model):
    pair = PromptPair("When Mary and John went to the store, John gave a drink to",
                      "When Mary and John went to the store, Mary gave a drink to", " Mary", " John")  # fmt: skip
    spaced = replace(pair, clean=f"{pair.clean} ", corrupted=f"{pair.corrupted} ")
    assert messages(lambda: make_task([pair], model)) == []
    (text,) = messages(lambda: make_task([pair, spaced], model, "gifts"))
    assert text.startswith("1 of the 2 prompts of gifts end in a space")
    assert "gave a drink to'" in text and "' Mary'" in text


def test_the_command_prints_each_warning_once(edgewise, tmp_path):
    rows = [vars(example.text) for example in load_task("ioi", load_model("demo"), "train", 6).examples]
    columns = ("clean", "corrupted", "correct", "incorrect")
    rows = [{column: row[column] + " " * (column == "clean") for column in columns} for row in rows]
    for row in rows:
        row["corrupted"] += " "
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, rows)))
    words = ("run", "--task", tmp_path / "t.jsonl", "--stability", 0, "--no-learned", "--out", tmp_path / "r")
    code, _, err = edgewise(*words)
    lines = [line for line in err.splitlines() if line.startswith("warning: ")]
    assert code == 0 and len(lines) == len(set(lines))
    for part in ("end in a space", "6 of the 6 evaluated prompts are also scored", "few examples (6)"):
        assert sum(part in line for line in lines) == 1, (part, err)
