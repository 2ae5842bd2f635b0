"""Tasks: generators, files, metrics."""

import csv as csv_module
import json
import re
import resource
from dataclasses import replace
from functools import cache
from itertools import combinations, islice, permutations
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pytest
import torch
from commands import GOOD, as_tokens, write

from edgewise import (
    CMD,
    EdgewiseWarning,
    Greedy,
    InputError,
    PromptPair,
    Recipe,
    discover,
    evaluate_circuits,
    load_model,
    load_task,
    make_task,
    split_task,
    wrap_model,
)
from edgewise.recipes.run_info import decode_prompts
from edgewise.tasks import (
    DATA_SETS,
    DESCRIPTIONS,
    GENERATORS,
    METRICS,
    SPLITS,
    Example,
    Readout,
    Task,
    TaskMetric,
)
from edgewise.tasks.checks import warn_of_overlap
from edgewise.tasks.files import read_task
from edgewise.tasks.generators import usable_endings, usable_names
from edgewise.tasks.known import KNOWN

load = cache(load_model)
ARITHMETIC = ("arithmetic-addition", "arithmetic-subtraction")


class Pieces:
    """A tokenizer by a regular expression: its matches are the tokens."""

    def __init__(self, pattern):
        self.pattern, self.vocabulary = pattern, {}

    def id(self, piece):
        return self.vocabulary.setdefault(piece, len(self.vocabulary) + 1)

    def __call__(self, texts, add_special_tokens):
        assert not add_special_tokens
        return {"input_ids": [[self.id(piece) for piece in re.findall(self.pattern, text)] for text in texts]}

    def decode(self, tokens):
        return "".join(list(self.vocabulary)[token - 1] for token in tokens)


# How families of tokenizers treat numbers: a space and up to two digits together, up to three digits, one by one.
NUMBERS = {
    "in pairs": r" ?[A-Za-z]+| ?[0-9]{1,2}|\s|.",
    "in threes": r" ?[A-Za-z]+|[0-9]{1,3}|\s|.",
    "digit by digit": r" ?[A-Za-z]+|[0-9]|\s|.",
}


def speaking(model, numbers):
    """`model` with a tokenizer that treats numbers so."""
    return replace(model, tokenizer=Pieces(NUMBERS[numbers]), bos=None)


# What can't be had: the demo's tokenizer knows no word of arithmetic, and threes cut a year after its third digit.
WORDS = ("induction", "docstring", "pronouns", "agreement", "capitals")
COUNTING = (*ARITHMETIC, "greater-than")  # to other tasks, all tokenizers of NUMBERS are the same
REFUSED = {*((name, "demo") for name in (*ARITHMETIC, *WORDS)), ("greater-than", "in threes")}


@pytest.fixture(
    params=[
        (name, speaker)
        for name in sorted(GENERATORS)
        for speaker in (
            (name,) if name in KNOWN else ("demo", "stories15m", *(NUMBERS if name in COUNTING else ["in pairs"]))
        )
        if (name, speaker) not in REFUSED
    ],
    ids=lambda pair: " ".join(pair),
)
def spoken(request, demo):
    """A generator's name, and a model that it works for."""
    name, speaker = request.param
    if speaker in NUMBERS:
        return name, speaking(demo, speaker)
    if speaker == "demo" or speaker in KNOWN:
        return name, load(speaker)
    return name, load(str(request.getfixturevalue("shared") / "models" / speaker))


def test_splits_share_no_prompt_and_nothing_repeats(spoken):
    name, model = spoken
    seen = {}
    for split in SPLITS:
        for seed in (0, 1):
            prompts = [(e.clean, e.corrupted) for e in load_task(name, model, split, 60, seed).examples]
            assert len({clean for clean, _ in prompts}) == 60
            seen.setdefault(split, set()).update(prompt for pair in prompts for prompt in pair)
    if name == "greater-than":  # every counterfactual starts in the year 01, so only clean prompts can be told apart
        seen = {s: {e.clean for e in load_task(name, model, s, 60, 0).examples} for s in SPLITS}
    assert all(not seen[one] & seen[other] for one, other in combinations(SPLITS, 2))


def test_the_same_seed_gives_the_same_task_and_more_examples_continue_it(spoken):
    name, model = spoken
    few, many = (load_task(name, model, "train", count, seed=5).examples for count in (10, 40))
    assert few == many[:10]
    assert few != load_task(name, model, "train", 10, seed=6).examples


