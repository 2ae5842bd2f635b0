"""The commands that read and write files of the field, as a user types them."""

import json
import re
import shutil

import numpy as np
import pytest
from commands import DEMO, interrupt, refused, score_file

from edgewise import (
    CMD,
    CPR,
    Circuit,
    EdgeScores,
    Graph,
    Greedy,
    Ilp,
    InputError,
    Recipe,
    TopN,
    discover,
    load_model,
    load_task,
    read_result,
    write_result,
)
from edgewise.results import submission
from edgewise.results.convert import convert


def test_pt_goes_all_the_way(edgewise, scores, tmp_path):
    assert edgewise("convert", scores, tmp_path / "scores.pt")[0] == 0
    circuits = []
    for source, target in ((scores, "a.json"), (tmp_path / "scores.pt", "b.pt")):
        words = ("select", source, "--edges", 40, "--solver", "greedy", "--out", tmp_path / target, "--json")
        code, out, _ = edgewise(*words)
        assert code == 0 and json.loads(out)["edges_asked"] == 40
        circuits.append(Circuit.load(tmp_path / target))
    assert circuits[0] == circuits[1]
    code, out, _ = edgewise("evaluate", tmp_path / "a.json", tmp_path / "b.pt", "--examples", 4, "--json")
    first, second = json.loads(out)["circuits"]
    assert code == 0 and first["metric"] == second["metric"]


def test_convert_says_what_it_did(edgewise, scores, tmp_path):
    code, out, _ = edgewise("convert", scores, tmp_path / "scores.json", "--json")
    done = json.loads(out)
    assert code == 0 and done["written"] == [str(tmp_path / "scores.json")] and done["edges"] == DEMO.n_edges
    assert "scores are the mean over 20 examples" in done["notes"]
    code, out, _ = edgewise("convert", tmp_path / "scores.json", tmp_path / "again")
    assert code == 0 and "wrote" in out and "in_graph isn't kept" in out
    np.testing.assert_array_equal(
        EdgeScores.load(tmp_path / "again").values[0], EdgeScores.load(tmp_path / "scores.json").values[0]
    )


def test_convert_refuses_in_one_line(edgewise, tmp_path):
    given = score_file(tmp_path / "scores.json")
    target = tmp_path / "sub"
    for words, expected in (
        ((given, given), "is an input"),
        ((given, tmp_path / "x.npy"), ".json, .pt or .npz"),
        ((tmp_path / "none.pt", tmp_path / "x.json"), "no file"),
        ((tmp_path / "none", tmp_path / "x.json"), "no scores"),
        ((given, target, "--task", "ioi"), "--submission"),
        ((given, target, "--submission", "importances"), "--task and --model"),
        ((given, target, "--submission", "all", "--task", "ioi", "--model", "gpt2"), "'importances', 'circuits'"),
        ((given, target, "--submission", "importances", "--task", "ioi", "--model", "gpt5"), "gpt2, qwen2.5"),
        ((given, target, "--submission", "importances", "--task", "ioi", "--model", "gpt2"), "12 layers x 12 heads"),
        ((given, target, "--submission", "circuits", "--task", "ioi", "--model", "gpt2"), "no folder of circuits"),
        ((given, target, "--submission", "importances", "--task", "ioi", "--model", "gpt2", "--overwrite"), "never"),
    ):
        assert expected in refused(edgewise, "convert", *words)
    assert [path.name for path in tmp_path.iterdir()] == ["scores.json"]
    assert ".json, .pt or .npz" in refused(edgewise, "select", given, "--edges", 3, "--out", tmp_path / "circuit.txt")
    assert "is no folder" in refused(edgewise, "check", tmp_path / "none")


def test_options_that_contradict_the_files_are_refused(edgewise, tmp_path):
    given, other = (score_file(tmp_path / name) for name in ("a.json", "b.json"))
    assert "omit --format" in refused(edgewise, "convert", given, tmp_path / "c.json", "--format", "pt")
    assert "omit it" in refused(edgewise, "compare", given, other, "--size", "5%")
    words = ("--submission", "importances", "--task", "ioi", "--model", "gpt2", "--level", "node")
    assert "node" in refused(edgewise, "convert", given, tmp_path / "sub", *words)


