"""One line at the end of a run for each optional tool that was missing, with the number of tests left out for it.

A plugin of tests/conftest.py. A skipped test whose reason names no tool gets a line with its reason.
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
    (r"docker-registry", "docker-registry", "tests with a real registry"),
    (r"notebook", "Jupyter kernel", "runs of the notebook"),
    (r"MARPACK_KSERVE", "KServe in MARPACK_KSERVE", "tests with KServe's client"),
    (r"C\+\+ compiler", "C++ compiler", "tests of AOTInductor"),
    (r"could not import '([\w.]+)'", r"\1", "tests that import it"),
    (r"^(\S+) is not installed$", r"\1", "tests that run it"),
    (r"needs? (marpack\[\w+\])", r"\1", "tests of that extra"),
    (r"^(botocore)", r"\1", "tests of its parameters"),
    (r"\bno (bash)\b", r"\1", "tests in that shell"),
)


def reason_of(report: pytest.TestReport | pytest.CollectReport) -> str:
    """Return the reason that a skipped test or module gave."""
    _, _, reason = report.longrepr  # of a skip: path, line, reason
    return reason.removeprefix("Skipped: ")


def name_tool(reason: str) -> tuple[str, str] | None:
    """Return the missing tool that a skip's reason names, and a noun for the tests; None if it names no tool."""
    for pattern, tool, tests in _TOOLS:
        if match := re.search(pattern, reason):
            return match.expand(tool), tests
    return None


def summarize(reasons: list[str]) -> Iterator[str]:
    """Yield a line for each missing tool, then one for each other reason."""
    tools: Counter[tuple[str, str]] = Counter()
    others: Counter[str] = Counter()
    for reason in reasons:
        found = name_tool(reason)
        if found is None:
            others[reason] += 1
        else:
            tools[found] += 1
    yield from (f"no {tool}: {count} {tests} left out" for (tool, tests), count in sorted(tools.items()))
    yield from (f"left out: {count} of {reason!r}" for reason, count in sorted(others.items()))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> Iterator[None]:
    yield  # the lines come last, after the short summary
    skipped = {report.nodeid: report for report in terminalreporter.stats.get("skipped", ())}  # modules: by each worker
    for line in summarize([reason_of(report) for report in skipped.values()]):
        terminalreporter.write_line(line)
