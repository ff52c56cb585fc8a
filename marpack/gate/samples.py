"""The samples of an archive, and the worker that handles each of them as rarely as possible."""

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
from marpack.finding_codes import SAMPLE_MISSING, SAMPLE_UNREADABLE
from marpack.findings import Finding
from marpack.gate.compare import find_differences
from marpack.project.schema import Expectation, SampleSpec
from marpack.protocol.messages import Load, Loaded
from marpack.runner.client import Worker
from marpack.runner.inputs import Input, RequestDefaults, request_id, type_of
from marpack.runner.pool import LocalPool, PoolSettings
from marpack.runner.process import Zygote
from marpack.runner.results import Result, results_of
from marpack.torchserve.http import Request

Named = tuple[str, Request]

_COPIES = 1 << 20  # number of the first request that is a copy of another one in its batch
_CONFIRMATIONS = 2


class Sample(Struct, frozen=True, kw_only=True):
    """One input, and the response expected to it."""

    name: str  # unique: the file under MAR-INF/, or the input's own name
    input: Input  # as `marpack run --input` makes it, with the name that people know
    expected: Expectation = Expectation()  # by default, any 2xx
    is_packed: bool = True
    is_generated: bool = False  # `marpack init` generated its content, so a response to it proves nothing

    @property
    def request(self) -> Request:
        """The request to send."""
        return self.input.request

    @property
    def short_name(self) -> str:
        """The name that people know."""
        return self.input.name


class PackedSamples(Struct, frozen=True):
    """The samples of an archive, and the problems of those that cannot be sent."""

    samples: tuple[Sample, ...] = ()
    problems: tuple[Finding, ...] = ()
    generated: frozenset[str] = frozenset()  # "sha256:<hex>" of each content that is marked as generated


def packed_samples(archive: Archive, shape: RequestDefaults | None = None) -> PackedSamples:
    """Read the samples packed under MAR-INF/ as requests of a shape; an archive without an index has none.

    Raises DamagedArchiveError.
    """
    shape, index = shape or RequestDefaults(), index_of(archive)
    listed = index.samples if index else ()
    # A mark holds for its content under every name: a copy or a renamed file is as generated as the original.
    generated = frozenset(mark for item in listed if isinstance(mark := item.get("generated"), str))
    samples: list[Sample] = []
    problems: list[Finding] = []
    for number, item in enumerate(listed):
        where = f"{archive.source}!{INDEX_NAME}: samples[{number}]"
        try:
            spec = msgspec.convert(item, SampleSpec)
        except msgspec.ValidationError as error:
            problems.append(SAMPLE_UNREADABLE.at(where, reason=error))
            continue
        if spec.input not in archive.entries:
            problems.append(SAMPLE_MISSING.at(where, sample=spec.input))
            continue
        with archive.open(spec.input) as file:
            data = file.read()
        # The number gives the request an id of its own, in every run the same.
        sent = shape.input(spec.input.removeprefix("MAR-INF/"), number, type_of(spec.input, data), data)
        is_generated = _digest(data) in generated
        expected = spec.expect or Expectation()
        samples.append(Sample(name=spec.input, input=sent, expected=expected, is_generated=is_generated))
    return PackedSamples(tuple(samples), tuple(problems), generated)


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def given_samples(inputs: Iterable[Input], generated: frozenset[str] = frozenset()) -> Iterator[Sample]:
    """Yield a sample for each input given beside the packed samples; any 2xx is expected.

    `generated` holds the digests of generated contents: a request with one of them proves nothing either.
    """
    seen: Counter[str] = Counter()
    for each in inputs:
        seen[each.name] += 1
        name = each.name if seen[each.name] == 1 else f"{each.name} ({seen[each.name]})"
        is_generated = bool(generated) and any(_digest(part.value) in generated for part in each.request.parts)
        yield Sample(name=name, input=each, is_packed=False, is_generated=is_generated)


