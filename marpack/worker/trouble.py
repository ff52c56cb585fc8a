"""Exceptions → `Trouble`: plain data with the author's frames and a hint, the only form that leaves the worker.

The hints are one table of rules for the failures that authors meet most often; each reads an exception.
"""

import linecache
import os
import re
import sys
import traceback
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from types import FrameType

import msgspec
from msgspec import Struct

from marpack.errors import shortened
from marpack.protocol.messages import Frame, Trouble
from marpack.torchserve import labels, server_modules
from marpack.torchserve.response import WorkerDeath
from marpack.torchserve.server_modules import INSTALLED, MANIFEST_FILES, SET_BY_INITIALIZE, has_module, is_standard
from marpack.weights.hugging_face import missing_file
from marpack.worker.notes import attempt, note

_CODE_FAULTS = (NameError, ImportError, SyntaxError)
_INNER = ("<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>")
_MAX_FRAMES = 60
_MAX_TEXT = 4000
_COLORS = r"\x1b\[[0-9;]*m"
_BYTES_CALL = re.compile(r"\b(BytesIO|frombuffer|b64decode|imdecode|decode)\(")  # fails with a decoded value


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
    """Return an exception as data: class, message, frames outermost first, its causes, and a hint.

    Frames before the first of the author's are dropped. `required` are the distributions that the archive's
    requirements name; `rows` and `handler` are the batch and the author's handler, while responding.
    """
    found = find_hint(error, model_dir, required=required, rows=rows, handler=handler)
    frames = []
    for raised, line in list(traceback.walk_tb(error.__traceback__))[-_MAX_FRAMES:]:
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
    text = re.sub(_COLORS, "", text)
    return text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}… ({len(text)} characters)"


def is_inside(file: str, model_dir: str) -> bool:
    """Return whether a source file is in the model folder."""
    return Path(file).is_relative_to(model_dir)


def _frame(file: str, line: int, function: str, code: str, model_dir: str) -> Frame:
    user = is_inside(file, model_dir)
    if user:  # named as in the archive, or, run unpacked, by its place
        path = Path(file)
        file = str(path.resolve() if path.is_symlink() else path.relative_to(model_dir))
    return Frame(file=file, line=line, function=function, code=code.strip(), user=user)


def _trim(frames: list[Frame], *, is_ours: bool) -> list[Frame]:
    """Drop frames that do not help an author; all of them for an error of marpack's own outside their code."""
    first = next((index for index, frame in enumerate(frames) if frame.user), None)
    if first is None:
        return [] if is_ours else [frame for frame in frames if "importlib" not in frame.file]
    kept: list[Frame] = []
    before = None
    for frame in frames[first:]:
        if frame.file.startswith("<frozen importlib"):
            continue
        # A comprehension or generator on the line of the frame before adds nothing.
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


class Hint(Struct, frozen=True):
    """What to do about a failure."""

    text: str | None = None
    only_here: bool = False  # the server would not fail


class Failure(Struct, frozen=True, kw_only=True):
    """An exception of the author's code and its circumstances."""

    error: BaseException
    frames: list[tuple[FrameType, str]]  # outermost first, with the source line of each
    folder: Path  # the model's
    required: tuple[str, ...]  # distributions that the archive's requirements name
    rows: list[Mapping[object, object]]  # of the batch, while responding
    handler: object  # None while loading

    @property
    def key(self) -> object:
        """The missing key of a KeyError."""
        return self.error.args[0] if isinstance(self.error, KeyError) and self.error.args else None


def find_hint(
    error: BaseException,
    model_dir: str,
    *,
    required: Iterable[str] = (),
    rows: Iterable[object] = (),
    handler: object = None,
) -> Hint:
    """Return the hint of the first rule that fits, otherwise the exception's own."""
    walked = traceback.walk_tb(error.__traceback__)
    failure = Failure(
        error=error,
        frames=[(frame, linecache.getline(frame.f_code.co_filename, line)) for frame, line in walked],
        folder=Path(model_dir),
        required=tuple(sorted(required)),
        rows=[row for row in rows if isinstance(row, Mapping)],
        handler=handler,
    )
    for rule in _RULES:
        hint = attempt(partial(rule, failure))  # rules read the author's objects, which may raise
        if isinstance(hint, Hint):
            return hint
    return Hint(getattr(error, "hint", None))


