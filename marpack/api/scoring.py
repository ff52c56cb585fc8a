"""The operation of `marpack score`, and `marpack.Scorer`: rows become requests, and their responses columns."""

from __future__ import annotations

import os
import threading
import weakref
from collections import deque
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from msgspec.structs import replace

from marpack.api.declaring import Name, Option, initializer
from marpack.api.operations import cache_of, text_of
from marpack.api.requests import headers_of
from marpack.api.session_options import BatchSize, ScoreOptions, WorkerOptions
from marpack.api.sessions import SessionExtras, SessionNotes, open_session, prepare_session
from marpack.archive.index import content_identity
from marpack.errors import UsageError
from marpack.runner.inputs import as_utf8
from marpack.runner.pool import Batch
from marpack.runner.results import outcomes_of
from marpack.runner.session import Device, Session
from marpack.scoring import local
from marpack.scoring.mapping import RowMapping, field_type
from marpack.scoring.parts import OutputFolder
from marpack.scoring.plan import ErrorBound, PartFormat, ScorePlan, ScoreProgress, ScoreSettings, ScoreSummary
from marpack.scoring.rows import Chunk, RowRequests
from marpack.scoring.tables import batch_of, plan_tables, with_columns

if TYPE_CHECKING:
    from marpack.archive.protocol import Archive
    from marpack.runner.session import PreparedModel
    from marpack.scoring.on_ray.driver import ActorModel

# The other options that responses depend on.
_RESPONSE_OPTIONS = ("isolate", "target", "device", "envelope", "env", "max_response_size", "compile")
_DEFAULTS = ScoreOptions()


def check_options(options: ScoreOptions) -> None:
    """Raise UsageError for options that are missing or have no effect."""
    if not options.inputs:
        raise UsageError("no tables to score", hint="Name tables: marpack score --input FILE")
    if not options.output:
        raise UsageError("no folder for the results", hint="Name a folder: --output DIR")
    if options.allow_private and not options.url:
        raise UsageError("--allow-private requires --url", hint="Add --url COLUMN, or leave --allow-private out.")
    for name in ("address", "actors"):
        if options.on != "ray" and getattr(options, name) is not None:
            raise UsageError(f"--{name} requires --on ray", where=f"--{name}", hint="Add --on ray.")


def score_plan(options: ScoreOptions) -> ScorePlan:
    """Return the plan of a run, with every table checked; its archive's digest is filled in later.

    Raises UsageError for tables, columns and folders that do not exist or do not fit.
    """
    given = {name: getattr(options, name) for name in RowMapping.__struct_fields__}
    given["types"] = {name: field_type(kind, f"{name}={kind}") for name, kind in options.types.items()}
    given["content_type"] = as_utf8(options.content_type or "", "--content-type") or None
    mapping = RowMapping(**given | {"headers": headers_of(options.headers)})
    RowRequests(mapping)  # raises for a root that is not a folder, before tables are read
    tables = plan_tables(options.inputs, mapping)
    changed = [name for name in _RESPONSE_OPTIONS if getattr(options, name) != getattr(_DEFAULTS, name)]
    return ScorePlan(
        archive="",
        mapping=mapping,
        inputs=tables.inputs,
        kept=tables.kept,
        format=PartFormat(options.format),
        part_rows=options.part_rows,
        batch_size=options.batch_size or 1,
        limit=options.limit,
        options={name: str(getattr(options, name)).lower() for name in changed},
    )


def score_settings(options: ScoreOptions, progress: ScoreProgress) -> ScoreSettings:
    """Return how a plan is carried out; raises UsageError for an invalid bound of errors."""
    bound = ErrorBound() if options.max_errors is None else ErrorBound.parse(options.max_errors)
    return ScoreSettings(max_errors=bound, isolate=options.isolate, progress=progress)


