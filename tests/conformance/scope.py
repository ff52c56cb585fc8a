"""Which comparisons with a live TorchServe a run makes: all, or a sample if the change cannot affect them.

A plugin of tests/conftest.py. It fails closed: all are made with MARPACK_COMPARE=all, if the base of the change is
unknown, if git reports an error, and if one changed file is not below UNRELATED.
"""

from __future__ import annotations

import os
import subprocess
import zlib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
# No file below these paths decides how an archive is read, loaded or served, or what is compared.
UNRELATED = (
    "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "README.md", "mkdocs.yml", ".github/", "benchmarks/", "docs/",
    "templates/", "tools/", "marpack/exporting/", "marpack/render/", "marpack/scoring/", "marpack/trust/",
    "tests/archive/oci/", "tests/docs/", "tests/exporting/", "tests/render/", "tests/scoring/", "tests/tools/",
    "tests/trust/",
)  # fmt: skip
SAMPLED = ("tests/conformance/test_live.py", "tests/serving/test_exchanges.py", "tests/inspection/lint/test_peer.py")
SAMPLE = 10  # one of so many cases
_SEED = b"1"
_LEFT_OUT = pytest.StashKey[int]()


def find_base() -> str | None:
    """Return the commit that the change is based on; None if it is unknown.

    It is MARPACK_BASE, or where this branch left main; on main itself only MARPACK_BASE can tell.
    """
    named = os.environ.get("MARPACK_BASE", "")
    head = _git("rev-parse", "HEAD")
    for ref in (named,) if named else ("origin/main", "main"):
        base = _git("merge-base", "HEAD", ref)
        if base and base != head:
            return base
    return None


def find_changes(base: str) -> list[str] | None:
    """Return the files that differ from a commit, also those that git does not track; None if git cannot tell."""
    changed = _git("diff", "--name-only", "--no-renames", base)
    untracked = _git("ls-files", "--others", "--exclude-standard")
    return None if changed is None or untracked is None else [*changed.splitlines(), *untracked.splitlines()]


def needs_all() -> bool:
    """Return whether every comparison is made."""
    base = None if os.environ.get("MARPACK_COMPARE") == "all" else find_base()
    changes = None if base is None else find_changes(base)
    return changes is None or not all(change.startswith(UNRELATED) for change in changes)


def is_sampled(case: str) -> bool:
    """Return whether a case is one of the fixed sample."""
    return zlib.crc32(_SEED + case.encode()) % SAMPLE == 0


def _git(*words: str) -> str | None:
    try:
        done = subprocess.run(["git", "-C", ROOT, *words], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the cases of SAMPLED that the change cannot affect, except for the sample."""
    out = [item for item in items if _may_be_left_out(item)]
    if not out or needs_all():
        return
    config.hook.pytest_deselected(items=out)
    left_out = set(out)
    items[:] = [item for item in items if item not in left_out]
    config.stash[_LEFT_OUT] = len(out)


def _may_be_left_out(item: pytest.Item) -> bool:
    case = getattr(item, "callspec", None)
    return (
        case is not None
        and item.get_closest_marker("conformance") is not None
        and item.nodeid.startswith(SAMPLED)
        and not is_sampled(case.id)
    )


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Tell the process that divided the tests how many this one left out."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["comparisons left out"] = session.config.stash.get(_LEFT_OUT, 0)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Note the count of a worker; each has collected the same tests."""
    count = getattr(node, "workeroutput", {}).get("comparisons left out", 0)
    if count:
        node.config.stash[_LEFT_OUT] = count


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    count = config.stash.get(_LEFT_OUT, 0)
    if count:
        terminalreporter.write_line(
            f"{count} comparisons with a live TorchServe left out, which this change cannot affect"
            " (all of them: make test-all FULL=1)"
        )
