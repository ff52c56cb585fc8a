"""Bulk scoring on a cluster: the driver distributes the missing ranges, and actors score them as one machine does."""

import logging
import os
import pickle
import signal
import socket
import time
import warnings
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import ray
import ray.data
from msgspec import Struct
from msgspec.structs import asdict, replace

from marpack.archive.index import content_identity
from marpack.archive.reader import open_archive
from marpack.archive.staging import staged_file
from marpack.errors import (
    ArchiveError,
    ClusterError,
    MarpackError,
    OutputError,
    UsageError,
    convert_os_errors,
    first_line,
    pluralize,
)
from marpack.runner.session import Session
from marpack.scoring.local import RowRange, ranges_left, score_range
from marpack.scoring.parts import OutputFolder
from marpack.scoring.plan import ScoredRows, ScorePlan, ScoreSettings, ScoreSummary, ScoreTotals
from marpack.version import __version__

OUTCOME = "outcome"  # the column of the results: for each range a ScoredRows or an error, pickled
_PIECE = 64 << 20  # bytes of an archive that are sent at once
RETRIES = 5  # of a part whose actor died or cannot be reached
_STORE = 128 << 20  # bytes of the object store of a cluster started here: figures are all that goes through it
_CONNECT_SECONDS = 5.0
_RESUME = "Complete parts are kept: run the same command with --resume."


class ActorModel(Struct, frozen=True, kw_only=True):
    """The archive that actors load."""

    path: str  # on nodes that share the files
    digest: str
    open: Callable[[str], Session]  # of an archive's path
    cache: Callable[[], Path]  # returns the folder for copies of archives
    pieces: tuple[Any, ...] = ()  # Any: references to Ray's objects, its bytes in order

    def located(self) -> str:
        """Return the archive's path on this node; copy it here if necessary. Raises OutputError, UsageError."""
        if _has_digest(Path(self.path), self.digest):
            return self.path
        if not self.pieces:
            what = "the archive is missing on this node, or another one"
            hint = "Put it in a folder that every node can read, or score from a .mar."
            raise UsageError(what, where=self.path, hint=hint, code="archive-not-found")
        copy = self.cache() / "copies" / f"{self.digest.rpartition(':')[2]}.mar"
        if not _has_digest(copy, self.digest):
            failure = "the archive cannot be copied to this node"
            with convert_os_errors(OutputError, failure, where=str(copy)), staged_file(copy, replace=True) as file:
                for piece in self.pieces:
                    file.write(ray.get(piece))
        return str(copy)


def _has_digest(path: Path, digest: str) -> bool:
    with suppress(ArchiveError, OSError):
        if path.exists():
            with open_archive(path) as archive:
                return content_identity(archive) == digest
    return False


class ActorJob(Struct, frozen=True, kw_only=True):
    """The common part of all ranges of a run."""

    plan: ScorePlan
    model: ActorModel
    output: str
    isolate: bool
    folder: str  # that names of inputs are relative to
    version: str = __version__

    def enter(self) -> None:
        """Go to the run's folder; raise UsageError on a node that differs from the driver's."""
        if self.version != __version__:
            what = f"this node has marpack {__version__}, but the driver has {self.version}"
            raise UsageError(what, hint="Install the same version on all nodes.", code="version-mismatch")
        with suppress(OSError):  # files below it are then reported as missing
            os.chdir(self.folder)
        if not Path(self.output).is_dir():
            what, hint = "the output folder does not exist on this node", "Name a folder that every node can reach."
            raise UsageError(what, where=self.output, hint=hint, code="output-folder-not-found")


