"""Bulk scoring: every row once and in order, whatever fails, in memory that batches bound."""

import gzip
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from refusals import has_code
from scoring.small_tables import InProcessPool, echo, plan_of, table, written

from marpack.errors import OutputError, UsageError
from marpack.runner.client import BatchResult
from marpack.runner.pool import Batch
from marpack.scoring.local import score
from marpack.scoring.mapping import RowMapping
from marpack.scoring.parts import OutputFolder
from marpack.scoring.plan import ErrorBound, PartFormat, ScorePlan, ScoreProgress, ScoreSettings, ScoreSummary
from marpack.scoring.tables import TableInput
from marpack.torchserve.http import Response

ECHO = RowMapping(text="t", keep=("id",), select={"echo": "echo"})


def scored(plan: ScorePlan, folder: Path, pool: Any = None, *, resume: bool = False, **settings: Any) -> ScoreSummary:
    with OutputFolder.open(folder, plan, resume=resume) as output:
        return score(pool or InProcessPool(), plan, output, ScoreSettings(**settings))


@pytest.mark.parametrize("batch_size", [1, 3, 100])
def test_every_row_is_there_once_and_in_order(tmp_path: Path, batch_size: int) -> None:
    one, two = table(tmp_path / "1.parquet", 1000), table(tmp_path / "2.parquet", 7)
    pool = InProcessPool()
    plan = plan_of(one, two, mapping=ECHO, batch_size=batch_size, part_rows=400)
    summary = scored(plan, tmp_path / "out", pool)
    found = written(tmp_path / "out")
    assert found.column_names == ["input", "row", "id", "echo", "status", "error"]
    assert found["input"].to_pylist() == [0] * 1000 + [1] * 7
    assert found["row"].to_pylist() == found["id"].to_pylist() == [*range(1000), *range(7)]
    assert found["echo"].to_pylist() == [f"text {number}" for number in (*range(1000), *range(7))]
    assert set(found["status"].to_pylist()) == {200}
    assert found["error"].null_count == 1007
    assert (summary.rows, summary.answered, summary.failed, summary.parts) == (1007, 1007, 0, 4)
    assert (summary.exceeded, summary.complete) == (False, True)
    assert summary.inputs == (one, two)
    assert [each for batch in pool.batches for each in batch] == found["echo"].to_pylist()
    assert max(map(len, pool.batches)) == min(batch_size, 400)
    parts = [f"part-{part}.parquet" for part in ("00000-000000000000", "00000-000000000400", "00000-000000000800")]
    assert sorted(each.name for each in (tmp_path / "out").iterdir()) == [*parts, "part-00001-000000000000.parquet"]


