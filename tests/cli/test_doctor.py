"""`marpack doctor`, as one calls it."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from lazy import jsonschema

from marpack.api import doctor as module

SCHEMA = Path(__file__).parents[2] / "docs" / "schemas" / "doctor.json"


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(module, "_PROBE", "print('2.6.0 for CPU')")


def test_the_report_as_json(marpack):
    code, out, err = marpack("doctor", "--json", "--clear-cache")
    report = json.loads(out)
    assert (code, err) == (0, "")
    assert (report["healthy"], report["freed"]) == (True, 0)
    jsonschema.validate(report, json.loads(SCHEMA.read_text()))


def test_what_is_broken_is_the_exit_code(marpack, monkeypatch):
    monkeypatch.setattr(module, "_PROBE", "raise SystemExit('no\x1b[31m torch')")
    code, out, _ = marpack("doctor")
    assert code == 1
    assert re.search(r"✗ torch {17}.*: no\\x1b\[31m torch\n", out)
    assert json.loads(marpack("doctor", "--json")[1])["healthy"] is False


@pytest.mark.parametrize("words", [("--clear",), ("now",), ("--json=yes",), ("--clear-cache", "x.mar")])
def test_what_it_does_not_take(marpack, words):
    assert marpack("doctor", *words)[0] == 2


MISSING = (
    *("msgspec", "numpy", "torch", "yaml", "jinja2", "rich", "packaging", "platformdirs", "psutil", "fsspec", "PIL"),
    *("safetensors", "onnxruntime", "isal"),
)
WITHOUT = """
import sys
from importlib.abc import MetaPathFinder
class Missing(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {missing}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Missing())
from marpack.api import doctor
doctor._PROBE = "raise SystemExit('no torch')"
from marpack.cli.main import main
main(sys.argv[1:])
"""


def test_it_works_where_every_dependency_but_click_is_missing(tmp_path: Path):
    program = WITHOUT.format(missing=set(MISSING))
    done = subprocess.run(
        [sys.executable, "-c", program, "doctor", "--json", "--clear-cache"],
        capture_output=True, text=True, timeout=60, env={**os.environ, "MARPACK_CACHE_DIR": str(tmp_path)},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (1, "")
    for name in ("msgspec", "rich", "pyyaml"):
        assert name in done.stdout
    report = json.loads(done.stdout)
    jsonschema.validate(report, json.loads(SCHEMA.read_text()))
    assert (report["healthy"], report["freed"]) == (False, None)
