"""What scoring adds up to, on a page of 80 columns, and how far it is."""

import re
import sys
import time
from typing import Any

import pytest
from render.reports import Terminal

from marpack.render.console import page_lines
from marpack.render.score import ScoreBar, score_page
from marpack.scoring.plan import FailureCause, FailureExample, ScoreSummary

STYLES = re.compile(r"\x1b\[\d*m")


def page(**figures: Any) -> list[str]:
    known = {"inputs": ("t.parquet",), "rows": 12_000, "answered": 12_000, "failed": 0, "rows_before": 0}
    known |= {"failed_before": 0, "parts": 1, "seconds": 2.5, "throughput": 4800.0, "causes": ()}
    return [STYLES.sub("", line) for line in page_lines(score_page(ScoreSummary(**(known | figures)), "out"), 80)]


def cause(kind: str, rows: int = 7, message: str = "it is bad") -> FailureCause:
    examples = tuple(FailureExample(f"{number}.parquet", 1000 * number, f"{kind}: {message}") for number in range(3))
    return FailureCause(kind, rows, examples)


@pytest.mark.parametrize(
    ("figures", "line"),
    [
        ({"throughput": 3.21}, "  rows     12,000 in 2.5 s, 3.2/s"),
        ({"rows_before": 5000, "failed_before": 2}, "  before   5,000, of which 2 failed"),
        ({"parts": 1234}, "  output   1,234 parts"),
        ({"exceeded": True}, "More rows failed than --max-errors allows: all rows were read."),
        ({"causes": (cause("503", 1, "\x1b[31mred\nline"),)}, "       row 0: \\x1b[31mred\\nline"),
        ({"inputs": ("0", "1.parquet"), "causes": (cause("503"),)}, "       1.parquet, row 1,000: it is bad"),
        ({"causes": tuple(cause(f"cause {number}", 5) for number in range(100))}, "  450  of 90 other causes"),
    ],
)
def test_the_lines_of_figures_and_causes(figures: dict[str, Any], line: str):
    assert line in page(**figures)


def test_failures_are_listed_by_cause_with_their_first_rows():
    assert page() == ["scored out", "  rows     12,000 in 2.5 s, 4,800/s", "  answered 12,000", "  output   1 part"]
    assert "--resume" in page(exceeded=True, complete=False)[-1]
    lines = page(failed=10, causes=(cause("503 Sorry: ValueError"), cause("unreadable-input", 3, "x" * 300)))
    assert lines[3:11] == [
        "  failed   10",
        "  output   1 part",
        "",
        "failures",
        "  7  503 Sorry: ValueError",
        "       row 0: it is bad",
        "       row 1,000: it is bad",
        "       row 2,000: it is bad",
    ]
    assert lines[11] == "  3  unreadable-input"
    assert lines[12].endswith("xxx…")
    assert max(map(len, lines)) == 80


def test_the_bar_waits_for_the_first_rows(monkeypatch: pytest.MonkeyPatch):
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr("marpack.render.console._AFTER", 0.0)
    monkeypatch.setenv("TERM", "xterm")
    bar = ScoreBar(shown=True)
    bar.began(1000, 0)
    until = time.monotonic() + 10
    while "waiting for the first rows" not in stream.getvalue():
        assert time.monotonic() < until
        time.sleep(0.01)
    bar.scored(100, 0)
    said = stream.getvalue()
    time.sleep(0.3)  # it would be drawn again meanwhile
    assert stream.getvalue() == said
    bar.ended()


@pytest.mark.parametrize("shown", [True, False])
def test_a_hidden_bar_and_one_that_did_not_begin_draw_nothing(shown: bool, capsys: pytest.CaptureFixture[str]):
    bar = ScoreBar(shown=shown)
    if not shown:
        bar.began(None, 0)
        bar.scored(100, 0)
    bar.ended()
    assert capsys.readouterr() == ("", "")