def test_a_run_of_one_recipe_has_nothing_to_compare(edgewise, tmp_path):
    model = load_model()
    train, test = (load_task("ioi", model, split, 8) for split in ("train", "test"))
    write_result(discover(model, train, test, recipes={CMD: [Recipe()]}), tmp_path / "run")
    assert "a single recipe" in refused(edgewise, "compare", tmp_path / "run")


def submitted(target):
    """The circuits of a submission, smallest first."""
    return [Circuit.load(target / "ioi_gpt2" / f"{share:g}.pt") for share in submission.SHARES]


def circuits_of(run, measure, method):
    """Those of one of a run's methods that are submitted, smallest first."""
    circuits = next(row.circuits for row in read_result(run).of(measure) if row.name == method)
    return sorted(circuits[:-1], key=lambda circuit: circuit.n_edges)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Result folders: evaluated on test, on validation, and on test with a tuned method."""
    model = load_model()
    train, validation, test = (load_task("ioi", model, split, 8) for split in ("train", "validation", "test"))
    recipes = {b: (Recipe(Greedy()), Recipe(TopN()), Recipe(Ilp())) for b in (CMD, CPR)}
    among = {b: (Recipe(Greedy()), Recipe(TopN())) for b in (CMD, CPR)}
    folder = tmp_path_factory.mktemp("runs")
    write_result(discover(model, train, test, recipes=recipes), folder / "test")
    write_result(discover(model, train, validation, recipes=recipes), folder / "validation")
    write_result(discover(model, train, test, recipes=recipes, tune_among=among), folder / "tuned")
    return folder


def test_convert_says_where_the_circuits_of_a_run_are(runs, tmp_path):
    notes = convert(runs / "test", tmp_path / "scores.json").notes
    assert f"these are the run's scores; its circuits are in {runs / 'test' / 'circuits'}" in notes[-1]


def nine(run, measure, folder):
    """A folder of the nine exported circuits of a run."""
    folder.mkdir()
    for share in submission.SHARES:
        name = f"{measure.name.lower()}-{share:g}.npz"
        (folder / name).write_bytes((run / "circuits" / name).read_bytes())
    return folder


@pytest.mark.parametrize("measure", [CMD, CPR])
def test_a_submission_is_never_chosen_by_looking_at_test(edgewise, runs, tmp_path, monkeypatch, measure):
    monkeypatch.setitem(submission.MODELS, "gpt2", DEMO)
    target = tmp_path / "sub"

    def words(run, *more):
        into = (target, "--task", "ioi", "--model", "gpt2", "--submission", "circuits")
        return ("convert", run, *into, "--measure", measure.name.lower(), *more)

    def accepted(run, *more):
        code, out, _ = edgewise(*words(run, *more), "--json")
        assert code == 0
        circuits = submitted(target)
        shutil.rmtree(target)
        return circuits, json.loads(out)["notes"]

    line = refused(edgewise, *words(runs / "test"))
    assert "look at test" in line and "--recipe" in line and "--tune" in line
    assert "Greedy, Top-n, ILP" in refused(edgewise, *words(runs / "test", "--recipe", "magic"))
    line = refused(edgewise, *words(nine(runs / "test", measure, tmp_path / "chosen on test")))
    assert "best on test" in line and "--recipe" in line and "--tune" in line
    assert not target.exists()

    for method, name in (("Greedy", "Greedy"), ("ilp", "ILP"), ("TOP-N", "Top-n")):
        for run in (runs / "test", runs / "tuned"):
            expected = circuits_of(run, measure, name), [f"circuits by {name}, for {measure.name}"]
            assert accepted(run, "--recipe", method) == expected

    circuits, notes = accepted(runs / "tuned")
    assert circuits == circuits_of(runs / "tuned", measure, "Tuned")
    assert notes == [f"circuits by Tuned, for {measure.name}"]
    assert accepted(nine(runs / "tuned", measure, tmp_path / "tuned"))[0] == circuits

    rows = read_result(runs / "validation").of(measure)
    best = max(rows, key=lambda row: measure.better * row.area)
    circuits, notes = accepted(runs / "validation")
    assert circuits == circuits_of(runs / "validation", measure, best.name)
    assert notes == [f"circuits by {best.name}, for {measure.name}"]
    assert accepted(nine(runs / "validation", measure, tmp_path / "validation"))[0] == circuits


def test_a_run_becomes_a_submission_that_check_accepts(edgewise, tmp_path, monkeypatch):
    monkeypatch.setitem(submission.MODELS, "gpt2", DEMO)
    monkeypatch.setitem(submission.MODELS, "llama3", DEMO)
    run, target = tmp_path / "run", tmp_path / "sub"
    code, out, _ = edgewise("run", "--examples", 8, "--out", run)
    assert code == 0 and len(re.findall(r"circuits/ has the circuits of CMD: .*, chosen on validation; CPR", out)) == 1
    assert "chosen on validation" in edgewise("show", run)[1]
    assert "scores: those in the file" in edgewise("show", run / "circuits" / "cmd-0.05.npz")[1]
    words = ("convert", run, target, "--task", "ioi", "--model", "gpt2", "--submission", "circuits")
    # Validation chose the recipe, so a submission may have it.
    code, out, _ = edgewise(*words, "--json")
    chosen = read_result(run).best("CMD")
    assert code == 0 and json.loads(out)["notes"] == [f"circuits by {chosen.name}, for CMD"]
    assert chosen.chosen_on == "validation" and submitted(target) == list(chosen.circuits)[: len(submitted(target))]
    shutil.rmtree(target)
    code, out, _ = edgewise(*words, "--measure", "cpr", "--recipe", "ilp + BOOTSTRAPPING", "--json")
    done = json.loads(out)
    assert code == 0 and done["notes"] == ["circuits by ILP + Bootstrapping, for CPR"]
    assert submitted(target) == circuits_of(run, CPR, "ILP + Bootstrapping")
    code, out, _ = edgewise("check", target)
    assert code == 1 and "at least 2 tasks" in out and "accepted" in out
    words = ("convert", run, target, "--task", "arc_challenge", "--model", "llama3", "--submission", "importances")
    assert edgewise(*words, "--format", "json")[0] == 0
    code, out, _ = edgewise("check", target, "--json")
    assert code == 0 and json.loads(out)["accepted"]
    (target / "ioi_gpt2" / "0.5.pt").unlink()
    code, out, _ = edgewise("check", target)
    assert code == 1 and "no circuit for 50%" in out and "would be refused" in out


@pytest.mark.parametrize("other", [Graph(2, 4, 64), Graph(4, 2, 64), Graph(4, 4, 32), Graph(4, 4, 64, parallel=True)])
def test_the_error_for_a_circuit_of_another_model_names_both_shapes(edgewise, tmp_path, other):
    Circuit.full(other).save(tmp_path / "other.json")
    line = refused(edgewise, "evaluate", tmp_path / "other.json")
    assert str(other) in line and str(DEMO) in line


def test_every_command_writes_beside_the_folder_that_the_user_is_in(edgewise, tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    for words in (
        ("score", "--examples", 4, "--out", "../scores"),
        ("select", "../scores", "--edges", 40, "--solver", "greedy", "--out", "../a.npz"),
        ("select", "../scores", "--edges", "40,80", "--solver", "greedy", "--out", "../new/../circuits"),
        ("evaluate", "../a.npz", "--examples", 4, "--out", "../new/a.json"),
        ("export", "../a.npz", "--out", "../a.dot"),
        ("convert", "../a.npz", "../a.json"),
        ("view", "../a.npz", "--no-open", "--out", "../a.html"),
        ("learn", "--examples", 4, "--steps", 1, "--out", "../ranking"),
    ):  # fmt: skip
        (tmp_path / "new").mkdir(exist_ok=True)
        code, _, err = edgewise(*words)
        assert code == 0, err
    names = ["a.dot", "a.html", "a.json", "a.npz", "circuits", "here", "new", "ranking", "scores"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names


def test_home_may_be_short(edgewise, tmp_path, monkeypatch):
    """Shells write out ~ in `--out ~/a`, but not in `--out=~/a`. Python doesn't: no folder is named ~."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert edgewise("score", "--examples", 4, "--out=~/scores")[0] == 0
    assert edgewise("select", "~/scores", "--edges", 40, "--solver", "greedy", "--out=~/a.npz")[0] == 0
    circuit = Circuit.load(tmp_path / "home" / "a.npz")
    with pytest.raises(InputError, match=r"give Path\('~/b.npz'\).expanduser\(\)"):
        circuit.save("~/b.npz")
    with pytest.raises(InputError, match="expanduser"):
        EdgeScores.load(tmp_path / "home" / "scores").save("~/scores")
    assert {path.name for path in tmp_path.iterdir()} == {"home"}
    assert "--examples" in refused(edgewise, "score", "--examples", 0, "--out", "s")


