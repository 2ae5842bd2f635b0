"""Spans: every token position belongs to exactly one, by the characters that it contains."""

import json
import re
from dataclasses import replace
from functools import cache

import pytest
import torch
from commands import GOOD
from hypothesis import given, strategies as st

from edgewise import InputError, PromptPair, load_model, load_task, make_task
from edgewise.models import make_batch
from edgewise.tasks import GENERATORS
from edgewise.tasks.known import KNOWN
from edgewise.tasks.spans import CharacterSpan, assign_positions, mark, name_spans, read_markers

load = cache(load_model)
CLEAN = GOOD["clean"]
MARKED = GOOD | {"clean": CLEAN.replace("Mary", "<<IO:Mary>>").replace("John", "<<S1:John>>", 1)}


@pytest.mark.parametrize("name", sorted(GENERATORS))
@pytest.mark.parametrize("split", ["train", "test"])
def test_spans_of_generators_are_a_partition_with_the_same_names_everywhere(request, name, split):
    model = load(name if name in KNOWN else str(request.getfixturevalue("shared") / "models" / "stories15m"))
    task = load_task(name, model, split, 40)
    assert task.span_names == load_task(name, model, "validation", 1, seed=3).span_names
    assert task.span_names[-2:] == ("end", "other") and len(task.span_names) > 2
    for example in task.examples:
        assert tuple(example.spans) == task.span_names
        assert sorted(place for places in example.spans.values() for place in places) == list(range(example.length))
        assert example.spans["end"] == (example.length - 1,)
        assert all(example.spans[span] for span in task.span_names)
        if model.bos is not None:
            assert 0 in example.spans["other"]


@pytest.mark.parametrize("speaker", ["demo", "stories15m"])
def test_ioi_spans_are_its_names_and_its_end(shared, speaker):
    model = load(speaker if speaker == "demo" else str(shared / "models" / speaker))
    orders = set()
    for example in load_task("ioi", model, "train", 60).examples:
        words = {
            name: model.tokenizer.decode([example.clean[place] for place in places]).strip()
            for name, places in example.spans.items()
        }
        subject, indirect = example.text.incorrect.strip(), example.text.correct.strip()
        assert (words["S1"], words["IO"], words["S2"], words["end"]) == (subject, indirect, subject, "to")
        assert max(example.spans["S1"]) < min(example.spans["S2"])
        orders.add(example.spans["S1"] < example.spans["IO"])
    assert orders == {True, False}


def test_greater_than_spans_are_the_year_in_which_prompts_differ(demo):
    for example in load_task("greater-than", demo, "train", 40).examples:
        different = [at for at, (a, b) in enumerate(zip(example.clean, example.corrupted, strict=True)) if a != b]
        assert example.spans["year"] == tuple(different)


def test_markers_a_column_and_objects_give_the_same_task(demo):
    plain = make_task([GOOD], demo)
    assert plain.span_names == () and plain.examples[0].spans == {}
    marked = make_task([MARKED], demo)
    assert marked.digest == plain.digest and marked.span_digest != plain.span_digest
    assert marked.span_names == ("IO", "S1", "other")
    ranges = {"IO": [5, 9], "S1": [14, 18]}
    assert make_task([GOOD | {"spans": {"IO": "Mary", "S1": [14, 18]}}], demo) == make_task(
        [PromptPair(**GOOD, spans=tuple(CharacterSpan(name, *place) for name, place in ranges.items()))], demo
    )
    both = MARKED | {"corrupted": GOOD["corrupted"].replace("Mary", "<<IO:Mary>>", 1).replace("John", "<<S1:John>>")}
    for row in (GOOD | {"spans": ranges}, both):
        assert make_task([row], demo).span_digest == marked.span_digest
    example = marked.examples[0]
    tokens = {"clean_ids": example.clean, "corrupted_ids": example.corrupted, "correct_id": example.correct,
              "incorrect_id": example.incorrect}  # fmt: skip
    places = {name: [min(at), max(at) + 1] for name, at in example.spans.items() if name != "other"}
    assert make_task([tokens | {"spans": places}], demo).span_digest == marked.span_digest


def test_names_have_the_order_of_the_first_row_of_the_file_in_every_split(demo, tmp_path):
    other = GOOD | {"clean": CLEAN.replace("Mary", "<<S1:Mary>>").replace("John", "<<IO:John>>", 1)}
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps(MARKED | {"split": "train"}) + "\n" + json.dumps(other | {"split": "test"}) + "\n")
    for split in ("train", "test"):
        assert load_task(path, demo, split).span_names == ("IO", "S1", "other")