def test_answers_are_the_tokens_that_follow_the_prompts_which_have_equal_lengths(spoken):
    name, model = spoken
    front = [] if model.bos is None else [model.bos]
    for example in load_task(name, model, "validation", 60).examples:
        assert len(example.clean) == len(example.corrupted)
        for answer, token in ((example.text.correct, example.correct), (example.text.incorrect, example.incorrect)):
            for prompt, ids in ((example.text.clean, example.clean), (example.text.corrupted, example.corrupted)):
                followed = model.tokenizer([prompt + answer], add_special_tokens=False)["input_ids"][0]
                assert front + followed == [*ids, token]


@pytest.mark.parametrize("name", ARITHMETIC)
@pytest.mark.parametrize("numbers", NUMBERS)
def test_arithmetic_is_right_and_within_what_the_tokenizer_can_say(demo, name, numbers):
    operands, results = set(), set()
    for pair in (example.text for example in load_task(name, speaking(demo, numbers), "train", 300).examples):
        for prompt, answer in ((pair.clean, pair.correct), (pair.corrupted, pair.incorrect)):
            a, b = map(int, re.findall(r"[0-9]+", prompt))
            if "from" in prompt:  # "subtracts 3 from 7"
                a, b = b, a
            assert int(answer) == (a + b if name == "arithmetic-addition" else a - b) > 0
            assert (prompt + answer).endswith(f" {answer.strip()}")
            operands |= {a, b}
            results.add(int(answer))
        assert pair.correct != pair.incorrect
        assert re.sub(r"[0-9]+", "", pair.clean) == re.sub(r"[0-9]+", "", pair.corrupted)
    one_by_one = numbers == "digit by digit"
    assert {len(str(number)) for number in operands} == {1 if one_by_one and name == "arithmetic-addition" else 2}
    assert max(results) <= {"in pairs": 99, "in threes": 198, "digit by digit": 9}[numbers]
    assert len(results) > (7 if one_by_one else 50)


def test_new_generators_ask_what_their_words_say(demo):
    """Oracles that read the prompts alone."""

    def pairs(name):
        return [example.text for example in load_task(name, speaking(demo, "in pairs"), "train", 60).examples]

    for pair in pairs("induction"):
        for prompt, answer in ((pair.clean, pair.correct), (pair.corrupted, pair.incorrect)):
            *words, last = prompt.split()[1:]
            assert words[words.index(last) + 1] == answer.strip() and words.count(last) == 1
    for pair in pairs("docstring"):
        for prompt, answer in ((pair.clean, pair.correct), (pair.corrupted, pair.incorrect)):
            arguments = re.search(r"\(self, (.*)\)", prompt).group(1).split(", ")
            assert [*re.findall(r":param (\w+):", prompt), answer.strip()] == arguments
    for pair in pairs("agreement"):
        subject, other = (prompt.split()[1] for prompt in (pair.clean, pair.corrupted))
        is_plural = pair.correct in (" are", " were", " have")
        assert is_plural == (len(subject) > len(other) or subject in ("men", "women"))
    he = {pair.clean for pair in pairs("pronouns") if pair.correct == " he"}
    assert len(he) == 30 and not any("Mary" in prompt or "Anna" in prompt for prompt in he)
    for pair in pairs("capitals"):
        assert pair.correct.strip() not in pair.clean and pair.incorrect.strip() not in pair.clean


@pytest.mark.parametrize("name", ARITHMETIC)
def test_arithmetic_is_refused_where_its_words_or_its_results_are_no_tokens(demo, name):
    with pytest.raises(InputError, match="words that this tokenizer doesn't know, as in 'The "):
        load_task(name, demo)
    halves = replace(demo, tokenizer=Halves(NUMBERS["digit by digit"]), bos=None)
    with pytest.raises(InputError, match="has 0 such results from 1 to 198"):
        load_task(name, halves)


class Halves(Pieces):
    """Two tokens for every piece."""

    def __call__(self, texts, add_special_tokens):
        ids = super().__call__(texts, add_special_tokens)["input_ids"]
        return {"input_ids": [[half for i in row for half in (2 * i, 2 * i + 1)] for row in ids]}


