"""Which comparisons with a live TorchServe a run makes: all of them, or a sample.

A plugin of tests/conftest.py. Each run compares marpack with the recorded responses. A comparison with the live server
adds to this only whether a recording is true, and a recording depends on nothing but the files in this folder. COMPARED
holds their digest from the last time when all comparisons were made and passed. As long as it is unchanged, a sample is
enough. All comparisons are made with MARPACK_COMPARE=all, if one of the files has changed, and if there is no digest.

`python -m conformance.scope` writes the digest; `make compare` does so after all comparisons have passed.
"""

from __future__ import annotations

import hashlib
import os
import zlib
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parent
COMPARED = "compared.sha256"
SAMPLED = ("tests/conformance/test_live.py", "tests/serving/test_exchanges.py")
SAMPLE = 10  # one of so many cases
_SEED = b"1"
_LEFT_OUT = pytest.StashKey[int]()


def digest(folder: Path = FOLDER) -> str:
    """Return the SHA-256 of the probes, the recordings, and the code that asks a server; tests are not among them."""
    every = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts and not path.name.startswith(("test_", COMPARED)):
            content = hashlib.sha256(path.read_bytes()).hexdigest()
            every.update(f"{content} {path.relative_to(folder).as_posix()}\n".encode())
    return every.hexdigest()


def needs_all(folder: Path = FOLDER) -> bool:
    """Return whether every comparison is made."""
    compared = folder / COMPARED
    known = compared.is_file() and compared.read_text().strip() == digest(folder)
    return os.environ.get("MARPACK_COMPARE") == "all" or not known


def is_decided_by_recording(probe: Any) -> bool:
    """Return whether the recorded comparison of a probe says all that a live one can say.

    Not so if it was not recorded, if numbers may differ a little between machines, and if its archive is an example
    that marpack builds.
    """
    return not (probe.live_only or probe.numeric or probe.archive)


def is_sampled(case: str) -> bool:
    """Return whether a case is one of the fixed sample."""
    return zlib.crc32(_SEED + case.encode()) % SAMPLE == 0


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the cases of SAMPLED that are not part of the sample, unless all are needed."""
    out = [item for item in items if _may_be_left_out(item)]
    if not out or needs_all():
        return
    config.hook.pytest_deselected(items=out)
    left_out = set(out)
    items[:] = [item for item in items if item not in left_out]
    config.stash[_LEFT_OUT] = len(out)


def _may_be_left_out(item: pytest.Item) -> bool:
    case = getattr(item, "callspec", None)
    if case is None or item.get_closest_marker("conformance") is None or not item.nodeid.startswith(SAMPLED):
        return False
    probe = case.params.get("probe")  # the cases of test_exchanges.py have none: all of these are recorded
    return (probe is None or is_decided_by_recording(probe)) and not is_sampled(case.id)


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
            f"{count} comparisons with a live TorchServe left out, whose recordings are unchanged since all were"
            " compared (all of them: make compare)"
        )


if __name__ == "__main__":
    (FOLDER / COMPARED).write_text(f"{digest()}\n")
