"""Print one line for each optional tool that is missing, with the number of tests left out; a plugin of conftest.py.

A skipped test whose reason names no tool gets a line with its reason.
"""

import re
import shutil
from collections import Counter
from collections.abc import Iterator

import pytest

_PEER = "Java" if shutil.which("java") is None else "TorchServe 0.12 in MARPACK_PEER"
# The reason of a skip → the tool that is missing, and the tests that it leaves out.
_TOOLS = (
    (r"TorchServe|MARPACK_PEER|Java", _PEER, "comparisons with a real TorchServe"),
    (r"Chromium", "Chromium", "tests of pages in a browser"),
    (r"notebook", "Jupyter kernel", "runs of the notebook"),
    (r"C\+\+ compiler", "C++ compiler", "tests of AOTInductor"),
    (r"could not import '([\w.]+)'", r"\1", "tests that import it"),
    (r"^(\S+) is not installed$", r"\1", "tests that run it"),
    (r"needs? (marpack\[\w+\])", r"\1", "tests of that extra"),
    (r"^(botocore)", r"\1", "tests of its parameters"),
    (r"\bno (bash)\b", r"\1", "tests in that shell"),
)


def name_tool(reason: str) -> str:
    """Return the line for a skip's reason, with {} for the number of tests."""
    for pattern, tool, tests in _TOOLS:
        if match := re.search(pattern, reason):
            return f"no {match.expand(tool)}: {{}} {tests} left out"
    return f"left out: {{}} of {reason!r}"


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> Iterator[None]:
    yield  # the lines come last, after the short summary
    skipped = {report.nodeid: report for report in terminalreporter.stats.get("skipped", ())}  # modules: by each worker
    # The reason of a skip is in its place: path, line, reason.
    reasons = [report.longrepr[2].removeprefix("Skipped: ") for report in skipped.values()]
    for line, count in sorted(Counter(map(name_tool, reasons)).items()):
        terminalreporter.write_line(line.replace("{}", str(count), 1))