def test_greater_than_asks_for_a_later_decade_where_numbers_are_split_digit_by_digit(demo):
    decades = set()
    for example in load_task("greater-than", speaking(demo, "digit by digit"), "train", 200).examples:
        century, year = re.search(r"year ([0-9]{2})([0-9]{2})", example.text.clean).groups()
        assert example.text.clean.endswith(f"year {century}") and f"year {century}01" in example.text.corrupted
        assert int(example.text.incorrect) < int(year[0]) < int(example.text.correct)
        decades.add(year[0])
    assert decades == set("12345678")


def test_any_later_year_is_right(spoken):
    name, model = spoken
    for example in load_task(name, model, "test", 40).examples:
        if name == "known/greater-than":
            assert example.correct in example.also_correct and example.incorrect not in example.also_correct
            continue
        if name != "greater-than":
            assert not example.also_correct and not example.text.also_correct
            continue
        digits = len(example.text.correct)
        own = re.search(r"year [0-9]{2}([0-9]{2})", example.text.clean).group(1)[:digits]
        right = dict(zip(map(int, example.text.also_correct), example.also_correct, strict=True))
        known = usable_endings(model.tokenizer)[1]
        assert sorted(right) == [answer for answer in known if answer > int(own)]
        assert right[int(example.text.correct)] == example.correct and example.incorrect not in right.values()
        wrong = dict(zip(map(int, example.text.also_incorrect), example.also_incorrect, strict=True))
        assert sorted(wrong) == [answer for answer in known if answer < int(own)]
        assert wrong[int(example.text.incorrect)] == example.incorrect
        assert len(set(right.values())) == len(right)


def test_greater_than_is_refused_where_a_year_is_cut_elsewhere(demo):
    with pytest.raises(InputError, match="only 0 of 97 two-digit years and doesn't split"):
        load_task("greater-than", speaking(demo, "in threes"))


def test_the_demo_model_still_gets_the_prompts_that_it_was_trained_on(demo):
    first = load_task("greater-than", demo, "train", 1).examples[0].text
    assert first.clean == "The trial lasted from the year 1133 to the year 11"
    assert (first.correct, first.incorrect) == ("96", "25")


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


def test_names_are_single_tokens_or_else_of_equal_length():
    single = usable_names(Pieces(r"^ .{4}$|^ .|.+"))  # names of four letters are one token, others two
    assert single and all(len(name) == 4 for name in single)
    equal = usable_names(Pieces(r"(?<=^ [JMS]).|^ .|.+"))  # three tokens for names with J, M and S, two for others
    assert len({name[0] in "JMS" for name in equal}) == 1
    for pattern in ("^ ", "[0-9]"):  # the same token for all names, and none at all
        with pytest.raises(InputError, match="at least 6 names"):
            usable_names(Pieces(pattern))


LONGER = "When Mary and John went to the store, Mary gave a book drink to"


def test_a_file_of_text_and_the_same_as_tokens_agree(demo, tmp_path):
    from_text = load_task(write(tmp_path / "text.jsonl", [GOOD]), demo).examples[0]
    ids = as_tokens(from_text)
    csv = tmp_path / "ids.csv"
    cells = [f'"{list(v) if isinstance(v, tuple) else v}"' for v in ids.values()]
    csv.write_text(",".join(ids) + "\n" + ",".join(cells) + "\n")
    for path in (write(tmp_path / "ids.jsonl", [ids]), csv):
        assert load_task(path, demo).examples[0].tokens == from_text.tokens


def test_a_cell_may_hold_lines_and_a_row_may_hold_marks_that_look_like_line_ends(demo, tmp_path):
    csv = tmp_path / "lines.csv"
    csv.write_text('clean,corrupted,correct,incorrect\n"A. red\nB. blue","B. red\nA. blue"," A"," B"\n')
    assert load_task(str(csv), demo).examples[0].text.clean == "A. red\nB. blue"
    row = json.dumps(GOOD | {"clean": GOOD["clean"].replace(", ", ",\u2028")}, ensure_ascii=False)
    path = tmp_path / "marks.jsonl"
    path.write_text(row + "\n", encoding="utf-8")
    assert "\u2028" in load_task(str(path), demo).examples[0].text.clean