class PartScorer:
    """Scores ranges of rows, for as long as its actor lives."""

    def __init__(self, job: ActorJob) -> None:
        """Take a run; its model is loaded with the first rows, so that its errors are returned as all others."""
        self._job = job
        self._session: Session | None = None

    def __call__(self, ranges: Any) -> Any:  # Any: pyarrow's tables
        """Return the outcome of each range, pickled: a ScoredRows, or the error that ended it."""
        outcomes = [pickle.dumps(self._score(RowRange(**row))) for row in ranges.to_pylist()]
        return pa.table({OUTCOME: pa.array(outcomes, pa.binary())})

    def _score(self, rows: RowRange) -> ScoredRows | MarpackError:
        job = self._job
        try:
            if self._session is None:
                job.enter()
                self._session = job.model.open(job.model.located())
            output = OutputFolder(Path(job.output), job.plan)
            return score_range(self._session.pool, job.plan, output, rows, isolate=job.isolate)
        except MarpackError as error:  # returned: Ray would log it and wrap it into an error of its own
            node = f"on node {ray.util.get_node_ip_address()}"
            error.where = f"{error.where} {node}" if error.where else node
            return error


class ClusterOptions(Struct, frozen=True, kw_only=True):
    """The cluster, and the resources of each actor."""

    address: str | None = None  # HOST:PORT, or "auto" for the one that this machine belongs to; None: started here
    actors: int | None = None  # None: as many as there is room for
    cpus: int = 1  # of an actor
    gpu: bool | None = None  # whether an actor has one; None: if the cluster has any


def _room_for(cluster: ClusterOptions, parts: int) -> tuple[int, int]:
    """Return the number of actors, and of GPUs for each; raise UsageError if some actors would wait for ever."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    has_gpu = any(node.get("GPU") for node in nodes) if cluster.gpu is None else cluster.gpu
    each = {"CPU": cluster.cpus} | ({"GPU": 1} if has_gpu else {})
    needs = " and ".join(pluralize(count, name) for name, count in each.items())

    def fitting(resources: dict[str, float]) -> int:
        return min(int(resources.get(name, 0) // count) for name, count in each.items())

    most = sum(map(fitting, nodes))
    if not most:
        raise UsageError(
            f"no node of the cluster has {needs} for an actor", hint="Reduce --workers, use --device cpu, or add nodes."
        )
    actors = cluster.actors or min(most, max(1, fitting(ray.available_resources())))
    if actors > most:
        what = f"the cluster has resources for {pluralize(most, 'actor')} with {needs} each"
        raise UsageError(what, where=f"--actors {cluster.actors}", hint=f"Use --actors {most}, or add nodes first.")
    return min(actors, parts), int(has_gpu)


def score(
    cluster: ClusterOptions, model: ActorModel, plan: ScorePlan, output: OutputFolder, settings: ScoreSettings
) -> ScoreSummary:
    """Have a cluster score all rows that are in no part of the output yet.

    Raises UsageError for a cluster that does not respond or has no room, ClusterError for a lost one, and the errors of
    actors; see `marpack.scoring.local.score`. Whole parts stay.
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
                _check_visible(output, scored)
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
    """Yield the rows of each missing part; all rows of a table that can only be read from its first row on."""

    def count(number: int, most: int) -> int:
        columns = plan.mapping_of(number).request_columns[:1]
        return sum(batch.count for batch in plan.inputs[number].read(columns, 0, most))

    for rows in ranges_left(plan, output, count):
        if rows.stop is None or plan.inputs[rows.input].rows is None:
            yield rows
            continue
        for first in range(rows.first - rows.first % plan.part_rows, rows.stop, plan.part_rows):
            yield RowRange(rows.input, max(rows.first, first), min(rows.stop, first + plan.part_rows))


def _check_visible(output: OutputFolder, scored: ScoredRows) -> None:
    for name in scored.parts:
        if not (output.path / name).is_file():
            what = f"an actor wrote the part {name} to another folder of this name, on its own node"
            hint = "Name an output folder that every node can reach."
            raise UsageError(what, where=str(output.path), hint=hint, code="part-not-found")


