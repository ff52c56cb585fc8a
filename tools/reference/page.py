"""A page of Markdown, put together from its parts."""

import textwrap
from pathlib import Path

ROOT = Path(__file__).parents[2]
NOTE = "This page is printed from the code by `python -m tools.reference`; do not edit it by hand."
_AS_IT_IS = ("#", "|", "```", "- ")


def page(*parts: str) -> str:
    """Return a page: its paragraphs are wrapped, what has lines of its own stays as it is."""
    wrapped = (part if part.startswith(_AS_IT_IS) or "\n" in part else textwrap.fill(part, 120) for part in parts)
    return "\n\n".join(part for part in wrapped if part) + "\n"


def escaped(text: str) -> str:
    """Return a text as Markdown shows it; code between backticks stays as it is."""
    plain, tick, rest = text.partition("`")
    code, end, rest = rest.partition("`") if tick else ("", "", "")
    for mark in "*_[]":
        plain = plain.replace(mark, f"\\{mark}")
    plain = plain.replace("<", "&lt;").replace("|", "&#124;")
    return f"{plain}{tick}{code}{end}{escaped(rest) if rest else ''}"
