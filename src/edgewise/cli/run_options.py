"""Options that a command takes from the run of its circuits, in place of those that were not given."""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ..core.scores import EdgeScores
from ..errors import InputError, warn
from ..evaluate import ABLATIONS, FAITHFULNESS
from ..models.model_files import CONFIG_FILE
from ..recipes.discovery import Discovery
from ..results import is_result, read_result
from ..tasks import METRICS, is_task_file
from ..tasks.checks import warn_of_sample
from ..tasks.known import KNOWN
from . import options
from .console import note

if TYPE_CHECKING:
    from ..models import Model
    from ..tasks import Task

Measured = TypeVar("Measured", bound=options.MetricOptions)
# Options that say how a model or a task is read. If another model or task is given, they are not taken from the run.
MODEL_OPTIONS = ("dtype", "bos")
TASK_OPTIONS = ("examples", "seed", "chat", "spans", "skip_bad", "columns", "metric")
# How circuits are measured: what is registered can be run again.
REGISTERED: dict[str, Container[str]] = {"metric": METRICS, "ablation": ABLATIONS, "faithfulness": FAITHFULNESS}


@dataclass(frozen=True)
class CircuitRuns:
    """The runs that the circuits of a command are from.

    runs           folder -> the run
    given_options  names of the options that the command was called with
    """

    runs: dict[Path, Discovery]
    given_options: options.GivenOptions

    def complete(
        self, model: options.ModelOptions, task: options.TaskOptions, measured: Measured
    ) -> tuple[options.ModelOptions, options.TaskOptions, Measured]:
        """Return the options with those of the runs in place of those that were not given. Print a note of them."""
        all_fields = [field for group in (model, task, measured) for field in fields(group)]
        left_out = {*self.given_options}
        left_out |= {*MODEL_OPTIONS} if "model" in self.given_options else set()
        left_out |= {*TASK_OPTIONS} if "task" in self.given_options else set()
        left_out |= {"examples"} if "split" in self.given_options else set()  # the run's number is that of its test
        taken: dict[str, Any] = {}  # what was not given and the runs have, the same in each
        names = {field.name for field in all_fields}
        recorded = [_recorded_options(folder, discovery) for folder, discovery in self.runs.items()]
        for name in [name for name in (recorded[0] if recorded else ()) if name in names - left_out]:
            flag = f"--{name.replace('_', '-')}"
            value, *others = dict.fromkeys(each[name] for each in recorded)
            if others:
                shown = ", ".join(str(getattr(each, "name", each)) for each in (value, *others))
                raise InputError(
                    f"the circuits are from runs with different {flag} ({shown}); give {flag}, or one run at a time"
                )
            if name in REGISTERED and value.name not in REGISTERED[name]:
                raise InputError(
                    f"the run of the circuits has {flag} {value.name!r}, which is no choice here; give {flag}"
                )
            if name == "task" and is_task_file(value) and not Path(value).is_file():
                raise InputError(
                    f"the task file of the run of the circuits, {value!r}, is neither here nor in a folder above the "
                    "run; start the command where the run was started, or give --task PATH and the run's other options"
                )
            taken[name] = value
        if taken:  # Of --dtype, --bos and --metric, the run recorded what auto stands for: they are shown, too.
            defaults = {field.name: getattr(field.default, "default", None) for field in all_fields}
            texts = {name: getattr(value, "name", value) for name, value in taken.items()}
            changed = {f"--{name.replace('_', '-')}": text for name, text in texts.items() if defaults[name] != text}
            shown_options = [name if value is True else f"{name} {value}" for name, value in changed.items()]
            note(f"{' '.join(shown_options)}, as in the run of the circuits")
        if "task" not in self.given_options and "task" not in taken:
            note(f"no --task was given, so {task.task} is used")
        return _replace(model, taken), _replace(task, taken), _replace(measured, taken)

    def check_weights(self, model: Model) -> None:
        """Raise InputError if a model isn't that of the runs, or has other weights now."""
        for folder, discovery in self.runs.items():
            run = discovery.run
            if run.weights == model.content:
                continue
            if run.model == model.name:
                raise InputError(f"{folder} was made with other weights of model {run.model!r}; run it again")
            raise InputError(
                f"{folder} was made with model {run.model!r}, not with {model.name!r}; give --model {run.model}"
            )

    def load_examples(self, task_options: options.TaskOptions, model: Model, split: str) -> Task:
        """Return the examples of a split. Warn if they are few or copies, or have changed since the runs."""
        task = task_options.load_part(model, split)
        warn_of_sample(task)
        is_other = not self.given_options.isdisjoint(("task", *TASK_OPTIONS, *MODEL_OPTIONS, "model"))
        for folder, discovery in ({} if is_other else self.runs).items():
            test = discovery.run.test
            first = task.head(test.examples)
            if test.split == task.split and len(first) == test.examples and first.digest != test.prompts:
                warn(
                    f"the prompts of {task.name} have changed since {folder} was made: some examples may be among "
                    "those that it scored, and circuits look better on these; run it again"
                )
        return task


