"""Which examples choose the recipe of a run: validation if it is given, never test without saying so."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from conftest import build, random_task

from edgewise import CMD, CPR, Greedy, Ilp, InputError, Recipe, Settings, TopN, discover, read_result, wrap_model
from edgewise.io.formats import read_edge_file
from edgewise.report.circuit_summary import open_circuit
from edgewise.report.figures import FIGURES
from edgewise.report.viewer.view import view_of_run
from edgewise.report.write_result import write_result
from edgewise.results import convert_to_submission, result_summary

RECIPES = {m: (Recipe(TopN()), Recipe(Greedy()), Recipe(Ilp())) for m in (CMD, CPR)}
SETTINGS = Settings(sizes=(0.05, 0.2, 0.5, 1.0))


def split(n_examples, seed, name):
    return replace(random_task(n_examples, seed=seed), split=name)


@pytest.fixture(scope="module")
def inputs():
    """A seed for which validation and test disagree about the best recipe of at least one measure."""
    return wrap_model(build("gpt2"), name="tiny"), split(5, 0, "train"), split(7, 1, "test"), split(7, 2, "validation")


@pytest.fixture(scope="module")
def validated(inputs):
    model, train, test, validation = inputs
    return discover(model, train, test, SETTINGS, RECIPES, validation=validation)


@pytest.fixture(scope="module")
def tested(inputs):
    return discover(*inputs[:3], SETTINGS, RECIPES)


def test_validation_chooses_the_recipe_and_test_measures_it(inputs, validated, tested):
    model, train, _, validation = inputs
    on_validation = discover(model, train, validation, SETTINGS, RECIPES)
    differ = 0
    for measure in (CMD, CPR):
        areas = {outcome.name: measure.better * outcome.area for outcome in on_validation.of(measure)}
        best = validated.best(measure)
        assert areas[best.name] == max(areas.values())
        assert best.chosen_on == "validation" and validated.choice(measure) == "chosen on validation"
        assert best.area == next(outcome.area for outcome in tested.of(measure) if outcome.name == best.name)
        assert [outcome.name for outcome in validated.of(measure)] == ["Top-n", "Greedy", "ILP"]  # no portfolio
        differ += best.name != tested.best(measure).name
    assert differ, "validation and test agree, so this test shows nothing; take another seed"


def test_validation_chooses_the_size_that_is_shown(inputs, validated, tested, tmp_path):
    """Which is that of the validation examples' own run, for all recipes; the result folder has it."""
    model, train, _, validation = inputs
    on_validation = discover(model, train, validation, SETTINGS, RECIPES)
    write_result(validated, tmp_path / "r")
    differ = 0
    for run in (validated, read_result(tmp_path / "r")):
        for outcome, other, without in zip(run.outcomes, on_validation.outcomes, tested.outcomes, strict=True):
            assert outcome.validation == tuple(other.curve.faithfulness)
            assert outcome.default_size == other.default_size and outcome.sized_on == "validation"
            assert without.validation == () and without.sized_on == "the evaluated examples"
            differ += outcome.default_size != without.default_size
    assert differ, "validation and test agree, so this test shows nothing; take another seed"
    page, caption = (tmp_path / "r" / "README.md").read_text(), FIGURES["circuit"](run)._supxlabel.get_text()
    assert "on validation" in caption.replace("\n", " ") and "on the evaluated examples" not in page
    shown = open_circuit(tmp_path / "r").reason
    assert "on validation" in shown.partition("chosen on validation")[2]
    with pytest.raises(InputError, match="4 sizes can't have 1 values on validation"):
        replace(outcome, validation=(0.5,))


def test_a_choice_on_test_says_so_everywhere(tested, tmp_path):
    write_result(tested, tmp_path / "r")
    read = read_result(tmp_path / "r")
    for run in (tested, read):
        for measure in (CMD, CPR):
            best = run.best(measure)
            assert best.chosen_on == "test" and "chosen on test" in repr(best)
            assert measure.better * best.area == max(measure.better * outcome.area for outcome in run.of(measure))
            assert run.choice(measure) == "chosen on test, the evaluated examples"
            assert run.best(measure, on_test=True).name == best.name
    assert (tmp_path / "r" / "README.md").read_text().count("chosen on test, the evaluated examples") == 2
    assert {row["chosen_on"] for row in result_summary(read)["circuits"].values()} == {"test"}
    assert sum(row["chosen_on"] == "test" for row in json.loads((tmp_path / "r" / "curve.json").read_text())) == 2
    assert read_edge_file(tmp_path / "r" / "circuits" / "cmd-0.2.npz").about["chosen_on"] == "test"
    assert view_of_run(read).runs[0].facts["exported recipes"].count("chosen on test") == 2
    for name in ("faithfulness", "circuit"):
        caption = FIGURES[name](read)._supxlabel.get_text().replace("\n", " ")
        assert caption.count("chosen on test, the evaluated examples") == 2, name
    assert "on the evaluated examples" in open_circuit(tmp_path / "r").reason
    with pytest.raises(InputError, match="would look at test"):
        convert_to_submission(tmp_path / "r", tmp_path / "out", "circuits", "ioi", "gpt2")


def test_a_folder_of_an_earlier_version_does_not_know_its_choice(tested):
    earlier = replace(tested, outcomes=tuple(replace(outcome, chosen_on="") for outcome in tested.outcomes))
    assert earlier.best(CMD).name == tested.best(CMD).name and earlier.best(CMD).chosen_on == "test"


def test_a_single_recipe_is_not_a_choice(inputs):
    single = discover(*inputs[:3], SETTINGS, {CMD: (Recipe(Ilp()),)})
    assert single.best(CMD).chosen_on == "" and single.choice(CMD) == "the only recipe"


def test_measures_are_given_by_name_too(validated):
    assert validated.best("cmd") is validated.best(CMD) and validated.of("CPR") == validated.of(CPR)
    with pytest.raises(InputError, match=r"unknown measure 'fame'; choose one of: CMD, CPR"):
        validated.best("fame")
