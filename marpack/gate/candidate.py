"""What the checks look at: one archive, what is known of it, and the model to ask."""

from functools import cached_property
from typing import Any, Self

from msgspec import Struct
from msgspec.structs import replace

from marpack.archive.cache import Cache
from marpack.archive.index import digest_of
from marpack.archive.protocol import Archive, Limits
from marpack.archive.reader import open_archive
from marpack.errors import ArchiveError
from marpack.gate.compare import TOLERANCE
from marpack.gate.sample_runner import PackedSamples, SampleRunner, packed_samples
from marpack.inspection.facts import Inspection
from marpack.inspection.inspect import inspect
from marpack.project.source import ResolvedSource
from marpack.runner.client import Worker
from marpack.runner.inputs import RequestDefaults
from marpack.runner.pool import PoolSettings
from marpack.runner.session import Device, target_of
from marpack.torchserve.messages import MAX_BODY, Load
from marpack.torchserve.targets import Target


class CheckOptions(Struct, frozen=True, kw_only=True):
    """How an archive is to be examined."""

    load: Load = Load(model_dir="")  # its `model_dir` and `target` are filled in
    settings: PoolSettings = PoolSettings()  # timeouts of None: the model config's, else the server's
    device: Device = Device("auto")  # what `load` and `settings` were made for
    target: Target | None = None  # None: the project's or the archive's, else the server's
    seconds_per_check: float = 10.0  # that each check may spend on repeating samples
    tolerance: float = TOLERANCE  # of numbers, absolute and relative
    max_request_size: int = MAX_BODY  # bytes
    limits: Limits = Limits()  # of reading an archive
    max_opcodes: int | None = None  # of its pickles; None: as many as are read by default
    cache: Cache | None = None  # None: this user's


class Candidate:
    """An archive under examination; what is costly is done when first asked for, once."""

    def __init__(self, resolved: ResolvedSource, options: CheckOptions | None = None) -> None:
        self.resolved = resolved
        self.options = options or CheckOptions()
        self._first: Worker | None = None

    def prepare(self) -> None:
        """Start the worker's process, which then waits: its imports overlap with what is looked into first."""
        self._first = self.options.settings.spawn()

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
        """Whose behaviour counts."""
        if self.options.target is not None:
            return self.options.target
        try:
            return target_of(self.resolved, self.archive)
        except ArchiveError:  # what is wrong with it is for the checks to say
            return Target.TORCHSERVE

    @cached_property
    def digest(self) -> str | None:
        """The archive's digest, if it has one that can be read."""
        try:
            return digest_of(self.archive)
        except ArchiveError:
            return None

    @cached_property
    def inspection(self) -> Inspection:
        """Everything known without running it."""
        return inspect(self.archive, max_opcodes=self.options.max_opcodes)

    @cached_property
    def packed(self) -> PackedSamples:
        """The samples packed under MAR-INF/."""
        return packed_samples(self.archive, RequestDefaults(max_request_size=self.options.max_request_size))

    @cached_property
    def config(self) -> dict[str, Any]:
        """The model config, empty if there is none or it is no mapping."""
        facts = self.inspection.config
        return facts.value if facts is not None and isinstance(facts.value, dict) else {}

    @cached_property
    def sample_runner(self) -> SampleRunner:
        """The model, to be asked."""
        settings = self.options.settings.as_served(self.config)
        load = replace(self.options.load, target=self.target)
        first, self._first = self._first, None
        return SampleRunner(
            self.archive,
            load,
            settings,
            self.packed.samples,
            seconds_per_check=self.options.seconds_per_check,
            tolerance=self.options.tolerance,
            first=first,
        )

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

    def close(self) -> None:
        """End the worker and close the archive."""
        self.stop()
        if "archive" in vars(self):
            self.archive.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
