"""The check `proved`: nothing may be deployed that was not seen to answer; what was waived is said."""

import re
from importlib.util import find_spec
from pathlib import Path

import pytest
from gate.archives import HANDLER, SAMPLES, archive, examine, failures, project

from marpack.errors import ExitCode
from marpack.gate.check import CheckSelection
from marpack.gate.verdicts import GateReport, GateVerdict, Verdict
from marpack.protocol.messages import Load
from marpack.protocol.targets import Target
from marpack.runner.device import Device
from marpack.runner.inputs import Input, RequestDefaults

REFUSES = HANDLER.replace("return [self", "raise ValueError('no')\n        return [self")


def given(*texts: str) -> tuple[Input, ...]:
    shape = RequestDefaults()
    return tuple(shape.input("one.txt", number, "text/plain", text.encode()) for number, text in enumerate(texts))


def unproved(report: GateReport) -> list[str]:
    return failures(report)["proved"]


def test_without_samples_it_is_not_proved(tmp_path: Path):
    report = examine(archive(tmp_path / "p", samples={}), stand_ins="off")
    assert failures(report) == {"proved": ["no-inputs"]}
    assert (report.verdict, report.deployable, report.exit_code) == (GateVerdict.NOT_PROVED, False, ExitCode.SHORT)


def test_an_input_proves_it_and_every_check_asks_it(tmp_path: Path):
    report = examine(archive(tmp_path / "p", samples={}), inputs=given("a bee", "out at sea"))
    reasons = {checked.name: checked.reason for checked in report.checks}
    assert (report.verdict, report.caveats) == (GateVerdict.DEPLOYABLE, [])
    assert reasons["samples"] == "2 inputs"
    assert reasons["batch-contract"] == "batches of 2 to 4"
    assert reasons["repeatable"].startswith("2 samples, ")
    assert reasons["proved"].startswith("2 requests ")
    assert "batch of 2" in reasons["proved"]


def test_inputs_stand_beside_samples(tmp_path: Path):
    report = examine(archive(tmp_path / "p"), inputs=given("a bee"))
    assert next(checked for checked in report.checks if checked.name == "samples").reason == "3 samples, 1 input"


def test_an_input_that_falls_short_is_a_no(tmp_path: Path):
    report = examine(archive(tmp_path / "p", REFUSES, samples={}), inputs=given("a bee"))
    assert failures(report) == {"samples": ["sample-missed"]}
    assert report.verdict is GateVerdict.REFUSED
    found = next(checked for checked in report.checks if checked.name == "samples").findings[0]
    assert found.where == "one.txt"
    assert "ValueError: no" in str(found.hint)


def test_samples_that_are_to_fail_prove_nothing(tmp_path: Path):
    expect = {name: {"status": 503} for name in SAMPLES}
    report = examine(archive(tmp_path / "p", REFUSES, expect=expect))
    assert failures(report) == {"proved": ["no-answer"]}
    assert report.verdict is GateVerdict.NOT_PROVED


def test_a_sample_that_fails_proves_nothing_however_little_it_weighs(tmp_path: Path):
    report = examine(project(tmp_path / "p", REFUSES, checks={"samples": "note"}))
    assert unproved(report) == ["unexpected-status"]
    assert report.verdict is GateVerdict.NOT_PROVED
    assert report.unproved.startswith("3 of 3 requests ")
    assert [checked.name for checked in report.downgraded] == ["samples"]


def test_a_model_that_was_not_loaded_is_not_proved_however_little_that_weighs(tmp_path: Path):
    folder = project(tmp_path / "p", checks={"loads": "warning"})
    (folder / "handler.py").write_text(HANDLER.replace("json.load(file)", "json.loads('{')"))
    report = examine(folder)
    assert unproved(report) == ["nothing-asked"]
    assert (report.verdict, report.exit_code) == (GateVerdict.NOT_PROVED, ExitCode.SHORT)


def test_it_weighs_as_the_project_says(tmp_path: Path):
    report = examine(project(tmp_path / "p", samples={}, checks={"proved": "note"}), stand_ins="off")
    assert (report.verdict, [each.name for each in report.downgraded]) == (GateVerdict.DEPLOYABLE, ["proved"])


def test_a_batch_must_be_answered_too(tmp_path: Path):
    one_for_all = HANDLER.replace("enumerate(self.preprocess(data))]", "enumerate(self.preprocess(data))][:1]")
    report = examine(archive(tmp_path / "p", one_for_all), choice=CheckSelection.of(["proved"]))
    assert failures(report) == {"proved": ["batch-unproved"]}
    assert report.verdict is GateVerdict.NOT_PROVED
    assert re.findall(r"\d+", report.unproved)[:2] == ["2", "503"]  # requests in the batch; the status
    whole = examine(archive(tmp_path / "q", one_for_all))
    assert (list(failures(whole)), whole.verdict) == (["batch-contract"], GateVerdict.REFUSED)
    assert whole.checks[-1].reason == "batch-contract failed"


def test_one_input_stands_in_every_row_and_the_verdict_says_so(tmp_path: Path):
    report = examine(archive(tmp_path / "p", samples={"bee.txt": "a bee"}))
    (caveat,) = [finding for finding in report.checks[-1].findings if finding.code == "one-input"]
    assert report.deployable
    assert report.caveats == [caveat.message]
    alone = examine(archive(tmp_path / "q", samples={"bee.txt": "a bee"}, config={"batchSize": 1}))
    assert alone.deployable
    assert alone.caveats == []