class SampleRunner:
    """One worker with the model, and its responses so far."""

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
        """Prepare to load the model; `first` is a spawned worker that has not loaded anything yet."""
        self.samples = samples
        self.seconds_per_check = seconds_per_check  # that each check may spend on repeating samples
        self._tolerance = tolerance  # of numbers, absolute and relative
        self.needs_other = False  # a check will load the model in a second worker
        self.lost: MarpackError | None = None  # the reason why no more samples can be sent
        self.loaded: Loaded | None = None  # what the worker reported when the model was loaded
        self.unsteady: dict[str, str] = {}  # sample → how its response differed when it was sent again
        self._archive = archive
        self._load = load
        self._settings = settings
        self._pool: LocalPool | None = None
        self._first = first
        self._zygote: Zygote | None = None  # for the other worker
        self._results: dict[str, Result] = {}
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
                self._pristine = files_below(self.folder)
                first, self._first = self._first, None
                if first is not None and self.needs_other:
                    self._zygote = self._settings.zygote(str(self.folder))
                if self._zygote is not None:
                    self._zygote.start()  # while the first one loads
                self._pool = self.other(first)
            except MarpackError as error:
                self.lost = error
                raise
            self.loaded = self._pool.loads[0]
        return self._pool

    @cached_property
    def folder(self) -> Path:
        """The model folder on disk."""
        return self._archive.materialize()

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
        """Return the results of some named requests, handled `size` at a time.

        Raises LoadError and WorkerError if a worker that died cannot be started again.
        """
        # Each request of a batch needs an id of its own: batches of names, requests to send, and the original ids.
        batches: list[list[tuple[str, Request, str]]] = []
        for number, (name, request) in enumerate(requests):
            if number % size == 0:
                batches.append([])
            taken = {sent.id for _, sent, _ in batches[-1]}
            sent = replace(request, id=request_id(_COPIES + number % size)) if request.id in taken else request
            batches[-1].append((name, sent, request.id))
        used = pool or self.pool
        outcomes = used.outcomes([tuple(sent for _, sent, _ in batch) for batch in batches])
        results = []
        try:
            for batch, outcome in zip(batches, outcomes, strict=True):
                found = results_of(tuple(name for name, _, _ in batch), outcome)
                for (_, sent, own), result in zip(batch, found, strict=True):
                    # A response may contain its request's id.
                    same = sent.id == own
                    results.append(result if same else replace(result, body=result.body.replace(sent.id, own)))
        except MarpackError as error:
            if used is self._pool:
                self.lost = error
            raise
        return results

    def replay(self, samples: Sequence[Sample], *, size: int = 1, pool: LocalPool | None = None) -> list[Result]:
        """Return the results of some samples, handled `size` at a time."""
        return self.send([(sample.name, sample.request) for sample in samples], size=size, pool=pool)

    def result_of(self, sample: Sample) -> Result:
        """Return a sample's result when it is handled alone; sent once, remembered."""
        if sample.name not in self._results:
            refused = sample.input.outcome
            found = results_of((sample.name,), refused) if refused else self.replay([sample])
            (self._results[sample.name],) = found
        return self._results[sample.name]

    @cached_property
    def successful(self) -> tuple[Sample, ...]:
        """The samples that get a 2xx when handled alone: only those can be compared."""
        return tuple(sample for sample in self.samples if self.result_of(sample).ok)

    @cached_property
    def proving(self) -> tuple[Sample, ...]:
        """The samples that get a 2xx and are real inputs: only those prove anything."""
        return tuple(sample for sample in self.successful if not sample.is_generated)

    @property
    def pace(self) -> float:
        """Seconds that a sample takes."""
        return median(self.result_of(sample).seconds for sample in self.successful) if self.successful else 0.0

    @cached_property
    def comparable(self) -> tuple[Sample, ...]:
        """As many successful samples as a check has time for; none unless each gets the same response twice."""
        some = self.successful[: max(1, int(self.seconds_per_check / max(self.pace, 1e-6)))]
        self.repeat(tuple(reversed(some)))
        return () if self.unsteady else some

    def repeat(self, samples: Sequence[Sample]) -> bool:
        """Send samples again and note in `unsteady` those with another response; return whether all are steady."""
        steady = True
        for sample, result in zip(samples, self.replay(samples), strict=True):
            found = self.differences(self.result_of(sample), result)
            if found:
                steady = False
                self.unsteady.setdefault(sample.name, found[0])
        return steady

    def differences(self, one: Result, other: Result) -> list[str]:
        """Return where two responses differ beyond the tolerance."""
        return find_differences(one, other, self._tolerance)

    def contradictions(self, sample: Sample, result: Result) -> list[str]:
        """Return where a result differs from the sample's own, unless the sample's own response varies."""
        found = self.differences(self.result_of(sample), result)
        if found and not all(self.repeat([sample]) for _ in range(_CONFIRMATIONS)):
            return []
        return found

    def written(self) -> list[str]:
        """Return what the handler wrote, changed or removed in the model folder."""
        now = files_below(self.folder)
        entries = self._archive.entries
        names = sorted(self._pristine.keys() | now.keys() | entries.keys())
        return [name for name in names if name not in entries or self._pristine.get(name) != now.get(name)]

    def stop(self) -> None:
        """End the worker at once."""
        first, self._first = self._first, None
        pool, self._pool = self._pool, None
        zygote, self._zygote = self._zygote, None
        if first is not None:
            first.kill()
        if zygote is not None:
            zygote.close()
        if pool is not None:
            pool.kill()


def files_below(folder: Path) -> dict[str, tuple[int, int]]:
    """Return size (bytes) and time (ns) of every file below a folder, except bytecode, which any import writes."""
    found = {}
    for root, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name != "__pycache__"]
        for name in names:
            path = Path(root, name)
            with suppress(OSError):  # a handler may still be at work there
                status = path.lstat()
                found[path.relative_to(folder).as_posix()] = (status.st_size, status.st_mtime_ns)
    return found
