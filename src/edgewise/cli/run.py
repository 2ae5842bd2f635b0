"""edgewise run: the whole flow."""

from __future__ import annotations

import warnings
from contextlib import nullcontext
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import options
from .console import (
    aside,
    note,
    open_model,
    open_workers,
    out,
    print_json,
    print_tables,
    say,
    warn,
    warn_of_copies,
    warn_of_few,
    warn_of_trend,
    watching,
)
from .forecast import show_forecast
from .show import show_open

if TYPE_CHECKING:
    from ..models import Model
    from ..pipeline import Discovery
    from ..recipes.forecast import Forecast
    from ..recipes.recipe import Recipes
    from ..recipes.settings import Settings
    from ..runtime.engine import Engine
    from ..tasks import Task

NAME = "run"
MOST_RESAMPLES = 1000
# Graphs of at most so many edges are learned in seconds.
AFFORDABLE = 2000
# What people open first.
FIRST = ("viewer.html", "README.md", "figures/", "circuits/")


def command(
    model: options.ModelName = "demo",
    task: options.TaskName = "ioi",
    split: Annotated[str, typer.Option(help="The split to evaluate on; edges are scored on train.")] = "test",
    examples: options.Examples = None,
    method: options.Method = "eap-ig",
    steps: options.Steps = None,
    metric: options.Metric = "logit-difference",
    ablation: options.Ablation = "patching",
    faithfulness: options.Faithfulness = "mib",
    pnr: Annotated[float, typer.Option(help="The least share of positive edges, for the methods with PNR.")] = 0.5,
    bootstrap: Annotated[int, typer.Option(help="Resamples of the bootstrap (tau).")] = 10,
    interval: options.Interval = "paper",
    confidence: options.Confidence = 0.95,
    threshold: options.Threshold = 0.0,
    kappa: options.Kappa = None,
    learned: options.Learn = False,
    no_learned: options.LearnNot = False,
    learn_steps: options.LearnSteps = None,
    rate: options.LearnRate = None,
    tune: Annotated[
        bool, typer.Option("--tune", help="Also choose solver, filter and PNR by cross-validation, without test.")
    ] = False,
    as_published: Annotated[
        bool, typer.Option("--as-published", help="Repeat what the paper's public script does; each is named.")
    ] = False,
    stability: Annotated[
        int, typer.Option(help="Resamples of train for the overlap of circuits; 0 leaves it out.")
    ] = 5,
    fill: options.Fill = False,
    nested: options.Nested = False,
    time_limit: options.TimeLimit = None,
    device: options.Device = "auto",
    dtype: options.Dtype = "auto",
    bos: options.Bos = "auto",
    trust_remote_code: options.TrustRemoteCode = False,
    no_cache: options.NoCache = False,
    batch_size: options.BatchSize = None,
    memory: options.Memory = "1GB",
    engine: options.Engine = "local",
    address: options.Address = None,
    workers: options.Workers = None,
    seed: options.Seed = 0,
    out_folder: Annotated[
        Path | None, typer.Option("--out", help="The result folder; default results/MODEL-TASK.")
    ] = None,
    eap_ig_json: Annotated[
        bool, typer.Option("--eap-ig-json", help="Write circuits/ in EAP-IG's json, which is large for large models.")
    ] = False,
    overwrite: options.Overwrite = False,
    dry_run: options.DryRun = False,
    json: options.Json = False,
) -> None:
    """Find circuits with every method of the paper, for both metrics, and say how faithful they are.

    The metrics are CMD, the integrated circuit-model distance (the area between faithfulness and 1: lower is better),
    and CPR, the integrated circuit performance ratio (the area below faithfulness: higher is better).

    Scores edges on the train split, selects circuits of ten sizes by each combination of greedy or ILP,
    bootstrapping and PNR, and evaluates them on the test split. A run that was stopped goes on from what it had
    finished.
    With --tune, edges are scored on train and validation, and one more method is chosen there by cross-validation;
    with --kappa, greedy and ILP on shrunk scores join the methods. With --learned, rankings are learned on train,
    through weighted circuits, and a portfolio takes at every size the method that is best on validation.
    """
    from ..core.statistics import Bootstrap
    from ..errors import InputError
    from ..io.atomic import check_folder
    from ..models import ModelSource
    from ..pipeline import discover
    from ..recipes.recipe import learned_recipes, merge_recipes, paper_recipes, shrinkage_recipes
    from ..recipes.settings import as_published as published
    from ..recipes.tuning import tuning_recipes
    from ..results.result_folder import FILES, result_summary
    from ..runtime.session import Session
    from ..runtime.store import NO_STORE, open_partial_store
    from ..score import has_partial_scores

    folder = out_folder or Path("results") / f"{_slug(model)}-{_slug(task)}"
    check_folder(folder, overwrite, FILES)
    if tune and as_published:
        raise InputError("--tune keeps test examples unseen, which --as-published doesn't; give one of them")
    if stability < 0 or stability == 1 or stability > MOST_RESAMPLES:
        raise InputError(f"an overlap needs 2 to {MOST_RESAMPLES} resamples (or 0 for none), not {stability}")
    resampling = Bootstrap(bootstrap, interval.lower(), confidence, threshold, seed)
    settings = options.build_settings(
        method, steps, metric, ablation, faithfulness, resampling, fill, nested, batch_size, memory
    )
    settings = published(settings) if as_published else settings
    recipes = paper_recipes(settings.bootstrap, pnr, time_limit)
    if kappa is not None:
        recipes = merge_recipes(recipes, shrinkage_recipes(kappa, pnr, time_limit))
    learner = options.build_learner(learn_steps, rate, seed)
    if learned and (no_learned or as_published):
        raise InputError("--learned goes neither with --no-learned nor with the paper's script; give one of them")
    keeping = nullcontext(NO_STORE) if dry_run else open_partial_store(folder)
    with keeping as store, open_workers(engine, address, workers) as where:
        loaded = open_model(ModelSource(model, device, dtype, bos, trust_remote_code, not no_cache))
        train, test = _load_tasks(loaded, task, split, examples, seed, tune)
        validation = None
        if learned or not (no_learned or as_published or loaded.graph.n_edges > AFFORDABLE):
            recipes = merge_recipes(recipes, learned_recipes(learner, time_limit))
            # With --tune, rankings are learned on validation too, so it can't tell any more which is best.
            validation = None if tune else _load_validation(loaded, task, split, examples, seed)
        if show_forecast(_forecast(loaded, where, train, test, validation, recipes, settings, dry_run), dry_run, json):
            if tune:
                note("the plan leaves out tuning, which evaluates every recipe on every fold")
            return
        if not json:
            _introduce(loaded, train, test, settings)
        among = merge_recipes(
            tuning_recipes(resampling, time_limit), learned_recipes(learner, time_limit) if learned else {}
        )
        if has_partial_scores(
            Session(store, where), loaded, train, settings.scorer, settings.metric, settings.batch_size, settings.memory
        ):
            note("going on from what a run that was stopped had finished")
        with watching() as progress:
            found = discover(
                loaded, train, test, settings, recipes, tune_among=among if tune else None,
                validation=validation, stability=stability, seed=seed, session=Session(store, where, progress),
            )  # fmt: skip
        for learning, ranking in found.learned.items():
            warn_of_trend(learning.measure.name, ranking)
        _write(found, folder, overwrite, eap_ig_json)
    if json:
        print_json(result_summary(found) | {"out": str(folder)})
    else:
        _show(folder, found)


