"""Tasks: generators, files, metrics."""

import json
from itertools import islice

import pytest
import torch

from edgewise import InputError, load_model, load_task
from edgewise.tasks import GENERATORS, SPLITS, Readout, get_metric
from edgewise.tasks.ioi import usable_names


@pytest.fixture(scope="module")
def demo():
    return load_model("demo")


@pytest.mark.parametrize("name", sorted(GENERATORS))
def test_splits_share_no_prompt_and_nothing_repeats(demo, name):
    seen = {}
    for split in SPLITS:
        for seed in (0, 1):
            prompts = [(e.clean, e.corrupted) for e in load_task(name, demo, split, 150, seed).examples]
            assert len({clean for clean, _ in prompts}) == 150
            seen.setdefault(split, set()).update(prompt for pair in prompts for prompt in pair)
    if name == "greater-than":  # every counterfactual starts in the year 01, so only clean prompts can be told apart
        seen = {s: {e.clean for e in load_task(name, demo, s, 150, 0).examples} for s in SPLITS}
    assert (
        not seen["train"] & seen["test"]
        and not seen["train"] & seen["validation"]
        and not seen["validation"] & seen["test"]
    )


@pytest.mark.parametrize("name", sorted(GENERATORS))
def test_the_same_seed_gives_the_same_task_and_more_examples_continue_it(demo, name):
    few, many = (load_task(name, demo, "train", count, seed=5).examples for count in (10, 40))
    assert few == many[:10]
    assert few != load_task(name, demo, "train", 10, seed=6).examples


def test_ioi_pairs_swap_the_second_subject_for_the_indirect_object(demo):
    first_is_answer = 0
    for pair in islice(GENERATORS["ioi"](demo.tokenizer, "train", 0), 100):
        subject, indirect = pair.incorrect.strip(), pair.correct.strip()
        words = pair.clean.replace(",", "").replace(".", "").split()
        assert words.count(subject) == 2 and words.count(indirect) == 1
        changed = [(a, b) for a, b in zip(pair.clean.split(), pair.corrupted.split(), strict=True) if a != b]
        assert [tuple(w.strip(",.") for w in c) for c in changed] == [(subject, indirect)]
        first_is_answer += words.index(indirect) < words.index(subject)
    assert first_is_answer == 50


class FakeTokenizer:
    """Splits names into as many tokens as it is told; everything else is one token a word."""

    def __init__(self, pieces):
        self.pieces = pieces

    def __call__(self, texts, add_special_tokens):
        return {
            "input_ids": [[hash((text.strip(), i)) % 10**6 for i in range(self.pieces(text.strip()))] for text in texts]
        }


def test_names_are_single_tokens_or_else_of_equal_length():
    one = usable_names(FakeTokenizer(lambda name: 1 if len(name) == 4 else 2))
    assert one and all(len(name) == 4 for name in one)
    other = usable_names(FakeTokenizer(lambda name: 3 if name[0] in "JMS" else 2))
    assert len({name[0] in "JMS" for name in other}) == 1
    with pytest.raises(InputError, match="at least 6 names"):
        usable_names(ConstantTokenizer())


class ConstantTokenizer:
    def __call__(self, texts, add_special_tokens):
        return {"input_ids": [[7] for _ in texts]}


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


GOOD = {
    "clean": "When Mary and John went to the store, John gave a drink to",
    "corrupted": "When Mary and John went to the store, Mary gave a drink to",
    "correct": " Mary",
    "incorrect": " John",
}
LONGER = "When Mary and John went to the store, Mary gave a book drink to"


