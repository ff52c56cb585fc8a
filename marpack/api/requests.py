"""The requests of Python values: text, bytes, files, pictures, arrays, and everything that JSON holds.

Values of other libraries are recognized without importing these: who has such a value, has imported its library.
"""

import io
import json
import math
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Struct
from msgspec.structs import asdict

from marpack.api.declaring import Headers, Option
from marpack.api.options import Above0
from marpack.errors import UsageError, describe_os_error, first_line, located, shortened
from marpack.protocol.messages import Trouble
from marpack.runner.inputs import Input, RequestDefaults, as_utf8, received, request_id, type_of
from marpack.torchserve import MAX_BODY
from marpack.torchserve.http import Part

if TYPE_CHECKING:
    from marpack.api.session_options import CheckOptions, RunOptions

_NAME = 256  # characters: a longer text is not the name of a file
_NO_HEADER = set(' \t\r\n\0:;,"()<>@[]{}?=/\\')  # characters that are not allowed in a header's name
_PNG = frozenset({"1", "L", "LA", "P", "RGB", "RGBA", "I;16", "I;16B"})  # modes that a PNG holds
_AS_PNG = {"I": "I;16", "I;16L": "I;16", "La": "LA", "PA": "RGBA", "RGBa": "RGBA"}  # others become RGB
_MAX_LEVEL = 65_535  # of a pixel of a PNG
_NUMBERS = "Convert it first with image.convert('L'), or pass its numbers: numpy.asarray(image)."


class NotedInput(Input, frozen=True):
    """A request with a note that is shown beside its response."""

    note: Trouble | None = None


class RawRequest(Struct, frozen=True):
    """A request as a server receives it: the headers and the body that an HTTP client sent."""

    headers: tuple[tuple[str, str], ...]  # names in the spelling that handlers look up, such as Content-Type
    body: bytes = b""
    explain: bool = False  # the request is for /explanations
    url_path: str = ""  # the part of the path after the version


class Payload(Struct, frozen=True):
    """A body, or the value of a form's field."""

    content_type: str  # empty if it is unknown
    content: bytes
    note: Trouble | None = None


class PredictOptions(Struct, frozen=True, kw_only=True):
    """The options of the methods of `Model`."""

    content_type: Annotated[str | None, Option("Content type of the request.")] = None
    headers: Annotated[Headers | None, Option("Request headers.")] = None
    explain: Annotated[bool, Option("Request an explanation instead of a prediction.")] = False
    describe: Annotated[bool, Option("Request the model's description.")] = False
    max_request_size: Annotated[Above0, Option("The server's max_request_size setting.")] = MAX_BODY
    batch_size: Annotated[Above0, Option("Requests per call of the handler.")] = 1
    isolate: Annotated[bool, Option("Retry the requests of a failed batch one by one.")] = False


def defaults_of(options: "PredictOptions | RunOptions | CheckOptions") -> RequestDefaults:
    """Return the common part of several requests; raises UsageError for a value that HTTP cannot carry."""
    kind = options.content_type
    return RequestDefaults(
        content_type=None if kind is None else as_utf8(kind, "content_type"),
        headers=headers_of(options.headers),
        explain=options.explain,
        describe=options.describe,
        max_request_size=options.max_request_size,
    )


def headers_of(headers: Headers | None) -> tuple[tuple[str, str], ...]:
    """Return request headers as pairs; raises UsageError for a header that HTTP cannot carry."""
    pairs = headers.items() if isinstance(headers, Mapping) else headers or ()
    hint = "Set headers to a dict such as {'X-Trace': '7'}."
    return tuple(http_header(name, value, where="headers", hint=hint) for name, value in pairs)


def http_header(name: str, value: str, *, where: str, hint: str) -> tuple[str, str]:
    """Return a header; raises UsageError for one that HTTP cannot carry."""
    if not name or set(name) & _NO_HEADER or set(value) & set("\r\n\0"):
        raise UsageError(f"{shortened(repr(name))} with this value is not a valid header", where=where, hint=hint)
    return name, value


def requests_from(inputs: Iterable[Any], shape: RequestDefaults) -> Iterator[Input]:  # Any: JSON
    """Yield a request for each of several values: a file's has its path as its name, any other its place.

    Raises UsageError at once for a single value, and for a value that cannot be sent when it is reached.
    """

    def request(number: int, data: Any) -> Input:  # Any: JSON
        place = f"inputs[{number}]"
        return request_for(shape, str(data) if isinstance(data, os.PathLike) else place, number, data, where=place)

    return (request(number, data) for number, data in enumerate(expect_several(inputs)))


def expect_several(inputs: Iterable[Any]) -> Iterable[Any]:  # Any: JSON
    """Return several values; raises UsageError for a single one, whose letters or keys would become values."""
    single = isinstance(inputs, str | bytes | bytearray | memoryview | Mapping | os.PathLike)
    if single or not hasattr(inputs, "__iter__"):
        what = f"inputs must be a list of inputs, not one value of type {_kind(inputs)}"
        raise UsageError(what, where="inputs", hint="Put it into a list: [x].")
    return inputs


def request_for(
    shape: RequestDefaults, name: str, number: int, data: Any, *, where: str = "data"
) -> Input:  # Any: JSON
    """Return the request for a value; raises UsageError for a value that cannot be sent."""
    given = payload(data, where)
    kind = given.content_type if shape.content_type is None else shape.content_type
    made = shape.input(name, number, kind, given.content)
    return made if given.note is None else NotedInput(**asdict(made), note=given.note)