def test_a_split_column_is_honoured_and_without_one_the_file_is_used_whole(demo, tmp_path):
    rows = [GOOD | {"split": "train"}, GOOD | {"split": "test"}, GOOD | {"split": "test"}]
    path = write(tmp_path / "splits.jsonl", rows)
    assert [len(load_task(path, demo, split)) for split in ("train", "test")] == [1, 2]
    for name in ("validation", "val", "valid", "dev"):
        other = write(tmp_path / f"{name}.jsonl", [*rows, GOOD | {"split": name}])
        assert len(load_task(other, demo, "validation")) == 1
    with pytest.raises(InputError, match="its splits are: test, train"):
        load_task(path, demo, "validation")
    assert len(load_task(write(tmp_path / "whole.jsonl", [GOOD] * 3), demo, "validation")) == 3


def test_rows_are_numbered_as_the_file_has_them(demo, tmp_path):
    rows = [GOOD | {"split": "train"}, GOOD | {"split": "test"}, GOOD | {"split": "test", "incorrect": " Mary"}]
    path = write(tmp_path / "splits.jsonl", rows)
    assert len(load_task(path, demo, "train")) == 1
    with pytest.raises(InputError, match=r"example 3: .*same token"):
        load_task(path, demo, "test")


def test_csv_that_was_not_quoted_is_refused(demo, tmp_path):
    """An unquoted comma would move the rest of the prompt into the next column."""
    path = tmp_path / "commas.csv"
    path.write_text("clean,corrupted,correct,incorrect\n" + ",".join(GOOD.values()) + "\n")
    with pytest.raises(InputError, match=r"example 1 has more cells than the header.*quotes"):
        load_task(str(path), demo)
    path.write_text('clean,corrupted,correct,incorrect\n"' + "a" * 200_000 + '",b,c,d\n')
    with pytest.raises(InputError, match="line 2 isn't CSV"):
        load_task(str(path), demo)


def test_many_columns_and_many_short_rows_take_little_memory(demo, tmp_path):
    """A file of 230 kB with a cell for every column of every row would have 400 million cells."""
    path = tmp_path / "wide.csv"
    names = [*GOOD, *(f"c{number}" for number in range(20_000))]
    path.write_text(",".join(names) + "\n" + "a\n" * 20_000)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(InputError, match="20,000 of its rows can't be used"):
        load_task(str(path), demo)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory < 200_000
    path.write_text(",".join([*GOOD, "note"]) + "\r\n\r\n" + ",".join(f'"{text}"' for text in GOOD.values()) + "\r\n")
    assert len(load_task(str(path), demo)) == 1


def test_unknown_names_list_the_choices(demo, tmp_path):
    with pytest.raises(InputError, match=r"ioi, mcqa, greater-than, .*, mib/ioi, .*, mib/NAME=FOLDER, FILE\.jsonl"):
        load_task("ioio", demo)
    for name in ("ioi=folder", "mib/greater-than", "mib/ioi.csv=x"):
        with pytest.raises(InputError, match="unknown task"):
            load_task(name, demo)
    with pytest.raises(InputError, match="train, validation, test"):
        load_task("ioi", demo, "dev")
    with pytest.raises(InputError, match="there is no file"):
        load_task(str(tmp_path / "none.jsonl"), demo)


def test_every_task_is_described():
    assert list(DESCRIPTIONS) == [*GENERATORS, *DATA_SETS]


@pytest.mark.parametrize("name", ["arc-easy", "arc-challenge"])
def test_a_task_without_generator_says_where_its_data_is(demo, name):
    with pytest.raises(InputError, match=rf"'mib/{name}' .*edgewise\[hub\].*'mib/{name}=FOLDER'"):
        load_task(name, demo)


def test_a_generator_that_has_no_more_prompts_says_so(demo):
    with pytest.raises(InputError, match="has only about"):
        load_task("greater-than", demo, "test", 100_000)


def test_metrics_by_hand():
    logits = torch.log(torch.tensor([[0.5, 0.3, 0.2], [0.1, 0.2, 0.7]], dtype=torch.float64))
    answers = torch.tensor([[0, 1], [0, 2]])
    run = Readout(answers, logits.gather(1, answers), answers[:, :1], logits)
    clean = Readout(answers, run.answer_logits, answers[:, :1], logits.flip(0))

    def value(name):
        return METRICS[name]().value(run, clean).tolist()

    assert value("logit-difference") == pytest.approx([0.5108256, -1.9459101])
    assert value("probability-difference") == pytest.approx([0.2, -0.6])
    assert value("accuracy") == [1, 0]
    by_hand = -sum(p * torch.log(torch.tensor(p / q)).item() for p, q in ((0.1, 0.5), (0.2, 0.3), (0.7, 0.2)))
    assert value("kl")[0] == pytest.approx(by_hand, abs=1e-6)
    assert METRICS["kl"]().value(clean, clean).abs().max() == 0


