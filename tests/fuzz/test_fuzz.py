"""Bytes from elsewhere, changed in ways that nobody thought of: only marpack's own errors come of them, and no hang.

`make fuzz` looks at 20,000 cases of each kind. One that fails is made as small as can be, printed as a seed and the
changes made to it, and tried first the next time.
"""

import os
import resource
import sys
from collections.abc import Collection, Iterator
from datetime import timedelta
from typing import Any

import pytest
from fuzz.changes import changes
from fuzz.targets import TARGETS, Changes, look
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.database import DirectoryBasedExampleDatabase

ASKED = os.environ.get("FUZZ")
EXAMPLES = int(ASKED or 200)
HANGS = timedelta(seconds=20)  # for what takes milliseconds, on a machine that may be busy
# The same cases in every run of the tests; other ones whenever somebody asks, and first those that failed before.
CHOICE: dict[str, Any] = (
    {"derandomize": True}
    if ASKED is None
    else {"derandomize": False, "database": DirectoryBasedExampleDatabase(".hypothesis/examples")}
)
PHASES = set(Phase) - {Phase.explain}
MEMORY = 1 << 30  # bytes of addresses more than the process has to begin with

pytestmark = pytest.mark.nightly


def fuzz(target: str, examples: int, phases: Collection[Phase] = PHASES) -> None:
    """Look at so many cases of one kind."""

    @settings(
        max_examples=examples,
        **CHOICE,
        deadline=HANGS,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
        phases=phases,
    )
    @given(seed=st.sampled_from(["", *TARGETS[target].seeds()]), made=changes_of(target))
    def case(seed: str, made: Changes) -> None:
        look(target, seed, made)

    case()


def changes_of(target: str) -> st.SearchStrategy[Changes]:
    return changes(TARGETS[target].words, [*TARGETS[target].seeds()])


@pytest.fixture
def bounded(target: str) -> Iterator[None]:
    """Bound what the process may take: what asks for gigabytes fails, as a MemoryError."""
    TARGETS[target].seeds()  # which imports torch
    before = resource.getrlimit(resource.RLIMIT_AS)
    if sys.platform == "linux":
        with open("/proc/self/statm", "rb") as file:  # noqa: PTH123
            now = int(file.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (now + MEMORY, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.mark.parametrize("target", TARGETS)
def test_nothing_but_errors_of_our_own_comes_out(target: str, bounded: None) -> None:
    fuzz(target, EXAMPLES)


class PlantedError(Exception):
    """What a reader raises that has a bug."""

    def __init__(self, *_: object, **__: object) -> None:
        super().__init__()


@pytest.mark.parametrize(
    ("target", "error"),
    [
        ("archives", "marpack.archive.zip_format.DamagedArchiveError"),
        ("archives", "marpack.archive.manifest.ManifestError"),
        ("project files", "marpack.project.load.ProjectError"),
        ("request lines", "marpack.torchserve.forms.RequestError"),
        ("pickles", "marpack.weights.pickle.BrokenPickleError"),
        ("weight headers", "marpack.archive.zip_format.NotZipError"),
    ],
)
def test_a_reader_that_forgets_a_check_is_found(monkeypatch: pytest.MonkeyPatch, target: str, error: str) -> None:
    monkeypatch.setattr(error, PlantedError)
    with pytest.raises(PlantedError):
        fuzz(target, 2000, [Phase.generate])
