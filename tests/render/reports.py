"""A full report of a check, a reader of HTML pages, and a stream that is a terminal."""

import io
from html.parser import HTMLParser
from typing import Any

from marpack.findings import Finding, Severity
from marpack.gate.verdicts import CheckResult, GateReport, GateVerdict, Verdict

NASTY = 'a <b>"bold"</b> & \x1b[31mred\x00 \ud800 ü 🦆 [red]markup[/]'
CHECKS = (
    CheckResult(
        name="digests", title="every byte matches its recorded digest", verdict=Verdict.PASSED, reason="8 members"
    ),
    CheckResult(
        name="preflight",
        title="they fit together",
        verdict=Verdict.FAILED,
        reason=NASTY,
        exit_code=1,
        findings=(
            Finding(code="syntax", severity=Severity.ERROR, message=NASTY, where="handler.py:12", hint="Mend it."),
            Finding(code="hm", severity=Severity.WARNING, message="hm", where="MAR-INF/MANIFEST.json: model.handler"),
            Finding(code="fyi", severity=Severity.NOTE, message="fyi", where="my model.mar!labels 1.json"),
        ),
        seconds=0.25,
    ),
    CheckResult(name="loads", title="it loads", verdict=Verdict.SKIPPED, reason="preflight failed"),
    CheckResult(
        name="memory",
        title="memory does not grow",
        verdict=Verdict.FAILED,
        reason="it grows",
        severity=Severity.WARNING,
        findings=(Finding(code="memory-grows", severity=Severity.ERROR, message="it grows"),),
    ),
)


def report(**changes: Any) -> GateReport:
    values: dict[str, Any] = {
        "archive": "my model.mar",
        "content_digest": "sha256:00",
        "target": "torchserve",
        "model": f"probe {NASTY}",
        "verdict": GateVerdict.REFUSED,
        "deployable": False,
        "checks": CHECKS,
        "seconds": 1.5,
    }
    return GateReport(**values | changes)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Markup(HTMLParser):
    """The tags, attributes and text of a page, in which all tags match."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self._opened: list[str] = []
        self.feed(text)
        self.close()
        assert self._opened == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in {"meta", "br", "hr", "img", "link", "input"}:
            self._opened.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._opened.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data

    def values(self, name: str) -> list[str]:
        return [str(value) for each, value in self.attributes if each == name]
