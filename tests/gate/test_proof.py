"""The check `proved`: what proves that a model responds, generated samples, and stand-ins."""

import hashlib
import json
import re
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml
from gate.archives import HANDLER, SAMPLES, archive, examine, failures, found, project

from marpack.archive.reader import open_archive
from marpack.errors import ExitCode, ProjectError
from marpack.gate.candidate import Candidate, CheckOptions
from marpack.gate.check import select_checks
from marpack.gate.proof import find_stand_in_risk, make_stand_ins
from marpack.gate.samples import packed_samples
from marpack.gate.verdicts import GateReport, GateVerdict, Verdict
from marpack.project.source import resolve
from marpack.protocol.messages import Load
from marpack.protocol.targets import Target
from marpack.runner.inputs import FORM_TYPE, Input, RequestDefaults
from marpack.runner.session import Device
from marpack.torchserve.http import Part

pytestmark = pytest.mark.usefixtures("small_windows")

REFUSES = HANDLER.replace("return [self", "raise ValueError('no')\n        return [self")


def unproved(report: GateReport) -> list[str]:
    return failures(report)["proved"]


def given(*texts: str) -> tuple[Input, ...]:
    shape = RequestDefaults()
    return tuple(shape.input("one.txt", number, "text/plain", text.encode()) for number, text in enumerate(texts))


@pytest.mark.parametrize(
    ("options", "codes"),
    [
        ({"samples": {}}, ["no-inputs"]),
        ({"handler": REFUSES, "expect": {name: {"status": 503} for name in SAMPLES}}, ["no-answer"]),
        ({"config": {"sequenceBatching": True, "sequenceMaxIdleMSec": 1000}}, ["sequence-batching"]),
    ],
    ids=["no samples", "samples that are to fail", "sequences"],
)
def test_an_archive_that_is_not_proved(tmp_path: Path, options: dict[str, Any], codes: list[str]):
    report = examine(archive(tmp_path / "p", **options), stand_ins="off")
    assert failures(report) == {"proved": codes}
    assert (report.verdict, report.deployable, report.exit_code) == (GateVerdict.NOT_PROVED, False, ExitCode.SHORT)


def test_every_check_uses_the_given_inputs(tmp_path: Path):
    report = examine(archive(tmp_path / "p", samples={}), inputs=given("a bee", "out at sea"))
    assert (report.verdict, report.caveats) == (GateVerdict.DEPLOYABLE, [])
    reasons = [found(report, name).reason for name in ("samples", "batch-contract", "repeatable", "proved")]
    assert [re.findall(r"\d+", reason)[0] for reason in reasons] == ["2"] * 4
    refuses = archive(tmp_path / "q", REFUSES, samples={})
    report = examine(refuses, inputs=given("a bee"), allow_unproved=frozenset({"inputs", "gpu"}))
    assert failures(report) == {"samples": ["sample-missed"]}
    assert report.verdict is GateVerdict.REFUSED
    (missed,) = found(report, "samples").findings
    assert missed.where == "one.txt"
    assert "ValueError: no" in missed.message


def test_a_downgraded_failure_of_samples_or_loading_proves_nothing(tmp_path: Path):
    report = examine(project(tmp_path / "p", REFUSES, checks={"samples": "note"}))
    assert unproved(report) == ["unexpected-status"]
    assert report.verdict is GateVerdict.NOT_PROVED
    assert found(report).reason.startswith("3 of 3 requests ")
    assert [checked.name for checked in report.downgraded] == ["samples"]
    report = examine(project(tmp_path / "n", samples={}, checks={"proved": "note"}), stand_ins="off")
    assert (report.verdict, report.exit_code) == (GateVerdict.NOT_PROVED, ExitCode.SHORT)
    folder = project(tmp_path / "q", checks={"loads": "warning"})
    (folder / "handler.py").write_text(HANDLER.replace("json.load(file)", "json.loads('{')"))
    report = examine(folder)
    assert unproved(report) == ["nothing-asked"]
    assert (report.verdict, report.exit_code) == (GateVerdict.NOT_PROVED, ExitCode.SHORT)


