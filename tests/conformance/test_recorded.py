"""marpack's answers against the recorded ones of a real TorchServe 0.12; needs no Java."""

import pytest
from conformance.likeness import alike, describe
from conformance.probe import Probe
from conformance.probes.catalogue import FRONTEND, PROBES
from conformance.recording import answered, current
from conformance.rehearsal import rehearse, reply_of
from conformance.requests import request_of

from marpack.torchserve.http import RequestError

_BY_DAY = "shadow-yaml"  # of those whose modules shadow others, so that each needs an interpreter of its own


def expectation(probe: Probe) -> list[pytest.MarkDecorator]:
    """Return the mark of a probe that is known to differ; one that does not differ any more then fails."""
    return [pytest.mark.xfail(reason=probe.unmatched, strict=True)] if probe.unmatched else []


def occasion(probe: Probe) -> list[pytest.MarkDecorator]:
    """Return the mark of a probe that only `make test-all` sends."""
    return [pytest.mark.slow] if probe.name.startswith("shadow-") and probe.name != _BY_DAY else []


RECORDED = [
    pytest.param(probe, id=probe.name, marks=expectation(probe) + occasion(probe))
    for probe in PROBES
    if not probe.live_only
]


@pytest.mark.parametrize("probe", RECORDED)
def test_loads_and_answers_as_the_server_did(probe, tmp_path):
    recording, said = current(probe), rehearse(probe, tmp_path)
    registered = recording.registered.status
    if probe.stricter is not None:
        assert (registered, said.refused_with) == (200, 503), f"not so: {probe.stricter}"
        return
    assert (said.refused_with is None) == (registered == 200), said.refusal
    assert (said.refused_with == 507) == (registered == 507), said.refusal
    different = {}
    for call in answered(probe):
        ours, theirs = said.replies[call.name], recording.replies[call.name]
        if not alike(ours, theirs, numeric=probe.numeric):
            different[call.name] = (ours, theirs, said.troubles[call.name])
    assert not different, describe(different)


@pytest.mark.parametrize("probe", [pytest.param(probe, id=probe.name) for probe in FRONTEND])
def test_what_the_frontend_refuses(probe):
    recording, different = current(probe), {}
    for call in probe.calls:
        with pytest.raises(RequestError) as caught:
            request_of(call)
        ours, theirs = reply_of(caught.value.response), recording.replies[call.name]
        if not alike(ours, theirs, numeric=False):
            different[call.name] = (ours, theirs)
    assert not different, describe(different)
