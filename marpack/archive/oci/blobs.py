"""Bytes on their way from and to a registry, each held to its SHA-256 and its size."""

import hashlib
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from http import HTTPStatus
from typing import BinaryIO, Protocol

from msgspec import Struct

from marpack.archive.http_opener import WaitBudget
from marpack.archive.oci.manifests import Descriptor
from marpack.archive.oci.session import LIES, Answer, CutError, RegistrySession
from marpack.archive.protocol import Progress
from marpack.errors import DamagedArchiveError, RegistryError

_PAUSES = (0.5, 1.0, 2.0, 4.0)  # seconds before what broke off is gone on with
_WORTH = 16 << 20  # bytes after which an attempt counts as the first again: a long way may break off often
_BLOCK = 1 << 20  # bytes
_RANGE = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18})")


class BlobPart(Struct, frozen=True):
    """Bytes that are coming."""

    start: int  # where in the whole they begin
    size: int | None  # of the whole; None: nothing is said
    version: str  # a strong ETag of what they are of, or ""
    read: Callable[[int], bytes]  # up to so many of the next ones, none at the end; raises CutError


class BlobSource(Protocol):
    """Where a blob comes from; a registry is one."""

    where: str  # what messages call it

    def part(self, start: int, version: str) -> AbstractContextManager[BlobPart]:
        """Give the bytes from `start` on, if they are still of that version, or else all of them. Raises CutError."""


def copy_verified(
    source: BlobSource,
    digest: str,
    size: int,
    destination: BinaryIO,
    *,
    progress: Progress | None = None,
    pauses: Sequence[float] = _PAUSES,
) -> None:
    """Copy a blob, going on where a connection broke off; no other bytes than those of the digest are let through.

    Args:
        source: Where they come from.
        digest: "sha256:<hex>".
        size: Bytes.
        destination: An empty file; what it holds when this raises is worth nothing.
        progress: Is told of bytes as they come for the first time.
        pauses: Seconds to wait, in turn, before attempts that follow one that brought little.

    Raises DamagedArchiveError for other bytes than these, RegistryError where they cannot be had.
    """
    copy = _Copy(size, destination, progress)
    left = iter(pauses)
    while True:
        before = copy.furthest
        try:
            with source.part(copy.done, copy.version) as part:
                copy.take(part, source.where)
            break
        except CutError as error:
            if copy.furthest - before >= _WORTH:
                left = iter(pauses)
            pause = next(left, None)
            if pause is None:
                raise _given_up(error, copy) from None
            time.sleep(pause)
    found = f"sha256:{copy.sha.hexdigest()}"
    if found != digest:
        what = f"the registry sends other bytes than it names: their digest is {found}, it should be {digest}"
        raise DamagedArchiveError(what, where=source.where, hint=LIES, code="digest-mismatch")


def _given_up(error: CutError, copy: "_Copy") -> RegistryError:
    what = f"{error.what}; {copy.furthest:,} of {copy.size:,} bytes had come, and no attempt brought more"
    return RegistryError(what, where=error.where, hint="try again later", code="download-incomplete")


class _Copy:
    """How far a copy is."""

    def __init__(self, size: int, destination: BinaryIO, progress: Progress | None) -> None:
        self.size = size
        self.done = 0  # bytes
        self.furthest = 0  # bytes that any attempt has reached
        self.version = ""
        self.sha = hashlib.sha256()
        self._destination = destination
        self._progress = progress

    def take(self, part: BlobPart, where: str) -> None:
        """Write what comes; raises CutError where it ends early."""
        if part.size not in (None, self.size):
            raise _other_size(f"it has {part.size:,} bytes, the manifest says {self.size:,}", where)
        if part.start != self.done:
            self._start_again()
        self.version = part.version
        while block := part.read(min(_BLOCK, self.size - self.done + 1)):
            if self.done + len(block) > self.size:
                raise _other_size(f"it has more than the {self.size:,} bytes that the manifest says", where)
            self._destination.write(block)
            self.sha.update(block)
            self.done += len(block)
            self._tell()
        if self.done < self.size:
            raise CutError(f"the connection broke off after {self.done:,} of {self.size:,} bytes", where=where)

    def _start_again(self) -> None:
        self._destination.seek(0)
        self._destination.truncate()
        self.done, self.sha = 0, hashlib.sha256()

    def _tell(self) -> None:
        if self.done > self.furthest:
            if self._progress is not None:
                self._progress(self.done - self.furthest)
            self.furthest = self.done


def _other_size(what: str, where: str) -> DamagedArchiveError:
    return DamagedArchiveError(f"the registry sends another blob than it names: {what}", where=where, hint=LIES)


