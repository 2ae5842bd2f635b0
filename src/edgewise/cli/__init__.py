"""The command line: parse, call the library, print. One file per command."""

from __future__ import annotations

import sys
from inspect import cleandoc
from typing import Any, NoReturn

import typer

from ..errors import InputError, visible
from . import check, compare, convert, evaluate, export, models, report, run, score, select, show, study, tasks, view
from .console import check_words, printing

app = typer.Typer(
    name="edgewise",
    help="Find circuits in language models: score the edges of the computation graph, select some, measure them.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _paragraphs(text: str | None) -> str:
    """A docstring without its line breaks but for those between paragraphs: the terminal has its own width."""
    return "\n\n".join(" ".join(part.split()) for part in cleandoc(text or "").split("\n\n"))


COMMANDS = (run, study, score, select, evaluate, view, show, compare, export, report, convert, check, models, tasks)
MODULES = {module.NAME: module for module in COMMANDS}
for name, module in MODULES.items():
    app.command(name=name, help=_paragraphs(module.command.__doc__))(module.command)


def _version(value: bool) -> None:
    if value:
        from importlib.metadata import version

        print(version("edgewise"))
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Show the version and exit."
    ),
) -> None:
    """Find circuits in language models: score the edges of the computation graph, select some, measure them."""


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
        _refuse(str(error), keep_lines=bool(error.details))
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


def _refuse(words: str, keep_lines: bool = False) -> NoReturn:
    if words:
        shown = words if keep_lines else " ".join(words.split())
        print(f"error: {visible(shown)}", file=sys.stderr)
    sys.exit(2)
