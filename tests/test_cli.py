"""The commands, as a user types them: what they print, write and refuse."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
import torch
from commands import DEMO, GOOD, interrupt, refused, run_command, score_file, write, write_tokens
from conftest import build

from edgewise import Circuit, EdgeScores, Graph, Settings, read_result
from edgewise.evaluate import SIZES


def stop_run(monkeypatch, *words):
    """Run a command that is stopped before circuits are evaluated."""
    with monkeypatch.context() as patch:
        patch.setattr("edgewise.recipes.stages.evaluate_circuits", interrupt)
        assert run_command(*words)[0] == 130


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory):
    """The folder of a run, and what the run printed."""
    folder = tmp_path_factory.mktemp("run") / "result"
    code, out, err = run_command("run", "--examples", 24, "--out", folder)
    assert code == 0, err
    return folder, out


def test_run_prints_all_rows_of_the_papers_tables_and_writes_a_complete_folder(edgewise, finished_run):
    folder, out = finished_run
    rows = ["Greedy", "ILP", "Bootstrapping", "PNR", "ILP + Bootstrapping", "ILP + PNR", "Bootstrapping + PNR",
            "ILP + Bootstrapping + PNR"]  # fmt: skip
    table = [line.split("  ")[0] for line in out.splitlines() if re.search(r"\[-?\d\.\d{4}, ", line)]
    assert table == [*rows, *(row for row in rows if "PNR" not in row)]
    assert sorted(path.name for path in folder.iterdir()) == [
        "README.md", "attention.npz", "circuits", "circuits.npz", "curve.csv", "curve.json", "examples.json",
        "figures", "run.json", "scores", "statistics.npz", "viewer.html",
    ]  # fmt: skip
    assert [path.name for path in folder.parent.iterdir()] == ["result"]

    curves = {(c["measure"], c["recipe"]): c["sizes"] for c in json.loads((folder / "curve.json").read_text())}
    for sizes in curves.values():
        assert [size["share"] for size in sizes] == list(SIZES) and sizes[-1]["edges_kept"] == DEMO.n_edges
    assert all(outcome.curve.faithfulness[-1] == 1 for outcome in read_result(folder).outcomes)
    for measure in ("CMD", "CPR"):
        for best, greedy in zip(curves[measure, "ILP"], curves[measure, "Greedy"], strict=True):
            assert best["objective"] >= greedy["objective"] - 1e-12
    run = json.loads((folder / "run.json").read_text())
    assert run["accuracy"]["top"] > 0.95 and run["settings"]["faithfulness"] == "mib" and run["seed"] == 0
    assert Circuit.load(folder / "circuits" / "cmd-1.npz") == Circuit.full(DEMO)

    before = (folder / "figures" / "faithfulness.svg").stat().st_mtime_ns
    code, out, _ = edgewise("report", folder)
    assert code == 0 and "ILP + Bootstrapping + PNR" in out
    assert (folder / "figures" / "faithfulness.svg").stat().st_mtime_ns > before
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    code, again, err = edgewise("run", "--examples", 24, "--out", folder)
    assert code == 0 and "nothing is computed again" in err and again in finished_run[1]
    for words, expected in ((("--examples", 25), "examples: train was 24, is 25"), (("--seed", 1), "seed was 0, is 1"),
                            (("--stability", 3), "stability was 5, is 3"), (("--pnr", 0.7), "other recipes"),
                            (("--ablation", "zero"), "settings: ablation was patching, is zero")):  # fmt: skip
        message = refused(edgewise, "run", "--examples", 24, *words, "--out", folder)
        assert expected in message and "--overwrite" in message
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before


def test_a_stopped_run_resumes_from_its_scores(edgewise, tmp_path, monkeypatch):
    words = ("run", "--examples", 8, "--stability", 0, "--seed", 3, "--json", "--out")
    stop_run(monkeypatch, *words, tmp_path / "result")
    assert [path.name for path in tmp_path.iterdir()] == [".result.partial"]
    with monkeypatch.context() as patch:
        patch.setattr("edgewise.score.run_scorer.run_batches", interrupt)
        code, out, err = edgewise(*words, tmp_path / "result")
    assert code == 0 and "resuming" in err
    fresh = json.loads(edgewise(*words, tmp_path / "fresh")[1])
    assert json.loads(out)["areas"] == fresh["areas"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fresh", "result"]


def test_score_select_and_evaluate_in_separate_commands(edgewise, scores, tmp_path):
    circuit = tmp_path / "circuit.json"
    words = ("select", scores, "--solver", "ilp", "--size", 0.1, "--rank", "absolute", "--pnr", 0.5, "--resamples", 10)
    code, out, _ = edgewise(*words, "--out", circuit, "--json")
    chosen = json.loads(out)
    assert code == 0 and chosen["edges_asked"] == int(0.1 * DEMO.n_edges) == chosen["edges_kept"]
    assert (chosen["status"], chosen["gap"]) == ("optimal", 0) and chosen["seconds"] > 0
    assert chosen["objective"] == pytest.approx(chosen["bound"])
    code, out, _ = edgewise("evaluate", circuit, "full", "empty", "--examples", 10, "--per-example", "--json")
    record = json.loads(out)
    assert code == 0
    selected, full, empty = record["circuits"]
    assert (full["faithfulness"], empty["faithfulness"]) == (1, 0)
    assert len(selected["per_example"]) == 10 and np.mean(selected["per_example"]) == pytest.approx(selected["metric"])
    share = (selected["metric"] - record["empty"]) / (record["full"] - record["empty"])
    assert selected["faithfulness"] == pytest.approx(share)


def test_accuracy_can_be_evaluated_though_it_has_no_gradient(edgewise):
    code, out, _ = edgewise("evaluate", "full", "empty", "--examples", 4, "--metric", "accuracy", "--json")
    assert code == 0 and [circuit["metric"] for circuit in json.loads(out)["circuits"]] == [1, 0]


@pytest.mark.parametrize(
    "words, expected", [((), {"method": "eap-ig", "steps": 5}), (("--scorer", "EAP"), {"method": "eap"}),
                        (("--steps", 2), {"method": "eap-ig", "steps": 2})]
)  # fmt: skip
def test_scores_say_how_they_were_made(edgewise, tmp_path, words, expected):
    assert edgewise("score", "--examples", 4, *words, "--out", tmp_path / "scores")[0] == 0
    about = json.loads((tmp_path / "scores" / "scores.json").read_text())["provenance"]
    facts = {"model": "demo", "task": "ioi", "split": "train", "examples": 4, "metric": "logit-difference", "seed": 0}
    assert about.pop("seconds") > 0 and about.pop("clean_metric") > about.pop("corrupted_metric")
    about.pop("made_from")  # the inputs of the command; tests of repeated commands read them
    assert about == facts | expected | {"batch_size": 64, "threads": torch.get_num_threads()}


def test_settings_of_a_run_are_methods_by_name_and_parameters(edgewise, tmp_path):
    words = ("run", "--examples", 4, "--stability", 0, "--steps", 2, "--ablation", "zero", "--faithfulness", "ratio")
    assert edgewise(*words, "--seed", 3, "--out", tmp_path / "r", "--json")[0] == 0
    run = json.loads((tmp_path / "r" / "run.json").read_text())
    known = run["settings"]
    assert known["scorer"] == {"name": "eap-ig", "steps": 2} and known["metric"] == "logit-difference"
    assert known["ablation"] == "zero" and known["faithfulness"] == "ratio"
    assert known["bootstrap"]["name"] == "bootstrap" and known["bootstrap"]["seed"] == 3
    assert set(run["accuracy"]) == {"top", "beats"}
    assert Settings.from_record(known).record() == known


@pytest.mark.parametrize(
    "words, expected",
    [
        ("discover", "choose from run, study, score, learn, select"),
        ("run --modle demo", "no such option: --modle"),
        ("run --steps few", "'--steps'"),
        ("run --steps 0", "`edgewise run --help`"),
        ("run --scorer eap --steps 5", "'eap' takes no steps"),
        ("run --metric magic", "'logit-difference'"),
        ("run --scorer magic", "is not one of 'eap-ig', 'eap',"),
        ("run --ablation magic", "positional-mean"),
        ("run --time-limit 0", "positive number of seconds"),
        ("run --time-limit inf", "positive number of seconds"),
        ("run --threshold inf", "threshold"),
        ("run --pnr 2", "from 0 to 1"),
        ("score --out new --learning-rate 1", "no such option"),
        ("score --out new --dtype int8", "float32"),
        ("score --out new --scorer eap --steps 3", "'eap' takes no steps"),
        ("score --out new --best 3", "'eap-ig' takes no best"),
        ("score --model", "requires an argument"),
        ("learn --out new --batch-size 2", "no such option"),
        ("study --learning-rate 1", "learns nothing (without --learned)"),
        ("study --ablation magic", "positional-mean"),
        ("study --faithfulness magic", "'mib', 'ratio'"),
        ("select", "missing argument"),
        ("select scores.json --edges 480", "the graph has 479"),
        ("select scores.json --edges ten", "takes counts of edges"),
        ("select scores.json --edges 10 --pnr 1.5", "from 0 to 1"),
        ("select scores.json --edges 10 --pnr -0.5", "from 0 to 1"),
        ("select scores.json --edges 10 --solver magic", "'top-n', 'greedy', 'ilp'"),
        ("select scores.json --edges 10 --solver greedy --time-limit 3", "takes no time_limit"),
        ("select scores.json --edges 10 --rank magic", "'signed', 'absolute'"),
        ("select scores.json --edges 10 --resamples 10 --out new.json", "single row"),
        ("select scores.json --edges 10 --confidence 0.9", "give --resamples"),
        ("select scores.json --edges 10 --interval magic", "'paper', 'normal', 'percentile'"),
        ("select nan.json --edges 10 --out new.json", "NaN"),
        ("select scores.json --edges 10,20 --out new.json", "to a folder, but new.json has the suffix of a file"),
        ("select none --edges 10 --out new.json", "no scores"),
        ("convert scores.json new.pt --measure cmd", "needs --submission"),
        ("evaluate full --per-example", "--per-example adds"),
        ("models no/such-model", "no/such-model"),
        ("models empty", "empty"),
        # a model is needed to see that these are wrong
        ("run --no-learned --learn-steps 5", "learns nothing (--no-learned)"),
        ("run --as-published --learn-steps 5", "learns nothing (--as-published)"),
        ("run --level neuron --learn-steps 5", "learns nothing (--level neuron)"),
        (
            "run --metric accuracy --scorer information-flow-routes --learn-steps 5",
            "learns nothing (--metric accuracy has no gradient)",
        ),
        ("run --device meta", "can't be used here"),
        ("score --out new --device toaster", "--device auto"),
        ("score --out new --scorer eap --metric kl --examples 4", "no slope at the clean run"),
    ],
)
def test_wrong_options_print_one_line_and_write_nothing(edgewise, tmp_path, monkeypatch, words, expected):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    content = json.loads(score_file(tmp_path / "scores.json").read_text())
    content["edges"]["input->logits"]["score"] = float("nan")
    (tmp_path / "nan.json").write_text(json.dumps(content))
    if not any(word in words for word in ("learn-steps", "device", "kl")):
        monkeypatch.setattr("edgewise.models.load._load_files", lambda *_: pytest.fail("the work has begun"))
    assert expected in refused(edgewise, *words.split())
    assert {path.name for path in tmp_path.iterdir()} == {"empty", "scores.json", "nan.json"}


def test_recipes_of_a_run_are_compared_on_the_same_examples(edgewise, finished_run):
    folder, _ = finished_run
    records = json.loads((folder / "curve.json").read_text())
    known = {(r["measure"], r["recipe"]): r["against_greedy"] for r in records if r["recipe"] != "Greedy"}
    pairs = json.loads(edgewise("compare", folder, "Greedy", "--json")[1])
    assert {(p["measure"], p["recipe"]) for p in pairs} == set(known)
    for pair in pairs:
        less = known[pair["measure"], pair["recipe"]]
        assert {name: pair[name] for name in less} == less
    out = edgewise("compare", folder)[1]
    assert "for CMD was chosen on validation" in out and "overestimated" not in out and "…" not in out


def test_scores_are_shrunk_before_selection_and_in_a_run(edgewise, scores, tmp_path):
    given = EdgeScores.load(scores).values.astype(np.float64)
    mean, error = given.mean(0), given.std(0, ddof=1) / np.sqrt(len(given))
    shrunk = np.maximum(np.abs(mean) - 2 * error, 0)
    words = ("select", scores, "--edges", 60, "--kappa", 2, "--out", tmp_path / "c.json", "--json")
    record = json.loads(edgewise(*words)[1])
    mask = Circuit.load(tmp_path / "c.json").mask
    assert record["objective"] == pytest.approx(shrunk[mask].sum(), rel=1e-5) and record["kappa"] == 2
    assert record["objective"] <= np.sort(shrunk)[-60:].sum() * (1 + 1e-5)
    assert "two filters" in refused(edgewise, *words, "--resamples", 5)
    code, out, _ = edgewise("run", "--examples", 8, "--stability", 0, "--kappa", 1, "--out", tmp_path / "r", "--json")
    areas = json.loads(out)["areas"]
    assert code == 0 and {"Shrinkage", "ILP + Shrinkage", "ILP + Shrinkage + PNR"} < set(areas["CMD"])
    assert {"Shrinkage", "ILP + Shrinkage"} == {name for name in areas["CPR"] if "Shrinkage" in name}


def test_impossible_tasks_are_errors_and_write_nothing(edgewise, tmp_path):
    longer = GOOD | {"corrupted": GOOD["corrupted"].replace("a drink", "a book drink")}
    same = GOOD | {"corrupted": GOOD["clean"]}
    for rows, expected in (
        ([GOOD, longer], "example 2"),
        ([same, same], "no circuit to find"),
        ([], "no rows"),
    ):
        path = write(tmp_path / "task.jsonl", rows)
        assert expected in refused(edgewise, "score", "--task", path, "--out", tmp_path / "out")
    assert "ioi, mcqa, greater-than" in refused(edgewise, "score", "--task", "ioio", "--out", tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["task.jsonl"]


def test_an_unsupported_config_option_is_named(edgewise, tmp_path):
    loaded = build("gpt2")
    loaded.config.scale_attn_by_inverse_layer_idx = True
    loaded.save_pretrained(tmp_path / "odd")
    assert "scale_attn_by_inverse_layer_idx = True" in refused(edgewise, "models", tmp_path / "odd")
    config = tmp_path / "odd" / "config.json"
    facts = json.loads(config.read_text()) | {"scale_attn_by_inverse_layer_idx": False, "attention_sparkle": 3}
    config.write_text(json.dumps(facts))
    assert "attention_sparkle = 3" in refused(edgewise, "models", tmp_path / "odd")
    config.write_text(json.dumps({"model_type": "bert"}))
    assert "gpt2, gpt_neox, llama" in refused(edgewise, "models", tmp_path / "odd")


@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_a_model_saved_in_the_hubs_layout_runs_on_ready_tokens(edgewise, tmp_path, family):
    build(family, torch.float32).save_pretrained(tmp_path / "model")
    path = write_tokens(tmp_path / "task.jsonl")
    words = ("run", "--model", tmp_path / "model", "--task", path, "--out", tmp_path / "out", "--json")
    code, out, err = edgewise(*words)
    assert code == 0 and json.loads(out)["test"]["examples"] == 6 and "also scored" in err and "`split` column" in err
    assert "no tokenizer" in refused(edgewise, "score", "--model", tmp_path / "model", "--out", tmp_path / "more")


def test_without_validation_rows_there_is_no_portfolio(edgewise, tmp_path):
    rows = [row | {"split": "test" if number % 2 else "train"} for number, row in enumerate([GOOD] * 6)]
    path = write(tmp_path / "task.jsonl", rows)
    words = ("run", "--task", path, "--learned", "--learn-steps", 2, "--out", tmp_path / "out", "--json")
    code, out, err = edgewise(*words)
    assert code == 0 and "no rows of split validation" in err
    assert json.loads(out)["portfolio"] == {} and "Learned" in json.loads(out)["areas"]["CMD"]


def test_a_stopped_run_does_not_resume_from_scores_of_other_prompts(edgewise, tmp_path, monkeypatch):
    other = {key: text.replace("store", "park") for key, text in GOOD.items()}
    swapped = GOOD | {"clean": GOOD["corrupted"], "corrupted": GOOD["clean"], "correct": " John", "incorrect": " Mary"}
    task = tmp_path / "task.jsonl"
    write(task, [GOOD, swapped])
    words = ("run", "--task", task, "--stability", 0, "--json", "--out")
    stop_run(monkeypatch, *words, tmp_path / "out")
    write(task, [GOOD, other])
    code, out, err = edgewise(*words, tmp_path / "out")
    assert code == 0, err
    fresh = json.loads(edgewise(*words, tmp_path / "fresh")[1])
    assert json.loads(out)["areas"] == fresh["areas"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fresh", "out", "task.jsonl"]


def test_folders_with_foreign_files_are_not_replaced(edgewise, tmp_path):
    folder = tmp_path / "precious"
    folder.mkdir()
    (folder / "run.json").write_text("{}")
    line = refused(edgewise, "score", "--examples", 2, "--out", folder, "--overwrite")
    assert "files that aren't part of it: " in line and (folder / "run.json").exists()


def test_every_choice_of_a_family_is_an_option(edgewise):
    from edgewise.cli import COMMANDS, load_command
    from edgewise.core.statistics import INTERVALS
    from edgewise.evaluate import ABLATIONS, FAITHFULNESS, MEASURES
    from edgewise.score import SCORERS
    from edgewise.select import RANKS, SOLVERS
    from edgewise.tasks import METRICS

    choices = {
        "--metric": METRICS, "--ablation": ABLATIONS, "--faithfulness": FAITHFULNESS, "--interval": INTERVALS,
        "--measure": MEASURES, "--solver": SOLVERS, "--rank": RANKS, "--scorer": SCORERS,
    }  # fmt: skip
    for name, flags in (
        ("run", ("--metric", "--ablation", "--faithfulness", "--interval")),
        ("study", ("--metric", "--ablation", "--faithfulness", "--interval")),
        ("score", ("--metric", "--scorer")),
        ("learn", ("--measure", "--metric", "--ablation")),
        ("select", ("--solver", "--interval", "--rank")),
        ("evaluate", ("--metric", "--ablation", "--faithfulness")),
        ("convert", ("--measure",)),
    ):
        for flag in flags:
            message = refused(edgewise, name, flag, "none")
            assert all(f"'{choice.lower()}'" in message for choice in choices[flag])
    for name, summary in COMMANDS.items():
        command = load_command(name)
        assert command.help.startswith(summary) and any("--json" in param.opts for param in command.params)


def test_an_impossible_pnr_is_reported(edgewise, tmp_path):
    score = np.where(np.arange(DEMO.n_edges) % 5 == 0, 1.0, -1.0)
    given = score_file(tmp_path / "scores.json", score)
    record = json.loads(edgewise("select", given, "--edges", 200, "--pnr", 1, "--json")[1])
    assert record["possible_pnr"] == 96 / 200
    assert "more positive edges than there are" in edgewise("select", given, "--edges", 200, "--pnr", 1)[1]
    assert json.loads(edgewise("select", given, "--edges", 100, "--pnr", 0.5, "--json")[1])["possible_pnr"] is None


def test_results_are_not_written_over_their_inputs(edgewise, tmp_path):
    given = score_file(tmp_path / "c.json")
    before = given.read_bytes()
    assert "is an input" in refused(edgewise, "evaluate", given, "--examples", 4, "--out", given)
    assert "is a folder" in refused(edgewise, "evaluate", given, "--examples", 4, "--out", tmp_path)
    assert "ends in .csv; use .json" in refused(edgewise, "evaluate", given, "--examples", 4, "--out", "x.csv")
    assert given.read_bytes() == before


@pytest.mark.parametrize("command", ["select", "evaluate"])
def test_files_are_replaced_only_with_overwrite(edgewise, tmp_path, command):
    given, target = score_file(tmp_path / "c.json"), tmp_path / "out.json"
    words = ("select", given, "--edges", 5) if command == "select" else ("evaluate", given, "--examples", 4)
    target.write_text("mine")
    assert "--overwrite" in refused(edgewise, *words, "--out", target) and target.read_text() == "mine"
    assert edgewise(*words, "--out", target, "--overwrite")[0] == 0 and target.read_text() != "mine"
    device = tmp_path / "null.json"
    device.symlink_to("/dev/null")
    assert "not a file" in refused(edgewise, *words, "--out", device, "--overwrite") and device.is_symlink()


def test_circuits_of_several_sizes_are_written_as_one_folder(edgewise, tmp_path):
    given, folder = score_file(tmp_path / "c.json"), tmp_path / "circuits"
    assert edgewise("select", given, "--edges", "5,9", "--out", folder)[0] == 0
    assert "--overwrite" in refused(edgewise, "select", given, "--edges", "7,11", "--out", folder)
    assert "a size twice" in refused(edgewise, "select", given, "--edges", "7,7", "--out", tmp_path / "new")
    assert edgewise("select", given, "--edges", "7,11", "--out", folder, "--overwrite")[0] == 0
    assert sorted(path.name for path in folder.iterdir()) == ["circuit-11.json", "circuit-7.json"]


def test_tasks_too_small_or_not_split_are_named(edgewise, tmp_path):
    same = write(tmp_path / "same.jsonl", [GOOD | {"split": split} for split in ("train", "train", "test")])
    code, _, err = edgewise("run", "--task", same, "--stability", 0, "--out", tmp_path / "a", "--json")
    assert code == 0 and "1 of the 1 evaluated prompts" in err and "few examples (1)" in err
    single = write(tmp_path / "single.jsonl", [GOOD])
    assert "needs at least 2" in refused(edgewise, "run", "--task", single, "--out", tmp_path / "b")
    some = write(tmp_path / "some.jsonl", [GOOD | {"split": "train"}, GOOD])
    assert "example 2 has no split" in refused(edgewise, "tasks", some)
    huge = 10**20
    for words in (("run", "--examples", huge), ("tasks", "ioi", "--examples", huge), ("run", "--stability", huge)):
        refused(edgewise, *words)


def test_tables_fit_into_80_columns(edgewise, tmp_path):
    folder = tmp_path / "a_folder_whose_name_is_rather_long_for_a_table"
    folder.mkdir()
    paths = [score_file(folder / f"circuit-{number}.json") for number in (1, 2)]
    out = edgewise("evaluate", *paths, "--examples", 4)[1]
    assert "…" not in out and max(map(len, out.split("\n\n")[0].splitlines())) <= 80
    shown = "".join(re.split(r" {2,}", line)[0] for line in out.split("\n\n")[0].splitlines()[2:])
    assert all(str(path) in shown for path in paths)
    for command in ("run", "study", "compare", "tasks"):
        assert max(map(len, edgewise(command, "--help")[1].splitlines())) <= 80


def llama(layers, heads, width, inner):
    """The config of a Llama 3.1."""
    scaling = {
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }  # fmt: skip
    return {
        "model_type": "llama", "num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": 8,
        "hidden_size": width, "intermediate_size": inner, "vocab_size": 128256, "max_position_embeddings": 131072,
        "rope_theta": 500000.0, "rope_scaling": scaling, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
    }  # fmt: skip


@pytest.mark.parametrize("length", [20, 100])
def test_llama_8b_fits_a_device_of_24_gb_and_70b_two_of_80(edgewise, tmp_path, length):
    """From nothing but a config, whatever is asked of it."""

    def edgewise_json(*words):
        code, out, _ = edgewise(*words, "--json")
        assert code == 0
        return json.loads(out)

    (tmp_path / "config.json").write_text(json.dumps(llama(32, 32, 4096, 14336)))
    facts = edgewise_json("models", tmp_path, "--length", length)
    assert (facts["edges"], facts["weight_bytes"]) == (1_592_881, 16_060_522_496)
    assert [need["devices"]["24"] for need in facts["needs"].values()] == [1, 1, 1]
    assert [need["devices"]["16"] for need in facts["needs"].values()] == [2, 2, 2]
    # In float32 the weights alone are larger.
    wide = edgewise_json("models", tmp_path, "--length", length, "--dtype", "float32")
    assert [need["devices"]["24"] for need in wide["needs"].values()] == [2, 2, 2]
    (tmp_path / "config.json").write_text(json.dumps(llama(80, 64, 8192, 28672)))
    facts = edgewise_json("models", tmp_path, "--length", length)
    assert [need["devices"]["80"] for need in facts["needs"].values()] == ([2, 2, 2] if length == 20 else [4, 2, 4])


def test_a_circuit_of_another_model_names_the_option_to_give(edgewise, tmp_path):
    Circuit.full(Graph(2, 2, 8)).save(tmp_path / "small.json")
    assert refused(edgewise, "evaluate", tmp_path / "small.json").endswith("; give the circuit's own model as --model")
