"""Exceptions → `Trouble`: plain data with the author's own frames marked, which is all that leaves the worker."""

import linecache
import re
import traceback
from collections.abc import Iterable
from pathlib import Path
from types import CodeType, TracebackType

from marpack.protocol.diagnostics import attempt
from marpack.protocol.messages import Frame, Trouble
from marpack.torchserve.response import WorkerDeath
from marpack.worker.remedies import remedy_for

_CODE_FAULTS = (NameError, ImportError, SyntaxError)
_MAX_FRAMES = 60
_MAX_TEXT = 4000
_COLOURS = r"\x1b\[[0-9;]*m"


def flatten(
    error: BaseException, *, stage: str, model_dir: str, hint: str | None = None, required: Iterable[str] = ()
) -> Trouble:
    """Return an exception as data: class, message, frames outermost first, and what caused it.

    Frames of marpack's own before the first of the author's are dropped: they say nothing about the archive.
    `required` are the distributions that the archive's requirements name.
    """
    remedy = remedy_for(error, model_dir, required)
    frames = [*_frames(error.__traceback__, model_dir), *_syntax_frame(error, model_dir)]
    if type(error).__module__.startswith("marpack.") and not any(frame.user for frame in frames):
        frames = []  # it says what is wrong with the archive, and where we noticed says nothing
    return Trouble(
        kind=type(error).__name__,
        message=message_of(error),
        stage=stage,
        frames=tuple(_trimmed(frames)),
        hint=hint or remedy.hint,
        notes=(*getattr(error, "__notes__", ()), *_causes(error)),
        only_here=remedy.only_here,
        code_fault=isinstance(error, _CODE_FAULTS),
    )


def last_words(error: BaseException, model_dir: str, *, stage: str = "handle") -> Trouble:
    """Return as data what ends a worker."""
    if isinstance(error, WorkerDeath):
        return Trouble(kind=error.kind, message=str(error), stage="respond", hint=error.hint)
    return flatten(error, stage=stage, model_dir=model_dir)


def message_of(error: BaseException) -> str:
    """Return what an exception says, even if saying it raises."""
    text = attempt(lambda: str(error))
    if isinstance(text, Exception):
        text = f"(its message could not be shown: {type(text).__name__})"
    text = re.sub(_COLOURS, "", text)
    return text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}… ({len(text)} characters)"


def _frames(trace: TracebackType | None, model_dir: str) -> list[Frame]:
    return [_frame(frame.f_code, line, model_dir) for frame, line in traceback.walk_tb(trace)][-_MAX_FRAMES:]


def _frame(code: CodeType, line: int, model_dir: str) -> Frame:
    file = code.co_filename
    user = is_inside(file, model_dir)
    return Frame(
        file=_author_file(Path(file), model_dir) if user else file,
        line=line,
        function=code.co_qualname,
        code=linecache.getline(file, line).strip(),
        user=user,
    )


def is_inside(file: str, model_dir: str) -> bool:
    """Return whether a source file is in the model folder; a folder `digits-env` is not in a folder `digits`."""
    return Path(file).is_relative_to(model_dir)


def _author_file(path: Path, model_dir: str) -> str:
    """Return a file of the author's as they know it: by its name in the archive, or, run unpacked, where it lies."""
    return str(path.resolve()) if path.is_symlink() else str(path.relative_to(model_dir))


def _syntax_frame(error: BaseException, model_dir: str) -> list[Frame]:
    if not isinstance(error, SyntaxError) or not error.filename:
        return []
    user = is_inside(error.filename, model_dir)
    code = (error.text or "").strip()
    file = _author_file(Path(error.filename), model_dir) if user else error.filename
    return [Frame(file=file, line=error.lineno or 0, function="<module>", code=code, user=user)]


def _trimmed(frames: list[Frame]) -> list[Frame]:
    first = next((index for index, frame in enumerate(frames) if frame.user), None)
    if first is None:
        return [frame for frame in frames if "importlib" not in frame.file]
    kept = [frame for frame in frames[first:] if not frame.file.startswith("<frozen importlib")]
    return [frame for before, frame in zip([None, *kept], kept, strict=False) if not _repeats(frame, before)]


def _repeats(frame: Frame, before: Frame | None) -> bool:
    """Say whether a frame is the comprehension or generator on the line of the one before: it tells nothing more."""
    is_inner = frame.function.endswith(("<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>"))
    return is_inner and before is not None and (frame.file, frame.line) == (before.file, before.line)


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
