"""The result of `marpack check`: lines on a terminal, the HTML page, JUnit and SARIF."""

import io
import json
import re
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit
from xml.etree import ElementTree as ET

import pytest
from msgspec.structs import replace
from render.browser import CONTRAST, Browser
from render.reports import CHECKS, Markup, Terminal, report

from marpack.findings import Finding, Severity
from marpack.gate.verdicts import (
    CheckResult,
    Comparison,
    GateVerdict,
    InputComparison,
    Similarity,
    Variant,
    Verdict,
)
from marpack.project.schema import CHECKS as GATE_CHECKS
from marpack.render import console
from marpack.render.check import (
    CheckLines,
    check_page,
    junit,
    location_of,
    sarif,
    show_comparison,
    show_input_comparison,
    show_verdict,
    uri_of,
)


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


def test_notes_are_shown_of_failed_checks_only_and_a_common_hint_once(capsys: pytest.CaptureFixture[str]):
    findings = (finding("fyi", Severity.NOTE), finding("odd", Severity.WARNING))
    passed = CheckResult(name="loads", title="it loads", verdict=Verdict.PASSED, reason="it does", findings=findings)
    assert ended(capsys, passed) == ["✓ loads          it does", "  warning it is odd (odd)"]
    failing = failure(*findings, finding("bad"))
    assert [line.split()[-1] for line in ended(capsys, failing)[1:]] == ["(fyi)", "(odd)", "(bad)"]
    hints = ["mend it", "mend it", "look", "mend it"]
    lines = ended(capsys, failure(*(finding(f"n{number}", hint=hint) for number, hint in enumerate(hints))))
    assert [line.split()[-1] for line in lines[1:]] == ["(n0)", "(n1)", "it", "(n2)", "look", "(n3)", "it"]


def test_a_reason_is_cut_to_the_width_and_a_command_is_not(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("COLUMNS", "60")
    passed = CheckResult(name="loads", title="it loads", verdict=Verdict.PASSED, reason="x" * 41)
    assert ended(capsys, passed) == [f"✓ loads          {'x' * 41}"]
    skipped = replace(passed, verdict=Verdict.SKIPPED, reason="x " * 40 + "(--patience)")
    assert ended(capsys, skipped) == [f"- loads          {'x ' * 40}(--patience)"]
    assert ended(capsys, replace(passed, reason="x" * 42)) == [f"✓ loads          {'x' * 40}…"]
    assert ended(capsys, replace(skipped, reason="left out")) == []
    command = "pip install" + " a-package" * 20  # is copied, so it stays on its line
    assert ended(capsys, failure(finding("bad", hint=command)))[-1] == f"    hint: {command}"


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({}, "must not be deployed"),
        ({"verdict": GateVerdict.DEPLOYABLE}, "may be deployed, although memory failed"),
        (
            {"verdict": GateVerdict.DEPLOYABLE, "target": "marpack", "unserved": ".pt2"},
            "may be deployed to marpack's runtime; TorchServe cannot load .pt2, although memory failed",
        ),
        ({"verdict": GateVerdict.PARTIAL}, "passed: digests (1 of 4 checks), although memory failed"),
        ({"verdict": GateVerdict.INTERRUPTED}, "was not checked to the end"),
    ],
)
def test_the_verdict_has_its_text_and_its_color(capsys, monkeypatch, changes: dict[str, Any], verdict: str):
    monkeypatch.setenv("COLUMNS", "180")
    checked = report(**changes)
    show_verdict(checked)
    about = f"1 passed, 2 failed, 1 skipped in 1.5 s, target {checked.target}"
    assert capsys.readouterr().out == f"my model.mar {verdict} ({about})\n"
    page = check_page(checked).decode()
    assert f'<p class="verdict {checked.verdict}">' in page
    (color,) = re.findall(rf"\.{checked.verdict}\b[^{{]*{{ color: var\(--(\w+)\); }}", page)
    assert color == {"deployable": "good", "refused": "bad", "not-proved": "bad"}.get(checked.verdict, "warn")


@pytest.mark.parametrize(
    ("stream", "quiet", "lined"),
    [(io.StringIO, False, True), (io.StringIO, True, False), (Terminal, False, False)],
    ids=["log", "--json", "terminal"],
)
def test_a_log_has_a_line_of_progress_now_and_then(
    monkeypatch: pytest.MonkeyPatch, stream: type[io.StringIO], quiet: bool, lined: bool
):
    monkeypatch.setattr(console, "_LINE_EVERY", 0.005)
    monkeypatch.setattr(sys, "stderr", stream())
    lines = CheckLines("x", quiet=quiet)
    with lines.shown():
        lines.begins(GATE_CHECKS[0])
        end = time.monotonic() + (10 if lined else 0.05)
        while time.monotonic() < end and "(0 s)\n" not in sys.stderr.getvalue():
            time.sleep(0.005)
    assert ("(0 s)\n" in sys.stderr.getvalue()) == lined