def test_rows_that_cannot_be_asked_are_failures_among_the_others(tmp_path: Path) -> None:
    texts = ["a", None, "bad", None, "b", "worse", "bad", "bad", "bad"]
    pool = InProcessPool()
    summary = scored(plan_of(table(tmp_path / "1.parquet", texts=texts), mapping=ECHO), tmp_path / "out", pool)
    found = written(tmp_path / "out")
    assert found["echo"].to_pylist() == ["a", None, None, None, "b", None, None, None, None]
    assert found["status"].to_pylist() == [200, 0, 503, 0, 200, 503, 503, 503, 503]
    errors = found["error"].to_pylist()
    assert errors[0] is None
    assert " t is null " in errors[1]
    assert (errors[2], errors[5]) == ("503 Sorry: ValueError: it is bad", "503 Sorry: ValueError: it is worse")
    assert (summary.rows, summary.answered, summary.failed) == (9, 2, 7)
    first, second = summary.causes
    assert (first.kind, first.rows, second.kind, second.rows) == ("503 Sorry: ValueError", 5, "unreadable-input", 2)
    assert [(each.row, each.message[-6:]) for each in first.examples] == [(2, "is bad"), (5, " worse"), (6, "is bad")]
    assert first.examples[0].input == str(tmp_path / "1.parquet")
    assert [each for batch in pool.batches for each in batch] == ["a", "bad", "b", "worse", "bad", "bad", "bad"]


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The rows that were read of each batch of a table."""
    counts: list[int] = []
    plain = TableInput.read

    def reading(self: TableInput, *args: Any) -> Iterator[Any]:
        for batch in plain(self, *args):
            counts.append(batch.count)
            yield batch

    monkeypatch.setattr(TableInput, "read", reading)
    return counts


@pytest.mark.parametrize("texts", [[None] * 40_000, ["a", *[None] * 40_000, "b", *[None] * 100]])
def test_rows_without_a_request_do_not_pile_up(tmp_path: Path, texts: list[str | None], read: list[int]) -> None:
    behind: list[int] = []

    class Progress(ScoreProgress):
        rows = 0

        def scored(self, rows: int, failed: int) -> None:
            self.rows += rows

    progress = Progress()

    class Watching(InProcessPool):
        def outcomes(self, batches: Iterable[Batch]) -> Iterator[BatchResult]:
            def each() -> Iterator[Batch]:
                for batch in batches:
                    behind.append(sum(read) - progress.rows)
                    yield batch
                behind.append(sum(read) - progress.rows)

            return super().outcomes(each())

    summary = scored(
        plan_of(table(tmp_path / "1.parquet", texts=texts)), tmp_path / "out", Watching(), progress=progress
    )
    assert summary.rows == len(texts) == written(tmp_path / "out").num_rows
    assert max(behind) <= 66 * 256 + 4096


def test_no_more_is_read_than_the_pool_takes(tmp_path: Path, read: list[int]) -> None:
    ahead: list[int] = []

    def answer(batch: Batch) -> BatchResult:
        ahead.append(sum(read))
        return echo(batch)

    scored(plan_of(table(tmp_path / "1.parquet", 20_000), batch_size=10), tmp_path / "out", InProcessPool(answer))
    assert all(before - 10 * number <= 4096 + 60 for number, before in enumerate(ahead))


@pytest.mark.parametrize(
    ("limit", "counts"), [(0, [0, 0]), (5, [5, 0]), (10, [10, 0]), (13, [10, 3]), (100, [10, 10]), (None, [10, 10])]
)
@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_the_limit_is_of_all_inputs_together(tmp_path: Path, limit: int | None, counts: list[int], suffix: str) -> None:
    words = [str(tmp_path / f"{number}.{suffix}") for number in range(2)]
    for word in words:
        if suffix == "csv":
            Path(word).write_text("id,t\n" + "".join(f"{row},text {row}\n" for row in range(10)))
        else:
            table(Path(word))
    plan = plan_of(*words, limit=limit, part_rows=4)
    summary = scored(plan, tmp_path / "out")
    assert summary.rows == sum(counts)
    if limit:
        found = written(tmp_path / "out")["input"].to_pylist()
        assert [found.count(number) for number in range(2)] == counts
        again = scored(plan, tmp_path / "out", resume=True)
        assert (again.rows, again.rows_before, again.parts) == (0, sum(counts), 0)


class DyingPool(InProcessPool):
    def __init__(self, batches: int) -> None:
        super().__init__()
        self._left = batches

    def outcomes(self, batches: Iterable[Batch]) -> Iterator[BatchResult]:
        for outcome in super().outcomes(batches):
            if self._left == 0:
                raise OutputError("the power fails")
            self._left -= 1
            yield outcome


@pytest.mark.parametrize("form", PartFormat)
@pytest.mark.parametrize("suffix", ["parquet", "jsonl.gz"])
def test_a_run_that_broke_off_is_gone_on_with(tmp_path: Path, form: PartFormat, suffix: str) -> None:
    texts: list[str | None] = [f"text {number}" if number % 7 else None for number in range(100)]
    path = tmp_path / f"1.{suffix}"
    if suffix == "parquet":
        table(path, texts=texts)
    else:
        lines = "".join(json.dumps({"id": number, "t": text}) + "\n" for number, text in enumerate(texts))
        path.write_bytes(gzip.compress(lines.encode()))
    more = table(tmp_path / "2.parquet", 5)
    plan = plan_of(str(path), more, mapping=RowMapping(text="t"), part_rows=30, format=form)
    whole = scored(plan, tmp_path / "whole")
    with pytest.raises(OutputError, match="the power fails"):
        scored(plan, tmp_path / "out", DyingPool(70))
    before = {each.name: each.stat().st_mtime_ns for each in (tmp_path / "out").iterdir()}
    assert len([name for name in before if name.startswith("part-")]) == 2
    pool = InProcessPool()
    rest = scored(plan, tmp_path / "out", pool, resume=True)
    assert (rest.rows_before, rest.rows, rest.parts) == (60, 45, 3)
    assert rest.failed + rest.failed_before == whole.failed == 15
    assert len(pool.batches) == 45 - rest.failed
    names = {each.name for each in (tmp_path / "whole").iterdir()}
    assert {each.name for each in (tmp_path / "out").iterdir()} == names
    assert all((tmp_path / "out" / name).stat().st_mtime_ns == when for name, when in before.items())
    if form is PartFormat.PARQUET:
        assert written(tmp_path / "out").equals(written(tmp_path / "whole"))
    (tmp_path / "out" / f"part-00000-000000000030.{form}").unlink()
    assert scored(plan, tmp_path / "out", resume=True).rows == 30
    for name in names:
        if form is PartFormat.JSONL or name.endswith(".parquet"):
            assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


@pytest.mark.parametrize(
    ("text", "failed", "rows", "over", "exceeded"),
    [
        *(("0", 0, 10, False, False), ("0", 1, 10, False, True), ("3", 3, 3, True, False), ("3", 4, 1000, False, True)),
        *(("5%", 99, 99, False, False), ("5%", 5, 100, False, False), ("5%", 6, 100, False, True)),
        *(("5%", 1, 10, True, True), ("10 %", 1, 10, True, False), ("0%", 1, 100, False, True)),
        *(("0.5%", 1, 150, False, True), ("100%", 200, 200, True, False)),
    ],
)
def test_a_bound_of_failures(text: str, failed: int, rows: int, over: bool, exceeded: bool) -> None:
    assert ErrorBound.parse(text).exceeded(failed, rows, over=over) is exceeded
    assert not ErrorBound().exceeded(failed, rows, over=over)


@pytest.mark.parametrize("text", ["", "x", "-1", "101%", "-1%", "5%%", "1.5", "nan%"])
def test_what_is_no_bound_is_refused(text: str) -> None:
    with pytest.raises(UsageError, check=has_code("invalid-error-bound", where="--max-errors")):
        ErrorBound.parse(text)


def test_too_many_failures_stop_the_run_and_whole_parts_stay(tmp_path: Path) -> None:
    texts: list[str | None] = [*["a"] * 2000, *["bad"] * 3000]
    pool = InProcessPool()
    plan = plan_of(table(tmp_path / "1.parquet", texts=texts), part_rows=600)
    summary = scored(plan, tmp_path / "out", pool, max_errors=ErrorBound(rows=10))
    assert (summary.exceeded, summary.complete, summary.parts) == (True, False, 3)
    assert written(tmp_path / "out").num_rows == 1800
    assert len(pool.batches) < 2600
    assert len(list((tmp_path / "out").iterdir())) == 3


def test_progress_is_told(tmp_path: Path) -> None:
    told: list[tuple[Any, ...]] = []

    class Progress(ScoreProgress):
        def began(self, rows: int | None, before: int) -> None:
            told.append(("began", rows, before))

        def scored(self, rows: int, failed: int) -> None:
            told.append((rows, failed))

    texts: list[str | None] = [*["a"] * 300, "bad"]
    plan = plan_of(table(tmp_path / "1.parquet", texts=texts), limit=301)
    scored(plan, tmp_path / "out", progress=Progress())
    assert told == [("began", 301, 0), (256, 0), (45, 1)]
    (tmp_path / "1.csv").write_text("id,t\n1,a\n")
    told.clear()
    scored(plan_of(str(tmp_path / "1.csv")), tmp_path / "more", progress=Progress())
    assert told == [("began", None, 0), (1, 0)]


@pytest.mark.parametrize("form", PartFormat)
def test_the_summary_is_of_parts_that_are_as_they_were_written(tmp_path: Path, form: PartFormat) -> None:
    class Damage(ScoreProgress):
        def ended(self) -> None:
            path = min((tmp_path / "out").glob("part-*"))
            path.write_bytes(path.read_bytes().replace(b"text", b"next"))

    with pytest.raises(OutputError):
        scored(plan_of(table(tmp_path / "in.parquet"), format=form), tmp_path / "out", progress=Damage())


def test_a_folder_of_files_is_sent_file_by_file(tmp_path: Path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    for name in ("b.txt", "a.txt"):
        (folder / name).write_text(f"in {name}")
    plan = plan_of(str(folder), mapping=RowMapping(body="body", keep=("path",), select={"echo": "echo"}))
    (folder / "a.txt").unlink()
    summary = scored(plan, tmp_path / "out")
    found = written(tmp_path / "out")
    assert found["path"].to_pylist() == ["a.txt", "b.txt"]
    assert found["echo"].to_pylist() == [None, "in b.txt"]
    assert (summary.failed, summary.causes[0].kind) == (1, "unreadable-input")


def test_a_batch_that_failed_is_asked_again_row_by_row(tmp_path: Path) -> None:
    def answer(batch: Batch) -> BatchResult:
        outcome = echo(batch)
        if all(response.status == 200 for response in outcome.responses):
            return outcome
        failed = tuple(Response(status=503, body=b"", phrase="Sorry", failed=True) for _ in batch)
        return BatchResult(responses=failed, troubles=outcome.troubles)

    texts: list[str | None] = ["a", "bad", None, "b", "worse", "c", "d", "e", "bad"]
    pool = InProcessPool(answer)
    plan = plan_of(table(tmp_path / "1.parquet", texts=texts), mapping=ECHO, batch_size=3)
    summary = scored(plan, tmp_path / "out", pool, isolate=True)
    found = written(tmp_path / "out")
    assert found["echo"].to_pylist() == ["a", None, None, "b", None, "c", "d", "e", None]
    errors = [(error or "").rpartition(": ")[2] for error in found["error"].to_pylist()]
    assert (errors[1], errors[4], errors[8], summary.failed) == ("it is bad", "it is worse", "it is bad", 4)
    batches = [("a", "bad", "b"), ("worse", "c", "d"), ("e", "bad")]
    assert sorted(pool.batches) == sorted([*batches, *((text,) for batch in batches for text in batch)])
