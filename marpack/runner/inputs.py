"""Inputs as requests: files, folders, texts, forms and recorded requests, each read only when its turn comes."""

import base64
import binascii
import glob
import json
import mimetypes
import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
from msgspec import Struct

from marpack import finding_codes as codes
from marpack.errors import UsageError, convert_os_errors, describe_os_error, shortened
from marpack.findings import Finding
from marpack.json_text import legible
from marpack.protocol.messages import Trouble
from marpack.runner.client import BatchResult
from marpack.torchserve import MAX_BODY
from marpack.torchserve.forms import FORM_TYPE, OCTETS, bare_type, receive
from marpack.torchserve.http import HeadError, Part, Request, RequestError, Response, TooLargeError

# Types that the standard table of suffixes lacks or that systems disagree on, both ways.
_TYPES = {
    ".json": "application/json",
    ".txt": "text/plain",
    ".csv": "text/csv",
    ".jsonl": "application/jsonlines",
    ".md": "text/markdown",
    ".webp": "image/webp",
    ".jpg": "image/jpeg",
    ".npy": "application/octet-stream",
}
_SUFFIXES = {kind: suffix for suffix, kind in _TYPES.items()} | {"audio/wav": ".wav"}
_DESCRIBE = (("describe", "True"),)  # the header that asks for a description
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
    """One request and the user's name for it; inputs with one `batch` go to the handler in one call."""

    name: str
    request: Request
    batch: str | None = None
    refused: Response | None = None  # the response of the frontend, which asks no handler; status 0: none
    why: Trouble | None = None  # the reason for `refused`

    @property
    def outcome(self) -> BatchResult | None:
        """The result of an input that is refused; None for any other."""
        if self.refused is None:
            return None
        return BatchResult(responses=(self.refused,), troubles=(self.why,) if self.why else ())


class RequestDefaults(Struct, frozen=True, kw_only=True):
    """The settings that every request of a run shares."""

    content_type: str | None = None  # None: by suffix, then by content
    headers: tuple[tuple[str, str], ...] = ()
    explain: bool = False
    describe: bool = False
    max_request_size: int = MAX_BODY  # bytes of a body: the server's setting

    def input(self, name: str, number: int, content_type: str, content: bytes | Iterable[Part]) -> Input:
        """Return the input with a body or with the fields of a form, also if the frontend refuses it."""
        return received(
            name,
            content,
            request_id=request_id(number),
            headers=(*self.headers, *_DESCRIBE) if self.describe else self.headers,
            content_type=content_type,
            explain=self.explain,
            limit=self.max_request_size,
        )

    def form(self, name: str, number: int, fields: Iterable[Part]) -> Input:
        """Return the input with some form fields, which may be more than the frontend takes."""
        return self.input(name, number, self.content_type or FORM_TYPE, fields)


def received(
    name: str, content: bytes | Iterable[Part], *, request_id: str, batch: str | None = None, **how: Any
) -> Input:  # Any: further arguments of `receive`
    """Return a request as the frontend passes it on, or refuses it; see `marpack.torchserve.forms.receive`."""
    try:
        return Input(name, receive(content=content, request_id=request_id, **how), batch)
    except RequestError as error:
        return refused(name, error, Request(id=request_id, parts=(), explain=how["explain"]), batch)


def refused(name: str, error: RequestError, request: Request, batch: str | None = None) -> Input:
    """Return an input that the frontend refuses, so that it responds by itself."""
    kind, message = "refused-form", f"the frontend refuses this form: {error.message}"
    hint = "Send a complete form with named fields, in UTF-8."
    if isinstance(error, TooLargeError):
        kind, message = "request-too-large", error.message
        hint = "Send less, or raise the limit: --max-request-size here, max_request_size in config.properties."
    elif isinstance(error, HeadError):
        kind, message = "refused-head", "the frontend refuses these headers"
        hint = "Send less than 8,192 bytes of headers, with ASCII names without spaces."
    return Input(name, request, batch, error.response, Trouble(kind=kind, message=message, stage="receive", hint=hint))


def unreadable(name: str, error: UsageError) -> Input:
    """Return an input that cannot be read: only this input fails."""
    why = Trouble(kind="unreadable-input", message=error.what, stage="read", hint=error.hint)
    return Input(name, Request(id="", parts=()), refused=Response(status=0, body=b""), why=why)


