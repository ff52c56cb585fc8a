"""Where results go: the results file of `--resume`, and the body files of `--output`."""

import errno
import hashlib
import json
import os
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, suppress
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path
from typing import Self

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from marpack.archive.index import content_identity
from marpack.errors import OutputError, ResumeMismatchError, UsageError, convert_os_errors, printable, shortened
from marpack.json_text import legible, to_json
from marpack.runner.inputs import Input, has_generated_id, suffix_of_type
from marpack.runner.results import Result
from marpack.runner.session import PreparedModel


class LoggedResult(Result, frozen=True, kw_only=True, gc=False):
    """One line of a results file; files of older versions and of `--jsonl` have no digests."""

    archive_digest: str | None = None
    options_digest: str | None = None
    request_digest: str | None = None


class RunDigests(Struct, frozen=True):
    """The digests that all results of one run share."""

    archive: str  # the archive's content identity
    options: str

    @classmethod
    def of(cls, prepared: PreparedModel, *, env: str, in_process: bool, max_request_size: int) -> Self:
        """Return the digests of a run of a prepared archive.

        The digest of options has every setting of `Load` that affects responses, and the three arguments. Timeouts, the
        memory limit and the number of workers decide only whether and when a response arrives, so that an interrupted
        run can continue with larger ones. `--show-data`, `--trace` and the output options only observe. Content type,
        headers, `--explain` and `--describe` are part of each request.
        """
        load = prepared.load
        metrics = None if load.metrics_config is None else _digest(Path(load.metrics_config).read_bytes())
        counted = replace(load, model_dir="", metrics_config=metrics, show_data=False, trace=False)
        options = _digest(to_json([counted, env, in_process, max_request_size]))
        return cls(content_identity(prepared.archive), options)


def request_digest(item: Input) -> str:
    """Return the digest of an input's request: what the handler receives, or what the frontend refuses.

    An id that marpack generated from the input's position is left out, so that inputs may be added and reordered.
    """
    request, refused = item.request, item.refused
    head = (
        "" if has_generated_id(request) else request.id,
        request.url_path,
        request.explain,
        request.headers,
        [(part.name, part.content_type, len(part.value)) for part in request.parts],
        item.batch,
        None if refused is None else (refused.status, _digest(refused.body), item.why.kind if item.why else ""),
    )
    return _digest(to_json(head), *[part.value for part in request.parts])


_DECODER = msgspec.json.Decoder(LoggedResult)
_OPENING = b'{"archive_digest":"'  # of each line that is written here
_OPENINGS = (_OPENING, b'{"input":"')  # the second one is of older versions and of `--jsonl`
_PIECE = 1 << 16  # bytes of a line that are read before its opening is known
_HINT = "Name a file that `marpack run --resume` wrote, or one that does not exist yet."
_SHOWN = 20  # characters of a digest
_ANOTHER = "name another file with --resume"


