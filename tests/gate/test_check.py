"""The gate itself: the order of the checks, how failures count, interruptions, and its documentation."""

import os
import pickle
import re
from pathlib import Path
from typing import Any

import pytest
from gate.archives import HANDLER, archive, examine, failures, found, project
from msgspec.inspect import type_info
from refusals import has_code

from marpack.archive.cache import Cache
from marpack.archive.reader import open_archive
from marpack.errors import ExitCode, UsageError
from marpack.findings import Finding, Severity
from marpack.gate.candidate import Candidate, CheckOptions
from marpack.gate.check import DEFAULT_CHECKS, check, select_checks
from marpack.gate.verdicts import CheckProgress, CheckResult, GateReport, GateVerdict, Verdict, judge
from marpack.project.schema import CHECKS, HERMETIC, PROOF, Check, Severities
from marpack.project.source import ResolvedSource
from marpack.protocol.messages import Load
from marpack.protocol.targets import Target
from marpack.runner.inputs import RequestDefaults

pytestmark = pytest.mark.usefixtures("small_windows")


def test_the_verdict_and_exit_code_of_each_outcome(tmp_path: Path):
    whole = archive(tmp_path / "whole")
    assert examine(whole, choice=select_checks(["samples"])).exit_code is ExitCode.OK
    every, some = examine(whole), examine(whole, choice=select_checks(skip=["memory"]))
    assert (every.verdict, every.deployable) == (GateVerdict.DEPLOYABLE, True)
    assert (some.verdict, some.deployable, some.exit_code) == (GateVerdict.PARTIAL, False, ExitCode.OK)
    (tmp_path / "cut.mar").write_bytes(whole.read_bytes().replace(b"vowels", b"VOWELS"))
    assert examine(tmp_path / "cut.mar").exit_code is ExitCode.ARCHIVE
    assert examine(archive(tmp_path / "raises", "{}['x']\n" + HANDLER)).exit_code is ExitCode.HANDLER
    assert examine(archive(tmp_path / "syntax", "def (")).exit_code is ExitCode.SHORT


def test_a_file_that_is_not_an_archive_has_a_complete_report(tmp_path: Path):
    (tmp_path / "no.mar").write_text("no")
    report = examine(tmp_path / "no.mar", choice=select_checks(["samples"]))
    assert [checked.name for checked in report.checks] == [each.name for each in CHECKS if not each.optional]
    assert failures(report) == {"safe-to-open": ["not-an-archive"]}
    assert found(report, "samples").reason == "safe-to-open failed"
    assert found(report, "labels").reason == "left out"
    assert (report.verdict, report.deployable, report.exit_code) == (GateVerdict.REFUSED, False, ExitCode.ARCHIVE)


def test_an_untrusted_archive_is_not_loaded(tmp_path: Path):
    marked = tmp_path / "loaded"
    report = examine(archive(tmp_path / "p", f"open({str(marked)!r}, 'w')\ndef broken(:\n"))
    assert found(report, "loads").reason == "preflight failed"
    assert not marked.exists()


def test_a_trusted_archive_may_be_unread_but_not_dangerous(tmp_path: Path):
    cut = archive(tmp_path / "cut", files={"words.pkl": pickle.dumps({"a": 1})[:-1]})
    evil = archive(tmp_path / "evil", files={"words.pkl": b"cposix\nsystem\n."})
    plain, trusting = Load(model_dir=""), Load(model_dir="", trust_pickle=True)
    for path, options, passes in [(cut, plain, False), (cut, trusting, True), (evil, trusting, False)]:
        report = examine(path, choice=select_checks(["pickles"]), load=options)
        assert report.verdict is (GateVerdict.PARTIAL if passes else GateVerdict.REFUSED)
        assert not report.deployable


def test_a_bound_of_opcodes_is_the_users_to_raise(tmp_path: Path):
    path = archive(tmp_path, files={"words.pkl": pickle.dumps(list(range(1000)))})
    for limit, is_unread in [(100, True), (None, False), (10_000, False)]:
        with Candidate(ResolvedSource(path=path), CheckOptions(max_opcodes=limit)) as candidate:
            assert bool(candidate.inspection.pickles.unscanned) is is_unread


