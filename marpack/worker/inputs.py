"""What is sent to a handler: files, folders, globs and lists, one request each, read only when their turn comes."""

import glob
import json
import mimetypes
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from msgspec import Struct

from marpack.errors import UsageError
from marpack.runtime.forms import bare_type, last_wins, parts_of
from marpack.runtime.messages import Part, Request

_GLOB = set("*?[")
# Types that the standard table of suffixes lacks or that systems disagree on.
_TYPES = {
    ".json": "application/json",
    ".txt": "text/plain",
    ".csv": "text/csv",
    ".md": "text/markdown",
    ".webp": "image/webp",
    ".npy": "application/octet-stream",
}
_MAGIC = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"BM", "image/bmp"),
)


class Input(Struct, frozen=True):
    """One request and what the user calls it; inputs with one `batch` go to the handler in one call."""

    name: str
    request: Request
    batch: str | None = None


class Shape(Struct, frozen=True, kw_only=True):
    """What every request of a run has in common."""

    content_type: str | None = None  # None: by suffix, then by content
    headers: tuple[tuple[str, str], ...] = ()
    explain: bool = False
    describe: bool = False

    def raw(self, number: int, content_type: str, body: bytes) -> Request:
        """Return the request with a body, which may be a form; raises FormError."""
        named = any(name.lower() == "content-type" for name, _ in self.headers)
        headers = () if named or not content_type else (("Content-Type", content_type),)
        return self.form(number, parts_of(content_type, body), headers)

    def form(self, number: int, parts: tuple[Part, ...], headers: tuple[tuple[str, str], ...] = ()) -> Request:
        """Return the request that carries some form fields."""
        described = (("describe", "True"),) if self.describe else ()
        return Request(
            id=request_id(number), parts=parts, headers=(*headers, *self.headers, *described), explain=self.explain
        )


def request_id(number: int) -> str:
    """Return the id of the n-th request: of a server's form, and the same in every run."""
    return f"00000000-0000-4000-8000-{number:012x}"


def paths_of(sources: Iterable[str]) -> Iterator[str]:
    """Yield the files that `--input` names: files, folders (recursively), globs, `@list`, `-` and addresses.

    Raises UsageError for what is not there.
    """
    for source in sources:
        if source == "-" or "://" in source:
            yield source
        elif source.startswith("@"):
            yield from paths_of(_listed(Path(source[1:])))
        elif Path(source).is_dir():
            yield from _below(source)
        elif Path(source).exists():
            yield source
        elif set(source) & _GLOB:
            yield from _matching(source)
        else:
            raise UsageError("there is no such input", where=source, hint="name a file, a folder or a glob in quotes")


def _listed(path: Path) -> list[str]:
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"the list of inputs cannot be read: {error}", where=str(path)) from error
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def _below(folder: str) -> Iterator[str]:
    found = False
    for root, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(files):
            if not name.startswith("."):
                found = True
                yield str(Path(root, name))
    if not found:
        raise UsageError("the folder holds no files", where=folder, hint="name a folder with inputs in it")


def _matching(pattern: str) -> Iterator[str]:
    found = sorted(glob.glob(pattern, recursive=True))  # noqa: PTH207 - patterns may be absolute
    matches = [path for path in found if Path(path).is_file()]
    if not matches:
        raise UsageError("the pattern matches no file", where=pattern, hint="check it with ls")
    yield from matches


def file_inputs(sources: Iterable[str], shape: Shape) -> Iterator[Input]:
    """Yield one input per file that `sources` name, each read only when it is asked for.

    Raises UsageError for one that cannot be read.
    """
    for number, path in enumerate(paths_of(sources)):
        data = read_input(path)
        content_type = shape.content_type if shape.content_type is not None else type_of(path, data)
        yield Input("stdin" if path == "-" else path, shape.raw(number, content_type, data))


def data_inputs(texts: Iterable[str], shape: Shape, *, start: int = 0) -> Iterator[Input]:
    """Yield one input per text given as such: JSON where it is JSON, else plain text."""
    for number, text in enumerate(texts, start):
        content_type = shape.content_type if shape.content_type is not None else _type_of_text(text)
        yield Input(f"data[{number}]", shape.raw(number, content_type, text.encode()))


def _type_of_text(text: str) -> str:
    try:
        json.loads(text)
    except ValueError:
        return "text/plain"
    return "application/json"


def form_input(fields: Iterable[str], shape: Shape) -> Input:
    """Return the one input of some form fields: `name=value`, or `name=@file` for a file part.

    Raises UsageError for a field without "=" and a file that cannot be read.
    """
    parts = tuple(_field(field) for field in fields)
    return Input("form", shape.form(0, last_wins(parts)))


def _field(field: str) -> Part:
    name, equals, value = field.partition("=")
    if not equals or not name:
        raise UsageError("a form field is given as name=value or name=@file", where=f"--form {field}")
    if not value.startswith("@"):
        return Part(name, value.encode())
    data = read_input(value[1:])
    return Part(name, data, bare_type(type_of(value[1:], data)))


def read_input(path: str) -> bytes:
    """Return the bytes of a file, of stdin (`-`) or of an address.

    Raises UsageError if they cannot be read.
    """
    if path == "-":
        return sys.stdin.buffer.read()
    if "://" in path:
        return _fetched(path)
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise UsageError(f"the input cannot be read: {error.strerror}", where=path) from error


def _fetched(address: str) -> bytes:
    import fsspec  # noqa: PLC0415 - only remote inputs need it

    try:
        with fsspec.open(address, "rb") as file:
            data: bytes = file.read()
    except ImportError as error:
        raise UsageError(f"inputs of this kind need a package: {error}", where=address) from error
    except (OSError, ValueError) as error:
        raise UsageError(f"the input cannot be fetched: {error}", where=address) from error
    return data


def type_of(path: str, data: bytes) -> str:
    """Return a file's content type, by its suffix, else by its first bytes."""
    suffix = Path(path).suffix.lower()
    known = _TYPES.get(suffix) or mimetypes.guess_type(path)[0]
    if known is not None:
        return known
    return next((kind for magic, kind in _MAGIC if data.startswith(magic)), "application/octet-stream")