def request_id(number: int) -> str:
    """Return the id of the n-th request, in the server's form, and the same in every run."""
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
    """Yield one input per text: as JSON if it is JSON, otherwise as plain text."""
    for number, text in enumerate(texts):
        content_type = shape.content_type
        if content_type is None:
            try:
                json.loads(text)
                content_type = "application/json"
            except (ValueError, RecursionError):  # handlers cannot read JSON that is nested too deeply
                content_type = "text/plain"
        yield shape.input(f"data[{number}]", number, content_type, os.fsencode(text))  # the bytes that were typed


def text_notes(texts: Iterable[str], content_type: str | None) -> Iterator[Finding]:
    """Yield a finding for each text that begins like JSON but is not JSON, and is therefore sent as text."""
    for text in texts if content_type is None else ():
        try:
            json.loads(text if text.lstrip()[:1] in {"{", "["} else "0")
        except RecursionError:
            continue
        except ValueError as error:
            yield codes.DATA_AS_TEXT.at("--data", text=shortened(text, 40), error=error)


def form_input(fields: Iterable[str], shape: RequestDefaults) -> Input:
    """Return the input with some form fields: `name=value`, or `name=@file` for a file part.

    Raises UsageError for a field without "=" and a file that cannot be read.
    """
    parts = []
    for field in fields:
        name, equals, value = field.partition("=")
        where, is_file = f"--form {field}", value.startswith("@")
        if not equals or not name:
            raise UsageError("not a form field", where=where, hint="Write NAME=VALUE or NAME=@FILE.")
        data = read_input(value[1:]) if is_file else os.fsencode(value)
        parts.append(Part(as_utf8(name, where), data, type_of(value[1:], data) if is_file else ""))
    return shape.form("form", 0, parts)


def as_utf8(text: str, where: str) -> str:
    """Return a text for a request; raises UsageError if it is not UTF-8."""
    if legible(text) != text:
        raise UsageError(
            "this is not UTF-8",
            where=where,
            hint="Write it in UTF-8. Only values, bodies and files may contain other bytes.",
        )
    return text


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
        what, hint = "the file's name contains a zero byte", "Check the path."
        raise UsageError(what, where=path, hint=hint, code="invalid-file-name")
    try:
        # Thousands of files a second: as few system calls as possible, and no Path for each.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            size = os.fstat(descriptor).st_size
            if maximum is not None and size > maximum:
                raise TooLargeError(size, maximum)
            data = os.read(descriptor, size + 1)
            if len(data) == size:
                return data
            # A pipe, a file that grew, or one of /proc: it ends where a read returns nothing.
            pieces = [data]
            while piece := os.read(descriptor, 1 << 16):
                pieces.append(piece)
            return b"".join(pieces)
        finally:
            os.close(descriptor)
    except OSError as error:
        what = f"the input cannot be read: {describe_os_error(error)}"
        hint = "Check the path and its permissions."
        raise UsageError(what, where=path, hint=hint, code="unreadable-input") from error


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
    """Return the suffix of files of a type; None if the type has no usual suffix."""
    kind = bare_type(content_type).strip().lower()
    return None if kind == "application/octet-stream" else _SUFFIXES.get(kind) or mimetypes.guess_extension(kind)


NameFilter = Callable[[str], bool]  # says of a file in a folder whether it is an input

_GLOB = set("*?[")
_NO_INPUT = "Check the path. Name a file, a folder or a glob in quotes."


