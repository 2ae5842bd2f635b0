"""Options that a command takes from the run of its circuits, in place of those that were not given."""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ..errors import InputError, warn
from ..evaluate.ablations import ABLATIONS
from ..evaluate.measures import FAITHFULNESS
from ..models import DEMO
from ..models.model_files import CONFIG_FILE
from ..recipes.discovery import Discovery
from ..results import is_result, read_result
from ..tasks import is_task_file
from ..tasks.metrics import METRICS
from . import options
from .console import note

if TYPE_CHECKING:
    from ..models import Model
    from ..tasks import Task

Measured = TypeVar("Measured", bound=options.MetricOptions)
# Options that say how a model or a task is read. If another model or task is given, they are not taken from the run.
MODEL_OPTIONS = ("bos",)
TASK_OPTIONS = ("seed", "chat", "spans", "skip_bad", "columns", "metric")
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
        self, model: options.RunModelOptions, task: options.RunTaskOptions, measured: Measured
    ) -> tuple[options.RunModelOptions, options.RunTaskOptions, Measured]:
        """Return the options with those of the runs in place of those that were not given. Print a note of them."""
        taken = self._taken({field.name for group in (model, task, measured) for field in fields(group)})
        if taken:
            note(f"{_describe(taken, (model, task, measured))}, as in the run of the circuits")
        model_name = taken.get("model") or model.model or DEMO
        if not task.task and "task" not in taken:
            taken["task"] = options.default_task(model_name)
            note(f"no --task was given, so {taken['task']} is used")
        taken["model"] = model_name
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

    def warn_of_other_prompts(self, task: Task) -> None:
        """Warn if the examples of the runs' own task aren't those of the runs: some may have been scored."""
        if not self.given_options.isdisjoint(("task", *TASK_OPTIONS, *MODEL_OPTIONS, "model")):
            return
        for folder, discovery in self.runs.items():
            test = discovery.run.test
            first = task.head(test.examples)
            if test.split == task.split and len(first) == test.examples and first.digest != test.prompts:
                warn(
                    f"the prompts of {task.name} have changed since {folder} was made: some examples may be among "
                    "those that it scored, and circuits look better on these; run it again"
                )

    def _taken(self, names: set[str]) -> dict[str, Any]:
        """Return option -> value of the options that were not given and that the runs have, the same in each."""
        left_out = {*self.given_options}
        left_out |= {*MODEL_OPTIONS} if "model" in self.given_options else set()
        left_out |= {*TASK_OPTIONS} if "task" in self.given_options else set()
        taken = {}
        recorded = [_recorded_options(folder, discovery) for folder, discovery in self.runs.items()]
        for name in [name for name in (recorded[0] if recorded else ()) if name in names - left_out]:
            flag = f"--{name.replace('_', '-')}"
            value, *others = dict.fromkeys(each[name] for each in recorded)
            if others:
                shown = ", ".join(map(str, (value, *others)))
                raise InputError(
                    f"the circuits are from runs with different {flag} ({shown}); give {flag}, or one run at a time"
                )
            if name in REGISTERED and value not in REGISTERED[name]:
                raise InputError(f"the run of the circuits has {flag} {value!r}, which is no choice here; give {flag}")
            if name == "task" and is_task_file(value) and not Path(value).is_file():
                raise InputError(
                    f"the task file of the run of the circuits, {value!r}, is neither here nor in a folder above the "
                    "run; start the command where the run was started, or give --task PATH and the run's other options"
                )
            taken[name] = value
        return taken


def find_runs(circuits: Iterable[Path], given_options: options.GivenOptions) -> CircuitRuns:
    """Return the runs that circuits are from: result folders, and files and folders in them."""
    folders = filter(None, map(_find_run, circuits))
    return CircuitRuns({folder: read_result(folder) for folder in folders}, given_options)


def _find_run(path: Path) -> Path | None:
    """Return the result folder that a path is, or is in the circuits/ of."""
    folder = path if path.is_dir() else path.parent
    folder = folder.parent if folder.name == "circuits" else folder
    return folder if is_result(folder) else None


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
        "task": _locate(task, folder) if is_task_file(task) else task,
        "bos": "no" if run.bos is None else "yes",
        "seed": run.seed,
        "chat": made_from.get("chat") is True,
        "spans": "token" if made_from.get("spans") == "token" else None,
        "skip_bad": made_from.get("skip_bad") is True,
        "columns": columns if isinstance(columns, str) else None,
        "metric": settings.metric.name,
        "ablation": settings.ablation.name,
        "faithfulness": settings.faithfulness.name,
    }


def _describe(taken: dict[str, Any], groups: Iterable[Any]) -> str:
    """Return the model, the task, and the other options that aren't the default, as on the command line."""
    defaults = {field.name: getattr(field.default, "default", None) for group in groups for field in fields(group)}
    # Of --bos and --metric, the run recorded what auto stands for: they are shown, too.
    shown = {name: value for name, value in taken.items() if defaults[name] != value}
    flags = {name: f"--{name.replace('_', '-')}" for name in shown}
    return " ".join(flags[name] if value is True else f"{flags[name]} {value}" for name, value in shown.items())


def _replace(group: Any, values: dict[str, Any]) -> Any:
    return replace(group, **{field.name: values[field.name] for field in fields(group) if field.name in values})