def compared(likeness: Similarity, **values: Any) -> InputComparison:
    given: dict[str, Any] = {"input": "in/a.png", "statuses": (200, 200), "labels": ("cat", "cat"), "largest": None}
    return InputComparison(likeness=likeness, **(given | values))


def test_a_line_per_input_compared(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "78")
    for likeness, values, text in [
        (Similarity.EXACT, {"labels": ("x" * 30,) * 2}, f"exact                   {'x' * 27}…"),
        (Similarity.ROUNDED, {"largest": 0.000123}, "rounded        0.00012  cat"),
        (Similarity.LABEL, {"largest": 12.0}, "label               12  cat"),
        (Similarity.DIFFERENT, {"labels": ("cat", None)}, "different               cat → (none)"),
        (Similarity.DIFFERENT, {"labels": (None, "dog")}, "different               (none) → dog"),
        (Similarity.DIFFERENT, {"labels": (None, None)}, "different"),
        (Similarity.STATUS, {"statuses": (200, 503)}, "status                  200 → 503"),
    ]:
        show_input_comparison(compared(likeness, differences=("[0] is 1, not [2]",), **values))
        line, why = capsys.readouterr().out.splitlines()
        assert line.rstrip() == f"{'in/a.png':24}  {text}"
        assert why == "  [0] is 1, not [2]"


def side(name: str, milliseconds: float) -> Variant:
    return Variant(name=name, archive=name, content_digest=None, handler="h", device="cpu", milliseconds=milliseconds)


def test_what_comparisons_add_up_to(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "160")
    given: dict[str, Any] = {"tolerance": 0.001, "alike": True, "proved": True, "largest": None, "results": ()}
    given |= {"sides": (side("a.mar", 1.23), side("[b].mar", 20.0)), "findings": (finding("odd", Severity.WARNING),)}
    apart = {"counts": {"label": 1, "different": 0, "status": 1}, "alike": False}
    rounded = {"counts": {"exact": 2, "rounded": 1, "label": 0}, "largest": 0.00123}
    for values, text in [
        ({"counts": {}}, "respond alike (0 inputs: none; "),
        (rounded, "respond alike (3 inputs: 2 exactly the same, 1 within the tolerance, largest difference 0.0012; "),
        (apart, "differ (2 inputs: 1 with the same label only, 1 with another status; "),
        ({"counts": {}, "proved": False}, "are not proved alike: no request got a 2xx from either (0 inputs: none; "),
        ({"counts": {}, "interrupted": True}, "were not compared to the end (0 inputs: none; "),
    ]:
        show_comparison(Comparison(**(given | values)))
        assert capsys.readouterr() == (f"a.mar and [b].mar {text}1.2 and 20.0 ms)\n", "  warning it is odd (odd)\n")


def test_the_page_has_everything_and_escapes_it():
    page = Markup(check_page(report()).decode())
    text = " ".join(page.text.split())
    assert "must not be deployed: 1 passed, 2 failed, 1 skipped" in text
    assert 'a <b>"bold"</b> & ' in text
    assert "b" not in page.tags
    assert "handler.py:12" in text
    assert re.search("failed: 1 problem,.* warning", text)
    assert "skipped: preflight failed" in text
    assert re.search(r"checked ?\d{4}-\d\d-\d\d \d\d:\d\d UTC", text)


def test_the_page_fetches_nothing_and_follows_light_and_dark():
    data = check_page(report()).decode()
    page = Markup(data)
    assert not {"src", "href"} & {name for name, _ in page.attributes}
    assert not {"script", "iframe", "link", "img", "object"} & {*page.tags}
    assert not re.search(r"url\(|@import|https?://", data)
    assert "prefers-color-scheme: dark" in data
    assert 'name="color-scheme" content="light dark"' in data
    assert """Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">""" in data


@pytest.mark.parametrize("dark", [False, True])
def test_a_browser_draws_the_page_by_light_and_dark(browser: Browser, tmp_path: Path, dark: bool):
    (tmp_path / "check.html").write_bytes(check_page(report()))
    browser.open(tmp_path / "check.html", dark=dark)
    color = browser.value("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", color)[:3])) < 200) == dark
    assert min(contrast for contrast, _ in browser.value(CONTRAST)) > 4.5
    assert (browser.complaints, browser.fetched[1:]) == ([], [])