def test_a_batch_must_succeed_too(tmp_path: Path):
    one_for_all = HANDLER.replace("enumerate(self.preprocess(data))]", "enumerate(self.preprocess(data))][:1]")
    report = examine(archive(tmp_path / "p", one_for_all), choice=select_checks(["proved"]))
    assert failures(report) == {"proved": ["batch-unproved"]}
    assert re.findall(r"\d+", found(report).reason)[:2] == ["2", "503"]  # requests in the batch; the status
    whole = examine(archive(tmp_path / "q", one_for_all))
    assert (list(failures(whole)), whole.verdict) == (["batch-contract"], GateVerdict.REFUSED)
    assert whole.checks[-1].reason == "batch-contract failed"


def test_one_input_fills_a_batch_and_the_verdict_has_a_caveat(tmp_path: Path):
    report = examine(archive(tmp_path / "p", samples={"bee.txt": "a bee"}))
    (caveat,) = [finding for finding in report.checks[-1].findings if finding.code == "one-input"]
    assert report.deployable
    assert report.caveats == [caveat.message]
    alone = examine(archive(tmp_path / "q", samples={"bee.txt": "a bee"}, config={"batchSize": 1}))
    assert alone.deployable
    assert alone.caveats == []


def test_allowed_gaps_of_the_proof_are_caveats(tmp_path: Path):
    path = archive(tmp_path / "p", samples={}, config={"deviceType": "gpu", "batchSize": 4})
    every = examine(path, stand_ins="off")
    assert unproved(every) == ["no-inputs", "gpu-unproved"]
    some = examine(path, stand_ins="off", allow_unproved=frozenset({"inputs"}))
    assert (some.verdict, unproved(some)) == (GateVerdict.NOT_PROVED, ["allowed-unproved", "gpu-unproved"])
    (caveat,) = some.caveats
    assert "(--allow-unproved inputs)" in caveat
    none = examine(path, stand_ins="off", allow_unproved=frozenset({"inputs", "gpu"}))
    assert (none.verdict, none.exit_code) == (GateVerdict.DEPLOYABLE, ExitCode.OK)
    assert none.checks[-1].reason.startswith("0 requests ")
    assert re.findall("--allow-unproved ([a-z]+)", " ".join(none.caveats)) == ["inputs", "gpu"]


@pytest.mark.slow
@pytest.mark.parametrize("target", list(Target))
def test_forms_and_headers_reach_the_handler_in_every_check(tmp_path: Path, target: Target):
    picky = HANDLER.replace(
        "return [self.answer", "assert context.get_request_header(0, 'X-Key') == '7'\n        return [self.answer"
    )
    path = archive(tmp_path / "p", picky, samples={})
    shape = RequestDefaults(headers=(("X-Key", "7"),))
    report = examine(path, target=target, inputs=(shape.input("a", 0, "text/plain", b"a bee"),))
    assert failures(report) == {}
    assert "form" in found(report, "body-forms").reason
    assert list(failures(examine(path, inputs=given("a bee")))) == ["samples"]


def on_device(answer: str) -> str:
    """Return a handler that claims the device that it is given."""
    return f"""
class Handler:
    def initialize(self, context):
        self.device = "cpu" if context.system_properties.get("gpu_id") is None else "cuda:0"

    def handle(self, data, context):
        return [{answer} for row in data]
"""


