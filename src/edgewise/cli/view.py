"""edgewise view: write a page that shows circuits."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import typer

from ..evaluate.known import read_truth
from ..io.atomic import check_file, write_text
from ..report.viewer.view import page_of, view_of
from ..results import is_result
from . import options
from .console import print_json, say
from .options import option
from .repeat import is_written
from .run_options import find_truth


def command(
    *,
    paths: list[Path] = typer.Argument(
        ..., help="Result folders, circuit files, or folders of these; all of one model."
    ),
    out_path: Path | None = option(
        None,
        "Output",
        "The page. Default: viewer.html (with --truth viewer-truth.html), inside the only result folder.",
        "--out",
    ),
    show: bool | None = option(
        None, "Output", "Open the page in a browser; by default if there is a screen.", "--open/--no-open"
    ),
    level: str | None = options.FILE_LEVEL,
    overwrite: bool = options.OVERWRITE,
    json: bool = options.JSON,
    truth: str | None = option(
        None,
        "Evaluation",
        "A known circuit, to mark true, wrong and missed edges: a circuit file, or a model such as known/ioi; auto: "
        "that of the run's own model.",
    ),
) -> None:
    """Write a page that shows circuits layer by layer: one file that needs no server and no network.

    A slider over circuit sizes is tied to the curve of faithfulness. The page compares recipes, and runs if there are
    several folders. It shows what heads attend to, and on which prompts a circuit fails.
    """
    is_own_page = out_path is None and len(paths) == 1 and is_result(paths[0])
    page_name = "viewer.html" if truth is None else "viewer-truth.html"
    target = out_path or (paths[0] / page_name if is_own_page else Path(page_name))
    truth = None if truth is None else find_truth(truth, paths)
    # The page inside a result folder is derived from it, so it may be replaced.
    sources = paths if truth is None else [*paths, Path(truth)]
    check_file(target, inputs=[path for path in sources if path.is_file()])
    view = view_of(paths, None if truth is None else read_truth(truth), level)
    page = page_of(view)
    if not is_written(target, page):
        check_file(target, overwrite or is_own_page)
        write_text(target, page)
    if json:
        n_circuits = sum(len(row.circuits) for row in view.rows)
        about = {"out": str(target), "bytes": len(page.encode()), "circuits": n_circuits}
        print_json(about | ({} if truth is None else {"truth": truth}))
    else:
        say(f"{view.title}: {target}, {len(page) / 1e6:.1f} MB; open it in a browser, or send it to somebody")
    if show is None:  # whether this is a terminal on a machine with a display
        has_display = bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
        show = (sys.platform in ("darwin", "win32") or has_display) and sys.stdout.isatty()
    if show:
        import webbrowser

        webbrowser.open(target.resolve().as_uri())
