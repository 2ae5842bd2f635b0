"""edgewise run: the whole flow."""

from __future__ import annotations

import hashlib
import platform
import shutil
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import options
from .console import open_model, out, print_json, progress_bars, say, warn, warn_of_few

if TYPE_CHECKING:
    from ..formats.result_folder import Result
    from ..models import Model
    from ..pipeline import Discovery
    from ..recipes import Recipe, Settings
    from ..scores import EdgeScores
    from ..tasks import Task
    from ..tune import Tuning

NAME = "run"
# Each resample is a copy of the rows of scores: not worth it beyond this many bytes.
LARGEST_OVERLAP = 2_000_000_000
MOST_RESAMPLES = 1000


def command(
    model: options.ModelName = "demo",
    task: options.TaskName = "ioi",
    split: Annotated[str, typer.Option(help="The split to evaluate on; edges are scored on train.")] = "test",
    examples: options.Examples = None,
    method: options.Method = "eap-ig",
    steps: options.Steps = 5,
    metric: options.Metric = "logit-difference",
    ablation: options.Ablation = "patching",
    faithfulness: options.Faithfulness = "mib",
    pnr: Annotated[float, typer.Option(help="The least share of positive edges, for the methods with PNR.")] = 0.5,
    bootstrap: Annotated[int, typer.Option(help="Resamples of the bootstrap (tau).")] = 10,
    interval: options.Interval = "paper",
    confidence: options.Confidence = 0.95,
    threshold: options.Threshold = 0.0,
    kappa: options.Kappa = None,
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
    batch_size: options.BatchSize = None,
    memory: options.Memory = "1GB",
    seed: options.Seed = 0,
    out_folder: Annotated[
        Path | None, typer.Option("--out", help="The result folder; default results/MODEL-TASK.")
    ] = None,
    overwrite: options.Overwrite = False,
    json: options.Json = False,
) -> None:
    """Find circuits with every method of the paper, for both metrics, and say how faithful they are.

    Scores edges on the train split, selects circuits of ten sizes by each combination of greedy or ILP,
    bootstrapping and PNR, and evaluates them on the test split. A run that was stopped goes on from its scores.
    With --tune, edges are scored on train and validation, and one more method is chosen there by cross-validation;
    with --kappa, greedy and ILP on shrunk scores join the methods.
    """
    from ..errors import InputError
    from ..formats.result_folder import exported_record, read_result, write_result
    from ..formats.write import refuse_existing, whole_folder
    from ..models.memory import parse_bytes
    from ..pipeline import check_settings, discover
    from ..recipes import RANK_OF, Settings, published_words, shrinkage_recipes
    from ..recipes import as_published as published
    from ..report.figures import write_figures
    from ..statistics import Bootstrap
    from ..tasks import load_task
    from ..tune import tune as cross_validate
    from ..tune import tuning_task

    started = time.perf_counter()
    folder = out_folder or Path("results") / f"{_slug(model)}-{_slug(task)}"
    refuse_existing(folder, overwrite)
    if tune and as_published:
        raise InputError("--tune keeps test examples unseen, which --as-published doesn't; give one of them")
    if stability < 0 or stability == 1 or stability > MOST_RESAMPLES:
        raise InputError(f"an overlap needs 2 to {MOST_RESAMPLES} resamples (or 0 for none), not {stability}")
    settings = Settings(
        method, steps, metric, ablation, faithfulness, pnr,
        Bootstrap(bootstrap, interval, confidence, threshold, seed),
        time_limit=time_limit, fill=fill, nested=nested, batch_size=batch_size, memory=parse_bytes(memory),
    )  # fmt: skip
    check_settings(settings)
    more = dict.fromkeys(RANK_OF, ()) if kappa is None else shrinkage_recipes(kappa, pnr)
    settings = published(settings) if as_published else settings
    loaded, train, test = _load(model, task, split, examples, seed, (device, dtype, bos))
    if tune:
        train = tuning_task(train, load_task(task, loaded, "validation", examples, seed), test)
    competence = _competence(loaded, test)
    if not json:
        _introduce(loaded, train, test, competence)
        for words in (published_words(settings) or {}).values():
            say(f"as published: {words}")
    about: dict[str, Any] = {
        "model": model,
        "task": task,
        "train": {"split": train.split, "examples": len(train)},
        "test": {"split": test.split, "examples": len(test)},
        "seed": seed,
        "device": str(loaded.transformer.device),
        "dtype": str(loaded.transformer.dtype).removeprefix("torch."),
        "bos": loaded.bos,
        "accuracy": competence,
        "settings": asdict(settings),
        "as_published": published_words(settings),
    }
    with progress_bars() as progress:
        scores, partial = _scores(loaded, train, settings, folder, about, progress)
        tuning = cross_validate(loaded, train, scores, settings, progress, seed) if tune else None
        if tuning:
            more = {b: (*recipes, tuning.chosen(b)) for b, recipes in more.items()}
        found = discover(loaded, train, test, settings, scores, progress, more)
    about |= _found(found, tuning, stability, seed)
    about["circuits"] = {b: exported_record(found.exported(b), about) for b in RANK_OF}
    about["seconds"] |= {"total": time.perf_counter() - started}
    with whole_folder(folder, overwrite) as draft:
        write_result(draft, found, about)
        (draft / "figures").mkdir()
        write_figures(draft / "figures", read_result(draft))
    shutil.rmtree(partial, ignore_errors=True)
    if json:
        print_json(about | {"out": str(folder)})
        return
    _show(folder, about)
    if tuning is not None:
        _explain_tuning(tuning, train)


