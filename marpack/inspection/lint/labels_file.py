"""index_to_name.json as bytes → JSON, whatever the bytes are."""

import json
from collections import Counter
from typing import Any

from msgspec import Struct

from marpack.findings import Finding, Severity
from marpack.inspection.lint.codes import Code
from marpack.inspection.lint.files import Files

LABELS = "index_to_name.json"
MAX_LABELS = 16 << 20  # bytes

ENCODING = Code(
    "Labels",
    "labels-encoding",
    "The labels file is not UTF-8, or begins with a byte-order mark; the server cannot decode it.",
    "Save the file as UTF-8 without a byte-order mark.",
)
SYNTAX = Code(
    "Labels",
    "labels-syntax",
    "The labels file is not valid JSON; the worker dies.",
    "Mend the line; `python -m json.tool index_to_name.json` shows the same error.",
)
TOO_LARGE = Code(
    "Labels",
    "labels-unchecked",
    "The labels file is larger than any hand has written, and was not looked into.",
    "Check that it is the file you mean.",
)


class Labels(Struct, frozen=True, kw_only=True):
    """A labels file, parsed."""

    value: Any = None  # Any: JSON
    twice: tuple[str, ...] = ()  # keys of the object that stand more than once
    findings: tuple[Finding, ...] = ()


def read_labels(files: Files, severity: Severity) -> Labels:
    """Read the labels file as the server would.

    Args:
        files: The members, the labels among them.
        severity: How much it weighs that the server's loader fails.
    """
    data = files.read(LABELS, MAX_LABELS)
    if data is None:
        return Labels(findings=(TOO_LARGE.note("it could not be looked into", LABELS),))
    if len(data) > MAX_LABELS:
        return Labels(findings=(TOO_LARGE.note(f"it is larger than {MAX_LABELS >> 20} MiB", LABELS),))
    if data.startswith(b"\xef\xbb\xbf"):
        return Labels(findings=(ENCODING.weigh(severity, "it begins with a byte-order mark", f"{LABELS}:1"),))
    try:
        return _parse(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        return Labels(findings=(ENCODING.weigh(severity, "it is not UTF-8", f"{LABELS}:{line}"),))
    except json.JSONDecodeError as error:
        finding = SYNTAX.weigh(severity, f"it is no valid JSON: {error.msg}", f"{LABELS}:{error.lineno}")
        return Labels(findings=(finding,))
    except (RecursionError, ValueError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)[:100]
        return Labels(findings=(SYNTAX.weigh(severity, reason, LABELS),))


def _parse(text: str) -> Labels:
    twice: list[str] = []

    def pairs(found: list[tuple[str, Any]]) -> dict[str, Any]:  # Any: JSON
        twice[:] = [key for key, times in Counter(key for key, _ in found).items() if times > 1]
        return dict(found)

    value = json.loads(text, object_pairs_hook=pairs)
    return Labels(value=value, twice=tuple(twice))
