"""Tables: found by words, looked at before anything starts, read in batches of bounded size."""

import errno
import gzip
import os
import random
import re
import string
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lazy import pa, pq
from refusals import has_code

from marpack.errors import TableError, UsageError
from marpack.scoring import tables
from marpack.scoring.mapping import RowMapping
from marpack.scoring.tables import TableInput, TableKind, UnreadableValue, plan_tables

TEXT = RowMapping(text="t")


def rows_of(count: int) -> Any:
    return pa.table({"id": list(range(count)), "t": [f"text {number}" for number in range(count)]})


def parquet(path: Path, rows: int = 10) -> Path:
    pq.write_table(rows_of(rows), path, row_group_size=4)
    return path


def arrow(path: Path, rows: int = 10) -> Path:
    table = rows_of(rows)
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=4)
    return path


def text(path: Path, rows: int = 10) -> Path:
    """Write a CSV, or JSONL."""
    if ".csv" in path.name:
        text = "id,t\r\n" + "".join(f'{number},"text {number}"\r\n' for number in range(rows))
    else:
        text = "\n".join(f'{{"id": {number}, "t": "text {number}"}}' for number in range(rows))
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


WRITERS: dict[str, Callable[[Path], Path]] = {
    "a.parquet": parquet,
    "a.arrow": arrow,
    "a.feather": arrow,
    **dict.fromkeys(("a.csv", "a.csv.gz", "a.jsonl", "a.jsonl.gz", "a.NDJSON"), text),
    "plain": parquet,
    "bare": arrow,
}


def only(*words: object, mapping: RowMapping = TEXT) -> TableInput:
    (table,) = plan_tables([str(word) for word in words], mapping).inputs
    return table


def refused(*words: object) -> UsageError:
    with pytest.raises(UsageError) as caught:
        only(*words)
    return caught.value


def values(table: TableInput, column: str, start: int = 0, stop: int | None = None) -> list[Any]:
    found: list[Any] = []
    for batch in table.read([column], start, stop):
        assert batch.first == start + len(found)
        column_of = batch.columns[column]
        found += column_of.to_pylist() if isinstance(column_of, pa.Array) else column_of
        assert batch.first + batch.count == start + len(found)
    return found


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize(
    ("start", "stop"), [(0, None), (0, 3), (3, 9), (4, 8), (5, None), (9, 10), (10, None), (11, 12), (0, 100)]
)
def test_any_range_of_rows_is_read(tmp_path: Path, name: str, start: int, stop: int | None) -> None:
    table = only(WRITERS[name](tmp_path / name))
    assert values(table, "t", start, stop) == [f"text {number}" for number in range(10)][start:stop]
    assert table.rows == (10 if table.kind is TableKind.PARQUET else None)


def test_row_groups_before_the_start_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = only(parquet(tmp_path / "a.parquet"))
    asked: list[list[int]] = []
    plain = pq.ParquetFile.iter_batches

    def recorded(self: Any, *args: Any, row_groups: list[int], **options: Any) -> Any:
        asked.append(row_groups)
        return plain(self, *args, row_groups=row_groups, **options)

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", recorded)
    assert values(table, "t", 8) == ["text 8", "text 9"]
    assert values(table, "t", 7, 8) == ["text 7"]
    assert asked == [[2], [1, 2]]


@pytest.mark.parametrize("name", ["a.parquet", "a.csv", "a.jsonl"])
def test_batches_are_bounded_in_rows_and_bytes(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "_BATCH_ROWS", 4)
    monkeypatch.setattr(tables, "_BATCH_BYTES", 1000)
    letters = random.Random(0)
    large = ["".join(letters.choices(string.ascii_letters, k=600)) for _ in range(6)]
    path = tmp_path / name
    if name == "a.parquet":
        pq.write_table(pa.table({"t": large}), path)
    elif name == "a.csv":
        path.write_text("\n".join(["t", *large]))
    else:
        path.write_text("\n".join(f'{{"t": "{each}"}}' for each in large))
    counts = [batch.count for batch in only(path).read(["t"])]
    assert sum(counts) == 6
    assert max(counts) <= 2
    small = WRITERS[name](tmp_path / f"small-{name}")
    assert max(batch.count for batch in only(small).read(["t"])) == 4


