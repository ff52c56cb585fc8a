"""marpack's answers against those of a real TorchServe 0.12 that runs beside the tests, byte for byte."""

from __future__ import annotations

import os

import pytest
from conformance.likeness import alike
from conformance.probes.catalogue import FRONTEND, PROBES
from conformance.recording import answered, current

# TorchServe is archived: what was recorded once of it stays so. Those that take long and teach little each time are
# asked again with MARPACK_CONFORMANCE=all.
ASKED = [probe for probe in PROBES if not probe.settled or os.environ.get("MARPACK_CONFORMANCE") == "all"]

pytestmark = [pytest.mark.conformance, pytest.mark.slow]


LIVE_PAIRS = [
    pytest.param(probe, call, id=f"{probe.name}:{call.name}")
    for probe in ASKED
    for call in (probe.calls if probe.live_only else answered(probe))
]


RECORDED = [pytest.param(probe, id=probe.name) for probe in (*FRONTEND, *ASKED) if not probe.live_only]


@pytest.mark.parametrize("probe", RECORDED)
def test_the_recording_still_holds(probe, stage):
    live, kept = stage.recording(probe), current(probe)
    assert live.registered == kept.registered
    assert list(live.replies) == list(kept.replies)
    differing = [
        name for name in live.replies if not alike(live.replies[name], kept.replies[name], numeric=probe.numeric)
    ]
    assert not differing, {name: (live.replies[name], kept.replies[name]) for name in differing}


@pytest.mark.parametrize(("probe", "call"), LIVE_PAIRS)
def test_answers_as_the_server_does(probe, call, stage, rehearsal, count):
    live, said = stage.recording(probe), rehearsal(probe)
    assert said.replies[call.name] == live.replies[call.name], said.troubles[call.name]
    count("a live TorchServe 0.12", probe, call.name)