def test_accuracy_and_probabilities_count_every_answer_and_logit_differences_only_two():
    logits = torch.log(torch.tensor([[0.1, 0.2, 0.7]] * 3, dtype=torch.float64))
    answers = torch.tensor([[0, 1]] * 3)
    right = torch.tensor([[0, 0], [0, 2], [0, 1]])
    run = Readout(answers, logits.gather(1, answers), right, logits)
    assert METRICS["accuracy"]().value(run, run).tolist() == [0, 1, 0]
    assert METRICS["logit-difference"]().value(run, run).tolist() == pytest.approx([-0.6931472] * 3)
    assert METRICS["probability-difference"]().value(run, run).tolist() == pytest.approx([-0.1, 0.6, 0.1])
    run = replace(run, right=answers[:, :1], wrong=torch.tensor([[1, 1], [1, 2], [2, 1]]))
    assert METRICS["probability-difference"]().value(run, run).tolist() == pytest.approx([-0.1, -0.8, -0.8])
    assert METRICS["log-probability"]().value(run, run).exp().tolist() == pytest.approx([0.1] * 3)


SETS = GOOD | {"correct": [" Mary", " Anna"], "incorrect": [" John", " Tom", " Paul"]}
ALONE = {name: text for name, text in GOOD.items() if name != "incorrect"}


def test_answers_may_be_lists_in_files_in_memory_and_as_tokens(demo, tmp_path):
    (example,) = load_task(write(tmp_path / "sets.jsonl", [SETS]), demo).examples
    ids = [demo.tokenizer([answer], add_special_tokens=False)["input_ids"][0][0] for answer in
           (" Mary", " Anna", " John", " Tom", " Paul")]  # fmt: skip
    assert (example.correct, *example.also_correct, example.incorrect, *example.also_incorrect) == tuple(ids)
    csv = tmp_path / "sets.csv"
    with csv.open("w", newline="") as file:
        writer = csv_module.writer(file)
        writer.writerow(SETS)
        writer.writerow([value if isinstance(value, str) else json.dumps(value) for value in SETS.values()])
    pair = PromptPair(**GOOD | {"also_correct": (" Anna",), "also_incorrect": (" Tom", " Paul")})
    tokens = as_tokens(example) | {"correct_id": ids[:2], "incorrect_id": ids[2:]}
    for task in (load_task(csv, demo), make_task([SETS], demo), make_task([pair], demo), make_task([tokens], demo)):
        assert task.examples[0].tokens == example.tokens
    for single in (SETS | {"correct": [" Mary"], "incorrect": [" John"]}, GOOD):
        assert make_task([single], demo).examples[0].tokens == make_task([GOOD], demo).examples[0].tokens


def test_a_misspelt_column_is_not_left_out_silently(demo, tmp_path):
    prompts = {"clean": "Rose and Daniel met. Rose gave it to", "corrupted": "Rose and Daniel met. Daniel gave it to"}
    rows = [{**prompts, "correct": " Daniel", name: " Rose"} for name in ("incorect", "", "wrong")]
    for row in rows[:2]:
        path = tmp_path / "task.csv"
        path.write_text(f"{','.join(row)}\n{','.join(row.values())}\n")
        with pytest.raises(InputError, match="has no column 'incorrect', but one named"):
            load_task(str(path), demo)
    with pytest.warns(EdgewiseWarning, match="not used: 'wrong'"):
        make_task(rows[2:], demo)


