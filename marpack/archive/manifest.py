"""MAR-INF/MANIFEST.json: what the server knows about a model."""

import json
import math
from typing import Any, NoReturn

from msgspec import Struct, field

from marpack.errors import ManifestError
from marpack.torchserve.server_modules import HandlerName

_NO_BOOLEANS = ("handler", "configFile")  # which the server looks for as files
RUNTIMES = ("python", "python3", "LSP")  # contract §1
MAX_BYTES = 1 << 20
MAX_DEPTH = 32

_AGAIN = "build the archive again: marpack build"

_Object = dict[str, object]


class ManifestModel(Struct, frozen=True, kw_only=True, rename="camel"):
    """The manifest's `model` object, in the original archiver's order.

    `extra` holds the keys this version does not know, unchanged.
    """

    name: str = field(name="modelName")
    serialized_file: str | None = None
    handler: str
    model_file: str | None = None
    version: str | None = field(default=None, name="modelVersion")
    requirements_file: str | None = None
    config_file: str | None = None
    envelope: str | None = None
    description: str | None = None
    extra: dict[str, object] = {}


class Manifest(Struct, frozen=True, kw_only=True, rename="camel"):
    """The manifest as a value; unknown keys survive a round trip (contract §1)."""

    created_on: str | None = None
    runtime: str = "python"
    model: ManifestModel
    archiver_version: str | None = None
    extra: dict[str, object] = {}

    @classmethod
    def from_json(cls, data: bytes, *, where: str = "MAR-INF/MANIFEST.json") -> "Manifest":
        """Parse a manifest's bytes (contract §1), as strictly as the server's two readers together.

        Raises ManifestError naming the key that is missing or of the wrong type.
        """
        top = _parse(data, where)
        model = _object(top, "model", where)
        fields = _fields(model, _keys(ManifestModel), where, "model.")
        return cls(model=ManifestModel(**fields), **_fields(top, _keys(cls), where, ""))

    @property
    def files(self) -> dict[str, str]:
        """The files that the manifest points at, by their keys; only a handler ending in `.py` is one of them.

        Of a handler's path the server imports the base name, in any folder (contract §2).
        """
        handler = HandlerName.parse(self.model.handler)
        named = {
            "serializedFile": self.model.serialized_file,
            "modelFile": self.model.model_file,
            "handler": handler.base if handler.path.endswith(".py") else None,
            "requirementsFile": self.model.requirements_file,
            "configFile": self.model.config_file,
        }
        return {key: name for key, name in named.items() if name}

    def to_json(self) -> bytes:
        """Return the file's bytes: two-space indented JSON, keys in the server's order, then those not known.

        All of it is ASCII, the rest escaped: the server's worker reads the file in its locale's encoding.
        """
        return json.dumps(_tree(self), indent=2, allow_nan=False).encode("ascii")


def _keys(kind: type[Struct]) -> dict[str, str]:
    """Return key in the file → field here, in the order of both; `extra`, the last field, is none."""
    return dict(zip(kind.__struct_encode_fields__[:-1], kind.__struct_fields__[:-1], strict=True))


def _parse(data: bytes, where: str) -> _Object:
    """Parse strict JSON without duplicate keys, of bounded size and depth, whose top is an object."""
    if len(data) > MAX_BYTES:
        raise ManifestError(f"the manifest is larger than {MAX_BYTES} bytes", where=where)
    if data.startswith(b"\xef\xbb\xbf"):
        raise ManifestError(
            "the manifest begins with a byte-order mark, which the server refuses",
            where=where,
            hint="save it as plain UTF-8",
        )
    try:
        top = json.loads(
            data.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_no_constant, parse_float=_finite
        )
    except RecursionError:
        raise ManifestError("the manifest is nested too deeply", where=where) from None
    except ValueError as error:
        raise ManifestError(f"the manifest is not valid JSON: {error}", where=where) from None
    if not isinstance(top, dict):
        raise ManifestError("the manifest is not a JSON object", where=where)
    _check_depth(top, where)
    _check_letters(top, where)
    return top


