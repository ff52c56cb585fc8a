"""What is sent for a Python value: text, bytes, a file, a picture, an array, or whatever else JSON holds.

What is no value of Python's own is recognised without importing the library that it is of: who has one, has that.
"""

import io
import json
import math
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import asdict

from marpack.api.declaring import Headers
from marpack.errors import UsageError, describe_os_error, first_line, located, shortened
from marpack.protocol.messages import Trouble
from marpack.runner.inputs import Input, RequestDefaults, as_utf8, received, request_id, type_of
from marpack.torchserve.http import MAX_BODY, Part

if TYPE_CHECKING:
    from marpack.api.session_options import CheckOptions, RunOptions

_NAME = 256  # characters: a longer text is no file's name that somebody meant
_NO_HEADER = set(' \t\r\n\0:;,"()<>@[]{}?=/\\')  # characters that no header's name has
_PNG = frozenset({"1", "L", "LA", "P", "RGB", "RGBA", "I;16", "I;16B"})  # modes that a PNG holds
_AS_PNG = {"I": "I;16", "I;16L": "I;16", "La": "LA", "PA": "RGBA", "RGBa": "RGBA"}  # others become RGB
_MAX_LEVEL = 65_535  # of a pixel of a PNG
_NUMBERS = "pass its numbers: numpy.asarray(image)"


class Asked(Input, frozen=True):
    """A request for a Python value, and what is to be said beside its answer."""

    note: Trouble | None = None


class RawRequest(Struct, frozen=True):
    """A request as a server has it in hand: what an HTTP client sent, its body not taken apart."""

    headers: tuple[tuple[str, str], ...]  # handlers look names up as they stand here: Content-Type
    body: bytes = b""
    explain: bool = False  # sent to /explanations
    url_path: str = ""  # what follows the version in the path


class Payload(Struct, frozen=True):
    """A body, or the value of a form's field."""

    content_type: str  # empty where nobody knows
    content: bytes
    note: Trouble | None = None


def request_defaults(
    *,
    content_type: str | None = None,
    headers: Headers | None = None,
    explain: bool = False,
    describe: bool = False,
    max_request_size: int = MAX_BODY,
) -> RequestDefaults:
    """Return what several requests have in common; raises UsageError for a value that HTTP cannot carry."""
    given: object = content_type  # of any type: methods do not check it before
    if not isinstance(given, str | None):
        what = f"a content type is a string, and this is of type {_kind(content_type)}"
        raise UsageError(what, where="content_type", hint="Set content_type to a string such as text/csv.")
    return RequestDefaults(
        content_type=None if content_type is None else as_utf8(content_type, "content_type"),
        headers=headers_of(headers),
        explain=explain,
        describe=describe,
        max_request_size=max_request_size,
    )


def defaults_of(options: "RunOptions | CheckOptions") -> RequestDefaults:
    """Return what the requests of a command have in common; see `request_defaults`."""
    return request_defaults(
        content_type=options.content_type,
        headers=options.headers,
        explain=options.explain,
        describe=options.describe,
        max_request_size=options.max_request_size,
    )


def headers_of(headers: Headers | None) -> tuple[tuple[str, str], ...]:
    """Return request headers as pairs; raises UsageError for a header that HTTP cannot carry."""
    given: object = headers  # of any type: methods do not check it before
    if isinstance(given, str) or not isinstance(given, Mapping | Sequence | None):
        what = f"headers are a dict of strings, and this is of type {_kind(headers)}"
        raise UsageError(what, where="headers", hint="Set headers to a dict such as {'X-Trace': '7'}.")
    pairs: Iterable[Any] = headers.items() if isinstance(headers, Mapping) else headers or ()  # Any: as above
    made = []
    for pair in pairs:
        name, value = pair if isinstance(pair, tuple) and len(pair) == 2 else (None, None)
        made.append(http_header(name, value, where="headers"))
    return tuple(made)


def http_header(name: object, value: object, *, where: str, hint: str | None = None) -> tuple[str, str]:
    """Return a header; raises UsageError for what HTTP cannot carry."""
    if not (isinstance(name, str) and isinstance(value, str)) or not name:
        raise UsageError("a header is a name and a value, both text", where=where, hint=hint)
    if set(name) & _NO_HEADER or set(value) & set("\r\n\0"):
        raise UsageError("this is no header that HTTP can carry", where=where, hint=hint)
    return name, value


