"""Generate pages for `mkdocs build`: the command line, the tutorials, and docstrings as Markdown.

mkdocs.yml uses this file twice: as a hook of mkdocs, and as an extension of griffe, which reads the docstrings.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

try:
    import griffe
    from mkdocs.structure.files import File
except ImportError:  # the tests run without mkdocs
    griffe = File = None  # type: ignore[assignment]

TUTORIALS = ("first-circuit", "your-own")
# A docstring line that describes a name: the name, two or more spaces, and text. Continuation lines are indented.
NAME_LINE = re.compile(r"(\w[\w.]*(?:, \w[\w.]*)*)  +(\S.*)")


def on_files(files: Any, config: Any) -> Any:
    """Add the generated pages."""
    pages = {"cli.md": command_line()}
    for name in TUTORIALS:
        path = Path(config.docs_dir) / "tutorials" / f"{name}.ipynb"
        pages[f"tutorials/{name}.md"] = notebook(json.loads(path.read_text(encoding="utf-8")), path.name)
    for place, text in pages.items():
        files.append(File.generated(config, place, content=text))
    return files


def command_line() -> str:
    """Return the page with every command, its arguments and its options, from their help texts."""
    import typer

    from edgewise.cli import COMMANDS, app, load_command

    group = typer.main.get_command(app)
    lines = ["# Command line", "", group.help, "", "`edgewise COMMAND --help` shows the same in the terminal."]
    for name in COMMANDS:
        command = load_command(name)
        lines += ["", f"## edgewise {name}", "", _text(command.help)]
        for kind in ("argument", "option"):
            params = [param for param in command.params if param.param_type_name == kind and not param.hidden]
            if params:
                lines += ["", f"| {kind} | description | default |", "|---|---|---|", *map(_row, params)]
    return "\n".join(lines) + "\n"


def _row(param: Any) -> str:
    names = [param.name.upper()] if param.param_type_name == "argument" else [*param.opts, *param.secondary_opts]
    default = "required" if param.required else "" if param.default in (None, False, ()) else f"`{param.default}`"
    return f"| {' '.join(f'`{name}`' for name in names)} | {_text(param.help)} | {default} |"


def _text(help_text: str | None) -> str:
    """Escape a help text for Markdown; only backticks keep their meaning."""
    parts = re.split("(`[^`]*`)", help_text or "")
    marked = (part if part.startswith("`") else re.sub(r"([*_<>|\[\]])", r"\\\1", part) for part in parts)
    return "".join(marked).replace("\\<", "&lt;").replace("\\>", "&gt;")


def notebook(content: dict[str, Any], name: str) -> str:
    """Return a notebook as a Markdown page: text, code and outputs."""
    lines: list[str] = []
    for cell in content["cells"]:
        source = "".join(cell["source"])
        lines += [source, ""] if cell["cell_type"] == "markdown" else ["```python", source, "```", ""]
        for output in cell.get("outputs", ()):
            text = "".join(output.get("text") or output["data"]["text/plain"])
            lines += ["```text", text.rstrip("\n"), "```", ""]
    lines += [f"Download [the notebook]({name}) to run it yourself."]
    return "\n".join(lines) + "\n"


def format_name_lists(docstring: str) -> str:
    """Return the docstring with its aligned name-description lines as a Markdown list."""
    lines: list[str] = []
    indent = 0
    for line in docstring.split("\n"):
        match = NAME_LINE.fullmatch(line)
        if match:
            indent = match.start(2)
            lines += [""] * (bool(lines) and not lines[-1].startswith(("- ", "    "))) + [
                f"- {', '.join(f'`{name}`' for name in match[1].split(', '))}: {match[2]}"
            ]
        elif indent and line.startswith(" " * indent):
            lines.append(f"    {line.strip()}")
        else:
            indent = 0
            lines.append(line)
    return "\n".join(lines)


if griffe is not None:

    class FormatNameLists(griffe.Extension):
        """Apply `format_name_lists` to every docstring."""

        def on_object(self, *, obj: Any, **more: Any) -> None:
            """Change the docstring of a module, class, function or attribute."""
            if obj.docstring is not None:
                obj.docstring.value = format_name_lists(obj.docstring.value)
