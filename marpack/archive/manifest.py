"""MAR-INF/MANIFEST.json: what the server knows about a model."""

import json
import math
from typing import Any

from msgspec import Struct, field

from marpack.errors import ManifestError, located
from marpack.torchserve.server_modules import HandlerName

_NO_BOOLEANS = ("handler", "configFile")  # names of files to the server
RUNTIMES = ("python", "python3", "LSP")  # contract §1
MAX_BYTES = 1 << 20
MAX_DEPTH = 32


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
        with located(where):
            top = _parse(data)
            model = top.get("model")
            if not isinstance(model, dict):
                is_missing = "the manifest has no 'model', which the server needs"
                raise ManifestError(is_missing if model is None else f"'model' is {_kind(model)}, not an object")
            for key in ("modelName", "handler"):
                if model.get(key) is None:
                    raise ManifestError(f"the manifest has no 'model.{key}', which the server needs")
            runtime = top.get("runtime", RUNTIMES[0])  # the server registers no other; python in any case of letters
            if runtime is None or (str(runtime) not in RUNTIMES and str(runtime).lower() not in ("python", "python3")):
                found = "null" if runtime is None else repr(str(runtime)[:40])
                what = f"'runtime' is {found}; the server knows {', '.join(RUNTIMES)}"
                raise ManifestError(what, where=f"{where}: runtime")
            fields = _fields(model, ManifestModel, "model.", where)
            return cls(model=ManifestModel(**fields), **_fields(top, cls, "", where))

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
    """Return key in the file → field here, in the order of both, without `extra`, the last field."""
    return dict(zip(kind.__struct_encode_fields__[:-1], kind.__struct_fields__[:-1], strict=True))


def _parse(data: bytes) -> _Object:
    """Parse strict JSON without duplicate keys, of bounded size and depth, with an object at its top."""
    if len(data) > MAX_BYTES:
        raise ManifestError(f"the manifest has {len(data)} bytes; the maximum is {MAX_BYTES}")
    if data.startswith(b"\xef\xbb\xbf"):
        what = "the manifest begins with a byte-order mark, which the server refuses"
        raise ManifestError(what, hint="Save it as UTF-8 without a byte-order mark.")
    try:
        top = json.loads(data.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_finite, parse_float=_finite)
    except RecursionError:
        raise ManifestError("the manifest is nested too deeply") from None
    except ValueError as error:
        raise ManifestError(f"the manifest is not valid JSON: {error}") from None
    if not isinstance(top, dict):
        raise ManifestError("the manifest is not a JSON object")
    level: list[_Object | list[object]] = [top]
    for _ in range(MAX_DEPTH):
        values = (inner for value in level for inner in (value.values() if isinstance(value, dict) else value))
        level = [inner for inner in values if isinstance(inner, dict | list)]
    if level:
        raise ManifestError(f"the manifest is nested more than {MAX_DEPTH} levels deep")
    try:
        json.dumps(top, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError as error:  # JSON can spell one half of a surrogate pair, which no text can hold
        what = f"the manifest holds \\u{ord(error.object[error.start]):x}, which is half a letter"
        hint = "Write the letter itself, or both halves of it, and build the archive again."
        raise ManifestError(what, hint=hint) from None
    return top


def _unique(pairs: list[tuple[str, object]]) -> _Object:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        repeated = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {repeated!r} is repeated")
    return found


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:20]} is too large, or not a number")
    return number


def _fields(table: _Object, kind: type[Struct], prefix: str, where: str) -> dict[str, Any]:  # Any: each its own type
    """Return a struct's fields from a JSON object; a known key that is null is kept as an extra, to be written again.

    The server reads a number as its digits, and a boolean as its word.
    """
    fields: dict[str, Any] = {}
    extra = {}
    for key, value in table.items():
        name = _keys(kind).get(key)
        if key == "model" and name:
            continue
        if name is None or value is None:
            extra[key] = value
        elif isinstance(value, str):
            fields[name] = value
        elif isinstance(value, int | float) and not (isinstance(value, bool) and key in _NO_BOOLEANS):
            fields[name] = json.dumps(value)
        else:
            what = f"'{prefix}{key}' is {_kind(value)}, not a string"
            raise ManifestError(what, where=f"{where}: {prefix}{key}", hint="Put the value in quotes.")
    return {**fields, "extra": extra}


def _kind(value: object) -> str:
    kinds = {bool: "a boolean", int: "a number", float: "a number", str: "a string", list: "a list", dict: "an object"}
    return kinds.get(type(value), "null")


def _tree(value: Manifest | ManifestModel) -> _Object:
    fields = {key: getattr(value, name) for key, name in _keys(type(value)).items()}
    tree = {key: item for key, item in fields.items() if item is not None}
    if isinstance(value, Manifest):
        tree["model"] = _tree(value.model)
    return {**tree, **{key: item for key, item in value.extra.items() if key not in tree}}
