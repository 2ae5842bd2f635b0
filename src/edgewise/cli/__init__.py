"""The command line: parse, call the library, print. One file per command."""

from __future__ import annotations

import sys

import typer

from ..errors import InputError
from . import check, convert, evaluate, models, report, run, score, select, study, tasks

app = typer.Typer(
    name="edgewise",
    help="Find circuits in language models: score the edges of the computation graph, select some, measure them.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for module in (run, study, score, select, evaluate, report, convert, check, models, tasks):
    app.command(name=module.NAME)(module.command)


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


def main() -> None:
    """Run the command line; what the user can mend is one line and exit code 2."""
    try:
        app()
    except InputError as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(2)
    except OSError as error:
        print(
            f"error: {error.strerror or error}: {error.filename or 'a file can not be read or written'}",
            file=sys.stderr,
        )
        sys.exit(2)
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        sys.exit(130)
