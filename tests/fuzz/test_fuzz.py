"""Bytes from elsewhere, changed in ways that nobody thought of: only marpack's own errors come of them, and no hang.

`make fuzz` looks at 20,000 cases of each kind. One that fails is made as small as can be, printed as a seed and the
changes made to it, and tried first the next time.
"""

import os
from collections.abc import Collection
from datetime import timedelta
from typing import Any

import pytest
from fuzz.changes import changes
from fuzz.targets import TARGETS, Changes, look
from fuzz.unpicklers import limited
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
pytestmark = pytest.mark.slow


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
    @given(
        seed=st.sampled_from(["", *TARGETS[target].seeds()]),
        made=changes(TARGETS[target].words, [*TARGETS[target].seeds()]),
    )
    def case(seed: str, made: Changes) -> None:
        look(target, seed, made)

    case()


@pytest.mark.parametrize("target", TARGETS)
def test_nothing_but_errors_of_our_own_comes_out(target: str) -> None:
    TARGETS[target].seeds()  # which imports torch
    with limited(1 << 30):
        fuzz(target, EXAMPLES)


class PlantedError(Exception):
    """What a reader raises that has a bug, in place of an error of marpack's with any arguments."""

    def __init__(self, *_: object, **__: object) -> None:
        super().__init__()


@pytest.mark.parametrize(
    ("target", "place", "planted"),
    [
        ("archives", "marpack.archive.zip_format.DamagedArchiveError", PlantedError),
        ("archives", "marpack.archive.manifest.ManifestError", PlantedError),
        ("project files", "marpack.project.load.ProjectError", PlantedError),
        ("request lines", "marpack.torchserve.forms.RequestError", PlantedError),
        ("pickles", "marpack.weights.pickle._FAILURES", {PlantedError: "errors of pickles are not handled"}),
        ("weight headers", "marpack.archive.zip_format.NotZipError", PlantedError),
    ],
)
def test_a_reader_that_forgets_a_check_is_found(
    monkeypatch: pytest.MonkeyPatch, target: str, place: str, planted: Any
) -> None:
    monkeypatch.setattr(place, planted)
    with pytest.raises((PlantedError, LookupError, ValueError)):
        fuzz(target, 2000, [Phase.generate])
