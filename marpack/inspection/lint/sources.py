"""Python files without a syntax tree, as findings."""

from marpack.findings import Finding, Severity
from marpack.inspection.lint.codes import Code
from marpack.inspection.lint.source import Broken

SYNTAX = Code(
    "Members",
    "source-syntax",
    "A Python file that the server imports cannot be parsed; the worker dies.",
    "Mend the line; `python -m py_compile FILE` shows the same error.",
)
NOT_LOOKED_INTO = Code(
    "Members",
    "source-unchecked",
    "A Python file is too large, too deeply nested or too oddly encoded to be looked into.",
    "Check it by running it: marpack run.",
)


def broken(member: str, trouble: Broken, severity: Severity = Severity.ERROR) -> Finding:
    """Return the finding for a Python file without a syntax tree."""
    where = f"{member}:{trouble.line}" if trouble.line else member
    if not trouble.certain:
        return NOT_LOOKED_INTO.note(trouble.reason, where)
    return SYNTAX.weigh(severity, f"it is no valid Python: {trouble.reason}", where)