class RegistryBlob:
    """A blob of a registry; see `BlobSource`."""

    def __init__(self, session: RegistrySession, digest: str) -> None:
        """Take where it is; nothing is asked yet."""
        self._session = session
        self._digest = digest
        self.where = str(session.reference)
        self._budget = WaitBudget()  # of all attempts together

    @contextmanager
    def part(self, start: int, version: str) -> Iterator[BlobPart]:
        """Give the bytes from `start` on; see `BlobSource`."""
        headers = {"Range": f"bytes={start}-"} if start else {}
        if start and version:
            headers["If-Range"] = version
        fine = (HTTPStatus.OK, HTTPStatus.PARTIAL_CONTENT) if start else (HTTPStatus.OK,)
        with self._session.ask("GET", f"blobs/{self._digest}", headers=headers, fine=fine) as answer:
            begins, size = self._placed(answer, start)
            yield BlobPart(begins, size, _strong(answer), partial(answer.read, budget=self._budget))

    def ranged(self, start: int, stop: int) -> bytes | None:
        """Return the bytes [start, stop), whose digest nobody can tell; None: the registry sends no parts."""
        headers, fine = {"Range": f"bytes={start}-{stop - 1}"}, (HTTPStatus.OK, HTTPStatus.PARTIAL_CONTENT)
        with self._session.ask("GET", f"blobs/{self._digest}", headers=headers, fine=fine) as answer:
            if answer.status != HTTPStatus.PARTIAL_CONTENT:
                return None
            self._placed(answer, start)
            data = answer.read_whole(stop - start)
        if len(data) != stop - start:
            what = "the registry sends other bytes than it was asked for"
            raise DamagedArchiveError(what, where=self.where, code="wrong-range")
        return data

    def _placed(self, answer: Answer, start: int) -> tuple[int, int | None]:
        """Return where an answer's bytes begin, and the size of the whole."""
        if answer.status == HTTPStatus.OK:
            return 0, answer.length
        found = _RANGE.fullmatch(answer.headers.get("Content-Range", ""))
        if found is None or int(found[1]) != start:
            said = answer.headers.get("Content-Range") or "nothing"
            what = f"the registry sends another part of the blob than it was asked for: {said[:60]}"
            raise DamagedArchiveError(what, where=self.where, hint=LIES, code="wrong-range")
        return start, int(found[3])


def _strong(answer: Answer) -> str:
    """Return an ETag by which If-Range may go (RFC 9110, section 13.1.5)."""
    version = answer.headers.get("ETag", "")
    return version if version.startswith('"') else ""


class BlobStream(Protocol):
    """Bytes to send; a binary file is one."""

    def read(self, count: int, /) -> bytes:
        """Return up to `count` of the next bytes, none at the end."""

    def seek(self, place: int, /) -> int:
        """Go to the beginning again."""


class _Sending:
    """A stream of known length, whose bytes are told of as they are sent."""

    def __init__(self, stream: BlobStream, size: int, progress: Progress | None) -> None:
        self._stream = stream
        self._size = size
        self._progress = progress

    def __len__(self) -> int:
        return self._size

    def read(self, count: int = -1) -> bytes:
        """Return up to `count` of the next bytes."""
        data = self._stream.read(_BLOCK if count < 0 else max(count, _BLOCK))
        if self._progress is not None:
            self._progress(len(data))
        return data


def upload(
    session: RegistrySession,
    blob: Descriptor,
    opened: Callable[[], AbstractContextManager[BlobStream]],
    progress: Progress | None = None,
) -> bool:
    """Send a blob unless it is there; say whether it was sent. `opened` gives its bytes, for each attempt anew.

    Raises RegistryError where it cannot be sent, or arrives there as something else.
    """
    with session.ask("HEAD", f"blobs/{blob.digest}", fine=(HTTPStatus.OK, HTTPStatus.NOT_FOUND)) as answer:
        if answer.status == HTTPStatus.OK:
            return False
    for pause in (*_PAUSES, None):
        try:
            with opened() as stream:
                _upload(session, blob, stream, progress)
        except CutError:
            if pause is None:
                raise
            time.sleep(pause)
            progress = None  # what is sent again was counted
        else:
            break
    return True


def _upload(session: RegistrySession, blob: Descriptor, stream: BlobStream, progress: Progress | None) -> None:
    """Send a blob in one request, which the answer to another says the address of (OCI distribution, "Pushing")."""
    with session.ask("POST", "blobs/uploads/", fine=(HTTPStatus.ACCEPTED,), body=lambda: b"") as answer:
        place = answer.headers.get("Location")
    if not place:
        what = "the registry does not say where to send a blob"
        raise RegistryError(what, where=str(session.reference), code="upload-location-missing")
    mark = "&" if "?" in place else "?"
    headers = {"Content-Type": "application/octet-stream", "Content-Length": str(blob.size)}

    def body() -> _Sending:
        stream.seek(0)
        return _Sending(stream, blob.size, progress)

    with session.ask(
        "PUT", f"{place}{mark}digest={blob.digest}", fine=(HTTPStatus.CREATED,), headers=headers, body=body
    ):
        pass