def test_what_is_waived_is_said(tmp_path: Path):
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
    assert [re.findall("--allow-unproved [a-z]+", caveat) for caveat in none.caveats] == [
        ["--allow-unproved inputs"],
        ["--allow-unproved gpu"],
    ]


def test_a_failure_is_not_waived(tmp_path: Path):
    allowed = frozenset({"inputs", "gpu"})
    report = examine(archive(tmp_path / "p", REFUSES), allow_unproved=allowed)
    assert report.verdict is GateVerdict.REFUSED


@pytest.mark.nightly
@pytest.mark.parametrize("target", list(Target))
def test_forms_and_headers_reach_the_handler_in_every_check(tmp_path: Path, target: Target):
    picky = HANDLER.replace(
        "return [self.answer", "assert context.get_request_header(0, 'X-Key') == '7'\n        return [self.answer"
    )
    path = archive(tmp_path / "p", picky, samples={})
    shape = RequestDefaults(headers=(("X-Key", "7"),))
    report = examine(path, target=target, inputs=(shape.input("a", 0, "text/plain", b"a bee"),))
    assert failures(report) == {}
    assert "form" in next(each.reason for each in report.checks if each.name == "body-forms")
    assert list(failures(examine(path, inputs=given("a bee")))) == ["samples"]


def on_device(answer: str) -> str:
    """Return a handler that is on the GPU that it is given, whether there is one or not, and answers by it."""
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
        pytest.param("{'p': 0.5 + 1e-4 * (self.device == 'cpu')}", [], marks=pytest.mark.nightly),
        ("{'p': 0.5 + 1e-2 * (self.device == 'cpu')}", ["cpu-differs", "cpu-differs"]),
        pytest.param(
            "{'p': 1.0 if self.device == 'cuda:0' else 1 / 0}", ["cpu-differs"] * 2, marks=pytest.mark.nightly
        ),
    ],
)
def test_what_a_gpu_answers_is_compared_with_the_cpu(tmp_path: Path, answer: str, codes: list[str]):
    texts = {"a.txt": "a", "b.txt": "b"}
    path = archive(tmp_path / "p", on_device(answer), samples=texts, labels=None, config={"deviceType": "gpu"})
    report = examine(path, load=Load(model_dir="", gpu_id=0), device=Device("cuda"))
    assert (report.verdict, report.device) == (GateVerdict.DEPLOYABLE, "cuda:0")
    assert report.checks[-1].reason.endswith(" CPU, tolerance 0.001")
    assert [finding.code for finding in report.checks[-1].findings] == codes
    assert all(" CPU: " in each.message for each in report.checks[-1].findings)
    assert all("tolerance 0.001" in each.message for each in report.checks[-1].findings)


@pytest.mark.nightly
def test_a_model_that_needs_its_gpu_is_compared_with_nothing(tmp_path: Path):
    needs = on_device("'a'").replace('"cpu" if', "1 / 0 if")
    path = archive(tmp_path / "p", needs, samples={"a.txt": "a"}, labels=None)
    report = examine(path, load=Load(model_dir="", gpu_id=0), device=Device("cuda"))
    assert report.verdict is GateVerdict.DEPLOYABLE
    assert "compared" not in report.checks[-1].reason


def test_what_only_this_machine_lacks_is_no_fault_and_no_proof(tmp_path: Path):
    lacking = next(name for name in ("captum", "pynvml", "torchaudio", "torchvision") if find_spec(name) is None)
    report = examine(archive(tmp_path / "p", f"import {lacking}\n{HANDLER}"))
    found = {checked.name: checked for checked in report.checks}
    assert found["loads"].verdict == found["samples"].verdict == Verdict.SKIPPED
    assert found["loads"].reason == found["samples"].reason
    assert [finding.code for finding in found["loads"].findings] == ["lacking-here"]
    assert f"pip install {lacking}" in str(found["loads"].findings[0].hint).replace("nvidia-ml-py", "pynvml")
    assert (report.verdict, report.exit_code) == (GateVerdict.NOT_PROVED, ExitCode.SHORT)
    assert found["loads"].reason in report.unproved


def test_a_model_that_waits_for_other_ranks_is_not_proved(tmp_path: Path):
    config = {"parallelType": "tp", "torchrun": {"nproc-per-node": 2}}
    report = examine(archive(tmp_path / "p", "import time\ntime.sleep(600)\n" + HANDLER, config=config))
    found = {checked.name: checked for checked in report.checks}
    assert (found["loads"].verdict, [each.code for each in found["loads"].findings]) == ("skipped", ["torchrun-ranks"])
    assert failures(report) == {"proved": ["nothing-asked"]}
    assert (report.verdict, report.exit_code) == (GateVerdict.NOT_PROVED, ExitCode.SHORT)
    assert report.seconds < 20


def test_a_model_with_sequences_is_not_proved(tmp_path: Path):
    config = {"sequenceBatching": True, "sequenceMaxIdleMSec": 1000}
    report = examine(archive(tmp_path / "p", config=config), choice=CheckSelection.of(["proved"]))
    assert failures(report) == {"proved": ["sequence-batching"]}
    assert report.verdict is GateVerdict.NOT_PROVED
