"""Task files from strangers are read strictly, and all that is wrong with them is said at once."""

from __future__ import annotations

import copy
import csv
import json
import os
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from commands import GOOD, write

from edgewise import InputError, PromptPair, evaluate_circuits, load_task, make_task, score_edges
from edgewise.study import Plan
from edgewise.tasks import Example, Task, check_examples
from edgewise.tasks.data_sets import check_unpacked_size
from edgewise.tasks.files import has_splits, read_rows

IDS = {"clean_ids": [3, 4], "corrupted_ids": [3, 5], "correct_id": 6, "incorrect_id": 7}


def test_token_0_counts_among_several_answers(demo):
    (example,) = make_task([IDS | {"correct_id": [6, 0], "incorrect_id": [7, 8]}], demo)
    assert (example.also_correct, example.also_incorrect) == ((0,), (8,))
    (example,) = make_task([IDS | {"incorrect_id": [7, 0, 8]}], demo)
    assert (example.incorrect, example.also_incorrect) == (7, (0, 8))


def test_answers_of_a_prompt_pair_are_texts(demo):
    """A text instead of a tuple would have its characters as answers."""
    for also in ("also_correct", "also_incorrect"):
        with pytest.raises(InputError, match=rf"{also} must be a tuple of answers, not text; write \(' Tom',\)"):
            PromptPair(**GOOD, **{also: " Tom"})
    for wrong in ({"correct": [" Mary"]}, {"also_correct": (3,)}, {"also_incorrect": [None]}):
        with pytest.raises(InputError, match=r"example 1: (in)?correct must be text"):
            make_task([PromptPair(**(GOOD | wrong))], demo)


@pytest.mark.parametrize("examples", [0, 10**6 + 1, 10.0, "10"])
def test_the_number_of_examples_is_a_whole_number(demo, examples):
    with pytest.raises(InputError, match="the number of examples must be a whole number from 1 to 1,000,000"):
        load_task("ioi", demo, examples=examples)


STRANGE = [True, "0", "1_0", "12", 4.0, 4.5, None, [4], {}, float("nan"), 1e400]


@pytest.mark.parametrize("value", STRANGE)
def test_token_ids_of_json_are_whole_numbers(demo, tmp_path, value):
    for row in (IDS | {"correct_id": [value] if value == [4] else value}, IDS | {"clean_ids": [3, value]}):
        with pytest.raises(InputError, match=r"a\.jsonl, (example 1|line 1)"):
            load_task(write(tmp_path / "a.jsonl", [row]), demo)
    for listed in ("3 4", "[3, 4]", {"3": 4}, 34):
        with pytest.raises(InputError, match="a list of whole numbers"):
            load_task(write(tmp_path / "a.jsonl", [IDS | {"clean_ids": listed}]), demo)


@pytest.mark.parametrize(
    "cell",
    ["1_0 4", "+3 4", "\u0663 4", "\uff13 4", "3 4.0", "[3, 4", "3,,4", "3;4", "true 4", "0x3 4", "-3 4", "3\t4",
     "9" * 5000 + " 4", "[[3, 4]]"],
)  # fmt: skip
def test_token_ids_of_cells_are_plain_digits(demo, tmp_path, cell):
    path = tmp_path / "a.csv"
    path.write_text(f'clean_ids,corrupted_ids,correct_id,incorrect_id\n"{cell}",3 5,6,7\n', encoding="utf-8")
    with pytest.raises(InputError, match=r"a\.csv, example 1: clean_ids must be token ids in plain digits"):
        load_task(path, demo)
    single = cell.split(" ")[0]
    if single not in ("3", "[3,"):
        path.write_text(f'clean_ids,corrupted_ids,correct_id,incorrect_id\n3 4,3 5,"{single}",7\n', encoding="utf-8")
        with pytest.raises(InputError, match=r"a\.csv, example 1"):
            load_task(path, demo)


