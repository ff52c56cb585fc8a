"""The archive that the checks examine, its facts, and the worker with its model."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from marpack.archive.cache import Cache
from marpack.archive.index import content_digest, index_of
from marpack.archive.protocol import Archive, Limits
from marpack.archive.reader import open_archive
from marpack.errors import (
    ArchiveError,
    DamagedArchiveError,
    HandlerError,
    MarpackError,
    UsageError,
)
from marpack.gate.compare import TOLERANCE, find_differences
from marpack.gate.samples import PackedSamples, Sample, input_samples, packed_samples
from marpack.inspection.facts import Inspection
from marpack.inspection.inspect import inspect
from marpack.project.schema import Allowance
from marpack.project.source import ResolvedSource
from marpack.protocol.messages import Frame, Load, Loaded
from marpack.protocol.targets import Target
from marpack.runner.client import Worker
from marpack.runner.environments import required
from marpack.runner.inputs import Input, RequestDefaults, request_id
from marpack.runner.pool import LocalPool, PoolSettings
from marpack.runner.process import Zygote
from marpack.runner.results import Result, results_of
from marpack.runner.session import Device, runtime_error, target_of, torchrun_error, with_metrics
from marpack.torchserve.http import Request
from marpack.torchserve.model_config import batch_size_of

_SOURCE = 1 << 20  # bytes: larger modules are not searched
_HELD = 512 << 20  # bytes of inputs, which stay in memory: each is sent many times
_COPIES = 1 << 20  # number of the first request that is a copy of another one in its batch
_CONFIRMATIONS = 2


def held_inputs(inputs: Iterable[Input]) -> tuple[Input, ...]:
    """Return inputs that are sent many times; raises UsageError for more than fit in memory."""
    held, size = [], 0
    for each in inputs:
        held.append(each)
        size += sum(len(part.value) for part in each.request.parts)
        if size > _HELD:
            hint = "Name fewer inputs that represent the others. marpack run takes any number."
            raise UsageError(f"the inputs have over {_HELD >> 20} MB, and each is sent many times", hint=hint)
    return tuple(held)


def compiles(pt2: Any) -> bool:  # Any: YAML
    """Return whether a config's pt2 section compiles the model, in any of its spellings (contract §6)."""
    if isinstance(pt2, dict) and "compile" in pt2:
        options = pt2["compile"]
        return isinstance(options, dict) and bool(options.get("enable") == True)  # noqa: E712 - as the worker compares
    return bool(pt2) and not (isinstance(pt2, dict) and "export" in pt2)


class CheckOptions(Struct, frozen=True, kw_only=True):
    """How to examine an archive."""

    load: Load = Load(model_dir="")  # the candidate fills in its `model_dir` and `target`
    settings: PoolSettings = PoolSettings()  # a timeout of None: the model config's, otherwise the server's
    python: Callable[[Archive], str] | None = None  # makes an interpreter with the archive's requirements
    device: Device = Device("auto")  # that `load` and `settings` were made for
    inputs: tuple[Input, ...] = ()  # sent beside the packed samples; each should get a 2xx
    shape: RequestDefaults = RequestDefaults()  # of the requests with packed samples
    allow_unproved: frozenset[str] = frozenset()  # "inputs", "gpu": what need not be proved
    target: Target | None = None  # None: the project's or the archive's, otherwise the server's
    stand_ins: Literal["on", "off", "auto"] | None = None  # None: the project's setting
    announce: Callable[[str], None] = lambda _: None  # receives a message about made-up requests
    seconds_per_check: float = 10.0  # that each check may spend on repeating samples
    require_safe: bool = False  # fail for pickles that need trust, trusted or not, and for programs
    trust_native: bool = False  # with `require_safe`: programs do not fail the check
    tolerance: float = TOLERANCE  # of numbers, absolute and relative
    against: ResolvedSource | None = None  # the archive to compare with; None: the archive itself
    limits: Limits = Limits()  # of reading an archive
    max_opcodes: int | None = None  # of its pickles; None: the default of the scanner
    cache: Cache | None = None  # None: this user's


class ArchiveIdentity(Struct, frozen=True):
    """What an archive says about itself."""

    content_digest: str | None = None
    source_commit: str | None = None  # that it was built from
    model: str | None = None  # name and version


