"""Why an answer is what it is, on a terminal: what, where in the author's files, and what to do."""

from collections.abc import Iterable

from rich.console import Console

from marpack.render.console import plain, talk
from marpack.runner.client import LoadError
from marpack.torchserve.messages import Frame, Trouble
from marpack.torchserve.ts.finder import NotProvidedError

_LONGEST_LOG = 20  # lines


def show_trouble(trouble: Trouble, console: Console, *, note: bool = False, again: bool = False) -> None:
    """Print what, where in the author's files, and what to do.

    Args:
        trouble: What there is to tell.
        console: Where.
        note: It stands beside an answer that is none the worse for it.
        again: The same was told just before: one line will do.
    """
    colour = "yellow" if note else "red"
    stage = f"{trouble.stage}: " if trouble.stage else ""
    console.print(f"  [{colour}]{plain(stage)}{plain(trouble.kind)}:[/] {plain(trouble.message)}", soft_wrap=True)
    if again and (trouble.frames or trouble.notes or trouble.hint):
        console.print("    [dim]as above[/]")
        return
    for frame in told_frames(trouble.frames):
        console.print(f"    [dim]{plain(frame.file)}:{frame.line} in {plain(frame.function)}[/]", soft_wrap=True)
        if frame.code:
            console.print(f"      {plain(_fitting(frame.code, console))}", soft_wrap=True)
    for text in trouble.notes:
        console.print(f"    [dim]{plain(text)}[/]", soft_wrap=True)
    if trouble.hint:
        console.print(f"    [dim]hint:[/] {plain(trouble.hint)}", soft_wrap=True)


def _fitting(code: str, console: Console) -> str:
    room = console.width - 6
    return f"{code[: room - 1]}…" if console.is_terminal and len(code) > room else code


def told_frames(frames: Iterable[Frame]) -> list[Frame]:
    """Return the author's frames and where it ended; the libraries between them only lengthen the way."""
    every = list(frames)
    return [frame for index, frame in enumerate(every) if frame.user or index == len(every) - 1]


def show_load_error(error: LoadError) -> None:
    """Print on stderr why a handler could not be loaded, with its own traceback."""
    console = talk()
    lacking = error.trouble.kind == NotProvidedError.__name__
    so = " here: marpack lacks what it needs" if lacking else "; the server's worker would die here, too"
    console.print(f"[bold red]error:[/] the handler could not be loaded{so}")
    show_trouble(error.trouble, console)
    show_logs(error.logs, console)


def show_logs(logs: str, console: Console) -> None:
    """Print what a handler printed, shortened."""
    lines = logs.splitlines()
    for line in lines[:_LONGEST_LOG]:
        console.print(f"  [dim]│ {plain(line)}[/]", soft_wrap=True)
    if len(lines) > _LONGEST_LOG:
        console.print(f"  [dim]│ … {len(lines) - _LONGEST_LOG} more lines; all of them with --json[/]")
