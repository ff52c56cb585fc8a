"""marpack's answers against those of a real TorchServe 0.12 that runs beside the tests, byte for byte."""

from __future__ import annotations

import pytest
from conformance.probes.catalogue import PROBES
from conformance.test_recorded import PAIRS, recorded

pytestmark = [pytest.mark.conformance, pytest.mark.slow]


@pytest.mark.parametrize("probe", [pytest.param(probe, id=probe.name) for probe in PROBES])
def test_the_recording_still_holds(probe, stage):
    assert stage.recording(probe) == recorded(probe)


@pytest.mark.parametrize(("probe", "call"), PAIRS)
def test_answers_as_the_server_does(probe, call, stage, rehearsal, count):
    live, said = stage.recording(probe), rehearsal(probe)
    assert said.replies[call.name] == live.replies[call.name], said.troubles[call.name]
    count("a live TorchServe 0.12", probe, call.name)
