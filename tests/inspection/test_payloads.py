"""The attacker's corpus: every payload runs code, and none of them is reported as safe."""

import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from inspection.loaders import Payload
from inspection.payloads import payloads

from marpack.inspection.pickles import PickleScan, PickleVerdict
from marpack.weights.tensors import is_exact_safetensors

TESTS = Path(__file__).parents[1]


@pytest.mark.slow
def test_every_payload_runs_code() -> None:
    command = [sys.executable, "-m", "inspection.prover"]
    done = subprocess.run(command, input=json.dumps(list(payloads())), capture_output=True, text=True, cwd=TESTS)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == []  # the names of those that ran none


def describe_failure(payload: Payload, scan: Callable[..., PickleScan]) -> str | None:
    """Return what is wrong with the verdict on a payload."""
    try:
        found = scan(payload.make(), payload.member, members=[payload.member, *payload.files])
    except Exception as error:  # noqa: BLE001 - a scan that fails is a failure of the test
        return repr(error)
    return "reported as safe" if found.verdict is PickleVerdict.SAFE and not found.unscanned else None


def test_no_payload_is_reported_as_safe(
    scan: Callable[..., PickleScan], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    failures = {name: describe_failure(payload, scan) for name, payload in payloads().items()}
    assert list(tmp_path.iterdir()) == []  # the scan ran none of them
    assert {name: failure for name, failure in failures.items() if failure} == {}


def test_safetensors_that_are_also_a_pickle_are_not_safe_as_the_manifests_weights(
    scan: Callable[..., PickleScan],
) -> None:
    """BaseHandler gives the manifest's weights to torch.load, whatever their suffix."""
    contents = [
        content for content in map(Payload.make, payloads().values()) if is_exact_safetensors(io.BytesIO(content))
    ]
    assert contents
    for content in contents:
        assert scan(content, "model.safetensors", weights="model.safetensors").verdict is not PickleVerdict.SAFE


def test_honest_safetensors_are_safe_as_the_manifests_weights(scan: Callable[..., PickleScan]) -> None:
    for length in range(1, 300):  # of a name, so that the file starts with every byte, a pickle's mark among them
        content = safetensors.numpy.save({"a" * length: np.arange(3)})
        found = scan(content, "model.safetensors", weights="model.safetensors")
        assert (found.verdict, found.unscanned) == (PickleVerdict.SAFE, ()), length
