"""What `marpack serve` shows: lines for people, or JSON for machines, on stderr; and the page to try models on."""

import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import msgspec
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from marpack.errors import MarpackError
from marpack.json_text import to_json
from marpack.project.scaffold.template import templates
from marpack.protocol.messages import Loaded, Trouble
from marpack.render.console import plain, show_error, talk
from marpack.render.report.article import article, article_css
from marpack.render.run import duration, show_load_error, show_trouble
from marpack.runner.client import LoadError
from marpack.runner.results import AnsweredInput
from marpack.serving.listener import AnsweredRequest, ServerListener, ServerStatistics
from marpack.serving.page import PageAsset, PageModel, PageState
from marpack.serving.settings import Address
from marpack.version import __version__


class ServeLog(ServerListener):
    """A log of a server, which is summed up in the end."""

    def summed_up(self, statistics: ServerStatistics) -> None:
        """Tell what all requests add up to."""


class TextLog(ServeLog):
    """Lines for people."""

    def __init__(self) -> None:
        self._console = talk()
        self._told: dict[str, str] = {}  # model → why it could not be loaded, as it was told last

    def _print(self, text: str) -> None:
        with suppress(OSError):  # a log that cannot be written costs nobody an answer
            self._console.print(text, soft_wrap=True)

    def listening(self, what: str, address: Address) -> None:
        """Tell an address."""
        hint = " [dim]in a browser: try a model[/]" if what == "page" else ""
        self._print(f"[dim]{what:<11}[/] {plain(str(address))}{hint}")

    def noted(self, text: str) -> None:
        """Tell a note."""
        self._print(f"[cyan]note[/] {plain(text)}")

    def loaded(self, model: str, worker: int, loaded: Loaded, milliseconds: float) -> None:
        """Tell of a worker that answers."""
        self._told.pop(model, None)
        device = f" on {plain(loaded.device)}" if loaded.device else ""
        self._print(
            f"[green]ready[/] {plain(model)} [dim]{plain(loaded.handler)} in {duration(milliseconds)}{device},"
            f" worker {worker}[/]"
        )

    def failed(self, model: str, worker: int | None, error: MarpackError, *, given_up: bool) -> None:
        """Tell why a worker could not be started; of what was told just before one line will do."""
        if self._told.get(model) != str(error):
            self._told[model] = str(error)
            _show_failure(error)
        again = "it is given up" if given_up else "it is tried again"
        self._print(f"[red]down[/]  {plain(model)} [dim]worker {worker}: {again}[/]")

    def printed(self, model: str, worker: int, lines: Sequence[str], troubles: Sequence[Trouble]) -> None:
        """Pass on what a handler printed, and why answers fell short."""
        for line in lines:
            self._print(f"[dim]{plain(model)} {worker} │ {plain(line)}[/]")
        with suppress(OSError):
            for trouble in troubles:
                show_trouble(trouble, self._console)

    def answered(self, request: AnsweredRequest) -> None:
        """Tell of an answer in one line."""
        colour = "green" if 200 <= request.status < 400 else "red"
        parts = ", ".join(f"{name} {duration(value)}" for name, value in _shares(request) if value is not None)
        took = f"{duration(request.milliseconds)}{f' ({parts})' if parts else ''}"
        asked = f"{plain(request.method)} {plain(request.target)}"
        self._print(f"[{colour}]{request.status or 'gone'}[/] {asked} [dim]{took} {request.id}[/]")

    def measured(self, line: str) -> None:
        """Pass on a metric's line."""
        self._print(f"[dim]{plain(line)}[/]")

    def reloaded(self, model: str, changed: Sequence[str], error: MarpackError | None) -> None:
        """Tell what became of a model whose files changed."""
        names = ", ".join(changed[:3]) + (f" and {len(changed) - 3} more" if len(changed) > 3 else "")
        if error is not None:
            _show_failure(error)
        became = "what was served before goes on being served" if error else "loaded anew"
        self._print(f"[cyan]reload[/] {plain(model)}: {plain(names)} changed, {became}")

    def summed_up(self, statistics: ServerStatistics) -> None:
        """Tell what all requests add up to."""
        times = statistics.percentiles()
        spread = f", p50 {duration(times.p50)}, p99 {duration(times.p99)}" if times else ""
        self._print(f"[dim]served[/] {statistics.requests:,} requests{spread}")
        for cause, count in statistics.failures.most_common(8):
            self._print(f"  [red]{count:,}[/] {plain(cause)}")


