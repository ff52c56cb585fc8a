"""The archive that the checks examine, its facts, and the worker with its model."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any, Literal, Self

from msgspec import Struct
from msgspec.structs import replace

from marpack.archive.cache import Cache
from marpack.archive.index import content_digest, index_of
from marpack.archive.protocol import Archive, Limits
from marpack.archive.reader import open_archive
from marpack.errors import ArchiveError, HandlerError, MarpackError, UnconfirmedDownloadError, UsageError
from marpack.gate.compare import TOLERANCE
from marpack.gate.samples import PackedSamples, Sample, SampleRunner, given_samples, packed_samples
from marpack.gate.verdicts import Costs
from marpack.inspection.facts import Inspection
from marpack.inspection.inspect import inspect
from marpack.project.schema import Allowance
from marpack.project.source import ResolvedSource
from marpack.protocol.messages import Frame, Load
from marpack.protocol.targets import Target
from marpack.runner.client import Worker
from marpack.runner.environments import required
from marpack.runner.inputs import Input, RequestDefaults
from marpack.runner.pool import PoolSettings
from marpack.runner.results import Result
from marpack.runner.session import Device, target_of, torchrun_error, with_metrics
from marpack.torchserve.model_config import batch_size_of

_SOURCE = 1 << 20  # bytes: larger modules are not searched
_HELD = 512 << 20  # bytes of inputs, which stay in memory: each is sent many times


def held_inputs(inputs: Iterable[Input]) -> tuple[Input, ...]:
    """Return inputs that are sent many times; raises UsageError for more than fit in memory."""
    held, size = [], 0
    for each in inputs:
        held.append(each)
        size += sum(len(part.value) for part in each.request.parts)
        if size > _HELD:
            hint = "name fewer inputs that represent the others; marpack run takes any number"
            raise UsageError(f"the inputs have over {_HELD >> 20} MB, and each is sent many times", hint=hint)
    return tuple(held)


def compiles(pt2: Any) -> bool:  # Any: YAML
    """Return whether a config's pt2 section compiles the model, in any of its spellings (contract §6)."""
    if isinstance(pt2, dict) and "compile" in pt2:
        options = pt2["compile"]
        return isinstance(options, dict) and options.get("enable") is True
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
    announce: Callable[[str], None] = lambda _: None  # receives what is sent that the user did not give
    seconds_per_check: float = 10.0  # that each check may spend on repeating samples
    require_safe: bool = False  # fail for pickles that need trust, trusted or not, and for programs
    trust_native: bool = False  # with `require_safe`: programs do not fail the check
    tolerance: float = TOLERANCE  # of numbers, absolute and relative
    against: ResolvedSource | None = None  # the archive to compare with; None: the archive itself
    slower: float = 0.1  # a share: a higher cost than that is slower
    slower_time: float = 90.0  # seconds for measuring it
    limits: Limits = Limits()  # of reading an archive
    max_opcodes: int | None = None  # of its pickles; None: the default of the scanner
    cache: Cache | None = None  # None: this user's


class ArchiveIdentity(Struct, frozen=True):
    """What an archive says about itself."""

    content_digest: str | None = None
    source_commit: str | None = None  # that it was built from
    model: str | None = None  # name and version


class Candidate:
    """An archive under examination; costly facts are computed once, at their first use."""

    def __init__(self, resolved: ResolvedSource, options: CheckOptions | None = None) -> None:
        self.resolved = resolved
        options = options or CheckOptions()
        self.options = replace(options, load=with_metrics(options.load, resolved))  # ProjectError for a wrong file
        self._first: Worker | None = None
        self.costs: Costs | None = None  # beside the archive compared with, once measured

    def prepare(self, *, hermetic: bool = False) -> None:
        """Start the worker's process, which then waits: its imports overlap with the static checks.

        `hermetic`: trace it and, unless the project allows connections, cut off its network.
        """
        if hermetic:
            offline = replace(self.options.settings, offline=not self.allowance.connect)
            self.options = replace(self.options, load=replace(self.options.load, trace=True), settings=offline)
        if self.options.python is None:
            self._first = self.options.settings.spawn()

    @property
    def allowance(self) -> Allowance:
        """What the project allows the handler to access; an archive itself allows nothing."""
        return self.resolved.project.hermetic if self.resolved.project else Allowance()

    @property
    def source(self) -> str:
        """The archive's path."""
        return str(self.resolved.path)

    @cached_property
    def archive(self) -> Archive:
        """The archive; raises ArchiveError if it cannot be opened, or not safely."""
        return open_archive(self.resolved.path, limits=self.options.limits, cache=self.options.cache)

    @cached_property
    def target(self) -> Target:
        """The server whose behaviour counts."""
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
        return (*self.packed.samples, *given_samples(self.options.inputs, self.packed.generated))

    @cached_property
    def config(self) -> dict[str, Any]:  # Any: YAML
        """The model config, empty if there is none or it is not a mapping."""
        facts = self.inspection.config
        return facts.value if facts is not None and isinstance(facts.value, dict) else {}

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
        except UnconfirmedDownloadError:
            raise
        except MarpackError as error:
            what = f"there is nothing to compare with: {error.what}"
            raise HandlerError(what, where=self.old.source, hint=error.hint) from error

    @property
    def successful_in_both(self) -> tuple[Sample, ...]:
        """The samples that get a 2xx from both archives; raises HandlerError as above."""
        return tuple(sample for sample in self.sample_runner.successful if self.old_results[sample.name].ok)

    @property
    def stand_ins(self) -> bool | None:
        """Whether to make up requests if there are none; None: if nothing speaks against it."""
        project = self.resolved.project
        chosen = self.options.stand_ins or (project.stand_ins if project else "auto")
        return None if chosen == "auto" else chosen in (True, "on")

    @cached_property
    def sample_runner(self) -> SampleRunner:
        """The worker with the model, and the samples."""
        settings = replace(self.options.settings.as_served(self.config), python=self.python)
        load = replace(self.options.load, target=self.target, required=required(self.archive))
        first, self._first = self._first, None
        runner = SampleRunner(
            self.archive,
            load,
            settings,
            self.samples,
            seconds_per_check=self.options.seconds_per_check,
            tolerance=self.options.tolerance,
            first=first,
        )
        uses_stand_ins = not (self.samples or self.packed.problems) and self.stand_ins is not False
        runner.needs_other = uses_stand_ins or compiles(self.config.get("pt2"))
        runner.lost = torchrun_error(self.config)
        return runner

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
        """End the worker at once."""
        if self._first is not None:
            self._first.kill()
            self._first = None
        if "sample_runner" in vars(self):
            self.sample_runner.stop()
        if "old" in vars(self):
            self.old.stop()

    def close(self) -> None:
        """End the worker and close the archive."""
        self.stop()
        if "archive" in vars(self):
            self.archive.close()
        if "old" in vars(self):
            self.old.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