def paths_of(sources: Iterable[str], *, name_filter: NameFilter | None = None, strict: bool = True) -> Iterator[str]:
    """Yield the files that sources name: files, folders (recursively), globs, `@list`, `-` and addresses.

    `name_filter` selects the files of folders. Raises UsageError for a missing file if `strict`; otherwise it is
    yielded, and reading it fails.
    """
    for source in sources:
        if source == "-" or "://" in source:
            yield source
            continue
        if source.startswith("@"):
            yield from paths_of(_listed(source[1:]), name_filter=name_filter, strict=False)
            continue
        what, code, hint = "no file in the folder is an input", "no-matching-input", f"List the files: ls {source}"
        paths: Iterator[str] = iter(())
        try:
            mode = os.stat(source).st_mode  # noqa: PTH116 - a Path for each of a million is slow
        except (OSError, ValueError):  # ValueError: no path has a zero byte
            mode = 0
        if stat.S_ISDIR(mode):
            paths = _below(source, name_filter)
        elif mode:
            yield source
            continue
        elif set(source) & _GLOB:
            matches = glob.iglob(source, recursive=True)  # noqa: PTH207 - patterns may be absolute
            paths, what = iter(sorted(filter(os.path.isfile, matches))), "the pattern matches no file"
        else:
            what, code, hint = "the input does not exist", "input-not-found", _NO_INPUT
        first = next(paths, None)
        if first is None and strict:
            raise UsageError(what, where=source, hint=hint, code=code)
        yield source if first is None else first
        yield from paths


def check_sources(sources: Iterable[str], *, name_filter: NameFilter | None = None) -> None:
    """Raise UsageError for the first source that names nothing; read only as much as that needs."""
    for source in sources:
        if "://" in source:
            from marpack.archive.remote import check_address  # noqa: PLC0415 - few inputs need it

            check_address(source)
        next(paths_of((source,), name_filter=name_filter), None)


def count_of(sources: Iterable[str], *, name_filter: NameFilter | None = None) -> int | None:
    """Return the number of inputs that sources name, or None if they must be read to count them."""
    count = 0
    for source in sources:
        if source.startswith("@") or (set(source) & _GLOB and not os.path.exists(source)):  # noqa: PTH110
            return None
        count += sum(1 for _ in _below(source, name_filter)) if os.path.isdir(source) else 1  # noqa: PTH112
    return count


def _listed(path: str) -> Iterator[str]:
    try:
        with Path(path).open(encoding="utf-8") as file:
            for line in file:
                if (name := line.strip()) and not name.startswith("#"):
                    yield name
    except (OSError, UnicodeDecodeError) as error:
        what = f"the list of inputs cannot be read: {describe_os_error(error)}"
        hint = "Name a UTF-8 text file with a path on each line."
        raise UsageError(what, where=path, hint=hint, code="unreadable-input-list") from error


def _below(folder: str, name_filter: NameFilter | None) -> Iterator[str]:
    """Yield a folder's files in order, then those of each of its folders; hidden ones are left out."""

    def entries() -> Iterator[os.DirEntry[str]]:
        with os.scandir(folder) as found:
            yield from (entry for entry in found if not entry.name.startswith("."))

    def is_input(entry: os.DirEntry[str]) -> bool:
        # A broken link is one, so that it is reported.
        is_file = entry.is_file() or (entry.is_symlink() and not entry.is_dir())
        return is_file and (name_filter is None or name_filter(entry.name))

    try:
        for name in sorted(entry.name for entry in entries() if is_input(entry)):
            yield os.path.join(folder, name)  # noqa: PTH118
        folders = sorted(entry.name for entry in entries() if entry.is_dir(follow_symlinks=False))
    except PermissionError:
        yield folder  # reading it reports the reason
        return
    for name in folders:
        yield from _below(os.path.join(folder, name), name_filter)  # noqa: PTH118


class RecordedField(Struct, forbid_unknown_fields=True, kw_only=True):
    """One field of a form: a plain value, or a file part if it has a `filename`, a `file` or a `content_type`."""

    name: str | None = None  # needed where the form is a list
    value: str | None = None
    base64: str | None = None
    file: str | None = None  # a path, relative to the requests file
    filename: str | None = None
    content_type: str | None = None


class RecordedRequest(Struct, forbid_unknown_fields=True, kw_only=True):
    """One line of a requests file."""

    name: str | None = None  # how results call it; default: FILE:LINE
    id: str | None = None  # the request id the handler sees
    content_type: str | None = None
    headers: dict[str, str] | list[tuple[str, str]] = {}
    body: str | None = None  # text; at most one of body, base64, file, json and form
    base64: str | None = None
    file: str | None = None
    json: msgspec.Raw = msgspec.Raw()
    form: dict[str, str | RecordedField] | list[RecordedField] | None = None
    explain: bool = False
    describe: bool = False
    url_path: str = ""
    batch: str | int | None = None  # requests in a row with the same value are handled in one call


