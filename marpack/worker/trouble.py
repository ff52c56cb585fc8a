"""Exceptions → `Trouble`: plain data with the author's own frames marked, the only form that leaves the worker."""

import linecache
import re
import traceback
from collections.abc import Iterable
from pathlib import Path

from marpack.protocol.messages import Frame, Trouble, attempt
from marpack.torchserve.response import WorkerDeath
from marpack.worker.hints import find_hint

_CODE_FAULTS = (NameError, ImportError, SyntaxError)
_INNER = ("<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>")
_MAX_FRAMES = 60
_MAX_TEXT = 4000
_COLOURS = r"\x1b\[[0-9;]*m"


def flatten(
    error: BaseException,
    *,
    stage: str,
    model_dir: str,
    hint: str | None = None,
    required: Iterable[str] = (),
    rows: Iterable[object] = (),
    handler: object = None,
) -> Trouble:
    """Return an exception as data: class, message, frames outermost first, and its causes.

    Frames before the first of the author's are dropped: they say nothing about the archive.

    Args:
        error: The exception.
        stage: The stage that raised it.
        model_dir: The folder of the author's files.
        hint: The hint, if it is known already.
        required: The distributions that the archive's requirements name.
        rows: The batch, while responding.
        handler: The author's handler, while responding.
    """
    found = find_hint(error, model_dir, required=required, rows=rows, handler=handler)
    walked = list(traceback.walk_tb(error.__traceback__))[-_MAX_FRAMES:]
    frames = []
    for raised, line in walked:
        code = raised.f_code
        text = linecache.getline(code.co_filename, line)
        frames.append(_frame(code.co_filename, line, code.co_qualname, text, model_dir))
    if isinstance(error, SyntaxError) and error.filename:
        frames.append(_frame(error.filename, error.lineno or 0, "<module>", error.text or "", model_dir))
    return Trouble(
        kind=type(error).__name__,
        message=message_of(error),
        stage=stage,
        frames=tuple(_trim(frames, is_ours=type(error).__module__.startswith("marpack."))),
        hint=hint or found.text,
        notes=(*getattr(error, "__notes__", ()), *_causes(error)),
        only_here=found.only_here,
        code_fault=isinstance(error, _CODE_FAULTS),
    )


def last_words(error: BaseException, model_dir: str, *, stage: str = "handle") -> Trouble:
    """Return an exception that ends a worker as data."""
    if isinstance(error, WorkerDeath):
        return Trouble(kind=error.kind, message=str(error), stage="respond", hint=error.hint)
    return flatten(error, stage=stage, model_dir=model_dir)


def message_of(error: BaseException) -> str:
    """Return an exception's message, even if its `__str__` raises."""
    text = attempt(lambda: str(error))
    if isinstance(text, Exception):
        text = f"(its message could not be shown: {type(text).__name__})"
    text = re.sub(_COLOURS, "", text)
    return text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}… ({len(text)} characters)"


def is_inside(file: str, model_dir: str) -> bool:
    """Return whether a source file is in the model folder; a folder `digits-env` is not in a folder `digits`."""
    return Path(file).is_relative_to(model_dir)


def _frame(file: str, line: int, function: str, code: str, model_dir: str) -> Frame:
    user = is_inside(file, model_dir)
    if user:  # named as in the archive, or, run unpacked, by its place
        path = Path(file)
        file = str(path.resolve() if path.is_symlink() else path.relative_to(model_dir))
    return Frame(file=file, line=line, function=function, code=code.strip(), user=user)


def _trim(frames: list[Frame], *, is_ours: bool) -> list[Frame]:
    """Drop the frames that tell an author nothing; all of them for an error of marpack's own outside their code."""
    first = next((index for index, frame in enumerate(frames) if frame.user), None)
    if first is None:
        return [] if is_ours else [frame for frame in frames if "importlib" not in frame.file]
    kept: list[Frame] = []
    before = None
    for frame in frames[first:]:
        if frame.file.startswith("<frozen importlib"):
            continue
        # A comprehension or generator on the line of the frame before tells nothing more.
        if (frame.file, frame.line) != before or not frame.function.endswith(_INNER):
            kept.append(frame)
        before = (frame.file, frame.line)
    return kept


def _causes(error: BaseException) -> list[str]:
    causes: list[str] = []
    seen = {id(error)}
    current = error
    while (before := current.__cause__ or (None if current.__suppress_context__ else current.__context__)) is not None:
        if id(before) in seen:
            break
        seen.add(id(before))
        how = "caused by" if current.__cause__ is before else "while handling"
        causes.append(f"{how} {type(before).__name__}: {message_of(before)}")
        current = before
    return causes
