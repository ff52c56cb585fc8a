"""The HTML report of a run; what it draws of an answer is in `drawings`."""

import platform
from collections.abc import Mapping
from contextlib import ExitStack
from datetime import datetime
from functools import cache
from importlib import metadata
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from marpack.archive.protocol import Archive
from marpack.archive.staging import staged_file
from marpack.errors import OutputError, UsageError
from marpack.project.scaffold.template import templates
from marpack.render.report.drawings import DrawingContext, drawing_of
from marpack.render.report.pictures import SIDE, Picture, picture_of
from marpack.render.run import told_frames
from marpack.render.run_json import RunHead
from marpack.runner.inputs import Input
from marpack.runner.results import Result, Summary
from marpack.torchserve.labels import LABELS_NAME, parse_labels
from marpack.torchserve.messages import Part
from marpack.torchserve.stock import BUILT_INS
from marpack.version import __version__

_MAX_COLUMNS = 240  # columns of the course
_TEXT = 1_500  # characters of an input
_LARGE, _SMALL_SIDE = 100, 256  # pictures in full size, and the pixels of those after them
_TINY = 96  # pixels: pictures below are shown larger
_DRAWN_ON = 240  # pixels: those that something is drawn on, below this
_STAGES = ("preprocess", "inference", "postprocess", "explain_handle", "describe_handle")
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


@cache
def page_templates() -> Environment:
    """Return the environment of the report's templates."""
    # Python's own, not a page's: the loader reads from the package alone, and everything shown is escaped.
    environment = Environment(
        loader=FileSystemLoader(templates() / "report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["stage_css"] = _css_of
    return environment


class HtmlReport:
    """One HTML file that needs nothing else; memory does not grow with the run."""

    def __init__(self, path: str) -> None:
        """Take the file's name; raises UsageError if it is not one of an HTML file."""
        if Path(path).suffix.lower() not in {".html", ".htm"}:
            raise UsageError("the report is an HTML page", where=f"--report {path}", hint="name it report.html")
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
        self._labels = _labels(archive)
        built_in = BUILT_INS.get(model.handler)
        self._crop = built_in.crop if built_in else None
        style = Markup((templates() / "report" / "style.css").read_text("utf-8"))  # noqa: S704 - ours, read from the package
        self._write("head.html.j2", title=self._title, head=head, style=style, version=__version__)

    def show(self, asked: Input, result: Result) -> None:
        """Write one input with its answer."""
        if "handle" in result.stages:
            self._course.add(result.stages["handle"])
        parts = asked.request.parts
        self._shown += 1
        side = SIDE if self._shown <= _LARGE else _SMALL_SIDE
        picture = next(filter(None, (_picture(part, side) for part in parts)), None)
        drawing = drawing_of(result, _json(result), DrawingContext(picture, self._labels, self._crop))
        width = _width(picture, _DRAWN_ON if drawing.boxes or drawing.overlay else _TINY)
        self._write(
            "input.html.j2",
            result=result,
            picture=picture,
            picture_width=width,
            picture_height=round(width * picture.height / picture.width) if picture else 0,
            parts=[{"name": part.name, "text": _text(part)} for part in parts],
            drawing=drawing,
            strip=_strip(result.stages),
            stages_told=_stage_times(result.stages),
            told_frames=told_frames,
        )

    def end(self, summary: Summary, *, interrupted: bool = False) -> None:
        """Write what the run adds up to."""
        initialize = summary.load.get("initialize")
        self._write(
            "foot.html.j2",
            summary=summary,
            interrupted=interrupted,
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
        facts = [("file", head.archive), ("digest", head.digest or "none"), ("target", head.target)]
        return [*facts, ("handler", head.loaded.handler), ("device", head.loaded.device or "unknown")]

    def _write(self, template: str, **values: Any) -> None:  # Any: what a template shows
        text = page_templates().get_template(template).render(values)
        try:
            self._file.write(text.encode("utf-8", "replace"))
        except OSError as error:
            raise OutputError(f"the report cannot be written: {error.strerror}", where=str(self._path)) from error


class _NothingToTell(Exception):  # noqa: N818 - no error
    """Nothing was loaded, so there is no report."""


def _labels(archive: Archive) -> Mapping[str, str]:
    """Return {class index: label}, or nothing where there are none that can be read."""
    if LABELS_NAME not in archive.entries:
        return {}
    with archive.open(LABELS_NAME) as file:
        return {key: str(name) for key, name in parse_labels(file.read()).names.items()}


def _picture(part: Part, side: int) -> Picture | None:
    kind = part.content_type.partition("/")[0]
    if kind != "image" and part.content_type not in {"", "application/octet-stream"}:
        return None
    return picture_of(part.value, side=side)


def _width(picture: Picture | None, minimum: int) -> int:
    """Return the width that a picture is shown with: enlarged by a whole number, if it is small."""
    if picture is None:
        return 0
    grown = -(-minimum // picture.width) if picture.width < minimum else 1
    return min(picture.width * grown, SIDE)


def _text(part: Part) -> str:
    try:
        text = part.value[: 4 * _TEXT].decode("utf-8", "strict" if len(part.value) <= 4 * _TEXT else "ignore")
    except UnicodeDecodeError:
        return f"{len(part.value):,} bytes {part.content_type}".rstrip()
    return text if len(text) <= _TEXT else f"{text[:_TEXT]}…"


def _json(result: Result) -> Any:  # Any: JSON
    if result.body_encoding != "text":
        return None
    try:
        return msgspec.json.decode(result.body)
    except (msgspec.DecodeError, RecursionError):
        return None


def _strip(stages: Mapping[str, float]) -> list[dict[str, object]]:
    """Return the stages as shares of the whole call, what is left of it last."""
    whole = stages.get("handle", 0.0)
    named = [(name, stages[name]) for name in _STAGES if name in stages]
    if not named or whole <= 0:
        return []
    parts = [{"css": _css_of(name), "share": round(100 * elapsed / whole, 2)} for name, elapsed in named]
    rest = 100 - 100 * sum(elapsed for _, elapsed in named) / whole
    return [*parts, {"css": _css_of("handle"), "share": round(max(rest, 0), 2)}]


def _css_of(stage: str) -> str:
    """Return the class that colours a stage, wherever it is drawn; the whole call and what is left of it are grey."""
    return f"s{_STAGES.index(stage)}" if stage in _STAGES else "rest"


def _stage_times(stages: Mapping[str, float]) -> str:
    if "handle" not in stages:
        return ""
    named = [f"{name} {stages[name]:.1f}" for name in _STAGES if name in stages]
    return f"{' + '.join(named)}{' of ' if named else ''}{stages['handle']:.1f} ms"


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
