"""The operation of `marpack score`: rows of tables become requests, and their responses new tables."""

from __future__ import annotations

import os
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from marpack.api.operations import cache_of, text_of
from marpack.api.requests import headers_of
from marpack.api.session_options import ScoreOptions
from marpack.api.sessions import SessionExtras, SessionNotes, open_session, prepare_session
from marpack.errors import UsageError
from marpack.runner.inputs import as_utf8
from marpack.runner.session import Device

if TYPE_CHECKING:
    from marpack.archive.protocol import Archive
    from marpack.runner.session import PreparedModel
    from marpack.scoring.on_ray.driver import ActorModel, ClusterOptions
    from marpack.scoring.parts import OutputFolder
    from marpack.scoring.plan import ScorePlan, ScoreProgress, ScoreSettings, ScoreSummary


# The other options that responses depend on.
_RESPONSE_OPTIONS = ("isolate", "target", "device", "envelope", "env", "max_response_size", "compile")
_DEFAULTS = ScoreOptions()


def check_options(options: ScoreOptions) -> None:
    """Raise UsageError for options that are missing or have no effect."""
    if not options.inputs:
        raise UsageError("no tables to score", hint="Name tables: marpack score --input FILE.")
    if not options.output:
        raise UsageError("no folder for the results", hint="Name a folder: --output DIR.")
    if options.allow_private and not options.url:
        raise UsageError("--allow-private requires --url", hint="Add --url COLUMN, or leave --allow-private out.")
    for name in ("address", "actors"):
        if options.on != "ray" and getattr(options, name) is not None:
            raise UsageError(f"--{name} requires --on ray", where=f"--{name}", hint="Add --on ray.")


def score_plan(options: ScoreOptions) -> ScorePlan:
    """Return the plan of a run, with every table checked; its archive's digest is filled in later.

    Raises UsageError for tables, columns and folders that do not exist or do not fit.
    """
    from marpack.scoring.mapping import RowMapping, field_type
    from marpack.scoring.plan import PartFormat, ScorePlan
    from marpack.scoring.rows import RowRequests
    from marpack.scoring.tables import plan_tables

    mapping = RowMapping(
        body=options.body,
        text=options.text,
        json=tuple(options.json),
        json_object=tuple(options.json_object),
        path=options.path,
        url=options.url,
        root=options.root,
        types={name: field_type(kind, f"{name}={kind}") for name, kind in options.types.items()},
        content_type=as_utf8(options.content_type or "", "--content-type") or None,
        headers=headers_of(options.headers),
        explain=options.explain,
        allow_private=options.allow_private,
        max_request_size=options.max_request_size,
        select=dict(options.select),
        keep=tuple(options.keep),
        encode_binary=options.encode_binary,
    )
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
    from marpack.scoring.plan import ErrorBound, ScoreSettings

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
        cluster = ray_cluster(options, Device.parse(options.device))  # before anything is built
        from marpack.scoring.on_ray import driver

        with ExitStack() as stack:
            prepared = prepare_session(source, options, notes, extras)
            stack.callback(prepared.archive.close)
            output = _open_output(plan, options, prepared.archive, stack)
            return driver.score(cluster, actor_model(options, prepared), *output, settings)
    from marpack.scoring import local

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
    from marpack.archive.index import content_identity
    from marpack.scoring.parts import OutputFolder

    plan = replace(plan, archive=content_identity(archive))
    folder = OutputFolder.open(str(options.output), plan, resume=options.resume)
    return plan, stack.enter_context(folder)


def ray_cluster(options: ScoreOptions, device: Device) -> ClusterOptions:
    """Return the Ray cluster of a run; raises UsageError for a device that Ray cannot assign."""
    from marpack.scoring.on_ray.driver import ClusterOptions

    if ":" in device.name:
        kind = device.name.partition(":")[0]
        hint = f"Use --device {kind}: each actor sees only its own device."
        raise UsageError("Ray assigns the devices", where=f"--device {device.name}", hint=hint)
    gpu = None if device.name == "auto" else device.name == "cuda"
    return ClusterOptions(address=options.address, actors=options.actors, cpus=options.workers, gpu=gpu)


def actor_model(options: ScoreOptions, prepared: PreparedModel) -> ActorModel:
    """Return how actors load an archive that was opened here."""
    from marpack.archive.index import content_identity
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
