"""A SOURCE, loaded and ready for requests, on the device that was requested."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path
from typing import Any, Self

from msgspec import Struct
from msgspec.structs import replace

from marpack import finding_codes as codes
from marpack.archive.cache import Cache
from marpack.archive.index import content_digest, index_of
from marpack.archive.protocol import INDEX_NAME, MANIFEST_NAME, Archive
from marpack.archive.reader import open_archive
from marpack.errors import ArchiveError, DamagedArchiveError, TorchrunError
from marpack.findings import Finding, Severity
from marpack.inspection.members import model_config
from marpack.project.source import ResolvedSource, resolve
from marpack.protocol.messages import Load, Loaded
from marpack.protocol.targets import Target
from marpack.runner.environments import required
from marpack.runner.pool import LocalPool, ModelPool, PoolSettings
from marpack.torchserve.model_config import Sequences, Torchrun

PoolMaker = Callable[[Archive, Load, Mapping[str, Any]], ModelPool]  # archive, how to load it, its model config


class LoadProgress:
    """Receives the progress of opening a SOURCE."""

    def opened(self, resolved: ResolvedSource, archive: Archive) -> None:
        """Take note of what the SOURCE stands for, before anything is loaded."""

    def prepared(self, prepared: "PreparedModel") -> None:
        """Take note of the archive and how it will be loaded."""

    def loading(self) -> AbstractContextManager[object]:
        """Return the context manager for the time of loading."""
        return nullcontext()


class Session:
    """One archive and the workers that answer for it."""

    def __init__(self, resolved: ResolvedSource, archive: Archive, load: Load, pool: ModelPool, loaded: Loaded) -> None:
        self.resolved = resolved
        self.archive = archive
        self.load = load
        self.pool = pool
        self.loaded = loaded

    @classmethod
    def open(
        cls,
        source: str | None,
        *,
        options: Load,
        target: Target | None = None,
        settings: PoolSettings | PoolMaker | None = None,
        cache: Cache | None = None,
        resolver: Callable[[str | None], ResolvedSource] = resolve,
        listener: LoadProgress | None = None,
    ) -> Self:
        """Make a SOURCE ready to answer.

        Args:
            source: An archive, a model folder or a project; None for the project in the current folder.
            options: How to load it; its `model_dir`, `target` and `required` are filled in here.
            target: Whose behaviour is shown; None: the project's or the archive's, else the server's.
            settings: The workers, or what makes another kind of pool.
            cache: Where archives are extracted to; None: this user's.
            resolver: Finds the archive that the source stands for, building a project's first.
            listener: Receives the progress.

        Raises UsageError, ProjectError, ArchiveError, TorchrunError, LoadError and WorkerError.

        """
        settings, listener = settings or PoolSettings(), listener or LoadProgress()
        first = None
        with ExitStack() as undo:
            if isinstance(settings, PoolSettings):
                first = settings.spawn()  # first of all: its imports overlap with the opening of the archive
                undo.callback(first.kill)
            resolved = resolver(source)
            prepared = prepare(resolved, options=options, target=target, cache=cache, opened=listener.opened)
            archive, load, config = prepared.archive, prepared.load, prepared.config
            undo.callback(archive.close)
            listener.prepared(prepared)
            if isinstance(settings, PoolSettings):
                pool: ModelPool = LocalPool(load, settings.as_served(config), first=first, folder=archive.materialize)
            else:
                pool = settings(archive, load, config)
            undo.callback(pool.kill)
            with listener.loading():
                loaded = pool.start()
            undo.pop_all()
        return cls(resolved, archive, load, pool, loaded)

    @property
    def content_digest(self) -> str | None:
        """The archive's content digest, if marpack wrote it."""
        return content_digest(self.archive)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.pool.close()
        else:
            self.pool.kill()
        self.archive.close()


