"""The HTML report of a run, an `article` per input."""

import platform
from contextlib import ExitStack, suppress
from datetime import datetime
from importlib import metadata
from pathlib import Path
from types import TracebackType
from typing import Self

from markupsafe import Markup

from marpack.archive.protocol import Archive
from marpack.archive.staging import staged_file
from marpack.errors import OutputError, UsageError, convert_os_errors
from marpack.inspection.members import labels_of
from marpack.project.scaffold.template import templates
from marpack.render.article import SIDE, article, article_css, page_templates
from marpack.render.run import RunHead, Trace
from marpack.runner.inputs import Input
from marpack.runner.results import AnsweredInput, Result, Summary, needs_of
from marpack.version import __version__

_MAX_COLUMNS = 240  # columns of the plot
_LARGE, _SMALL_SIDE = 100, 256  # pictures in full size, and the pixels of those after them
_PACKAGES = ("marpack", "torch", "torchvision", "onnxruntime", "numpy", "pillow", "captum")


class TimeSeries:
    """A stream of numbers in a limited number of columns, each the maximum of `stride` numbers."""

    def __init__(self) -> None:
        self.columns: list[float] = []
        self.stride = 1
        self._count = 0

    def add(self, value: float) -> None:
        """Add one number."""
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
        """Take the file's name; raises UsageError unless it is that of an HTML file."""
        if Path(path).suffix.lower() not in {".html", ".htm"}:
            raise UsageError(
                "the report is an HTML page", where=f"--report {path}", hint="Name it report.html.", code="not-html"
            )
        self._path = Path(path)
        self._stack = ExitStack()
        self._course = TimeSeries()
        self._begun = False
        self._shown = 0

    def __enter__(self) -> Self:
        with convert_os_errors(OutputError, "the report cannot be written", where=str(self._path)):
            self._file = self._stack.enter_context(staged_file(self._path, replace=True))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and not self._begun:  # nothing was loaded
            kind, value = _NothingLoaded, _NothingLoaded()
        with suppress(_NothingLoaded):
            self._stack.__exit__(kind, value, trace)

    def begin(self, head: RunHead, archive: Archive) -> None:
        """Write the part before the first input."""
        self._begun = True
        self._head = head
        model = archive.manifest.model
        self._title = f"{model.name} {model.version or ''}".strip()
        self._labels, self._handler = labels_of(archive), model.handler
        own = (templates() / "report" / "style.css").read_text("utf-8")
        style = Markup(own + article_css())  # noqa: S704 - ours, read from the package
        self._write("head.html.j2", title=self._title, head=head, style=style, version=__version__)

    def show(self, sent: Input, result: Result) -> None:
        """Write one input with its response."""
        if "handle" in result.stages:
            self._course.add(result.stages["handle"])
        self._shown += 1
        side = SIDE if self._shown <= _LARGE else _SMALL_SIDE
        self._put(article(AnsweredInput(sent, result), self._labels, self._handler, side=side))

    def end(self, summary: Summary, *, interrupted: bool = False, trace: Trace | None = None) -> None:
        """Write the totals of the run."""
        environment = {
            "python": platform.python_version(),
            "system": platform.platform(),
            "processor": platform.processor() or platform.machine(),
        }
        for package in _PACKAGES:
            with suppress(metadata.PackageNotFoundError):
                environment[package] = metadata.version(package)
        trace = trace or Trace()
        self._write(
            "foot.html.j2",
            head=self._head,
            summary=summary,
            interrupted=interrupted,
            trace=trace,
            needs=needs_of(trace.touched),
            stages=summary.stages,
            course=self._course,
            environment=environment,
            version=__version__,
            moment=datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %Z"),
        )

    def _write(self, template: str, **values: object) -> None:
        self._put(page_templates().get_template(template).render(values))

    def _put(self, text: str) -> None:
        with convert_os_errors(OutputError, "the report cannot be written", where=str(self._path)):
            self._file.write(text.encode("utf-8", "replace"))


class _NothingLoaded(Exception):  # noqa: N818 - not an error
    """Nothing was loaded, so the report is not kept."""
