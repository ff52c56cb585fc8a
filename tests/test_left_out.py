"""A run ends with a line for each missing tool, also where workers of pytest-xdist ran the tests."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from left_out import name_tool

TESTS = """
import pytest

@pytest.mark.parametrize("number", [1, 2])
def test_one(number):
    pytest.skip("no Chromium here: the page is not opened")

def test_two():
    pytest.importorskip("nothing_of_this_name")

def test_three():
    pytest.skip("root may write everywhere")

def test_four():
    pass
"""


@pytest.mark.slow  # a run of pytest each
@pytest.mark.parametrize("further", [(), ("-n", "2")], ids=["one process", "two workers"])
def test_a_run_ends_with_the_tools_that_were_missing(tmp_path: Path, further: tuple[str, ...]) -> None:
    (tmp_path / "test_tools.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    line = [sys.executable, "-m", "pytest", "-p", "left_out", "-q", *further]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parent)}
    done = subprocess.run(line, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    other, chromium, module, _ = done.stdout.splitlines()[-4:]
    assert chromium.startswith("no Chromium: 2 ")
    assert module.startswith("no nothing_of_this_name: 1 ")
    assert "1 of 'root may write everywhere'" in other


@pytest.mark.parametrize(
    ("reason", "tool"),
    [
        ("no real TorchServe to compare with: there is no java on PATH", ("Java", "TorchServe")),
        ("could not import 'transformers': No module named 'transformers'", ("transformers",)),
        ("explanations need marpack[explain]", ("marpack[explain]",)),
    ],
)
def test_reasons_name_tools(reason: str, tool: tuple[str, ...]) -> None:
    assert name_tool(reason).removeprefix("no ").startswith(tool)
