"""marpack's answers against the recorded ones of a real TorchServe 0.12; needs no Java."""

from __future__ import annotations

import pytest
from conformance.likeness import alike
from conformance.marks import expectation, occasion
from conformance.probes.catalogue import FRONTEND, PROBES
from conformance.recording import answered, current
from conformance.rehearsal import reply_of
from conformance.requests import request_of

from marpack.torchserve.frontend.headers import FormError
from marpack.torchserve.frontend.http_response import refusal

PAIRS = [
    pytest.param(probe, call, id=f"{probe.name}:{call.name}", marks=expectation(probe) + occasion(probe))
    for probe in PROBES
    for call in answered(probe)
]


LOADED = [pytest.param(probe, id=probe.name, marks=occasion(probe)) for probe in PROBES if not probe.live_only]


@pytest.mark.parametrize("probe", LOADED)
def test_loads_or_fails_as_on_the_server(probe, rehearsal):
    registered = current(probe).registered.status
    refused = rehearsal(probe).refused_with
    if probe.stricter is not None:
        assert (registered, refused) == (200, 503), f"not so: {probe.stricter}"
        return
    assert (refused is None) == (registered == 200), rehearsal(probe).refusal
    assert (refused == 507) == (registered == 507), rehearsal(probe).refusal


@pytest.mark.parametrize(
    ("probe", "call"), [pytest.param(probe, call, id=call.name) for probe in FRONTEND for call in probe.calls]
)
def test_what_the_frontend_refuses(probe, call):
    with pytest.raises(FormError) as caught:
        request_of(call)
    assert alike(reply_of(refusal(caught.value)), current(probe).replies[call.name], numeric=False)


@pytest.mark.parametrize(("probe", "call"), PAIRS)
def test_answers_as_the_server_did(probe, call, rehearsal, count):
    recording, said = current(probe), rehearsal(probe)
    ours, theirs = said.replies[call.name], recording.replies[call.name]
    assert alike(ours, theirs, numeric=probe.numeric), (ours, theirs, said.troubles[call.name])
    count("recorded answers of TorchServe 0.12", probe, call.name)