def test_words_are_taken_in_their_order_and_names_in_theirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("b/2.csv", "b/10.csv", "b/sub/a.csv", "a.csv", "b/_SUCCESS", "b/.part.crc", "b/.x/y.csv"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        text(tmp_path / name)
    text(tmp_path / "c.jsonl")
    words = [tmp_path / "c.jsonl", tmp_path / "b", tmp_path / "*.csv"]
    tables = plan_tables([str(word) for word in words], TEXT).inputs
    assert [table.name.removeprefix(f"{tmp_path}/") for table in tables] == [
        *("c.jsonl", "b/10.csv", "b/2.csv", "b/sub/a.csv", "a.csv")
    ]

    monkeypatch.chdir(tmp_path)  # relative names stay relative
    names = {"a.csv": "a.csv", "b/sub": "b/sub/a.csv", "*.csv": "a.csv", "**/10.csv": "b/10.csv"}
    assert {word: only(word).name for word in names} == names


FILES = RowMapping(body="body", keep=("path",))


def test_a_folder_of_other_files_is_one_table_of_a_row_each(tmp_path: Path) -> None:
    folder = tmp_path / "pictures"
    for name in ("b/2.png", "a.json", "b/1.png"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(name.encode())
    tables = plan_tables([str(folder)], FILES)
    (table,) = tables.inputs
    assert (table.kind, table.rows, table.files) == (TableKind.FILES, 3, ("a.json", "b/1.png", "b/2.png"))
    assert tables.kept == (pa.field("path", pa.string()),)
    assert values(table, "path") == ["a.json", "b/1.png", "b/2.png"]
    assert values(table, "path", 1, 2) == ["b/1.png"]
    mapping = table.mapping(FILES)
    assert (mapping.source, mapping.request_columns, mapping.root) == ("path", ("path",), str(folder))
    state = table.state
    assert state.size == len("b/2.pnga.jsonb/1.png")
    (folder / "a.json").write_bytes(b"something else")
    assert only(folder, mapping=FILES).state != state
    assert refused(folder).code == "not-a-table"
    assert only(folder / "b" / "*.png", mapping=FILES).files == ("1.png", "2.png")
    assert only(folder / "b" / "1.png", mapping=FILES).files == ("1.png",)
    (folder / os.fsdecode(b"\xff.png")).write_bytes(b"x")  # no column can hold this name
    with pytest.raises(UsageError, match="not UTF-8"):
        plan_tables([str(folder)], FILES)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.parquet", b"", "cannot be read as parquet"),
        ("a.parquet", b"PAR1" + b"x" * 100, "cannot be read as parquet"),
        ("a.arrow", b"ARROW1\0\0xxxx", "cannot be read as arrow"),
        ("a.csv", b"", "has no header"),
        ("a.csv", b"a,b\n1,2\n", "the column t"),
        ("a.csv", b"t,t\n1,2\n", "several columns t"),
        ("a.csv.gz", b"t\n1\n", "cannot be read as csv"),
        ("a.jsonl", b"", "has no rows"),
        ("a.jsonl", b"\n \n", "has no rows"),
        ("a.jsonl", b"[1]\n", "not a JSON object"),
        ("a.jsonl", b'"t"', "not a JSON object"),
        ("a.jsonl", b"t\n", "not a JSON object"),
        ("a.jsonl", b'{"u": 1}', "the column t"),
        ("a.jsonl.gz", gzip.compress(b'{"t": 1}', mtime=0)[:-9], "cannot be read as jsonl"),
        ("none", b"hello", "these files are not tables"),
    ],
)
def test_what_is_no_table_is_refused_before_anything_starts(tmp_path: Path, name: str, content: bytes, message: str):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UsageError, match=message) as caught:
        only(tmp_path / name)
    assert str(tmp_path) in str(caught.value.where)


def test_words_that_stand_for_nothing_are_told(tmp_path: Path) -> None:
    text(tmp_path / "table.csv")
    error = refused(tmp_path / "tabel.csv")
    assert error.code == "input-not-found"
    assert "table.csv?" in str(error.hint)
    (tmp_path / "empty").mkdir()
    assert refused(tmp_path / "empty").code == "no-files"
    assert refused(tmp_path / "*.jsonl").code == "no-files"
    assert refused(tmp_path / "table.csv", tmp_path / "*.csv").code == "duplicate-table"
    (tmp_path / "notes.txt").write_text("x")
    error = refused(tmp_path)
    assert error.code == "mixed-folder"
    assert " notes.txt" in error.what


def test_kept_columns_are_of_one_type_in_all_tables(tmp_path: Path) -> None:
    mapping = RowMapping(text="t", keep=("id",))
    one, two = str(parquet(tmp_path / "1.parquet")), str(text(tmp_path / "2.csv"))
    assert plan_tables([one], mapping).kept == (pa.field("id", pa.int64()),)
    assert plan_tables([two], mapping).kept == (pa.field("id", pa.string()),)
    with pytest.raises(UsageError) as caught:
        plan_tables([one, two], mapping)
    assert (caught.value.code, caught.value.where) == ("column-type-mismatch", two)
    assert re.findall("id|string|int64", caught.value.what) == ["id", "string", "int64"]


def test_rows_of_a_csv_are_texts_and_a_bad_one_costs_only_itself(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b'\xef\xbb\xbfid,t\n1,"a\nb"\n\n2\n3,\xff\n4,"x, ""y"""\n5,z,w\n')
    table = only(path)
    found = [re.findall(r"\d+", each.why) if isinstance(each, UnreadableValue) else each for each in values(table, "t")]
    assert found == ["a\nb", ["1", "2"], "\udcff", 'x, "y"', ["3", "2"]]  # fields, and the header's
    assert values(table, "t", 3, 4) == ['x, "y"']


