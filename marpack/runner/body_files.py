"""`--output`: the body of every answer as a file of its own, named for its input, under the suffix of its type."""

import hashlib
import json
from pathlib import Path

import msgspec
from msgspec.structs import replace

from marpack.errors import OutputError, UsageError, printable
from marpack.runner.inputs import suffix_of_type
from marpack.runner.results import Result

_MAX_LENGTH = 180  # bytes of a file's name, before its number and suffix
_MAGIC = (
    (b"\x89PNG\r\n\x1a\n", ".png"),
    (b"\xff\xd8\xff", ".jpg"),
    (b"GIF8", ".gif"),
    (b"%PDF-", ".pdf"),
    (b"\x93NUMPY", ".npy"),
    (b"\x1f\x8b", ".gz"),
)


class BodyFolder:
    """A folder of answers; nothing in it is ever replaced."""

    def __init__(self, path: str, *, may_hold_files: bool) -> None:
        """Make the folder, if it is not there; it may hold files only where those of an earlier run are expected.

        Raises UsageError for one that may not be used, OutputError for one that cannot be made.
        """
        self._path = Path(path)
        self._repeats: dict[str, int] = {}  # name → how often it was met, of those that were met twice
        try:
            self._path.mkdir(parents=True, exist_ok=True)
            is_empty = next(self._path.iterdir(), None) is None
        except FileExistsError as error:
            hint = "name a folder that is not there yet"
            raise UsageError("this is no folder", where=path, hint=hint, code="not-a-folder") from error
        except OSError as error:
            raise OutputError(f"the folder cannot be made: {error.strerror}", where=path) from error
        if not (is_empty or may_hold_files):
            hint = "name one that is empty or not there"
            raise UsageError("the folder holds files already", where=path, hint=hint, code="folder-not-empty")

    def save(self, result: Result) -> Result:
        """Write one answer's body and return the result with its place; raises OutputError."""
        if result.status == 0:
            return result
        body = result.raw
        stem, suffix = file_name(result.input), suffix_of(result.content_type, body)
        while True:
            path = self._path / self._numbered(stem, suffix)
            try:
                with path.open("xb") as file:
                    file.write(body)
            except FileExistsError:
                self._repeats[stem + suffix] = self._repeats.get(stem + suffix, 1) + 1
            except OSError as error:
                raise OutputError(f"the answer cannot be written: {error.strerror}", where=str(path)) from error
            else:
                return replace(result, file=str(path))

    def _numbered(self, stem: str, suffix: str) -> str:
        number = self._repeats.get(stem + suffix, 1)
        return f"{stem}{suffix}" if number == 1 else f"{stem}-{number}{suffix}"


def file_name(name: str) -> str:
    """Return a file's name for an input's: its last part, with nothing in it that no file may be called."""
    address = name.partition("?")[0].rstrip("/") if "://" in name else name
    last = address.rpartition("/")[2]
    clean = printable(last, stand_in="_").strip()
    if clean in {"", ".", ".."}:
        clean = "answer"
    if len(clean.encode("utf-8", "replace")) <= _MAX_LENGTH:
        return clean
    digest = hashlib.sha256(clean.encode("utf-8", "replace")).hexdigest()[:8]
    return f"{clean.encode('utf-8', 'replace')[: _MAX_LENGTH - 9].decode('utf-8', 'ignore')}-{digest}"


def suffix_of(content_type: str | None, body: bytes) -> str:
    """Return the suffix of a body: by the type that its handler gave it, else by what it holds."""
    known = suffix_of_type(content_type or "")
    if known is not None:
        return known
    found = next((suffix for magic, suffix in _MAGIC if body.startswith(magic)), None)
    if found is not None:
        return found
    if body.startswith(b"RIFF") and body[8:12] == b"WEBP":
        return ".webp"
    if body.startswith(b"PK\x03\x04"):
        return ".pt" if b"/data.pkl" in body[:512] else ".zip"
    return _suffix_of_text(body)


def _suffix_of_text(body: bytes) -> str:
    try:
        body.decode("utf-8")
    except UnicodeDecodeError:
        return ".bin"
    if body.lstrip()[:1] not in {b"{", b"["}:
        return ".txt"
    return ".json" if _is_json(body) else ".txt"


def _is_json(body: bytes) -> bool:
    try:
        msgspec.json.decode(body, type=msgspec.Raw)
    except (msgspec.DecodeError, RecursionError):
        try:
            json.loads(body)  # slower, and takes what the server writes: NaN and Infinity
        except (ValueError, RecursionError):
            return False
    return True
