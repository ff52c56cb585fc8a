"""Probes through `marpack serve --compat torchserve`, against the recorded responses of a real TorchServe 0.12.

`test_exchanges.py` compares the bytes of the transport, and `tests/conformance` replays every probe in process. Here
are the probes in which HTTP and the worker meet: forms, heads, statuses, streams, sizes and batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from conformance.likeness import alike
from conformance.playing import play
from conformance.probe import Probe
from conformance.probes.catalogue import FRONTEND, PROBES
from conformance.recording import Recording, answered, current
from conformance.serving import ServedPeer
from conformance.test_recorded import expectation

from tools.reference.server_differences import ServerDifference

_BY_DAY = ("forms", "headers", "responses", "response-heads", "streams")
_BY_NIGHT = ("request-heads", "exceptions", "sizes-in-a-batch", "envelope-kserve", "refused-forms", "refused-sizes")
_BY_NIGHT += ("batches", "digits")
_DIFFERENT = {
    ("request-heads", "odd names"): ServerDifference.STRICT_HTTP,
    ("responses", "status-101"): ServerDifference.SENDABLE_HEADERS,
    ("exceptions", "code-101"): ServerDifference.SENDABLE_HEADERS,
    ("response-heads", "name-'a\\x7fb'"): ServerDifference.SENDABLE_HEADERS,
    ("response-heads", "value-'b\\x7f\\x01c'"): ServerDifference.SENDABLE_HEADERS,
}


def _marks(probe: Probe) -> list[pytest.MarkDecorator]:
    by_night = [] if probe.name in _BY_DAY else [pytest.mark.slow]
    return [*expectation(probe), *by_night]


ANSWERED = [
    pytest.param(probe, id=probe.name, marks=_marks(probe))
    for probe in (*FRONTEND, *PROBES)
    if probe.name in (*_BY_DAY, *_BY_NIGHT) and answered(probe)
]


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[Probe], tuple[Recording, Recording]]]:
    """Ask our server a probe over HTTP, once; return what it answered, and what the real one did."""
    played: dict[str, tuple[Recording, Recording]] = {}
    with ServedPeer() as server:

        def ask(probe: Probe) -> tuple[Recording, Recording]:
            if probe.name not in played:
                ours = play(probe, server.of(probe), tmp_path_factory.mktemp(probe.name))
                played[probe.name] = ours, current(probe)
            return played[probe.name]

        yield ask


@pytest.mark.parametrize("probe", ANSWERED)
def test_answers_as_the_server_did(probe: Probe, said: Callable[[Probe], tuple[Recording, Recording]]):
    ours, theirs = (recording.replies for recording in said(probe))
    wrong = {}
    for call in answered(probe):
        is_alike = alike(ours[call.name], theirs[call.name], numeric=probe.numeric)
        if is_alike is ((probe.name, call.name) in _DIFFERENT):  # a difference that is gone has no place in the table
            wrong[call.name] = ours[call.name], theirs[call.name]
    assert wrong == {}


def test_the_probes_and_the_known_differences_are_recorded():
    assert len(ANSWERED) == len(_BY_DAY) + len(_BY_NIGHT)
    every = {(probe.name, call.name) for probe in (*FRONTEND, *PROBES) for call in answered(probe)}
    assert _DIFFERENT.keys() <= every