@pytest.mark.parametrize(
    ("answer", "codes"),
    [
        pytest.param("{'p': 0.5 + 1e-4 * (self.device == 'cpu')}", [], marks=pytest.mark.slow),
        ("{'p': 0.5 + 1e-2 * (self.device == 'cpu')}", ["cpu-differs", "cpu-differs"]),
        pytest.param("{'p': 1.0 if self.device == 'cuda:0' else 1 / 0}", ["cpu-differs"] * 2, marks=pytest.mark.slow),
    ],
)
def test_responses_of_a_gpu_are_compared_with_the_cpu(tmp_path: Path, answer: str, codes: list[str]):
    texts = {"a.txt": "a", "b.txt": "b"}
    path = archive(tmp_path / "p", on_device(answer), samples=texts, labels=None, config={"deviceType": "gpu"})
    report = examine(path, load=Load(model_dir="", gpu_id=0), device=Device("cuda"))
    assert (report.verdict, report.device) == (GateVerdict.DEPLOYABLE, "cuda:0")
    assert report.checks[-1].reason.endswith(" CPU, tolerance 0.001")
    assert [finding.code for finding in report.checks[-1].findings] == codes
    assert all(" CPU: " in each.message for each in report.checks[-1].findings)
    assert all("tolerance 0.001" in each.message for each in report.checks[-1].findings)


@pytest.mark.slow
def test_a_model_that_needs_its_gpu_is_not_compared(tmp_path: Path):
    needs = on_device("'a'").replace('"cpu" if', "1 / 0 if")
    path = archive(tmp_path / "p", needs, samples={"a.txt": "a"}, labels=None)
    report = examine(path, load=Load(model_dir="", gpu_id=0), device=Device("cuda"))
    assert report.verdict is GateVerdict.DEPLOYABLE
    assert "compared" not in report.checks[-1].reason


def test_a_module_that_only_this_machine_lacks_is_not_a_fault_and_not_a_proof(tmp_path: Path):
    lacking = next(name for name in ("captum", "pynvml", "torchaudio", "torchvision") if find_spec(name) is None)
    report = examine(archive(tmp_path / "p", f"import {lacking}\n{HANDLER}"))
    loads = found(report, "loads")
    assert loads.verdict == found(report, "samples").verdict == Verdict.SKIPPED
    assert loads.reason == found(report, "samples").reason
    assert [finding.code for finding in loads.findings] == ["lacking-here"]
    assert f"pip install {lacking}" in str(loads.findings[0].hint).replace("nvidia-ml-py", "pynvml")
    assert (report.verdict, report.exit_code) == (GateVerdict.NOT_PROVED, ExitCode.SHORT)
    assert loads.reason in found(report).reason


def test_a_model_that_waits_for_other_ranks_is_not_proved(tmp_path: Path):
    config = {"parallelType": "tp", "torchrun": {"nproc-per-node": 2}}
    report = examine(archive(tmp_path / "p", "import time\ntime.sleep(600)\n" + HANDLER, config=config))
    loads = found(report, "loads")
    assert (loads.verdict, [each.code for each in loads.findings]) == ("skipped", ["torchrun-ranks"])
    assert failures(report) == {"proved": ["nothing-asked"]}
    assert (report.verdict, report.exit_code) == (GateVerdict.NOT_PROVED, ExitCode.SHORT)
    assert report.seconds < 20


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


def candidate(path: Path) -> Candidate:
    return Candidate(resolve(str(path)), CheckOptions())


def test_a_failed_stand_in_shows_the_handlers_own_traceback(tmp_path: Path):
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


@pytest.mark.slow
def test_a_stand_in_that_fails_in_a_batch_only(tmp_path: Path):
    first_only = HANDLER.replace("enumerate(self.preprocess(data))]", "enumerate(self.preprocess(data))][:1]")
    report = examine(archive(tmp_path / "p", first_only, samples={}))
    ((lack, _), (code, message)) = told(report)
    assert (lack, code) == ("no-inputs", "stand-in-failed")
    assert message.startswith("a text, ")
    assert " batch of 2, gets 503" in message


def test_stand_ins_that_succeed_prove_nothing(tmp_path: Path):
    report = examine(archive(tmp_path / "p", samples={}))
    ((code, message),) = told(report)[1:]
    assert code == "stand-in-answered"
    assert message.startswith("a text, ")
    assert re.findall(r"alone|batch of \d", message) == ["alone", "batch of 2", "batch of 4"]
    assert (report.verdict, report.exit_code) == (GateVerdict.NOT_PROVED, 1)


