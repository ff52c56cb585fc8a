"""`marpack run --record`: the samples of marpack.yaml, from inputs and the answers they got."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from marpack.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from marpack.gate.recording import Recorder

_FILES_ONLY = ("recorded", "form", "content_type", "headers", "explain", "describe", "envelope")
_HINT = "a sample is the bytes of a file, sent as marpack run --input sends it"


def recorder_of(source: str | None, options: dict[str, Any]) -> Recorder:
    """Return what records the answers; without inputs, those to the project's samples are asked for.

    Raises UsageError for options that no sample can keep, ProjectError if the source is no project.
    """
    from pathlib import Path

    from marpack.gate.recording import Recorder
    from marpack.project.load import load_project

    wrong = next((name for name in _FILES_ONLY if options[name]), None)
    if wrong is not None:
        raise UsageError(f"--record does not go with --{_spelt(wrong)}", hint=_HINT)
    project = load_project(Path(source if source is not None else "."))
    if not options["inputs"] and not options["data"]:
        options["inputs"] = tuple(_path(project.folder, sample.input) for sample in project.samples)
    if not options["inputs"] and not options["data"]:
        raise UsageError("there is nothing to record", where=project.file, hint="name inputs: --record --input FILE…")
    return Recorder(project)


def _path(folder: Path, name: str) -> str:
    """Return the path of a sample, spelt so that it stands for a file and nothing else."""
    path = str(folder / name)
    return f"./{path}" if path.startswith(("-", "@")) else path


def _spelt(name: str) -> str:
    return {"recorded": "requests", "headers": "header"}.get(name, name).replace("_", "-")


def finish(recorder: Recorder, code: int) -> int:
    """Write what was recorded, tell it on stderr, and return the exit code: 1 if something could not be recorded."""
    from rich.markup import escape

    from marpack.gate.recording import Kept
    from marpack.render.console import talk

    recorder.write()
    console = talk()
    for recorded in recorder.done:
        if recorded.kept is Kept.REFUSED:
            console.print(f"[red]not recorded[/] {escape(recorded.sample)}: {escape(recorded.reason)}")
    counts = [f"{sum(item.kept is kept for item in recorder.done)} {kept}" for kept in Kept]
    console.print(f"[dim]samples:[/] {', '.join(count for count in counts if not count.startswith('0 ')) or 'none'}")
    refused = any(recorded.kept is Kept.REFUSED for recorded in recorder.done)
    recordable = code in (ExitCode.OK, ExitCode.SHORT)  # a 400 falls short of nothing here: it is what is expected
    return code if not recordable else ExitCode.SHORT if refused else ExitCode.OK
