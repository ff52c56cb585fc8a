"""What clients of `marpack serve --compat torchserve` get, against the recorded answers of a real TorchServe 0.12."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from conformance.forking import shared
from conformance.likeness import alike
from conformance.marks import expectation
from conformance.playing import play
from conformance.probe import Call, Probe
from conformance.probes.catalogue import FRONTEND, PROBES
from conformance.recording import Recording, answered, current
from conformance.serving import ServedPeer

from marpack.serving.differences import ServerDifference

_BY_DAY = {
    "raw", "forms", "headers", "responses", "response-heads", "exceptions", "streams", "sizes-in-a-batch",
    "envelope-kserve", "refused-forms", "refused-sizes",
}  # fmt: skip
_DIFFERENT = {
    ("request-heads", "odd names"): ServerDifference.STRICT_HTTP,
    ("responses", "status-101"): ServerDifference.SENDABLE_HEADERS,
    ("exceptions", "code-101"): ServerDifference.SENDABLE_HEADERS,
    ("response-heads", "name-'a\\x7fb'"): ServerDifference.SENDABLE_HEADERS,
    ("response-heads", "value-'b\\x7f\\x01c'"): ServerDifference.SENDABLE_HEADERS,
}


def _marks(probe: Probe, call: Call) -> list[pytest.MarkDecorator]:
    known = _DIFFERENT.get((probe.name, call.name))
    different = [pytest.mark.xfail(reason=known.what, strict=True)] if known else []
    return [*different, *expectation(probe), *([] if probe.name in _BY_DAY else [pytest.mark.nightly])]


PAIRS = [
    pytest.param(probe, call, id=f"{probe.name}:{call.name}", marks=_marks(probe, call))
    for probe in (*FRONTEND, *PROBES)
    for call in answered(probe)
]


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[Probe], tuple[Recording, Recording]]]:
    """Ask our server a probe over HTTP, once; return what it answered, and what the real one did."""
    played: dict[str, tuple[Recording, Recording]] = {}
    shared()  # imports torch while the probes that need none are played
    with ServedPeer() as server:

        def ask(probe: Probe) -> tuple[Recording, Recording]:
            if probe.name not in played:
                ours = play(probe, server.of(probe), tmp_path_factory.mktemp(probe.name))
                played[probe.name] = ours, current(probe)
            return played[probe.name]

        yield ask


@pytest.mark.parametrize(("probe", "call"), PAIRS)
def test_answers_as_the_server_did(probe, call, said):
    ours, theirs = (recording.replies[call.name] for recording in said(probe))
    assert alike(ours, theirs, numeric=probe.numeric), (ours, theirs)