class ResultsLog(AbstractContextManager["ResultsLog"]):
    """A results file, one JSON object a line, to which new results are appended; no other run can open it meanwhile.

    Names and requests are kept as digests of eight bytes: a million results take 20 MB.
    """

    def __init__(self, path: str, *, unchecked: bool = False) -> None:
        """Open, lock and read a results file, or create it; a symbolic link is followed.

        `unchecked` accepts results without digests, which are then matched to inputs by name alone. Raises UsageError
        if it is not a results file, cannot be read or written, or is in use by another run, and ResumeMismatchError for
        a result without digests. The file is then unchanged.
        """
        self.path = path
        self.answered = 0
        self.short = 0  # of those, how many failed
        self._unchecked = unchecked
        self._found: dict[RunDigests, int] = {}  # digests of the results → line; at most two are kept
        self._opening = b""  # of the lines to be written; empty until `begin`
        if Path(path).exists() and not Path(path).is_file():
            raise UsageError("not a regular file", where=path, hint=_HINT)
        with convert_os_errors(UsageError, "the results cannot be written", where=path, code="output"):
            self._file = Path(path).open("ab+")  # noqa: SIM115 - closed by `close`
        with ExitStack() as on_error:
            on_error.callback(self._file.close)
            try:
                flock(self._file.fileno(), LOCK_EX | LOCK_NB)
            except OSError as error:
                if error.errno in {errno.EWOULDBLOCK, errno.EACCES}:  # otherwise the file system has no locks
                    hint = f"Wait until it ends, or {_ANOTHER}."
                    raise UsageError("another run is writing to this file", where=path, hint=hint) from None
            names, requests = array("Q"), array("Q")
            with convert_os_errors(UsageError, "the results cannot be read", where=path):
                for logged in self._read():
                    names.append(_short(_digest(legible(logged.input).encode())))
                    requests.append(_short(logged.request_digest) if logged.request_digest else 0)
            on_error.pop_all()
        order = sorted(range(len(names)), key=names.__getitem__)  # results of one name stay in the file's order
        self._names = array("Q", [names[place] for place in order])
        self._requests = array("Q", [requests[place] for place in order])
        self._met = array("I", bytes(array("I").itemsize * len(order)))  # inputs found so far, at their name's place

    def _read(self) -> Iterator[LoggedResult]:
        """Yield all results, then cut off a last line that is incomplete."""
        size = os.fstat(self._file.fileno()).st_size
        end = number = 0
        self._file.seek(0)
        while line := self._file.readline(_PIECE):
            number += 1
            if line.startswith(_OPENINGS) and not line.endswith(b"\n"):  # of another long line the beginning is enough
                line += self._file.readline()
            if end + len(line) > size:
                break
            if not line.endswith(b"\n"):
                # A result that a crash has cut off; nothing else is.
                follows = number > 1 and any(each.startswith(line) or line.startswith(each) for each in _OPENINGS)
                if not (follows or line.startswith(_OPENING)):
                    raise UsageError("the last line is not a result", where=f"{self.path}:{number}", hint=_HINT)
                break
            logged = self._decode(line, number)
            end += len(line)
            self.answered += 1
            self.short += not logged.ok
            yield logged
        if os.fstat(self._file.fileno()).st_size != size:
            hint = f"Wait until nothing writes to it, or {_ANOTHER}."
            raise UsageError("another program is writing to this file", where=self.path, hint=hint)
        if end < size:
            self._file.truncate(end)

    def _decode(self, line: bytes, number: int) -> LoggedResult:
        where = f"{self.path}:{number}"
        try:
            logged = _DECODER.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise UsageError(f"this line is not a result: {error}", where=where, hint=_HINT) from error
        if logged.archive_digest and logged.options_digest and logged.request_digest:
            if len(self._found) < 2:
                self._found.setdefault(RunDigests(logged.archive_digest, logged.options_digest), number)
        elif not self._unchecked:
            what = "this result has no digests, so it cannot be matched to this run and its inputs"
            hint = f"Pass --resume-unchecked to match results to inputs by name alone, or {_ANOTHER}."
            raise ResumeMismatchError(what, where=where, hint=hint)
        return logged

    def begin(self, run: RunDigests) -> None:
        """Take results of a run from now on; raises ResumeMismatchError if the file holds results of another one."""
        for found, number in self._found.items():
            if found == run:
                continue
            what, remedy = "this result was computed with other options", "Use the options of that run"
            if found.archive != run.archive:
                then, now = shortened(found.archive, _SHOWN), shortened(run.archive, _SHOWN)
                what = f"this result was computed by another archive ({then}; this run: {now})"
                remedy = "Run the archive that computed it"
            raise ResumeMismatchError(what, where=f"{self.path}:{number}", hint=f"{remedy}, or {_ANOTHER}.")
        self._opening = (
            f'{_OPENING.decode()}{run.archive}","options_digest":"{run.options}","request_digest":"'.encode()
        )

    def unanswered(self, inputs: Iterable[Input]) -> Iterator[Input]:
        """Yield the inputs without a result; of inputs with one name, the first ones have the file's results.

        Raises ResumeMismatchError for an input that changed after it was answered.
        """
        for item in inputs:
            name = _short(_digest(legible(item.name).encode()))
            first = bisect_left(self._names, name)
            place = first + self._met[first] if first < len(self._names) else first
            if place >= len(self._names) or self._names[place] != name:
                yield item
                continue
            self._met[first] += 1
            if self._requests[place] and self._requests[place] != _short(request_digest(item)):
                what = f"the result in {self.path} is for a different request"
                hint = f"Restore the input and its options, or {_ANOTHER}."
                raise ResumeMismatchError(what, where=legible(item.name), hint=hint)

    def write(self, item: Input, result: Result) -> None:
        """Append the result of an input, at once; raises OutputError if it cannot be written."""
        if not self._opening:
            raise RuntimeError("begin() comes first")
        # The digests come first: they identify a line that a crash has cut off as one of ours.
        line = b'%b%b",%b\n' % (self._opening, request_digest(item).encode(), to_json(result)[1:])
        with convert_os_errors(OutputError, "the results cannot be written", where=self.path):
            self._file.write(line)
            self._file.flush()

    def close(self) -> None:
        """Close the file, which another run may then open."""
        with suppress(OSError):  # already reported
            self._file.close()

    def __exit__(self, *_: object) -> None:
        self.close()