def test_a_page_marks_the_edges_of_a_known_circuit(edgewise, tmp_path):
    draw = np.random.default_rng(0)
    Circuit(DEMO, draw.random(DEMO.n_edges) < 0.1).save(tmp_path / "circuit.json", draw.normal(size=DEMO.n_edges))
    truth = Circuit(DEMO, draw.random(DEMO.n_edges) < 0.1)
    truth.save(tmp_path / "truth.json")
    words = ("view", tmp_path / "circuit.json", "--no-open", "--out", tmp_path / "page.html")
    assert edgewise(*words, "--truth", tmp_path / "truth.json")[0] == 0
    assert '"truth":{"kind":"bits"' in (tmp_path / "page.html").read_text("utf-8")
    assert edgewise(*words, "--overwrite")[0] == 0
    assert '"truth":{"kind":"bits"' not in (tmp_path / "page.html").read_text("utf-8")
    # A circuit of another model is refused, and so is replacing the known circuit by the page.
    code, _, message = edgewise(*words, "--overwrite", "--truth", "known/induction")
    assert code == 2 and "the known circuit is of" in message
    code, _, message = edgewise(*words[:-1], tmp_path / "truth.json", "--overwrite", "--truth", tmp_path / "truth.json")
    assert code == 2 and Circuit.load(tmp_path / "truth.json") == truth


