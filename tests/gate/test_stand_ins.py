"""Made-up requests: of a kind that the handler takes, in a worker of their own; they neither prove nor condemn."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from gate.archives import HANDLER, archive, examine, failures

from marpack.gate.candidate import Candidate, CheckOptions
from marpack.gate.proof import find_stand_in_risk, make_stand_ins
from marpack.gate.verdicts import GateReport, GateVerdict
from marpack.project.source import resolve

TENSOR = """
import json


class Handler:
    def initialize(self, context):
        self.calls = 0

    def handle(self, data, context):
        return [self.answer(row.get("body")) for row in data]

    def answer(self, body):
        return sum(json.loads(body.decode()))
"""


def told(report: GateReport) -> list[tuple[str, str]]:
    return [(finding.code, finding.message) for finding in report.checks[-1].findings]


def candidate(path: Path, **options: Any) -> Candidate:
    return Candidate(resolve(str(path)), CheckOptions(**options))


def test_one_that_fails_shows_the_handlers_own_traceback(tmp_path: Path):
    said: list[str] = []
    report = examine(archive(tmp_path / "p", TENSOR, samples={}), announce=said.append)
    (announced,) = said
    assert "JSON list and a text" in announced
    assert "--stand-ins off" in announced
    assert report.verdict is GateVerdict.NOT_PROVED
    assert told(report)[0][0] == "no-inputs"
    failed = report.checks[-1].findings[1]
    assert (failed.code, failed.severity) == ("stand-in-failed", "warning")
    assert "JSON list, " in failed.message
    assert " 503: AttributeError: 'list' object " in failed.message
    assert failed.message.endswith(" (Handler.handle:10 > Handler.answer:13)")
    assert str(failed.where).endswith("p/probe.mar!handler.py:13")
    assert "JSON" in str(failed.hint)


@pytest.mark.nightly
def test_one_that_fails_in_a_batch_only(tmp_path: Path):
    first_only = HANDLER.replace("enumerate(self.preprocess(data))]", "enumerate(self.preprocess(data))][:1]")
    report = examine(archive(tmp_path / "p", first_only, samples={}))
    ((lack, _), (code, message)) = told(report)
    assert (lack, code) == ("no-inputs", "stand-in-failed")
    assert message.startswith("a text, ")
    assert " batch of 2, gets 503" in message


def test_those_that_are_answered_prove_nothing(tmp_path: Path):
    report = examine(archive(tmp_path / "p", samples={}))
    ((code, message),) = told(report)[1:]
    assert code == "stand-in-answered"
    assert message.startswith("a text, ")
    assert re.findall(r"alone|batch of \d", message) == ["alone", "batch of 2", "batch of 4"]
    assert (report.verdict, report.exit_code) == (GateVerdict.NOT_PROVED, 1)


def test_their_worker_is_another(tmp_path: Path):
    marks = tmp_path / "marks"
    marks.mkdir()
    marking = HANDLER.replace(
        "def handle(self, data, context):",
        f"def handle(self, data, context):\n        open({str(marks)!r} + '/' + str(os.getpid()), 'a').write('x')",
    ).replace(
        "def initialize(self, context):",
        f"def initialize(self, context):\n        open({str(marks)!r} + '/' + str(os.getpid()), 'a')",
    )
    examine(archive(tmp_path / "p", marking, samples={}))
    sizes = sorted(path.stat().st_size for path in marks.iterdir())
    assert (len(sizes), sizes[0]) == (2, 0), "the gate's own worker is asked nothing"
    assert sizes[1] > 0


@pytest.mark.nightly
def test_one_that_hangs_takes_no_longer_than_a_check_may(tmp_path: Path):
    hangs = HANDLER.replace("return [self.text_of", "import time; time.sleep(600)\n        return [self.text_of")
    report = examine(archive(tmp_path / "p", hangs, samples={}), seconds_per_check=1.0)
    assert told(report)[1][0] == "stand-in-failed"


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("import requests", "the handler imports requests, and may connect to the network"),
        ("from sqlalchemy.orm import Session", "the handler imports sqlalchemy, and may connect to a database"),
        ("import smtplib", "the handler imports smtplib, and may connect to mail or messages"),
        ("import boto3", "the handler imports boto3, and may connect to a cloud"),
    ],
)
def test_none_is_sent_where_it_might_leave_something_behind(tmp_path: Path, line: str, why: str):
    path = archive(tmp_path / "p", f"def later():\n    {line}\n{HANDLER}", samples={})
    with candidate(path) as asked:
        assert find_stand_in_risk(asked) == why


def test_what_is_withheld_is_said_and_can_be_asked_for(tmp_path: Path):
    path = archive(tmp_path / "p", "import urllib\n" + HANDLER, samples={})
    ((code, message),) = told(examine(path))[1:]
    assert code == "no-stand-in"
    assert " urllib," in message
    assert told(examine(path, stand_ins="on"))[1][0] == "stand-in-answered"
    assert failures(examine(path, stand_ins="off")) == {"proved": ["no-inputs"]}


@pytest.mark.nightly
def test_none_is_sent_where_there_are_samples(tmp_path: Path):
    said: list[str] = []
    assert examine(archive(tmp_path / "p"), announce=said.append, stand_ins="on").deployable
    assert said == []


PICTURES = "from PIL import Image\nimport io\nImage.open(io.BytesIO(b'')) if 0 else None\n"


@pytest.mark.parametrize(
    ("entry", "source", "kinds"),
    [
        ("image_classifier", "", ["image/png"]),
        ("text_classifier", "", ["text/plain"]),
        ("handler.py", PICTURES + HANDLER, ["image/png"]),
        ("handler.py", TENSOR, ["application/json", "text/plain"]),
        ("handler.py", "def handle(data, context):\n    return data\n", ["application/json", "text/plain"]),
        ("handler.py", "import torch\nhandle = lambda data, context: torch.tensor(data)\n", ["application/json"]),
    ],
)
def test_they_are_of_the_kind_that_is_taken(make_mar, entry: str, source: str, kinds: list[str]):
    with candidate(make_mar(source, entry=entry)) as asked:
        requests = [each.request for each in make_stand_ins(asked)]
    assert [request.parts[0].content_type for request in requests] == kinds


def test_numbers_have_the_shape_of_the_models_input(make_mar):
    onnx = (Path(__file__).parents[2] / "templates/init/onnx/model.onnx").read_bytes()
    source = "handle = lambda data, context: tensor(data)\n"
    with candidate(make_mar(source, files={"model.onnx": onnx}, serializedFile="model.onnx")) as asked:
        (made,) = make_stand_ins(asked)
    assert len(json.loads(made.request.parts[0].value)) == 3, "of the toy model's input"
