"""Any data set as a task, from a local folder: the same code as for the hub."""

import json

import pytest
from commands import GOOD

from edgewise import InputError, load_task
from edgewise.errors import EdgewiseWarning
from edgewise.tasks.data_sets import parse_columns

pytest.importorskip("datasets")
COLUMNS = {"clean": "prompt", "corrupted": "other.prompt", "correct": "answer", "incorrect": "other.answer"}


def row(number=0):
    texts = {name: text.replace("store", "store" if number % 2 else "park") for name, text in GOOD.items()}
    return {"prompt": texts["clean"], "answer": texts["correct"], "id": number,
            "other": {"prompt": texts["corrupted"], "answer": texts["incorrect"]}}  # fmt: skip


def write_folder(folder, **splits):
    folder.mkdir(exist_ok=True)
    for split, rows in splits.items():
        (folder / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return f"hub:{folder}"


def test_fields_are_the_columns_of_the_task(demo, tmp_path):
    name = write_folder(tmp_path / "set", train=[row(n) for n in range(6)], validation=[row()], test=[row(), row(1)])
    for split, count in (("train", 6), ("validation", 1), ("test", 2)):
        assert len(load_task(name, demo, split, columns=COLUMNS)) == count
    task = load_task(name, demo, "train", 2, columns=COLUMNS)
    assert len(task) == 2 and task.examples[1].text.clean == GOOD["clean"]
    alone = {column: field for column, field in COLUMNS.items() if column != "incorrect"}
    assert load_task(name, demo, columns=alone).examples[0].incorrect is None


def test_missing_splits_are_taken_from_train(demo, tmp_path):
    name = write_folder(tmp_path / "set", train=[row(n) for n in range(20)])
    with pytest.warns(EdgewiseWarning, match="has no split validation and test; two tenths"):
        counts = [len(load_task(name, demo, split, columns=COLUMNS)) for split in ("train", "validation", "test")]
    assert counts == [12, 4, 4]
    with pytest.raises(InputError, match="has no split 'dev'; its splits are train"):
        load_task(name, demo, "dev", columns=COLUMNS)


def test_bad_data_sets_are_refused_in_one_line(demo, tmp_path):
    name = write_folder(tmp_path / "set", train=[row()], validation=[row()], test=[row()])
    with pytest.raises(InputError, match="row 1 lacks 'nothing'"):
        load_task(name, demo, columns=COLUMNS | {"clean": "nothing"})
    with pytest.raises(InputError, match="lacks clean"):
        load_task(name, demo)
    with pytest.raises(InputError, match="can't be loaded as a data set"):
        load_task(f"hub:{tmp_path / 'none'}", demo, columns=COLUMNS)
    with pytest.raises(InputError, match="are for task files and data sets"):
        load_task("ioi", demo, columns=COLUMNS)


def test_columns_are_names_and_fields():
    assert parse_columns("clean=prompt, corrupted=a.b,correct=c") == {
        "clean": "prompt",
        "corrupted": "a.b",
        "correct": "c",
    }
    for text in ("", "clean", "clean=", "prompt=clean", "clean=a,clean=b"):
        with pytest.raises(InputError, match="columns are such as"):
            parse_columns(text)
