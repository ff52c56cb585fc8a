"""A SOURCE, ready to answer: resolved, opened, on disk, and loaded in workers."""

from collections.abc import Callable
from pathlib import Path
from typing import Self

from msgspec.structs import replace

from marpack.archive.cache import Cache
from marpack.archive.index import Index, archive_digest
from marpack.archive.protocol import INDEX_NAME, Archive
from marpack.archive.reader import open_archive
from marpack.errors import ArchiveError
from marpack.findings import Severity
from marpack.project.source import Resolved, resolve
from marpack.runtime.messages import Load, Loaded
from marpack.runtime.targets import Target
from marpack.worker.client import Worker
from marpack.worker.pool import LocalPool, Settings


class Serving:
    """One archive and the workers that answer for it."""

    def __init__(self, resolved: Resolved, archive: Archive, load: Load, pool: LocalPool, loaded: Loaded) -> None:
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
        settings: Settings | None = None,
        cache: Cache | None = None,
        progress: Callable[[int], None] | None = None,
        on_resolved: Callable[[Resolved], None] | None = None,
    ) -> Self:
        """Make a SOURCE ready to answer.

        Args:
            source: An archive, a model folder or a project; None for the project in the current folder.
            options: How to load it; its `model_dir` and `target` are filled in here.
            target: Whose behaviour is shown; None: the project's or the archive's, else the server's.
            settings: The workers.
            cache: Where archives are extracted to; None: this user's.
            progress: Is told the bytes packed, if the project's archive has to be built first.
            on_resolved: Is told what SOURCE stands for, before anything is loaded.

        Raises UsageError, ProjectError, ArchiveError, LoadError and WorkerError.

        """
        settings = settings or Settings()
        # Started first: its imports overlap with the opening of the archive.
        first = Worker.spawn(environment=settings.environment, max_memory=settings.max_memory)
        archive = None
        try:
            resolved = resolve(source, progress=progress)
            if on_resolved is not None:
                on_resolved(resolved)
            archive = open_archive(resolved.path, cache=cache)
            chosen = target or target_of(resolved, archive)
            refuse_what_the_server_refuses(archive, chosen)
            load = _filled(options, archive.materialize(), chosen)
            pool = LocalPool(load, settings, first=first)
            return cls(resolved, archive, load, pool, pool.start())
        except BaseException:
            first.kill()
            if archive is not None:
                archive.close()
            raise

    @property
    def digest(self) -> str | None:
        """The archive's digest, if marpack wrote it."""
        return digest_of(self.archive)

    def __enter__(self) -> Self:
        self.pool.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        self.pool.__exit__(kind, *rest)
        self.archive.close()


def target_of(resolved: Resolved, archive: Archive) -> Target:
    """Return whose behaviour to show: the project's word, else the archive's, else the server's."""
    if resolved.project is not None:
        return Target(resolved.project.target)
    if INDEX_NAME not in archive.entries:
        return Target.TORCHSERVE
    return Target(_index(archive).target)


def refuse_what_the_server_refuses(archive: Archive, target: Target) -> None:
    """Raise ArchiveError for an archive that marpack can open and the server cannot, unless marpack is the target."""
    refused = [finding for finding in archive.oddities if finding.severity is Severity.ERROR]
    if refused and target is Target.TORCHSERVE:
        raise ArchiveError(f"the server refuses this archive: {refused[0].message}", hint=refused[0].hint)


def digest_of(archive: Archive) -> str | None:
    """Return the SHA-256 of an archive's marpack.json, or None where there is none."""
    if INDEX_NAME not in archive.entries:
        return None
    with archive.open(INDEX_NAME) as file:
        return archive_digest(file.read())


def _index(archive: Archive) -> Index:
    with archive.open(INDEX_NAME) as file:
        return Index.from_json(file.read())


def _filled(options: Load, folder: Path, target: Target) -> Load:

    return replace(options, model_dir=str(folder), target=target)
