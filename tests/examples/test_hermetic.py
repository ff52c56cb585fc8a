"""No false alarm: each example is hermetic, as it is checked by the command line."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from command import command

pytestmark = pytest.mark.usefixtures("uncovered")
EXAMPLES = sorted(path.parent.name for path in (Path(__file__).parents[2] / "examples").glob("*/marpack.yaml"))


# Each example is checked whole, and one of them compiles.
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.peer if name == "digits" else pytest.mark.slow) for name in EXAMPLES],
)
def test_an_example_needs_nothing_but_what_it_says(copy_of, tmp_path: Path, name: str):
    kernels = tmp_path / "torchinductor_kernels"
    folder = copy_of(name)
    _check(folder, kernels)
    if kernels.exists():  # it compiled: the second time it finds what it made, which is another need
        _check(folder, kernels)


def _check(folder: Path, kernels: Path) -> None:
    asked = command("check", "--hermetic", "--json", "--patience", "2", "--skip", "memory")
    environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(kernels)}
    done = subprocess.run(asked, cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False)
    checks = {checked["name"]: checked for checked in json.loads(done.stdout)["checks"]}
    verdicts = (checks["hermetic"]["verdict"], checks["proved"]["verdict"])
    assert verdicts == ("passed", "passed"), (checks["hermetic"], checks["proved"])
