"""What `marpack run` shows: a line per answer, why one fell short, and a summary."""

import sys
from collections.abc import Iterable
from typing import IO

import msgspec
from msgspec import Struct
from rich.console import Console
from rich.markup import escape
from rich.text import Text

from marpack.render.console import talk
from marpack.runtime.messages import Frame, Loaded, Trouble
from marpack.worker.client import LoadError
from marpack.worker.results import Result
from marpack.worker.summary import Summary

_NAME = 20  # columns of an input's name
_REST = 41  # columns of everything but the answer
_LONGEST_LOG = 20  # lines


class RunReport(Struct, frozen=True, kw_only=True):
    """The result of `marpack run --json`."""

    archive: str
    digest: str | None
    target: str
    loaded: Loaded
    load_logs: str
    results: tuple[Result, ...]
    summary: Summary


class RunFailure(Struct, frozen=True, kw_only=True):
    """The result of `marpack run --json` where the handler could not be loaded."""

    archive: str
    error: str
    status: int  # what a server's clients get
    trouble: Trouble
    logs: str


class Lines:
    """Prints answers as they come, one line each, with what the author needs to know below."""

    def __init__(self, *, logs: bool, stream: IO[str] | None = None) -> None:
        self._console = Console(file=stream or sys.stdout, highlight=False)
        self._logs = logs

    def head(self, loaded: Loaded, logs: str) -> None:
        """Print how the model was loaded, on stderr."""
        console = talk()
        stages = loaded.stages
        spent = sum(stages.values())
        console.print(
            f"[dim]loaded {escape(loaded.handler)} in {spent / 1000:.2f} s"
            f" (initialize {stages.get('initialize', 0) / 1000:.2f} s)"
            f"{f' on {escape(loaded.device)}' if loaded.device else ''}[/]"
        )
        for trouble in loaded.troubles:
            show_trouble(trouble, console, note=True)
        if self._logs:
            _show_logs(logs, console)

    def show(self, result: Result) -> None:
        """Print one answer."""
        console = self._console
        colour = "green" if result.ok else "red"
        room = max(console.width - _REST, 20)
        line = Text.assemble(
            (_name(result.input).ljust(_NAME), "bold"),
            "  ",
            (f"{result.status:3}", colour),
            "  ",
            answer_in_short(result, room).ljust(room),
            (f" {result.stages.get('handle', result.seconds * 1000):8.1f} ms", "dim"),
        )
        console.print(line, soft_wrap=True)
        for trouble in result.troubles:
            show_trouble(trouble, console, note=result.ok)
        if result.restarted:
            console.print("  [dim]the worker was started again[/]")
        if self._logs:
            _show_logs(result.logs, console)

    def foot(self, summary: Summary) -> None:
        """Print what a run of several inputs adds up to, on stderr."""
        if summary.inputs < 2:
            return
        console = talk()
        short = f"[red]{summary.short} fell short[/]" if summary.short else "[green]all answered[/]"
        console.print(
            f"[dim]{summary.inputs} inputs,[/] {short}[dim], {summary.throughput:.0f}/s"
            f"{f', {summary.restarts} restarts' if summary.restarts else ''}[/]"
        )


def answer_in_short(result: Result, width: int) -> str:
    """Return an answer's body on one line of at most `width` characters."""
    if result.reset and not result.body:
        return "(connection reset)"
    if result.body_encoding == "base64":
        return f"{len(result.raw)} bytes"
    return _shortened(_one_line(result.body), width)


def _one_line(body: str) -> str:
    try:
        return str(msgspec.json.format(body, indent=-1))
    except (msgspec.DecodeError, ValueError):
        return " ".join(body.split())


def _name(name: str) -> str:
    """Return an input's name, shortened at its beginning: the end of a path tells more."""
    return name if len(name) <= _NAME else f"…{name[-_NAME + 1 :]}"


def _shortened(text: str, width: int) -> str:
    clean = "".join(char if char.isprintable() else "·" for char in text)
    return clean if len(clean) <= width else f"{clean[: width - 1]}…"


def show_trouble(trouble: Trouble, console: Console, *, note: bool = False) -> None:
    """Print why an answer is what it is: what, where in the author's files, and what to do."""
    colour = "yellow" if note else "red"
    stage = f"{trouble.stage}: " if trouble.stage else ""
    console.print(f"  [{colour}]{escape(stage)}{escape(trouble.kind)}:[/] {escape(trouble.message)}", soft_wrap=True)
    for frame in _shown(trouble.frames):
        console.print(f"    [dim]{escape(frame.file)}:{frame.line} in {escape(frame.function)}[/]", soft_wrap=True)
        if frame.code:
            console.print(f"      {escape(frame.code)}", soft_wrap=True)
    for text in trouble.notes:
        console.print(f"    [dim]{escape(text)}[/]", soft_wrap=True)
    if trouble.hint:
        console.print(f"    [dim]hint:[/] {escape(trouble.hint)}", soft_wrap=True)


def _shown(frames: Iterable[Frame]) -> list[Frame]:
    """Return the author's frames and where it ended; the libraries between them only lengthen the way."""
    every = list(frames)
    return [frame for index, frame in enumerate(every) if frame.user or index == len(every) - 1]


def show_load_error(error: LoadError) -> None:
    """Print on stderr why a handler could not be loaded, with its own traceback."""
    console = talk()
    console.print("[bold red]error:[/] the handler could not be loaded; the server's worker would die here, too")
    show_trouble(error.trouble, console)
    _show_logs(error.logs, console)


def _show_logs(logs: str, console: Console) -> None:
    lines = logs.splitlines()
    for line in lines[:_LONGEST_LOG]:
        console.print(f"  [dim]│ {escape(line)}[/]", soft_wrap=True)
    if len(lines) > _LONGEST_LOG:
        console.print(f"  [dim]│ … {len(lines) - _LONGEST_LOG} more lines; all of them with --json[/]")