def test_a_folder_of_circuits_is_an_input_of_every_command(edgewise, scores, tmp_path):
    """What `select` writes for several sizes."""
    folder, first = tmp_path / "circuits", int(0.02 * DEMO.n_edges)
    code, out, _ = edgewise("select", scores, "--size", "50%,0.02,10%", "--solver", "greedy", "--out", folder, "--json")
    assert code == 0 and [c["edges_asked"] for c in json.loads(out)["circuits"]] == [first, 47, 239]
    code, out, err = edgewise("evaluate", folder, "full", "--examples", 4, "--json")
    assert code == 0, err
    rows = json.loads(out)["circuits"]
    names = [f"circuit-{first}.json", "circuit-47.json", "circuit-239.json"]
    assert [row["circuit"] for row in rows] == [*(str(folder / name) for name in names), "full"]
    assert rows[-1]["faithfulness"] == 1
    assert json.loads(edgewise("show", folder, "--json")[1])["edges"] == rows[2]["edges"]
    assert edgewise("export", folder, "--to", "dot")[0] == 0
    pair = json.loads(edgewise("compare", folder, folder / names[2], "--json")[1])
    assert pair["overlap"] == 1 and pair["shared"] == rows[2]["edges"]
    assert edgewise("view", folder, "--no-open", "--out", tmp_path / "page.html")[0] == 0
    assert edgewise("convert", folder, tmp_path / "converted", "--format", "pt")[0] == 0
    converted = json.loads(edgewise("evaluate", tmp_path / "converted", "--examples", 4, "--json")[1])["circuits"]
    assert [row["metric"] for row in converted] == [row["metric"] for row in rows[:-1]]
    assert "choose from a result folder" in refused(edgewise, "show", folder, "--size", "10%")
    assert "edgewise select" in refused(edgewise, "evaluate", scores)
    (tmp_path / "nothing").mkdir()
    assert "has no circuits" in refused(edgewise, "evaluate", tmp_path / "nothing")


def test_the_circuits_of_a_run_are_evaluated_from_its_folder(edgewise, runs):
    run = runs / "test"
    rows = json.loads(edgewise("evaluate", run, "--examples", 4, "--json")[1])["circuits"]
    assert rows == json.loads(edgewise("evaluate", run / "circuits", "--examples", 4, "--json")[1])["circuits"]
    sizes = [float(row["circuit"].rpartition("-")[2].removesuffix(".npz")) for row in rows]
    assert len(rows) == 20 and sizes == sorted(sizes[:10]) * 2
    assert edgewise("show", run / "circuits")[1] == edgewise("show", run)[1]
    exported = edgewise("compare", run, run / "circuits" / "cmd-0.1.npz", "--size", "10%", "--json")
    assert json.loads(exported[1])["overlap"] == 1


