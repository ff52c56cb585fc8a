"""The samples packed in an archive or given, and the one worker that answers them as seldom as may be."""

import hashlib
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from marpack.archive.index import index_of
from marpack.archive.protocol import INDEX_NAME, Archive
from marpack.errors import MarpackError
from marpack.findings import Finding
from marpack.gate.compare import differences
from marpack.gate.verdicts import problem
from marpack.project import schema
from marpack.project.schema import Expectation
from marpack.protocol.messages import Load, Loaded
from marpack.runner.client import Worker
from marpack.runner.inputs import Input, RequestDefaults, request_id, type_of
from marpack.runner.pool import LocalPool, PoolSettings
from marpack.runner.results import Result, results_of
from marpack.runner.zygote import Zygote
from marpack.torchserve.http import Request

Named = tuple[str, Request]

_COPIES = 1 << 20  # number of the first request that is a copy of another in its batch
_CONFIRMATIONS = 2
_AGAIN = "build the archive again: marpack build"


class Sample(Struct, frozen=True, kw_only=True):
    """One input, and what is expected of its answer."""

    name: str  # of the file under MAR-INF/; of an input given: its own, as no other has it
    input: Input  # as `marpack run --input` would make it, by the name that people know
    expected: Expectation = Expectation()  # of nothing: any 2xx
    is_packed: bool = True
    is_generated: bool = False  # `marpack init` generated its content, so an answer to it proves nothing

    @property
    def request(self) -> Request:
        """What is sent."""
        return self.input.request

    @property
    def short_name(self) -> str:
        """The name as people know it."""
        return self.input.name


class PackedSamples(Struct, frozen=True):
    """The samples of an archive, and what is wrong with those that cannot be sent."""

    samples: tuple[Sample, ...] = ()
    problems: tuple[Finding, ...] = ()
    generated: frozenset[str] = frozenset()  # "sha256:<hex>" of every content that is marked as generated


def packed_samples(archive: Archive, shape: RequestDefaults | None = None) -> PackedSamples:
    """Read the samples packed under MAR-INF/, to be sent in a shape; an archive without an index has none.

    Raises DamagedArchiveError.
    """
    index = index_of(archive)
    listed = index.samples if index else ()
    # A mark holds for its content under every name: a copy or a renamed file is as generated as the original.
    generated = frozenset(mark for item in listed if isinstance(mark := item.get("generated"), str))
    found = [
        _sample(archive, number, item, shape or RequestDefaults(), generated) for number, item in enumerate(listed)
    ]
    return PackedSamples(
        tuple(item for item in found if isinstance(item, Sample)),
        tuple(item for item in found if isinstance(item, Finding)),
        generated,
    )


def _sample(
    archive: Archive,
    number: int,
    item: dict[str, Any],  # Any: JSON
    shape: RequestDefaults,
    generated: frozenset[str],
) -> Sample | Finding:
    where = f"{archive.source}!{INDEX_NAME}: samples[{number}]"
    try:
        reported = msgspec.convert(item, schema.SampleSpec)
    except msgspec.ValidationError as error:
        return problem("sample-unreadable", f"a sample cannot be read: {error}", where=where, hint=_AGAIN)
    if reported.input not in archive.entries:
        message = f"the sample {reported.input} is listed and not packed"
        return problem("sample-missing", message, where=where, hint=_AGAIN)
    with archive.open(reported.input) as file:
        data = file.read()
    # Its request id is its own, in every run the same.
    sent = shape.input(reported.input.removeprefix("MAR-INF/"), number, type_of(reported.input, data), data)
    return Sample(
        name=reported.input,
        input=sent,
        expected=reported.expect or Expectation(),
        is_generated=_digest(data) in generated,
    )


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def given_samples(inputs: Iterable[Input], generated: frozenset[str] = frozenset()) -> Iterator[Sample]:
    """Yield a sample for each input given beside the packed samples; any 2xx will do.

    `generated` are the digests of generated contents: a request that holds one of them proves nothing either.
    """
    seen: Counter[str] = Counter()
    for each in inputs:
        seen[each.name] += 1
        name = each.name if seen[each.name] == 1 else f"{each.name} ({seen[each.name]})"
        is_generated = bool(generated) and any(_digest(part.value) in generated for part in each.request.parts)
        yield Sample(name=name, input=each, is_packed=False, is_generated=is_generated)