def asked_of(inputs: Iterable[Any], shape: RequestDefaults) -> Iterator[Input]:  # Any: whatever JSON holds
    """Yield a request for each of several values: a file's is called by its path, any other by its place.

    Raises UsageError for what is not several, at once, and for a value that is no request, when its turn comes.
    """

    def request(number: int, data: Any) -> Input:  # Any: as above
        place = f"inputs[{number}]"
        return asked(shape, str(data) if isinstance(data, os.PathLike) else place, number, data, where=place)

    return (request(number, data) for number, data in enumerate(several(inputs)))


def several(inputs: Iterable[Any]) -> Iterable[Any]:  # Any: as above
    """Return several values; raises UsageError for one, of which each letter or key would be taken for one."""
    if isinstance(inputs, str | bytes | bytearray | memoryview | Mapping | os.PathLike) or not hasattr(
        inputs, "__iter__"
    ):
        what = f"inputs are several, and this is one value of type {_kind(inputs)}"
        raise UsageError(what, where="inputs", hint="put it into a list: [x]")
    return inputs


def asked(shape: RequestDefaults, name: str, number: int, data: Any, *, where: str = "data") -> Input:  # Any: as above
    """Return the request for a value; raises UsageError for what is none."""
    given = payload(data, where)
    kind = given.content_type if shape.content_type is None else shape.content_type
    made = shape.input(name, number, kind, given.content)
    return made if given.note is None else Asked(**asdict(made), note=given.note)


def asked_by_client(request: object, number: int, batch: str, limit: int) -> Input:
    """Return the n-th request, of a batch, as a server hands it on that takes bodies of `limit` bytes.

    Raises UsageError for what is no RawRequest.
    """
    if not isinstance(request, RawRequest):
        hint = "make one of its headers and its body: marpack.RawRequest(headers, body)"
        raise UsageError(f"this is no RawRequest, but of type {_kind(request)}", where="requests", hint=hint)
    return received(
        request_id(number),
        request.body,
        request_id=request_id(number),
        headers=request.headers,
        url_path=request.url_path,
        explain=request.explain,
        batch=batch,
        limit=limit,
    )


def asked_by_form(shape: RequestDefaults, name: str, number: int, form: Mapping[str, Any]) -> Input:  # Any: as above
    """Return the request that holds the fields of a form; raises UsageError for what is none."""
    if not isinstance(form, Mapping):
        raise UsageError(f"a form is a dict of its fields, and this is of type {_kind(form)}", where="form")
    parts = []
    for key, value in form.items():
        if not isinstance(key, str):
            raise UsageError(f"a field's name is a string, and this is of type {_kind(key)}", where="form")
        where = f"form[{shortened(repr(key))}]"
        given = payload(value, where)
        # The text of a form has no type, as a browser sends it.
        parts.append(Part(as_utf8(key, where), given.content, "" if isinstance(value, str) else given.content_type))
    return shape.form(name, number, parts)


def payload(data: Any, where: str) -> Payload:  # Any: as above
    """Return a value's bytes and their content type; raises UsageError, with `where`, for a value that has none."""
    if data is None:
        return Payload("", b"")
    if isinstance(data, str):
        content = as_utf8(data, where).encode()
        note = None
        if len(data) < _NAME and "\n" not in data and os.path.isfile(data):  # noqa: PTH113 - it accepts every text
            note = Trouble(
                kind="text-names-a-file",
                message=f"the text {data!r} was sent; a file has this name and was not sent",
                stage="read",
                hint=f"to send the file: predict(Path({data!r}))",
            )
        return Payload("text/plain", content, note)
    if isinstance(data, bytes | bytearray | memoryview):
        return Payload("", bytes(data))
    if isinstance(data, os.PathLike):
        try:
            file = Path(data)
            if file.is_dir():
                raise UsageError("this is a folder, not a file", where=str(file), hint="Name the files in it.")
            content = file.read_bytes()
        except (OSError, ValueError, TypeError) as error:  # the latter two for a null byte, and a path of bytes
            what = f"the file cannot be read: {describe_os_error(error)}"
            hint = "Check the name and the permissions."
            raise UsageError(what, where=shortened(str(data)), hint=hint) from error
        return Payload(type_of(os.fsdecode(data), content), content)
    if _is_a(data, "PIL.Image", "Image"):
        return Payload("image/png", _png(data, where))
    return Payload("application/json", _json(data, where))