def test_token_ids_that_are_meant_plainly_are_taken(demo, tmp_path):
    path = tmp_path / "a.csv"
    for cell in ("3 4", "[3, 4]", "3,4", " [ 3 ,  4 ] "):
        path.write_text(f'clean_ids,corrupted_ids,correct_id,incorrect_id\n"{cell}",3 5,6,7\n')
        assert load_task(path, demo).examples[0].clean == (3, 4)
    for clean in ((3, 4), np.array([3, 4]), torch.tensor([3, 4]), [np.uint8(3), np.int64(4)]):
        example = make_task([IDS | {"clean_ids": clean, "correct_id": np.int32(6)}], demo).examples[0]
        assert example.clean == (3, 4) and {type(i) for i in (*example.clean, example.correct)} == {int}
    for clean in ([True, 4], np.array([True, False]), torch.tensor([True, False]), "3 4", [3.0, 4], np.array([3.0, 4])):
        with pytest.raises(InputError, match="whole numbers"):
            make_task([IDS | {"clean_ids": clean}], demo)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (json.dumps(GOOD)[:-1] + ', "clean": "again"}', "line 1 isn't JSON: the key 'clean' is there more"),
        (json.dumps(GOOD)[:-1] + ', "x": {"y": 1, "y": 2}}', "line 1 isn't JSON: the key 'y' is there more"),
        (json.dumps(GOOD)[:-1] + ', "x": NaN}', "line 1 isn't JSON"),
        (json.dumps(GOOD)[:-1] + ', "x": 1e999}', "line 1 isn't JSON"),
        (json.dumps(GOOD)[:-1] + ', "x": -Infinity}', "line 1 isn't JSON"),
        (json.dumps(GOOD)[:-1] + "\0}", "holds a NUL byte"),
        ("[" * 100_000, "line 1 isn't JSON"),
        ('{"a": ' + "1" * 10_000 + "}", "line 1 isn't JSON"),
    ],
)
def test_rows_that_json_forbids_are_refused(demo, tmp_path, row, words):
    with pytest.raises(InputError, match=words):
        load_task(write(tmp_path / "a.jsonl", [row]), demo)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("clean,clean,corrupted,correct,incorrect\na,b,c,d,e\n", "has the column 'clean' twice"),
        ('clean,corrupted,correct,incorrect\n"a,b,c,d\n', "isn't CSV"),
        ('clean,corrupted,correct,incorrect\n"a"a,b,c,d\n', "isn't CSV"),
        ("clean,corrupted,correct,incorrect\na,b\0,c,d\n", "holds a NUL byte"),
        ("", "has no rows"),
        ("clean,corrupted,correct,incorrect\n", "has no rows"),
        ("clean,corrupted,correct,incorrect\na,b\n", "example 1 lacks correct;"),
    ],
)
def test_cells_that_csv_forbids_are_refused(demo, tmp_path, text, words):
    path = tmp_path / "a.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=words):
        load_task(path, demo)


def test_what_is_no_file_is_refused_and_never_waited_for(demo, tmp_path):
    os.mkfifo(tmp_path / "pipe.jsonl")
    (tmp_path / "folder.jsonl").mkdir()
    (tmp_path / "device.jsonl").symlink_to("/dev/zero")
    (tmp_path / "loop.jsonl").symlink_to(tmp_path / "loop.jsonl")
    with (tmp_path / "large.jsonl").open("wb") as file:
        file.truncate(1 << 40)
    start = time.process_time()
    for name in ("pipe", "folder", "device", "loop", "large"):
        for task in (f"{tmp_path}/{name}.jsonl", f"mib/ioi={tmp_path}/{name}.jsonl"):
            if task != f"mib/ioi={tmp_path}/folder.jsonl":
                with pytest.raises(InputError, match=rf"{name}\.jsonl"):
                    load_task(task, demo)
    assert time.process_time() - start < 20  # not a speed: reading the large file would take minutes


def test_unknown_words_of_prompts_are_refused_by_name(demo, tmp_path):
    """As `<unk>` a clean prompt could equal its corrupted one."""
    strange = GOOD | {"clean": GOOD["clean"].replace("store", "zeppelin"), "extra": 5}
    with pytest.raises(InputError, match=r"example 1: the tokenizer doesn't know the word 'zeppelin,' of the clean"):
        load_task(write(tmp_path / "a.jsonl", [strange]), demo)
    with pytest.raises(InputError, match=r"prompts, example 2: .* of the corrupted prompt"):
        make_task([GOOD, GOOD | {"corrupted": strange["clean"]}], demo)
    literal = {name: value.replace("store", "<unk>") for name, value in GOOD.items()}
    assert len(make_task([literal], demo)) == 1
    assert len(make_task([strange], replace(demo, tokenizer=Knowing(demo.tokenizer)))) == 1


class Knowing:
    """A tokenizer without an unknown token."""

    def __init__(self, other):
        self.other = other

    def __call__(self, texts, add_special_tokens):
        return self.other(texts, add_special_tokens=add_special_tokens)


