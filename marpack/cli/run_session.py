"""The options of `marpack run` that say what is loaded, and how: options → Serving."""

from __future__ import annotations

import os
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from contextlib import AbstractContextManager, ExitStack

    from marpack.archive.cache import Cache
    from marpack.archive.protocol import Archive
    from marpack.cli.options import Options
    from marpack.findings import Finding
    from marpack.project.source import ResolvedSource
    from marpack.runner.client import Worker
    from marpack.runner.pool import ModelPool, PoolSettings
    from marpack.runner.session import Device, PoolMaker, Session
    from marpack.torchserve.messages import Load


def open_session(
    source: str | None,
    options: Options,
    stack: ExitStack,
    *,
    on_findings: Callable[[Iterable[Finding]], None],
    launch: Callable[[], Worker] | None = None,
) -> Session:
    """Load what the source stands for.

    Args:
        source: As given.
        options: As given.
        stack: Undoes, in the end, what had to be made on the way.
        on_findings: Is told what is noticed before the model is loaded.
        launch: Returns a worker that waits for a model, in place of a new one.

    Raises UsageError, ProjectError, ArchiveError, LoadError and WorkerError.
    """
    from marpack.render.progress import waiting
    from marpack.runner.environments import requirement_notes
    from marpack.runner.inputs import text_notes
    from marpack.runner.session import Device, LoadProgress, Session, misplaced
    from marpack.torchserve.targets import Target

    class Teller(LoadProgress):
        def opened(self, resolved: ResolvedSource, archive: Archive) -> None:
            tell_built(resolved)
            on_findings(resolved.findings)
            on_findings(text_notes(options.get("data", ()), options.get("content_type")))
            if options["env"] == "current":
                on_findings(requirement_notes(archive))

        def loading(self) -> AbstractContextManager[object]:
            shared = options["in_process"] or options["pdb"]  # the terminal is the handler's, too
            return nullcontext() if shared else waiting("loading the model")

    device = Device.parse(options["device"])
    settings = pool_settings(options, device, launch)
    session = Session.open(
        source,
        options=load_of(options, device, compiled=not options["no_compile"]),
        target=Target(options["target"]) if options["target"] else None,
        settings=_pool_maker(options, settings) or settings,
        cache=cache_of(),
        resolver=_resolver(options, stack),
        listener=Teller(),
    )
    odd = misplaced(device.name, session.loaded.device)
    on_findings([odd] if odd else [])
    return session


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


def _resolver(options: Options, stack: ExitStack) -> Callable[[str | None], ResolvedSource]:
    if options["unpacked"]:
        from marpack.project.source import unpacked

        return lambda source: stack.enter_context(unpacked(source))
    from marpack.project.source import resolve
    from marpack.render.progress import byte_bar

    return partial(resolve, bar=byte_bar)


def _pool_maker(options: Options, settings: PoolSettings) -> PoolMaker | None:
    """Return what makes the pool, where it is not workers of this environment."""
    if options["in_process"] or options["pdb"]:
        import sys

        from marpack.runner.in_process import InProcessPool

        os.environ.update(settings.environment or {})
        quiet = options["as_json"] or options["jsonl"] or not sys.stdout.isatty()  # stdout is for results
        prints = sys.stderr if quiet else sys.stdout
        return lambda _archive, load, _config: InProcessPool(load, debug=options["pdb"], prints=prints)
    return isolated_pool(settings) if options["env"] == "isolated" else None


def isolated_pool(settings: PoolSettings) -> PoolMaker:
    """Return what makes a pool of workers in the environment that an archive's requirements ask for."""
    from msgspec.structs import replace

    from marpack.runner.pool import LocalPool

    def made(archive: Archive, load: Load, config: Mapping[str, Any]) -> ModelPool:
        isolated = replace(settings.as_served(config), python=isolated_python(archive))
        return LocalPool(load, isolated, folder=archive.materialize)

    return made


def isolated_python(archive: Archive) -> str:
    """Return the interpreter of the environment that an archive's requirements ask for."""
    import sys

    from marpack.render.console import talk
    from marpack.runner.environments import IsolationError, has_requirements, isolated

    if not has_requirements(archive):
        talk().print("[dim]the archive has no requirements: this environment is used as it is[/]")
        return sys.executable
    path = archive.materialize() / str(archive.manifest.model.requirements_file)
    try:
        made = isolated(path, root=_environments(), environ=os.environ, on_start=_tell_installing)
    except IsolationError as error:
        talk().print(error.output.rstrip(), markup=False, style="dim")
        raise
    if made.seconds is not None:
        talk().print(f"[dim]made an environment for them in {made.seconds:.1f} s[/]")
    return made.python


def _tell_installing() -> None:
    from marpack.render.console import talk

    talk().print("[dim]installing the archive's requirements, this once[/]")


def _environments() -> Path:
    folder = os.environ.get("MARPACK_CACHE_DIR")
    if folder:
        return Path(folder) / "environments"
    import platformdirs

    return platformdirs.user_cache_path("marpack") / "environments"


def cache_of() -> Cache:
    """Return the cache of extracted archives: this user's, unless the environment names another."""
    from marpack.archive.cache import Cache
    from marpack.render.progress import byte_bar

    folder = os.environ.get("MARPACK_CACHE_DIR")
    return Cache(Path(folder) if folder else None, bar=byte_bar)


def tell_built(resolved: ResolvedSource) -> None:
    """Say on stderr what was built just now."""
    if resolved.built is not None:
        from marpack.render.console import plain, talk

        talk().print(f"[dim]built {plain(str(resolved.built.path))}[/]")
