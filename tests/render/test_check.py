"""The gate's report on a terminal: one line per check, whatever the texts hold."""

import io
import re
import sys
import time
from typing import Any

import pytest
from msgspec.structs import replace
from render.reports import CHECKS, report

from marpack.findings import Finding, Severity
from marpack.gate.compare import Comparison, InputComparison, Similarity, Variant
from marpack.gate.verdicts import CheckResult, GateVerdict, Verdict
from marpack.project.schema import CHECKS as GATE_CHECKS
from marpack.render import progress
from marpack.render.check import AcrossLines, CheckLines, show_comparison, show_verdict


@pytest.mark.parametrize("width", [80, 140])
def test_a_line_per_check_and_its_findings(capsys, monkeypatch: pytest.MonkeyPatch, width: int):
    monkeypatch.setenv("COLUMNS", str(width))
    lines = CheckLines("my model.mar")
    for checked in CHECKS:
        lines.ends(checked)
    show_verdict(report())
    out = capsys.readouterr().out
    assert "✓ digests        8 members\n" in out
    assert "- loads          preflight failed\n" in out
    assert re.search("✗ memory         1 problem,.* warning\n", out)
    assert all(len(line) <= width for line in out.splitlines())
    assert "\x1b" not in out
    assert "\\x1b[31mred\\x00 \\ud800 ü 🦆 [red]markup[/]" in " ".join(out.split())
    assert "handler.py:12:" in out
    assert "labels 1.json: fyi" in out  # within the archive, which is named at the end


def ended(capsys: pytest.CaptureFixture[str], *checks: CheckResult) -> list[str]:
    lines = CheckLines("my model.mar")
    for checked in checks:
        lines.ends(checked)
    return capsys.readouterr().out.splitlines()


def finding(code: str, severity: Severity = Severity.ERROR, **more: str) -> Finding:
    return Finding(code=code, severity=severity, message=f"it is {code}", **more)


def failure(*findings: Finding, **more: Any) -> CheckResult:
    return CheckResult(name="loads", title="it loads", verdict=Verdict.FAILED, findings=findings, **more)


def test_of_a_check_that_passed_notes_are_left_out_and_warnings_told(capsys: pytest.CaptureFixture[str]):
    findings = (finding("fyi", Severity.NOTE), finding("odd", Severity.WARNING))
    passed = CheckResult(name="loads", title="it loads", verdict=Verdict.PASSED, reason="it does", findings=findings)
    assert ended(capsys, passed) == ["✓ loads          it does", "  warning it is odd (odd)"]
    failing = failure(*findings, finding("bad"))
    assert ended(capsys, failing)[1:] == [
        "  note it is fyi (fyi)",
        "  warning it is odd (odd)",
        "  error it is bad (bad)",
    ]


def test_what_nobody_asked_for_has_no_line(capsys: pytest.CaptureFixture[str]):
    assert ended(capsys, CheckResult(name="loads", title="", verdict=Verdict.SKIPPED, reason="left out")) == []


@pytest.mark.parametrize(("count", "text"), [(1, "1 problem"), (2, "2 problems")])
def test_problems_are_counted(capsys: pytest.CaptureFixture[str], count: int, text: str):
    found = [finding("bad")] * count
    assert ended(capsys, failure(finding("odd", Severity.WARNING), *found))[0] == f"✗ loads          {text}"


def test_a_hint_that_several_have_stands_with_the_last(capsys: pytest.CaptureFixture[str]):
    hints = ["mend it", "mend it", "look", "mend it"]
    lines = ended(capsys, failure(*(finding(f"n{number}", hint=hint) for number, hint in enumerate(hints))))
    assert [line.split()[-1] for line in lines[1:]] == ["(n0)", "(n1)", "it", "(n2)", "look", "(n3)", "it"]


def test_a_reason_has_what_the_name_leaves_of_the_width(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("COLUMNS", "60")
    passed = CheckResult(name="loads", title="it loads", verdict=Verdict.PASSED, reason="x" * 41)
    assert ended(capsys, passed) == [f"✓ loads          {'x' * 41}"]
    skipped = replace(passed, verdict=Verdict.SKIPPED, reason="x " * 40 + "(--patience)")
    assert ended(capsys, skipped) == [f"- loads          {'x ' * 40}(--patience)"]
    assert ended(capsys, replace(passed, reason="x" * 42)) == [f"✓ loads          {'x' * 40}…"]


def test_a_hint_stays_on_its_line_to_be_copied(capsys: pytest.CaptureFixture[str]):
    command = "pip install" + " a-package" * 20
    assert ended(capsys, failure(finding("bad", hint=command)))[-1] == f"    hint: {command}"


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({}, "must not be deployed"),
        ({"verdict": GateVerdict.DEPLOYABLE}, "may be deployed, although memory failed"),
        (
            {"verdict": GateVerdict.DEPLOYABLE, "target": "marpack"},
            "may be deployed to marpack's runtime, although memory failed",
        ),
        (
            {"verdict": GateVerdict.DEPLOYABLE, "target": "marpack", "unserved": ".pt2"},
            "may be deployed to marpack's runtime; TorchServe cannot load .pt2, although memory failed",
        ),
        ({"verdict": GateVerdict.PARTIAL}, "passed: digests (1 of 4 checks), although memory failed"),
        ({"verdict": GateVerdict.INTERRUPTED}, "was not checked to the end"),
    ],
)
def test_the_verdict(capsys: pytest.CaptureFixture[str], monkeypatch, changes: dict[str, Any], verdict: str):
    monkeypatch.setenv("COLUMNS", "180")
    show_verdict(report(**changes))
    about = f"1 passed, 2 failed, 1 skipped in 1.5 s, target {changes.get('target', 'torchserve')}"
    assert capsys.readouterr().out == f"my model.mar {verdict} ({about})\n"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("verdict", "severity", "mark"),
    [
        (Verdict.PASSED, Severity.ERROR, "\x1b[32m✓ \x1b[0m"),
        (Verdict.FAILED, Severity.ERROR, "\x1b[31m✗ \x1b[0m"),
        (Verdict.FAILED, Severity.WARNING, "\x1b[33m✗ \x1b[0m"),
        (Verdict.SKIPPED, Severity.ERROR, "\x1b[2m- \x1b[0m"),
    ],
)
def test_how_a_check_ended_is_seen_by_its_colour(
    monkeypatch: pytest.MonkeyPatch, verdict: Verdict, severity: Severity, mark: str
):
    monkeypatch.setattr(sys, "stdout", Terminal())
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    CheckLines("x").ends(CheckResult(name="loads", title="", verdict=verdict, severity=severity, reason="so"))
    assert sys.stdout.getvalue().startswith(mark)