class Candidate(AbstractContextManager["Candidate"]):
    """An archive under examination; costly facts are computed once, at their first use."""

    def __init__(self, resolved: ResolvedSource, options: CheckOptions) -> None:
        self.resolved = resolved
        self.source = str(resolved.path)
        # What the project allows the handler to access; an archive itself allows nothing.
        self.allowance = resolved.project.hermetic if resolved.project else Allowance()
        self.options = replace(options, load=with_metrics(options.load, resolved))  # ProjectError for a wrong file
        self._first: Worker | None = None

    def prepare(self, *, hermetic: bool = False) -> None:
        """Start the worker's process, which then waits: its imports overlap with the static checks.

        `hermetic`: trace it and, unless the project allows connections, cut off its network.
        """
        if hermetic:
            offline = replace(self.options.settings, offline=not self.allowance.connect)
            self.options = replace(self.options, load=replace(self.options.load, trace=True), settings=offline)
        if self.options.python is None:
            self._first = self.options.settings.spawn()

    @cached_property
    def archive(self) -> Archive:
        """The archive; raises ArchiveError if it cannot be opened, or not safely."""
        return open_archive(self.resolved.path, limits=self.options.limits, cache=self.options.cache)

    @cached_property
    def target(self) -> Target:
        """The server whose behavior counts."""
        return self.options.target or self.declared_target

    @cached_property
    def declared_target(self) -> Target:
        """The target that the project or the archive declares."""
        try:
            return target_of(self.resolved, self.archive)
        except ArchiveError:  # the checks report it
            return Target.TORCHSERVE

    @cached_property
    def identity(self) -> ArchiveIdentity:
        """What the archive says about itself, as far as it can be read."""
        digest = commit = name = None
        with suppress(ArchiveError):
            digest = content_digest(self.archive)
        with suppress(ArchiveError):
            index = index_of(self.archive)
            commit = index.provenance.get("source_commit") if index else None
        with suppress(ArchiveError):
            model = self.archive.manifest.model
            name = f"{model.name} {model.version or ''}".strip()
        return ArchiveIdentity(digest, commit, name)

    @cached_property
    def inspection(self) -> Inspection:
        """The archive's facts, without running it."""
        return inspect(self.archive, max_opcodes=self.options.max_opcodes)

    @cached_property
    def packed(self) -> PackedSamples:
        """The samples packed under MAR-INF/."""
        return packed_samples(self.archive, self.options.shape)

    @cached_property
    def samples(self) -> tuple[Sample, ...]:
        """All samples to send: the packed ones, then the inputs given."""
        return (*self.packed.samples, *input_samples(self.options.inputs, self.packed.generated))

    @cached_property
    def config(self) -> dict[str, Any]:  # Any: YAML
        """The model config; empty if it is missing or not a mapping."""
        facts = self.inspection.config
        return facts.value if facts is not None and isinstance(facts.value, dict) else {}

    @property
    def load_error(self) -> MarpackError | None:
        """The reason not to load the model: its config cannot be read, or it needs a worker of another kind."""
        facts = self.inspection.config
        if facts is not None and facts.problem is not None:
            what, hint = f"the model config cannot be read: {facts.problem}", "Correct the file, and build again."
            return DamagedArchiveError(what, where=f"{self.source}!{facts.file}", hint=hint)
        is_server = self.target is Target.TORCHSERVE
        return (runtime_error(self.archive) if is_server else None) or torchrun_error(self.config)

    @cached_property
    def python(self) -> str:
        """The workers' interpreter; raises IsolationError if the archive's requirements cannot be installed for it."""
        return self.options.python(self.archive) if self.options.python else self.options.settings.python

    @property
    def batch_size(self) -> int:
        """The largest number of requests that the server gives to one call of `handle`."""
        return batch_size_of(self.config)

    @cached_property
    def sources(self) -> dict[str, bytes]:
        """The packed Python files by member, except those too large to be written by hand."""
        small = [entry for name, entry in self.archive.entries.items() if name.endswith(".py")]
        return {entry.name: self.read(entry.name) for entry in small if entry.size <= _SOURCE}

    @cached_property
    def old(self) -> "Candidate":
        """The archive compared with, examined with the same options."""
        return Candidate(self.options.against or self.resolved, replace(self.options, against=None))

    @cached_property
    def old_results(self) -> dict[str, Result]:
        """The results of the archive compared with, by the sample's name; raises HandlerError if it has none."""
        try:
            return {sample.name: self.old.sample_runner.result_of(sample) for sample in self.samples}
        except MarpackError as error:
            what = f"the other archive cannot be compared: {error.what}"
            raise HandlerError(what, where=self.old.source, hint=error.hint) from error

    @property
    def stand_ins(self) -> bool | None:
        """Whether to make up requests if there are none; None: if nothing speaks against it."""
        project = self.resolved.project
        chosen = self.options.stand_ins or (project.stand_ins if project else "auto")
        return None if chosen == "auto" else chosen in (True, "on")

    @property
    def uses_stand_ins(self) -> bool:
        """Whether samples are missing, and requests may be made up."""
        return not (self.samples or self.packed.problems) and self.stand_ins is not False

    @cached_property
    def sample_runner(self) -> "SampleRunner":
        """The worker with the model, and the samples."""
        first, self._first = self._first, None
        return SampleRunner(self, first)

    def place(self, frames: Sequence[Frame]) -> str | None:
        """Return the innermost place of a traceback in the archive's own files."""
        frame = next((frame for frame in reversed(frames) if frame.user), None)
        if frame is None:
            return None
        return f"{self.source}!{frame.file.removeprefix(f'{self.sample_runner.folder}/')}:{frame.line}"

    def line_of(self, frames: Sequence[Frame]) -> str | None:
        """Return the innermost place of a traceback, in the archive's own files if it passes through any."""
        return self.place(frames) or (f"{frames[-1].file}:{frames[-1].line}" if frames else None)

    def read(self, name: str) -> bytes:
        """Return the bytes of one small member."""
        with self.archive.open(name) as file:
            return file.read()

    def stop(self) -> None:
        """End the worker at once, and that of the archive compared with."""
        if self._first is not None:
            self._first.kill()
            self._first = None
        for made in ("sample_runner", "old"):
            if made in vars(self):
                getattr(self, made).stop()

    def __exit__(self, *_: object) -> None:
        """End the workers and close the archives."""
        self.stop()
        if "archive" in vars(self):
            self.archive.close()
        if "old" in vars(self):
            self.old.__exit__()


