"""marpack's answers against the recorded ones of a real TorchServe 0.12; needs no Java."""

from __future__ import annotations

import pytest
from conformance.likeness import alike
from conformance.probe import Call, Probe
from conformance.probes.catalogue import PROBES, SLOW
from conformance.recording import Recording, load, question_of

STALE = "python tests/conformance/record.py {name} records it anew"


def _marks(probe: Probe) -> list[pytest.MarkDecorator]:
    return [pytest.mark.slow] if probe.name in SLOW else []


def _answered(probe: Probe) -> list[Call]:
    # A model that the server refuses gives no answers; whether marpack refuses it too is a test of its own.
    recording = load(probe)
    if recording is None or probe.stricter is not None:
        return []
    return [call for call in probe.calls if call.name in recording.replies]


PAIRS = [
    pytest.param(probe, call, id=f"{probe.name}:{call.name}", marks=_marks(probe))
    for probe in PROBES
    for call in _answered(probe)
]


def recorded(probe: Probe) -> Recording:
    recording = load(probe)
    assert recording is not None, STALE.format(name=probe.name)
    assert recording.question == question_of(probe), STALE.format(name=probe.name)
    return recording


@pytest.mark.parametrize(
    "probe", [pytest.param(probe, id=probe.name, marks=_marks(probe)) for probe in PROBES if not probe.live_only]
)
def test_loads_or_fails_as_on_the_server(probe, rehearsal):
    registered = recorded(probe).registered.status
    refused = rehearsal(probe).refused_with
    if probe.stricter is not None:
        assert (registered, refused) == (200, 503), f"not so: {probe.stricter}"
        return
    assert (refused is None) == (registered == 200), rehearsal(probe).refusal
    assert (refused == 507) == (registered == 507), rehearsal(probe).refusal


@pytest.mark.parametrize(("probe", "call"), PAIRS)
def test_answers_as_the_server_did(probe, call, rehearsal, count):
    recording, said = recorded(probe), rehearsal(probe)
    ours, theirs = said.replies[call.name], recording.replies[call.name]
    assert alike(ours, theirs, numeric=probe.numeric), (ours, theirs, said.troubles[call.name])
    count("recorded answers of TorchServe 0.12", probe, call.name)