def _json(value: Any, where: str) -> bytes:  # Any: whatever JSON holds
    try:
        return _ENCODER.encode(value).encode()
    except (UsageError, TypeError, ValueError, RecursionError) as error:
        try:
            _refuse(value, where)
        except RecursionError:
            raise UsageError("this contains itself, or is nested too deeply for JSON", where=where) from None
        raise UsageError(f"not JSON: {first_line(error)}", where=where) from error


def _is_a(value: object, module: str, name: str) -> bool:
    """Say whether a value is of a library's class, without importing it."""
    kind = getattr(sys.modules.get(module), name, None)
    return isinstance(kind, type) and isinstance(value, kind)


def _png(image: Any, where: str) -> bytes:  # Any: a PIL.Image.Image
    """Return a picture as PNG, in another mode where PNG has not its own."""
    buffer = io.BytesIO()
    try:
        lowest, highest = image.getextrema() if image.mode == "I" else (0, 0)
        if image.mode == "F" or lowest < 0 or highest > _MAX_LEVEL:
            what = f"the levels of this picture (mode {image.mode}) do not fit into a PNG: 0 to {_MAX_LEVEL:,}"
            raise UsageError(what, where=where, hint=f"convert it first: image.convert('L'); or {_NUMBERS}")
        kept = image if image.mode in _PNG else image.convert(_AS_PNG.get(image.mode, "RGB"))
        kept.save(buffer, "PNG")
    # What Pillow raises for a picture that is broken or closed; before 13 also a SystemError for one without a pixel.
    except (OSError, ValueError, SyntaxError, SystemError) as error:
        what = f"this picture cannot be sent as PNG: {first_line(error)}"
        raise UsageError(
            what, where=where, hint="open it again; or send its file: Path(…)", code="invalid-picture"
        ) from error
    return buffer.getvalue()


def _listed(value: Any) -> Any:  # Any: whatever JSON does not hold by itself, and what it becomes
    """Return an array or a tensor as nested lists or, of no dimensions, as its number; raises UsageError for others."""
    if _is_a(value, "torch", "Tensor"):
        try:
            return value.detach().tolist()  # from any device
        except (RuntimeError, TypeError) as error:
            hint = "make it a dense one first: x.to_dense(), or x.dequantize()"
            raise UsageError(
                f"this tensor has no numbers that can be listed: {first_line(error)}", hint=hint
            ) from error
    is_array, is_scalar = _is_a(value, "numpy", "ndarray"), _is_a(value, "numpy", "generic")
    if is_array and value.dtype.kind not in "mM":  # times would become numbers of any unit
        return value.tolist()
    if is_scalar and value.dtype.kind in "biuf" and value.dtype.itemsize <= 8:  # longer floats stay what they are
        return value.item()
    named = f"{_kind(value)} of {value.dtype}" if is_array else _kind(value)
    hint = "pass a dict, a list, a number, text, bytes, a picture, an array, a tensor, or a file as Path(…)"
    raise UsageError(f"JSON holds nothing of type {named}", hint=hint)


_ENCODER = json.JSONEncoder(allow_nan=False, default=_listed)


def _refuse(value: Any, where: str) -> None:  # Any: whatever JSON does not hold
    """Raise UsageError for the first of a value's parts that is no JSON, with its place in it."""
    if isinstance(value, dict):
        for key, item in value.items():
            place = f"{where}[{shortened(repr(key), 40)}]"
            if not isinstance(key, str | int | float | None):
                raise UsageError(f"a key of JSON is text, and this is of type {_kind(key)}", where=place)
            _refuse(item, place)
    elif isinstance(value, list | tuple):
        for number, item in enumerate(value):
            _refuse(item, f"{where}[{number}]")
    elif isinstance(value, float) and not math.isfinite(value):
        hint = "replace it first: numpy.nan_to_num(x), or None for what is missing"
        raise UsageError(f"JSON has no number {float(value)}", where=where, hint=hint)
    elif not isinstance(value, str | int | float | None):
        with located(where):
            plain = _listed(value)
        _refuse(plain, where)


def _kind(value: object) -> str:
    kind = type(value)
    return shortened(kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}")
