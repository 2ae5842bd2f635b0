"""Chat templates, rows that are left out, tokens side by side, and files without splits."""

import copy
import json
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
from commands import GOOD, write
from test_tasks import LONGER

from edgewise import EdgeScores, InputError, load_task, make_task, read_result
from edgewise.errors import EdgewiseWarning

# Words that the demo's tokenizer knows.
TEMPLATE = (
    "{% for m in messages %}Question: {{ m['content'] }}{% endfor %}{% if add_generation_prompt %} Answer:{% endif %}"
)


def with_template(model, template):
    tokenizer = copy.deepcopy(model.tokenizer)
    tokenizer.chat_template = template
    return replace(model, tokenizer=tokenizer)


def test_prompts_are_messages_and_answers_begin_the_reply(demo):
    model = with_template(demo, TEMPLATE)
    plain, chat = (load_task("ioi", model, "train", 20, chat=chat) for chat in (False, True))
    assert len(chat) == len(plain) and chat.span_names == plain.span_names and chat.digest != plain.digest
    for before, after in zip(plain.examples, chat.examples, strict=True):
        assert after.text.clean == f"Question: {before.text.clean} Answer:"
        assert after.text.corrupted == f"Question: {before.text.corrupted} Answer:"
        assert (
            after.text.correct == before.text.correct.strip() and after.text.incorrect == before.text.incorrect.strip()
        )
        ids = model.tokenizer([after.text.clean], add_special_tokens=False)["input_ids"][0]
        assert after.clean == (model.bos, *ids)
        for name in ("S1", "IO", "S2"):
            words = ([example.clean[place] for place in example.spans[name]] for example in (before, after))
            assert next(words) == next(words)
        assert after.spans["end"] == (after.length - 1,)


def test_bos_of_a_template_is_not_doubled(demo):
    model = with_template(demo, "{{ bos_token }}" + TEMPLATE)
    with_bos, without = (load_task("ioi", m, "train", 5, chat=True) for m in (model, with_template(demo, TEMPLATE)))
    assert with_bos.digest == without.digest


@pytest.mark.parametrize("space", ["", " "])
def test_answers_have_the_space_that_the_template_puts_before_a_reply(demo, space):
    reply = "{% for m in messages %}{% if m['role'] == 'user' %}Question: {{ m['content'] }} Answer:{% else %}"
    template = reply + f"{space}{{{{ m['content'] }}}}{{% endif %}}{{% endfor %}}"
    task = load_task("ioi", with_template(demo, template), "train", 3, chat=True)
    plain = load_task("ioi", demo, "train", 3)
    for before, after in zip(plain.examples, task.examples, strict=True):
        assert after.text.correct == space + before.text.correct.strip()
        assert after.text.incorrect == space + before.text.incorrect.strip()


@pytest.mark.parametrize(
    "template, words",
    [
        (None, "has no chat template"),
        ("{{ raise_exception('no') }}", "the chat template"),
        ("{{ 1 +", "the chat template"),
        ("Answer:", "changes the text of prompts"),
    ],
)
def test_templates_that_cannot_be_used_are_refused(demo, template, words):
    with pytest.raises(InputError, match=words):
        load_task("ioi", with_template(demo, template), "train", 3, chat=True)


def test_tokens_have_no_chat(demo, tmp_path):
    row = {"clean_ids": [3, 4], "corrupted_ids": [3, 5], "correct_id": 6, "incorrect_id": 7}
    with pytest.raises(InputError, match="needs text"):
        load_task(write(tmp_path / "a.jsonl", [row]), with_template(demo, TEMPLATE), chat=True)


BAD = [GOOD | {"corrupted": LONGER}, GOOD | {"correct": " Zebulon"}, GOOD | {"spans": {"a": "nothing"}}]


