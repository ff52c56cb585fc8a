"""docs/findings.md: every finding code with its severity, its explanation and its messages."""

import re

import yaml

from marpack import finding_codes
from marpack.findings import Code
from tools.reference.page import NOTE, ROOT, escaped, page

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
    """Return the rows of the table by their codes: the one with the explanation first."""
    found: dict[str, list[Code]] = {}
    for value in vars(finding_codes).values():
        if isinstance(value, Code):
            found.setdefault(value.name, []).append(value)
    return found


def findings() -> str:
    """Return docs/findings.md."""
    parts = [
        "# Findings",
        (
            "marpack reports problems as findings. Each finding has a stable code, a severity, a place, a message and a"
            " hint. The static checks of `marpack build` and `marpack inspect` read an archive without executing,"
            " importing or unpickling anything of it; the checks of `marpack check` also run the model."
        ),
        (
            "- **error**: the server certainly fails: it refuses the model, a worker fails, or every request is a 503."
            " Errors stop a build.\n"
            "- **warning**: something is probably wrong. Warnings stop a build with `--strict`.\n"
            "- **note**: information that may be intended."
        ),
        (
            "The severity of a code can vary: a state_dict without a model file is an error where BaseHandler loads the"
            " model, and a note where the handler's own `initialize` does. In the messages below, … stands for values."
        ),
        NOTE,
    ]
    explanations = yaml.safe_load((ROOT / "tools/reference/findings.yaml").read_text())
    headings = {code: heading for heading, code in CHAPTERS.items()}
    for name, codes in rows().items():
        if name in headings:
            parts.append(f"## {headings[name]}")
        severities = " or ".join(dict.fromkeys(code.severity.value for code in codes))
        fix = f" *Fix:* {codes[0].hint}" if codes[0].hint else ""
        parts += [f"### {name}", explanations[name], f"*Severity:* {severities}.{fix}"]
        messages = dict.fromkeys(re.sub(r"\{\w+[^}]*\}", "…", code.message) for code in codes)
        parts.append("\n".join(f"- {escaped(message)}" for message in messages if message.strip("…")))
    return page(*parts)
