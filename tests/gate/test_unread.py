"""Facts of an archive that marpack cannot read, or reads otherwise than the server, never make a check milder."""

import json
import zipfile
from pathlib import Path

import pytest
from gate.archives import HANDLER, SAMPLES, examine, failures, found

from marpack.gate.check import select_checks
from marpack.gate.verdicts import GateVerdict
from marpack.runner.inputs import RequestDefaults

ALONE = HANDLER.replace("handle(self, data, context):", "handle(self, data, context):\n        data = data[:1]")
PADDING = "# padding\n" * 110_000


def make(folder: Path, files: dict[str, str], *, runtime: str = "python", **model: str) -> Path:
    """Write an archive that responds to the first request of a batch only."""
    named = {"modelName": "m", "modelVersion": "1", "handler": "handler.py", **model}
    folder.mkdir(exist_ok=True)
    files = {"handler.py": ALONE, "index_to_name.json": '{"0": "vowel", "1": "other"}', **files}
    with zipfile.ZipFile(folder / "m.mar", "w") as archive:
        archive.writestr("MAR-INF/MANIFEST.json", json.dumps({"runtime": runtime, "model": named}))
        for name, content in files.items():
            archive.writestr(name, content)
    return folder / "m.mar"


def failed(path: Path) -> dict[str, list[str]]:
    text = SAMPLES["bee.txt"].encode()
    report = examine(path, inputs=(RequestDefaults().input("bee.txt", 0, "text/plain", text),))
    assert report.verdict is GateVerdict.REFUSED
    return failures(report)


@pytest.mark.parametrize(
    ("config", "check"),
    [
        (f"batchSize: 4\n{PADDING}", "loads"),
        ("batchSize: 4\nx: [1::, 2]\n", "batch-contract"),  # libyaml refuses it, the worker's parser does not
        (f"batchSize: 4\nx: [1::, 2]\n{PADDING[: 70 << 10]}", "preflight"),
    ],
)
def test_a_config_that_is_not_read_is_not_an_empty_one(config: str, check: str, tmp_path: Path) -> None:
    assert check in failed(make(tmp_path, {"c.yaml": config}, configFile="c.yaml"))


def test_requirements_that_are_not_read_are_not_none(tmp_path: Path) -> None:
    assert "preflight" in failed(make(tmp_path, {"r.txt": f"missing\n{PADDING}"}, requirementsFile="r.txt"))


def test_sources_that_are_not_read_are_not_without_problems(tmp_path: Path) -> None:
    large = make(tmp_path, {"handler.py": f"{ALONE}#{' ' * (257 << 10)}"})
    for path, is_read in [(large, False), (make(tmp_path / "small", {}), True)]:
        checked = found(examine(path, choice=select_checks(["preflight"])), "preflight")
        assert (checked.reason == "no problems found") is is_read


def test_a_runtime_that_no_server_starts_is_not_pythons(tmp_path: Path) -> None:
    assert failed(make(tmp_path, {}, runtime="LSP"))["loads"] == ["unsupported-runtime"]
