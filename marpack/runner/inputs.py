"""What is sent to a handler: files, texts and forms, one request each, read only when their turn comes."""

import json
import mimetypes
import os
import sys
from collections.abc import Iterable, Iterator
from functools import lru_cache

from msgspec import Struct

from marpack.errors import UsageError, shortened
from marpack.findings import Finding, Severity
from marpack.json_text import legible
from marpack.protocol.messages import Trouble
from marpack.runner.client import BatchResult
from marpack.torchserve.forms import FORM_TYPE, receive
from marpack.torchserve.http import MAX_BODY, HeadError, Part, Request, RequestError, Response, TooLargeError, bare_type

# Types that the standard table of suffixes lacks or that systems disagree on, both ways.
_TYPES = {
    ".json": "application/json",
    ".txt": "text/plain",
    ".csv": "text/csv",
    ".md": "text/markdown",
    ".webp": "image/webp",
    ".jpg": "image/jpeg",
    ".npy": "application/octet-stream",
}
_SUFFIXES = {kind: suffix for suffix, kind in _TYPES.items()} | {"audio/wav": ".wav"}
_ID = "00000000-0000-4000-8000-"  # begins every id that is generated here
_MAGIC = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"BM", "image/bmp"),
    (b"II*\0", "image/tiff"),
    (b"MM\0*", "image/tiff"),
)


class Input(Struct, frozen=True, gc=False):
    """One request and what the user calls it; inputs with one `batch` go to the handler in one call."""

    name: str
    request: Request
    batch: str | None = None
    refused: Response | None = None  # what a client gets without any handler's being asked; status 0: nothing
    why: Trouble | None = None  # it is refused

    @property
    def outcome(self) -> BatchResult | None:
        """What becomes of one that is refused."""
        if self.refused is None:
            return None
        return BatchResult(responses=(self.refused,), troubles=(self.why,) if self.why else ())


class RequestDefaults(Struct, frozen=True, kw_only=True):
    """What every request of a run has in common."""

    content_type: str | None = None  # None: by suffix, then by content
    headers: tuple[tuple[str, str], ...] = ()
    explain: bool = False
    describe: bool = False
    max_request_size: int = MAX_BODY  # bytes of a body: the server's setting

    def input(self, name: str, number: int, content_type: str, content: bytes | Iterable[Part]) -> Input:
        """Return the input with a body or the fields of a form, and one that the frontend refuses."""
        identity = request_id(number)
        try:
            request = receive(
                described(self.headers, describe=self.describe),
                content,
                request_id=identity,
                content_type=content_type,
                explain=self.explain,
                limit=self.max_request_size,
            )
        except RequestError as error:
            return refused(name, error, Request(id=identity, parts=(), explain=self.explain))
        return Input(name, request)

    def form(self, name: str, number: int, fields: Iterable[Part]) -> Input:
        """Return the input with some form fields, which may be more than the frontend takes."""
        return self.input(name, number, self.content_type or FORM_TYPE, fields)


def described(headers: Iterable[tuple[str, str]], *, describe: bool) -> tuple[tuple[str, str], ...]:
    """Return headers with the one that asks for a description, if it is wanted."""
    return (*headers, ("describe", "True")) if describe else tuple(headers)


def refused(name: str, error: RequestError, request: Request, batch: str | None = None) -> Input:
    """Return an input that the frontend refuses, and answers by itself."""
    return Input(name, request, batch, error.response, why_refused(error))


def why_refused(error: RequestError) -> Trouble:
    """Return the reason for an answer that the frontend gives by itself."""
    kind, message = "refused-form", f"the frontend refuses this form: {error.message}"
    hint = "send a form that is whole, with named fields, in UTF-8"
    if isinstance(error, TooLargeError):
        kind, message = "request-too-large", error.message
        hint = (
            "send less, or raise max_request_size in the server's config.properties, and here with --max-request-size"
        )
    elif isinstance(error, HeadError):
        kind, message = "refused-head", "the frontend refuses these headers"
        hint = "send less than 8,192 bytes of them, under ASCII names without blanks"
    return Trouble(kind=kind, message=message, stage="receive", hint=hint)


def unreadable(name: str, error: UsageError) -> Input:
    """Return an input that cannot be read: it is told among the answers, and costs only itself."""
    why = Trouble(kind="unreadable-input", message=error.what, stage="read", hint=error.hint)
    return Input(name, Request(id="", parts=()), refused=Response(status=0, body=b""), why=why)


def request_id(number: int) -> str:
    """Return the id of the n-th request: of a server's form, and the same in every run."""
    return f"{_ID}{number:012x}"


def has_generated_id(request: Request) -> bool:
    """Return whether a request's id comes from `request_id`."""
    return request.id.startswith(_ID)


