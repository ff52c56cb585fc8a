"""What every command shares on a terminal."""

import io
import sys

import pytest

from marpack.errors import BuildError
from marpack.findings import Finding, Severity
from marpack.render.console import page, plain, show_error, show_findings, talk


def test_a_text_between_colons_stays_what_it_is(capsys: pytest.CaptureFixture[str]):
    page().print(plain("models/a:cat:b [bold]"))
    show_error(BuildError("the label :fire: is missing", where="C:key:labels.txt", hint="add :fire:"))
    out, err = capsys.readouterr()
    assert out == "models/a:cat:b [bold]\n"
    assert err.splitlines() == [
        "error: the label :fire: is missing",
        "  where: C:key:labels.txt",
        "  hint:  add :fire:",
    ]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("stream", "console"), [("stdout", page), ("stderr", talk)])
def test_nothing_is_coloured_by_what_it_looks_like(monkeypatch: pytest.MonkeyPatch, stream: str, console):
    monkeypatch.setattr(sys, stream, Terminal())
    monkeypatch.setenv("TERM", "xterm")
    console().print("8 members of 'a.mar' at /tmp, True")
    assert getattr(sys, stream).getvalue() == "8 members of 'a.mar' at /tmp, True\n"


def test_what_is_told_beside_the_result_is_never_broken(monkeypatch: pytest.MonkeyPatch, capsys):
    monkeypatch.setenv("COLUMNS", "40")
    talk().print("word " * 20)
    assert capsys.readouterr() == ("", "word " * 20 + "\n")


def test_findings_are_blocks_of_place_sentence_code_and_hint(capsys: pytest.CaptureFixture[str]):
    found = (
        Finding(code="a-b", severity=Severity.ERROR, message="it [is]\nbad\x07", where="x[1]: y", hint="mend [it]"),
        Finding(code="c", severity=Severity.NOTE, message="fyi"),
    )
    show_findings(found, page())
    assert capsys.readouterr().out.splitlines() == [
        "  error x[1]: y: it [is]",
        "bad\N{REPLACEMENT CHARACTER} (a-b)",
        "    hint: mend [it]",
        "  note fyi (c)",
    ]


@pytest.mark.parametrize(
    ("error", "lines"),
    [
        (BuildError("no"), ["error: no", f"  hint:  {BuildError.fix}"]),
        (BuildError("no", where="x", hint="do"), ["error: no", "  where: x", "  hint:  do"]),
    ],
)
def test_an_error_is_told_with_the_way_out(capsys: pytest.CaptureFixture[str], error: BuildError, lines: list[str]):
    show_error(error)
    assert capsys.readouterr().err.splitlines() == lines
