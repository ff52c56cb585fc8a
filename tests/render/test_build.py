"""What `marpack build` and `marpack init` show, line by line."""

from pathlib import Path
from typing import Any

import click
import pytest
from msgspec import to_builtins

from marpack.findings import Finding, Severity
from marpack.project.plan import Built, Format
from marpack.render.build import BuildReport, InitReport, built_lines, show_init, show_warnings
from marpack.render.layout import fact


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.0004, "0 ms"), (0.25, "250 ms"), (0.9994, "999 ms"), (1.0, "1.00 s"), (12.345, "12.35 s")]
)
def test_what_was_built(seconds: float, text: str):
    built = Built(path=Path("net.mar"), size=1500, content_digest="sha256:12", members=3, seconds=seconds)
    lines = [click.unstyle(line) for line in built_lines(built, ())]
    assert lines == ["built   net.mar", "size    1.5 kB in 3 members", "digest  sha256:12", f"time    {text}"]
    first, *_, spent = built_lines(built, ())
    assert (first, spent) == (fact("built", click.style("net.mar", bold=True)), fact("time", text))
    also = list(built_lines(built, ("a.py", "b.py")))[4:]
    assert len(also) == 1
    assert also[0].startswith(fact("also", "a.py, b.py "))


def test_a_note_costs_one_line_and_a_warning_says_what_to_do(capsys: pytest.CaptureFixture[str]):
    notes = [
        Finding(code=f"a-{severity}", severity=severity, message="hm", where="x", hint="do")
        for severity in (Severity.NOTE, Severity.WARNING)
    ]
    show_warnings(notes)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == ["  note x: hm (a-note)", "  warning x: hm (a-warning)", "    hint: do"]
    show_warnings([])
    assert capsys.readouterr() == ("", "")


def test_the_json_of_a_build_leaves_out_what_there_is_none_of():
    told = {"path": "x", "format": Format.DEFAULT, "size": 0, "content_digest": "d", "members": 1, "seconds": 0.5}
    assert to_builtins(BuildReport(**told)) == told | {"format": "default"}
    assert to_builtins(BuildReport(**told, modules=("a.py",)))["modules"] == ("a.py",)


def report(folder: Path, **values: Any) -> InitReport:
    given: dict[str, Any] = {"name": "net", "template": "image", "findings": ()}
    given |= dict.fromkeys(("written", "replaced", "skipped"), ())
    return InitReport(folder=str(folder), **(given | values))


def names(count: int) -> tuple[str, ...]:
    return tuple(f"f{number}" for number in range(count))


def test_what_was_placed_and_what_comes_next(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    warned = Finding(code="hm", severity=Severity.WARNING, message="hm")
    show_init(report(tmp_path, written=names(12), replaced=names(13), skipped=("x", "y"), findings=(warned,)))
    out, err = capsys.readouterr()
    twelve = ", ".join(names(12))
    assert out.splitlines() == [
        f"wrote   {twelve}",
        f"replaced{twelve} and 1 more",
        "skipped x, y (there already; --force replaces)",
        "next    marpack build && marpack check",
    ]
    assert err == "  warning hm (hm)\n"


def test_one_is_led_into_the_folder_of_the_project(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    show_init(report(tmp_path))
    assert capsys.readouterr() == (f"next    cd {tmp_path} && marpack build && marpack check\n", "")


def test_without_samples_the_way_leads_through_one(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    lacking = Finding(code="no-samples", severity=Severity.NOTE, message="there is no sample")
    show_init(report(tmp_path, findings=(lacking,)))
    assert capsys.readouterr().out == "next    marpack build && marpack run --input FILE --record && marpack check\n"