def _scored(
    cluster: ClusterOptions,
    model: ActorModel,
    plan: ScorePlan,
    output: OutputFolder,
    missing: tuple[RowRange, ...],
    *,
    isolate: bool,
) -> Generator[ScoredRows, None, None]:
    """Yield the result of each range when it is done, in any order."""
    if not missing:
        return
    with _connected(cluster):
        actors, gpus = _room_for(cluster, len(missing))
        path = Path(model.path)
        if cluster.address is not None and path.is_file():  # other nodes may not have the file
            with path.open("rb") as file:
                model = replace(model, pieces=tuple(ray.put(data) for data in iter(partial(file.read, _PIECE), b"")))
        output_path, folder = str(output.path.absolute()), str(Path.cwd())
        job = ActorJob(plan=plan, model=model, output=output_path, isolate=isolate, folder=folder)
        ranges = ray.data.from_items([asdict(each) for each in missing], override_num_blocks=len(missing))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # `max_task_retries` has no replacement yet
            results = ranges.map_batches(
                PartScorer,
                fn_constructor_kwargs={"job": job},
                batch_size=1,
                batch_format="pyarrow",
                # Parts take long: none of them waits for another while an actor is idle.
                compute=ray.data.ActorPoolStrategy(size=actors, max_tasks_in_flight_per_actor=1),
                num_cpus=cluster.cpus,
                num_gpus=gpus,
                max_task_retries=RETRIES,
            )
        for batch in results.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=0):
            for data in batch[OUTCOME].to_pylist():
                outcome = pickle.loads(data)  # noqa: S301 - of our own actors
                if isinstance(outcome, MarpackError):
                    raise outcome
                yield outcome


@contextmanager
def _connected(cluster: ClusterOptions) -> Iterator[None]:
    """Connect to a cluster, or start one on this machine, which ends with the block."""
    on_sigterm, address = signal.getsignal(signal.SIGTERM), cluster.address
    # Ray's log files have its messages: the terminal stays clear.
    ray.data.DataContext.get_current().enable_progress_bars = False
    for handler in logging.getLogger("ray.data").handlers:
        if isinstance(handler, logging.StreamHandler):
            handler.setLevel(logging.CRITICAL + 1)
    try:
        start = {"include_dashboard": False, "object_store_memory": _STORE} if address is None else {}
        try:
            _check_address(address)
            ray.init(address or "local", log_to_driver=False, logging_level=logging.CRITICAL, **start)
        except (OSError, ValueError, RuntimeError, ray.exceptions.RayError) as error:
            if address is None:
                what, hint = f"Ray cannot be started on this machine: {first_line(error)}", "Read the logs in /tmp/ray."
                raise ClusterError(what, hint=hint) from error
            hint = "Name the HOST:PORT of a head node, or leave out --address to start Ray on this machine."
            what = f"no Ray cluster responds: {first_line(error)}"
            raise UsageError(what, where=f"--address {address}", hint=hint) from error
        signal.signal(signal.SIGTERM, on_sigterm)  # Ray replaced the command's handler by its own
        yield
    except ray.exceptions.RayActorError as error:
        what = f"a part was tried {RETRIES + 1} times, and each time its actor died or could not be reached"
        hint = f"Check the nodes' memory and Ray's logs. {_RESUME}"
        raise ClusterError(what, hint=hint, code="actor-lost") from error
    except ray.exceptions.RayError as error:
        last = str(error).strip().rpartition("\n")[2]  # after the traceback of another process
        reason = first_line(Exception(last)) if last else type(error).__name__
        raise ClusterError(f"Ray failed: {reason}", hint=f"Read Ray's logs. {_RESUME}") from error
    finally:
        ray.shutdown()


def _check_address(address: str | None) -> None:
    """Raise OSError if nothing listens at an address, which Ray takes minutes to find out."""
    if address is None or address == "auto":
        return
    if "://" in address:
        what = "Ray's client mode is not supported: parts are planned and counted on the node of the output folder"
        hint = "Run marpack on a node of the cluster with --address auto, or name its HOST:PORT."
        raise UsageError(what, where=f"--address {address}", hint=hint)
    host, _, port = address.rpartition(":")
    if port.isdecimal() and host:
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_SECONDS).close()