class SampleRunner:
    """One worker with the model in it, and what it answered so far."""

    def __init__(
        self,
        archive: Archive,
        load: Load,
        settings: PoolSettings,
        samples: tuple[Sample, ...],
        *,
        seconds_per_check: float,
        tolerance: float,
        first: Worker | None = None,
    ) -> None:
        """Know a model; `first` is a worker spawned already, which has not loaded yet."""
        self.samples = samples
        self.seconds_per_check = seconds_per_check  # that each check may spend on repeating samples
        self._tolerance = tolerance  # of numbers, absolute and relative
        self.needs_other = False  # a check will load the model in a second worker
        self.lost: MarpackError | None = None  # the reason why no more samples can be sent
        self.loaded: Loaded | None = None  # what the worker said of the model when it was loaded
        self.unsteady: dict[str, str] = {}  # sample → how its answer was another when asked again
        self._archive = archive
        self._load = load
        self._settings = settings
        self._pool: LocalPool | None = None
        self._first = first
        self._zygote: Zygote | None = None  # for the other worker
        self._alone: dict[str, Result] = {}
        self._pristine: dict[str, tuple[int, int]] = {}

    @property
    def pool(self) -> LocalPool:
        """The worker with the model loaded.

        Raises LoadError, WorkerError and ArchiveError, the same one each time.
        """
        if self.lost is not None:
            raise self.lost
        if self._pool is None:
            try:
                self._pool = self._loaded_pool()
            except MarpackError as error:
                self.lost = error
                raise
            self.loaded = self._pool.loads[0]
        return self._pool

    @cached_property
    def folder(self) -> Path:
        """The model folder on disk."""
        return self._archive.materialize()

    def _loaded_pool(self) -> LocalPool:
        self._pristine = files_below(self.folder)
        first, self._first = self._first, None
        if first is not None and self.needs_other:
            self._zygote = self._settings.zygote(str(self.folder))
        if self._zygote is not None:
            self._zygote.start()  # while the first one loads
        return self.other(first)

    def other(
        self, first: Worker | None = None, *, timeout: float | None = None, **changes: Any
    ) -> LocalPool:  # Any: Load's own
        """Return a further pool, its model loaded in another way, its batches bounded in seconds; its user closes it.

        Raises LoadError and WorkerError.
        """
        load = replace(self._load, model_dir=str(self.folder), **changes)
        settings = self._settings if timeout is None else replace(self._settings, timeout=timeout)
        zygote = None
        if first is None:
            zygote, self._zygote = self._zygote, None
        pool = LocalPool(load, settings, first=first, folder=self._archive.materialize, zygote=zygote)
        pool.start()
        return pool

    def send(self, requests: Sequence[Named], *, size: int = 1, pool: LocalPool | None = None) -> list[Result]:
        """Return the answers to some named requests, handled `size` at a time.

        Raises LoadError and WorkerError if a worker that died cannot be started again.
        """
        groups = [_distinct(requests[start : start + size]) for start in range(0, len(requests), size)]
        asked = pool or self.pool
        outcomes = asked.outcomes([tuple(request for _, request, _ in group) for group in groups])
        try:
            return [
                _as_if(result, request.id, own)
                for group, outcome in zip(groups, outcomes, strict=True)
                for (_, request, own), result in zip(
                    group, results_of(tuple(name for name, _, _ in group), outcome), strict=True
                )
            ]
        except MarpackError as error:
            if asked is self._pool:
                self.lost = error
            raise

    def ask(self, samples: Sequence[Sample], *, size: int = 1, pool: LocalPool | None = None) -> list[Result]:
        """Return the answers to some samples, handled `size` at a time."""
        return self.send([(sample.name, sample.request) for sample in samples], size=size, pool=pool)

    def alone(self, sample: Sample) -> Result:
        """Return a sample's answer when it is handled alone; asked once, remembered."""
        if sample.name not in self._alone:
            refused = sample.input.outcome
            (self._alone[sample.name],) = results_of((sample.name,), refused) if refused else self.ask([sample])
        return self._alone[sample.name]

    @cached_property
    def answered(self) -> tuple[Sample, ...]:
        """The samples that get a 2xx when handled alone: only those can be compared."""
        return tuple(sample for sample in self.samples if self.alone(sample).ok)

    @cached_property
    def proving(self) -> tuple[Sample, ...]:
        """The samples that get a 2xx and are real inputs: only those prove anything."""
        return tuple(sample for sample in self.answered if not sample.is_generated)

    @property
    def pace(self) -> float:
        """Seconds that a sample takes."""
        return median(self.alone(sample).seconds for sample in self.answered) if self.answered else 0.0

    def affordable_samples(self, samples: tuple[Sample, ...]) -> tuple[Sample, ...]:
        """Return as many samples as can be asked in the time that a check has, one at least."""
        return samples[: max(1, int(self.seconds_per_check / max(self.pace, 1e-6)))]

    @cached_property
    def comparable(self) -> tuple[Sample, ...]:
        """The samples that others' answers can be held against: none, unless all are answered the same way twice."""
        some = self.affordable_samples(self.answered)
        self.repeat(tuple(reversed(some)))
        return () if self.unsteady else some

    def repeat(self, samples: tuple[Sample, ...]) -> None:
        """Ask samples again, and note in `unsteady` those that are answered otherwise."""
        for sample, result in zip(samples, self.ask(samples), strict=True):
            self._compare_again(sample, result)

    def _compare_again(self, sample: Sample, result: Result) -> bool:
        found = self.differences(self.alone(sample), result)
        if found:
            self.unsteady.setdefault(sample.name, found[0])
        return bool(found)

    def differences(self, one: Result, other: Result) -> list[str]:
        """Return where two answers differ beyond the tolerance."""
        return differences(one, other, self._tolerance)

    def contradictions(self, sample: Sample, result: Result) -> list[str]:
        """Return where an answer differs from the sample's own, unless that has become another itself meanwhile."""
        found = self.differences(self.alone(sample), result)
        for _ in range(_CONFIRMATIONS if found else 0):
            if self._compare_again(sample, self.ask([sample])[0]):
                return []
        return found

    def written(self) -> list[str]:
        """Return what the handler wrote, changed or removed in the model folder."""
        now = files_below(self.folder)
        entries = self._archive.entries
        names = sorted(self._pristine.keys() | now.keys() | entries.keys())
        return [name for name in names if name not in entries or self._pristine.get(name) != now.get(name)]

    def stop(self) -> None:
        """End the worker at once: there is nothing left that it could do well."""
        first, self._first = self._first, None
        pool, self._pool = self._pool, None
        zygote, self._zygote = self._zygote, None
        if first is not None:
            first.kill()
        if zygote is not None:
            zygote.close()
        if pool is not None:
            pool.kill()


def _distinct(requests: Sequence[Named]) -> list[tuple[str, Request, str]]:
    """Return a batch's requests, each with an id that no other has, and the id it has by itself."""
    seen: set[str] = set()
    batch = []
    for number, (name, request) in enumerate(requests, _COPIES):
        other = replace(request, id=request_id(number)) if request.id in seen else request
        seen.add(other.id)
        batch.append((name, other, request.id))
    return batch


def _as_if(result: Result, sent: str, own: str) -> Result:
    """Return an answer as if its request had gone by its own id, which answers may name."""
    return result if sent == own else replace(result, body=result.body.replace(sent, own))


def files_below(folder: Path) -> dict[str, tuple[int, int]]:
    """Return size (bytes) and time (ns) of every file below a folder; bytecode, which any import writes, apart."""
    found = {}
    for root, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name != "__pycache__"]
        for name in names:
            path = Path(root, name)
            with suppress(OSError):  # a handler may still be at work there
                status = path.lstat()
                found[path.relative_to(folder).as_posix()] = (status.st_size, status.st_mtime_ns)
    return found
