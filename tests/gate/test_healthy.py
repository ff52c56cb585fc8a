"""No false alarms: archives with nothing wrong pass every check, however they are written."""

import json
import re
import shutil
import tarfile
import zipfile
from pathlib import Path

import pytest
from gate.archives import HANDLER, archive, examine, failures, found
from gate.healthy import HEALTHY

from marpack.gate.verdicts import Verdict
from marpack.runner.inputs import RequestDefaults

pytestmark = pytest.mark.usefixtures("uncovered", "small_windows")

ROOT = Path(__file__).parents[2] / "examples"
DAY = (
    "a service behind a function",
    "a top-k",
    "refusals by status",
    "pictures in every form",
    "a stream",
    "coroutines",
)
EXAMPLES = sorted(path.parent.name for path in ROOT.glob("*/marpack.yaml"))


@pytest.mark.parametrize(
    "style", [pytest.param(style, marks=() if style in DAY else pytest.mark.slow) for style in HEALTHY]
)
def test_a_handler_of_any_style_passes(style: str, tmp_path: Path):
    handler, samples, more = HEALTHY[style]
    report = examine(archive(tmp_path / "project", handler, samples=samples, **more))
    assert failures(report) == {}
    assert report.deployable


def test_every_check_of_a_healthy_archive_in_each_form(tmp_path: Path):
    path = archive(tmp_path / "project")
    report = examine(path)
    skipped = {checked.name for checked in report.checks if checked.verdict is Verdict.SKIPPED}
    assert skipped == {"requirements", "compiled"}
    assert report.exit_code == 0
    about = (report.archive, report.model, report.loaded, report.target)
    assert about == (str(path), "probe 1.0", "handler.Handler", "torchserve")
    reasons = {checked.name: checked.reason for checked in report.checks}
    assert re.fullmatch(r"handler\.Handler, in (\d{1,3} ms|\d+\.\d\d s)", reasons["loads"])
    assert re.fullmatch(r"\d+ requests, [+-]\d+\.\d MiB", reasons["memory"])
    assert reasons["digests"] == f"8 members, {report.content_digest}"
    counts = {
        name: [int(text) for text in re.findall(r"\d+", reasons[name])] for name in ("samples", "labels", "proved")
    }
    assert counts == {"samples": [3], "labels": [2, 2], "proved": [3, 2, 2]}
    folder = tmp_path / "probe"
    with zipfile.ZipFile(path) as file:
        file.extractall(folder)
    with tarfile.open(tmp_path / "probe.tar.gz", "w:gz") as file:
        file.add(folder, "probe")
    for form in (folder, tmp_path / "probe.tar.gz"):
        assert failures(examine(form)) == {}


def test_an_archive_without_an_index_passes(make_mar):
    inputs = (RequestDefaults().input("a bee", 0, "text/plain", b"a bee"),)
    report = examine(make_mar(HANDLER, files={"index_to_name.json": json.dumps({"0": "a", "1": "b"})}), inputs=inputs)
    assert failures(report) == {}
    assert found(report, "digests").reason.startswith("3 members; ")
    assert found(report, "samples").reason == "1 input"


@pytest.mark.parametrize(
    "example", [pytest.param(each, marks=() if each == "digits" else pytest.mark.slow) for each in EXAMPLES]
)
def test_every_example_passes(example: str, tmp_path: Path):
    ignored = shutil.ignore_patterns("*.mar", "__pycache__")
    project = shutil.copytree(ROOT / example, tmp_path / example, ignore=ignored)
    report = examine(project, timeout=120.0)
    assert failures(report) == {}
    assert report.deployable
    assert found(report, "samples").verdict is Verdict.PASSED