def test_unknown_words_of_a_data_set_are_counted(demo, tmp_path):
    def row(place):
        story = f"When Mary and John went to the {place}, {{}} gave a drink to"
        names = {"indirect_object": "Mary", "subject": "John", "random_c": "Anna"}
        flipped = {"prompt": story.format("Mary")}
        return {"prompt": story.format("John"), "metadata": names, "s2_io_flip_counterfactual": flipped}

    task = load_task(f"mib/ioi={write(tmp_path / 'train.jsonl', [row('store'), row('zeppelin')])}", demo)
    assert (len(task), dict(task.dropped)) == (1, {"with a prompt that the tokenizer doesn't know all of": 1})
    wrong = [row("store") | {"prompt": value} for value in (5.5, None, True)]
    with pytest.raises(InputError, match=r"mib/ioi: 3 of its rows can't be used") as error:
        load_task(f"mib/ioi={write(tmp_path / 'train.jsonl', [row('store'), *wrong])}", demo)
    assert [line.split(": ")[0].split(", ")[-1] for line in error.value.details] == ["row 2", "row 3", "row 4"]


@pytest.mark.parametrize(
    ("rows", "details"),
    [
        ([GOOD, {}, GOOD | {"incorrect": " Mary"}, GOOD | {"clean": 5}, GOOD | {"clean": "Zebulon"}],
         ["example 2 lacks clean", "example 3: the correct and the incorrect answer are the same token",
          "example 4: clean must be text", "example 5: "]),
        ([IDS, IDS | {"correct_id": True}, IDS, IDS | {"clean_ids": [1, 10**9]}],
         ["example 2: token ids must be whole", "example 4: token 1000000000 is outside"]),
        ([GOOD, "{", "5", GOOD], ["line 2 isn't JSON", "line 3 must be a JSON object, not int"]),
        ([GOOD | {"split": "test"}, GOOD, GOOD | {"split": ""}, GOOD | {"split": 5}],
         [f"example {n} has no split" for n in (2, 3, 4)]),
    ],
)  # fmt: skip
def test_all_rows_that_cannot_be_used_are_listed(demo, tmp_path, rows, details):
    path = write(tmp_path / "a.jsonl", rows)
    with pytest.raises(InputError) as error:
        load_task(path, demo, "test")
    assert error.value.message.startswith(f"{path}: {len(details)} of its rows can't be used")
    assert len(error.value.details) == len(details)
    assert all(found.startswith(words) for found, words in zip(error.value.details, details, strict=True))


def test_a_long_list_ends_with_a_count(demo, tmp_path):
    with pytest.raises(InputError) as error:
        load_task(write(tmp_path / "a.jsonl", [{}] * 25), demo)
    lines = str(error.value).splitlines()
    assert len(lines) == 3 and lines[1].startswith("  example 1 lacks") and lines[2].startswith("  and 24 more with ")


def test_errors_are_grouped_by_cause_with_columns_and_tokens(demo, tmp_path):
    longer = {"clean": GOOD["clean"] + " and", "corrupted": GOOD["corrupted"]}
    rows = [GOOD | longer if number % 2 else {"prompt": "x", "answer": "y"} for number in range(12)]
    with pytest.raises(InputError) as error:
        load_task(write(tmp_path / "a.jsonl", rows), demo)
    lacks, unequal = error.value.details[:2], error.value.details[2:]
    assert lacks[0].startswith("example 1 lacks") and lacks[1].endswith("5 more with this problem: 3, 5, 7, 9, 11")
    assert "it has 'prompt', 'answer', but a row needs clean" in lacks[0]
    assert len(unequal) == 2 and unequal[1].startswith("and 5 more")
    assert "|to|and' against 'Mary|gave|a|drink|to'" in unequal[0]
    table = tmp_path / "a.csv"
    table.write_text("prompt,answer\nx,y\n")
    with pytest.raises(InputError, match="it has 'prompt', 'answer', but needs clean, corrupted"):
        load_task(table, demo)


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "json"])
def test_columns_of_a_file_may_have_other_names(demo, tmp_path, suffix):
    """The file's own column of a name that is given for another one is not used."""
    names = {"clean": "prompt", "corrupted": "Counterfactual prompt", "correct": "answer", "incorrect": "other"}
    row = {names[column]: text for column, text in GOOD.items()} | {"clean": "unused", "split": "train"}
    path = tmp_path / f"task.{suffix}"
    if suffix == "csv":
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(row))
            writer.writeheader()
            writer.writerow(row)
    else:
        path.write_text(json.dumps([row] if suffix == "json" else row))
    (pair,) = (example.text for example in load_task(path, demo, columns=names).examples)
    assert vars(pair).items() >= GOOD.items()
    assert has_splits(path, "train", names) and not has_splits(path, "test", names)
    with pytest.raises(InputError, match=r"has no column 'promt'; it has 'prompt'.*did you mean 'prompt'"):
        load_task(path, demo, columns=names | {"clean": "promt"})
    del names["corrupted"]
    with pytest.raises(InputError, match=r"lacks .*corrupted.*; columns={'clean': 'NAME', \.\.\.} says which"):
        load_task(path, demo, columns=names)


