"""`--resume`: the results file of a run that broke off, read for what is answered, then written on."""

import hashlib
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Self

import msgspec
from msgspec import Struct

from marpack.errors import OutputError, UsageError
from marpack.json_text import legible, to_json
from marpack.runner.inputs import Input


class LoggedResult(Struct, frozen=True):
    """What counts of one line of a results file."""

    input: str
    status: int
    reset: bool = False

    @property
    def ok(self) -> bool:
        """Whether a client would call this an answer."""
        return 200 <= self.status < 300 and not self.reset


_DECODER = msgspec.json.Decoder(LoggedResult)
_HINT = "name a file that an earlier run wrote with --resume or --jsonl, or one that is not there yet"


class ResultsLog:
    """A results file, one JSON object a line, to which new results are appended.

    Names are kept as digests of eight bytes: a million of them take nine megabytes.
    """

    def __init__(self, path: str) -> None:
        """Read a results file, if it is there.

        Raises UsageError if it cannot be read or written, or is no results file.
        """
        self.path = path
        self.answered = 0
        self.short = 0  # of those, how many fell short
        if Path(path).exists() and not Path(path).is_file():
            raise UsageError("results are appended to a file, and this is none", where=path, hint=_HINT)
        try:
            self._file = Path(path).open("ab+")  # noqa: SIM115 - closed by `close`
        except OSError as error:
            raise UsageError(f"the results cannot be written: {error.strerror}", where=path) from error
        with ExitStack() as on_error:
            on_error.callback(self._file.close)
            self._names = array("Q", sorted(self._read()))
            on_error.pop_all()
        self._met = bytearray(len(self._names))

    def _read(self) -> Iterator[int]:
        end = 0
        self._file.seek(0)
        for number, line in enumerate(self._file, 1):
            reported = self._told(line, number)
            if reported is None:
                break
            end += len(line)
            self.answered += 1
            self.short += not reported.ok
            yield _digest(reported.input)
        self._file.truncate(end)  # a line that broke off is asked again
        self._file.seek(end)

    def _told(self, line: bytes, number: int) -> LoggedResult | None:
        if not line.endswith(b"\n"):
            return None
        try:
            return _DECODER.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            where = f"{self.path}:{number}"
            raise UsageError(f"this line is no result: {error}", where=where, hint=_HINT) from error

    def unanswered(self, inputs: Iterable[Input]) -> Iterator[Input]:
        """Yield the inputs that have no line yet; of those with one name, as many are left out as it has lines."""
        return (item for item in inputs if not self.holds(item.name))

    def holds(self, name: str) -> bool:
        """Say whether an input of this name is answered; each line of the file counts once."""
        digest = _digest(name)
        place = bisect_left(self._names, digest)
        while place < len(self._names) and self._names[place] == digest:
            if not self._met[place]:
                self._met[place] = 1
                return True
            place += 1
        return False

    def write(self, result: object) -> None:
        """Append one result, at once; raises OutputError if it cannot be written."""
        try:
            self._file.write(to_json(result) + b"\n")
            self._file.flush()
        except OSError as error:
            raise OutputError(f"the results cannot be written: {error.strerror}", where=self.path) from error

    def close(self) -> None:
        """Close the file."""
        with suppress(OSError):  # what could not be written was told
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _digest(name: str) -> int:
    data = legible(name).encode()  # as it stands in the file
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")
