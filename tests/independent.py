"""Leave out slow tests of a part of the repository that is unchanged since they last passed; a plugin of conftest.py.

Whether a recording of TorchServe is true, for example, depends on the recordings and on the code that asks the server,
and not on marpack. The marker `independent(PART)` is on tests of such a part. VERIFIED holds the digest of each part
from the last time when all of its tests passed. As long as the digest fits, only a sample of one in ten cases runs.
With MARPACK_COMPARE=all, or if the digest does not fit or is missing, all of them run.

Two parts are code of marpack: "image" is an exported image, a new installation that runs `marpack serve`; what runs on
Ray ("ray") uses the rest only as `run` and `score` do. `make independent` runs all of these tests, and then
`python -m independent` in tests/, which writes the digests.
"""

import hashlib
import os
import zlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
VERIFIED = Path("tests/verified.txt")
# Part → the files that it consists of, and those that decide which versions are installed.
PARTS = {
    "examples": ("examples/**/*", "constraints.txt"),
    "image": (
        *("marpack/exporting/**/*.py", "marpack/serving/**/*.py", "marpack/cli/serve*.py", "templates/**/*"),
        *("tests/exporting/*.py", "pyproject.toml", "constraints.txt"),
    ),
    "payloads": ("tests/inspection/*.py", "tests/lazy.py", "constraints.txt"),
    "ray": (
        *("marpack/scoring/**/*.py", "marpack/exporting/**/*.py", "marpack/runner/**/*.py", "templates/**/*"),
        *("tests/scoring/*.py", "tests/exporting/*.py", "constraints.txt"),
    ),
    "recordings": ("tests/conformance/**/*", "examples/**/*", "constraints.txt"),
    "verdicts": ("tests/inspection/lint/*.py", "tests/inspection/lint/*.json", "tests/conformance/make_peer.py"),
}
SAMPLE = 10  # one of so many cases
_SEED = b"1"
_LEFT_OUT = pytest.StashKey[int]()


def digest(part: str, root: Path = ROOT) -> str:
    """Return the SHA-256 of a part's files, without built archives and without most tests."""
    every = hashlib.sha256()
    for path in sorted({path for pattern in PARTS[part] for path in root.glob(pattern)}):
        is_other_test = path.match("test_*.py") and not path.match("test_*ray*.py") and path.name != "test_image.py"
        if path.is_file() and "__pycache__" not in path.parts and not is_other_test and path.suffix != ".mar":
            content = hashlib.sha256(path.read_bytes()).hexdigest()
            every.update(f"{content} {path.relative_to(root).as_posix()}\n".encode())
    return every.hexdigest()


def is_verified(part: str, root: Path = ROOT) -> bool:
    """Return whether a part is as it was when all of its tests passed."""
    if os.environ.get("MARPACK_COMPARE") == "all" or not (root / VERIFIED).is_file():
        return False
    return f"{digest(part, root)} {part}" in (root / VERIFIED).read_text().splitlines()


def is_sampled(item: pytest.Item) -> bool:
    """Return whether a test is a case of the fixed sample."""
    case = getattr(item, "callspec", None)
    return case is not None and zlib.crc32(_SEED + case.id.encode()) % SAMPLE == 0


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "independent(part): left out while a part is unchanged")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests of verified parts, except for the sample."""
    parts = {item: mark.args[0] for item in items if (mark := item.get_closest_marker("independent"))}
    verified = {part for part in set(parts.values()) if is_verified(part)}
    out = [item for item, part in parts.items() if part in verified and not is_sampled(item)]
    if out:
        config.hook.pytest_deselected(items=out)
        left_out = set(out)
        items[:] = [item for item in items if item not in left_out]
        config.stash[_LEFT_OUT] = len(out)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Tell the process that divided the tests how many this one left out."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["independent left out"] = session.config.stash.get(_LEFT_OUT, 0)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: pytest.Session) -> None:
    """Note the count of a worker; each has collected the same tests."""
    count = getattr(node, "workeroutput", {}).get("independent left out", 0)
    if count:
        node.config.stash[_LEFT_OUT] = count


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    count = config.stash.get(_LEFT_OUT, 0)
    if count:
        terminalreporter.write_line(f"{count} tests of unchanged parts left out (to run them: make independent)")


if __name__ == "__main__":
    (ROOT / VERIFIED).write_text("".join(f"{digest(part)} {part}\n" for part in PARTS))