@pytest.mark.parametrize(
    ("name", "suffix"), [("w.safetensors", ".safetensors"), ("w.pt2", ".pt2"), ("w.pt", None), ("w.own", None)]
)
def test_weights_that_no_server_loads_are_named(name: str, suffix: str | None, tmp_path: Path):
    leaves_it = "from ts.torch_handler.base_handler import BaseHandler\n\n\nclass Handler(BaseHandler):\n    pass\n"
    path = archive(tmp_path / "p", leaves_it, weights=name, files={name: b"x"})
    assert examine(path, choice=select_checks(["safe-to-open"])).unserved == suffix
    loads_itself = archive(tmp_path / "q", weights=name, files={name: b"x"})
    assert examine(loads_itself, choice=select_checks(["safe-to-open"])).unserved is None


def test_checks_are_chosen_by_name():
    assert {each.name for each in CHECKS if not each.optional} == DEFAULT_CHECKS
    assert select_checks(["samples", "loads"]) == {"samples", "loads"}
    assert "memory" not in select_checks(skip=["memory"])
    assert select_checks(only=[HERMETIC]) == {HERMETIC, PROOF}
    assert select_checks(further=[HERMETIC]) == {HERMETIC} | DEFAULT_CHECKS
    for skip in (PROOF, HERMETIC):
        with pytest.raises(UsageError, check=has_code("hermetic-without-proof")):
            select_checks(skip=[skip], further=[HERMETIC])


def test_a_wrong_choice_names_the_check():
    for only, skip, named in [
        (["sampels"], [], "Did you mean samples?"),
        ([], ["Memory!"], "Did you mean memory?"),
        (["xyz"], [], "safe-to-open, digests,"),
        (["samples"], ["samples"], "--only or with --skip"),
        ([], DEFAULT_CHECKS, "Skip fewer"),
    ]:
        with pytest.raises(UsageError) as caught:
            select_checks(only, skip)
        assert named in str(caught.value.hint)


def test_a_downgraded_failure_does_not_block_deployment(tmp_path: Path):
    broken = HANDLER.replace("return {self", 'os.path.exists("log.txt") or open("log.txt", "a")\n        return {self')
    folder = project(tmp_path / "p", broken, checks={"model-folder": "warning"})
    for _ in range(2):  # the second check finds it again
        report = examine(folder)
        assert failures(report) == {"model-folder": ["model-folder-written"]}
        assert (report.deployable, report.exit_code) == (True, ExitCode.OK)


ONCE = """
import os

import tempfile

LOCK = PATH


class Handler:
    def initialize(self, context):
        open(LOCK, "x")

    def handle(self, data, context):
        if "why" in str(data):
            os._exit(1)
        return [len(str(row)) for row in data]
"""


def test_a_worker_that_cannot_be_started_again_fails_one_check(tmp_path: Path):
    report = examine(archive(tmp_path / "p", ONCE.replace("PATH", repr(str(tmp_path / "lock")))))
    assert failures(report) == {"samples": ["load"]}
    assert "FileExistsError" in found(report, "samples").reason
    assert found(report, "memory").reason == "samples failed"


