"""What an actor does: the model loaded once, then parts scored as one machine does it."""

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
from marpack.errors import ArchiveError, MarpackError, OutputError, UsageError
from marpack.runner.session import Session
from marpack.scoring.local import RowRange, score_range
from marpack.scoring.parts import OutputFolder
from marpack.scoring.plan import ScorePlan
from marpack.scoring.summary import ScoredRows
from marpack.version import __version__

OUTCOME = "outcome"  # the column that comes back: of each range a ScoredRows, or what nothing can go on after, pickled


class ActorModel(Struct, frozen=True, kw_only=True):
    """The archive that actors load, and how."""

    path: str  # where it lies for whoever sees the same files
    digest: str
    open: Callable[[str], Session]  # of an archive's path
    cache: Callable[[], Path]  # returns the folder that an archive's copy goes to
    pieces: tuple[Any, ...] = ()  # Any: references to Ray's objects, its bytes in order

    def located(self) -> str:
        """Return where the archive lies here, having copied it if need be; raises ArchiveError and UsageError."""
        if _has_digest(Path(self.path), self.digest):
            return self.path
        if not self.pieces:
            hint = "put it where every node sees it under this name, or score from a .mar"
            raise UsageError(
                "the archive is not here, or another one", where=self.path, hint=hint, code="archive-not-found"
            )
        copy = self.cache() / "copies" / f"{self.digest.rpartition(':')[2]}.mar"
        if not _has_digest(copy, self.digest):
            _write(copy, self.pieces)
        return str(copy)


def _has_digest(path: Path, digest: str) -> bool:
    with suppress(ArchiveError, OSError):
        if path.exists():
            with open_archive(path) as archive:
                return content_identity(archive) == digest
    return False


def _write(path: Path, pieces: tuple[Any, ...]) -> None:  # Any: as above
    try:
        with staged_file(path, replace=True) as file:
            for piece in pieces:
                file.write(ray.get(piece))
    except OSError as error:
        raise OutputError(f"the archive cannot be copied to here: {error.strerror}", where=str(path)) from error


class ActorJob(Struct, frozen=True, kw_only=True):
    """What is the same for all parts of a run."""

    plan: ScorePlan
    model: ActorModel
    output: str
    isolate: bool
    folder: str  # that names of inputs are relative to
    version: str = __version__

    def enter(self) -> None:
        """Go to the run's folder; raises UsageError on a node that is not like the one where the run was started."""
        if self.version != __version__:
            hint = "install the same on all nodes"
            raise UsageError(
                f"marpack {__version__} is installed, where the run is of {self.version}",
                hint=hint,
                code="version-mismatch",
            )
        with suppress(OSError):  # whatever is relative to it is missing, and said to be
            os.chdir(self.folder)
        if not Path(self.output).is_dir():
            raise UsageError(
                "the output folder is not here",
                where=self.output,
                hint="name one that every node sees",
                code="output-folder-not-found",
            )


class PartScorer:
    """Scores ranges of rows, for as long as its actor lives."""

    def __init__(self, job: ActorJob) -> None:
        """Take a run; its model is loaded with the first rows, so that what fails then is told as all else is."""
        self._job = job
        self._session: Session | None = None

    def __call__(self, ranges: Any) -> Any:  # Any: pyarrow's tables
        """Return what became of each range, pickled: a ScoredRows, or the error that nothing can go on after."""
        outcomes = [pickle.dumps(self._outcome(RowRange(**row))) for row in ranges.to_pylist()]
        return pa.table({OUTCOME: pa.array(outcomes, pa.binary())})

    def _outcome(self, rows: RowRange) -> ScoredRows | MarpackError:
        # As a value: Ray would log an exception, put its own traceback around it and tell it as a failure of Ray's.
        try:
            return self._score(rows)
        except MarpackError as error:
            node = f"on node {ray.util.get_node_ip_address()}"
            error.where = f"{error.where} {node}" if error.where else node
            return error

    def _score(self, rows: RowRange) -> ScoredRows:
        job = self._job
        if self._session is None:
            job.enter()
            self._session = job.model.open(job.model.located())
        output = OutputFolder(Path(job.output), job.plan)
        return score_range(self._session.pool, job.plan, output, rows, isolate=job.isolate)
