"""`marpack run --watch`: answer, wait for a file to change, answer again."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from marpack.errors import ExitCode, MarpackError

if TYPE_CHECKING:
    from marpack.runner.watching import Watch

_LOOK = 0.1  # seconds between two looks for changes while answers come


def watch(source: str | None, options: dict[str, Any]) -> int:
    """Answer every input, again and again, until Ctrl-C; return the exit code of an interruption.

    torch stays imported in a process that the workers are forked from.
    """
    from marpack.runner.forking import ForkServer
    from marpack.runner.session import Device
    from marpack.runner.watching import Watch

    device = Device.parse(options["device"])
    watched = Watch(_paths(source, options), without=_outputs(options))
    with ForkServer.start(environment=device.environment(), max_memory=options["max_memory"]) as server:
        try:
            since = None
            while True:
                changed = _round(source, options, watched, server.launch, since)
                since = time.monotonic()
                _tell_changes(changed)
        except KeyboardInterrupt:
            return ExitCode.INTERRUPTED


def _round(source: str | None, options: dict[str, Any], watched: Watch, launch: Any, since: float | None) -> list[str]:
    """Answer every input once, and return what changed thereafter; a change meanwhile ends it early."""
    from marpack.cli.run import answer
    from marpack.render.console import show_error, talk

    pending: list[str] = []
    looked = time.monotonic()

    def has_changed() -> bool:
        nonlocal looked
        if time.monotonic() - looked > _LOOK:
            pending.extend(watched.changed())
            looked = time.monotonic()
        return bool(pending)

    try:
        if answer(source, options, until=has_changed, launch=launch) == ExitCode.INTERRUPTED:
            raise KeyboardInterrupt
    except MarpackError as error:
        if since is None and error.exit_code is ExitCode.USAGE and not _is_project(source):
            raise
        show_error(error)
    if pending:
        return pending
    told = "" if since is None else f"{time.monotonic() - since:.2f} s after the change, "
    talk().print(f"[dim]{told}waiting for the next one; Ctrl-C ends[/]")
    return watched.wait()


def _is_project(source: str | None) -> bool:
    return Path(source or ".").is_dir()


def _tell_changes(changed: list[str]) -> None:
    from marpack.render.console import talk

    names = ", ".join(os.path.relpath(path) for path in changed[:3])
    more = f" and {len(changed) - 3} more" if len(changed) > 3 else ""
    talk().rule(f"{names}{more} changed at {time.strftime('%H:%M:%S')}", style="dim")


def _paths(source: str | None, options: dict[str, Any]) -> list[Path]:
    """Return what is watched: the source, and the files that are inputs."""
    named = [Path(name) for name in options["inputs"]]
    fields = (field.partition("=")[2] for field in options["form"])
    named += [Path(value[1:]) for value in fields if value.startswith("@")]
    named += [Path(options["recorded"])] if options["recorded"] else []
    return [Path(source or "."), *(path for path in named if path.is_file())]


def _outputs(options: dict[str, Any]) -> list[Path]:
    return [Path(options["report"])] if options["report"] else []