def request_from_http(request: object, number: int, batch: str, limit: int) -> Input:
    """Return the n-th request, of a batch, as a server with bodies of at most `limit` bytes passes it on.

    Raises UsageError for another object than a RawRequest.
    """
    if not isinstance(request, RawRequest):
        hint = "Make one of its headers and its body: marpack.RawRequest(headers, body)."
        raise UsageError(f"expected a RawRequest, got an object of type {_kind(request)}", where="requests", hint=hint)
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


def request_from_form(shape: RequestDefaults, name: str, number: int, form: Any) -> Input:  # Any: JSON
    """Return the request with the fields of a form; raises UsageError for fields that cannot be sent."""
    if not isinstance(form, Mapping) or not all(isinstance(key, str) for key in form):
        what = f"a form is a dict whose keys are strings, and this is of type {_kind(form)}"
        raise UsageError(what, where="form", hint="Set form to a dict such as {'image': Path('cat.png')}.")
    parts = []
    for key, value in form.items():
        where = f"form[{shortened(repr(key))}]"
        given = payload(value, where)
        # The text of a form has no type, as a browser sends it.
        parts.append(Part(as_utf8(key, where), given.content, "" if isinstance(value, str) else given.content_type))
    return shape.form(name, number, parts)


def payload(data: Any, where: str) -> Payload:  # Any: JSON
    """Return a value's bytes and their content type; raises UsageError for a value that cannot be sent."""
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
                hint=f"To send the file, use predict(Path({data!r})).",
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


def _json(data: Any, where: str) -> bytes:  # Any: JSON
    try:
        return _ENCODER.encode(data).encode()
    except (UsageError, TypeError, ValueError, RecursionError) as error:
        try:
            _refuse(data, where)
        except RecursionError:
            what = "this value contains itself, or is nested too deeply for JSON"
            raise UsageError(what, where=where, hint="Pass a flatter value.") from None
        hint = "Pass values that JSON holds."
        raise UsageError(f"not JSON: {first_line(error)}", where=where, hint=hint) from error


def _is_a(value: object, module: str, name: str) -> bool:
    """Return whether a value is of a library's class, without importing it."""
    kind = getattr(sys.modules.get(module), name, None)
    return isinstance(kind, type) and isinstance(value, kind)


def _png(image: Any, where: str) -> bytes:  # Any: a PIL.Image.Image
    """Return a picture as PNG, in another mode if PNG does not have its own."""
    buffer = io.BytesIO()
    try:
        lowest, highest = image.getextrema() if image.mode == "I" else (0, 0)
        if image.mode == "F" or lowest < 0 or highest > _MAX_LEVEL:
            what = f"the levels of this picture (mode {image.mode}) do not fit into a PNG: 0 to {_MAX_LEVEL:,}"
            raise UsageError(what, where=where, hint=_NUMBERS)
        kept = image if image.mode in _PNG else image.convert(_AS_PNG.get(image.mode, "RGB"))
        kept.save(buffer, "PNG")
    # What Pillow raises for a picture that is broken or closed; before 13 also a SystemError for one without a pixel.
    except (OSError, ValueError, SyntaxError, SystemError) as error:
        what = f"this picture cannot be sent as PNG: {first_line(error)}"
        hint = "Open it again, or send its file: Path(…)."
        raise UsageError(what, where=where, hint=hint, code="invalid-picture") from error
    return buffer.getvalue()


def _listed(value: Any) -> Any:  # Any: whatever JSON does not hold by itself, and what it becomes
    """Return an array or a tensor as nested lists or as a number; raises UsageError for other values."""
    if _is_a(value, "torch", "Tensor"):
        try:
            return value.detach().tolist()  # from any device
        except (RuntimeError, TypeError) as error:
            what = f"the numbers of this tensor cannot be listed: {first_line(error)}"
            raise UsageError(what, hint="Make it dense first: x.to_dense() or x.dequantize().") from error
    is_array, is_scalar = _is_a(value, "numpy", "ndarray"), _is_a(value, "numpy", "generic")
    if is_array and value.dtype.kind not in "mM":  # times would become numbers of any unit
        return value.tolist()
    if is_scalar and value.dtype.kind in "biuf" and value.dtype.itemsize <= 8:  # JSON has no longer floats
        return value.item()
    named = f"{_kind(value)} of {value.dtype}" if is_array else _kind(value)
    hint = "Pass a dict, a list, a number, text, bytes, a picture, an array, a tensor, or a file as Path(…)."
    raise UsageError(f"JSON cannot hold a value of type {named}", hint=hint)


_ENCODER = json.JSONEncoder(allow_nan=False, default=_listed)


def _refuse(value: Any, where: str) -> None:  # Any: whatever JSON does not hold
    """Raise UsageError for the first part of a value that is not JSON, with its place in it."""
    if isinstance(value, dict):
        for key, item in value.items():
            place = f"{where}[{shortened(repr(key), 40)}]"
            if not isinstance(key, str | int | float | None):
                raise UsageError(
                    f"a key in JSON is text, and this is of type {_kind(key)}", where=place, hint="Use str(key)."
                )
            _refuse(item, place)
    elif isinstance(value, list | tuple):
        for number, item in enumerate(value):
            _refuse(item, f"{where}[{number}]")
    elif isinstance(value, float) and not math.isfinite(value):
        hint = "Replace it first: with numpy.nan_to_num(x), or with None for a missing value."
        raise UsageError(f"JSON cannot hold the number {float(value)}", where=where, hint=hint)
    elif not isinstance(value, str | int | float | None):
        with located(where):
            plain = _listed(value)
        _refuse(plain, where)


def _kind(value: object) -> str:
    kind = type(value)
    return shortened(kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}")