def _found(found: Discovery, tuning: Tuning | None, stability: int, seed: int) -> dict[str, Any]:
    """What run.json says of the outcome."""
    from ..evaluate.intervals import resample
    from ..recipes import RANK_OF

    graph = found.scores.graph
    outcomes = {b: [o for o in found.outcomes if o.benchmark == b] for b in RANK_OF}
    return {
        "graph": asdict(graph) | {"edges": graph.n_edges},
        "sign_instability": found.filtered.sign_instability,
        "edges_kept_by_bootstrap": int(found.filtered.kept.sum()),
        "areas": {b: {o.recipe.name: o.area for o in some} for b, some in outcomes.items()},
        "intervals": {
            b: {o.recipe.name: resample(o.curve, b).interval().record() for o in some} for b, some in outcomes.items()
        },
        "tuning": tuning.record() if tuning else None,
        "overlap": _overlap(found, stability, seed),
        "seconds": dict(found.seconds),
        "versions": _versions(),
    }


def show_areas(result: Result) -> None:
    """Print the areas of all methods, and what their marks mean."""
    from ..evaluate.curve import DEFINITIONS
    from ..report.tables import LEGEND, area_table

    for benchmark in ("CMD", "CPR"):
        out.print(area_table(result.rows, benchmark))
    say(f"{LEGEND}\nfaithfulness: {DEFINITIONS[result.run['settings']['faithfulness']]}")


def _show(folder: Path, about: dict[str, Any]) -> None:
    """Print what a run came to."""
    from ..formats.result_folder import read_result

    show_areas(read_result(folder))
    for benchmark, overlaps in about["overlap"].items():
        shown = ", ".join(f"{name} {overlap['mean']:.2f}" for name, overlap in overlaps.items())
        say(f"overlap of {benchmark} circuits over resamples of the training examples, mean over sizes: {shown}")
    say(f"{about['sign_instability']:.1%} of the edges changed sign between bootstrap resamples")
    chosen = "; ".join(f"{b}: {one['recipe']}, chosen on {one['chosen_on']}" for b, one in about["circuits"].items())
    say(f"circuits/ has those of {chosen}")
    say(f"results in {folder}: figures/faithfulness.png, curve.csv, circuits/, run.json")
    say(f"{about['seconds']['total']:.0f} s in all")


def _load(
    model: str, task: str, split: str, examples: int | None, seed: int, how: tuple[str, str, str]
) -> tuple[Model, Task, Task]:
    from ..errors import InputError
    from ..tasks import has_splits, is_task_file, load_task

    loaded = open_model(model, *how)
    train = load_task(task, loaded, "train", examples, seed)
    test = load_task(task, loaded, split, examples, seed)
    if len(train) < 2:
        raise InputError(f"{task} has {len(train)} example to score on, but the bootstrap needs at least 2")
    shared = len(set(train.examples) & set(test.examples))
    if is_task_file(task) and not has_splits(Path(task)):
        warn(f"note: {task} has no `split` column, so edges are scored and circuits evaluated on the same examples")
    elif shared:
        warn(f"note: {shared} of the {len(test)} examples to evaluate on are also scored on; give splits that differ")
    warn_of_few(len(test))
    return loaded, train, test


