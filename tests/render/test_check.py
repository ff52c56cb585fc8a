"""The gate's report on a terminal: one line per check, whatever the texts hold."""

import pytest
from render.reports import CHECKS, report

from marpack.render.check import CheckLines, show_verdict


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
    assert "✗ memory         1 problem, weighing as a warning\n" in out
    assert "must not be deployed" in out
    assert all(len(line) <= width for line in out.splitlines())
    assert "\x1b" not in out
    assert "\\x1b[31mred\\x00 \\ud800 ü 🦆 [red]markup[/]" in " ".join(out.split())
    assert "handler.py:12:" in out
    assert "labels 1.json: fyi" in out  # within the archive, which is named at the end