class Interrupting(CheckProgress):
    """Interrupts one check."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.told: list[CheckResult] = []

    def begins(self, check: Check) -> None:
        if check.name == self.name:
            raise KeyboardInterrupt

    def ends(self, checked: CheckResult) -> None:
        self.told.append(checked)


@pytest.mark.parametrize("name", ["digests", "loads", "batch-contract"])
def test_an_interrupted_check_tells_what_is_done(tmp_path: Path, name: str):
    listener = Interrupting(name)
    with Candidate(ResolvedSource(path=archive(tmp_path / "p")), CheckOptions()) as candidate:
        report = check(candidate, listener=listener)
    place = [each.name for each in CHECKS].index(name)
    assert [checked.verdict for checked in report.checks[:place]].count(Verdict.FAILED) == 0
    assert {checked.reason for checked in report.checks[place:]} == {"interrupted"}
    assert (report.interrupted, report.deployable, report.exit_code) == (True, False, ExitCode.INTERRUPTED)
    assert report.content_digest is not None
    assert listener.told == list(report.checks)


def test_workers_load_the_packed_files_not_changed_extracted_ones(tmp_path: Path):
    path = archive(tmp_path / "p")
    cache = tmp_path / "cache"
    with open_archive(path, cache=Cache(cache)) as opened:
        handler = opened.materialize() / "handler.py"
    before = handler.stat()
    handler.write_text(HANDLER.replace("vowels, self", "voyels, self"))
    os.utime(handler, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert failures(examine(path, choice=select_checks(["digests", "samples"]), cache=Cache(cache))) == {}


def test_a_fault_for_torchserve_only_is_a_note_for_the_other_target(tmp_path: Path):
    path = archive(tmp_path / "p")
    other = path.rename(path.with_suffix(".zip"))
    assert failures(examine(other)) == {"safe-to-open": ["archive-suffix"]}
    report = examine(other, choice=select_checks(["safe-to-open"]), target=Target.MARPACK)
    assert report.verdict is GateVerdict.PARTIAL
    assert [finding.severity for finding in report.checks[0].findings] == [Severity.NOTE]


def test_where_answers_vary_batches_are_still_counted(tmp_path: Path):
    varying = HANDLER.replace("return {self", 'return {"n": __import__("random").random()}\n        return {self')
    report = examine(archive(tmp_path / "p", varying))
    assert list(failures(report)) == ["repeatable"]
    assert found(report, "batch-contract").reason.startswith("batches of 2 to 4; ")  # which says that none was compared
    assert found(report, "batch-contract").verdict is Verdict.PASSED
    assert found(report, "body-forms").verdict is Verdict.SKIPPED


def test_a_sample_larger_than_the_server_takes_falls_short(tmp_path: Path):
    path = archive(tmp_path / "p", samples={"a.txt": "a bee", "large.txt": "e" * 6_553_501})
    report = examine(path)
    assert failures(report) == {"samples": ["sample-missed"]}
    (missed,) = found(report, "samples").findings
    assert " 413" in missed.message
    assert "6,553,501 bytes" in missed.message
    larger = RequestDefaults(max_request_size=7_000_000)
    assert examine(path, choice=select_checks(["samples"]), shape=larger).exit_code is ExitCode.OK


def test_each_check_has_a_severity_and_a_row_of_the_table_in_the_docs():
    names = [field.encode_name for field in type_info(Severities).fields]
    assert names == [*(each.name for each in CHECKS), "no-slower"]  # which was removed and is ignored
    document = (Path(__file__).parents[2] / "docs" / "check.md").read_text()
    rows = re.findall(r"^\| \[.*\|$", document.partition("<!-- table ")[2].partition("<!-- end")[0], re.MULTILINE)
    assert rows == [
        f"| [{each.name}](#{each.name}) | {each.title} | {'✓' if each.loads else ''} | {int(each.exit_code)} |"
        for each in CHECKS
    ]


NOTE = Finding(code="fyi", severity=Severity.NOTE, message="by the way")
BAD = Finding(code="bad", severity=Severity.ERROR, message="it is bad", where="x", hint="mend it")


def test_the_outcome_of_a_check():
    passed, failed = judge("fine", (NOTE,)), judge("fine", (NOTE, BAD))
    assert (passed.verdict, passed.reason, passed.findings) == (Verdict.PASSED, "fine", (NOTE,))
    assert (failed.verdict, failed.reason, failed.findings) == (Verdict.FAILED, "it is bad", (NOTE, BAD))
    assert judge("", [BAD, BAD]).reason == "it is bad (and 1 more)"


def done(verdict: Verdict, reason: str = "", **values: Any) -> CheckResult:
    return CheckResult(name="x", title="x", verdict=verdict, reason=reason, **values)


def report(*checks: CheckResult, interrupted: bool = False) -> GateReport:
    given: dict[str, Any] = {"archive": "a.mar", "content_digest": None, "target": "torchserve", "seconds": 1.0}
    return GateReport(checks=checks, interrupted=interrupted, verdict=GateVerdict.REFUSED, deployable=False, **given)


LIGHT = done(Verdict.FAILED, severity=Severity.WARNING, exit_code=ExitCode.ARCHIVE)
SHORT = done(Verdict.FAILED)
UNLOADED = done(Verdict.FAILED, exit_code=ExitCode.HANDLER)


@pytest.mark.parametrize(
    ("checks", "code"),
    [
        ((), ExitCode.OK),
        ((done(Verdict.PASSED), done(Verdict.SKIPPED)), ExitCode.OK),
        ((LIGHT,), ExitCode.OK),
        ((LIGHT, SHORT), ExitCode.SHORT),
        ((UNLOADED, SHORT), ExitCode.HANDLER),
        ((SHORT, UNLOADED), ExitCode.SHORT),
    ],
)
def test_the_first_failure_that_counts_is_the_exit_code(checks: tuple[CheckResult, ...], code: ExitCode):
    assert report(*checks).exit_code is code
    assert report(*checks, interrupted=True).exit_code is ExitCode.INTERRUPTED
