"""The options of `marpack run` and `marpack score` that say what is loaded, and how: options → Session."""

from __future__ import annotations

import os
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from contextlib import AbstractContextManager, ExitStack

    from marpack.archive.cache import Cache
    from marpack.archive.protocol import Archive
    from marpack.cli.options import Options
    from marpack.findings import Finding
    from marpack.project.source import ResolvedSource
    from marpack.runner.client import Worker
    from marpack.runner.pool import PoolSettings
    from marpack.runner.session import PoolMaker, PreparedModel, Session


def open_session(
    source: str | None,
    options: Options,
    stack: ExitStack,
    *,
    on_findings: Callable[[Iterable[Finding]], None],
    launch: Callable[[], Worker] | None = None,
    on_prepared: Callable[[PreparedModel], object] = lambda _: None,
    further: Mapping[str, str] | None = None,
) -> Session:
    """Load what the source stands for.

    Args:
        source: As given.
        options: As given.
        stack: Undoes, in the end, what had to be made on the way.
        on_findings: Is told what is noticed before the model is loaded.
        launch: Returns a worker that waits for a model, in place of a new one.
        on_prepared: Is given the archive and how it will be loaded, before the model is loaded.
        further: Variables of the workers' environment.

    Raises UsageError, ProjectError, ArchiveError, LoadError and WorkerError.
    """
    from marpack.api.settings import Noticing, load_of, pool_settings
    from marpack.protocol.targets import Target
    from marpack.render.progress import waiting
    from marpack.runner.inputs import text_notes
    from marpack.runner.session import Device, Session, misplaced

    class Teller(Noticing):
        def opened(self, resolved: ResolvedSource, archive: Archive) -> None:
            tell_built(resolved)
            super().opened(resolved, archive)

        def prepared(self, prepared: PreparedModel) -> None:
            on_prepared(prepared)

        def loading(self) -> AbstractContextManager[object]:
            shared = options.get("in_process") or options.get("pdb")  # the terminal is the handler's, too
            return nullcontext() if shared else waiting("loading the model")

    device = Device.available(options["device"])
    notes = text_notes(options.get("data", ()), options.get("content_type"))
    settings = pool_settings(options, device, launch, further)
    session = Session.open(
        source,
        options=load_of(options, device, compiled=not options["no_compile"]),
        target=Target(options["target"]) if options["target"] else None,
        settings=_pool_maker(options, settings) or settings,
        cache=cache_of(),
        resolver=_resolver(options, stack),
        listener=Teller(on_findings, env=options["env"], notes=notes),
    )
    odd = misplaced(device.name, session.loaded.device)
    on_findings([odd] if odd else [])
    return session


def prepare_archive(
    source: str | None, options: Options, stack: ExitStack, on_findings: Callable[[Iterable[Finding]], None]
) -> PreparedModel:
    """Open what the source stands for, and look at all that can be wrong with it, for others to load it.

    See `open_session`.
    """
    from marpack.api.settings import Noticing, load_of
    from marpack.protocol.targets import Target
    from marpack.runner.session import Device, prepare

    noticing = Noticing(on_findings, env=options["env"])

    def opened(resolved: ResolvedSource, archive: Archive) -> None:
        tell_built(resolved)
        noticing.opened(resolved, archive)

    prepared = prepare(
        _resolver(options, stack)(source),
        options=load_of(options, Device.parse(options["device"]), compiled=not options["no_compile"]),
        target=Target(options["target"]) if options["target"] else None,
        cache=cache_of(),
        opened=opened,
    )
    stack.callback(prepared.archive.close)
    return prepared


def _resolver(options: Options, stack: ExitStack) -> Callable[[str | None], ResolvedSource]:
    if options.get("unpacked"):
        from marpack.project.source import unpacked

        outside = options["allow_outside"]
        return lambda source: stack.enter_context(unpacked(source, cache_of(), allow_outside=outside))
    from marpack.project.source import resolve
    from marpack.render.progress import byte_bar

    source_options = {name: options[name] for name in ("digest", "trust_url", "allow_outside")}
    return partial(resolve, bar=byte_bar, cache=cache_of(), **source_options)


def _pool_maker(options: Options, settings: PoolSettings) -> PoolMaker | None:
    """Return what makes the pool, where it is not workers of this environment."""
    if options.get("in_process") or options.get("pdb"):
        import sys

        from marpack.runner.in_process import InProcessPool

        os.environ.update(settings.environment or {})
        quiet = options["as_json"] or options["jsonl"] or not sys.stdout.isatty()  # stdout is for results
        prints = sys.stderr if quiet else sys.stdout
        return lambda _archive, load, _config: InProcessPool(load, debug=options["pdb"], prints=prints)
    return isolated_pool(settings, yes=options["yes"]) if options["env"] == "isolated" else None


def isolated_pool(settings: PoolSettings, *, yes: bool) -> PoolMaker:
    """Return what makes a pool of workers in the environment of an archive's requirements, telling what it does."""
    from marpack.api import settings as api_settings

    return api_settings.isolated_pool(settings, tell_aside, api_settings.Consent(yes))


def tell_aside(text: str) -> None:
    """Say on stderr what goes on."""
    from marpack.render.console import talk

    talk().print(text, markup=False, style="dim")


def cache_of() -> Cache:
    """Return the cache of extracted archives, which shows how far an extraction is."""
    from marpack.api import settings
    from marpack.render.progress import byte_bar

    return settings.cache_of(byte_bar)


def tell_built(resolved: ResolvedSource) -> None:
    """Say on stderr what was built just now, or which archive of a registry it is."""
    if resolved.built is None and resolved.reference is None:
        return
    from marpack.render.console import plain, talk

    made = f"built {resolved.built.path}" if resolved.built is not None else f"this is {resolved.reference}"
    talk().print(f"[dim]{plain(made)}[/]")