def test_stand_ins_have_a_worker_of_their_own(tmp_path: Path):
    marks = tmp_path / "marks"
    marks.mkdir()
    marking, file = HANDLER, f"        open({str(marks)!r} + '/' + str(os.getpid()), 'a')"
    for function, line in (("handle(self, data, context)", f"{file}.write('x')"), ("initialize(self, context)", file)):
        marking = marking.replace(f"def {function}:", f"def {function}:\n{line}")
    examine(archive(tmp_path / "p", marking, samples={}))
    sizes = sorted(path.stat().st_size for path in marks.iterdir())
    assert (len(sizes), sizes[0]) == (2, 0), "the checks' own worker gets no stand-in"
    assert sizes[1] > 0


@pytest.mark.slow
def test_a_stand_in_that_hangs_takes_no_longer_than_a_check_may(tmp_path: Path):
    hangs = HANDLER.replace("return [self.text_of", "import time; time.sleep(600)\n        return [self.text_of")
    report = examine(archive(tmp_path / "p", hangs, samples={}), seconds_per_check=1.0)
    assert told(report)[1][0] == "stand-in-failed"


@pytest.mark.parametrize(
    ("line", "risk"),
    [
        ("import requests", "requests network"),
        ("from sqlalchemy.orm import Session", "sqlalchemy database"),
        ("import smtplib", "smtplib mail"),
        ("import boto3", "boto3 cloud"),
        pytest.param("import requests #" + "x" * (257 << 10), "handler py not read", id="too large to read"),
    ],
)
def test_no_stand_in_is_sent_to_a_handler_with_possible_side_effects(tmp_path: Path, line: str, risk: str):
    path = archive(tmp_path / "p", f"def later():\n    {line}\n{HANDLER}", samples={})
    with candidate(path) as asked:
        assert set(risk.split()) <= set(re.findall(r"\w+", str(find_stand_in_risk(asked))))


def test_stand_ins_that_were_not_sent_are_reported_and_can_be_requested(tmp_path: Path):
    path = archive(tmp_path / "p", "import urllib\n" + HANDLER, samples={})
    ((code, message),) = told(examine(path))[1:]
    assert code == "no-stand-in"
    assert " urllib," in message
    assert told(examine(path, stand_ins="on"))[1][0] == "stand-in-answered"
    assert failures(examine(path, stand_ins="off")) == {"proved": ["no-inputs"]}


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
def test_stand_ins_have_the_type_and_shape_of_the_models_input(make_mar, entry: str, source: str, kinds: list[str]):
    with candidate(make_mar(source, entry=entry)) as asked:
        requests = [each.request for each in make_stand_ins(asked)]
    assert [request.parts[0].content_type for request in requests] == kinds
    onnx = (Path(__file__).parents[2] / "templates/init/onnx/model.onnx").read_bytes()
    source = "handle = lambda data, context: tensor(data)\n"
    with candidate(make_mar(source, files={"model.onnx": onnx}, serializedFile="model.onnx")) as asked:
        (made,) = make_stand_ins(asked)
    assert len(json.loads(made.request.parts[0].value)) == 3, "as the model's input"


BEE, SKY = "a bee in summer", "why try rhythm"
CONTENTS = {"bee.txt": BEE, "copy.txt": BEE, "sky.txt": SKY}


def mark(content: str) -> str:
    return f"sha256:{hashlib.sha256(content.encode()).hexdigest()}"


def marked(folder: Path, marks: Mapping[str, object], contents: dict[str, str] | None = None) -> Path:
    """Write a project with some samples, marked by their names."""
    project(folder, samples=CONTENTS if contents is None else contents)
    file = folder / "marpack.yaml"
    keys = yaml.safe_load(file.read_text())
    for sample in keys["samples"]:
        name = sample["input"].removeprefix("samples/")
        sample.update({"generated": marks[name]} if name in marks else {})
    file.write_text(yaml.safe_dump(keys))
    return folder


