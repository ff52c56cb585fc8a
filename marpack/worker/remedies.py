"""What mends the failures that authors meet most often."""

import linecache
import os
import re
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import FrameType

import msgspec
from msgspec import Struct

from marpack.errors import shortened
from marpack.protocol.diagnostics import attempt, note
from marpack.torchserve import distributions
from marpack.torchserve.labels import LABELS_NAME
from marpack.torchserve.stock import INSTALLED, MANIFEST_FILES, SET_BY_INITIALIZE, has_module, is_standard

_ARGUMENTS = (
    "the worker's arguments are the server's: take settings from context.model_yaml_config or os.environ, and parse "
    "arguments only under if __name__ == '__main__'"
)
_CONFIG = "set config: in marpack.yaml, or pass --config-file"
_OF_BYTES = r"\b(BytesIO|frombuffer|b64decode|imdecode|decode)\("  # what is not called with a value decoded already


class Remedy(Struct, frozen=True):
    """What mends a failure."""

    hint: str | None = None
    only_here: bool = False  # the server would not fail


def remedy_for(error: BaseException, model_dir: str, required: Iterable[str] = ()) -> Remedy:
    """Return what mends the commonest failures."""
    if _wants_arguments(error):
        return Remedy(_ARGUMENTS)
    if isinstance(unset := attempt(lambda: _unset(error, Path(model_dir))), str):
        return Remedy(unset)
    if isinstance(sought := attempt(lambda: _sought(error, Path(model_dir))), str):  # it may be of the author's class
        return Remedy(f"the archive holds no {sought}: pack it, by files: in marpack.yaml or by --extra-files")
    if not isinstance(error, ModuleNotFoundError) or not error.name:
        return Remedy(getattr(error, "hint", None))
    if error.name == "ts":
        return Remedy(
            "torchserve is not installed here: pip install torchserve, or leave --torchserve out", only_here=True
        )
    if error.name.partition(".")[0] == "ts":
        return Remedy(getattr(error, "hint", None) or _why_no_ts(error), only_here=has_module(error.name))
    return _missing(error.name, Path(model_dir), sorted(required))


def _sought(error: BaseException, folder: Path) -> str | None:
    """Return which file was looked for in a folder and is not there; raises for one elsewhere, or without a name."""
    if not isinstance(error, FileNotFoundError) or error.filename2:
        return None
    inner = (folder / os.fsdecode(error.filename)).relative_to(folder)
    return None if ".." in inner.parts or (folder / inner).exists() else inner.as_posix()


def _unset(error: BaseException, folder: Path) -> str | None:
    """Return what sets a key that is missing from the environment, the manifest or the model config."""
    key = error.args[0] if isinstance(error, KeyError) and error.args else None
    frames = list(_frames(error)) if isinstance(key, str) else []
    if not frames or not isinstance(key, str):
        return None
    if frames[-1][0].f_globals.get("__name__") == "os":  # os.environ's own
        name = shortened(key, 60)
        return f"set the environment variable {name} where the server starts, and here: {name}=… marpack …"
    model = msgspec.json.decode((folder / "MAR-INF" / "MANIFEST.json").read_bytes()).get("model", {})
    if key in MANIFEST_FILES and key not in model:
        what, option, setting = MANIFEST_FILES[key]
        return f"the archive names no {what}: set {setting}: in marpack.yaml, or pass {option}"
    if not _is_of_config(*frames[-1]):
        return None
    if "configFile" not in model:
        return f"the archive has no model config with the key {shortened(key, 60)}: {_CONFIG}"
    return f"the model config lacks the key {shortened(key, 60)}: add it to {model['configFile']}"


def _is_of_config(frame: FrameType, line: str) -> bool:
    """Say whether a line looks into the model config, under its own name or another that it was given."""
    if "model_yaml_config" in line:
        return True
    owners = [frame.f_locals.get(name) for name in ("self", "context", "ctx")]
    configs = [config for owner in owners if (config := getattr(owner, "model_yaml_config", None)) is not None]
    names = re.findall(r"\b(\w+)\[", line)
    return any(frame.f_locals.get(name) is config for name in names for config in configs)


def _missing(module: str, folder: Path, required: list[str]) -> Remedy:
    """Return what to do about a module that nothing here provides."""
    top = module.partition(".")[0]
    name = distributions.usual_provider(top)
    if module != top:  # the package is there: were it not, its own name would be the one that is missing
        return Remedy(_half_there(module, top, folder))
    if top in INSTALLED:
        way = f": pip install {name}" if name else ""
        return Remedy(f"a stock server has {top}, and this Python has not{way}", only_here=True)
    if is_standard(top):
        python = f"{sys.version_info.major}.{sys.version_info.minor}"
        return Remedy(f"Python {python} no longer has {top}, which older ones have: use what took its place")
    listed = [each for each in required if distributions.provided(top, [each])]
    if listed:
        hint = f"the requirements list {listed[0]}, which is not installed here: pip install {listed[0]}"
        return Remedy(f"{hint}, or run with --env isolated", only_here=True)
    if distributions.is_homely(top):
        return Remedy(f"pack {top}.py with the archive")
    if name:
        return Remedy(f"list {name} in requirements.txt for the server, and here: pip install {name}")
    rest = "otherwise list its distribution in requirements.txt, and install it here"
    return Remedy(f"if it is a file of yours, pack {top}.py; {rest}")


