"""The command line: parse options, call the library, print. One file per command."""

from __future__ import annotations

import os
import re
import sys
from copy import copy
from dataclasses import fields, is_dataclass
from enum import Enum
from importlib import import_module
from inspect import Parameter, Signature, cleandoc, signature
from pathlib import Path
from typing import Any, NoReturn, get_args, get_type_hints

import typer
from typer.core import TyperGroup

from ..errors import InputError, did_you_mean, visible
from ..method import Method, choose
from ..version import __version__
from . import options
from .console import check_arguments, flush_output, print_log, show_versions, verbosity

# Every command is a module of this package. `edgewise --help` shows these lines without importing the modules.
COMMANDS = {
    "run": "Find circuits with every recipe of the paper, for both measures, and evaluate how faithful they are.",
    "study": "Run the paper's experiments: all recipes, hyper-parameters and seeds, into the paper's tables.",
    "score": "Score every edge for every example: how much does corrupting the edge hurt?",
    "learn": "Learn one value per edge by gradient descent through weighted circuits.",
    "select": "Select a circuit of a given number of edges from scores, or one circuit for each of several sizes.",
    "combine": "Combine several rankings of one model's edges into one: the mean of their ranks or values.",
    "evaluate": "Run circuits on a task: edges outside a circuit carry the corrupted (or zero, or mean) activation.",
    "knock-out": "Cut nodes and edges from the model, and measure how far the metric falls.",
    "verify": "Test whether a circuit is real, with a null hypothesis and a p-value for each test.",
    "view": "Write a page that shows circuits layer by layer: one file that needs no server and no network.",
    "show": "Show a circuit: its strongest edges, its heads and MLPs by total score, and its faithfulness by size.",
    "compare": "Compare recipes of a run on the same examples, or two circuits, or two runs.",
    "roc": "Compare rankings with a known circuit: AUROC, and precision at the size of that circuit.",
    "export": "Export a circuit as a graph: Graphviz' dot, GraphML, or Cytoscape's JSON. networkx reads all of them.",
    "figures": "Draw the figures of a run or a study for a paper: without titles, with fonts of 8 and 9 points.",
    "report": "Print the tables of a run or a study, and rebuild what is derived from its data.",
    "convert": "Convert scores and circuits between score folders, EAP-IG / MIB json and pt, and MIB submissions.",
    "check": "Check whether the MIB leaderboard would accept a submission, folder by folder.",
    "models": "List the supported model families, or describe one model: its graph, and the memory that it needs.",
    "tasks": "List the tasks, or show prompt pairs of one and how many of its rows the model can use.",
}
# The order of the groups of options in `--help`. A command with many options lists the common ones first.
COMMON_PANEL, MANY_OPTIONS = "Common options", 25
PANELS = (
    COMMON_PANEL, "Circuit", "Submission", "Model", "Task", "Scoring", "Selection", "Learning", "Evaluation", "Machine",
    "Output",
)  # fmt: skip
COMMON_OPTIONS = (
    "model", "task", "examples", "split", "seed", "seeds", "learned", "device", "out_folder", "dry_run", "json",
)  # fmt: skip
# typer has its own copy of click, or uses the installed one. This class is in either.
UsageError: type[Any] = typer.BadParameter.__bases__[0]


class LazyGroup(TyperGroup):
    """A group of commands that imports a command's module when the command is called."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Load the command that is called, in place of its line in `edgewise --help`."""
        if args[0] in COMMANDS:
            self.commands[args[0]] = load_command(args[0])
        return super().resolve_command(ctx, args)


def load_command(name: str) -> Any:
    """Import a command, and make an option of every field of its option groups. Add --quiet and --verbose."""
    function = import_module(f"{__name__}.{name.replace('-', '_')}").command
    groups: dict[str, Any] = {}
    parameters: list[Parameter] = []
    hints = get_type_hints(function)
    for parameter in signature(function).parameters.values():
        kind = hints[parameter.name]
        if parameter.default is Parameter.empty and is_dataclass(kind):
            groups[parameter.name], kinds = kind, get_type_hints(kind)
            parameters += [_typer_parameter(field.name, field.default, kinds[field.name]) for field in fields(kind)]
        elif parameter.name != "given_options":
            parameters.append(_typer_parameter(parameter.name, parameter.default, kind))
    families = {p.name: p.default.choices for p in parameters if getattr(p.default, "is_method", False)}
    if len(parameters) > MANY_OPTIONS:
        for parameter in parameters:
            if parameter.name in COMMON_OPTIONS:
                parameter.default.rich_help_panel = COMMON_PANEL
    parameters.sort(key=lambda parameter: ("", None, *PANELS).index(getattr(parameter.default, "rich_help_panel", "")))
    for option, default in (("quiet", options.QUIET), ("verbose", options.VERBOSE)):
        parameters.append(Parameter(option, Parameter.KEYWORD_ONLY, default=default, annotation=bool))
    parameters.append(Parameter("context", Parameter.KEYWORD_ONLY, annotation=typer.Context))

    def run_from_typer(context: typer.Context, quiet: bool, verbose: bool, **values: Any) -> None:
        sources = {name: context.get_parameter_source(name) for name in values}
        values = {name: _plain_value(value) for name, value in values.items()}
        for name in families:
            if values[name] is not None:
                values[name] = choose(name, families[name], values[name])
        if values.get("task") == options.AUTO:
            values["task"] = options.default_task(values["model"])
        for name, group in groups.items():
            values[name] = group(**{field.name: values.pop(field.name) for field in fields(group)})
        if "given_options" in hints:
            on_command_line = (name for name, source in sources.items() if source and source.name == "COMMANDLINE")
            values["given_options"] = frozenset(on_command_line)
        with verbosity(quiet, verbose), print_log():
            show_versions()
            function(**values)

    # typer reads both.
    run_from_typer.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    run_from_typer.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    # Line breaks within a paragraph are removed, because the terminal has its own width.
    paragraphs = [" ".join(part.split()) for part in cleandoc(function.__doc__).split("\n\n")]
    single = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    single.command(name, help="\n\n".join(paragraphs))(run_from_typer)
    return typer.main.get_command(single)


