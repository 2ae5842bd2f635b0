"""What `mkdocs build` makes of the code: the command line's page, the tutorials' pages, docstrings as Markdown.

mkdocs.yml names this file twice: as a hook of mkdocs, and as an extension of griffe, which reads the docstrings.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

try:
    import griffe
    from mkdocs.structure.files import File
except ImportError:  # the tests look at the pages without mkdocs
    griffe = File = None  # type: ignore[assignment]

TUTORIALS = ("first-circuit", "your-own")
# A line of a docstring that explains a name: the name, two spaces or more, and words; the rest is indented as far.
EXPLAINED = re.compile(r"(\w[\w.]*(?:, \w[\w.]*)*)  +(\S.*)")


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that are made here."""
    pages = {"cli.md": command_line()}
    for name in TUTORIALS:
        path = Path(config.docs_dir) / "tutorials" / f"{name}.ipynb"
        pages[f"tutorials/{name}.md"] = notebook(json.loads(path.read_text(encoding="utf-8")), path.name)
    for place, text in pages.items():
        files.append(File.generated(config, place, content=text))
    return files


def command_line() -> str:
    """Every command with its arguments and options, as its own help has them."""
    import typer

    from edgewise.cli import app

    group = typer.main.get_command(app)
    lines = ["# Command line", "", group.help, "", "`edgewise COMMAND --help` says the same in the terminal."]
    for name, command in group.commands.items():  # type: ignore[attr-defined]
        lines += ["", f"## edgewise {name}", "", _text(command.help)]
        for kind in ("argument", "option"):
            params = [one for one in command.params if one.param_type_name == kind and not one.hidden]
            if params:
                lines += ["", f"| {kind} | what it says | default |", "|---|---|---|", *map(_row, params)]
    return "\n".join(lines) + "\n"


def _row(param: Any) -> str:
    names = [param.name.upper()] if param.param_type_name == "argument" else [*param.opts, *param.secondary_opts]
    default = "required" if param.required else "" if param.default in (None, False, ()) else f"`{param.default}`"
    return f"| {' '.join(f'`{name}`' for name in names)} | {_text(param.help)} | {default} |"


def _text(words: str | None) -> str:
    """Help as Markdown shows it: nothing in it is a mark but the backticks."""
    parts = re.split("(`[^`]*`)", words or "")
    marked = (part if part.startswith("`") else re.sub(r"([*_<>|\[\]])", r"\\\1", part) for part in parts)
    return "".join(marked).replace("\\<", "&lt;").replace("\\>", "&gt;")


def notebook(held: dict[str, Any], name: str) -> str:
    """A notebook as a page: its text, its code, and what the code printed."""
    lines: list[str] = []
    for cell in held["cells"]:
        source = "".join(cell["source"])
        lines += [source, ""] if cell["cell_type"] == "markdown" else ["```python", source, "```", ""]
        for output in cell.get("outputs", ()):
            text = "".join(output.get("text") or output["data"]["text/plain"])
            lines += ["```text", text.rstrip("\n"), "```", ""]
    lines += [f"[The notebook]({name}), to run it yourself."]
    return "\n".join(lines) + "\n"


def explained(docstring: str) -> str:
    """A docstring whose aligned names, each with what it is, are a list in Markdown."""
    lines: list[str] = []
    indent = 0
    for line in docstring.split("\n"):
        found = EXPLAINED.fullmatch(line)
        if found:
            indent = found.start(2)
            lines += [""] * (bool(lines) and not lines[-1].startswith(("- ", "    "))) + [
                f"- {', '.join(f'`{name}`' for name in found[1].split(', '))}: {found[2]}"
            ]
        elif indent and line.startswith(" " * indent):
            lines.append(f"    {line.strip()}")
        else:
            indent = 0
            lines.append(line)
    return "\n".join(lines)


if griffe is not None:

    class Explained(griffe.Extension):
        """Docstrings as `explained` has them."""

        def on_object(self, *, obj: Any, **more: Any) -> None:
            """Of every module, class, function and attribute."""
            if obj.docstring is not None:
                obj.docstring.value = explained(obj.docstring.value)