def test_nested_fields_of_a_json_file_can_be_columns(demo, tmp_path):
    path = write(tmp_path / "a.jsonl", [GOOD | {"corrupted": {"prompt": GOOD["corrupted"]}}])
    task = load_task(path, demo, columns={"corrupted": "corrupted.prompt"})
    assert task.examples[0].text.corrupted == GOOD["corrupted"]


def test_commands_take_the_columns_of_a_file(edgewise, tmp_path):
    rows = [{"prompt": GOOD["clean"], "corrupt": GOOD["corrupted"], "correct": " Mary", "incorrect": " John"}] * 2
    path = write(tmp_path / "a.jsonl", rows)
    assert "--columns clean=NAME,... says which columns" in edgewise("tasks", path)[2]
    columns = ("--columns", "clean=prompt,corrupted=corrupt")
    assert "kept: 2" in edgewise("tasks", path, *columns)[1]
    folder = tmp_path / "run"
    edgewise("run", "--task", path, *columns, "--no-learned", "--no-verify", "--stability", "0", "--out", folder)
    assert f"examples: 2 of {path}" in edgewise("knock-out", "--circuit", folder, "--each")[1].replace("\n", " ")
    with pytest.raises(InputError, match="columns are for task files and data sets"):
        Plan("demo", "ioi", columns=(("clean", "prompt"),))


def test_tokens_and_lengths_that_the_model_has_not_are_refused_by_every_verb(demo):
    """A tokenizer may know more tokens than the embedding has rows; those would be an index out of range."""
    good = Example((3, 4), (3, 5), 6, 7)
    beyond = demo.vocabulary
    for wrong in (
        replace(good, clean=(3, beyond)), replace(good, corrupted=(beyond, 3)), replace(good, correct=beyond),
        replace(good, incorrect=beyond), replace(good, also_correct=(beyond,)), replace(good, clean=(-1, 3)),
    ):  # fmt: skip
        task = Task("own", "all", (good, wrong))
        words = rf"task 'own', example 2: token (-1|{beyond}) is outside the model's vocabulary of {beyond}"
        for verb in (check_examples, score_edges, lambda m, t: evaluate_circuits(m, t, [])):
            with pytest.raises(InputError, match=words):
                verb(demo, task)
    long = Example((3,) * 100, (4,) * 100, 6, 7)
    with pytest.raises(InputError, match="task 'own': 2 of its rows can't be used") as error:
        check_examples(demo, Task("own", "all", (long, good, replace(good, correct=beyond))))
    assert [line[:13] for line in error.value.details] == ["example 1 has", "example 3: to"]


def test_copies_are_counted_and_told_of(edgewise, demo, tmp_path):
    pairs = [PromptPair(**GOOD)] * 3 + [PromptPair(GOOD["corrupted"], GOOD["clean"], " John", " Mary")]
    assert make_task(pairs, demo).copies == 2 and load_task("ioi", demo, examples=50).copies == 0
    message = edgewise("evaluate", "full", "--task", write(tmp_path / "a.jsonl", [GOOD] * 12))[2]
    assert "11 of the 12 examples are copies of others; intervals are too narrow" in message


def test_parquet_that_unpacks_to_far_more_than_it_is_is_refused(tmp_path):
    """By what it says of itself, before it is read."""
    path = tmp_path / "train.parquet"
    path.write_bytes(b"0" * 10_000)

    def claim(rows, *sizes):
        groups = [SimpleNamespace(total_byte_size=size) for size in sizes]
        return SimpleNamespace(num_rows=rows, num_row_groups=len(groups), row_group=lambda number: groups[number])

    check_unpacked_size(path, claim(100, 40_000, 60_000))
    for metadata in (claim(10**10, 10_000), claim(100, 10**6, 10**10), claim(100, -1), claim(10**9, 100)):
        with pytest.raises(InputError, match=r"train\.parquet has 10,000 bytes, but claims"):
            check_unpacked_size(path, metadata)


