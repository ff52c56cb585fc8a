"""`check --require-safe`: programs and weights that need trust fail, whatever else is trusted."""

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gate.archives import HANDLER, archive, examine, found, project
from inspection.containers import zipped
from invoking import invoke
from isal import isal_zlib

import marpack
from marpack.api.sessions import SessionNotes
from marpack.archive.reader import open_archive
from marpack.cli.session import show_notable
from marpack.errors import ArchiveError, ExitCode
from marpack.findings import Finding, Severity
from marpack.gate.check import select_checks
from marpack.gate.verdicts import CheckResult, Verdict
from marpack.project.source import ResolvedSource
from marpack.protocol.messages import Load
from marpack.serving.loading import AdmissionRules, ProgramsRefusedError

LIBRARY = Path(isal_zlib.__file__).read_bytes()[:2000]
NATIVE = {"notes.txt": LIBRARY}
EXPORTED = {"net.bin": zipped({"net/archive_format": b"pt2", "net/models/net.json": b"{}"})}  # a torch.export program
UNREAD = {"words.pkl": pickle.dumps({"a": 1})[:-1]}


@pytest.fixture(scope="module")
def native(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return archive(tmp_path_factory.mktemp("native"), files=NATIVE)


@pytest.fixture(scope="module")
def unread(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return archive(tmp_path_factory.mktemp("unread"), files=UNREAD)


def pickles_of(path: Path, **options: Any) -> CheckResult:
    return found(examine(path, choice=select_checks(["pickles"]), **options), "pickles")


def test_programs_and_unread_pickles_fail_where_safety_is_required(tmp_path: Path, native: Path, unread: Path) -> None:
    trusting = Load(model_dir="", trust_pickle=True)
    assert pickles_of(unread, load=trusting).verdict is Verdict.PASSED
    assert pickles_of(unread, load=trusting, require_safe=True).verdict is Verdict.FAILED
    for options, verdict, severity in [
        ({}, Verdict.PASSED, Severity.NOTE),
        ({"require_safe": True}, Verdict.FAILED, Severity.ERROR),
        ({"require_safe": True, "trust_native": True}, Verdict.PASSED, Severity.NOTE),
    ]:
        for path in (native, archive(tmp_path, files=EXPORTED)):
            checked = pickles_of(path, **options)
            assert checked.verdict is verdict
            assert checked.exit_code == ExitCode.SHORT
            assert [(finding.code, finding.severity) for finding in checked.findings] == [("program", severity)]


def test_weights_of_an_unknown_format_are_not_called_safe(make_mar: Callable[..., Path]) -> None:
    named = {"serializedFile": "model.h5"}
    for content, is_known in [(b"\x89HDF\r\n", False), (pickle.dumps({"a": 1}), True)]:
        checked = pickles_of(make_mar(HANDLER, files={"model.h5": content}, **named))
        assert ("safe" in checked.reason, "unknown" in checked.reason) == (is_known, not is_known)


def test_a_project_cannot_weaken_the_requirement(tmp_path: Path) -> None:
    folder = project(tmp_path, files=NATIVE, checks={"pickles": "warning"})
    for required, exit_code in [(False, ExitCode.OK), (True, ExitCode.SHORT)]:
        assert examine(folder, choice=select_checks(["pickles"]), require_safe=required).exit_code is exit_code


def test_run_and_score_report_programs(native: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found: list[Finding] = []
    with open_archive(native) as opened:
        SessionNotes(found.extend, env="isolated").opened(ResolvedSource(path=native), opened)
    assert [(each.code, each.severity) for each in found] == [("program", Severity.NOTE)]
    show_notable(found)
    assert "program" in capsys.readouterr().err


def test_check_and_serve_agree(native: Path, unread: Path, tmp_path: Path) -> None:
    plain = archive(tmp_path)
    files = {"model.h5": b"\x89HDF\r\n", "b.pkl": pickle.dumps(1)}
    keras = archive(tmp_path / "keras", files=files, weights="model.h5")
    exported = archive(tmp_path / "exported", files=EXPORTED)
    for path in (native, unread, plain, keras, exported):
        for trust in (False, True):
            with open_archive(path) as opened:
                try:
                    AdmissionRules(require_safe=True, trust_native=trust).check(opened)
                    admitted = True
                except ArchiveError:
                    admitted = False
            passed = pickles_of(path, require_safe=True, trust_native=trust).verdict is Verdict.PASSED
            assert admitted is passed is (path == plain or (trust and path in {native, keras, exported}))
    with open_archive(native) as opened, pytest.raises(ProgramsRefusedError) as refused:
        AdmissionRules(require_safe=True).check(opened)
    assert (refused.value.code, refused.value.exit_code) == ("program", ExitCode.SHORT)
    assert refused.value.hint
    with open_archive(native) as opened:
        assert [finding.code for finding in AdmissionRules().check(opened)] == ["program"]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["check", "--only", "pickles"], 0),
        (["check", "--only", "pickles", "--require-safe"], 1),
        (["check", "--only", "pickles", "--require-safe", "--trust-native"], 0),
        (["check", "--only", "pickles", "--trust-native"], 2),
        (["check", "--require-safe", "--skip", "pickles"], 2),
        (["check", "--require-safe", "--only", "digests"], 2),
        (["serve", "--port", "0", "--trust-native"], 2),
        (["serve", "--port", "0", "--require-safe"], 1),
    ],
)
def test_the_commands_have_the_options(native: Path, words: list[str], code: int) -> None:
    assert invoke(*words, str(native), code=code).returncode == code
    required, trusted = "--require-safe" in words, "--trust-native" in words
    if words[:3] == ["check", "--only", "pickles"] and code < 2:  # the Python function has these options, too
        found = marpack.check(native, only=["pickles"], require_safe=required, trust_native=trusted)
        assert found.exit_code == code
