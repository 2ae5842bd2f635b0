"""The benchmark's data sets, from small copies in the hub's schema, and from the hub itself at its boundary."""

import json
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest
from commands import run_json, write
from test_tasks import Pieces, load

from edgewise import InputError, load_task
from edgewise.tasks import DATA_SETS, SPLITS, is_task_file

BOS = 10**6
# Words of up to six letters and numbers of up to three digits are single tokens, with their space if they have one.
PIECES = r" ?[A-Za-z]{1,6}|[0-9]{1,3}|\s|."


@pytest.fixture
def model():
    return replace(load("demo"), tokenizer=Pieces(PIECES), bos=BOS)


def ioi(subject="John", indirect="Mary", third="Tom", flipped=None):
    prompt = f"When {indirect} and {subject} went to the store, {{}} gave a drink to"
    return {
        "template": "When {name_A} and {name_B} went to the {place}, {name_C} gave a {object} to",
        "metadata": {"indirect_object": indirect, "subject": subject, "object": "drink", "place": "store",
                     "random_a": "Ann", "random_b": "Bob", "random_c": third},
        "prompt": prompt.format(subject),
        "choices": [indirect, subject],
        "answerKey": 0,
        "abc_counterfactual": {"prompt": "unused", "choices": ["Ann", "Bob"], "answerKey": 0},
        "s2_io_flip_counterfactual": {"prompt": flipped or prompt.format(indirect), "choices": [subject, indirect],
                                      "answerKey": 0},
    }  # fmt: skip


def choice(labels="A B C D", others=(1, 2, 3, 4), key=2, extra=""):
    colours = ["gray", "black", "white", "brown"]

    def prompt(symbols):
        listed = "".join(f"\n{symbol}. {colour}" for symbol, colour in zip(symbols, colours, strict=True))
        return f"Question: A box is {colours[key]}. What color is a box?{listed}\nAnswer:"

    return {
        "question": "A box is white. What color is a box?",
        "choices": {"label": labels.split(), "text": colours},
        "answerKey": key,
        "prompt": prompt(labels.split()),
        "symbol_counterfactual": {"prompt": extra + prompt(others), "choices": {"label": list(others), "text": colours},
                                  "answerKey": key},
        "idx": 0,
    }  # fmt: skip


def sum_of(a, b, c, d, operator="+", counterfactual=True):
    def result(x, y):
        return x + y if operator == "+" else x - y

    other = {"prompt": f"{c} {operator} {d} = ", "label": result(c, d), "operand1": c, "operand2": d}
    return {
        "idx": 0,
        "template": f"{{a}} {operator} {{b}} = ",
        "prompt": f"{a} {operator} {b} = ",
        "label": str(result(a, b)),
        "operator": operator,
        "num_digit": 2,
        "operand1": a,
        "operand2": b,
        "random_counterfactual": other if counterfactual else None,
    }


