"""docs/tasks.md: its example runs, and the error messages that it quotes are raised."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import pytest

from edgewise import InputError, load_task
from edgewise.tasks import LogitDifference, TaskMetric
from edgewise.tasks.files import TEXT, TOKENS

DOCS = Path(__file__).parents[1] / "docs"
PAGE, SPANS, ANSWERS = ((DOCS / f"{name}.md").read_text(encoding="utf-8") for name in ("tasks", "spans", "answers"))
EXAMPLE = re.search(r"```json\n(.*?)```", PAGE, re.S).group(1)
ROW = json.loads(EXAMPLE.splitlines()[0])
IDS = {"clean_ids": [0, 9, 8], "corrupted_ids": [0, 9, 7], "correct_id": 5, "incorrect_id": 6}


def json_lines(*rows: dict) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


ERRORS = {
    "patching needs equally many": json_lines(ROW | {"corrupted": "When Mary"}),
    "each answer of a set must be one token": json_lines(ROW | {"correct": [" Mary John", " Anna"]}),
    "share the token": json_lines(ROW | {"correct": [" Mary", " Anna"], "incorrect": [" John", " Anna"]}),
    "a list of answers is empty": json_lines(ROW | {"correct": []}),
    "have no incorrect one": json_lines({name: text for name, text in ROW.items() if name != "incorrect"}),
    "are the same token": json_lines(ROW | {"incorrect": " Mary"}),
    "these are the same": json_lines(ROW | {"correct": " Mary John", "incorrect": " Mary Anna"}),
    "no metric suits both": json_lines(
        ROW | {"correct": [" Mary", " Anna"], "incorrect": [" John", " Tom"]}, ROW | {"correct": " Mary John"}
    ),
    "the tokenizer doesn't know": json_lines(ROW | {"correct": " Zanzibar"}),
    "lacks": json_lines({name: ROW[name] for name in ("split", "clean", "correct")}),
    "must be text": json_lines(ROW | {"clean": 7}),
    "has no split, but others have": json_lines(ROW, {name: ROW[name] for name in TEXT}),
    "has no rows of split": json_lines(ROW | {"split": "test"}),
    "more cells than the header": "clean,corrupted,correct,incorrect\na, b,c,d,e\n",
    "isn't JSON": '{"clean": 1, "clean": 2}\n',
    "outside the model's vocabulary": json_lines(IDS | {"correct_id": 10**6}),
    "token ids must be whole numbers": json_lines(IDS | {"correct_id": 1.5}),
    "every prompt the same spans": json_lines(ROW, ROW | {"spans": {"name": [5, 9]}}),
    "a token belongs to one span": json_lines(ROW | {"spans": {"a": [5, 7], "b": [7, 9]}}),
    "spans need the same positions in both": json_lines(
        ROW | {"clean": f"<<a:When>>{ROW['clean'][4:]}", "corrupted": ROW["corrupted"].replace("Mary", "<<a:Mary>>", 1)}
    ),
    "a span needs a start, and a larger stop": json_lines(ROW | {"spans": {"a": [5, 5]}}),
    "times in the clean prompt": json_lines(ROW | {"spans": {"a": "John"}}),
    "isn't closed by '>>'": json_lines(ROW | {"clean": "<<a:" + ROW["clean"]}),
    "spans must be a mapping": json_lines(ROW | {"spans": 5}),
    "isn't UTF-8 text": "\udcff",
}


def test_example_is_read_in_all_splits_and_shown(edgewise, demo, tmp_path):
    path = tmp_path / "gifts.jsonl"
    path.write_text(EXAMPLE)
    assert [len(load_task(path, demo, split)) for split in ("train", "validation", "test")] == [3, 2, 2]
    code, out, _ = edgewise("tasks", path, "--model", "demo", "--split", "test")
    assert code == 0 and "Anna and Tom" in out and "kept: 2" in out
    code, out, err = edgewise(
        "run", "--task", path, "--learned", "--learn-steps", 2, "--stability", 0, "--out", tmp_path / "r"
    )
    assert code == 0 and "CMD" in out, err


def test_page_lists_every_column():
    assert all(f"`{name}`" in PAGE for name in (*TEXT, *TOKENS, "spans", "split"))


@pytest.mark.parametrize("words", ERRORS)
def test_quoted_errors_are_raised(words, demo, tmp_path):
    assert f"| `{words}` |" in PAGE + SPANS + ANSWERS
    path = tmp_path / ("a.csv" if words.startswith("more cells") else "a.jsonl")
    path.write_bytes(ERRORS[words].encode("utf-8", "surrogateescape"))
    with pytest.raises(InputError, match=re.escape(words)):
        for metric in (TaskMetric(), LogitDifference()):
            metric.for_task(load_task(path, demo, "train"))


def test_spans_are_read_as_described(demo, tmp_path):
    marked, by_column = (json.loads(text) for text in re.findall(r"```json\n(.*?)```", SPANS, re.S))
    path = tmp_path / "a.jsonl"
    path.write_text(json_lines(marked))
    (example,) = load_task(path, demo).examples
    assert "<<" not in example.text.clean
    assert span_words(demo, example) == {"IO": "Mary", "S1": "John", "S2": "John", "end": "to", "other": None}
    path.write_text(json_lines(by_column))
    assert span_words(demo, load_task(path, demo).examples[0]) == {"IO": "Mary", "S2": "John", "other": None}
    path = tmp_path / "a.csv"
    with path.open("w", newline="") as file:
        cells = by_column | {"spans": json.dumps(by_column["spans"])}
        csv.writer(file).writerows([cells.keys(), cells.values()])
    assert span_words(demo, load_task(path, demo).examples[0]) == {"IO": "Mary", "S2": "John", "other": None}


def span_words(model, example):
    return {
        name: None if name == "other" else model.tokenizer.decode([example.clean[place] for place in places])
        for name, places in example.spans.items()
    }


def test_every_error_on_the_page_is_tested():
    tables = [page.split("| it says |")[1].split("\n\n")[0] for page in (PAGE, SPANS, ANSWERS)]
    assert set(re.findall(r"^\| `(.*?)` \|", "".join(tables), re.M)) == set(ERRORS)


def test_csv_cells_are_read_as_described(demo, tmp_path):
    path = tmp_path / "a.csv"
    path.write_text('clean_ids,corrupted_ids,correct_id,incorrect_id,note\n"[0, 17, 4]",0 17 5,23,24,mine\n')
    (example,) = load_task(path, demo).examples
    assert (example.clean, example.corrupted, example.correct, example.incorrect) == ((0, 17, 4), (0, 17, 5), 23, 24)
    path.write_text("clean,corrupted,correct,incorrect\nMary gave a drink to,John gave a drink to, John, Mary\n")
    (example,) = load_task(path, demo).examples
    assert example.text.correct == " John"
