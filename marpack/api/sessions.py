"""From the options of a session to a loaded model, with notes about the source."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable  # a struct's field has it
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from marpack.api.operations import cache_of, text_of
from marpack.api.session_options import ModelOptions, SessionOptions, WorkerOptions
from marpack.archive.protocol import no_progress
from marpack.protocol.messages import Load
from marpack.protocol.targets import Target
from marpack.runner.session import Device, LoadProgress, PreparedModel, Session, device_mismatch, prepare

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from marpack.archive.protocol import Archive, Bar
    from marpack.findings import Finding
    from marpack.project.source import ResolvedSource
    from marpack.runner.client import Worker
    from marpack.runner.pool import ModelPool, PoolSettings
    from marpack.runner.session import PoolMaker

    Resolver = Callable[[str | None], ResolvedSource]


def ignore(_: object) -> None:
    """Do nothing with a message or findings."""


def load_of(options: ModelOptions, device: Device) -> Load:
    """Return how a model is loaded; its folder and target are set when its archive is open."""
    return Load(
        model_dir="",
        gpu_id=device.gpu_id(),
        device=None if device.name == "auto" else device.name,
        metrics_config=text_of(options.metrics_config),
        compile=options.compile,
        trust_pickle=options.trust_pickle,
    )


def pool_settings(options: SessionOptions, device: Device, extras: SessionExtras | None = None) -> PoolSettings:
    """Return the number of workers, their limits and their environment."""
    from marpack.runner.pool import PoolSettings

    launch, variables = (extras.launch, extras.variables) if extras else (None, None)
    environment = {**(device.environment() or os.environ), **variables} if variables else device.environment()
    workers = options if isinstance(options, WorkerOptions) else WorkerOptions()
    return PoolSettings(
        workers=workers.workers,
        timeout=options.timeout,
        startup_timeout=options.startup_timeout,
        max_memory=workers.max_memory,
        environment=environment,
        launch=launch,
    )


class SessionNotes(LoadProgress):
    """Passes on findings about a source and its model, before and after the model is loaded."""

    def __init__(
        self,
        on_findings: Callable[[Iterable[Finding]], object] = ignore,
        *,
        env: str = "current",
        notes: Iterable[Finding] = (),
    ) -> None:
        """Take the receiver of findings, the workers' environment, and findings about the inputs."""
        self.on_findings = on_findings
        self.on_prepared: Callable[[PreparedModel], object] = ignore
        self._env = env
        self._notes = notes

    def opened(self, resolved: ResolvedSource, archive: Archive) -> None:
        """Pass on a build's warnings, programs, differences from the server, and unmet requirements."""
        from marpack.inspection.members import find_programs, model_config, program_findings
        from marpack.runner.environments import unmet
        from marpack.runner.session import sequence_warning

        self.on_findings(resolved.findings)
        self.on_findings(program_findings(tuple(find_programs(archive)), archive.source))
        self.on_findings(self._notes)
        warning = sequence_warning(model_config(archive))
        self.on_findings([warning] if warning else [])
        if self._env == "current":
            self.on_findings(unmet(archive, as_notes=True))

    def prepared(self, prepared: PreparedModel) -> None:
        """Call `on_prepared`, before the model is loaded."""
        self.on_prepared(prepared)


class SessionExtras(Struct, frozen=True, kw_only=True):
    """Tools that a command gives to a session in addition to its options."""

    bar: Bar = no_progress
    on_message: Callable[[str], object] = ignore  # gets messages while an environment is made
    resolver: Resolver | None = None  # finds the archive of a source; None: the one of the options
    launch: Callable[[], Worker] | None = None  # returns a worker that waits for a model; None: a new one
    variables: Mapping[str, str] | None = None  # of the workers' environment, beside this process's
    pool: Callable[[PoolSettings], PoolMaker] | None = None  # None: the pool of the options
    torchserve: bool = False  # the worker imports the installed torchserve's `ts`
    show_data: bool = False
    trace: bool = False

    def load(self, options: SessionOptions, device: Device) -> Load:
        """Return how a session's model is loaded."""
        return replace(
            load_of(options, device),
            envelope=options.envelope,
            max_response_size=options.max_response_size,
            batch_size=options.batch_size if isinstance(options, WorkerOptions) else None,
            torchserve=self.torchserve,
            show_data=self.show_data,
            trace=self.trace,
        )


