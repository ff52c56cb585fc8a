"""What `marpack run --json` and `--jsonl` write: one document whose results stream, or a line for each."""

from collections.abc import Iterable
from typing import Any, BinaryIO

from msgspec import Struct
from msgspec.structs import astuple

from marpack.findings import Finding
from marpack.json_text import to_json
from marpack.protocol.messages import Loaded, Touched
from marpack.render.failure import Failure
from marpack.runner.results import Result, Summary
from marpack.runner.session import Session


class RunHead(Struct, frozen=True, kw_only=True):
    """What is known before the first answer."""

    archive: str
    content_digest: str | None
    target: str
    loaded: Loaded
    load_logs: str
    findings: tuple[Finding, ...] = ()  # of the build, and requirements that this environment does not meet


class RunReport(RunHead, frozen=True, kw_only=True):
    """The result of `marpack run --json`."""

    results: tuple[Result, ...]
    summary: Summary
    interrupted: bool = False
    failure: Failure | None = None  # what ended the run early
    hermetic: bool | None = None  # with --trace: something was answered, and nothing outside of the archive touched
    touched: tuple[Touched, ...] = ()


def trace_of(session: Session, answered: int) -> dict[str, Any]:  # Any: each field has its own type
    """Return the fields of a report that tell what was touched outside of the archive."""
    touched = tuple(sorted(session.pool.touched, key=astuple))
    return {"hermetic": not touched and answered > 0 if session.load.trace else None, "touched": touched}


def head_of(session: Session, findings: Iterable[Finding]) -> RunHead:
    """Return what is known of a loaded model, and what was noticed on the way."""
    return RunHead(
        archive=str(session.resolved.path),
        content_digest=session.content_digest,
        target=session.load.target,
        loaded=session.loaded,
        load_logs=session.pool.load_logs,
        findings=tuple(findings),
    )


class ReportStream:
    """Writes a RunReport piece by piece, to be flushed by others: no more than one result is held at a time."""

    def __init__(self, stream: BinaryIO, head: RunHead) -> None:
        self._stream = stream
        self._empty = True
        opening = _indented(head, 0).rstrip(b"}").rstrip()
        stream.write(opening + b',\n  "results": [')

    def show(self, result: Result) -> None:
        """Write one result."""
        self._stream.write((b"" if self._empty else b",") + b"\n    " + _indented(result, 4))
        self._empty = False

    def close(
        self, summary: Summary, *, interrupted: bool = False, failure: Failure | None = None, **trace: object
    ) -> None:
        """Write what comes after the results; see `trace_of`."""
        self._stream.write(b"]" if self._empty else b"\n  ]")
        for name, value in {"summary": summary, "interrupted": interrupted, "failure": failure, **trace}.items():
            self._stream.write(f',\n  "{name}": '.encode() + _indented(value, 2))
        self._stream.write(b"\n}\n")
        self._stream.flush()


def _indented(value: object, depth: int) -> bytes:
    return to_json(value, indent=True).replace(b"\n", b"\n" + b" " * depth)
