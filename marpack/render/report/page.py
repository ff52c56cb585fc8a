"""The HTML report of a run; one input of it is an `article`."""

import platform
from contextlib import ExitStack
from datetime import datetime
from importlib import metadata
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from markupsafe import Markup

from marpack.archive.protocol import Archive
from marpack.archive.staging import staged_file
from marpack.errors import OutputError, UsageError
from marpack.inspection.members import labels_of
from marpack.project.scaffold.template import templates
from marpack.render.report.article import article, article_css, page_templates
from marpack.render.report.pictures import SIDE
from marpack.render.run_json import RunHead
from marpack.runner.inputs import Input
from marpack.runner.results import AnsweredInput, Result, Summary, needs_of
from marpack.version import __version__

_MAX_COLUMNS = 240  # columns of the course
_LARGE, _SMALL_SIDE = 100, 256  # pictures in full size, and the pixels of those after them
_PACKAGES = ("marpack", "torch", "torchvision", "onnxruntime", "numpy", "pillow", "captum")


class TimeSeries:
    """A stream of numbers in as many columns as can be seen, each the most of `stride` numbers."""

    def __init__(self) -> None:
        self.columns: list[float] = []
        self.stride = 1
        self._count = 0

    def add(self, value: float) -> None:
        """Take one number in."""
        if self._count % self.stride:
            self.columns[-1] = max(self.columns[-1], value)
        else:
            if len(self.columns) == _MAX_COLUMNS:
                self.columns = list(map(max, self.columns[::2], self.columns[1::2]))
                self.stride *= 2
            self.columns.append(value)
        self._count += 1


class HtmlReport:
    """One HTML file that needs nothing else; memory does not grow with the run."""

    def __init__(self, path: str) -> None:
        """Take the file's name; raises UsageError if it is not one of an HTML file."""
        if Path(path).suffix.lower() not in {".html", ".htm"}:
            raise UsageError(
                "the report is an HTML page", where=f"--report {path}", hint="name it report.html", code="not-html"
            )
        self._path = Path(path)
        self._stack = ExitStack()
        self._course = TimeSeries()
        self._begun = False
        self._shown = 0

    def __enter__(self) -> Self:
        try:
            self._file = self._stack.enter_context(staged_file(self._path, replace=True))
        except OSError as error:
            raise OutputError(f"the report cannot be written: {error.strerror}", where=str(self._path)) from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and not self._begun:  # nothing was loaded: an empty page would say otherwise
            kind, value = _NothingToTell, _NothingToTell()
        try:
            self._stack.__exit__(kind, value, trace)
        except _NothingToTell:
            return

    def begin(self, head: RunHead, archive: Archive) -> None:
        """Write what comes before the first input."""
        self._begun = True
        self._head = head
        model = archive.manifest.model
        self._title = f"{model.name} {model.version or ''}".strip()
        self._labels, self._handler = labels_of(archive), model.handler
        own = (templates() / "report" / "style.css").read_text("utf-8")
        style = Markup(own + article_css())  # noqa: S704 - ours, read from the package
        self._write("head.html.j2", title=self._title, head=head, style=style, version=__version__)

    def show(self, asked: Input, result: Result) -> None:
        """Write one input with its answer."""
        if "handle" in result.stages:
            self._course.add(result.stages["handle"])
        self._shown += 1
        side = SIDE if self._shown <= _LARGE else _SMALL_SIDE
        self._put(article(AnsweredInput(asked, result), self._labels, self._handler, side=side))

    def end(self, summary: Summary, *, interrupted: bool = False, **trace: Any) -> None:  # Any: see `trace_of`
        """Write what the run adds up to."""
        initialize = summary.load.get("initialize")
        self._write(
            "foot.html.j2",
            summary=summary,
            interrupted=interrupted,
            hermetic=trace.get("hermetic"),
            needs=needs_of(trace.get("touched", ())),
            stages=summary.stages,
            course=self._course,
            initialize=None if initialize is None else f"{initialize / 1000:.2f} s",
            facts=self._facts(),
            environment=_environment(),
            findings=self._head.findings,
            version=__version__,
            moment=datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %Z"),
        )

    def _facts(self) -> list[tuple[str, str]]:
        head = self._head
        facts = [("file", head.archive), ("content digest", head.content_digest or "none"), ("target", head.target)]
        return [*facts, ("handler", head.loaded.handler), ("device", head.loaded.device or "unknown")]

    def _write(self, template: str, **values: Any) -> None:  # Any: what a template shows
        self._put(page_templates().get_template(template).render(values))

    def _put(self, text: str) -> None:
        try:
            self._file.write(text.encode("utf-8", "replace"))
        except OSError as error:
            raise OutputError(f"the report cannot be written: {error.strerror}", where=str(self._path)) from error


class _NothingToTell(Exception):  # noqa: N818 - no error
    """Nothing was loaded, so there is no report."""


def _environment() -> list[tuple[str, str]]:
    facts = [
        ("python", platform.python_version()),
        ("system", platform.platform()),
        ("processor", platform.processor() or platform.machine()),
    ]
    for package in _PACKAGES:
        try:
            facts.append((package, metadata.version(package)))
        except metadata.PackageNotFoundError:
            continue
    return facts