JUNIT = """\
<?xml version='1.0' encoding='utf-8'?>
<testsuites tests="4" failures="1" errors="0" time="1.500">
  <testsuite tests="4" failures="1" errors="0" time="1.500" name="marpack check my model.mar" skipped="1">
    <testcase name="digests" classname="marpack.check" time="0.000" />
    <testcase name="preflight" classname="marpack.check" time="0.250">
      <failure message="NASTY" type="preflight">error syntax: handler.py:12: NASTY (hint: Mend it.)
warning hm: MAR-INF/MANIFEST.json: model.handler: hm
note fyi: my model.mar!labels 1.json: fyi</failure>
    </testcase>
    <testcase name="loads" classname="marpack.check" time="0.000">
      <skipped message="preflight failed" />
    </testcase>
    <testcase name="memory" classname="marpack.check" time="0.000">
      <system-out>error memory-grows: it grows</system-out>
    </testcase>
  </testsuite>
</testsuites>
"""


def test_every_check_is_a_test_and_a_downgraded_failure_is_none():
    nasty = 'a &lt;b&gt;"bold"&lt;/b&gt; &amp; �[31mred� � ü 🦆 [red]markup[/]'
    expected = JUNIT.replace('"NASTY"', '"' + nasty.replace('"', "&quot;") + '"').replace("NASTY", nasty)
    assert junit(report()).decode() == expected


def test_sarif_has_all_required_fields_and_a_result_for_each_finding():
    log = json.loads(sarif(report()))
    assert log["version"] == "2.1.0"
    (run,) = log["runs"]
    driver = run["tool"]["driver"]
    assert driver["name"] == "marpack"
    assert isinstance(driver["version"], str)
    ids = [rule["id"] for rule in driver["rules"]]
    assert len(set(ids)) == len(ids) == 4
    assert all(rule["shortDescription"]["text"].endswith(".") for rule in driver["rules"])
    assert run["invocations"] == [{"executionSuccessful": True, "exitCode": 1}]
    for result in run["results"]:
        assert result["ruleId"] in ids
        assert result["level"] in {"none", "note", "warning", "error"}
        assert result["message"]["text"]
        (location,) = result["locations"]
        uri = location["physicalLocation"]["artifactLocation"]["uri"]
        assert urlsplit(uri).geturl() == uri
        assert " " not in uri
        assert location["physicalLocation"].get("region", {"startLine": 1})["startLine"] >= 1
    assert [(each["ruleId"], each["level"], each["properties"]["code"]) for each in run["results"]] == [
        ("preflight", "error", "syntax"),
        ("preflight", "warning", "hm"),
        ("preflight", "note", "fyi"),
        ("memory", "warning", "memory-grows"),  # with the severity that the project sets
    ]
    assert run["results"][0]["message"]["text"].endswith("Mend it.")


def test_a_check_without_a_verdict_has_its_finding_in_each_form():
    undecided = report(checks=(replace(CHECKS[3], verdict=Verdict.SKIPPED, reason="undecided"),), interrupted=True)
    (case,) = ET.fromstring(junit(undecided))[0]
    assert [child.tag for child in case] == ["skipped", "system-out"]
    assert case[1].text == "error memory-grows: it grows"
    (run,) = json.loads(sarif(undecided))["runs"]
    assert [result["properties"]["code"] for result in run["results"]] == ["memory-grows"]
    assert run["invocations"] == [{"executionSuccessful": False, "exitCode": 130}]


@pytest.mark.parametrize(
    ("where", "uri", "line", "member"),
    [
        ("p/probe.mar", "p/probe.mar", None, None),
        ("handler.py:12", "p/handler.py", 12, None),
        ("p/probe.mar!handler.py:12", "p/handler.py", 12, None),
        ("p/probe.mar!MAR-INF/samples/a b.txt", "p/samples/a%20b.txt", None, None),
        ("MAR-INF/MANIFEST.json: model.handler", "p/probe.mar", None, "MAR-INF/MANIFEST.json"),
        ("p/probe.mar!gone.py:3", "p/probe.mar", None, "gone.py:3"),
        ("../../etc/passwd\0:1", "p/probe.mar", None, "../../etc/passwd\0:1"),
    ],
)
def test_a_location_is_the_projects_file_or_a_member(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, uri: str, line: int | None, member: str | None
):
    monkeypatch.chdir(tmp_path)
    for name in ("p/handler.py", "p/samples/a b.txt", "p/probe.mar"):
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).touch()
    location = location_of(where, report(archive="p/probe.mar", project="p"))
    physical = location["physicalLocation"]
    assert physical["artifactLocation"]["uri"] == uri
    assert physical.get("region", {}).get("startLine") == line
    assert [item["name"] for item in location.get("logicalLocations", [])] == ([member] if member else [])
    uri = uri_of(tmp_path.parent / "größe #1.mar")  # outside the working directory
    assert uri.startswith("file:///")
    assert unquote(urlsplit(uri).path) == str(tmp_path.parent / "größe #1.mar")
    assert uri_of(Path("a/../b.mar")) == "b.mar"