def file_inputs(paths: Iterable[str], shape: RequestDefaults) -> Iterator[Input]:
    """Yield one input per file, `-` or address, each read only when the iterator reaches it."""
    for number, path in enumerate(paths):
        name = "stdin" if path == "-" else path
        try:
            data = read_input(path, maximum=shape.max_request_size)
        except UsageError as error:
            yield unreadable(name, error)
            continue
        except TooLargeError as error:
            yield refused(name, error, Request(id=request_id(number), parts=(), explain=shape.explain))
            continue
        content_type = type_of(path, data) if shape.content_type is None else shape.content_type
        yield shape.input(name, number, content_type, data)


def data_inputs(texts: Iterable[str], shape: RequestDefaults) -> Iterator[Input]:
    """Yield one input per text given as such: JSON where it is JSON, else plain text."""
    for number, text in enumerate(texts):
        content_type = shape.content_type if shape.content_type is not None else _type_of_text(text)
        yield shape.input(f"data[{number}]", number, content_type, os.fsencode(text))  # the bytes that were typed


def text_notes(texts: Iterable[str], content_type: str | None) -> Iterator[Finding]:
    """Yield which texts begin like JSON, are none, and are therefore sent as text."""
    for text in texts if content_type is None else ():
        try:
            json.loads(text if text.lstrip()[:1] in {"{", "["} else "0")
        except RecursionError:
            continue
        except ValueError as error:
            yield Finding(
                code="data-as-text",
                severity=Severity.WARNING,
                message=f"{shortened(text, 40)} begins like JSON and is none, so it goes as text/plain: {error}",
                where="--data",
                hint="mend the JSON; or, if text is meant, say so: --content-type text/plain",
            )


def _type_of_text(text: str) -> str:
    try:
        json.loads(text)
    except (ValueError, RecursionError):  # nobody can read what is nested too deeply
        return "text/plain"
    return "application/json"


def form_input(fields: Iterable[str], shape: RequestDefaults) -> Input:
    """Return the one input of some form fields: `name=value`, or `name=@file` for a file part.

    Raises UsageError for a field without "=" and a file that cannot be read.
    """
    return shape.form("form", 0, tuple(map(_field, fields)))


def as_utf8(text: str, where: str) -> str:
    """Return a text that a request is to hold; raises UsageError if what was typed is not UTF-8."""
    if legible(text) != text:
        raise UsageError("this is not UTF-8", where=where, hint="only values, bodies and files may be other bytes")
    return text


def _field(field: str) -> Part:
    name, equals, value = field.partition("=")
    if not equals or not name:
        raise UsageError("a form field is given as name=value or name=@file", where=f"--form {field}")
    name = as_utf8(name, f"--form {field}")
    if not value.startswith("@"):
        return Part(name, os.fsencode(value))
    data = read_input(value[1:])
    return Part(name, data, type_of(value[1:], data))


def read_input(path: str, *, maximum: int | None = None) -> bytes:
    """Return the bytes of a file, of stdin (`-`) or of an address.

    Raises UsageError if they cannot be read, and TooLargeError for a file of more than `maximum` bytes, unread.
    """
    if path == "-":
        return sys.stdin.buffer.read()
    if "://" in path:
        from marpack.archive.remote import fetch  # noqa: PLC0415 - a second of imports that few inputs need

        return fetch(path)
    return read_file(path, maximum=maximum)


def read_file(path: str, *, maximum: int | None = None) -> bytes:
    """Return the bytes of a file; raises as `read_input` does."""
    if "\0" in path:
        raise UsageError("the input cannot be read: no file has such a name", where=path, code="invalid-file-name")
    try:
        return _bytes_of(path, maximum)
    except OSError as error:
        hint = "check the name, and that you may read it"
        what = f"the input cannot be read: {error.strerror}"
        raise UsageError(what, where=path, hint=hint, code="unreadable-input") from error


def _bytes_of(path: str, maximum: int | None) -> bytes:
    # Thousands a second may be read: by as few calls as can be, and without a Path each.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size = os.fstat(descriptor).st_size
        if maximum is not None and size > maximum:
            raise TooLargeError(size, maximum)
        data = os.read(descriptor, size + 1)
        if len(data) == size:
            return data
        # A pipe, a file that grew, or one of /proc: what it holds is known at its end.
        pieces = [data]
        while piece := os.read(descriptor, 1 << 16):
            pieces.append(piece)
        return b"".join(pieces)
    finally:
        os.close(descriptor)


def type_of(path: str, data: bytes) -> str:
    """Return a file's content type, by its suffix, else by its first bytes."""
    plain = path.partition("?")[0] if "://" in path else path
    known = type_of_suffix(os.path.splitext(plain)[1].lower())  # noqa: PTH122
    return known or next((kind for magic, kind in _MAGIC if data.startswith(magic)), "application/octet-stream")


@lru_cache
def type_of_suffix(suffix: str) -> str | None:
    """Return the content type that a suffix such as ".png" stands for, if it does."""
    return _TYPES.get(suffix) or mimetypes.guess_type(f"x{suffix}")[0]


def suffix_of_type(content_type: str) -> str | None:
    """Return the suffix of files of a type; None where the type says nothing of what they hold."""
    kind = bare_type(content_type).strip().lower()
    return None if kind == "application/octet-stream" else _SUFFIXES.get(kind) or mimetypes.guess_extension(kind)
