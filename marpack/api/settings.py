"""How a model is loaded, kept and checked, and tables scored: options, by the commands' names → the structs below."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable  # a struct's field has it
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from marpack.archive.protocol import no_progress
from marpack.errors import UnconfirmedDownloadError, UsageError
from marpack.runner.session import Device, LoadProgress, Session, misplaced

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from marpack.api.arguments import Options
    from marpack.archive.cache import Cache
    from marpack.archive.protocol import Archive, Bar
    from marpack.findings import Finding
    from marpack.gate.candidate import CheckOptions
    from marpack.project.source import ResolvedSource
    from marpack.protocol.messages import Load
    from marpack.runner.client import Worker
    from marpack.runner.inputs import RequestDefaults
    from marpack.runner.pip_sizes import Download
    from marpack.runner.pool import ModelPool, PoolSettings
    from marpack.runner.session import PoolMaker, PreparedModel
    from marpack.scoring.mapping import RowMapping
    from marpack.scoring.on_ray.actors import ActorModel
    from marpack.scoring.on_ray.cluster import ClusterOptions
    from marpack.scoring.plan import ScorePlan
    from marpack.scoring.summary import ScoreProgress, ScoreSettings


_LISTED = 8  # files that are named before a download
_SOURCE_OPTIONS = ("digest", "trust_url", "allow_outside")  # they say which archive a SOURCE may stand for


def silent(_: str) -> None:
    """Tell nobody."""


def answer_on_terminal(question: str) -> bool | None:
    """Ask on stderr and return the answer from stdin; None unless both are a terminal."""
    if not (sys.stdin and sys.stderr and sys.stdin.isatty() and sys.stderr.isatty()):
        return None
    sys.stderr.write(question)
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB" if size < 1e9 else f"{size / 1e9:,.1f} GB"


def load_of(options: Options, device: Device, *, compiled: bool) -> Load:
    """Return how a model is loaded; its folder and target are filled in later. `check` lacks some of the options."""
    from marpack.protocol.messages import Load

    given = (
        *("batch_size", "envelope", "metrics_config", "torchserve", "trust_pickle", "show_data"),
        *("max_response_size", "trace"),
    )
    known = {name: options[name] for name in given if name in options}
    asked = None if device.override is None else device.name
    return Load(model_dir="", gpu_id=device.gpu_id(), device=asked, compile=compiled, **known)


def pool_settings(
    options: Options,
    device: Device,
    launch: Callable[[], Worker] | None = None,
    further: Mapping[str, str] | None = None,
) -> PoolSettings:
    """Return how workers are kept, with `further` variables of their environment; see `load_of`."""
    from marpack.runner.pool import PoolSettings

    environment = {**(device.environment() or os.environ), **further} if further else device.environment()
    given = ("workers", "timeout", "startup_timeout", "max_memory")
    known = {name: options[name] for name in given if name in options}
    return PoolSettings(environment=environment, launch=launch, **known)


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

    Raises UsageError, DeviceUnavailableError among them.
    """
    from marpack.api.options import limits_of
    from marpack.gate.candidate import CheckOptions
    from marpack.protocol.targets import Target

    chosen = Device.available(device)
    if "inputs" in options["allow_unproved"] and (options["hermetic"] or "hermetic" in options["only"]):
        hint = "name inputs, or leave one of them out"
        raise UsageError("hermetic implies proved, and does not go with --allow-unproved inputs", hint=hint)
    _expect_safety_options(options)
    interpreter = partial(isolated_python, tell=tell, consent=Consent(options["yes"]))
    return CheckOptions(
        load=load_of(options, chosen, compiled=compiled),
        settings=pool_settings(options, chosen),
        device=chosen,
        python=interpreter if options["env"] == "isolated" else None,
        shape=shape,
        allow_unproved=frozenset(options["allow_unproved"]),
        stand_ins=options["stand_ins"],
        target=Target(options["target"]) if options["target"] else None,
        require_safe=options["require_safe"],
        trust_native=options["trust_native"],
        limits=limits_of(**{name: options[name] for name in ("max_members", "max_size", "max_ratio")}),
        seconds_per_check=options["seconds_per_check"],
        tolerance=options["tolerance"],
        max_opcodes=options["max_opcodes"],
        cache=cache,
    )


def _expect_safety_options(options: Options) -> None:
    """Raise UsageError for --trust-native alone, and for --require-safe without the check that it is for."""
    from marpack.project.schema import SAFETY

    if options["trust_native"] and not options["require_safe"]:
        raise UsageError("--trust-native has no effect without --require-safe", hint="add --require-safe")
    is_left_out = SAFETY in options["skip"] or (options["only"] and SAFETY not in options["only"])
    if options["require_safe"] and is_left_out:
        hint = f"run the check {SAFETY}, or leave --require-safe out"
        raise UsageError(f"--require-safe needs the check {SAFETY}, which is left out", hint=hint)


