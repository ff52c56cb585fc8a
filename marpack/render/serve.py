"""The output of `marpack serve`: its log on stderr, as text or JSON lines, and the page to try models on."""

import logging
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Literal

import click
from msgspec import Struct

from marpack.errors import MarpackError
from marpack.json_text import to_json
from marpack.project.scaffold.template import templates
from marpack.render.article import article, article_css, page_templates
from marpack.render.console import STDERR, duration, error_lines, visible
from marpack.render.run import load_error_lines, trouble_lines
from marpack.runner.client import LoadError
from marpack.runner.results import AnsweredInput, Percentiles
from marpack.serving.api import Answered, ServerStatistics
from marpack.serving.metrics import MetricLogged
from marpack.serving.models import HandlerFailed, HandlerPrinted, ModelFailed, WorkerLoaded
from marpack.serving.page import PageAsset, PageModel, PageRenderer, PageState
from marpack.serving.server import Listening, Reloaded
from marpack.version import __version__

SERVER_LOG = logging.getLogger("marpack.serving")
_LOOP_LOG = logging.getLogger("asyncio")  # has the bugs that callbacks and connections meet
# Control characters that JSON allows in strings.
_CONTROL = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
_MAX_CAUSES = 8  # that the summary lists
_MAX_KNOWN = 1000  # models whose latest error is kept
_MAX_CHANGED = 3  # files that a reload lists


class Summary(Struct, frozen=True, tag_field="event", tag="summary"):
    """The log event at the end of a server."""

    requests: int
    failures: dict[str, int]
    milliseconds: Percentiles | None

    @classmethod
    def of(cls, statistics: ServerStatistics) -> "Summary":
        """Return the summary of all requests."""
        return cls(statistics.requests, dict(statistics.failures.most_common()), statistics.percentiles())


class _Handler(logging.StreamHandler):  # type: ignore[type-arg]  # sys.stderr, whatever it is
    def handleError(self, record: logging.LogRecord) -> None:  # noqa: ARG002, N802 - logging's signature
        """Lose a line that cannot be written, instead of a response; raise other errors, which are bugs."""
        if not isinstance(sys.exc_info()[1], OSError | ValueError):
            raise  # noqa: PLE0704 - logging calls this in its `except` block


class JsonFormatter(logging.Formatter):
    """One JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return an event with its time; a message without an event is a note."""
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        event = record.msg if isinstance(record.msg, Struct) else {"event": "note", "message": record.getMessage()}
        if isinstance(event, dict) and record.exc_info:
            event["traceback"] = self.formatException(record.exc_info)
        line = f'{{"time":"{at}","level":"{record.levelname.lower()}",{to_json(event).decode()[1:]}'
        return line if line.isprintable() else _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", line)


class TextFormatter(logging.Formatter):
    """Lines for people."""

    def __init__(self) -> None:
        super().__init__()
        self._failures: dict[str, str] = {}  # model → its latest error

    def format(self, record: logging.LogRecord) -> str:
        """Return an event as one or more lines."""
        event, error = record.msg, record.exc_info[1] if record.exc_info else None
        is_known = isinstance(event, ModelFailed) and self._failures.get(event.model) == event.message
        if isinstance(event, ModelFailed):
            if len(self._failures) >= _MAX_KNOWN:  # requests may register models of any number of names
                self._failures.clear()
            self._failures[event.model] = event.message
        elif isinstance(event, WorkerLoaded):
            self._failures.pop(event.model, None)
        lines: list[str] = []
        if isinstance(error, MarpackError) and not is_known:
            lines += load_error_lines(error) if isinstance(error, LoadError) else error_lines(error)
        if isinstance(event, HandlerFailed):
            lines += trouble_lines(event.trouble)
        elif isinstance(event, Summary):
            lines += _summary_lines(event)
        else:
            text = _event_text(event if isinstance(event, Struct) else record.getMessage())
            is_slow = isinstance(event, Answered) and record.levelno == logging.WARNING
            text = f"{click.style('slow', fg='yellow')} {text}" if is_slow else text
            lines.append(text.replace("\n", "\N{REPLACEMENT CHARACTER}"))
            if record.exc_info and not isinstance(error, MarpackError):
                lines.append(f"  {visible(self.formatException(record.exc_info))}")
        text = "\n".join(line.replace("\n", "\n    │ ") for line in lines)  # texts may imitate events
        return text if sys.stderr.isatty() and not os.environ.get("NO_COLOR") else click.unstyle(text)