_NO_EXTRAS = SessionExtras()


def resolver_of(options: SessionOptions, bar: Bar = no_progress, maximum: int | None = None) -> Resolver:
    """Return the function that finds the archive of a source, of at most `maximum` bytes."""
    from marpack.project.source import resolve

    return partial(
        resolve,
        bar=bar,
        cache=cache_of(bar),
        maximum=maximum,
        digest=options.digest,
        trust_url=options.trust_url,
        allow_outside=options.allow_outside,
    )


def open_session(
    source: str | None, options: SessionOptions, notes: SessionNotes | None = None, extras: SessionExtras = _NO_EXTRAS
) -> Session:
    """Load the model of a source.

    `notes` gets findings about the source and about a model on another device than requested. Raises UsageError,
    DeviceUnavailableError, ProjectError, ArchiveError, LoadError and WorkerError.
    """
    notes = notes or SessionNotes(env=options.env)
    device = Device.available(options.device)
    settings = pool_settings(options, device, extras)

    def isolated_pool(archive: Archive, load: Load, config: Mapping[str, Any]) -> ModelPool:
        from marpack.runner.pool import LocalPool

        python = isolated_python(archive, extras.on_message)
        return LocalPool(load, replace(settings.as_served(config), python=python), folder=archive.materialize)

    pool: PoolSettings | PoolMaker = isolated_pool if options.env == "isolated" else settings
    session = Session.open(
        source,
        options=extras.load(options, device),
        target=Target(options.target) if options.target else None,
        settings=extras.pool(settings) if extras.pool else pool,
        cache=cache_of(extras.bar),
        resolver=extras.resolver or resolver_of(options, extras.bar),
        listener=notes,
    )
    mismatch = device_mismatch(device.name, session.loaded.device)
    notes.on_findings([mismatch] if mismatch else [])
    return session


def prepare_session(
    source: str | None, options: SessionOptions, notes: SessionNotes, extras: SessionExtras = _NO_EXTRAS
) -> PreparedModel:
    """Open the archive of a source and check it, for other processes that load the model; see `open_session`."""
    return prepare(
        (extras.resolver or resolver_of(options, extras.bar))(source),
        options=extras.load(options, Device.parse(options.device)),
        target=Target(options.target) if options.target else None,
        cache=cache_of(extras.bar),
        opened=notes.opened,
    )


def isolated_python(archive: Archive, on_message: Callable[[str], object]) -> str:
    """Return the Python interpreter of the environment with an archive's requirements; raises IsolationError."""
    from marpack.archive.index import content_identity
    from marpack.runner.environments import IsolationError, has_requirements, isolated

    if not has_requirements(archive):
        on_message("the archive has no requirements: marpack uses the current environment")
        return sys.executable
    try:
        made = isolated(
            archive.materialize() / str(archive.manifest.model.requirements_file),
            root=environments_folder(),
            environ=os.environ,
            content=lambda: content_identity(archive),
            on_start=lambda lines: on_message(f"installing the archive's requirements: {', '.join(lines)}"),
        )
    except IsolationError as error:
        if error.output:
            on_message(error.output.rstrip())
        raise
    if made.seconds is not None:
        on_message(f"made an environment for them in {made.seconds:.1f} s")
    return made.python


def environments_folder() -> Path:
    """Return the folder of the environments with archives' requirements."""
    folder = os.environ.get("MARPACK_CACHE_DIR")
    if folder:
        return Path(folder).absolute() / "environments"
    import platformdirs

    return platformdirs.user_cache_path("marpack") / "environments"
