"""The command line: parse, call the library, print. One file per command."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from inspect import Parameter, Signature, cleandoc, signature
from typing import Any, NoReturn, get_type_hints

import typer

from ..errors import InputError, visible
from . import (
    check,
    compare,
    convert,
    evaluate,
    export,
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
from .console import check_words, loudness, printing, show_versions, telling

app = typer.Typer(
    name="edgewise",
    help="Find circuits in language models: score the edges of the computation graph, select some, measure them.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _paragraphs(text: str | None) -> str:
    """A docstring without its line breaks but for those between paragraphs: the terminal has its own width."""
    return "\n\n".join(" ".join(part.split()) for part in cleandoc(text or "").split("\n\n"))


COMMANDS = (run, study, score, select, evaluate, view, show, compare, export, report, convert, check, models, tasks)
MODULES = {module.NAME: module for module in COMMANDS}


def _with_loudness(command: Callable[..., None]) -> Callable[..., None]:
    """A command that takes --quiet and --verbose, too."""
    more = {"quiet": options.Quiet, "verbose": options.Verbose}

    def run(quiet: bool, verbose: bool, **given: Any) -> None:
        with loudness(quiet, verbose), telling():
            show_versions()
            command(**given)

    hints = get_type_hints(command, include_extras=True)
    own = [one.replace(annotation=hints[one.name]) for one in signature(command).parameters.values()]
    added = [Parameter(name, Parameter.KEYWORD_ONLY, default=False, annotation=kind) for name, kind in more.items()]
    run.__signature__ = Signature([*own, *added])  # type: ignore[attr-defined]
    run.__annotations__ = hints | more
    return run


for name, module in MODULES.items():
    app.command(name=name, help=_paragraphs(module.command.__doc__))(_with_loudness(module.command))


def _version(value: bool) -> None:
    if value:
        from importlib.metadata import version

        print(version("edgewise"))
        raise typer.Exit


@app.callback()
def _options(
    context: typer.Context,
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Show the version and exit."
    ),
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
) -> None:
    """Find circuits in language models: score the edges of the computation graph, select some, measure them."""
    context.with_resource(loudness(quiet, verbose))


# Typer brings its own copy of click, or takes the installed one; either way, that is where this class is.
UsageError: type[Any] = typer.BadParameter.__bases__[0]


def main() -> None:
    """Run the command line; what the user can mend is one line and exit code 2."""
    with printing():
        _run()


def _run() -> None:
    try:
        check_words(sys.argv[1:])
        sys.exit(app(prog_name="edgewise", standalone_mode=False))
    except UsageError as error:
        _refuse(_usage(error))
    except InputError as error:
        _refuse(_name_options(str(error)), keep_lines=bool(error.details))
    except BrokenPipeError:
        raise
    except OSError as error:
        _refuse(f"{error.strerror or error}: {error.filename or 'a file can not be read or written'}")
    except MemoryError as error:
        _refuse(f"not enough memory: {error or 'ask for less at once'}")
    except typer.Abort:  # what typer makes of Ctrl-C
        raise KeyboardInterrupt from None


def _usage(error: Any) -> str:
    """What is wrong with the command's words; empty if the help was printed in place of it."""
    words = error.format_message().strip().rstrip(".")
    command = error.ctx.command_path if error.ctx else "edgewise"
    choices = ", ".join(MODULES) if words.startswith("No such command") else ""
    advice = f"choose from {choices}" if choices else f"see `{command} --help`"
    return f"{words[0].lower()}{words[1:]}; {advice}" if words else ""


def _name_options(message: str) -> str:
    """Return a library's message with Python arguments such as device='cpu' written as options, --device cpu."""
    message = message.replace("trust_remote_code=True", "--trust-remote-code")
    return re.sub(r"\b(device|dtype|bos)='([\w:,]+)'", r"--\1 \2", message)


def _refuse(words: str, keep_lines: bool = False) -> NoReturn:
    if words:
        shown = words if keep_lines else " ".join(words.split())
        print(f"error: {visible(shown)}", file=sys.stderr)
    sys.exit(2)