def test_a_correct_answer_alone_may_have_several_tokens(demo, tmp_path):
    (one,) = load_task(write(tmp_path / "one.jsonl", [ALONE]), demo).examples
    assert one.incorrect is None and one.continuation == () and one.length == make_task([GOOD], demo).longest
    (several,) = make_task([ALONE | {"correct": " Mary and John"}], demo).examples
    answer = demo.tokenizer([" Mary and John"], add_special_tokens=False)["input_ids"][0]
    assert (several.correct, *several.continuation) == tuple(answer) and several.n_reads == 3
    assert several.clean == one.clean + tuple(answer[:2]) and several.corrupted == one.corrupted + tuple(answer[:2])
    spans = make_task([ALONE | {"correct": " Mary and John", "spans": {"end": [56, 58]}}], demo).examples[0].spans
    assert spans["end"] == tuple(range(one.length - 1, several.length))
    csv = tmp_path / "alone.csv"
    csv.write_text(",".join(ALONE) + "\n" + ",".join(f'"{text}"' for text in ALONE.values()) + "\n")
    assert load_task(csv, demo).examples[0].tokens == one.tokens
    tokens = {name: value for name, value in as_tokens(one).items() if name != "incorrect_id"}
    assert make_task([tokens], demo).examples[0].tokens == one.tokens


def test_both_answers_may_have_several_tokens(demo, tmp_path):
    row = GOOD | {"correct": " Mary and John", "incorrect": " Mary and Anna and"}
    with pytest.warns(EdgewiseWarning, match="an answer has several tokens, as in ' Mary and John' and"):
        task = make_task([row | {"spans": {"end": [56, 58]}}], demo)
    (example,), (single,) = task.examples, make_task([GOOD], demo).examples
    right, wrong = demo.tokenizer([row["correct"], row["incorrect"]], add_special_tokens=False)["input_ids"]
    assert (example.correct, *example.continuation) == tuple(right)
    assert (example.incorrect, *example.other_continuation) == tuple(wrong)
    assert example.clean == single.clean + tuple(right[:-1]) + tuple(wrong[:-1]) and example.n_reads == 6
    assert example.spans["end"] == tuple(range(single.length - 1, example.length))
    assert TaskMetric().for_task(task).name == "log-probability-difference"
    (prompt,) = decode_prompts(task.examples, demo.tokenizer)
    # The demo's tokenizer has words without spaces.
    assert [prompt.correct, prompt.incorrect] == [row[name].replace(" ", "") for name in ("correct", "incorrect")]
    with pytest.warns(EdgewiseWarning, match="several tokens"):
        (other,) = make_task([row | {"incorrect": " Mary and Anna to"}], demo).examples
    assert other.tokens != example.tokens  # they differ in the last token of the incorrect answer only
    with pytest.raises(InputError, match="are the same token"):
        make_task([row | {"incorrect": row["correct"]}], demo)


def test_answers_of_several_tokens_from_end_to_end(demo):
    """The summaries of the model are those of whole answers, also where these begin with the same token."""
    rows = [GOOD | {"correct": " Mary and John", "incorrect": " Mary and Anna"}] * 12
    with pytest.warns(EdgewiseWarning):
        task = make_task(rows, demo)
        result = discover(demo, task, task, recipes={CMD: [Recipe(Greedy())]})
    assert result.settings.metric.name == "log-probability-difference"
    full = result.outcomes[0].curve.full
    assert result.run.accuracy.beats == float((full > 0).mean()) and full[0] != 0
    assert result.outcomes[0].curve.faithfulness[-1] == pytest.approx(1)


@pytest.mark.parametrize(
    "rows, words",
    [([SETS | {"incorrect": [" John", " Anna"]}], r"the incorrect answers share the token \d+ \(' ?Anna'\)"),
     ([SETS | {"incorrect": [SETS["correct"][0], " John"]}], r"answer are the same token, \d+ \(' ?Mary'\)"),
     ([SETS | {"correct": []}], "a list of answers is empty"),
     ([SETS | {"correct": [" Mary", 5]}], "correct must be text"),
     ([SETS | {"correct": [" Mary", " Mary and John"]}], "' Mary and John' is 3 tokens"),
     ([ALONE | {"correct": [" Mary", " Mary and John"]}], "' Mary and John' is 3 tokens"),
     ([GOOD, ALONE], "example 2 lacks incorrect"),
     ([ALONE, GOOD], "example 1 lacks incorrect")],
)  # fmt: skip
def test_answers_that_cannot_be_used_are_named(demo, rows, words):
    with pytest.raises(InputError, match=words) as error:
        make_task(rows, demo)
    assert "\n" not in str(error.value)


SWAPPED = {"clean": GOOD["corrupted"], "corrupted": GOOD["clean"], "correct": " John", "incorrect": " Mary"}