def _digest(*pieces: bytes) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for piece in pieces:
        digest.update(piece)
    return digest.hexdigest()


def _short(digest: str) -> int:
    """Return the first eight bytes of a hexadecimal digest, never 0; any other text counts as different."""
    try:
        return int(digest[:16], 16) or 1
    except ValueError:
        return 1


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
    """A folder of response bodies; no file in it is ever replaced."""

    def __init__(self, path: str, *, may_hold_files: bool) -> None:
        """Create the folder; it may contain files only if an earlier run has written them.

        Raises UsageError for a folder that may not be used, OutputError for one that cannot be created.
        """
        self._path = Path(path)
        self._repeats: dict[str, int] = {}  # name → the last number in use, of names that occurred twice
        if self._path.exists() and not self._path.is_dir():
            raise UsageError("not a folder", where=path, hint="Choose a new folder.", code="not-a-folder")
        with convert_os_errors(OutputError, "the folder cannot be created", where=path):
            self._path.mkdir(parents=True, exist_ok=True)
            is_empty = next(self._path.iterdir(), None) is None
        if not (is_empty or may_hold_files):
            hint = "Name a folder that is empty or does not exist."
            raise UsageError("the folder holds files already", where=path, hint=hint, code="folder-not-empty")

    def save(self, result: Result) -> Result:
        """Write one response's body and return the result with its file; raises OutputError."""
        if result.status == 0:
            return result
        body = result.raw
        stem, suffix = file_name(result.input), suffix_of(result.content_type, body)
        number = self._repeats.get(stem + suffix, 1)
        while os.path.lexists(path := self._path / (f"{stem}{suffix}" if number == 1 else f"{stem}-{number}{suffix}")):
            self._repeats[stem + suffix] = number = number + 1
        with convert_os_errors(OutputError, "the response cannot be written", where=str(path)):
            with path.open("xb") as file:
                file.write(body)
            return replace(result, file=str(path))


def file_name(name: str) -> str:
    """Return a file's name for an input's name: its last part, without characters that no file name may have."""
    address = name.partition("?")[0].rstrip("/") if "://" in name else name
    clean = printable(address.rpartition("/")[2], stand_in="_").strip()
    if clean in {"", ".", ".."}:
        return "answer"
    encoded = clean.encode("utf-8", "replace")
    if len(encoded) <= _MAX_LENGTH:
        return clean
    digest = hashlib.sha256(encoded).hexdigest()[:8]
    return f"{encoded[: _MAX_LENGTH - 9].decode('utf-8', 'ignore')}-{digest}"


def suffix_of(content_type: str | None, body: bytes) -> str:
    """Return the suffix of a body, by its content type or otherwise by its content."""
    known = suffix_of_type(content_type or "")
    known = known or next((suffix for magic, suffix in _MAGIC if body.startswith(magic)), None)
    if known is not None:
        return known
    if body.startswith(b"RIFF") and body[8:12] == b"WEBP":
        return ".webp"
    if body.startswith(b"PK\x03\x04"):
        return ".pt" if b"/data.pkl" in body[:512] else ".zip"
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError:
        return ".bin"
    if text.lstrip()[:1] not in {"{", "["}:
        return ".txt"
    try:
        json.loads(text)  # also NaN and Infinity, which the server writes
    except (ValueError, RecursionError):
        return ".txt"
    return ".json"
