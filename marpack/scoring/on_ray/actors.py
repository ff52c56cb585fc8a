"""The actors: each loads the model once, and scores parts as one machine does."""

import os
import pickle
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import ray
from msgspec import Struct

from marpack.archive.index import content_identity
from marpack.archive.reader import open_archive
from marpack.archive.staging import staged_file
from marpack.errors import ArchiveError, MarpackError, OutputError, UsageError, convert_os_errors
from marpack.runner.session import Session
from marpack.scoring.local import RowRange, score_range
from marpack.scoring.parts import OutputFolder
from marpack.scoring.plan import ScoredRows, ScorePlan
from marpack.version import __version__

OUTCOME = "outcome"  # the column of the results: for each range a ScoredRows or an error, pickled


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
            hint = "put it where every node finds it under this name, or score from a .mar"
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
            what = f"marpack {__version__} is installed on this node, and {self.version} on the driver's"
            raise UsageError(what, hint="install the same version on all nodes", code="version-mismatch")
        with suppress(OSError):  # files below it are then reported as missing
            os.chdir(self.folder)
        if not Path(self.output).is_dir():
            what, hint = "the output folder does not exist on this node", "name one that every node can reach"
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
