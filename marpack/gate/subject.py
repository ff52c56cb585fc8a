"""What the checks look at: one archive, what is known of it, and workers to ask."""

import os
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from msgspec import Struct
from msgspec.structs import replace

from marpack.archive.index import Index
from marpack.archive.protocol import INDEX_NAME, Archive
from marpack.gate.comparing import differences
from marpack.inspection.facts import Inspection
from marpack.inspection.inspect import inspect
from marpack.project.source import Resolved
from marpack.runtime.messages import Load, Request
from marpack.runtime.targets import Target
from marpack.worker.inputs import Shape, type_of
from marpack.worker.pool import LocalPool, Settings
from marpack.worker.results import Result, results_of


class Sample(Struct, frozen=True):
    """One input packed with the archive, and what is expected of its answer."""

    name: str  # of the file under MAR-INF/
    data: bytes
    expected: dict[str, Any]  # Any: as in marpack.yaml; empty: any 2xx

    @property
    def request(self) -> Request:
        """The request that `marpack run --input` would make of it."""
        return Shape().raw(0, type_of(self.name, self.data), self.data)


class Subject:
    """An archive under examination; what is costly is done when first asked for, once."""

    def __init__(self, resolved: Resolved, archive: Archive, load: Load, settings: Settings) -> None:
        self.resolved = resolved
        self.archive = archive
        self.load = load
        self.settings = settings
        self._pool: LocalPool | None = None
        self._alone: dict[str, Result] = {}
        self._steady: dict[str, bool] = {}
        self._folder = Path()
        self._pristine: dict[str, tuple[int, int]] | None = None

    @property
    def target(self) -> Target:
        """Whose behaviour counts."""
        return self.load.target

    @cached_property
    def inspection(self) -> Inspection:
        """Everything known without running it, every digest recomputed."""
        return inspect(self.archive, verify=True)

    @cached_property
    def samples(self) -> tuple[Sample, ...]:
        """The samples packed under MAR-INF/."""
        if INDEX_NAME not in self.archive.entries:
            return ()
        index = Index.from_json(self.read(INDEX_NAME))
        return tuple(
            Sample(str(sample["input"]), self.read(str(sample["input"])), dict(sample.get("expect") or {}))
            for sample in index.samples
            if str(sample["input"]) in self.archive.entries
        )

    def read(self, name: str) -> bytes:
        """Return the bytes of one small member."""
        with self.archive.open(name) as file:
            return file.read()

    @cached_property
    def config(self) -> dict[str, Any]:
        """The model config, empty if there is none or it is no mapping."""
        facts = self.inspection.config
        return facts.value if facts is not None and isinstance(facts.value, dict) else {}

    @property
    def pool(self) -> LocalPool:
        """One worker with the model loaded; raises LoadError and WorkerError the first time."""
        if self._pool is None:
            self._folder = self.archive.materialize()
            self._pristine = _files(self._folder)
            self._pool = self.start(replace(self.load, model_dir=str(self._folder)))
        return self._pool

    def start(self, load: Load) -> LocalPool:
        """Return a further pool with the model loaded in another way; its user closes it."""
        pool = LocalPool(load, self.settings)
        try:
            pool.start()
        except BaseException:
            pool.kill()
            raise
        return pool

    def other(self, **changes: Any) -> LocalPool:
        """Return a pool that differs from the first in some fields of `Load`."""
        return self.start(replace(self.load, model_dir=str(self._folder), **changes))

    def alone(self, sample: Sample) -> Result:
        """Return a sample's answer when it is handled alone; asked once, remembered."""
        if sample.name not in self._alone:
            self._alone[sample.name] = self.ask([sample])[0]
        return self._alone[sample.name]

    def ask(self, samples: Iterable[Sample], *, size: int = 1, pool: LocalPool | None = None) -> list[Result]:
        """Return the answers to some samples, handled `size` at a time."""
        return self.send([(sample.name, sample.request) for sample in samples], size=size, pool=pool)

    def send(
        self, requests: list[tuple[str, Request]], *, size: int = 1, pool: LocalPool | None = None
    ) -> list[Result]:
        """Return the answers to some named requests, handled `size` at a time."""
        groups = [requests[start : start + size] for start in range(0, len(requests), size)]
        batches = [tuple(request for _, request in group) for group in groups]
        outcomes = (pool or self.pool).outcomes(batches)
        return [
            result
            for group, outcome in zip(groups, outcomes, strict=True)
            for result in results_of(tuple(name for name, _ in group), outcome)
        ]

    def is_steady(self, sample: Sample) -> bool:
        """Say whether a sample gets the same answer when it is asked twice; only then can others be held against it."""
        if sample.name not in self._steady:
            self._steady[sample.name] = not differences(self.alone(sample), self.ask([sample])[0])
        return self._steady[sample.name]

    @cached_property
    def answered(self) -> tuple[Sample, ...]:
        """The samples that get a 2xx when handled alone: only those can be compared."""
        return tuple(sample for sample in self.samples if self.alone(sample).ok)

    def written(self) -> list[str]:
        """Return what the handler wrote, changed or removed in the model folder since it was loaded."""
        if self._pristine is None:
            return []
        now = _files(self._folder)
        names = sorted(self._pristine.keys() | now.keys())
        return [name for name in names if self._pristine.get(name) != now.get(name)]

    def close(self) -> None:
        """End the worker and close the archive."""
        if self._pool is not None:
            self._pool.close()
        self.archive.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _files(folder: Path) -> dict[str, tuple[int, int]]:
    """Return size and time of every file below a folder; bytecode, which any import writes, apart."""
    found = {}
    for root, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name != "__pycache__"]
        for name in names:
            path = Path(root, name)
            status = path.lstat()
            found[str(path.relative_to(folder))] = (status.st_size, status.st_mtime_ns)
    return found