def test_prompts_in_memory_are_the_task_of_a_file_with_the_same_rows(demo, tmp_path):
    rows = [GOOD, SWAPPED, GOOD | {"clean": GOOD["clean"].replace("store", "park")}]
    whole = read_task(Path(write(tmp_path / "prompts.jsonl", rows)), None, demo)
    assert (whole.name, whole.split, len(whole)) == ("prompts", "all", 3)
    for given in ([PromptPair(**row) for row in rows], rows, [MappingProxyType(row | {"split": "dev"}) for row in rows],
                  [rows[0], PromptPair(**rows[1]), rows[2]]):  # fmt: skip
        assert make_task(given, demo) == make_task(iter(given), demo) == whole
        assert make_task(given, demo, name="mine", split="train") == replace(whole, name="mine", split="train")
    tokens = [as_tokens(example) for example in whole.examples]
    read = read_task(Path(write(tmp_path / "prompts.jsonl", tokens)), None, demo)
    assert make_task(tokens, demo) == make_task(tuple(tokens), replace(demo, tokenizer=None)) == read
    assert read.digest == whole.digest and read.examples == tuple(replace(e, text=None) for e in whole.examples)


def test_prompts_of_a_task_make_it_again(spoken):
    name, model = spoken
    task = load_task(name, model, "validation", 20)
    assert make_task([e.text for e in task.examples], model, name, "validation") == task


@pytest.mark.parametrize(
    "row, words",
    [(GOOD | {"corrupted": LONGER}, "equally many"),
     (GOOD | {"also_correct": (" Mary and John",)}, "' Mary and John' is 3 tokens"),
     (GOOD | {"incorrect": " Mary"}, "same token"),
     (GOOD | {"correct": " Zebulon"}, "the tokenizer doesn't know the answer ' Zebulon'"),
     (GOOD | {"clean": 5}, "clean must be text"),
     (GOOD | {"clean": None}, "lacks clean"),
     (GOOD | {"clean": GOOD["clean"] + "\ud800"}, "clean holds half of a character"),
     ({key: text for key, text in GOOD.items() if key != "correct"}, "lacks correct"),
     ({"clean_ids": [1], "corrupted_ids": [2], "correct_id": 3, "incorrect_id": 4}, "lacks clean")],
)  # fmt: skip
def test_rows_that_cannot_be_used_are_named_in_memory_and_in_files(demo, tmp_path, row, words):
    forms = [row] if "also_correct" not in row else []  # no column of a file
    forms += [PromptPair(**row)] if {*GOOD} <= {*row} else []
    for form in forms:
        for rows in ([GOOD, form], [PromptPair(**GOOD), SWAPPED, form]):
            with pytest.raises(InputError, match=f"mine, example {len(rows)}.*{re.escape(words)}"):
                make_task(rows, demo, name="mine")
    if row in forms:
        in_file = "isn't JSON" if "half of a character" in words else re.escape(words)
        with pytest.raises(InputError, match=f"bad.jsonl, (example|line) 2.*{in_file}"):
            load_task(write(tmp_path / "bad.jsonl", [GOOD, row]), demo)


@pytest.mark.parametrize("thing", ["clean", 5, None, ["clean"], Example((1,), (2,), 3, 4)])
def test_what_is_no_prompt_is_refused(demo, thing):
    for rows in ([thing], [GOOD, thing]):
        with pytest.raises(InputError, match=f"example {len(rows)} must be a prompt pair or .*{type(thing).__name__}"):
            make_task(rows, demo)


def test_no_prompts_or_tokens_of_another_model_are_refused(demo):
    with pytest.raises(InputError, match="mine has no rows"):
        make_task([], demo, name="mine")
    with pytest.raises(InputError, match="no tokenizer; give tokens: clean_ids"):
        make_task([GOOD], replace(demo, tokenizer=None))
    row = {"clean_ids": [1, 3], "corrupted_ids": [1, 2], "correct_id": 3, "incorrect_id": 4}
    for change, words in (
        ({"clean_ids": [1, 10**6]}, "token 1000000 is outside"),
        ({"correct_id": -1}, "token -1 is outside"),
        ({"clean_ids": [1, 2.5]}, "whole numbers"),
        ({"clean_ids": 5}, "a list of whole numbers"),
        ({"correct_id": 4}, "same token"),
        ({"clean_ids": []}, "empty"),
        ({"corrupted_ids": [1]}, "equally many"),
        ({"correct_id": None}, "lacks correct_id"),
    ):
        with pytest.raises(InputError, match=f"prompts, example 2.*{words}"):
            make_task([row, row | change], demo)
    with pytest.raises(InputError, match="example 2"):
        make_task([row, GOOD], demo)