def test_a_file_that_is_no_task_at_all_costs_little(tmp_path):
    lines = tmp_path / "lines.jsonl"
    lines.write_text("1\n" * 100_000)
    with pytest.raises(InputError, match="100,000 of its rows") as refusal:
        read_rows(lines)
    assert str(refusal.value).endswith("and 99,980 more") and len(refusal.value.details) == 2
    table = tmp_path / "table.csv"
    table.write_text("a,b\n" * 100_000)
    with pytest.raises(InputError, match="lacks the columns clean, corrupted, correct, incorrect"):
        read_rows(table)


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [("a.jsonl", [{"clean": "a", "corrupt": "b", "answer": "c", "wrong": "d"}], "lacks corrupted, correct; it has"),
     ("a.jsonl", [GOOD, GOOD | {"incorrect": None}], "lacks incorrect; it has 'clean', 'corrupted', 'correct', but"),
     ("a.json", [{"data": [GOOD]}], "lacks clean, corrupted, correct; it has 'data'"),
     ("a.jsonl", [[GOOD]], "line 1 must be a JSON object, not list; an array needs a file named .json"),
     ("a.csv", "clean;corrupted;correct;incorrect\n", "with commas between cells"),
     ("a.txt", [GOOD], "a.txt isn't a task file: its name must end in .jsonl, .json, .csv"),
     ("a.jsonl", [GOOD | {"correct": f" x{word}"} for word in "abcdef"], "and 3 more with this problem: 4, 5, 6"),
     ("a.jsonl", [GOOD, GOOD | {"clean": GOOD["clean"] * 99, "corrupted": GOOD["corrupted"] * 99}],
      "; skip_bad=True leaves out such rows")],
)  # fmt: skip
def test_errors_point_at_the_cause(demo, tmp_path, recwarn, name, text, expected):
    path = tmp_path / name
    path.write_text(text if isinstance(text, str) else "\n".join(map(json.dumps, text)))
    with pytest.raises(InputError) as error:
        load_task(path, demo)
    assert expected in str(error.value) and not recwarn.list


def test_splits_may_be_in_any_case_and_home_may_be_short(demo, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    write(tmp_path / "a.jsonl", [GOOD | {"split": split} for split in ("Train", "TEST ", "Val")])
    for split in ("train", "validation", "test"):
        assert len(load_task("~/a.jsonl", demo, split)) == 1


def test_the_same_rows_are_the_same_task_in_every_form(demo, tmp_path):
    """Lines, an array, csv with and without a byte order mark, capitalised columns, a data frame."""
    pandas = pytest.importorskip("pandas")
    expected = make_task([GOOD, GOOD], demo).digest
    capital = {f" {name.capitalize()}": value for name, value in GOOD.items()}
    (tmp_path / "a.json").write_text(json.dumps([GOOD, capital], indent=1))
    (tmp_path / "lines.json").write_text(f"{json.dumps(GOOD)}\n{json.dumps(capital)}\n")
    pandas.DataFrame([capital, capital]).to_csv(tmp_path / "a.csv", index=False)
    pandas.DataFrame([GOOD, GOOD]).to_csv(tmp_path / "bom.CSV", index=False, encoding="utf-8-sig")
    for name in ("a.json", "lines.json", "a.csv", "bom.CSV"):
        assert load_task(str(tmp_path / name), demo).digest == expected, name
    for frame in (pandas.DataFrame([GOOD, GOOD]), pandas.DataFrame([capital, capital], index=[7, 7])):
        assert make_task(frame, demo).digest == expected
    (tmp_path / "b.json").write_text(json.dumps([GOOD, 3]))
    with pytest.raises(InputError, match=r"b\.json, row 2 must be a JSON object, not int"):
        load_task(str(tmp_path / "b.json"), demo)
    (tmp_path / "b.json").write_text("[" * 10**6)
    with pytest.raises(InputError, match=r"b\.json isn't JSON"):
        load_task(str(tmp_path / "b.json"), demo)
    # Two names that differ only in case stay two columns.
    assert read_rows(Path(write(tmp_path / "c.jsonl", [GOOD | {"Clean": "x"}])))[0] == GOOD | {"Clean": "x"}


def test_padding_and_truncation_of_a_tokenizer_change_nothing(demo):
    task = load_task("ioi", demo, "train", 8)
    pairs = [example.text for example in task]
    tokenizer = copy.deepcopy(demo.tokenizer)
    tokenizer.padding_side = tokenizer.truncation_side = "left"
    tokenizer.backend_tokenizer.enable_padding(direction="left", length=64)
    tokenizer.backend_tokenizer.enable_truncation(5)
    assert make_task(pairs, replace(demo, tokenizer=tokenizer)).digest == make_task(pairs, demo).digest