def _scores(
    model: Model, train: Task, settings: Settings, folder: Path, about: dict[str, Any], progress: Any
) -> tuple[EdgeScores, Path]:
    """The scores, from an earlier run that was stopped after making them if it had the same settings."""
    from ..errors import InputError
    from ..formats.score_folder import read_scores, write_scores
    from ..formats.write import whole_folder
    from ..score import score_edges

    partial = folder.parent / f".{folder.name}.partial"
    key = {name: about[name] for name in ("model", "task", "train", "seed", "dtype", "bos")}
    prompts = repr([(e.clean, e.corrupted, e.correct, e.incorrect) for e in train.examples])
    weights = sorted((file.name, file.stat().st_mtime_ns) for file in Path(about["model"]).glob("*.safetensors"))
    key |= {"prompts": hashlib.sha256(prompts.encode()).hexdigest(), "weights": weights}
    key |= {"method": settings.method, "steps": settings.steps, "metric": settings.metric}
    key = {"resumes": repr(sorted(key.items(), key=str))}
    if partial.is_dir():
        try:
            scores = read_scores(partial)
            if scores.provenance.get("resumes") == key["resumes"] and scores.graph == model.graph:
                warn("note: going on from the scores of a run that was stopped")
                return _without_key(scores), partial
        except InputError:
            pass  # not whole: score again
        shutil.rmtree(partial)
    with whole_folder(partial) as draft:
        scores = score_edges(
            model, train, settings.method, settings.steps, settings.metric, settings.batch_size,
            lambda done, total: progress("score", done, total), draft / "scores.npy", key, settings.memory,
        )  # fmt: skip
        write_scores(draft, scores)
    return _without_key(scores), partial


def _without_key(scores: EdgeScores) -> EdgeScores:
    """The scores without what is of use only to a run that goes on."""
    return replace(scores, provenance={k: v for k, v in scores.provenance.items() if k != "resumes"})


def _competence(model: Model, test: Task) -> dict[str, float]:
    """How well the model does the task: how often the correct answer comes first, and beats the incorrect one."""
    from ..evaluate.verb import evaluate_circuits

    first = evaluate_circuits(model, test, [], "accuracy").full
    beats = evaluate_circuits(model, test, [], "logit-difference").full > 0
    return {"top-1": float(first.mean()), "beats the incorrect answer": float(beats.mean())}


def _overlap(found: Discovery, resamples: int, seed: int) -> dict[str, dict[str, Any]]:
    """Benchmark -> greedy and the exported method -> the overlap of circuits over resamples of scored examples, by size
    (None where circuits are empty) and its mean."""
    import numpy as np

    from ..recipes import GREEDY, RANK_OF
    from ..stability import mean_overlap, recipe_overlap

    def both(benchmark: str, recipe: Recipe) -> dict[str, Any]:
        by_size = recipe_overlap(found.scores, recipe, benchmark, found.settings, resamples, seed)
        sizes = [None if np.isnan(value) else float(value) for value in by_size]
        return {"sizes": sizes, "mean": mean_overlap(by_size, found.settings.sizes)}

    if not resamples or found.scores.n_examples < 2 or found.scores.values.nbytes > LARGEST_OVERLAP:
        return {}
    return {
        b: {recipe.name: both(b, recipe) for recipe in dict.fromkeys((GREEDY, found.exported(b).recipe))}
        for b in RANK_OF
    }


def _explain_tuning(tuning: Tuning, train: Task) -> None:
    for benchmark in tuning.candidates:
        best = tuning.best(benchmark)
        parameters = f" ({best.recipe.parameters})" if best.recipe.parameters else ""
        greedy, lead = tuning.candidates[benchmark][0].area, tuning.lead[benchmark]
        say(
            f"Tuned {benchmark}: {best.recipe.name}{parameters}, {best.area:.4f} against greedy's {greedy:.4f} "
            f"on held-out examples of {train.split}: {lead.difference:+.4f} [{lead.low:+.4f}, {lead.high:+.4f}]"
        )


def _introduce(model: Model, train: Task, test: Task, competence: dict[str, float]) -> None:
    from ..report.tables import LOW_ACCURACY

    graph = model.graph
    pairs = f"{len(train)} pairs to score on ({train.split}), {len(test)} to evaluate on ({test.split})"
    say(f"{graph}, {graph.n_edges:,} edges", _slug(model.name))
    say(pairs, train.name)
    accuracy, beats = competence.values()
    say(f"accuracy: the top answer is right in {accuracy:.1%}; the correct answer beats the incorrect in {beats:.1%}")
    if beats < LOW_ACCURACY:
        warn("warning: the model hardly does this task; a circuit for it may mean nothing")


def _slug(name: str) -> str:
    path = Path(name)
    return path.stem if path.suffix in (".jsonl", ".csv") else path.name


def _versions() -> dict[str, str]:
    from importlib.metadata import version

    names = ("edgewise", "numpy", "torch", "transformers", "highspy")
    return {"python": platform.python_version()} | {name: version(name) for name in names}