@pytest.mark.parametrize("suffix", [".npz", ".json", ".pt"])
def test_a_circuit_that_pruning_left_empty_has_faithfulness_0(edgewise, tmp_path, suffix):
    """One edge connects nothing, so greedy's circuit of one edge is empty after pruning."""
    score = np.zeros(DEMO.n_edges)
    score[DEMO.edge_names.index("m0->a1.h0<q>")] = 1
    given, target = score_file(tmp_path / "scores.json", score), tmp_path / f"circuit{suffix}"
    assert edgewise("select", given, "--edges", 1, "--solver", "top-n", "--out", target)[0] == 0
    assert Circuit.load(target).n_edges == 0
    for other in (".npz", ".json", ".pt"):
        copy = tmp_path / f"copy{other}"
        assert edgewise("convert", target, copy)[0] == 0
        code, out, err = edgewise("evaluate", copy, "--examples", 4, "--json")
        assert code == 0, err
        assert json.loads(out)["circuits"][0]["faithfulness"] == 0
        page = tmp_path / f"{other}.html"
        assert edgewise("show", copy)[0] == edgewise("view", copy, "--no-open", "--out", page)[0] == 0


def test_counts_and_shares_are_not_confused(edgewise, scores):
    assert "give --size" in refused(edgewise, "select", scores, "--edges", 0.05)
    assert "give --edges" in refused(edgewise, "select", scores, "--size", 5)
    for words in ((), ("--edges", 5, "--size", 0.1)):
        assert "either --edges 324" in refused(edgewise, "select", scores, *words)
    for words, expected in ((("--edges", 1), 1), (("--size", 1), DEMO.n_edges), (("--size", "1%"), 4)):
        assert json.loads(edgewise("select", scores, *words, "--json")[1])["edges_asked"] == expected