def _event_text(event: Struct | str) -> str:
    """Return an event, or a note, as styled text."""
    match event:
        case Listening():
            use = _dim(" in a browser: try a model") if event.what == "page" else ""
            return f"{_dim(f'{event.what:<11}')} {visible(event.address)}{use}"
        case WorkerLoaded():
            device = f" on {event.device}" if event.device else ""
            took = f"{event.handler} in {duration(event.milliseconds)}{device}, worker {event.worker}"
            return f"{click.style('ready', fg='green')} {visible(event.model)} {_dim(took)}"
        case ModelFailed():
            next_step = "it is given up" if event.given_up else "it is tried again"
            state = "it is not served" if event.worker is None else f"worker {event.worker}: {next_step}"
            return f"{click.style('down', fg='red')}  {visible(event.model)} {_dim(state)}"
        case HandlerPrinted():
            return _dim(f"{event.model} {event.worker} │ {event.line}")
        case Answered():
            status = click.style(str(event.status or "gone"), fg="green" if 200 <= event.status < 400 else "red")
            parts = {"queue": event.queue_ms, "handler": event.handler_ms}
            shares = ", ".join(f"{name} {duration(value)}" for name, value in parts.items() if value is not None)
            model = f"{event.model} {event.version} " if event.model else ""
            took = f"{model}{duration(event.milliseconds)}{f' ({shares})' if shares else ''} {event.id}"
            return f"{status} {visible(event.method)} {visible(event.target)} {_dim(took)}"
        case MetricLogged():
            return _dim(event.line)
        case Reloaded():
            more = len(event.changed) - _MAX_CHANGED
            names = ", ".join(event.changed[:_MAX_CHANGED]) + (f" and {more} more" if more > 0 else "")
            outcome = "the model is unchanged" if event.kept else "reloaded"
            return f"{click.style('reload', fg='cyan')} {visible(event.model)}: {visible(names)} changed, {outcome}"
    return f"{click.style('note', fg='cyan')} {visible(str(event))}"


def _summary_lines(event: Summary) -> Iterator[str]:
    times = event.milliseconds
    spread = f", p50 {duration(times.p50)}, p99 {duration(times.p99)}" if times else ""
    yield f"{_dim('served')} {event.requests:,} requests{spread}"
    for cause, count in list(event.failures.items())[:_MAX_CAUSES]:
        yield f"  {click.style(f'{count:,}', fg='red')} {visible(cause)}"


def _dim(text: str) -> str:
    return click.style(visible(text), dim=True)


@contextmanager
def logging_to_stderr(form: Literal["text", "json"]) -> Iterator[None]:
    """Write the logs of the server and of its event loop to stderr, with --quiet only warnings and errors."""
    handler = _Handler(sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    level = SERVER_LOG.level
    SERVER_LOG.setLevel(logging.WARNING if STDERR.quiet else logging.INFO)
    for log in (SERVER_LOG, _LOOP_LOG):
        log.addHandler(handler)
    SERVER_LOG.propagate = False
    try:
        yield
    finally:
        SERVER_LOG.propagate = True
        for log in (SERVER_LOG, _LOOP_LOG):
            log.removeHandler(handler)
        SERVER_LOG.setLevel(level)


# The page's script copies this attribute to the style: its security policy forbids style attributes, as a handler
# decides what a drawn response contains.
_STYLE = "data-css"


def page_renderer() -> PageRenderer:
    """Return the functions that draw the page; its files are read now, once."""
    folder = templates() / "serve"
    # The report's colors and the look of its responses, then the page's own styles.
    style = (templates() / "report" / "style.css").read_bytes() + article_css().encode()
    style += (folder / "page.css").read_bytes()
    template = page_templates().get_template("page.html.j2")

    def index(models: Sequence[PageModel]) -> bytes:
        state = to_json(PageState(tuple(models))).decode()
        return template.render(models=models, state=state, version=__version__).encode("utf-8", "backslashreplace")

    def draw(answered: AnsweredInput, labels: Mapping[str, str], handler: str) -> str:
        return article(answered, labels, handler, style=_STYLE)

    assets = {
        "page.css": PageAsset("text/css; charset=utf-8", style),
        "page.js": PageAsset("text/javascript; charset=utf-8", (folder / "page.js").read_bytes()),
    }
    return PageRenderer(assets, index, draw)