def test_what_goes_on_stands_on_a_terminal_until_it_is_done(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TERM", "xterm")
    for stream, words in ((Terminal(), "safe-to-open: "), (io.StringIO(), "")):
        monkeypatch.setattr(sys, "stderr", stream)
        lines = CheckLines("x")
        lines.begins(GATE_CHECKS[0])
        lines.stop()
        lines.stop()
        assert words in stream.getvalue()
        assert bool(words) == bool(stream.getvalue())


@pytest.mark.parametrize(
    ("stream", "quiet", "lined"),
    [(io.StringIO, False, True), (io.StringIO, True, False), (Terminal, False, False)],
    ids=["log", "--json", "terminal"],
)
def test_a_log_is_told_what_goes_on_now_and_then(
    monkeypatch: pytest.MonkeyPatch, stream: type[io.StringIO], quiet: bool, lined: bool
):
    monkeypatch.setattr(progress, "_LINE_EVERY", 0.005)
    monkeypatch.setattr(sys, "stderr", stream())
    lines = CheckLines("x", quiet=quiet)
    with lines.shown():
        lines.begins(GATE_CHECKS[0])
        end = time.monotonic() + (10 if lined else 0.05)
        while time.monotonic() < end and "(0 s)\n" not in sys.stderr.getvalue():
            time.sleep(0.005)
    assert ("(0 s)\n" in sys.stderr.getvalue()) == lined


# --- two ways compared ----------------------------------------------------------------------------------------------


def compared(likeness: Similarity, **values: Any) -> InputComparison:
    given: dict[str, Any] = {"input": "in/a.png", "statuses": (200, 200), "labels": ("cat", "cat"), "largest": None}
    return InputComparison(likeness=likeness, **(given | values))


@pytest.mark.parametrize(
    ("likeness", "values", "text"),
    [
        (Similarity.EXACT, {}, "exact                   cat"),
        (Similarity.ROUNDED, {"largest": 0.000123}, "rounded        0.00012  cat"),
        (Similarity.LABEL, {"largest": 12.0}, "label               12  cat"),
        (Similarity.DIFFERENT, {"labels": ("cat", None)}, "different               cat → (none)"),
        (Similarity.DIFFERENT, {"labels": (None, "dog")}, "different               (none) → dog"),
        (Similarity.DIFFERENT, {"labels": (None, None)}, "different"),
        (Similarity.STATUS, {"statuses": (200, 503)}, "status                  200 → 503"),
        (Similarity.EXACT, {"labels": ("x" * 30,) * 2}, f"exact                   {'x' * 27}…"),
    ],
)
def test_a_line_per_input_compared(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    likeness: Similarity,
    values: dict[str, Any],
    text: str,
):
    monkeypatch.setenv("COLUMNS", "78")
    AcrossLines().show(compared(likeness, differences=("[0] is 1, not [2]",), **values))
    line, why = capsys.readouterr().out.splitlines()
    assert line.rstrip() == f"{'in/a.png':24}  {text}"
    assert why == "  [0] is 1, not [2]"


def side(name: str, milliseconds: float) -> Variant:
    return Variant(name=name, archive=name, content_digest=None, handler="h", device="cpu", milliseconds=milliseconds)


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"counts": {}}, "answer alike (0 inputs: none; "),
        (
            {"counts": {"exact": 2, "rounded": 1, "label": 0}, "largest": 0.00123},
            "answer alike (3 inputs: 2 exactly the same, 1 within the tolerance, largest difference 0.0012; ",
        ),
        (
            {"counts": {"label": 1, "different": 1, "status": 1}, "alike": False},
            "differ (3 inputs: 1 with the same label only, 1 different, 1 of another status; ",
        ),
        (
            {"counts": {"exact": 1}, "proved": False},
            "are not proved alike: no request got a 2xx from either (1 input: 1 exactly the same; ",
        ),
        (
            {"counts": {"exact": 1}, "interrupted": True},
            "were not compared to the end (1 input: 1 exactly the same; ",
        ),
    ],
)
def test_what_comparisons_add_up_to(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, values: dict[str, Any], text: str
):
    monkeypatch.setenv("COLUMNS", "160")
    given: dict[str, Any] = {"tolerance": 0.001, "alike": True, "proved": True, "largest": None, "results": ()}
    sides = side("a.mar", 1.23), side("[b].mar", 20.0)
    show_comparison(Comparison(sides=sides, findings=(finding("odd", Severity.WARNING),), **(given | values)))
    assert capsys.readouterr() == (
        f"a.mar and [b].mar {text}1.2 and 20.0 ms)\n",
        "  warning it is odd (odd)\n",
    )
