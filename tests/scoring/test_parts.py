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
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from lazy import pa, pq
from refusals import has_code
from scoring.small_tables import plan_of, table

from marpack.errors import OutputError, UsageError
from marpack.scoring.mapping import RowMapping
from marpack.scoring.parts import KEY, OutputFolder, PartRecord
from marpack.scoring.plan import PartFormat, ScorePlan


def rows(plan: ScorePlan, first: int, count: int) -> pa.RecordBatch:
    def row(number: int) -> dict[str, Any]:
        return {"input": 0, "row": number, "id": number, "answer": f"answer {number}", "status": 200, "error": None}

    return pa.RecordBatch.from_pylist([row(number) for number in range(first, first + count)], schema=plan.schema)


def write(output: OutputFolder, plan: ScorePlan, first: int, count: int, number: int = 0) -> PartRecord:
    part = output.part(number, first)
    try:
        part.write(rows(plan, first, count), 1)
        return part.finish()
    except OutputError:
        part.abandon()
        raise


@pytest.fixture
def plan(tmp_path: Path, request: pytest.FixtureRequest) -> ScorePlan:
    """Return a plan of parts of four rows, of the format of a test's argument `form`, if it has one."""
    form = request.getfixturevalue("form") if "form" in request.fixturenames else PartFormat.PARQUET
    return plan_of(table(tmp_path / "in.parquet"), part_rows=4, format=form)


@pytest.mark.parametrize("form", PartFormat)
def test_a_part_says_what_it_holds(tmp_path: Path, plan: ScorePlan, form: PartFormat) -> None:
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
    with OutputFolder.open(tmp_path / "out", plan) as output:
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
    values = {"b": "/w==", "when": "1970-01-01T00:00:00", "x": {"a": [1]}, "y": "[1]"}
    assert json.loads(line) == {"row": 0, **values, "status": 200, "error": None}


@pytest.mark.parametrize(
    ("done", "stop", "gaps"),
    [
        ([], None, [(0, None)]),
        ([], 0, []),
        ([(4, 4)], 10, [(0, 4), (8, 10)]),
        ([(0, 4), (8, 2)], 10, [(4, 8)]),
        ([(0, 4), (4, 4), (8, 2)], 10, []),
        ([(0, 4), (4, 4), (8, 2)], None, [(10, None)]),
    ],
)
def test_what_no_part_holds_is_what_is_left(tmp_path, plan, done, stop, gaps):
    with OutputFolder.open(tmp_path / "out", plan) as output:
        for first, count in done:
            write(output, plan, first, 1)
            write(output, plan, first, count)  # replaces the part of the same first row
    with OutputFolder.open(tmp_path / "out", plan, resume=True) as output:
        assert list(output.gaps(0, stop)) == gaps


def test_a_folder_with_anything_in_it_is_taken_only_to_go_on(tmp_path: Path, plan: ScorePlan) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / ".hidden").touch()
    with OutputFolder.open(tmp_path / "out", plan) as output:
        write(output, plan, 0, 4)
    with pytest.raises(UsageError, match="part-0", check=has_code("folder-not-empty", "--resume")):
        OutputFolder.open(tmp_path / "out", plan)
    (tmp_path / "out" / "notes.txt").write_text("mine")
    OutputFolder.open(tmp_path / "out", plan, resume=True).close()
    assert (tmp_path / "out" / "notes.txt").read_text() == "mine"


def test_what_is_no_folder_is_refused(tmp_path: Path, plan: ScorePlan) -> None:
    for path, kind, code in (
        (tmp_path / "in.parquet", UsageError, "not-a-folder"),
        (tmp_path / "in.parquet" / "out", OutputError, "uncreatable-folder"),
    ):
        with pytest.raises(kind, check=has_code(code, where=str(path))):
            OutputFolder.open(path, plan)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("part-00000-000000000004.parquet", b"PAR1", "the part cannot be read"),
        ("other.parquet", None, "this file is not a part"),
        ("other.jsonl", b"{}", "this file is not a part"),
    ],
)
def test_files_that_are_no_parts_are_not_mixed_with_them(tmp_path, plan, name, content, message):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / name).write_bytes((tmp_path / "in.parquet").read_bytes() if content is None else content)
    with pytest.raises(UsageError, match=message) as caught:
        OutputFolder.open(tmp_path / "out", plan, resume=True)
    assert caught.value.where == str(tmp_path / "out" / name)