def test_bad_rows_are_left_out_on_request(edgewise, demo, tmp_path):
    path = write(tmp_path / "a.jsonl", [GOOD, *BAD, GOOD | {"clean": GOOD["clean"].replace("store", "park")}])
    with pytest.raises(InputError, match="3 of its rows can't be used; skip_bad=True leaves out such rows"):
        load_task(path, demo)
    with pytest.warns(EdgewiseWarning, match=r"3 of the 5 rows of .* are left out: example 2: the clean prompt"):
        task = load_task(path, demo, skip_bad=True)
    assert len(task) == 2 and task.dropped == (("that can't be used", 3),)
    code, _, err = edgewise("tasks", path)
    assert code == 2 and "3 of its rows can't be used; --skip-bad leaves out such rows" in err
    code, out, err = edgewise("tasks", path, "--skip-bad")
    assert code == 0 and "kept: 2; dropped: 3" in out and "3 of the 5 rows" in err


def test_rows_that_are_too_long_are_left_out_too(demo, tmp_path):
    longest = [f"Mary and John went to the store{', John gave a drink to' * times}" for times in (1, 40)]
    rows = [
        {"clean": t, "corrupted": t.replace("Mary", "Anna"), "correct": " Mary", "incorrect": " John"} for t in longest
    ]
    path = write(tmp_path / "a.jsonl", rows)
    with pytest.raises(InputError, match=f"the model takes {demo.max_length}; skip_bad=True"):
        load_task(path, demo)
    with pytest.warns(EdgewiseWarning, match=f"the model takes {demo.max_length}"):
        assert len(load_task(path, demo, skip_bad=True)) == 1


def test_only_bad_rows_are_an_error(demo, tmp_path):
    """It lists the rows, and doesn't advise to leave out all of them."""
    for skip_bad in (True, False):
        warned = pytest.warns(EdgewiseWarning) if skip_bad else nullcontext()
        with warned, pytest.raises(InputError, match="3 of its rows can't be used") as error:
            load_task(write(tmp_path / "a.jsonl", BAD), demo, skip_bad=skip_bad)
        assert "skip_bad" not in str(error.value)
    (tmp_path / "b.jsonl").write_text("{\n3\n")
    with pytest.raises(InputError, match="2 of its rows can't be used\n  line 1 isn't JSON"):
        load_task(tmp_path / "b.jsonl", demo, skip_bad=True)


@pytest.mark.parametrize("name", ["a.jsonl", "a.json", "a.csv", "split.jsonl", "split.csv"])
def test_rows_that_cannot_be_read_are_left_out_too(demo, tmp_path, name):
    """Lines that aren't JSON, values that aren't objects, long CSV rows, missing splits: what remains is the same."""
    good = [GOOD, GOOD | {"clean": GOOD["clean"].replace("store", "park")}]
    bad, has_split = BAD[0], name.startswith("split")
    if has_split:
        *good, bad = (row | {"split": "train"} for row in (*good, bad))
    path, values = tmp_path / name, [good[0], bad, 3, good[1]]
    if name.endswith("csv"):
        cells = [[*good[0]], [*good[0].values()], [*good[0].values(), "more"], ["only this"], [*good[1].values()]]
        path.write_text("\n".join(",".join(f'"{cell}"' for cell in row) for row in cells))
        problems = 2
    elif name == "a.json":
        path.write_text(json.dumps(values))
        problems = 2
    else:
        lines = [*map(json.dumps, values), "", '{"clean": "When', *[json.dumps(GOOD)] * has_split]
        path.write_text("\n".join(lines))
        problems = 3 + has_split
    with pytest.raises(InputError, match="skip_bad=True"):
        load_task(path, demo)
    with pytest.warns(EdgewiseWarning, match=rf"{problems} of the {problems + 2} rows"):
        task = load_task(path, demo, skip_bad=True)
    assert task.examples == load_task(write(tmp_path / "good.jsonl", good), demo).examples
    assert task.dropped == (("that can't be used", problems),)


def test_bad_prompts_in_memory_are_left_out_on_request(demo):
    with pytest.raises(InputError, match="skip_bad=True"):
        make_task([GOOD, *BAD], demo)
    with pytest.warns(EdgewiseWarning, match="3 of the 4 rows of prompts are left out"):
        assert len(make_task([GOOD, *BAD], demo, skip_bad=True)) == 1