def test_text_that_looks_like_a_marker_is_text_with_the_column(demo):
    text = "Mary <<and: John>> went to"
    spans = {"spans": {}}
    with pytest.raises(InputError, match="know"):  # the demo has no token for the brackets: they were not removed
        make_task([{"clean": text, "corrupted": text, "correct": " Mary", "incorrect": " John"} | spans], demo)
    assert read_markers("1 << 2 >> 3, a<<1:b>>") == ("1 << 2 >> 3, a<<1:b>>", ())


@pytest.mark.parametrize(
    "rows, words",
    [([MARKED, GOOD], "example 2: the prompt has the spans 'none', others have 'IO, S1'"),
     ([GOOD, MARKED], "example 1: the prompt has the spans 'none'"),
     ([MARKED, GOOD | {"spans": {"IO": "Mary"}}], "example 2: the prompt has the spans 'IO', others have 'IO, S1'"),
     ([GOOD | {"spans": {"a": [0, 9], "b": [5, 9]}}], "the spans 'a' and 'b' overlap at token 2"),
     ([GOOD | {"spans": {"a": [5, 99]}}], "has characters 5 to 99, but the clean prompt has 58"),
     ([GOOD | {"spans": {"a": [-3, 2]}}], "has characters -3 to 2"),
     ([GOOD | {"spans": {"a": [0, 2, 3]}}], "but spans are such as"),
     ([GOOD | {"spans": {"a": [True, 2]}}], "but spans are such as"),
     ([GOOD | {"spans": {"": [0, 2]}}], "the span name ''"),
     ([GOOD | {"spans": {"a": "Peter"}}], "'Peter' occurs 0 times"),
     ([GOOD | {"spans": "{"}], "spans must be a mapping"),
     ([GOOD | {"clean": CLEAN.replace("John", "<<a:<<b:John>>>>", 1)}], "is inside another"),
     ([MARKED | {"corrupted": "<<IO:When>> <<S1:Mary>>" + GOOD["corrupted"][9:]}], "token 1 belongs to span 'other'")],
)  # fmt: skip
def test_spans_that_cannot_be_used_are_named(demo, rows, words):
    with pytest.raises(InputError, match=re.escape(words)):
        make_task(rows, demo)


def test_problems_of_spans_are_grouped_by_their_cause(demo):
    with pytest.raises(InputError) as error:
        make_task([MARKED, *[GOOD] * 9], demo)
    text = str(error.value)
    assert "9 of its rows" in text and text.count("the prompt has the spans") == 1 and "and 8 more with this" in text


def test_tasks_never_mix_examples_of_different_spans(demo):
    plain, marked = make_task([GOOD], demo), make_task([MARKED], demo)
    with pytest.raises(InputError, match="have different spans"):
        replace(plain, examples=(*plain.examples, *marked.examples))


def test_token_spans_are_one_per_position_and_need_equal_lengths(demo):
    task = make_task([GOOD, MARKED | {"clean": CLEAN}], demo, spans="token")
    assert task.examples[0].span_indices == tuple(range(task.longest)) and len(task.span_names) == task.longest
    assert load_task("known/induction", load("known/induction"), "train", 9, spans="token").span_names[:2] == ("0", "1")
    with pytest.raises(InputError, match="equal length"):
        load_task("ioi", demo, "train", 20, spans="token")
    with pytest.raises(InputError, match="token"):
        load_task("ioi", demo, "train", 20, spans="words")


def test_span_indices_of_a_batch_follow_its_padding(demo):
    task = load_task("ioi", demo, "train", 12)
    batch = make_batch(task.examples, torch.device("cpu"))
    spans = batch.spans
    assert spans.shape == batch.clean.shape and (~batch.real).any()
    assert ((spans == -1) == ~batch.real).all()
    for row, example in enumerate(task.examples):
        for number, name in enumerate(task.span_names):
            words = [example.clean[place] for place in example.spans[name]]
            assert batch.clean[row][spans[row] == number].tolist() == words
    assert make_batch(make_task([GOOD], demo).examples, torch.device("cpu")).spans is None


WORDS = st.lists(st.text("abc,.", min_size=1, max_size=6), min_size=1, max_size=8)


@given(words=WORDS, data=st.data())
def test_each_token_belongs_to_the_span_of_its_characters(words, data):
    """Tokens are words with the space before them; the oracle colours characters one by one."""
    names = data.draw(st.lists(st.sampled_from(["", "A", "B"]), min_size=len(words), max_size=len(words)))
    text = " ".join(mark(name, word) if name else word for name, word in zip(names, words, strict=True))
    plain, spans = read_markers(text)
    assert plain == " ".join(words)
    offsets = [match.span() for match in re.finditer(r" ?[^ ]+", plain)]
    all_names = name_spans(spans)
    if all_names:
        indices = assign_positions(spans, all_names, offsets, plain)
        assert [all_names[index] for index in indices] == [name or "other" for name in names]