@pytest.mark.parametrize(
    ("details", "message"),
    [
        ({"archive": "mar-2"}, r"another archive \(mar-1 then, mar-2 now\)"),
        ({"format": PartFormat.JSONL}, r"other options \(format: parquet then, jsonl now\)"),
        ({"batch_size": 8}, r"other options \(batch_size: 1 then, 8 now\)"),
        ({"limit": 5}, r"other options \(limit: not given then, 5 now\)"),
        ({"options": {"target": "marpack"}}, r"other options \(target: not given then, marpack now\)"),
        ({"part_rows": 5}, r"other options \(part_rows: 4 then, 5 now\)"),
        ({"mapping": RowMapping(body="t", keep=("id",))}, r"other options \(body: not given then, t now\)"),
        ({"mapping": RowMapping(text="t")}, r"other options \(keep: \[\"id\"\] then, not given now\)"),
    ],
)
def test_results_of_another_run_are_refused(tmp_path: Path, plan: ScorePlan, details: dict[str, Any], message: str):
    with OutputFolder.open(tmp_path / "out", plan) as output:
        write(output, plan, 0, 4)
    with pytest.raises(UsageError, match=message, check=has_code("resume-mismatch")):
        OutputFolder.open(tmp_path / "out", msgspec.structs.replace(plan, **details), resume=True)


def test_results_of_other_inputs_are_refused(tmp_path: Path) -> None:
    one, two, three = (table(tmp_path / f"{number}.parquet") for number in (1, 2, 3))
    plan = plan_of(one, two)
    with OutputFolder.open(tmp_path / "out", plan) as output:
        write(output, plan, 0, 4)
    for inputs, message in (([one], r"\(2 then, 1 now\)"), ([three, two], r"\(.*1.parquet\)")):
        with pytest.raises(UsageError, match=message, check=has_code("resume-mismatch")):
            OutputFolder.open(tmp_path / "out", plan_of(*inputs), resume=True)
    for changed in (two, one):  # of which the later one has no parts yet
        os.utime(changed, ns=(0, 0))
        with pytest.raises(UsageError, check=has_code("resume-mismatch")):
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
    sidecar = tmp_path / "out" / "_part-00000-000000000004.json"
    record = json.loads(whole := sidecar.read_bytes())
    del record["sha256"]
    sidecar.write_text(json.dumps(record | {"version": 1}))
    with pytest.raises(UsageError, match="another version"):
        OutputFolder.open(tmp_path / "out", plan, resume=True)
    sidecar.write_bytes(whole)
    with (tmp_path / "out" / "part-00000-000000000004.jsonl").open("ab") as file:
        file.write(b"{}\n")
    with pytest.raises(UsageError, check=has_code("changed-part")):
        OutputFolder.open(tmp_path / "out", plan, resume=True)


@pytest.mark.parametrize("form", PartFormat)
@pytest.mark.parametrize("damage", ["swap rows", "swap with records", "change a byte", "cut off"])
def test_parts_that_are_not_as_they_were_written_are_refused(tmp_path, plan, form, damage):
    folder = tmp_path / "out"
    with OutputFolder.open(folder, plan) as output:
        records = [write(output, plan, first, 4) for first in (0, 4)]
        names = [f"part-00000-{record.first:012d}.{form}" for record in records]
        assert len({record.bytes for record in records}) == 1  # lines have parts of one size here
        output.verify(names)
        path = folder / names[0]
        data = path.read_bytes()
        if damage == "change a byte":
            path.write_bytes(data[:30] + bytes([data[30] ^ 1]) + data[31:])
        elif damage == "cut off":
            path.write_bytes(data[:-1])
        else:
            for one in [*folder.glob(f"*{path.stem}*")] if damage == "swap with records" else [path]:
                other = folder / one.name.replace("000000000000", "000000000004")
                first, second = one.read_bytes(), other.read_bytes()
                one.write_bytes(second)
                other.write_bytes(first)
        with pytest.raises(OutputError):
            output.verify(names)
    with pytest.raises(UsageError) as caught:
        OutputFolder.open(folder, plan, resume=True)
    assert caught.value.where == str(path)


@pytest.mark.parametrize("form", PartFormat)
def test_the_digest_is_of_the_rows_bytes(tmp_path: Path, plan: ScorePlan, form: PartFormat) -> None:
    with OutputFolder.open(tmp_path / "out", plan) as output:
        record = write(output, plan, 0, 4)
    data = (tmp_path / "out" / f"part-00000-000000000000.{form}").read_bytes()
    if form is PartFormat.PARQUET:
        data = data[: -8 - int.from_bytes(data[-8:-4], "little")]
    assert record.sha256 == hashlib.sha256(data).hexdigest()


def test_two_runs_do_not_write_to_one_folder(tmp_path: Path, plan: ScorePlan) -> None:
    with OutputFolder.open(tmp_path / "out", plan), pytest.raises(UsageError, check=has_code("folder-in-use")):
        OutputFolder.open(tmp_path / "out", plan, resume=True)
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
    with pytest.raises(UsageError, check=has_code("unsupported-column")):
        OutputFolder.open(tmp_path / "out", plan)
    assert not (tmp_path / "out").exists()