def _load_tasks(model: Model, task: str, split: str, examples: int | None, seed: int, tune: bool) -> tuple[Task, Task]:
    """What to score on and what to evaluate on; says so if they aren't apart."""
    from ..errors import InputError
    from ..recipes.tuning import tuning_task
    from ..tasks import has_splits, is_task_file, load_task

    train = load_task(task, model, "train", examples, seed)
    test = load_task(task, model, split, examples, seed)
    if len(train) < 2:
        raise InputError(f"{task} has {len(train)} example to score on, but the bootstrap needs at least 2")
    shared = len(set(train.examples) & set(test.examples))
    if is_task_file(task) and not has_splits(Path(task)):
        note(f"{task} has no `split` column, so edges are scored and circuits evaluated on the same examples")
    elif shared:
        note(f"{shared} of the {len(test)} examples to evaluate on are also scored on; give splits that differ")
    warn_of_few(len(test))
    warn_of_copies(test.copies, len(test))
    return (tuning_task(train, load_task(task, model, "validation", examples, seed), test) if tune else train), test


def _forecast(
    model: Model,
    engine: Engine,
    train: Task,
    test: Task,
    validation: Task | None,
    recipes: Recipes,
    settings: Settings,
    exact: bool,
) -> Forecast:
    """What the run will cost: tuning, which is seldom, is left out."""
    from ..evaluate import SIZES
    from ..recipes.forecast import EvaluateWork, LearnWork, ScoreWork, forecast

    some = [recipe for of in recipes.values() for recipe in of]
    seen = [test] if validation is None else [test, validation]
    learned = [LearnWork(train, settings, learner) for learner in dict.fromkeys(r.learner for r in some if r.learner)]
    circuits = [EvaluateWork(task, settings, len(some) * len(SIZES)) for task in seen]
    return forecast(model, [ScoreWork(train, settings), *learned, *circuits], engine, exact=exact)


def _load_validation(model: Model, task: str, split: str, examples: int | None, seed: int) -> Task | None:
    """What a portfolio chooses by; None if the task has no validation examples apart from those evaluated."""
    from ..tasks import has_splits, is_task_file, load_task

    if split == "validation":
        return None
    if is_task_file(task) and not has_splits(Path(task), "validation"):
        if has_splits(Path(task)):
            note(f"{task} has no rows of split validation, so there is no portfolio of methods chosen by them")
        return None
    return load_task(task, model, "validation", examples, seed)