UNEQUAL = "with prompts of unequal token length"
SAME = "with answers that begin with the same token"
CHOICES = [
    choice(),
    choice(labels="A B C D", others=("E", "F", "G", "H"), key=0),
    choice(others=(1, 2, 3333, 4)),
    choice(extra="So: "),
    choice(others=("D", "A", "C", "B")),
]
CHOICE_FACTS = (
    ("Question: A box is white. What color is a box?\nA. gray\nB. black\nC. white\nD. brown\nAnswer:",
     "Question: A box is white. What color is a box?\n1. gray\n2. black\n3. white\n4. brown\nAnswer:", "C", "3"),
    2,
    {"with answer labels of unequal token length": 1, UNEQUAL: 1, SAME: 1},
)  # fmt: skip
# Of each set: its rows; the first pair's prompts and answer pieces; how many rows are kept; how many are dropped, why.
SETS = {
    "mib/ioi": (
        [ioi(), ioi(third="Charlotte"), ioi(subject="Charlotte", indirect="Jonathan", third="Nathaniel"),
         ioi(flipped="When Mary and John went to the big store, Mary gave a drink to"),
         ioi(indirect="Jonathan", subject="Jonathas", third="Charlotte")],
        (("When Mary and John went to the store, John gave a drink to",
          "When Mary and John went to the store, Mary gave a drink to", " Mary", " John"),
         2, {"with names of unequal token length": 1, UNEQUAL: 1, SAME: 1}),
    ),
    "mib/mcqa": (CHOICES, CHOICE_FACTS),
    "mib/arc-easy": (CHOICES, CHOICE_FACTS),
    "mib/arc-challenge": (CHOICES, CHOICE_FACTS),
    "mib/arithmetic-addition": (
        [sum_of(12, 34, 56, 41), sum_of(99, 99, 10, 10), sum_of(12, 34, 56, 41, "-"), sum_of(900, 100, 1, 2),
         sum_of(1, 2, 900, 100), sum_of(1, 2, 3, 4, counterfactual=False), sum_of(12, 34, 34, 12),
         sum_of(12, 34, 56, 41) | {"prompt": "So 12 + 34 = "}],
        (("12 + 34 = ", "56 + 41 = ", "46", "97"), 2,
         {"with another operator": 1, "with an answer of several tokens": 2, "without a counterfactual": 1, SAME: 1,
          UNEQUAL: 1}),
    ),
    "mib/arithmetic-subtraction": (
        [sum_of(46, 34, 97, 41, "-"), sum_of(46, 34, 97, 41, "+"), sum_of(3, 4, 5, 1, "-")],
        (("46 - 34 = ", "97 - 41 = ", "12", "56"), 1,
         {"with another operator": 1, "with an answer of several tokens": 1}),
    ),
}  # fmt: skip


def check(name, task, split, model):
    (clean, corrupted, correct, incorrect), kept, dropped = SETS[name][1]
    first = task.examples[0]
    assert (task.name, task.split, len(task), dict(task.dropped)) == (name, split, kept, dropped)
    assert (first.text.clean, first.text.corrupted) == (clean, corrupted)
    assert (first.correct, first.incorrect) == (model.tokenizer.id(correct), model.tokenizer.id(incorrect))
    for prompt, ids in ((clean, first.clean), (corrupted, first.corrupted)):
        assert ids == (BOS, *model.tokenizer([prompt], add_special_tokens=False)["input_ids"][0])


def flat(row, name=""):
    """A row whose nested fields are columns with dotted names."""
    if not isinstance(row, dict):
        return {name: row}
    return {key: value for part in row for key, value in flat(row[part], f"{name}.{part}" if name else part).items()}


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("form", ["nested", "flattened"])
def test_rows_of_a_copy_are_kept_or_dropped_as_the_benchmark_does(model, tmp_path, name, form):
    rows = SETS[name][0] if form == "nested" else [flat(row) for row in SETS[name][0]]
    write(tmp_path / "validation.jsonl", rows)
    check(name, load_task(f"{name}={tmp_path}", model, "validation"), "validation", model)


@pytest.mark.parametrize("name", SETS)
def test_a_copy_in_parquet_is_the_same(model, tmp_path, name):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = json.loads(json.dumps(SETS[name][0]))
    for other in (row["symbol_counterfactual"]["choices"] for row in rows if "symbol_counterfactual" in row):
        other["label"] = [str(label) for label in other["label"]]  # a column has one type
    folder = tmp_path / (DATA_SETS[name].config or "data")
    folder.mkdir()
    for number, part in enumerate((rows[:1], rows[1:])):
        parquet.write_table(pyarrow.Table.from_pylist(part), folder / f"test-0000{number}-of-00002.parquet")
    check(name, load_task(f"{name}={tmp_path}", model, "test"), "test", model)
    (folder / "test-00000-of-00002.parquet").unlink()
    with pytest.raises(InputError, match="has 1 of the 2 files of split 'test'"):
        load_task(f"{name}={tmp_path}", model, "test")


@pytest.fixture
def hub(monkeypatch):
    """A stand-in for the package `datasets`, and the arguments of its calls."""
    calls = []

    def load_dataset(path, name=None, split=None):
        calls.append((path, name, split))
        return iter(next(SETS[key][0] for key, data_set in DATA_SETS.items() if data_set.repository == path))

    package = SimpleNamespace(load_dataset=load_dataset, exceptions=SimpleNamespace(DatasetsError=RuntimeError))
    monkeypatch.setitem(sys.modules, "datasets", package)
    return SimpleNamespace(calls=calls, package=package)