_DECODER = msgspec.json.Decoder(RecordedRequest)
_HINT = "Write one JSON object on each line. docs/requests.md shows its keys."


def recorded_inputs(path: str, *, limit: int = MAX_BODY) -> Iterator[Input]:
    """Yield one input per line of a requests file (`-` for stdin); empty lines are skipped.

    A body of more than `limit` bytes is refused, as by the server; a line that is not a request is refused also.
    Raises UsageError for a file that cannot be read.
    """
    for number, line in _numbered_lines(path):
        try:
            yield _recorded_input(path, number, line, limit)
        except UsageError as error:
            yield unreadable(f"{path}:{number}", error)


def check_requests(path: str) -> None:
    """Raise UsageError if a requests file cannot be read, or if its first line is not a request."""
    for number, line in _numbered_lines(path):
        _recorded_input(path, number, line, MAX_BODY)
        return
    raise UsageError("the file has no requests", where=path, hint=_HINT)


def _numbered_lines(path: str) -> Iterator[tuple[int, bytes]]:
    failure = "the requests cannot be read"
    with ExitStack() as stack:
        file: BinaryIO = sys.stdin.buffer
        if path != "-":
            stack.enter_context(convert_os_errors(UsageError, failure, where=path, code="unreadable-requests"))
            file = stack.enter_context(Path(path).open("rb"))
        yield from ((number, line) for number, line in enumerate(file, 1) if line.strip())


def _recorded_input(path: str, number: int, line: bytes, limit: int) -> Input:
    """Return the input of one line; raises UsageError for a line that is not a request."""
    where, folder = f"{path}:{number}", "" if path == "-" else os.path.dirname(path)  # noqa: PTH120 - thousands a second
    try:
        recorded = _DECODER.decode(line)
        body, form = bytes(recorded.json), recorded.form
        given = (recorded.body, recorded.base64, recorded.file, form)
        if sum(content is not None for content in given) + bool(body) > 1:
            raise ValueError("body, base64, file, json and form exclude each other")
        if form is not None:
            fields = form.items() if isinstance(form, dict) else [(field.name, field) for field in form]
            content: bytes | tuple[Part, ...] = tuple(_recorded_field(name, field, folder) for name, field in fields)
        else:
            content = body or _recorded_bytes(recorded, recorded.body, folder)
    except RecursionError:
        hint = 'Give the body as text, under "body", or as a file, under "file".'
        raise UsageError("this line is nested too deeply to be read", where=where, hint=hint) from None
    except (msgspec.DecodeError, binascii.Error, ValueError) as error:
        raise UsageError(f"this line is not a request: {error}", where=where, hint=_HINT) from error
    headers = tuple(recorded.headers.items() if isinstance(recorded.headers, dict) else recorded.headers)
    content_type = recorded.content_type or None
    if content_type is None and not any(name.lower() == "content-type" for name, _ in headers):
        content_type = FORM_TYPE if form is not None else "application/json" if body else None
    return received(
        recorded.name or where,
        content,
        request_id=recorded.id or request_id(number),
        headers=(*headers, *_DESCRIBE) if recorded.describe else headers,
        content_type=content_type,
        url_path=recorded.url_path,
        explain=recorded.explain,
        batch=None if recorded.batch is None else str(recorded.batch),
        limit=limit,
    )


def _recorded_field(name: str | None, field: str | RecordedField, folder: str) -> Part:
    if not name:
        raise ValueError("a form field has no name")
    if isinstance(field, str):
        return Part(name, field.encode())
    is_file = field.filename is not None or field.file is not None or field.content_type is not None
    kind = (field.content_type or OCTETS) if is_file else ""
    return Part(name, _recorded_bytes(field, field.value, folder), kind)


def _recorded_bytes(recorded: RecordedRequest | RecordedField, text: str | None, folder: str) -> bytes:
    if recorded.base64 is not None:
        return base64.b64decode(recorded.base64, validate=True)
    if recorded.file is not None:
        return read_file(os.path.join(folder, recorded.file))  # noqa: PTH118 - thousands a second
    return (text or "").encode()
