"""docs/errors.md: when each error is raised, why, what to do, and an example."""

import ast
import importlib
from functools import cache
from operator import attrgetter

from marpack.errors import ExitCode, MarpackError
from tools.reference.findings import explanations, section
from tools.reference.page import NOTE, ROOT, page

EXIT_CODES = {
    ExitCode.SHORT: "a check, an input or a finding failed",
    ExitCode.USAGE: "the command line or the project file is wrong",
    ExitCode.ARCHIVE: "the archive is unreadable or unsafe",
    ExitCode.HANDLER: "the handler could not be loaded or initialized",
    ExitCode.INTERRUPTED: "interrupted",
}


def errors() -> str:
    """Return docs/errors.md."""
    parts = [
        "# Errors",
        (
            "An error ends a command. marpack prints its message, place and hint on stderr. With `--json` or `--jsonl`,"
            " it is also an object on stdout (`Failure` in each of [schemas/](schemas/inspect.json)); its `code` is one"
            " of these headings, or a more specific one. Problems that do not end a command are"
            " [findings](findings.md); without one, the exit code is 0."
        ),
        NOTE,
    ]
    explained = explanations("errors.yaml")
    for code, meaning in EXIT_CODES.items():
        parts.append(f"## Exit code {code.value}: {meaning}")
        for kind in sorted(
            (kind for kind in subclasses(MarpackError) if kind.exit_code is code), key=attrgetter("code")
        ):
            explanation = explained[kind.code]
            parts.append(f"### {kind.code}")
            parts += section(explanation, kind.fix or "Follow the hint.", f"error: {explanation['example']}")
    return page(*parts)


@cache
def subclasses(kind: type[MarpackError]) -> set[type[MarpackError]]:
    """Return every class of the tree below one, wherever it is defined."""
    for path in sorted((ROOT / "marpack").rglob("*.py")):
        tree = ast.parse(path.read_text())
        if any(isinstance(node, ast.ClassDef) and node.name.endswith("Error") for node in tree.body):
            importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
    return below(kind)


def below(kind: type[MarpackError]) -> set[type[MarpackError]]:
    found = set(kind.__subclasses__())
    return found | {inner for each in found for inner in below(each)}