def _about_row(failure: Failure) -> Hint | None:
    error, rows = failure.error, failure.rows
    lacking = next((row for row in rows if failure.key not in row), None)
    if failure.key in {"data", "body"} and lacking is not None:
        fields = ", ".join(map(str, lacking)) or "no fields"
        return Hint(f"Read row.get('data') or row.get('body'): the request has {fields}.")
    values = [value for row in rows for value in row.values() if not isinstance(value, bytes | bytearray)]
    if isinstance(error, AttributeError):
        if any(error.obj is row for row in rows):
            return Hint("Read row.get('data') or row.get('body'): a row is a dict of the request's fields.")
        values = [value for value in values if value is error.obj]
    elif isinstance(error, TypeError) and failure.frames:
        frame, line = failure.frames[-1]
        if frame.f_globals.get("__name__") == "json" and frame.f_code.co_name == "loads":
            values = [value for value in values if any(local is value for local in frame.f_locals.values())]
        elif not _BYTES_CALL.search(line):
            return None
    else:
        return None
    if not values:
        return None
    return Hint(
        f"Decode the body only if it is a bytearray. This one is a {type(values[0]).__name__}: the server decodes "
        "JSON, and passes text as str."
    )


def _about_attribute(failure: Failure) -> Hint | None:
    handler = failure.handler
    fits = isinstance(failure.error, AttributeError | TypeError) and failure.frames
    if not fits or not hasattr(type(handler), "_load_torchscript_model"):
        return None
    named = re.findall(r"\bself\.(\w+)", failure.frames[-1][1])
    unset = next((name for name in SET_BY_INITIALIZE if name in named and getattr(handler, name, None) is None), None)
    if unset is not None and getattr(handler, "map_location", None) is None:  # initialize was never called
        return Hint(f"Call super().initialize(context) in your initialize: it sets self.{unset}.")
    return (
        Hint("Pack index_to_name.json with the archive: without it, self.mapping is None.")
        if unset == "mapping"
        else None
    )


def _about_arguments(failure: Failure) -> Hint | None:
    frames = failure.frames
    if isinstance(failure.error, SystemExit):
        reads = any(frame.f_globals.get("__name__") == "argparse" for frame, _ in frames)
    else:
        reads = bool(frames) and "sys.argv" in frames[-1][1]
    if not reads:
        return None
    return Hint(
        "Read settings from context.model_yaml_config or os.environ, and parse arguments only under "
        "if __name__ == '__main__'. The arguments of this process are the server's."
    )


def _about_key(failure: Failure) -> Hint | None:
    key = failure.key
    if not isinstance(key, str) or not failure.frames:
        return None
    frame, line = failure.frames[-1]
    if frame.f_globals.get("__name__") == "os":  # os.environ's own
        name = shortened(key, 60)
        return Hint(f"Set the environment variable {name} where the server starts, and here: {name}=… marpack …")
    model = msgspec.json.decode((failure.folder / "MAR-INF" / "MANIFEST.json").read_bytes()).get("model", {})
    if key in MANIFEST_FILES and key not in model:
        what, option, setting = MANIFEST_FILES[key]
        return Hint(f"Set {setting}: in marpack.yaml, or pass {option}: the archive has no {what}.")
    if "model_yaml_config" not in line:
        return None
    if "configFile" in model:
        return Hint(f"Add the key {shortened(key, 60)} to {model['configFile']}.")
    way = "set config: in marpack.yaml, or pass --config-file"
    return Hint(f"Pack a model config with the key {shortened(key, 60)}: {way}.")