def test_a_bad_line_of_jsonl_costs_only_itself(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"t": [1, {"a": null}]}\n\n{"u": 1}\n[1]\n{"t": NaN}\n{"t": "\xff"}\n{"t": "' + b'last"}')
    found = values(only(path), "t")
    assert (found[0], found[1], found[5]) == ([1, {"a": None}], None, "last")
    assert [type(each) for each in found[2:5]] == [UnreadableValue] * 3
    assert "JSON" in found[2].why


def test_columns_are_kept_as_they_are_or_as_texts(tmp_path: Path) -> None:
    (batch,) = only(parquet(tmp_path / "a.parquet", 2)).read(["id"])
    assert batch.kept("id").equals(pa.array([0, 1]))
    path = tmp_path / "a.jsonl"
    path.write_text(
        '{"t": "x", "id": 1}\n{"t": "x", "id": [1.5, "a"]}\n{"t": "x"}\n!\n{"t": "x", "id": "\\ud83d\\ude00"}'
    )
    (batch,) = only(path).read(["id"])
    assert batch.kept("id").equals(pa.array(["1", '[1.5,"a"]', None, None, "😀"]))
    assert batch.part(1, 3).kept("id").equals(pa.array(['[1.5,"a"]', None]))


@pytest.mark.parametrize("name", ["a.parquet", "a.csv", "a.jsonl"])
def test_a_table_that_was_changed_is_told_with_its_row(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tables, "_BATCH_ROWS", 4)
    table = only(WRITERS[name](tmp_path / name))
    rows = table.read(["t"])
    next(rows)
    os.utime(tmp_path / name, ns=(0, 0))
    with pytest.raises(TableError, match=r" row 4$", check=has_code("changed-table")):
        next(rows)
    (tmp_path / name).unlink()
    with pytest.raises(TableError, match=f"{os.strerror(errno.ENOENT)}, at row 7") as caught:
        next(table.read(["t"], 7))
    assert (caught.value.where, caught.value.exit_code) == (str(tmp_path / name), 1)


def test_a_table_that_is_damaged_in_the_middle_is_told_with_its_row(tmp_path: Path) -> None:
    path = text(tmp_path / "a.jsonl.gz", 200_000)
    path.write_bytes(path.read_bytes()[:-1000])
    with pytest.raises(TableError, match=r" row [\d,]+ on: ", check=has_code("unreadable-table")):
        values(only(path), "t")
    damaged = parquet(tmp_path / "a.parquet")
    data = bytearray(damaged.read_bytes())
    end = len(data) - 8 - int.from_bytes(data[-8:-4], "little")  # where the footer begins
    data[4:end] = bytes(end - 4)
    damaged.write_bytes(data)
    with pytest.raises(TableError, match=" row 0 on: ", check=has_code("unreadable-table")):
        values(only(damaged), "t")


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv"])
def test_a_line_without_an_end_does_not_fill_the_memory(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tables, "_MAX_LINE", 1000)
    path = tmp_path / name
    path.write_text(('{"t": 1}\n' if name == "a.jsonl" else "t\n1\n") + "x" * 2000)
    with pytest.raises((TableError, UsageError), match=" 1,000 ", check=has_code("line-too-long")):
        values(only(path), "t")
    monkeypatch.undo()
    (tmp_path / "large.csv").write_text("t\n" + "x" * 3_000_000)  # as large as a request may be
    assert [len(value) for value in values(only(tmp_path / "large.csv"), "t")] == [3_000_000]


class TestElsewhere:
    @pytest.fixture(autouse=True)
    def files(self) -> Any:
        import fsspec

        files = fsspec.filesystem("memory")
        yield files
        files.store.clear()
        files.pseudo_dirs[:] = [""]

    @pytest.mark.parametrize("name", WRITERS)
    def test_tables_are_read_by_fsspec(self, tmp_path: Path, files: Any, name: str) -> None:
        files.pipe(f"/data/{name}", WRITERS[name](tmp_path / name).read_bytes())
        for word in (f"memory://data/{name}", "memory://data", "memory://data/*"):
            table = only(word)
            assert table.name.endswith(f"/data/{name}")
            assert values(table, "t", 2, 4) == ["text 2", "text 3"]

    def test_files_are_found_below_their_folder(self, files: Any) -> None:
        for name in ("b/2.png", "b/1.png", "_x.png", "b/.y"):
            files.pipe(f"/data/{name}", b"x")
        table = only("memory://data", mapping=FILES)
        assert (table.files, table.rows) == (("b/1.png", "b/2.png"), 2)

    def test_what_is_not_there_is_told(self, files: Any) -> None:
        error = refused("memory://data/none.parquet")
        assert isinstance(error.__cause__, FileNotFoundError)
        assert refused("memory://data/*.parquet").code == "no-files"
        assert refused("nowhere://data/x.parquet").where == "nowhere://data/x.parquet"