@pytest.mark.parametrize("name", SETS)
def test_the_hub_is_asked_for_the_set_its_config_and_the_split(model, hub, name):
    for split in SPLITS:
        check(name, load_task(name, model, split), split, model)
    assert hub.calls == [(DATA_SETS[name].repository, DATA_SETS[name].config, split) for split in SPLITS]
    with pytest.raises(InputError, match="train, validation, test"):
        load_task(name, model, "dev")


def test_the_package_datasets_reads_the_same_rows(model, tmp_path, monkeypatch):
    """The real package, on a folder in place of the hub."""
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    for name in ("mib/ioi", "mib/arithmetic-addition"):
        folder = tmp_path / name
        folder.mkdir(parents=True)
        write(folder / "train.jsonl", SETS[name][0])
        write(folder / "test.jsonl", SETS[name][0][:1])
        monkeypatch.setitem(DATA_SETS, name, DATA_SETS[name]._replace(repository=str(folder)))
        check(name, load_task(name, model), "train", model)
        assert len(load_task(name, model, "test")) == 1


@pytest.mark.parametrize("error", [ConnectionError("no\nway"), ValueError("no"), RuntimeError("no")])
def test_a_hub_out_of_reach_is_said_with_what_to_do(model, hub, error):
    def fail(*_, **__):
        raise error

    hub.package.load_dataset = fail
    with pytest.raises(InputError, match=r"split 'test' can't be loaded .*: no; .*'mib/ioi=FOLDER'"):
        load_task("mib/ioi", model, "test")


def test_a_missing_package_is_said_with_what_to_install(model, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(InputError, match=r"`datasets`.*pip install edgewise\[hub\]; or give a local copy"):
        load_task("mib/mcqa", model)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "train.parquet").write_bytes(b"PAR1")
    with pytest.raises(InputError, match=r"`pyarrow`.*pip install edgewise\[hub\]"):
        load_task(f"mib/mcqa={tmp_path}", model)


FIELDS = {
    "mib/ioi": ["prompt", "metadata.indirect_object", "metadata.subject", "metadata.random_c",
                "s2_io_flip_counterfactual.prompt"],
    "mib/mcqa": ["prompt", "choices.label", "answerKey", "symbol_counterfactual.prompt",
                 "symbol_counterfactual.choices.label", "symbol_counterfactual.answerKey"],
    "mib/arithmetic-addition": ["prompt", "label", "operator", "random_counterfactual.prompt",
                                "random_counterfactual.label"],
}  # fmt: skip


@pytest.mark.parametrize("name, field", [(name, field) for name, fields in FIELDS.items() for field in fields])
def test_another_schema_is_refused_with_the_missing_field(model, tmp_path, name, field):
    good = flat(SETS[name][0][0])
    path = write(tmp_path / "train.jsonl", [good, {key: value for key, value in good.items() if key != field}])
    with pytest.raises(InputError, match=rf"train\.jsonl, row 2 lacks '{field}'; it has '"):
        load_task(f"{name}={path}", model)


@pytest.mark.parametrize(
    "name, values, words",
    [("mib/ioi", {"prompt": None}, "row 1: 'prompt' must be text or a whole number, not None"),
     ("mib/arithmetic-addition", {"label": 4.5}, "'label' must be text or a whole number, not 4.5"),
     ("mib/mcqa", {"answerKey": 4}, "'answerKey' must be an index into 'choices.label', but they are 4"),
     ("mib/arc-easy", {"choices": {"label": "ABCD"}}, "but they are 2 and 'ABCD'")],
)  # fmt: skip
def test_values_of_another_kind_are_refused(model, tmp_path, name, values, words):
    path = write(tmp_path / "train.jsonl", [SETS[name][0][0] | values])
    with pytest.raises(InputError) as error:
        load_task(f"{name}={path}", model)
    assert words in str(error.value)


