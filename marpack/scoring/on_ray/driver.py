"""What the driver does: tells which parts are missing, has them made, and adds up what actors say of them."""

import pickle
import time
import warnings
from collections.abc import Generator, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import ray
import ray.data
from msgspec.structs import asdict, replace

from marpack.errors import MarpackError, UsageError
from marpack.scoring.local import RowRange, ranges_left
from marpack.scoring.on_ray.actors import OUTCOME, ActorJob, ActorModel, PartScorer
from marpack.scoring.on_ray.cluster import RETRIES, ActorRoom, ClusterOptions, connected, room_for
from marpack.scoring.parts import OutputFolder
from marpack.scoring.plan import ScorePlan
from marpack.scoring.summary import ScoredRows, ScoreSettings, ScoreSummary, ScoreTotals

_PIECE = 64 << 20  # bytes of an archive that are sent at once


def score(
    cluster: ClusterOptions, model: ActorModel, plan: ScorePlan, output: OutputFolder, settings: ScoreSettings
) -> ScoreSummary:
    """Have a cluster score all rows that no part of the output holds yet.

    Raises UsageError for a cluster that is not there or has no room, ClusterError for one that was lost, and what
    actors raise; see `marpack.scoring.local.score`. Parts that are whole stay.
    """
    totals = ScoreTotals([table.shown for table in plan.inputs])
    bound, progress = settings.max_errors, settings.progress
    started = time.monotonic()
    missing = tuple(_missing(plan, output))
    left = len(missing)
    progress.began(plan.rows, output.before[0])
    try:
        with closing(_scored(cluster, model, plan, output, missing, isolate=settings.isolate)) as parts:
            for scored in parts:
                _check_seen(output, scored)
                left -= 1
                totals.add(scored)
                progress.scored(scored.rows, scored.failed)
                if left and bound.exceeded(totals.failed, totals.rows):
                    break
    finally:
        progress.ended()
    output.verify(totals.parts)
    exceeded = bound.exceeded(totals.failed, totals.rows, over=not left)
    return totals.summary(output.before, time.monotonic() - started, exceeded=exceeded, complete=not left)


def _missing(plan: ScorePlan, output: OutputFolder) -> Iterator[RowRange]:
    """Yield the rows of each part that is missing; of a table that can only be read from its first row on, all."""
    for rows in ranges_left(plan, output, partial(_count, plan)):
        if rows.stop is None or plan.inputs[rows.input].rows is None:
            yield rows
            continue
        for first in range(rows.first - rows.first % plan.part_rows, rows.stop, plan.part_rows):
            yield RowRange(rows.input, max(rows.first, first), min(rows.stop, first + plan.part_rows))


def _count(plan: ScorePlan, number: int, most: int) -> int:
    columns = plan.mapping_of(number).asked[:1]
    return sum(batch.count for batch in plan.inputs[number].read(columns, 0, most))


def _check_seen(output: OutputFolder, scored: ScoredRows) -> None:
    for name in scored.parts:
        if not (output.path / name).is_file():
            what = f"the part {name} was written, and is not here: nodes have folders of their own by this name"
            raise UsageError(
                what, where=str(output.path), hint="name an output folder that every node sees", code="part-not-found"
            )


def _scored(
    cluster: ClusterOptions,
    model: ActorModel,
    plan: ScorePlan,
    output: OutputFolder,
    missing: tuple[RowRange, ...],
    *,
    isolate: bool,
) -> Generator[ScoredRows, None, None]:
    """Yield what became of each range as it is done, in whatever order."""
    if not missing:
        return
    with connected(cluster):
        room = room_for(cluster, len(missing))
        job = ActorJob(
            plan=plan,
            model=_sent(model) if cluster.address is not None else model,
            output=str(output.path.absolute()),
            isolate=isolate,
            folder=str(Path.cwd()),
        )
        for batch in _mapped(job, missing, room).iter_batches(
            batch_size=None, batch_format="pyarrow", prefetch_batches=0
        ):
            for data in batch[OUTCOME].to_pylist():
                outcome = pickle.loads(data)  # noqa: S301 - of our own actors
                if isinstance(outcome, MarpackError):
                    raise outcome
                yield outcome


def _mapped(job: ActorJob, missing: tuple[RowRange, ...], room: ActorRoom) -> Any:  # Any: Ray's dataset
    ranges = ray.data.from_items([asdict(each) for each in missing], override_num_blocks=len(missing))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # nothing stands for `max_task_retries` yet
        return ranges.map_batches(
            PartScorer,
            fn_constructor_kwargs={"job": job},
            batch_size=1,
            batch_format="pyarrow",
            # Parts take long: none of them waits behind another while an actor has nothing to do.
            compute=ray.data.ActorPoolStrategy(size=room.actors, max_tasks_in_flight_per_actor=1),
            num_cpus=room.cpus,
            num_gpus=room.gpus,
            max_task_retries=RETRIES,
        )


def _sent(model: ActorModel) -> ActorModel:
    """Return the model with its archive's bytes, for nodes that do not see the file."""
    if not Path(model.path).is_file():
        return model
    with Path(model.path).open("rb") as file:
        pieces = tuple(ray.put(data) for data in iter(partial(file.read, _PIECE), b""))
    return replace(model, pieces=pieces)