def row_mapping(options: Options) -> RowMapping:
    """Return how rows become requests and answers columns; raises UsageError, and MissingExtraError without pyarrow."""
    from marpack.scoring.answers import field_type
    from marpack.scoring.mapping import RowMapping

    given = {*RowMapping.__struct_fields__} - {"types"}
    types = {name: field_type(kind, f"{name}={kind}") for name, kind in options["types"].items()}
    return RowMapping(types=types, **{name: options[name] for name in given})


def score_plan(options: Options, *, compiled: bool) -> ScorePlan:
    """Return what is read, asked and written, having looked at every table; the content digest is filled in later.

    Raises UsageError for tables, columns and folders that are not there or cannot be what is asked for.
    """
    from marpack.scoring.plan import PartFormat, ScorePlan
    from marpack.scoring.rows import RowRequests
    from marpack.scoring.tables import plan_tables

    mapping = row_mapping(options)
    RowRequests(mapping)  # a root that is no folder is said now
    tables = plan_tables(options["inputs"], mapping)
    given = ("part_rows", "batch_size", "limit")
    return ScorePlan(
        archive="",
        mapping=mapping,
        inputs=tables.inputs,
        kept=tables.kept,
        format=PartFormat(options["format"]),
        options=_answered_by(options, compiled=compiled),
        **{name: options[name] for name in given},
    )


def _answered_by(options: Options, *, compiled: bool) -> dict[str, str]:
    """Return what else answers depend on, as words, where it is not the usual."""
    from marpack.torchserve.http import MAX_BODY

    usual: dict[str, object] = {"isolate": False, "target": None, "device": "auto", "envelope": None, "env": "current"}
    usual |= {"max_response_size": MAX_BODY}
    words = {name: str(options[name]).lower() for name, value in usual.items() if options[name] != value}
    return words if compiled else {**words, "compile": "false"}


