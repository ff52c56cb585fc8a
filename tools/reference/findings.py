"""docs/findings.md: when each finding is reported, why, what to do, and an example."""

import re
from functools import cache
from typing import Any

import yaml

from marpack import finding_codes
from marpack.findings import Code
from tools.reference.page import NOTE, ROOT, escaped, page

# A command with its options, or one option with its value.
CODE = re.compile(
    r"(?<![\w`])(?:marpack [a-z]+|torchserve|chmod|pip install|jupyter nbconvert|(?=--[a-z]))"
    r"(?: ?--?[a-z][a-z-]*| (?:[A-Z]{2,}|[A-Z]\.[A-Z]|\d+)\b…?| [a-z]+[./]\w+"
    r"| (?:cpu|cuda|on|isolated|alike|docker|script)\b)*"
)
# Heading → the first code below it.
CHAPTERS = {
    "Content of an archive": "damaged-member",
    "Manifest": "model-name",
    "Members": "member-unreadable",
    "Handler": "handler-missing",
    "Model file": "model-file-missing",
    "Imports": "import-relative",
    "Names": "undefined-name",
    "Requirements": "requirements-missing",
    "Weights": "weights-missing",
    "Labels": "labels-encoding",
    "Model config": "config-missing",
    "Checks": "does-not-load",
    "Build and init": "unknown-key",
    "Run": "other-device",
    "Sign and verify": "readable-key",
    "Pickles": "untrusted-pickle",
    "Export": "export-needs-trust",
}


def rows() -> dict[str, list[Code]]:
    """Return the rows of the table by their codes, the main row first."""
    found: dict[str, list[Code]] = {}
    for value in vars(finding_codes).values():
        if isinstance(value, Code):
            found.setdefault(value.name, []).append(value)
    return found


@cache
def explanations(file: str) -> dict[str, dict[str, Any]]:  # Any: text, and the values of an example
    """Return the explanations of codes from a file in this folder."""
    found: dict[str, dict[str, Any]] = yaml.safe_load((ROOT / "tools" / "reference" / file).read_text())
    return found


def findings() -> str:
    """Return docs/findings.md."""
    parts = [
        "# Findings",
        (
            "marpack reports problems as findings: a severity, a place, a message, a stable code and a hint. This page"
            " lists all codes. The checks of `marpack build` and `marpack inspect` never run the archive; those of"
            " `marpack check` do."
        ),
        (
            "- **error**: the server certainly fails. Errors stop a build.\n"
            "- **warning**: something is probably wrong. Warnings stop a build with `--strict`.\n"
            "- **note**: information that may be intended."
        ),
        "The severity can differ from the example: it depends on whether the handler uses the part with the problem.",
        NOTE,
    ]
    headings, explained = {code: heading for heading, code in CHAPTERS.items()}, explanations("findings.yaml")
    for name, codes in rows().items():
        if name in headings:
            parts.append(f"## {headings[name]}")
        parts.append(f"### {name}")
        parts += section(explained[name], codes[0].hint, example(codes[0], explained[name]))
    return page(*parts)


def example(main: Code, explanation: dict[str, Any]) -> str:  # Any: see `explanations`
    """Return an example of a code as marpack prints it, without the code."""
    row: Code = getattr(finding_codes, explanation["row"]) if "row" in explanation else main
    finding = row.at(explanation.get("at"), **explanation.get("example", {}))
    place = f"{finding.where}: " if finding.where else ""
    return f"{finding.severity} {place}{finding.message}"


def section(explanation: dict[str, Any], fix: str, line: str) -> list[str]:  # Any: see `explanations`
    """Return the four paragraphs about a code."""
    start, end = ("`` ", " ``") if "`" in line else "``"
    return [
        f"*Fails if* {explanation['fails if']}.",
        f"*Causes:* {explanation['causes']}",
        f"*Fix:* {escaped(with_code(fix))}",
        f"*Example:* {start}{line}{end}",
    ]


def with_code(text: str) -> str:
    """Return a hint with its commands and options as code."""
    return text if "`" in text else CODE.sub(r"`\g<0>`", text)
