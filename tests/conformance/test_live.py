"""marpack's answers against those of a real TorchServe 0.12 that runs beside the tests, byte for byte."""

import json
import os
import subprocess
import sys
import zlib
from pathlib import Path

import pytest
from conformance.archives import pack
from conformance.likeness import alike, describe, differing
from conformance.probe import Probe
from conformance.probes.catalogue import FRONTEND, PROBES
from conformance.probes.examples import EXAMPLES
from conformance.recording import answered, current
from conformance.rehearsal import rehearse
from conformance.test_recorded import expectation

SAMPLE = 10  # one of so many probes is asked by `make landing`, the same each time


def occasion(probe: Probe) -> pytest.MarkDecorator:
    """Return the mark of a probe: of the sample, or of what only `make test-all` asks."""
    return pytest.mark.slow if zlib.crc32(probe.name.encode()) % SAMPLE else pytest.mark.peer


LIVE = [
    pytest.param(probe, id=probe.name, marks=[*expectation(probe), occasion(probe)])
    for probe in (*FRONTEND, *PROBES)
    if not probe.settled
]


@pytest.mark.parametrize("probe", LIVE)
def test_the_server_answers_as_marpack_and_as_it_did(probe, stage, tmp_path):
    live = stage.recording(probe)
    if not probe.live_only:
        kept = current(probe)
        assert live.registered == kept.registered
        assert list(live.replies) == list(kept.replies)
        others = differing(live, kept, numeric=probe.numeric)
        assert not others, {name: (live.replies[name], kept.replies[name]) for name in others}
    # Other processors round otherwise: what marpack answers here is compared with what the server answers here.
    calls = probe.calls if probe.live_only else answered(probe) if probe.numeric else ()
    said = rehearse(probe, tmp_path) if calls else None
    different = {}
    for call in calls:
        ours, theirs = said.replies[call.name], live.replies[call.name]
        if not alike(ours, theirs, numeric=False):
            different[call.name] = (ours, theirs, said.troubles[call.name])
    assert not different, describe(different)


@pytest.mark.peer
def test_the_command_run_shows_the_servers_bodies(stage, tmp_path):
    digits = next(probe for probe in PROBES if probe.name == "digits")
    archive = pack(digits, tmp_path)
    command = [sys.executable, "-m", "marpack", "run", archive, "--input", EXAMPLES / "digits" / "samples", "--json"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}  # sums are split by threads, on the server too
    shown = json.loads(subprocess.run(command, check=True, capture_output=True, env=environment, timeout=120).stdout)
    bodies = {Path(result["input"]).name: result["body"].encode() for result in shown["results"]}
    assert bodies == {name: reply.body for name, reply in stage.recording(digits).replies.items()}