def _show_failure(error: MarpackError) -> None:
    with suppress(OSError):
        if isinstance(error, LoadError):
            show_load_error(error)
        else:
            show_error(error)


def _shares(request: AnsweredRequest) -> tuple[tuple[str, float | None], ...]:
    return ("queue", request.queue_ms), ("handler", request.handler_ms)


class JsonLog(ServeLog):
    """One JSON object a line."""

    def _write(self, event: str, **fields: Any) -> None:  # Any: JSON
        at = datetime.fromtimestamp(time.time(), UTC).isoformat(timespec="milliseconds")
        line = msgspec.json.encode({"time": at, "event": event, **fields})
        with suppress(OSError, ValueError):  # a log that cannot be written costs nobody an answer
            sys.stderr.write(line.decode() + "\n")
            sys.stderr.flush()

    def listening(self, what: str, address: Address) -> None:
        """Tell an address."""
        self._write("listening", what=what, address=str(address))

    def noted(self, text: str) -> None:
        """Tell a note."""
        self._write("note", message=text)

    def loaded(self, model: str, worker: int, loaded: Loaded, milliseconds: float) -> None:
        """Tell of a worker that answers."""
        self._write(
            "loaded",
            model=model,
            worker=worker,
            handler=loaded.handler,
            device=loaded.device,
            milliseconds=milliseconds,
        )

    def failed(self, model: str, worker: int | None, error: MarpackError, *, given_up: bool) -> None:
        """Tell why a worker could not be started."""
        trouble = error.trouble if isinstance(error, LoadError) else None
        self._write(
            "failed",
            model=model,
            worker=worker,
            message=str(error),
            hint=error.hint,
            given_up=given_up,
            trouble=trouble,
        )

    def printed(self, model: str, worker: int, lines: Sequence[str], troubles: Sequence[Trouble]) -> None:
        """Pass on what a handler printed, and why answers fell short."""
        for line in lines:
            self._write("printed", model=model, worker=worker, line=line)
        for trouble in troubles:
            self._write("trouble", model=model, worker=worker, trouble=trouble)

    def answered(self, request: AnsweredRequest) -> None:
        """Tell of an answer."""
        self._write("answered", **msgspec.structs.asdict(request))

    def measured(self, line: str) -> None:
        """Pass on a metric's line."""
        self._write("metric", line=line)

    def reloaded(self, model: str, changed: Sequence[str], error: MarpackError | None) -> None:
        """Tell what became of a model whose files changed."""
        kept = error is not None  # the model that was served before
        self._write("reloaded", model=model, changed=list(changed), kept=kept, error=str(error) if error else None)

    def summed_up(self, statistics: ServerStatistics) -> None:
        """Tell what all requests add up to."""
        times = statistics.percentiles()
        self._write(
            "summary",
            requests=statistics.requests,
            failures=dict(statistics.failures),
            milliseconds=msgspec.to_builtins(times) if times else None,
        )


# The page's script copies this one to the style: its security policy forbids style in attributes, as answers are
# drawn from what a handler said.
_STYLE = "data-css"


class Page:
    """The page's renderer; the files are read once, when it is made."""

    def __init__(self) -> None:
        folder = templates() / "serve"
        # The report's colours and the look of its answers, and after them what only this page has.
        style = (templates() / "report" / "style.css").read_bytes() + article_css().encode()
        style += (folder / "page.css").read_bytes()
        self._assets = {
            "page.css": PageAsset("text/css; charset=utf-8", style),
            "page.js": PageAsset("text/javascript; charset=utf-8", (folder / "page.js").read_bytes()),
        }
        loader = FileSystemLoader(folder)
        environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True)
        self._template = environment.get_template("page.html.j2")

    def index(self, models: Sequence[PageModel]) -> bytes:
        """Return the page, in UTF-8, as it is before it asks for anything."""
        state = to_json(PageState(tuple(models))).decode()
        page = self._template.render(models=models, state=state, version=__version__)
        return page.encode("utf-8", "backslashreplace")

    def asset(self, name: str) -> PageAsset | None:
        """Return a file of the page's by its name under `/page/`, or None where there is none."""
        return self._assets.get(name)

    def draw(self, answered: AnsweredInput, labels: Mapping[str, str], handler: str) -> str:
        """Return the HTML of one input with its answer, without a style that the page's policy forbids."""
        return article(answered, labels, handler, style=_STYLE)