def find_runs(circuits: Iterable[Path], given_options: options.GivenOptions) -> CircuitRuns:
    """Return the runs that circuits are from: result folders, and the files in their circuits/."""
    runs: dict[Path, Discovery] = {}
    for path in circuits:
        folder = path if path.is_dir() else path.parent
        folder = folder.parent if folder.name == "circuits" else folder
        if folder not in runs and is_result(folder):
            runs[folder] = read_result(folder)
    return CircuitRuns(runs, given_options)


def find_truth(truth: str, paths: Iterable[Path]) -> str:
    """Return the name of a true circuit. For auto, it is that of the only known/NAME model of runs and scores."""
    if truth != options.AUTO:
        return truth
    models = set()
    for path in paths:
        if is_result(path):
            models.add(read_result(path).run.model)
        else:
            is_scores = (path / "scores.json").is_file()
            models.add(str(EdgeScores.load(path).provenance.get("model", "")) if is_scores else "")
    name = models.pop() if len(models) == 1 else ""
    if name not in KNOWN:
        raise InputError(
            "there is no true circuit to compare with; give --truth FILE, or --truth known/NAME. By default it is that "
            f"of a run's own model, if this is one of {', '.join(KNOWN)}"
        )
    return name


def _locate(name: str, run: Path, file: str = "") -> str:
    """Return the path of a task file, or of a model's folder with a `file`, which is relative to where a run began.

    It is here, or in a folder above the run. If it is in neither, the name stays as it is.
    """
    above = [] if (Path(name) / file).is_file() else [folder / name for folder in run.absolute().parents]
    return str(next((path for path in above if (path / file).is_file()), name))


def _recorded_options(folder: Path, discovery: Discovery) -> dict[str, Any]:
    """Return option -> value of a run. Its `made_from` is empty if it was run in Python, and files can be changed."""
    run, settings, made_from = discovery.run, discovery.settings, discovery.run.made_from
    columns = made_from.get("columns")
    task = str(made_from.get("task", run.task))  # the record of a run has a task file's stem; this is its path
    return {
        "model": _locate(run.model, folder, "" if run.model.endswith(".gguf") else CONFIG_FILE),
        "dtype": run.dtype,
        "task": _locate(task, folder) if is_task_file(task) else task,
        "bos": "no" if run.bos is None else "yes",
        "examples": run.test.examples,
        "seed": run.seed,
        "chat": made_from.get("chat") is True,
        "spans": "token" if made_from.get("spans") == "token" else None,
        "skip_bad": made_from.get("skip_bad") is True,
        "columns": columns if isinstance(columns, str) else None,
        "metric": settings.metric,
        "ablation": settings.ablation,
        "faithfulness": settings.faithfulness,
    }


def _replace(group: Any, values: dict[str, Any]) -> Any:
    return replace(group, **{field.name: values[field.name] for field in fields(group) if field.name in values})
