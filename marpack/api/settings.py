"""How a model is loaded, kept and checked: options, by the names that the commands give them → the structs below."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from marpack.archive.protocol import no_progress
from marpack.errors import UsageError
from marpack.runner.session import Device, LoadProgress, Session, misplaced

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from marpack.api.operations import Options
    from marpack.archive.cache import Cache
    from marpack.archive.protocol import Archive, Bar
    from marpack.findings import Finding
    from marpack.gate.candidate import CheckOptions
    from marpack.project.source import ResolvedSource
    from marpack.runner.client import Worker
    from marpack.runner.inputs import RequestDefaults
    from marpack.runner.pool import ModelPool, PoolSettings
    from marpack.runner.session import PoolMaker
    from marpack.torchserve.messages import Load


def silent(_: str) -> None:
    """Tell nobody."""


def load_of(options: Options, device: Device, *, compiled: bool) -> Load:
    """Return how a model is loaded; its folder and target are filled in later. `check` lacks some of the options."""
    from marpack.torchserve.messages import Load

    given = ("batch_size", "envelope", "metrics_config", "torchserve", "trust_pickle", "show_data", "max_response_size")
    known = {name: options[name] for name in given if name in options}
    return Load(model_dir="", gpu_id=device.gpu_id(), compile=compiled, **known)


def pool_settings(options: Options, device: Device, launch: Callable[[], Worker] | None = None) -> PoolSettings:
    """Return how workers are kept; see `load_of`."""
    from marpack.runner.pool import PoolSettings

    given = ("workers", "timeout", "startup_timeout", "max_memory")
    known = {name: options[name] for name in given if name in options}
    return PoolSettings(environment=device.environment(), launch=launch, **known)


def check_options(
    options: Options,
    *,
    device: str,
    compiled: bool,
    shape: RequestDefaults,
    cache: Cache,
    tell: Callable[[str], object] = silent,
) -> CheckOptions:
    """Return how an archive is to be examined.

    Args:
        options: The command's, by their names.
        device: The one of its devices that is meant.
        compiled: Whether torch.compile is left in.
        shape: What all requests have in common.
        cache: Where archives are extracted to.
        tell: Is told what goes on while requirements are installed.

    Raises UsageError for what is no device, and for one that is not here.
    """
    from marpack.api.operations import chosen_limits
    from marpack.gate.candidate import CheckOptions
    from marpack.torchserve.targets import Target

    chosen = Device.parse(device)
    if not chosen.is_here:
        hint = "check where there is one, or --device cpu; without --device it takes what is here"
        what = "there is no such device here, so nothing would be checked on it"
        raise UsageError(what, where=f"--device {device}", hint=hint)
    return CheckOptions(
        load=load_of(options, chosen, compiled=compiled),
        settings=pool_settings(options, chosen),
        device=chosen,
        python=(lambda archive: isolated_python(archive, tell)) if options["env"] == "isolated" else None,
        shape=shape,
        allow_unproved=frozenset(options["allow_unproved"]),
        stand_ins=options["stand_ins"],
        target=Target(options["target"]) if options["target"] else None,
        limits=chosen_limits(options["max_members"], options["max_size"], options["max_ratio"]),
        seconds_per_check=options["seconds_per_check"],
        tolerance=options["tolerance"],
        max_opcodes=options["max_opcodes"],
        cache=cache,
    )


def isolated_pool(settings: PoolSettings, tell: Callable[[str], object] = silent) -> PoolMaker:
    """Return what makes a pool of workers in the environment that an archive's requirements ask for."""
    from msgspec.structs import replace

    from marpack.runner.pool import LocalPool

    def made(archive: Archive, load: Load, config: Mapping[str, Any]) -> ModelPool:
        isolated = replace(settings.as_served(config), python=isolated_python(archive, tell))
        return LocalPool(load, isolated, folder=archive.materialize)

    return made


def isolated_python(archive: Archive, tell: Callable[[str], object] = silent) -> str:
    """Return the interpreter of the environment that an archive's requirements ask for; raises IsolationError."""
    from marpack.runner.environments import IsolationError, has_requirements, isolated

    if not has_requirements(archive):
        tell("the archive has no requirements: this environment is used as it is")
        return sys.executable

    def installing() -> None:
        tell("installing the archive's requirements, this once")

    path = archive.materialize() / str(archive.manifest.model.requirements_file)
    try:
        made = isolated(
            path,
            root=_environments(),
            environ=os.environ,
            on_start=installing,
        )
    except IsolationError as error:
        tell(error.output.rstrip())
        raise
    if made.seconds is not None:
        tell(f"made an environment for them in {made.seconds:.1f} s")
    return made.python


def _environments() -> Path:
    folder = os.environ.get("MARPACK_CACHE_DIR")
    if folder:
        return Path(folder) / "environments"
    import platformdirs

    return platformdirs.user_cache_path("marpack") / "environments"


def cache_of(bar: Bar = no_progress) -> Cache:
    """Return the cache of extracted archives: this user's, unless the environment names another."""
    from marpack.archive.cache import Cache

    folder = os.environ.get("MARPACK_CACHE_DIR")
    return Cache(Path(folder) if folder else None, bar=bar)


def session_of(options: Options, on_findings: Callable[[Iterable[Finding]], object]) -> Session:
    """Load what a source stands for, with options by the names that `marpack run` gives them.

    `on_findings` is told what is noticed on the way. Raises UsageError, ProjectError, ArchiveError, LoadError and
    WorkerError.
    """
    from marpack.torchserve.targets import Target

    device, env = Device.parse(options["device"]), options.get("env", "current")
    kept = pool_settings(options, device)
    session = Session.open(
        options["source"],
        options=load_of(options, device, compiled=options.get("compile", True)),
        target=Target(options["target"]) if options["target"] else None,
        settings=isolated_pool(kept) if env == "isolated" else kept,
        cache=cache_of(),
        listener=Noticing(on_findings, env=env),
    )
    odd = misplaced(device.name, session.loaded.device)
    on_findings([odd] if odd else [])
    return session


class Noticing(LoadProgress):
    """Passes on what is noticed of a source before its model is loaded."""

    def __init__(
        self, on_findings: Callable[[Iterable[Finding]], object], *, env: str, notes: Iterable[Finding] = ()
    ) -> None:
        """Take who is told, the workers' environment, "current" or "isolated", and what is noticed of the inputs."""
        self._on_findings = on_findings
        self._env = env
        self._notes = notes

    def opened(self, resolved: ResolvedSource, archive: Archive) -> None:
        """Pass on what a build warned of, and which requirements this environment does not meet."""
        from marpack.runner.environments import requirement_notes

        self._on_findings(resolved.findings)
        self._on_findings(self._notes)
        if self._env == "current":
            self._on_findings(requirement_notes(archive))