class PreparedModel(Struct, frozen=True):
    """An archive with its extracted files."""

    resolved: ResolvedSource
    archive: Archive
    load: Load
    config: Mapping[str, Any]  # Any: YAML as it stands


def prepare(
    resolved: ResolvedSource,
    *,
    options: Load,
    target: Target | None = None,
    cache: Cache | None = None,
    opened: Callable[[ResolvedSource, Archive], None] = lambda *_: None,
) -> PreparedModel:
    """Open an archive and extract its files; `opened` is called in between. See `Session.open`.

    Raises ArchiveError, UsageError, ProjectError and TorchrunError.
    """
    with ExitStack() as undo:
        archive = open_archive(resolved.path, cache=cache)
        undo.callback(archive.close)
        opened(resolved, archive)
        chosen = target or target_of(resolved, archive)
        refuse_what_the_server_refuses(archive, chosen)
        config = model_config(archive)
        refusal = torchrun_error(config)
        if refusal is not None:
            raise refusal
        folder = str(archive.materialize())
        load = replace(with_metrics(options, resolved), model_dir=folder, target=chosen, required=required(archive))
        undo.pop_all()
    return PreparedModel(resolved, archive, load, config)


def with_metrics(load: Load, resolved: ResolvedSource) -> Load:
    """Return the load message with the requested metrics_config, or else the project's.

    Raises ProjectError for a file with which none of the server's workers would start.
    """
    project = resolved.project
    own = project.folder / project.metrics_config if project is not None and project.metrics_config else None
    named = Path(load.metrics_config) if load.metrics_config else own
    if named is None:
        return load
    from marpack.project.load import checked_metrics_config  # noqa: PLC0415 - archives seldom need it

    return replace(load, metrics_config=checked_metrics_config(named))


def target_of(resolved: ResolvedSource, archive: Archive) -> Target:
    """Return whose behaviour to show: the project's word, else the archive's, else the server's."""
    if resolved.project is not None:
        return Target(resolved.project.target)
    index = index_of(archive)
    if index is None:
        return Target.TORCHSERVE
    if index.target not in set(Target):
        message = f"the index of members names the target {index.target!r}, which there is not"
        raise DamagedArchiveError(message, where=f"{archive.source}!{INDEX_NAME}", code="unknown-target")
    return Target(index.target)


def refuse_what_the_server_refuses(archive: Archive, target: Target) -> None:
    """Raise ArchiveError for an archive that marpack can open and the server cannot, unless marpack is the target."""
    refused = [finding for finding in archive.server_findings if finding.severity is Severity.ERROR]
    if target is not Target.TORCHSERVE:
        return
    if refused:
        raise ArchiveError(f"the server refuses this archive: {refused[0].message}", hint=refused[0].hint)
    if archive.manifest.runtime == "LSP":
        raise ArchiveError(
            "a stock server starts no worker for the runtime LSP: its C++ backend is in no package and no image",
            where=f"{archive.source}!{MANIFEST_NAME}",
            hint="build it with --runtime python, or try it on a server built with that backend",
            code="unsupported-runtime",
        )


def torchrun_error(config: Mapping[str, Any]) -> TorchrunError | None:  # Any: YAML as it stands
    """Return the error for a model that torchrun starts in several processes; None for any other model."""
    torchrun = Torchrun.of(config)
    if torchrun is None or torchrun.ranks == 1:
        return None
    what = (
        f"torchrun starts {torchrun.ranks} ranks of this model; rank 0 waits for the others, so marpack cannot run it"
    )
    hint = "Run it on a TorchServe server that has the GPUs that it needs."
    return TorchrunError(what, where="the model config: parallelType, torchrun", hint=hint)


def sequence_warning(config: Mapping[str, Any]) -> Finding | None:  # Any: as above
    """Return the warning for a model whose sequences the server limits and marpack does not; None for any other."""
    if Sequences.of(config) is None:
        return None
    return codes.SEQUENCE_BATCHING.at("the model config: sequenceBatching")
