"""The command line: parse options, call the library, print. One file per command."""

from __future__ import annotations

import re
import sys
from inspect import Parameter, cleandoc
from types import ModuleType
from typing import Any, NoReturn

import typer

from ..errors import InputError, visible
from . import (
    check,
    compare,
    convert,
    evaluate,
    export,
    learn,
    models,
    options,
    report,
    run,
    score,
    select,
    show,
    study,
    tasks,
    view,
)
from .console import check_arguments, flush_output, print_log, show_versions, verbosity

COMMANDS = (
    run, study, score, learn, select, evaluate, view, show, compare, export, report, convert, check, models, tasks,
)  # fmt: skip
MODULES = {module.__name__.rpartition(".")[2]: module for module in COMMANDS}
# Option names of earlier versions, which still work but aren't in --help.
SCORE_ALIASES = {"method": "scorer", "rate": "learning-rate", "bootstrap": "resamples"}
SHOW_ALIASES = {"method": "recipe", "metric": "measure"}
ALIASES = {
    "run": SCORE_ALIASES,
    "score": SCORE_ALIASES,
    "learn": {"goal": "measure", "rate": "learning-rate"},
    "study": SCORE_ALIASES | {"tau-grid": "resamples-grid"},
    "select": {"bootstrap": "resamples"},
    "show": SHOW_ALIASES,
    "export": SHOW_ALIASES,
    "convert": {"method": "recipe", "benchmark": "measure"},
}
# typer has its own copy of click, or uses the installed one. This class is in either.
UsageError: type[Any] = typer.BadParameter.__bases__[0]

app = typer.Typer(
    name="edgewise",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _add_command(name: str, module: ModuleType) -> None:
    """Add a command with its option groups expanded, and with --quiet and --verbose."""
    parameters, call = options.expand(module.command)

    def command(quiet: bool, verbose: bool, **values: Any) -> None:
        with verbosity(quiet, verbose), print_log():
            show_versions()
            call(values)

    parameters += [
        Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=bool)
        for name, default in (("quiet", options.QUIET), ("verbose", options.VERBOSE))
    ]
    # Line breaks within a paragraph are removed, because the terminal has its own width.
    paragraphs = (" ".join(part.split()) for part in cleandoc(module.command.__doc__ or "").split("\n\n"))
    aliases = ALIASES.get(name, {})
    settings = {"token_normalize_func": lambda token: aliases.get(token, token)}
    register = app.command(name=name, help="\n\n".join(paragraphs), context_settings=settings)
    register(options.with_parameters(parameters, command))


for _name, _module in MODULES.items():
    _add_command(_name, _module)


def _print_version(value: bool) -> None:
    if value:
        from ..version import __version__

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
    message = message.replace("trust_remote_code=True", "--trust-remote-code")
    return re.sub(r"\b(device|dtype|bos)='([\w:,]+)'", r"--\1 \2", message)


def _usage_message(error: Any) -> str:
    """Return what is wrong with the arguments; "" if the help was printed instead."""
    message = error.format_message().replace("Value error, ", "").strip().rstrip(".")
    command = error.ctx.command_path if error.ctx else "edgewise"
    is_unknown = message.startswith("No such command")
    advice = f"choose from {', '.join(MODULES)}" if is_unknown else f"see `{command} --help`"
    return f"{message[0].lower()}{message[1:]}; {advice}" if message else ""


def _exit(message: str, keep_lines: bool = False) -> NoReturn:
    if message:
        text = message if keep_lines else " ".join(message.split())
        print(f"error: {visible(text)}", file=sys.stderr)
    sys.exit(2)
