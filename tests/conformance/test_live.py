"""marpack's answers against those of a real TorchServe 0.12 that runs beside the tests, byte for byte."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from conformance.archives import pack
from conformance.likeness import alike, describe, differing
from conformance.probe import Call, Probe
from conformance.probes.catalogue import FRONTEND, PROBES
from conformance.probes.examples import EXAMPLES
from conformance.recording import answered, current
from conformance.test_recorded import expectation

# TorchServe is archived: what was recorded once of it stays so. Those that take long and teach little each time are
# asked again with MARPACK_CONFORMANCE=all.
ASKED = [probe for probe in PROBES if not probe.settled or os.environ.get("MARPACK_CONFORMANCE") == "all"]

pytestmark = [pytest.mark.peer, pytest.mark.slow]


def is_decided_by_recording(probe: Probe) -> bool:
    """Return whether the comparison with a probe's recording says all that a live one can say.

    Not so if it was not recorded, if numbers may differ a little between machines, and if its archive is an example
    that marpack builds.
    """
    return not (probe.live_only or probe.numeric or probe.archive)


def independent(probe: Probe) -> list[pytest.MarkDecorator]:
    """Return the mark of what a live comparison need not repeat."""
    return [pytest.mark.independent("recordings")] if is_decided_by_recording(probe) else []


def calls_of(probe: Probe) -> Sequence[Call]:
    """Return the calls of a probe that the server and marpack both answer."""
    return probe.calls if probe.live_only else answered(probe)


COMPARED = [
    pytest.param(probe, id=probe.name, marks=[*expectation(probe), *independent(probe)])
    for probe in ASKED
    if calls_of(probe)
]

RECORDED = [
    pytest.param(probe, id=probe.name, marks=independent(probe)) for probe in (*FRONTEND, *ASKED) if not probe.live_only
]


@pytest.mark.parametrize("probe", RECORDED)
def test_the_recording_still_holds(probe, stage):
    live, kept = stage.recording(probe), current(probe)
    assert live.registered == kept.registered
    assert list(live.replies) == list(kept.replies)
    others = differing(live, kept, numeric=probe.numeric)
    assert not others, {name: (live.replies[name], kept.replies[name]) for name in others}


@pytest.mark.parametrize("probe", COMPARED)
def test_answers_as_the_server_does(probe, stage, rehearsal):
    live, said = stage.recording(probe), rehearsal(probe)
    different = {}
    for call in calls_of(probe):
        ours, theirs = said.replies[call.name], live.replies[call.name]
        if not alike(ours, theirs, numeric=False):
            different[call.name] = (ours, theirs, said.troubles[call.name])
    assert not different, describe(different)


def test_the_command_run_shows_the_servers_bodies(stage, tmp_path):
    digits = next(probe for probe in PROBES if probe.name == "digits")
    archive = pack(digits, tmp_path)
    command = [sys.executable, "-m", "marpack", "run", archive, "--input", EXAMPLES / "digits" / "samples", "--json"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}  # sums are split by threads, on the server too
    shown = json.loads(subprocess.run(command, check=True, capture_output=True, env=environment, timeout=120).stdout)
    bodies = {Path(result["input"]).name: result["body"].encode() for result in shown["results"]}
    assert bodies == {name: reply.body for name, reply in stage.recording(digits).replies.items()}