@pytest.mark.parametrize("seed", range(5))
def test_splits_of_a_file_share_no_prompt(seed):
    """Prompts come back: with another corrupted prompt, and in the other direction. Copies are left out."""
    random = np.random.default_rng(seed)
    pairs = [pair for pair in random.integers(0, 60, (60, 2)).tolist() if pair[0] != pair[1]]
    pairs += [pair[::-1] for pair in pairs[::4]]
    rows = [Example((1, clean), (1, other), 2, 3) for clean, other in pairs]
    whole = Task("t", "all", (*rows, *rows[:5]))
    parts = [split_task(whole, split, seed) for split in SPLITS]
    assert sorted(repr(example) for part in parts for example in part.examples) == sorted(map(repr, set(rows)))
    for part, other in combinations(parts, 2):
        assert not any(map(part.has_prompt_of, other.examples))


def test_a_corrupted_prompt_that_all_rows_share_does_not_keep_them_together():
    whole = Task("t", "all", tuple(Example((1, i), (1, 99), 2, 3) for i in range(30)))
    assert [len(split_task(whole, split)) for split in SPLITS] == [10, 10, 10]


def test_a_file_without_splits_is_split_in_python_as_run_does(demo, edgewise, tmp_path):
    names = ["Mary", "John", "Emma", "Paul", "Lisa", "Adam", "Kate"]
    rows = []
    for one, two in permutations(names, 2):
        clean, other = (f"When {one} and {two} went to the store, {giver} gave a drink to" for giver in (two, one))
        rows.append({"clean": clean, "corrupted": other, "correct": f" {one}", "incorrect": f" {two}"})
    path = write(tmp_path / "own.jsonl", rows)
    whole = load_task(path, demo)
    parts = {split: split_task(whole, split) for split in SPLITS}
    code, out, err = edgewise("run", "--task", path, "--stability", 0, "--out", tmp_path / "run", "--json")
    assert code == 0, err
    assert json.loads(out)["test"]["prompts"] == parts["test"].digest
    with pytest.warns(EdgewiseWarning, match="add a `split` column to the task file, or in Python call split_task"):
        warn_of_overlap(whole, whole, "scored")
    with pytest.raises(InputError, match="unknown split 'tset'; choose one of: train, validation, test"):
        split_task(whole, "tset")
    with pytest.raises(InputError, match="a task is needed"):
        split_task("own.jsonl", "train")


@pytest.mark.parametrize("spans", [{}, {"spans": {"who": "Mary"}}])
def test_bos_in_the_text_of_a_prompt_is_not_doubled(demo, spans):
    assert demo.bos is not None
    text = {name: f"{demo.tokenizer.bos_token}{GOOD[name]}" for name in ("clean", "corrupted")}
    plain, with_text = (make_task([GOOD | spans | more], demo) for more in ({}, text))
    assert with_text.digest == plain.digest and with_text[0].clean.count(demo.bos) == 1
    assert with_text.span_digest == plain.span_digest


def test_a_number_in_place_of_a_split_says_where_it_belongs(demo):
    with pytest.raises(InputError, match="not 50; give a number of examples as examples="):
        load_task("ioi", demo, 50)


def test_the_tokens_of_another_models_tokenizer_are_refused():
    """They would often be within its vocabulary, and the results would mean nothing."""
    demo, known = load_model("demo"), load_model("known/ioi")
    task = load_task("ioi", demo, examples=6)
    with pytest.raises(InputError, match=r"another model's tokenizer than that of 'known/ioi'; load the task again"):
        evaluate_circuits(known, task, [])
    assert task[:2].made_by == task.join().made_by == task.made_by != ()
    assert len(evaluate_circuits(wrap_model(demo.module, demo.tokenizer), task, []).full) == 6
    # Tokens of unknown origin are taken as they are.
    evaluate_circuits(demo, replace(task, made_by=()), [])