def _typer_parameter(name: str, default: Any, kind: Any) -> Parameter:
    """Return a parameter as typer wants it: choices are an Enum, and a flag has no --no-FLAG."""
    default = copy(default)  # several commands share it
    if kind is bool and not default.param_decls:
        default.param_decls = (f"--{name.replace('_', '-')}",)
    default.is_method = any(isinstance(part, type) and issubclass(part, Method) for part in (kind, *get_args(kind)))
    choices = getattr(default, "choices", ())
    if choices and default.metavar is None:  # an option with a metavar takes other texts, too
        enum = Enum("Choice", {choice: choice for choice in choices})  # type: ignore[misc]
        kind = enum | None if default.default is None else enum
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=kind)


def _plain_value(value: Any) -> Any:
    """Return the value of an option: a choice as text, and paths with ~, which shells keep in --out=~/x, in full."""
    if isinstance(value, list):
        return [_plain_value(item) for item in value]
    if isinstance(value, str | Path) and str(value).startswith("~/"):
        return type(value)(os.path.expanduser(value))
    return value.value if isinstance(value, Enum) else value


app = typer.Typer(
    name="edgewise",
    cls=LazyGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
# Placeholders for --help; LazyGroup loads the real command.
for _name, _help in COMMANDS.items():
    app.command(_name, help=_help)(lambda: None)


def _print_version(value: bool) -> None:
    if value:
        print(__version__)
        raise typer.Exit


@app.callback()
def _global_options(
    context: typer.Context,
    version: bool = typer.Option(
        False, "--version", callback=_print_version, is_eager=True, help="Show the version and exit."
    ),
    quiet: bool = options.QUIET,
    verbose: bool = options.VERBOSE,
) -> None:
    """Find circuits in language models: score the edges of the computation graph, select some, evaluate them."""
    context.with_resource(verbosity(quiet, verbose))


def main() -> None:
    """Run the command line. An error that the user can fix is one line and exit code 2."""
    with flush_output():
        try:
            check_arguments(sys.argv[1:])
            sys.exit(app(prog_name="edgewise", standalone_mode=False))
        except UsageError as error:
            _exit(_usage_message(error))
        except InputError as error:
            _exit(_name_options(str(error)), keep_lines=bool(error.details))
        except BrokenPipeError:
            raise
        except OSError as error:
            _exit(f"{error.strerror or error}: {error.filename or 'a file can not be read or written'}")
        except MemoryError as error:
            _exit(f"not enough memory: {error or 'use fewer examples, or a smaller --batch-size'}")
        except typer.Abort:  # typer's form of Ctrl-C
            raise KeyboardInterrupt from None


def _name_options(message: str) -> str:
    """Return a library's message with Python arguments such as device='cpu' written as options, --device cpu."""
    flags = r"\b(trust_remote_code|overwrite|skip_bad|positions)=True"
    message = re.sub(flags, lambda match: f"--{match[1].replace('_', '-')}", message)
    message = message.replace("columns={'clean': 'NAME', ...} says", "--columns clean=NAME,... says")
    message = message.replace("tune_among=RECIPES", "--tune").replace("layout='", "submission='")
    message = re.sub(r"\b(recipe)=('[^']+')", r"--\1 \2", message)
    message = re.sub(r"\b(device|dtype|bos|engine|level|submission)='([\w:,]+)'", r"--\1 \2", message)
    return re.sub(r"\b(pnr|workers|resamples)=([\d.]+\d|\d)", r"--\1 \2", message)


def _usage_message(error: Any) -> str:
    """Return what is wrong with the arguments; "" if the help was printed instead."""
    message = error.format_message().replace("Value error, ", "").strip().rstrip(".")
    # The error of an option without its value has no context.
    called = next((argument for argument in sys.argv[1:] if argument in COMMANDS), "")
    command = error.ctx.command_path if error.ctx else f"edgewise {called}".rstrip()
    is_unknown = message.startswith("No such command")
    choice = re.search(r": '([^']+)' is not one of ((?:'[^']+'(?:, )?)+)$", message)
    if choice:
        advice = did_you_mean(choice[1], re.findall("'([^']+)'", choice[2])).removeprefix("; ")
        message += f" ({advice})" if advice else ""
    advice = f"choose from {', '.join(COMMANDS)}" if is_unknown else f"see `{command} --help`"
    return f"{message[0].lower()}{message[1:]}; {advice}" if message else ""


def _exit(message: str, keep_lines: bool = False) -> NoReturn:
    if message:
        text = message if keep_lines else " ".join(message.split())
        print(f"error: {visible(text)}", file=sys.stderr)
    sys.exit(2)