def _about_file(failure: Failure) -> Hint | None:
    error, folder = failure.error, failure.folder
    if not isinstance(error, FileNotFoundError) or error.filename2:
        return None
    inner = (folder / os.fsdecode(error.filename)).relative_to(folder)  # raises for a file elsewhere
    if ".." in inner.parts or (folder / inner).exists():
        return None
    return Hint(f"Add {inner.as_posix()} to files: in marpack.yaml, or pass it with --extra-files.")


def _about_module(failure: Failure) -> Hint | None:
    error, folder = failure.error, failure.folder
    if not isinstance(error, ModuleNotFoundError) or not error.name:
        return None
    module, top = error.name, error.name.partition(".")[0]
    if module == "ts":
        return Hint("Install torchserve (pip install torchserve), or omit --torchserve.", only_here=True)
    if top == "ts":
        plain = str(error) == f"No module named {module!r}"
        unknown = "Remove the import: TorchServe 0.12 has no module of that name." if plain else None
        return Hint(getattr(error, "hint", None) or unknown, only_here=has_module(module))
    if module == top:
        return _about_package(top, failure.required)
    if (folder / top).exists() or (folder / f"{top}.py").exists():
        return Hint(f"Pack {module}, or correct the name: the archive has {top} without it.")
    return Hint(f"Require a version of {top} that has {module} in requirements.txt: the installed one does not.")


def _about_pretrained(failure: Failure) -> Hint | None:
    """Explain a failed `from_pretrained` by the file that the model folder lacks."""
    for frame, _ in failure.frames:
        place = Path(str(frame.f_locals.get("pretrained_model_name_or_path", "")))
        if frame.f_code.co_name == "from_pretrained" and place.is_relative_to(failure.folder) and place.is_dir():
            loader = getattr(frame.f_locals.get("cls"), "__name__", "")
            if missing := missing_file(loader, {path.name for path in place.iterdir()}):
                name = (place / missing).relative_to(failure.folder).as_posix()
                return Hint(f"Add {name} under files: in marpack.yaml: it is not in the archive.")
    return None


def _about_package(top: str, required: Iterable[str]) -> Hint:
    name = server_modules.usual_provider(top)
    if top in INSTALLED:
        way = f": pip install {name}" if name else ", as a stock server has it."
        return Hint(f"Install {top} here{way}", only_here=True)
    if is_standard(top):
        python = f"{sys.version_info.major}.{sys.version_info.minor}"
        return Hint(f"Use the successor of {top}, which Python {python} no longer has.")
    listed = next((each for each in required if server_modules.provided(top, [each])), None)
    if listed is not None:
        hint = f"Install {listed} from the requirements (pip install {listed}), or run with --env isolated."
        return Hint(hint, only_here=True)
    if server_modules.is_usual_file_name(top):
        return Hint(f"Pack {top}.py with the archive.")
    if name:
        return Hint(f"Add {name} to requirements.txt for the server, and install it here: pip install {name}")
    rest = "Otherwise, add its distribution to requirements.txt and install it here."
    return Hint(f"If it is your own file, pack {top}.py. {rest}")


_RULES = (_about_pretrained, _about_row, _about_attribute, _about_arguments, _about_key, _about_file, _about_module)


def note_labels_gap(error: BaseException, handler: object) -> None:
    """Note a class number without a label in the archive's labels, or in a dict of the handler."""
    key = error.args[0] if isinstance(error, KeyError) and error.args else None
    held = attempt(lambda: vars(handler))
    if not isinstance(key, int | str) or not str(key).isdecimal() or isinstance(held, Exception):
        return
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    in_labels = bool(frames) and frames[-1].f_globals.get("__name__") == labels.__name__
    for name, names in held.items():
        if not isinstance(names, dict) or key in names:
            continue
        is_numbered = 0 < len(names) <= int(key) and names.keys() == set(map(type(key), range(len(names))))
        if is_numbered or (in_labels and name == "mapping"):
            where = labels.LABELS_NAME if name == "mapping" else f"the handler's {name}"
            message = f"the model returns class {key}, but {where} has only {len(names)} other classes"
            hint = f'Add "{key}" to {where}, or check that the labels belong to these weights.'
            note("labels-gap", message, stage="postprocess", hint=hint)
            return