def test_tokens_are_shown_side_by_side(edgewise, tmp_path):
    code, out, _ = edgewise("tasks", "ioi", "--tokens", "--examples", 1)
    assert code == 0
    (marked,) = [line for line in out.splitlines() if "first difference" in line]
    assert "S2" in marked and "end" in out
    code, out, _ = edgewise("tasks", write(tmp_path / "a.jsonl", [GOOD]), "--tokens")
    (marked,) = [line for line in out.splitlines() if "first difference" in line]
    assert (code == 0 and "' John'" in marked and "' Mary'" in marked) or ("'John'" in marked and "'Mary'" in marked)


def test_a_file_without_splits_is_split_by_run(edgewise, demo, tmp_path):
    pairs = [example.text for example in load_task("ioi", demo, "train", 36).examples]
    rows = [{name: getattr(pair, name) for name in GOOD} for pair in pairs]
    path = write(tmp_path / "many.jsonl", rows)
    code, _, err = edgewise(
        "run", "--task", path, "--no-learned", "--stability", 0, "--examples", 5, "--out", tmp_path / "r"
    )
    assert code == 0 and "has no splits, so a third of its rows each is used" in err and "also scored" not in err
    assert '"examples": 5' in (tmp_path / "r" / "run.json").read_text()
    code, _, err = edgewise("run", "--task", path, "--no-learned", "--tune", "--dry-run", "--out", tmp_path / "tuned")
    assert code == 0 and err.count("has no splits") == 1
    # The run is the oracle: `evaluate` and `verify` use its test examples, not those that it scored.
    outcome = read_result(tmp_path / "r").best("CMD")
    expected = outcome.curve.faithfulness[outcome.curve.shares.index(0.1)]
    circuit = tmp_path / "r" / "circuits" / "cmd-0.1.npz"
    code, out, err = edgewise("evaluate", circuit, "--examples", 5, "--json")
    assert code == 0 and "a third of its rows is used for test" in err
    assert json.loads(out)["circuits"][0]["faithfulness"] == pytest.approx(expected, abs=1e-5)
    code, out, _ = edgewise("verify", circuit, "--tests", "equivalence", "--json")
    assert code == 0 and json.loads(out)["examples"] == 5
    code, out, _ = edgewise("evaluate", circuit, "--split", "all", "--json")
    assert code == 0 and json.loads(out)["examples"] == 36
    code, _, err = edgewise("score", "--task", path, "--examples", 5, "--out", tmp_path / "scores")
    assert code == 0 and "a third of its rows is used for train" in err
    np.testing.assert_array_equal(EdgeScores.load(tmp_path / "scores").mean(), read_result(tmp_path / "r").mean_scores)


def test_a_run_records_chat_and_evaluate_uses_it(edgewise, demo, tmp_path, monkeypatch):
    """The run itself is the oracle: its circuits have the same faithfulness on the same prompts."""
    monkeypatch.setattr("edgewise.models.load_source", lambda source: with_template(demo, TEMPLATE))
    run = str(tmp_path / "run")
    edgewise("run", "--chat", "--examples", "8", "--no-learned", "--stability", "0", "--out", run)
    made_from = json.loads((tmp_path / "run" / "run.json").read_text())["made_from"]
    assert made_from["chat"] is True and "spans" not in made_from
    circuit = str(tmp_path / "run" / "circuits" / "cmd-0.1.npz")
    code, out, err = edgewise("evaluate", circuit, "--examples", "8", "--json")
    assert code == 0 and "--chat --metric logit-difference, as in the run" in err
    best = read_result(run).best("CMD")
    expected = best.curve.faithfulness[best.curve.shares.index(0.1)]
    assert json.loads(out)["circuits"][0]["faithfulness"] == pytest.approx(expected, abs=1e-5)
    code, out, err = edgewise("evaluate", circuit, "--task", "ioi", "--examples", "8", "--json")
    assert code == 0 and "--chat" not in err  # another task has its own options
    assert json.loads(out)["circuits"][0]["faithfulness"] != pytest.approx(expected, abs=1e-5)