def test_a_command_whose_result_is_in_place_shows_it_again(edgewise, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    commands = {  # -> other options, and what the error then names
        ("score", "--examples", 4, "--out", "scores"): (("--steps", 3), "scorer: steps was 5, is 3"),
        ("learn", "--examples", 4, "--steps", 2, "--out", "ranking"): (("--measure", "CPR"), "learner: measure"),
        ("select", "scores", "--edges", 40, "--out", "a.npz"): (("--pnr", 0.6), "pnr was None, is 0.6"),
        ("select", "scores", "--edges", "40,80", "--out", "circuits"): (("--nested",), "nested was False, is True"),
        ("evaluate", "circuits", "--examples", 4, "--out", "a.json"): (("--split", "train"), "split was test"),
        ("export", "circuits", "--out", "a.dot"): (("--to", "graphml"), "a.dot exists already"),
        ("convert", "a.npz", "b.json"): None,
        ("convert", "circuits", "others"): None,
        ("view", "a.npz", "--no-open", "--out", "a.html"): (("circuits/circuit-80.json",), "a.html exists already"),
    }  # fmt: skip
    first = [edgewise(*words, "--json")[:2] for words in commands]
    assert [code for code, _ in first] == [0] * len(commands)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with monkeypatch.context() as patch:
        work = (
            "score.run_scorer.run_batches", "evaluate.run_circuits.plan_batches", "learn.run_learner.check_is",
            "cli.select.solve", "cli.select.solve_path", "recipes.forecast.forecast",
        )  # fmt: skip
        for name in work:
            patch.setattr(f"edgewise.{name}", interrupt)
        again = [edgewise(*words, "--json")[:2] for words in commands]
    assert [code for code, _ in again] == [0] * len(commands)
    seconds = r'"seconds": [-\de.]+'
    assert [re.sub(seconds, "", out) for _, out in again] == [re.sub(seconds, "", out) for _, out in first]
    for words, other in commands.items():
        if other is not None:
            message = refused(edgewise, *words, *other[0])
            assert other[1] in message and "--overwrite" in message
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    (tmp_path / "b.json").write_text("mine")
    assert "--overwrite" in refused(edgewise, "convert", "a.npz", "b.json")
    (tmp_path / "a.json").write_text("{}")
    assert "doesn't say what it was made from" in refused(edgewise, "evaluate", "full", "--out", "a.json")


@pytest.mark.parametrize("words", [("evaluate", "full"), ("knock-out", "m0"), ("verify", "known/induction")])
def test_an_earlier_result_that_lacks_something_is_named(edgewise, tmp_path, words):
    path = tmp_path / "out" / "verification.json" if words[0] == "verify" else tmp_path / "out.json"
    out_path = path.parent if words[0] == "verify" else path
    words = (*words, "--examples", 4, "--out", out_path, *["--tests", "equivalence"] * (words[0] == "verify"))
    assert edgewise(*words)[0] == 0
    record = json.loads(path.read_text())
    path.write_text(json.dumps({"made_from": record["made_from"]}))
    assert str(out_path) in (message := refused(edgewise, *words)) and "--overwrite" in message


def test_a_folder_of_circuits_and_an_input_are_never_replaced(edgewise, scores, tmp_path):
    circuits, target = tmp_path / "circuits", tmp_path / "converted"
    assert edgewise("select", scores, "--edges", "40,80", "--out", circuits)[0] == 0
    assert edgewise("convert", circuits, target)[0] == 0
    assert "never replaced" in refused(edgewise, "convert", circuits, target, "--format", "pt")
    shutil.copytree(scores, tmp_path / "scores")
    words = ("combine", tmp_path / "scores", scores, "--out", tmp_path / "scores", "--overwrite")
    assert "is an input" in refused(edgewise, *words)


def test_a_circuit_without_scores_has_no_strongest_edges(edgewise, scores, tmp_path):
    score, circuit = EdgeScores.load(scores).mean(), Circuit.from_edges(DEMO, ["input->m0", "m0->logits"])
    circuit.save(tmp_path / "plain.json")
    circuit.save(tmp_path / "scored.json", score)
    _, out, _ = edgewise("show", tmp_path / "plain.json")
    assert "strongest" not in out and "no scores" in out
    _, out, _ = edgewise("show", tmp_path / "scored.json")
    assert "strongest edges" in out and "no scores" not in out


def test_compare_says_if_scores_are_of_different_kinds(edgewise, scores, tmp_path):
    assert edgewise("learn", "--examples", 4, "--steps", 1, "--out", tmp_path / "ranking")[0] == 0
    for source, name in ((scores, "a.json"), (scores, "b.npz"), (tmp_path / "ranking", "c.json")):
        assert edgewise("select", source, "--edges", 30, "--out", tmp_path / name)[0] == 0
    assert "compare their order" not in edgewise("compare", tmp_path / "a.json", tmp_path / "b.npz")[1]
    _, out, _ = edgewise("compare", tmp_path / "a.json", tmp_path / "c.json")
    assert "scores here are of eap-ig, there of learned: compare their order, not their values" in out


def test_a_run_names_its_stages_and_what_chose_its_recipe(edgewise, tmp_path):
    words = ("run", "--examples", 10, "--stability", 0, "--learned", "--learn-steps", 1, "--out", tmp_path / "r")
    code, out, err = edgewise(*words)
    assert code == 0 and "recipe: Portfolio, chosen on validation; " in out and "(recipe" not in out
    assert "ILP + Learned" in out and "Portfolio for CMD: " in out
    result = read_result(tmp_path / "r")
    assert result.best(CMD).chosen_on == "validation" and len(result.best(CPR).choices) == 10
    assert edgewise("compare", tmp_path / "r", "learned", "greedy")[0] == edgewise("report", tmp_path / "r")[0] == 0
    assert "give one of" in refused(edgewise, "run", "--learned", "--as-published", "--out", tmp_path / "x")
    for stage in ("learn (CMD)", "learn (CPR)", "evaluate (test)", "evaluate (validation)"):
        assert f"{stage}: " in err
    assert "(2)" not in err
    _, out, _ = edgewise("compare", tmp_path / "r")
    assert "Portfolio for CMD was chosen on validation." in out and "overestimated" not in out
    # A learner has the run's seed: other recipes than before there are not.
    line = refused(edgewise, *words, "--seed", 1)
    assert "seed was 0, is 1" in line and "recipes" not in line
    assert "did you mean 'ILP'?" in refused(edgewise, "show", tmp_path / "r", "--recipe", "ILLP")
    assert "did you mean 'eap-ig'?" in refused(edgewise, "run", "--scorer", "eap-gi")
    assert "(did you mean 'patching'?); see" in refused(edgewise, "run", "--ablation", "pacthing")
