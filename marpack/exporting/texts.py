"""The texts of an export, made from templates/export; whatever comes out of an archive is quoted where it lands."""

import json
import shlex
from pathlib import Path
from typing import Any

import yaml

from marpack.errors import printable
from marpack.project.scaffold.template import templates

_WIDE = 1 << 20  # columns: no line is ever folded


def render(name: str, /, **values: Any) -> bytes:  # Any: what the templates ask for
    """Return the text that a template below `export/` makes of some values; one that is missing is an error.

    Its filters say in which language a value lands: `yaml`, `python`, `shell`, `json`, `code` (of Markdown).
    """
    import jinja2  # noqa: PLC0415 - no other command needs it

    environment = jinja2.Environment(  # noqa: S701 - never HTML: each value passes the filter of its language
        loader=jinja2.FileSystemLoader(templates() / "export"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "yaml": as_yaml, "python": repr, "shell": shlex.quote, "json": json.dumps, "code": as_code
    }  # fmt: skip
    return f"{environment.get_template(name).render(values).strip()}\n".encode("utf-8", "backslashreplace")


def as_yaml(value: Any) -> str:  # Any: texts, numbers, lists and mappings of them
    """Return a value as YAML on one line, a text always in double quotes."""
    if isinstance(value, str):
        return yaml.safe_dump(value, default_style='"', allow_unicode=False, width=_WIDE).strip()
    return json.dumps(value)


def as_code(text: str) -> str:
    """Return a text as inline code of Markdown: on one line, and with backquotes enough around it."""
    line = printable(str(text), stand_in=" ") or " "
    fence = "`" * (max(map(len, _runs_of_backquotes(line)), default=0) + 1)
    return f"{fence} {line} {fence}" if "`" in line else f"{fence}{line}{fence}"


def _runs_of_backquotes(line: str) -> list[str]:
    return [run for run in "".join(letter if letter == "`" else " " for letter in line).split() if run]


def template_file(name: str) -> Path:
    """Return the path of a file below `export/` that goes into a folder as it is."""
    return templates() / "export" / name
