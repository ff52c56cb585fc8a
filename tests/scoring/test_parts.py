"""Parts: whole or not at all, and an output folder that knows whose they are."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import resource
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from lazy import pa, pq
from scoring.small_tables import plan_of, table

from marpack.errors import OutputError, UsageError
from marpack.scoring.mapping import RowMapping
from marpack.scoring.parts import KEY, OutputFolder, PartRecord
from marpack.scoring.plan import PartFormat, ScorePlan


def rows(plan: ScorePlan, first: int, count: int) -> pa.RecordBatch:
    ids = list(range(first, first + count))
    values = {
        "input": [0] * count,
        "row": ids,
        "id": ids,
        "answer": [f"answer {each}" for each in ids],
        "status": [200] * count,
        "error": [None] * count,
    }
    return pa.RecordBatch.from_arrays(
        [pa.array(values[field.name], field.type) for field in plan.schema], schema=plan.schema
    )


def write(output: OutputFolder, plan: ScorePlan, first: int, count: int, number: int = 0) -> PartRecord:
    part = output.part(number, first)
    try:
        part.write(rows(plan, first, count), 1)
        return part.finish()
    except OutputError:
        part.abandon()
        raise


@pytest.fixture
def plan(tmp_path: Path) -> ScorePlan:
    return plan_of(table(tmp_path / "in.parquet"), part_rows=4)


@pytest.mark.parametrize("form", PartFormat)
def test_a_part_says_what_it_holds(tmp_path: Path, plan: ScorePlan, form: PartFormat) -> None:
    plan = msgspec.structs.replace(plan, format=form)
    with OutputFolder.open(tmp_path / "out", plan) as output:
        part = output.part(0, 4)
        part.write(rows(plan, 4, 3), 0)
        part.write(rows(plan, 7, 1), 1)
        assert not list((tmp_path / "out").glob("part-*"))
        record = part.finish()
    assert (record.first, record.rows, record.failed, record.input.rows) == (4, 4, 1, 10)
    assert (record.run.archive, record.run.options["text"]) == ("mar-1", "t")
    path = tmp_path / "out" / f"part-00000-000000000004.{form}"
    if form is PartFormat.PARQUET:
        found = pq.read_table(path)
        assert found.schema.remove_metadata() == plan.schema
        assert msgspec.json.decode(pq.read_metadata(path).metadata[KEY], type=PartRecord) == record
        assert found["answer"].to_pylist() == ["answer 4", "answer 5", "answer 6", "answer 7"]
    else:
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        assert lines[0] == {"row": 4, "id": 4, "answer": "answer 4", "status": 200, "error": None}
        assert len(lines) == 4
    with OutputFolder.open(tmp_path / "out", plan, resume=True) as output:
        assert output.done(0) == (record,)
    assert {each.name for each in (tmp_path / "out").iterdir()} == {
        path.name, *(["_part-00000-000000000004.json"] if form is PartFormat.JSONL else [])
    }  # fmt: skip


def test_row_groups_are_of_bounded_size(tmp_path: Path, plan: ScorePlan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("marpack.scoring.parts._GROUP_ROWS", 5)
    with OutputFolder.open(tmp_path / "out", plan) as output:
        part = output.part(0, 0)
        for first in range(0, 12, 2):
            part.write(rows(plan, first, 2), 0)
        part.finish()
    metadata = pq.read_metadata(tmp_path / "out" / "part-00000-000000000000.parquet")
    assert [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)] == [6, 6]


@pytest.mark.parametrize("form", PartFormat)
def test_an_abandoned_part_leaves_nothing(tmp_path: Path, plan: ScorePlan, form: PartFormat) -> None:
    with OutputFolder.open(tmp_path / "out", msgspec.structs.replace(plan, format=form)) as output:
        part = output.part(0, 0)
        part.write(rows(plan, 0, 4), 0)
        part.abandon()
    assert list((tmp_path / "out").iterdir()) == []


def test_lines_hold_json_as_it_is_and_bytes_as_base64(tmp_path: Path) -> None:
    mapping = RowMapping(text="t", keep=("b", "when"), select={"x": "v:json", "y": "v"})
    names = pa.table({"t": ["a"], "b": [b"\xff"], "when": pa.array([1], pa.timestamp("ns"))})
    pq.write_table(names, tmp_path / "in.parquet")
    plan = plan_of(str(tmp_path / "in.parquet"), mapping=mapping, format=PartFormat.JSONL)
    batch = pa.RecordBatch.from_pydict(
        {"row": [0], "b": [b"\xff"], "when": [0], "x": ['{"a": [1]}'], "y": ["[1]"], "status": [200], "error": [None]},
        schema=plan.schema,
    )
    with OutputFolder.open(tmp_path / "out", plan) as output:
        part = output.part(0, 0)
        part.write(batch, 0)
        part.finish()
    (line,) = (tmp_path / "out" / "part-00000-000000000000.jsonl").read_text().splitlines()
    assert json.loads(line) == {
        "row": 0,
        "b": "/w==",
        "when": "1970-01-01T00:00:00",
        "x": {"a": [1]},
        "y": "[1]",
        "status": 200,
        "error": None,
    }


def test_the_same_rows_replace_the_same_part(tmp_path: Path, plan: ScorePlan) -> None:
    with OutputFolder.open(tmp_path / "out", plan) as output:
        write(output, plan, 0, 2)
        write(output, plan, 0, 4)
    with OutputFolder.open(tmp_path / "out", plan, resume=True) as output:
        assert [record.rows for record in output.done(0)] == [4]


@pytest.mark.parametrize(
    ("done", "stop", "gaps"),
    [
        ([], 10, [(0, 10)]),
        ([], None, [(0, None)]),
        ([], 0, []),
        ([(0, 4)], 10, [(4, 10)]),
        ([(4, 4)], 10, [(0, 4), (8, 10)]),
        ([(0, 4), (8, 2)], 10, [(4, 8)]),
        ([(0, 4), (4, 4), (8, 2)], 10, []),
        ([(0, 4), (4, 4), (8, 2)], None, [(10, None)]),
    ],
)
def test_what_no_part_holds_is_what_is_left(
    tmp_path: Path, plan: ScorePlan, done: list[tuple[int, int]], stop: int | None, gaps: list[tuple[int, int | None]]
) -> None:
    with OutputFolder.open(tmp_path / "out", plan) as output:
        for first, count in done:
            write(output, plan, first, count)
    with OutputFolder.open(tmp_path / "out", plan, resume=True) as output:
        assert list(output.gaps(0, stop)) == gaps


def test_a_folder_with_anything_in_it_is_taken_only_to_go_on(tmp_path: Path, plan: ScorePlan) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / ".hidden").touch()
    with OutputFolder.open(tmp_path / "out", plan) as output:
        write(output, plan, 0, 4)
    with pytest.raises(UsageError, match="part-0") as caught:
        OutputFolder.open(tmp_path / "out", plan)
    assert caught.value.code == "folder-not-empty"
    assert "--resume" in str(caught.value.hint)
    (tmp_path / "out" / "notes.txt").write_text("mine")
    OutputFolder.open(tmp_path / "out", plan, resume=True).close()
    assert (tmp_path / "out" / "notes.txt").read_text() == "mine"


def test_what_is_no_folder_is_refused(tmp_path: Path, plan: ScorePlan) -> None:
    for path, kind, code in (
        (tmp_path / "in.parquet", UsageError, "not-a-folder"),
        (tmp_path / "in.parquet" / "out", OutputError, "uncreatable-folder"),
    ):
        with pytest.raises(kind) as caught:
            OutputFolder.open(path, plan)
        assert (caught.value.code, caught.value.where) == (code, str(path))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("part-00000-000000000004.parquet", b"PAR1", "the part cannot be read"),
        ("other.parquet", None, "this file is not a part"),
        ("other.jsonl", b"{}", "this file is not a part"),
    ],
)
def test_files_that_are_no_parts_are_not_mixed_with_them(
    tmp_path: Path, plan: ScorePlan, name: str, content: bytes | None, message: str
) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / name).write_bytes((tmp_path / "in.parquet").read_bytes() if content is None else content)
    with pytest.raises(UsageError, match=message) as caught:
        OutputFolder.open(tmp_path / "out", plan, resume=True)
    assert caught.value.where == str(tmp_path / "out" / name)


CHANGES: dict[str, tuple[dict[str, Any], str]] = {
    "archive": ({"archive": "mar-2"}, r"another archive \(mar-1 then, mar-2 now\)"),
    "format": ({"format": PartFormat.JSONL}, r"other options \(format: parquet then, jsonl now\)"),
    "batch": ({"batch_size": 8}, r"other options \(batch_size: 1 then, 8 now\)"),
    "limit": ({"limit": 5}, r"other options \(limit: not given then, 5 now\)"),
    "words": ({"options": {"target": "marpack"}}, r"other options \(target: not given then, marpack now\)"),
    "part rows": ({"part_rows": 5}, r"other options \(part_rows: 4 then, 5 now\)"),
    "column": ({"mapping": RowMapping(body="t", keep=("id",))}, r"other options \(body: not given then, t now\)"),
    "keep": ({"mapping": RowMapping(text="t")}, r"other options \(keep: \[\"id\"\] then, not given now\)"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_results_of_another_run_are_refused_in_words(tmp_path: Path, plan: ScorePlan, change: str) -> None:
    with OutputFolder.open(tmp_path / "out", plan) as output:
        write(output, plan, 0, 4)
    details, message = CHANGES[change]
    with pytest.raises(UsageError, match=message) as caught:
        OutputFolder.open(tmp_path / "out", msgspec.structs.replace(plan, **details), resume=True)
    assert caught.value.code == "resume-mismatch"


def test_results_of_other_inputs_are_refused(tmp_path: Path, plan: ScorePlan) -> None:
    with OutputFolder.open(tmp_path / "out", plan) as output:
        write(output, plan, 0, 4)
    source, more = str(tmp_path / "in.parquet"), table(tmp_path / "more.parquet")
    with pytest.raises(UsageError, match=r"\(1 then, 2 now\)"):
        OutputFolder.open(tmp_path / "out", plan_of(source, more, part_rows=4), resume=True)
    with pytest.raises(UsageError, match=r"\(.*in.parquet\)"):
        OutputFolder.open(tmp_path / "out", plan_of(more, part_rows=4), resume=True)
    os.utime(source, ns=(0, 0))
    with pytest.raises(UsageError, match=r"\(.*in.parquet\)") as caught:
        OutputFolder.open(tmp_path / "out", plan_of(source, part_rows=4), resume=True)
    assert caught.value.code == "resume-mismatch"


def test_a_later_input_that_was_changed_is_noticed_before_it_has_parts(tmp_path: Path) -> None:
    one, two = table(tmp_path / "1.parquet"), table(tmp_path / "2.parquet")
    plan = plan_of(one, two)
    with OutputFolder.open(tmp_path / "out", plan) as output:
        write(output, plan, 0, 4)
    os.utime(two, ns=(0, 0))
    with pytest.raises(UsageError, match="results of other inputs"):
        OutputFolder.open(tmp_path / "out", plan_of(one, two), resume=True)


def test_headers_are_not_told_in_parts(tmp_path: Path) -> None:
    mapping = RowMapping(text="t", keep=("id",), headers=(("Authorization", "Bearer secret"),))
    plan = plan_of(table(tmp_path / "in.parquet"), mapping=mapping)
    with OutputFolder.open(tmp_path / "out", plan) as output:
        record = write(output, plan, 0, 4)
    assert "Authorization" in record.run.options["headers"]
    assert b"secret" not in (tmp_path / "out" / "part-00000-000000000000.parquet").read_bytes()
    other = msgspec.structs.replace(mapping, headers=(("Authorization", "Bearer other"),))
    with pytest.raises(UsageError, match="headers"):
        OutputFolder.open(tmp_path / "out", msgspec.structs.replace(plan, mapping=other), resume=True)


def test_lines_without_their_record_do_not_count(tmp_path: Path, plan: ScorePlan) -> None:
    plan = msgspec.structs.replace(plan, format=PartFormat.JSONL)
    with OutputFolder.open(tmp_path / "out", plan) as output:
        write(output, plan, 0, 4)
        write(output, plan, 4, 4)
    (tmp_path / "out" / "_part-00000-000000000000.json").unlink()
    with OutputFolder.open(tmp_path / "out", plan, resume=True) as output:
        assert [record.first for record in output.done(0)] == [4]
    with (tmp_path / "out" / "part-00000-000000000004.jsonl").open("ab") as file:
        file.write(b"{}\n")
    with pytest.raises(UsageError) as caught:
        OutputFolder.open(tmp_path / "out", plan, resume=True)
    assert caught.value.code == "changed-part"


def swap(one: Path, other: Path) -> None:
    first, second = one.read_bytes(), other.read_bytes()
    one.write_bytes(second)
    other.write_bytes(first)


def swap_with_records(folder: Path) -> None:
    for path in folder.glob("*part-00000-000000000000*"):
        swap(path, path.with_name(path.name.replace("000000000000", "000000000004")))


def swap_rows(folder: Path) -> None:
    one, other = sorted(folder.glob("part-*"))
    swap(one, other)


def change_a_byte(folder: Path) -> None:
    path = min(folder.glob("part-*"))
    data = bytearray(path.read_bytes())
    data[30] ^= 1
    path.write_bytes(data)


def cut_off(folder: Path) -> None:
    path = min(folder.glob("part-*"))
    path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize("form", PartFormat)
@pytest.mark.parametrize("damage", [swap_rows, swap_with_records, change_a_byte, cut_off])
def test_parts_that_are_not_as_they_were_written_are_refused(
    tmp_path: Path, plan: ScorePlan, form: PartFormat, damage: Callable[[Path], None]
) -> None:
    plan = msgspec.structs.replace(plan, format=form)
    with OutputFolder.open(tmp_path / "out", plan) as output:
        records = [write(output, plan, first, 4) for first in (0, 4)]
        names = [f"part-00000-{record.first:012d}.{form}" for record in records]
        assert len({record.bytes for record in records}) == 1  # lines have parts of one size here
        output.verify(names)
        damage(tmp_path / "out")
        with pytest.raises(OutputError):
            output.verify(names)
    with pytest.raises(UsageError) as caught:
        OutputFolder.open(tmp_path / "out", plan, resume=True)
    assert caught.value.where == str(tmp_path / "out" / names[0])


def test_the_digest_is_of_the_rows_bytes(tmp_path: Path, plan: ScorePlan) -> None:
    for form in PartFormat:
        plan = msgspec.structs.replace(plan, format=form)
        with OutputFolder.open(tmp_path / form, plan) as output:
            record = write(output, plan, 0, 4)
        data = (tmp_path / form / f"part-00000-000000000000.{form}").read_bytes()
        if form is PartFormat.PARQUET:
            data = data[: -8 - int.from_bytes(data[-8:-4], "little")]
        assert record.sha256 == hashlib.sha256(data).hexdigest()


def test_parts_of_an_older_version_are_told_as_such(tmp_path: Path, plan: ScorePlan) -> None:
    plan = msgspec.structs.replace(plan, format=PartFormat.JSONL)
    with OutputFolder.open(tmp_path / "out", plan) as output:
        write(output, plan, 0, 4)
    sidecar = tmp_path / "out" / "_part-00000-000000000000.json"
    record = json.loads(sidecar.read_bytes())
    del record["sha256"]
    sidecar.write_text(json.dumps(record | {"version": 1}))
    with pytest.raises(UsageError, match="another version"):
        OutputFolder.open(tmp_path / "out", plan, resume=True)


def test_two_runs_do_not_write_to_one_folder(tmp_path: Path, plan: ScorePlan) -> None:
    with OutputFolder.open(tmp_path / "out", plan), pytest.raises(UsageError) as caught:
        OutputFolder.open(tmp_path / "out", plan, resume=True)
    assert caught.value.code == "folder-in-use"
    OutputFolder.open(tmp_path / "out", plan).close()


def test_a_run_that_was_killed_leaves_its_whole_parts(tmp_path: Path, plan: ScorePlan) -> None:
    script = """
        import os, sys
        import marpack.archive.staging as staging
        staging._OWN_FDS = staging.Path("/nowhere")  # a file system that wants names
        from scoring.small_tables import plan_of
        from marpack.scoring.parts import OutputFolder
        from scoring.test_parts import rows, write
        plan = plan_of(sys.argv[1], part_rows=4)
        output = OutputFolder.open(sys.argv[2], plan)
        write(output, plan, 0, 4)
        part = output.part(0, 4)
        part.write(rows(plan, 4, 4), 0)
        os._exit(9)
    """
    arguments = [str(tmp_path / "in.parquet"), str(tmp_path / "out")]
    tests = str(Path(__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path, tests])}
    killed = subprocess.run([sys.executable, "-c", textwrap.dedent(script), *arguments], env=environment)
    assert killed.returncode == 9
    names = {each.name for each in (tmp_path / "out").iterdir()}
    assert any(name.endswith(".marpack-tmp") for name in names)
    (tmp_path / "out" / "._part-00000-000000000000.json.0a1b2c3d.marpack-tmp").touch()
    with OutputFolder.open(tmp_path / "out", plan, resume=True) as output:
        assert [(record.first, record.rows) for record in output.done(0)] == [(0, 4)]
        assert [each.name for each in (tmp_path / "out").iterdir()] == ["part-00000-000000000000.parquet"]
        (tmp_path / "out" / ".part-00000-000000000004.parquet.0a1b2c3d.marpack-tmp").touch()  # of an actor, meanwhile
    assert {each.name for each in (tmp_path / "out").iterdir()} == {"part-00000-000000000000.parquet"}


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """Let the system refuse larger files: what a full disk does, at a size of our choice."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("form", PartFormat)
def test_a_full_disk_costs_only_the_part_at_hand(tmp_path: Path, plan: ScorePlan, form: PartFormat) -> None:
    plan = msgspec.structs.replace(plan, format=form)
    with OutputFolder.open(tmp_path / "out", plan) as output:
        write(output, plan, 0, 4)
        with largest_file(2000), pytest.raises(OutputError, match=os.strerror(errno.EFBIG)) as caught:
            write(output, plan, 4, 2000)
        assert caught.value.code == "unwritable-part"
        assert "part-00000-000000000004" in str(caught.value.where)
    with OutputFolder.open(tmp_path / "out", plan, resume=True) as output:
        assert [record.first for record in output.done(0)] == [0]
    assert not [each for each in (tmp_path / "out").iterdir() if "04" in each.name]


def test_columns_that_parquet_cannot_hold_are_refused_before_anything_starts(tmp_path: Path) -> None:
    odd = pa.table({"t": ["a"], "odd": pa.array([None], pa.month_day_nano_interval())})
    with pa.OSFile(str(tmp_path / "in.arrow"), "wb") as file, pa.ipc.new_file(file, odd.schema) as writer:
        writer.write_table(odd)
    plan = plan_of(str(tmp_path / "in.arrow"), mapping=RowMapping(text="t", keep=("odd",)))
    with pytest.raises(UsageError) as caught:
        OutputFolder.open(tmp_path / "out", plan)
    assert caught.value.code == "unsupported-column"
    assert not (tmp_path / "out").exists()