def score_environment(workers: int) -> dict[str, str]:
    """Return the variables by which several workers share the cores, unless the user has set the number of threads.

    Otherwise each of them would start a thread for every core.
    """
    if workers == 1 or "OMP_NUM_THREADS" in os.environ:
        return {}
    return {"OMP_NUM_THREADS": str(max(1, _cores() // workers))}


def _cores() -> int:
    affinity = getattr(os, "sched_getaffinity", None)  # not on every system
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def score_settings(options: Options, progress: ScoreProgress) -> ScoreSettings:
    """Return how a plan is carried out; raises UsageError for what is no bound of errors."""
    from marpack.scoring.summary import ErrorBound, ScoreSettings

    bound = ErrorBound() if options["max_errors"] is None else ErrorBound.parse(options["max_errors"])
    return ScoreSettings(max_errors=bound, isolate=options["isolate"], progress=progress)


def ray_cluster(options: Options, device: Device) -> ClusterOptions:
    """Return which Ray cluster scores; raises UsageError for a device that it cannot deal out."""
    from marpack.scoring.on_ray.cluster import ClusterOptions

    if ":" in device.name:
        hint = f"--device {device.name.partition(':')[0]}: each actor sees but its own"
        raise UsageError("Ray deals the devices out", where=f"--device {device.name}", hint=hint)
    gpu = None if device.name == "auto" else device.name == "cuda"
    return ClusterOptions(address=options["address"], actors=options["actors"], cpus=options["workers"], gpu=gpu)


def actor_model(options: Options, prepared: PreparedModel) -> ActorModel:
    """Return how actors load an archive that was opened here."""
    from marpack.archive.index import content_identity
    from marpack.scoring.on_ray.actors import ActorModel

    load = prepared.load
    given = {name: value for name, value in options.items() if name not in {"metrics_config", "target", "digest"}}
    metrics = None if load.metrics_config is None else os.path.abspath(load.metrics_config)  # noqa: PTH100 - a text
    settled = {"metrics_config": metrics, "target": load.target, "compile": load.compile}
    return ActorModel(
        path=str(prepared.resolved.path.absolute()),
        digest=content_identity(prepared.archive),
        open=partial(_open_for_actor, {**given, **settled}),
        cache=_cache_folder,
    )


def _open_for_actor(options: Options, path: str) -> Session:
    return session_of({**options, "source": path}, lambda _: None)


def _cache_folder() -> Path:
    return cache_of().root


class Consent(Struct, frozen=True):
    """How a large download, or one of unknown size, is confirmed."""

    yes: bool = False  # it is, beforehand
    ask: Callable[[str], bool | None] = answer_on_terminal  # returns None without a terminal
    hint: str = "Add --yes to confirm it (in Python: yes=True)."

    def confirm(self, download: Download, tell: Callable[[str], object]) -> None:
        """Show a download, and ask if it is large or of unknown size; raises UnconfirmedDownloadError if declined."""
        from marpack.runner.environments import UNASKED

        if download.size == 0:  # they are files on this machine
            return
        size = "unknown size" if download.size is None else _megabytes(download.size)
        reason = f" ({download.reason})" if download.reason else ""
        files = ", ".join([*download.files[:_LISTED], *(["…"] if len(download.files) > _LISTED else [])])
        tell(f"download for the archive's requirements: {size}{reason}{': ' if files else ''}{files}")
        if self.yes is True or (download.size is not None and download.size <= UNASKED):
            return
        answer = self.ask(f"Download packages of {size}? [y/N] ")
        if not answer:
            verdict = "was declined" if answer is False else "needs a confirmation"
            what = f"the download of the archive's requirements, {size}{reason}, {verdict}"
            raise UnconfirmedDownloadError(what, where="--env isolated", hint=self.hint)


def isolated_pool(
    settings: PoolSettings, tell: Callable[[str], object] = silent, consent: Consent | None = None
) -> PoolMaker:
    """Return what makes a pool of workers in the environment that an archive's requirements ask for."""
    from marpack.runner.pool import LocalPool

    def made(archive: Archive, load: Load, config: Mapping[str, Any]) -> ModelPool:
        isolated = replace(settings.as_served(config), python=isolated_python(archive, tell, consent))
        return LocalPool(load, isolated, folder=archive.materialize)

    return made


def isolated_python(archive: Archive, tell: Callable[[str], object] = silent, consent: Consent | None = None) -> str:
    """Return the interpreter of the environment that an archive's requirements ask for.

    Raises IsolationError, and UnconfirmedDownloadError for a download that is not confirmed.
    """
    from marpack.archive.index import content_identity
    from marpack.runner.environments import IsolationError, has_requirements, isolated

    if not has_requirements(archive):
        tell("the archive has no requirements: this environment is used as it is")
        return sys.executable
    path = archive.materialize() / str(archive.manifest.model.requirements_file)
    consent = consent or Consent()
    try:
        made = isolated(
            path,
            root=environments_folder(),
            environ=os.environ,
            approve=lambda download: consent.confirm(download, tell),
            content=lambda: content_identity(archive),
            on_start=lambda: tell("installing the archive's requirements, this once"),
        )
    except IsolationError as error:
        if error.output:
            tell(error.output.rstrip())
        raise
    if made.seconds is not None:
        tell(f"made an environment for them in {made.seconds:.1f} s")
    return made.python


def environments_folder() -> Path:
    """Return the folder of the environments that archives' requirements were installed in."""
    folder = os.environ.get("MARPACK_CACHE_DIR")
    if folder:
        return Path(folder).absolute() / "environments"
    import platformdirs

    return platformdirs.user_cache_path("marpack") / "environments"


def cache_of(bar: Bar = no_progress) -> Cache:
    """Return the cache of extracted archives: this user's, unless the environment names another."""
    from marpack.api import operations

    return operations.cache_of(bar)


def session_of(options: Options, on_findings: Callable[[Iterable[Finding]], object]) -> Session:
    """Load what a source stands for, with options by the names that `marpack run` gives them.

    `on_findings` is told what is noticed on the way. Raises UsageError, ProjectError, ArchiveError, LoadError and
    WorkerError.
    """
    from marpack.project.source import resolve
    from marpack.protocol.targets import Target

    device, env = Device.available(options["device"]), options.get("env", "current")
    kept, cache = pool_settings(options, device), cache_of()
    session = Session.open(
        options["source"],
        options=load_of(options, device, compiled=options.get("compile", True)),
        target=Target(options["target"]) if options["target"] else None,
        settings=isolated_pool(kept, consent=Consent(options.get("yes", False))) if env == "isolated" else kept,
        cache=cache,
        resolver=partial(resolve, cache=cache, **{name: options[name] for name in _SOURCE_OPTIONS if name in options}),
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
        """Pass on a build's warnings, programs, differences from the server, and unmet requirements."""
        from marpack.inspection.members import find_programs, model_config, program_findings
        from marpack.runner.environments import requirement_notes
        from marpack.runner.session import sequence_warning

        self._on_findings(resolved.findings)
        self._on_findings(program_findings(tuple(find_programs(archive)), archive.source))
        self._on_findings(self._notes)
        warning = sequence_warning(model_config(archive))
        self._on_findings([warning] if warning else [])
        if self._env == "current":
            self._on_findings(requirement_notes(archive))