class SampleRunner:
    """One worker with the model, and its responses so far."""

    def __init__(self, candidate: "Candidate", first: Worker | None) -> None:
        """Prepare to load the model; `first` is a spawned worker that has not loaded anything yet."""
        options = candidate.options
        self.samples = candidate.samples
        self.seconds_per_check = options.seconds_per_check
        self.lost: MarpackError | None = candidate.load_error  # why no more samples can be sent
        self.loaded: Loaded | None = None  # what the worker reported when the model was loaded
        self.unsteady: dict[str, str] = {}  # sample → how its response differed when it was sent again
        self._archive = candidate.archive
        self._tolerance = options.tolerance
        self._load = replace(options.load, target=candidate.target, required=required(candidate.archive))
        self._settings = replace(options.settings.as_served(candidate.config), python=candidate.python)
        # Whether a check will load the model in a second worker.
        self._needs_other = candidate.uses_stand_ins or compiles(candidate.config.get("pt2"))
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
                zygote = self._settings.zygote(str(self.folder)) if first is not None and self._needs_other else None
                if zygote is not None:
                    zygote.start()  # while the first one loads
                    self._zygote = zygote
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

    def send(
        self, requests: Sequence[tuple[str, Request]], *, size: int = 1, pool: LocalPool | None = None
    ) -> list[Result]:
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

    def deviations(self, samples: Sequence[Sample], results: Sequence[Result]) -> Iterator[tuple[Sample, str]]:
        """Yield the comparable samples with another result than before, and how it differs."""
        for sample, result in zip(samples, results, strict=True):
            if sample in self.comparable and (found := self.contradictions(sample, result)):
                yield sample, found[0]

    def written(self) -> list[str]:
        """Return what the handler wrote, changed or removed in the model folder."""
        now = files_below(self.folder)
        entries = self._archive.entries
        names = sorted(self._pristine.keys() | now.keys() | entries.keys())
        return [name for name in names if name not in entries or self._pristine.get(name) != now.get(name)]

    def stop(self) -> None:
        """End the worker at once."""
        if self._first is not None:
            self._first.kill()
        if self._zygote is not None:
            self._zygote.close()
        if self._pool is not None:
            self._pool.kill()
        self._first = self._zygote = self._pool = None


def files_below(folder: Path) -> dict[str, tuple[int, int]]:
    """Return size (bytes) and time (ns) of every file below a folder, except bytecode, which any import writes."""
    found = {}
    for root, _, names in os.walk(folder):
        is_cache = Path(root).name == "__pycache__"
        for name in names:
            path = Path(root, name)
            if is_cache and path.suffix == ".pyc":
                continue
            with suppress(OSError):  # a handler may still be at work there
                status = path.lstat()
                found[path.relative_to(folder).as_posix()] = (status.st_size, status.st_mtime_ns)
    return found