def _half_there(module: str, top: str, folder: Path) -> str:
    if (folder / top).exists() or (folder / f"{top}.py").exists():
        return f"the archive holds {top}, and in it no {module}: pack it, or mend the name"
    return f"{top} is installed here, without {module}: ask for the version that has it in requirements.txt"


def _why_no_ts(error: ModuleNotFoundError) -> str | None:
    if str(error) != f"No module named {error.name!r}":  # it says more, and so enough
        return None
    return "TorchServe 0.12 has no module of that name"


def _wants_arguments(error: BaseException) -> bool:
    """Say whether a module's code asked for a command line's arguments."""
    frames = list(_frames(error))
    if isinstance(error, SystemExit):
        return any(frame.f_globals.get("__name__") == "argparse" for frame, _ in frames)
    return bool(frames) and "sys.argv" in frames[-1][1]


def _frames(error: BaseException) -> Iterator[tuple[FrameType, str]]:
    """Yield an exception's frames, outermost first, with the source line that each was at."""
    for frame, line in traceback.walk_tb(error.__traceback__):
        yield frame, linecache.getline(frame.f_code.co_filename, line)


def hint_in_request(error: BaseException, rows: Iterable[object], handler: object) -> str | None:
    """Return what mends a failure to answer: a row taken for what it is not, an attribute that was never set."""
    given = [row for row in rows if isinstance(row, Mapping)]
    found = attempt(lambda: _hint_about_rows(error, given) or _hint_about_handler(error, handler))
    return None if isinstance(found, Exception) else found  # it asks objects of the author's


def _hint_about_rows(error: BaseException, rows: list[Mapping[str, object]]) -> str | None:
    key = error.args[0] if isinstance(error, KeyError) and error.args else None
    lacking = next((row for row in rows if key not in row), None)
    if key in {"data", "body"} and lacking is not None:
        return f"the request has {', '.join(lacking) or 'no fields'}: ask for row.get('data') or row.get('body')"
    if isinstance(error, AttributeError) and any(error.obj is row for row in rows):
        return "a row is a dict of the request's fields: its body is row.get('data') or row.get('body')"
    decoded = (value for row in rows for value in row.values() if not isinstance(value, bytes | bytearray))
    value = next((value for value in decoded if _is_about(error, value)), None)
    if value is None:
        return None
    came = f"this body arrived as {type(value).__name__}"
    return f"{came}: JSON is decoded before the handler sees it, text becomes str; decode only a bytearray"


def _is_about(error: BaseException, value: object) -> bool:
    """Say whether an exception came of taking a value for bytes."""
    if isinstance(error, AttributeError):
        return error.obj is value
    frames = list(_frames(error)) if isinstance(error, TypeError) else []
    if not frames:
        return False
    frame, line = frames[-1]
    return (
        any(local is value for local in frame.f_locals.values())
        if _is_json(frame)
        else bool(re.search(_OF_BYTES, line))
    )


def _is_json(frame: FrameType) -> bool:
    return frame.f_globals.get("__name__") == "json" and frame.f_code.co_name == "loads"


def note_gap(error: BaseException, handler: object) -> None:
    """Note that a class has a number beyond the labels that the handler holds, as the built-ins note of theirs."""
    frames = list(_frames(error)) if isinstance(error, KeyError) and error.args else []
    if not frames or str(frames[-1][0].f_globals.get("__name__")).startswith("marpack."):
        return
    held = attempt(lambda: _exceeded_labels(error.args[0], handler))
    if held is not None and not isinstance(held, Exception):
        message = f"the model answers with class {error.args[0]}, and {held}"
        note("labels-gap", message, stage="postprocess", hint="give one label for each of the model's outputs")


def _exceeded_labels(key: object, handler: object) -> str | None:
    """Return what names the classes from 0 on, and not this one."""
    if not isinstance(key, int | str) or not str(key).isdecimal():
        return None
    for name, held in vars(handler).items():
        if (
            isinstance(held, dict)
            and 0 < len(held) <= int(key)
            and held.keys() == set(map(type(key), range(len(held))))
        ):
            where = LABELS_NAME if name == "mapping" else f"the handler's {name}"
            return f"{where} names those from 0 to {len(held) - 1}"
    return None


def _hint_about_handler(error: BaseException, handler: object) -> str | None:
    """Say why something that BaseHandler's `initialize` sets is not there."""
    frames = list(_frames(error)) if isinstance(error, AttributeError | TypeError) else []
    if not frames or not hasattr(type(handler), "_load_torchscript_model"):
        return None
    named = re.findall(r"\bself\.(\w+)", frames[-1][1])
    unset = next((name for name in SET_BY_INITIALIZE if name in named and getattr(handler, name, None) is None), None)
    if unset is None:
        return None
    if getattr(handler, "map_location", None) is None:  # it was never called
        return f"self.{unset} is set by BaseHandler.initialize: call super().initialize(context) in yours"
    return "self.mapping is None: the archive has no index_to_name.json" if unset == "mapping" else None
