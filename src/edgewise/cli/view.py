"""edgewise view: circuits as a page to look at."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from . import options
from .console import print_json, say

NAME = "view"


def command(
    paths: Annotated[
        list[Path], typer.Argument(help="Result folders, files of circuits, or folders of them; of one model.")
    ],
    out_path: Annotated[
        Path | None,
        typer.Option("--out", help="The page; default viewer.html, in the result folder if there is only that."),
    ] = None,
    show: Annotated[
        bool | None, typer.Option("--open/--no-open", help="Open it in a browser; by default where there is a screen.")
    ] = None,
    overwrite: options.Overwrite = False,
    json: options.Json = False,
) -> None:
    """Make a page that shows circuits, layer by layer: one file that needs no server and no network.

    Its slider over circuit sizes is tied to the curve of faithfulness; it compares methods, and with several folders
    runs; it shows where heads look, and on which prompts a circuit fails. Send it to anybody.
    """
    from ..io.atomic import check_file, write_text
    from ..report.viewer.page import page_of
    from ..report.viewer.view import view_of
    from ..results import is_result

    own = len(paths) == 1 and is_result(paths[0])
    target = out_path or (paths[0] / "viewer.html" if own else Path("viewer.html"))
    # The page of a result folder is made from it, so it can be made again.
    check_file(target, overwrite or (own and out_path is None), [path for path in paths if path.is_file()])
    view = view_of(paths)
    page = page_of(view)
    write_text(target, page)
    if json:
        print_json(
            {"out": str(target), "bytes": len(page.encode()), "circuits": sum(len(r.circuits) for r in view.rows)}
        )
    else:
        say(f"{view.title}: {target}, {len(page) / 1e6:.1f} MB; open it in a browser, or send it to somebody")
    if _has_screen() if show is None else show:
        import webbrowser

        webbrowser.open(target.resolve().as_uri())


def _has_screen() -> bool:
    """Whether somebody sits in front of this machine."""
    desktop = sys.platform in ("darwin", "win32") or bool(
        os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    )
    return desktop and sys.stdout.isatty()
