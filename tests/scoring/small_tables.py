"""Plans over small tables, and a pool that answers in this process."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from lazy import pa, pq

from marpack.protocol.messages import Trouble
from marpack.runner.client import BatchResult
from marpack.runner.pool import Batch
from marpack.scoring.mapping import RowMapping
from marpack.scoring.plan import ScorePlan
from marpack.scoring.tables import plan_tables
from marpack.torchserve.http import Response

TEXT = RowMapping(text="t", keep=("id",))


def table(path: Path, rows: int = 10, texts: list[str | None] | None = None) -> str:
    """Write a Parquet file of the columns id and t."""
    texts = texts or [f"text {number}" for number in range(rows)]
    pq.write_table(pa.table({"id": list(range(len(texts))), "t": texts}), path, row_group_size=7)
    return str(path)


def plan_of(*words: str, mapping: RowMapping = TEXT, **details: Any) -> ScorePlan:
    """Return a plan over tables, of an archive "mar-1"."""
    tables = plan_tables(words, mapping)
    return ScorePlan(
        **{"archive": "mar-1", "mapping": mapping, "inputs": tables.inputs, "kept": tables.kept, **details}
    )


def echo(batch: Batch) -> BatchResult:
    """Answer each request with its body in JSON; "bad" and "worse" fail."""
    return BatchResult(responses=tuple(_echoed(each.parts[0].value) for each in batch), troubles=_troubles(batch))


def _echoed(body: bytes) -> Response:
    if body in {b"bad", b"worse"}:
        return Response(status=503, body=b"{}", phrase="Sorry")
    return Response(status=200, body=b'{"echo": "%s"}' % body)


def _troubles(batch: Batch) -> tuple[Trouble, ...]:
    bad = [each.parts[0].value.decode() for each in batch if each.parts[0].value in {b"bad", b"worse"}]
    return tuple(Trouble(kind="ValueError", message=f"it is {word}") for word in bad)


class InProcessPool:
    """Answers some batches behind those that it asks for, in order."""

    def __init__(self, answer: Callable[[Batch], BatchResult] = echo, ahead: int = 5) -> None:
        self._answer = answer
        self._ahead = ahead
        self.batches: list[tuple[str, ...]] = []  # the bodies that were asked
        self.calls = 0

    def outcomes(self, batches: Iterable[Batch]) -> Iterator[BatchResult]:
        self.calls += 1
        waiting: deque[Batch] = deque()
        for batch in batches:
            self.batches.append(tuple(each.parts[0].value.decode() for each in batch))
            waiting.append(batch)
            if len(waiting) > self._ahead:
                yield self._answer(waiting.popleft())
        while waiting:
            yield self._answer(waiting.popleft())


def written(folder: Path) -> pa.Table:
    """Return all rows of a folder, in the order of its parts."""
    parts = sorted(folder.glob("*.parquet"))
    return pa.concat_tables([pq.read_table(part) for part in parts])