def test_a_file_of_text_and_the_same_as_tokens_agree(demo, tmp_path):
    from_text = load_task(write(tmp_path / "text.jsonl", [GOOD]), demo).examples[0]
    ids = {"clean_ids": from_text.clean, "corrupted_ids": from_text.corrupted,
           "correct_id": from_text.correct, "incorrect_id": from_text.incorrect}  # fmt: skip
    from_ids = load_task(write(tmp_path / "ids.jsonl", [ids]), demo).examples[0]
    csv = tmp_path / "ids.csv"
    cells = [f'"{list(v) if isinstance(v, tuple) else v}"' for v in ids.values()]
    csv.write_text(",".join(ids) + "\n" + ",".join(cells) + "\n")
    from_csv = load_task(str(csv), demo).examples[0]
    for other in (from_ids, from_csv):
        assert (other.clean, other.corrupted, other.correct, other.incorrect) == (
            from_text.clean, from_text.corrupted, from_text.correct, from_text.incorrect)  # fmt: skip


def test_a_split_column_is_honoured_and_without_one_the_file_is_used_whole(demo, tmp_path):
    rows = [GOOD | {"split": "train"}, GOOD | {"split": "test"}, GOOD | {"split": "test"}]
    path = write(tmp_path / "splits.jsonl", rows)
    assert [len(load_task(path, demo, split)) for split in ("train", "test")] == [1, 2]
    with pytest.raises(InputError, match="its splits are: test, train"):
        load_task(path, demo, "validation")
    assert len(load_task(write(tmp_path / "whole.jsonl", [GOOD] * 3), demo, "validation")) == 3


@pytest.mark.parametrize(
    "row, words",
    [(GOOD | {"corrupted": LONGER}, "example 2.*equally many"),
     (GOOD | {"correct": " Mary and John"}, "example 2.*' Mary and John' is 3 tokens"),
     (GOOD | {"incorrect": " Mary"}, "example 2.*same token"),
     ({k: v for k, v in GOOD.items() if k != "correct"}, "example 2 lacks correct"),
     (GOOD | {"clean": 5}, "must be text"),
     ({"clean_ids": [1], "corrupted_ids": [2], "correct_id": 3, "incorrect_id": 4}, "example 2 lacks clean")],
)  # fmt: skip
def test_rows_that_cannot_be_used_are_named(demo, tmp_path, row, words):
    with pytest.raises(InputError, match=words):
        load_task(write(tmp_path / "bad.jsonl", [GOOD, row]), demo)


def test_tokens_outside_the_vocabulary_are_refused(demo, tmp_path):
    row = {"clean_ids": [1, 10**6], "corrupted_ids": [1, 2], "correct_id": 3, "incorrect_id": 4}
    with pytest.raises(InputError, match="token 1000000 is outside"):
        load_task(write(tmp_path / "bad.jsonl", [row]), demo)


def test_unknown_names_list_the_choices(demo, tmp_path):
    with pytest.raises(InputError, match="ioi, mcqa, greater-than"):
        load_task("ioio", demo)
    with pytest.raises(InputError, match="train, validation, test"):
        load_task("ioi", demo, "dev")
    with pytest.raises(InputError, match="no task file"):
        load_task(str(tmp_path / "none.jsonl"), demo)
    with pytest.raises(InputError, match="logit-difference, probability-difference, kl, accuracy"):
        get_metric("loss")


def test_a_generator_that_has_no_more_prompts_says_so(demo):
    with pytest.raises(InputError, match="no more than about"):
        load_task("greater-than", demo, "test", 100_000)


def test_metrics_by_hand():
    logits = torch.log(torch.tensor([[0.5, 0.3, 0.2], [0.1, 0.2, 0.7]], dtype=torch.float64))
    answers = torch.tensor([[0, 1], [0, 2]])
    run = Readout(answers, logits.gather(1, answers), logits)
    clean = Readout(answers, run.answer_logits, logits.flip(0))

    def value(name):
        return get_metric(name).value(run, clean).tolist()

    assert value("logit-difference") == pytest.approx([0.5108256, -1.9459101])
    assert value("probability-difference") == pytest.approx([0.2, -0.6])
    assert value("accuracy") == [1, 0]
    by_hand = -sum(p * torch.log(torch.tensor(p / q)).item() for p, q in ((0.1, 0.5), (0.2, 0.3), (0.7, 0.2)))
    assert value("kl")[0] == pytest.approx(by_hand, abs=1e-6)
    assert get_metric("kl").value(clean, clean).abs().max() == 0