def _unique(pairs: list[tuple[str, object]]) -> _Object:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {twice!r} is there twice")
    return found


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"the number {text[:20]} is too large")
    return number


def _check_depth(top: _Object, where: str) -> None:
    level: list[object] = [top]
    for _ in range(MAX_DEPTH):
        level = [inner for value in level for inner in _inside(value)]
        if not level:
            return
    raise ManifestError(f"the manifest is nested more than {MAX_DEPTH} levels deep", where=where)


def _check_letters(top: _Object, where: str) -> None:
    r"""Refuse what JSON can spell and no text can hold: one half of a surrogate pair, as in "\ud800"."""
    try:
        json.dumps(top, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError as error:
        half = f"\\u{ord(error.object[error.start]):x}"
        hint = "write the letter itself, or both halves of it, and build the archive again"
        raise ManifestError(f"the manifest holds {half}, which is half a letter", where=where, hint=hint) from None


def _inside(value: object) -> list[object]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


def _object(top: _Object, key: str, where: str) -> _Object:
    found = top.get(key)
    if found is None:
        raise ManifestError(
            f"the manifest has no '{key}'", where=where, hint="the server needs it (see docs/format.md)"
        )
    if not isinstance(found, dict):
        raise ManifestError(f"'{key}' is {_kind(found)}, not an object", where=f"{where}: {key}")
    return found


def _fields(table: _Object, keys: dict[str, str], where: str, prefix: str) -> dict[str, Any]:  # Any: of each its own
    """Return a struct's fields from a JSON object; a null known key is kept as an extra, for the way back."""
    known = {name: _text(table[key], prefix + key, where) for key, name in keys.items() if _has_text(table, key)}
    for needed in ("modelName", "handler") if prefix else ():
        if keys[needed] not in known:
            raise ManifestError(
                f"the manifest has no '{prefix}{needed}', which the server needs",
                where=where,
                hint="build the archive again",
            )
    if "runtime" in keys:
        _check_runtime(table.get("runtime", RUNTIMES[0]), where)
    extra = {key: value for key, value in table.items() if key not in keys or (value is None and key != "model")}
    return {**known, "extra": extra}


def _check_runtime(value: object, where: str) -> None:
    """Refuse a runtime that the server does not register; a missing one is python, and python is so in any case."""
    if value is None or (str(value) not in RUNTIMES and str(value).lower() not in ("python", "python3")):
        reported = "null" if value is None else repr(str(value)[:40])
        raise ManifestError(
            f"'runtime' is {reported}; the server knows {', '.join(RUNTIMES)}", where=f"{where}: runtime"
        )


def _has_text(table: _Object, key: str) -> bool:
    return key != "model" and table.get(key) is not None


def _text(value: object, key: str, where: str) -> str:
    """Return a string; a number stands for its digits, and a boolean for its word, as they do for the server."""
    if isinstance(value, int | float) and not (isinstance(value, bool) and key.endswith(_NO_BOOLEANS)):
        return json.dumps(value)
    if not isinstance(value, str):
        raise ManifestError(
            f"'{key}' is {_kind(value)}, not a string", where=f"{where}: {key}", hint="put it in quotes"
        )
    return value


def _kind(value: object) -> str:
    kinds = {bool: "a boolean", int: "a number", float: "a number", str: "a string", list: "a list", dict: "an object"}
    return kinds.get(type(value), "null")


def _tree(value: Manifest | ManifestModel) -> _Object:
    """Return a struct as a JSON object, absent values left out."""
    fields = {key: getattr(value, name) for key, name in _keys(type(value)).items()}
    tree = {key: item for key, item in fields.items() if item is not None}
    if isinstance(value, Manifest):
        tree["model"] = _tree(value.model)
    return {**tree, **{key: item for key, item in value.extra.items() if key not in tree}}