def _introduce(model: Model, train: Task, test: Task, settings: Settings) -> None:
    from ..recipes.settings import published_words

    graph = model.graph
    pairs = f"{len(train)} pairs to score on ({train.split}), {len(test)} to evaluate on ({test.split})"
    aside(f"{graph}, {graph.n_edges:,} edges", _slug(model.name))
    aside(pairs, train.name)
    for words in (published_words(settings) or {}).values():
        say(f"as published: {words}")


def _write(found: Discovery, folder: Path, overwrite: bool, eap_ig_json: bool) -> None:
    """Write what was found; what can't be shown of it is a warning."""
    from ..report.write_result import NotShownWarning, write_result

    with warnings.catch_warnings(record=True) as raised:
        warnings.simplefilter("always", NotShownWarning)
        write_result(found, folder, overwrite, eap_ig_json)
    for one in raised:
        if issubclass(one.category, NotShownWarning):
            warn(f"warning: {one.message}")


def show_areas(result: Discovery) -> None:
    """Print the areas of all methods, and what their marks mean."""
    from ..report.tables import LEGEND, area_table

    for measure in result.measures:
        print_tables(area_table(result.of(measure), measure, out.width))
    for words in (*LEGEND, f"faithfulness: {result.settings.faithfulness.summary}"):
        aside(words)


def _show(folder: Path, result: Discovery) -> None:
    """Print what a run came to."""
    from ..report.open_circuit import open_run_circuit
    from ..report.tables import LOW_ACCURACY
    from ..results import result_summary

    record, graph = result_summary(result), result.run.graph
    top, beats = result.run.accuracy.top, result.run.accuracy.beats
    say(f"accuracy: the top answer is right in {top:.1%}; the correct answer beats the incorrect in {beats:.1%}")
    if beats < LOW_ACCURACY:
        warn("warning: the model hardly does this task; a circuit for it may mean nothing")
    show_areas(result)
    for measure, overlaps in record["overlap"].items():
        shown = ", ".join(f"{name} {overlap['mean']:.2f}" for name, overlap in overlaps.items())
        say(f"overlap of {measure} circuits over resamples of the training examples, mean over sizes: {shown}")
    say(f"{result.statistics.sign_instability:.1%} of the edges changed sign between bootstrap resamples")
    chosen = "; ".join(f"{b}: {one['recipe']}, chosen on {one['chosen_on']}" for b, one in record["circuits"].items())
    say(f"circuits/ has those of {chosen}")
    _explain_tuning(record)
    for measure, choices in record["portfolio"].items():
        # A small graph has sizes that ask for no edge: all methods are alike there.
        seen = [(share, one) for share, one in choices.items() if int(float(share) * graph.n_edges)]
        runs = [(method, [share for share, _ in same]) for method, same in groupby(seen, lambda one: one[1])]
        taken = "; ".join(f"{_sizes(shares)} {method}" for method, shares in runs)
        say(f"Portfolio {measure}, by share of the edges: {taken}")
    show_open(open_run_circuit(result))
    others = [f"edgewise show {folder} --metric {measure}" for measure in list(record["circuits"])[1:]]
    aside(f"more: {'; '.join((*others, f'edgewise compare {folder}', 'edgewise show --help'))}")
    say(f"results in {folder}: {', '.join(_contents(folder))}")
    aside(f"{result.run.seconds['total']:.0f} s in all")


def _contents(folder: Path) -> list[str]:
    """What lies in a folder, what people open first in front."""
    names = sorted(f"{path.name}{'/' * path.is_dir()}" for path in folder.iterdir())
    return [*(name for name in FIRST if name in names), *(name for name in names if name not in FIRST)]


def _sizes(shares: list[str]) -> str:
    """The first and the last of some sizes."""
    return shares[0] if len(shares) == 1 else f"{shares[0]}-{shares[-1]}"


def _explain_tuning(record: dict[str, Any]) -> None:
    from ..report.formatting import format_interval, format_number

    tuning = record["tuning"] or {"chosen": {}}
    for measure, best in tuning["chosen"].items():
        method, parameters = best["method"], record["circuits"][measure]["parameters"]
        greedy, lead = tuning["candidates"][measure][0]["area"], best["against_greedy"]
        ours = f"{method}{f' ({parameters})' * bool(parameters)}, {format_number(best['area'])}"
        low_high = format_interval(lead["low"], lead["high"], signed=True)
        less = f"{format_number(lead['difference'], signed=True)} {low_high}"
        split = record["train"]["split"]
        say(f"Tuned {measure}: {ours} against greedy's {format_number(greedy)} on held-out examples of {split}: {less}")


def _slug(name: str) -> str:
    path = Path(name)
    return path.stem if path.suffix in (".jsonl", ".csv") else path.name