def thread_variables(workers: int) -> dict[str, str]:
    """Return the environment variables by which workers share the cores, unless the user has set them.

    Otherwise each worker would start a thread for every core.
    """
    if workers == 1 or "OMP_NUM_THREADS" in os.environ:
        return {}
    affinity = getattr(os, "sched_getaffinity", None)  # not on every system
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    return {"OMP_NUM_THREADS": str(max(1, cores // workers))}


def score(
    options: ScoreOptions, plan: ScorePlan, settings: ScoreSettings, notes: SessionNotes, extras: SessionExtras
) -> ScoreSummary:
    """Score all rows of a plan, on this machine or on Ray; raises the errors of `open_session` and OutputError."""
    source = text_of(options.source)
    if options.on == "ray":
        from marpack.scoring.on_ray import driver

        kind, is_numbered, _ = Device.parse(options.device).name.partition(":")
        if is_numbered:  # before anything is built
            hint = f"Use --device {kind}: each actor sees only its own device."
            raise UsageError("a numbered device cannot be used with Ray", where=f"--device {options.device}", hint=hint)
        gpu = None if kind == "auto" else kind == "cuda"
        cluster = driver.ClusterOptions(address=options.address, actors=options.actors, cpus=options.workers, gpu=gpu)
        with ExitStack() as stack:
            prepared = prepare_session(source, options, notes, extras)
            stack.callback(prepared.archive.close)
            output = _open_output(plan, options, prepared.archive, stack)
            return driver.score(cluster, actor_model(options, prepared), *output, settings)
    with ExitStack() as stack:
        opened: list[tuple[ScorePlan, OutputFolder]] = []
        notes.on_prepared = lambda prepared: opened.append(_open_output(plan, options, prepared.archive, stack))
        extras = replace(extras, variables=thread_variables(options.workers))
        session = stack.enter_context(open_session(source, options, notes, extras))
        summary = local.score(session.pool, *opened[0], settings)
        if not summary.complete:
            session.pool.kill()  # without waiting for requests that were sent ahead
    return summary


def _open_output(
    plan: ScorePlan, options: ScoreOptions, archive: Archive, stack: ExitStack
) -> tuple[ScorePlan, OutputFolder]:
    """Return the plan with its archive's content digest, and the folder, which the stack closes."""
    plan = replace(plan, archive=content_identity(archive))
    folder = OutputFolder.open(str(options.output), plan, resume=options.resume)
    return plan, stack.enter_context(folder)


def actor_model(options: ScoreOptions, prepared: PreparedModel) -> ActorModel:
    """Return how actors load an archive that was opened here."""
    from marpack.scoring.on_ray.driver import ActorModel

    load = prepared.load
    metrics = None if load.metrics_config is None else os.path.abspath(load.metrics_config)  # noqa: PTH100 - a text
    for_actor = replace(options, metrics_config=metrics, target=load.target.value, compile=load.compile, digest=None)
    return ActorModel(
        path=str(prepared.resolved.path.absolute()),
        digest=content_identity(prepared.archive),
        open=partial(open_session, options=for_actor),
        cache=_cache_folder,
    )


def _cache_folder() -> Path:
    return cache_of().root


class _ScorerArguments(WorkerOptions, frozen=True):
    archive: Annotated[Name, Option("A .mar, .tar.gz or model folder, by its name where the scorer is called.")]
    mapping: Annotated[RowMapping, Option("How a row becomes a request, and its response columns.")]


class ScorerOptions(_ScorerArguments, frozen=True, kw_only=True):
    """The arguments of `marpack.Scorer`."""

    batch_size: BatchSize = 1
    isolate: Annotated[bool, Option("Retry the rows of a failed batch one by one.")] = False


class Scorer(AbstractContextManager["Scorer"]):
    """A callable that scores the rows of a table.

    It loads the archive on the first call, so it can be pickled. Pass it to a library that maps functions over
    tables: the class and its arguments to `ray.data.Dataset.map_batches`, an instance to Spark's `mapInArrow` and
    `mapInPandas`.
    """

    @initializer(ScorerOptions)
    def __init__(self, options: ScorerOptions) -> None:
        """Check the arguments; raises UsageError for a wrong one."""
        self.__setstate__(options)

    def __getstate__(self) -> ScorerOptions:
        return self._options

    def __setstate__(self, options: ScorerOptions) -> None:
        self._options, self._mapping = options, options.mapping
        self._session: Session | None = None
        self._lock = threading.Lock()  # of the thread that talks to the workers

    def __call__(self, rows: Any) -> Any:  # Any: rows of any library, and a result of the same one
        """Return a table with the columns of `keep` and `select`, `status` and `error`.

        Args:
            rows: A dict of columns, an Arrow table or record batch, a pandas DataFrame; or an iterator of these.

        Returns:
            A table of the same type with one row per input row. `status` is 0 if the request was not sent, and
            `error` is the reason for a failed row.

        Raises UsageError for missing columns; ArchiveError and LoadError on the first call.

        """
        if isinstance(rows, Iterator):
            return map(self, rows)
        chunk = Chunk(0, batch_of(rows, self._mapping))
        maker, sent = RowRequests(self._mapping), deque[list[int]]()  # the places of each batch's rows

        def batches() -> Iterator[Batch]:
            for batch, places in chunk.batches(maker, self._options.batch_size or 1):
                sent.append(places)
                yield batch

        with self._lock:
            if self._session is None:
                self._session = open_session(os.fspath(self._options.archive), self._options)
                weakref.finalize(self, self._session.pool.kill)  # at the latest when this process ends
            for outcomes in outcomes_of(self._session.pool, batches(), isolate=self._options.isolate):
                chunk.settle(sent.popleft(), outcomes)
        answers = self._mapping.answers
        arrays, _ = answers.columns(chunk.responses, chunk.failures)
        names = (field.name for field in answers.fields)
        return with_columns(rows, self._mapping.keep, dict(zip(names, arrays, strict=True)))

    def close(self) -> None:
        """Stop the workers. The next call loads the model again."""
        session, self._session = self._session, None
        if session is not None:
            session.__exit__(None)

    def __exit__(self, *_: object) -> None:
        self.close()
