"""A SOURCE, loaded and ready for requests, on the device that was requested."""

import os
import sys
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
from marpack.errors import ArchiveError, DamagedArchiveError, TorchrunError, UsageError
from marpack.findings import Finding, Severity
from marpack.inspection.members import model_config
from marpack.project.source import ResolvedSource, resolve
from marpack.protocol.messages import Load, Loaded
from marpack.protocol.targets import Target
from marpack.runner.environments import required
from marpack.runner.pool import LocalPool, ModelPool, PoolSettings
from marpack.torchserve.model_config import Sequences, Torchrun
from marpack.worker.loaders.device import unavailable

PoolMaker = Callable[[Archive, Load, Mapping[str, Any]], ModelPool]  # archive, how to load it, its model config
_NODES = {"cuda": "nvidia{}", "xpu": "dri"}  # kind → the name of each device below /dev
_SHARED_NODES = ("dxg", "kfd")  # of WSL and ROCm, for all devices


class Device(Struct, frozen=True):
    """A choice of device: `auto` leaves it to the machine, any other name overrides what the worker finds."""

    name: str
    number: int | None = None  # the `gpu_id` of the worker
    variables: dict[str, str] = {}  # environment variables with which the worker chooses the device

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the device of a name: auto, cpu, cuda[:N], xpu[:N], mps or xla; raises UsageError for another one."""
        if text == "auto":
            return cls(text)
        kind, colon, number = text.partition(":")
        is_numbered = kind in {"cuda", "xpu"} and (number.isdecimal() if colon else True)
        if not is_numbered and text not in {"cpu", "mps", "xla"}:
            hint = "Use auto, cpu, cuda, cuda:N, xpu, xpu:N, mps or xla."
            raise UsageError(f"no such device: {text}", where="--device", hint=hint, code="unknown-device")
        variables = {"TS_IPEX_GPU_ENABLE": "true" if kind == "xpu" else "false"}
        if kind != "cuda":
            variables["CUDA_VISIBLE_DEVICES"] = ""  # `cpu` hides CUDA from the handler as well
        if kind == "cpu":
            variables["PJRT_DEVICE"] = "CPU"  # torch_xla, where installed, then computes on the CPU as well
        return cls(text, None if kind in {"cpu", "xla"} else int(number or 0), variables)

    @classmethod
    def available(cls, text: str) -> Self:
        """Return the device of a name if the system shows one; only a worker knows whether torch can use it.

        Raises UsageError as `parse` does, DeviceUnavailableError for a device that this machine does not have.
        """
        device = cls.parse(text)
        kind, _, number = text.partition(":")
        if kind == "mps" and sys.platform != "darwin":
            raise unavailable(text)
        if kind in _NODES and not _has_node(_NODES[kind].format(number or "*"), *_SHARED_NODES):
            raise unavailable(text, others=bool(number) and _has_node(_NODES[kind].format("*")))
        return device

    def gpu_id(self) -> int | None:
        """Return the `gpu_id` that the handler sees; with `auto` it is the first GPU, as on the server."""
        return 0 if self.name == "auto" and _has_node("nvidia0") else self.number

    def gpu_ids(self) -> tuple[int, ...]:
        """Return the GPUs that `auto` assigns to workers: all that the system shows."""
        return tuple(range(len(list(Path("/dev").glob("nvidia[0-9]*"))))) if self.name == "auto" else ()

    def environment(self) -> dict[str, str] | None:
        """Return the worker's environment; None: this process's."""
        return None if self.name == "auto" else {**os.environ, **self.variables}


def _has_node(*patterns: str) -> bool:
    return any(any(Path("/dev").glob(pattern)) for pattern in patterns)


def device_mismatch(requested: str, found: str | None) -> Finding | None:
    """Return the finding for a model on another device than requested; None for the requested one."""
    if found is None or requested in {"auto", found, found.partition(":")[0]}:
        return None
    return codes.OTHER_DEVICE.at(asked=requested, found=found)


class LoadProgress:
    """Receives the progress of opening a SOURCE."""

    def opened(self, resolved: ResolvedSource, archive: Archive) -> None:
        """Receive the archive of the SOURCE, before it is extracted."""

    def prepared(self, prepared: "PreparedModel") -> None:
        """Receive the archive and how it will be loaded."""

    def loading(self) -> AbstractContextManager[object]:
        """Return the context manager for the time of loading."""
        return nullcontext()


class Session(AbstractContextManager["Session"]):
    """One archive and the workers that have loaded it."""

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
        options: Load,  # its `model_dir`, `target` and `required` are set here
        target: Target | None = None,  # None: the project's or the archive's, otherwise TorchServe
        settings: PoolSettings | PoolMaker | None = None,  # the workers, or what makes another kind of pool
        cache: Cache | None = None,  # where archives are extracted; None: this user's
        resolver: Callable[[str | None], ResolvedSource] = resolve,  # finds the archive; it builds a project first
        listener: LoadProgress | None = None,
    ) -> Self:
        """Load an archive, a model folder or a project; None for the project in the current folder.

        Raises UsageError, ProjectError, ArchiveError, TorchrunError, LoadError and WorkerError.
        """
        settings, listener = settings or PoolSettings(), listener or LoadProgress()
        first = None
        with ExitStack() as undo:
            if isinstance(settings, PoolSettings):
                first = settings.spawn()  # its imports overlap with the opening of the archive
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
    """Open an archive, call `opened`, and extract the archive's files; see `Session.open`.

    Raises ArchiveError, UsageError, ProjectError and TorchrunError.
    """
    with ExitStack() as undo:
        archive = open_archive(resolved.path, cache=cache)
        undo.callback(archive.close)
        opened(resolved, archive)
        target = target or target_of(resolved, archive)
        if target is Target.TORCHSERVE:
            refuse_as_server(archive)
        config = model_config(archive)
        if (error := torchrun_error(config)) is not None:
            raise error
        folder = str(archive.materialize())
        load = replace(with_metrics(options, resolved), model_dir=folder, target=target, required=required(archive))
        undo.pop_all()
    return PreparedModel(resolved, archive, load, config)


def with_metrics(load: Load, resolved: ResolvedSource) -> Load:
    """Return the load message with the requested metrics_config, otherwise the project's.

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
    """Return the target of the project, otherwise the archive's, otherwise TorchServe."""
    if resolved.project is not None:
        return Target(resolved.project.target)
    index = index_of(archive)
    if index is None:
        return Target.TORCHSERVE
    if index.target not in set(Target):
        what = f"the index of members names the unknown target {index.target!r}"
        where, hint = f"{archive.source}!{INDEX_NAME}", "Update marpack, or build the archive again."
        raise DamagedArchiveError(what, where=where, hint=hint, code="unknown-target")
    return Target(index.target)


def refuse_as_server(archive: Archive) -> None:
    """Raise ArchiveError for an archive that marpack can open and TorchServe cannot."""
    refused = [finding for finding in archive.server_findings if finding.severity is Severity.ERROR]
    if refused:
        raise ArchiveError(f"the server refuses this archive: {refused[0].message}", hint=refused[0].hint)
    if (error := runtime_error(archive)) is not None:
        raise error


def runtime_error(archive: Archive) -> ArchiveError | None:
    """Return the error for a model that TorchServe's Python worker does not load; None for any other model."""
    if archive.manifest.runtime != "LSP":
        return None
    what = "a stock server starts no worker for the runtime LSP: its C++ backend is in no package and no image"
    hint = "Build it with --runtime python, or try it on a server that has that backend."
    return ArchiveError(what, where=f"{archive.source}!{MANIFEST_NAME}", hint=hint, code="unsupported-runtime")


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


def sequence_warning(config: Mapping[str, Any]) -> Finding | None:  # Any: YAML as it stands
    """Return the warning for a model whose sequences the server limits and marpack does not; None for any other."""
    return None if Sequences.of(config) is None else codes.SEQUENCE_BATCHING.at("the model config: sequenceBatching")