def typed(text: str) -> Input:
    return RequestDefaults().input("typed", 7, "text/plain", text.encode())


def generated(source: Path, *inputs: Input) -> list[str]:
    with Candidate(resolve(str(source)), CheckOptions(inputs=inputs)) as candidate:
        return [sample.short_name.removeprefix("samples/") for sample in candidate.samples if sample.is_generated]


@pytest.mark.parametrize(
    ("marks", "expected"),
    [
        ({}, []),
        ({"bee.txt": mark(BEE)}, ["bee.txt", "copy.txt"]),  # a copy under another name, which has no mark
        ({"sky.txt": mark("before it was changed")}, []),
        ({"bee.txt": mark(BEE), "copy.txt": mark(BEE), "sky.txt": mark(BEE)}, ["bee.txt", "copy.txt"]),
    ],
)
def test_a_mark_holds_for_its_content(tmp_path: Path, marks: dict[str, str], expected: list[str]):
    assert generated(marked(tmp_path / "p", marks)) == expected


def test_only_a_digest_is_a_mark_which_is_packed_until_it_is_removed(tmp_path: Path):
    folder = marked(tmp_path / "p", {"sky.txt": mark(SKY)})
    path = resolve(str(folder)).path
    with open_archive(path) as opened:
        assert packed_samples(opened, RequestDefaults()).generated == {mark(SKY)}
    assert generated(path) == ["sky.txt"]
    file = folder / "marpack.yaml"
    file.write_text(file.read_text().replace(f"generated: {mark(SKY)}", ""))
    assert generated(folder) == []
    for number, value in enumerate(("0" * 64, f"sha256:{'A' * 64}", 7)):
        with pytest.raises(ProjectError) as caught:
            resolve(str(marked(tmp_path / str(number), {"sky.txt": value})))
        (finding,) = caught.value.findings
        assert (finding.code, str(finding.where).rpartition(": ")[2]) == ("samples", "samples[2].generated")


def test_generated_samples_alone_prove_nothing(tmp_path: Path):
    path = marked(tmp_path / "p", {"bee.txt": mark(BEE)}, {"bee.txt": BEE, "copy.txt": BEE})
    report = examine(path, choice=select_checks(skip=["memory"]), stand_ins="on")
    assert failures(report) == {"proved": ["generated-sample"]}
    assert (report.verdict, report.samples, report.generated) == (GateVerdict.NOT_PROVED, 2, 2)
    form = RequestDefaults().input("form", 8, FORM_TYPE, (Part("data", BEE.encode()), Part("more", b"1")))
    assert generated(path, typed(BEE), form, typed(SKY)) == ["bee.txt", "copy.txt", "typed", "form"]
    some = select_checks(["samples", "proved"])
    beside = examine(path, choice=some, inputs=(typed(SKY),))
    assert (failures(beside), beside.samples, beside.generated) == ({}, 3, 2)
    # The batch of two holds the real input alone.
    assert [finding.code for finding in beside.checks[-1].findings] == ["one-input"]
    waived = examine(path, choice=some, allow_unproved=frozenset({"inputs"}))
    assert [finding.code for finding in waived.checks[-1].findings] == ["allowed-unproved"]


def test_a_real_sample_must_succeed_itself(tmp_path: Path):
    fails = {"no.txt": "", "bee.txt": BEE}
    folder = marked(tmp_path / "p", {"bee.txt": mark(BEE)}, fails)
    file = folder / "marpack.yaml"
    file.write_text(
        file.read_text().replace("- input: samples/no.txt", "- expect: {status: 503}\n  input: samples/no.txt")
    )
    assert failures(examine(folder, choice=select_checks(["samples", "proved"]))) == {"proved": ["generated-sample"]}
