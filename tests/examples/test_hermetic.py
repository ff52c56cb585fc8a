"""No false alarm: each example is hermetic, as it is checked by the command line."""

import json
import subprocess
from pathlib import Path

import pytest
from command import command

pytestmark = [
    pytest.mark.usefixtures("uncovered"),
    pytest.mark.nightly,  # each example is checked whole, and one of them compiles
]
EXAMPLES = sorted(path.parent.name for path in (Path(__file__).parents[2] / "examples").glob("*/marpack.yaml"))


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_needs_nothing_but_what_it_says(copy_of, name: str):
    asked = command("check", "--hermetic", "--json", "--patience", "2", "--skip", "memory")
    done = subprocess.run(asked, cwd=copy_of(name), capture_output=True, text=True, timeout=300, check=False)
    checks = {checked["name"]: checked for checked in json.loads(done.stdout)["checks"]}
    assert (checks["hermetic"]["verdict"], checks["proved"]["verdict"]) == ("passed", "passed"), done.stdout