def test_splits_of_a_copy_are_its_files_wherever_the_hub_puts_them(model, tmp_path):
    for place, count in (("", 1), ("data", 2), ("4_answer_choices", 3)):
        (tmp_path / "copy" / place).mkdir(parents=True, exist_ok=True)
        write(tmp_path / "copy" / place / "train.jsonl", [choice()] * count)
    write(tmp_path / "copy" / "data" / "test.jsonl", [choice()] * 4)
    write(tmp_path / "copy" / "test_private.jsonl", [choice()] * 5)

    def count(name, path, split):
        return len(load_task(f"{name}={path}", model, split))

    copy = tmp_path / "copy"
    assert count("mib/mcqa", copy, "train") == 3 and count("mib/arc-easy", copy, "train") == 1
    assert count("mib/mcqa", copy, "test") == count("mib/arc-easy", copy, "test") == 4
    assert count("mib/arc-easy", copy / "data" / "train.jsonl", "train") == 2
    assert count("mib/arc-easy", copy / "test_private.jsonl", "train") == 5
    with pytest.raises(InputError, match="holds split 'train', but split 'test' is needed"):
        count("mib/arc-easy", copy / "data" / "train.jsonl", "test")
    with pytest.raises(InputError, match=r"no file of split 'validation'; looked for validation\.jsonl"):
        count("mib/mcqa", copy, "validation")
    with pytest.raises(InputError, match="no file or folder"):
        count("mib/mcqa", copy / "none", "train")
    (copy / "train.txt").write_text("")
    with pytest.raises(InputError, match=r"a copy's files are \.jsonl or \.parquet"):
        count("mib/mcqa", copy / "train.txt", "train")


def test_a_copys_file_is_no_task_file_and_examples_limit_what_is_used(model, tmp_path):
    path = write(tmp_path / "train.jsonl", SETS["mib/ioi"][0])
    assert is_task_file(path) and is_task_file("mib/mine.jsonl") and not is_task_file(f"mib/ioi={path}")
    task = load_task(f"mib/ioi={path}", model, examples=1)
    assert len(task) == 1 and dict(task.dropped) == SETS["mib/ioi"][1][2]


def test_a_set_of_which_nothing_is_left_says_why(model, tmp_path):
    path = write(tmp_path / "train.jsonl", [ioi(third="Charlotte")] * 3)
    with pytest.raises(InputError, match=r"no examples \(3 with names of unequal token length"):
        load_task(f"mib/ioi={path}", model)


def test_answers_that_the_tokenizer_does_not_know_are_dropped(tmp_path):
    rows = [ioi(), ioi(subject="Zebulon", third="Anna"), ioi(subject="Zebulon", indirect="Yorick", third="Anna")]
    task = load_task(f"mib/ioi={write(tmp_path / 'train.jsonl', rows)}", load("demo"))
    assert len(task) == 1
    assert dict(task.dropped) == {"with an answer that the tokenizer doesn't know": 2}


def test_the_command_counts_what_is_kept_and_dropped(edgewise, tmp_path):
    reason = "with names of unequal token length"
    path = write(tmp_path / "train.jsonl", [ioi(), ioi(third="Mary Ann"), ioi(subject="Mary", indirect="John")])
    name = f"mib/ioi={path}"
    found = run_json("tasks", name, "--examples", 1)
    assert (found["task"], found["split"], found["kept"], found["dropped"]) == ("mib/ioi", "train", 2, {reason: 1})
    assert [example["correct"] for example in found["examples"]] == [" Mary"]
    code, people, _ = edgewise("tasks", name, "--examples", 1)
    assert code == 0 and f"kept: 2; dropped: 1 (1 {reason})" in people and "example 2" not in people
    assert run_json("tasks", "mcqa", "--examples", 3)["kept"] == 3
    assert all(name in edgewise("tasks")[1] for name in DATA_SETS)
    assert set(run_json("tasks")["tasks"]) >= set(DATA_SETS)


def test_brackets_in_prompts_are_shown(edgewise, tmp_path):
    # The demo's tokenizer doesn't know them, which its unknown token, spelled out, owns up to.
    good = {"clean": "Mary <unk> [bold] and", "corrupted": "John <unk> [bold] and"}
    good |= {"correct": " Mary", "incorrect": " John"}
    assert "Mary <unk> [bold] and" in edgewise("tasks", write(tmp_path / "own.jsonl", [good]))[1]
