"""Rows as requests: what is sent, what is refused, and that a bad row costs only itself."""

import json
import os
import pickle
import threading
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from time import monotonic
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from refusals import has_code

from marpack.errors import UsageError
from marpack.runner.inputs import Input
from marpack.scoring.mapping import FieldType, RowMapping
from marpack.scoring.rows import RowRequests, _prefetched
from marpack.scoring.tables import UnreadableValue
from marpack.torchserve.http import Request


def rows(mapping: RowMapping, **columns: Any) -> list[Input]:
    return list(RowRequests(mapping).inputs(columns))


def body(item: Input) -> bytes:
    assert item.refused is None, item.why
    (part,) = item.request.parts
    return part.value


def reason(item: Input) -> str:
    assert item.refused is not None
    return item.why.message


@pytest.mark.parametrize(
    ("mapping", "message"),
    [
        ({}, "no column"),
        ({"text": "a", "body": "b"}, "body and text exclude each other"),
        ({"text": "a", "root": "x"}, "requires path"),
        ({"json": ("a",), "types": {"b": FieldType.INT}}, "not sent as JSON"),
        *(({"text": "a", "keep": (name,)}, f"name {name}") for name in ("status", "answer", "row", "input")),
        ({"text": "a", "keep": ("id", "id")}, "would have the name id"),
        ({"text": "a", "keep": ("x",), "select": {"x": "y"}}, "would have the name x"),
        ({"text": "a", "select": {"error": "y"}}, "would have the name error"),
        ({"text": "a", "select": {"x": "y:thing"}}, "is not a type"),
        ({"text": "a", "select": {"x": "y"}, "encode_binary": True}, "exclude each other"),
    ],
)
def test_a_mapping_that_contradicts_itself_is_refused(mapping: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        RowMapping(**mapping)


def test_a_mapping_survives_pickle_and_json() -> None:
    mapping = RowMapping(
        json=("a", "b"), keep=("id",), select={"x": "y:int"}, headers=(("A", "b"),), types={"a": FieldType.INT}
    )
    assert pickle.loads(pickle.dumps(mapping)) == mapping
    assert msgspec.json.decode(msgspec.json.encode(mapping), type=RowMapping) == mapping
    assert (mapping.request_columns, mapping.needed) == (("a", "b"), ("a", "b", "id"))


SCHEMA = pa.schema(
    [("t", pa.large_string()), ("b", pa.binary(3)), ("d", pa.dictionary(pa.int8(), pa.string())), ("n", pa.int64())]
)


@pytest.mark.parametrize(
    ("mapping", "message", "hint"),
    [
        ({"text": "tt"}, "x.parquet: the column tt", "Did you mean t?"),
        ({"text": "t", "keep": ("zzzz",)}, "the column zzzz", "Choose from t, b, d, n."),
        ({"text": "n"}, "the column n is of type int64, which is not text", "bytes with --body"),
        ({"body": "n"}, "neither bytes nor text", "with --json"),
        ({"json_object": ("b",)}, "fixed_size_binary.3., which JSON cannot represent", "--body"),
        ({"json": ("n", "b")}, "fixed_size_binary.3., which JSON cannot represent", "--body"),
        ({"path": "b"}, "is not text", "texts"),
        ({"url": "n"}, "is not text", "texts"),
    ],
)
def test_columns_that_are_not_there_or_do_not_fit_are_told(mapping: dict[str, Any], message: str, hint: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        RowMapping(**mapping).check(SCHEMA, "x.parquet")
    assert hint in str(caught.value.hint)


def test_columns_that_fit_are_taken_if_they_are_there_once() -> None:
    fitting = (
        {"text": "t"},
        {"text": "d"},
        {"body": "b"},
        {"body": "t"},
        {"json": ("n", "t")},
        {"path": "t"},
        {"url": "d"},
    )
    for mapping in fitting:
        RowMapping(**mapping, keep=("b",)).check(SCHEMA)
    with pytest.raises(UsageError, match=r" t$", check=has_code("duplicate-column")):
        RowMapping(text="t").check(pa.schema([("t", pa.string()), ("t", pa.string())]))


@pytest.mark.parametrize(
    ("mapping", "column", "sent", "content_type"),
    [
        ({"body": "x"}, pa.array([b"\xff"]), b"\xff", ""),
        ({"body": "x"}, pa.array(["ü"]), "ü".encode(), ""),
        ({"text": "x"}, pa.array(["ü"], pa.string_view()), "ü".encode(), "text/plain"),
        ({"text": "x"}, pa.array(["a"]).dictionary_encode(), b"a", "text/plain"),
        ({"text": "x", "content_type": "text/csv; a=b"}, ["1,2"], b"1,2", "text/csv"),
        ({"text": "x", "content_type": ""}, ["1,2"], b"1,2", ""),
        ({"text": "x", "headers": (("content-type", "a/b"),)}, ["1,2"], b"1,2", "a/b"),
        ({"json": ("x",)}, pa.array([[1, None]]), b"[1,null]", "application/json"),
        ({"json": ("x",)}, pa.array([None], pa.int8()), None, ""),
        ({"json": ("x",)}, np.array([[1.5, 2.5]]), b"[1.5,2.5]", "application/json"),
        ({"json": ("x",)}, pa.array([{"a": "ü"}]), '{"a":"ü"}'.encode(), "application/json"),
        ({"json": ("x",)}, pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int8())), b'{"k":1}', "application/json"),
        ({"json": ("x",)}, pa.array([date(2024, 2, 29)]), b'"2024-02-29"', "application/json"),
        ({"json": ("x",)}, pa.array([time(1, 2, 3)]), b'"01:02:03"', "application/json"),
        (
            {"json": ("x",)},
            pa.array([datetime(2024, 1, 1, tzinfo=UTC)]),
            b'"2024-01-01T00:00:00+00:00"',
            "application/json",
        ),
        ({"json": ("x",)}, pa.array([timedelta(seconds=1.5)]), b"1.5", "application/json"),
        ({"json": ("x",)}, pa.array([Decimal("1.10")]), b'"1.10"', "application/json"),
        ({"json_object": ("x",)}, pa.array([[1, None]]), b'{"x":[1,null]}', "application/json"),
        ({"json_object": ("x",)}, pa.array([None], pa.int8()), b'{"x":null}', "application/json"),
        ({"json_object": ("x",), "types": {"x": FieldType.INT}}, ["7"], b'{"x":7}', "application/json"),
        ({"json": ("x",), "types": {"x": FieldType.FLOAT}}, [" 1.5"], b"1.5", "application/json"),
        ({"json": ("x",), "types": {"x": FieldType.BOOL}}, ["True"], b"true", "application/json"),
        ({"json": ("x",), "types": {"x": FieldType.JSON}}, ["[1]"], b"[1]", "application/json"),
    ],
)
def test_a_value_is_sent_as_what_it_is(mapping: dict[str, Any], column: Any, sent: bytes | None, content_type: str):
    (item,) = rows(RowMapping(**mapping), x=column)
    if sent is None:
        assert " x is null " in reason(item)
    else:
        assert body(item) == sent
        assert item.request.parts[0].content_type == content_type


def test_several_columns_become_an_object() -> None:
    mapping = RowMapping(json=("b", "a"), types={"a": FieldType.INT})
    items = rows(mapping, a=["1", "", "x"], b=pa.array([1.5, None, 2]))
    assert json.loads(body(items[0])) == {"b": 1.5, "a": 1}
    assert json.loads(body(items[1])) == {"b": None, "a": None}
    assert {"a", "int"} <= set(reason(items[2]).split())


NESTED_TIMES = pa.list_(pa.struct([("a", pa.timestamp("ns"))]))
NESTED = pa.array([[("k", 1), ("k", 2)], [("k", 3)]], pa.map_(pa.string(), pa.int8()))


@pytest.mark.parametrize(
    ("mapping", "column", "message"),
    [
        ({"text": "x"}, [None, "a"], "the column x is null in this row"),
        ({"text": "x"}, [b"a", "a"], "a value of type bytes is not a text"),
        ({"text": "x"}, ["\udcff", "a"], "the column x is not UTF-8 in this row"),
        ({"text": "x"}, [UnreadableValue("the row has 1 field"), "a"], "the row has 1 field"),
        ({"json": ("x",)}, [UnreadableValue("the row has 1 field"), "a"], "the row has 1 field"),
        ({"body": "x"}, [1, "a"], "a value of type int is neither bytes nor text"),
        ({"json": ("x",)}, [float("nan"), 1.0], "replace it with null"),
        ({"json": ("x",)}, [[{"a": float("inf")}], 1.0], "JSON cannot represent this row"),
        ({"json": ("x",)}, [b"a", 1], "convert the value of type bytes"),
        ({"json": ("x",)}, NESTED, "cannot be read"),
        ({"json": ("x",)}, pa.array([1, 1000], pa.timestamp("ns")), "cannot be read"),
        ({"json": ("x",)}, pa.array([1, 1000], pa.duration("ns")), "would lose data"),
        ({"json": ("x",)}, pa.array([[{"a": 1}], [{"a": 1000}]], NESTED_TIMES), "would lose data"),
        ({"json": ("x",)}, pa.array([[("k", 1)], [("k", 0)]], pa.map_(pa.string(), pa.timestamp("ns"))), "lose data"),
        ({"text": "x", "max_request_size": 3}, ["abcd", "abc"], "the request has 4 bytes; the server takes 3"),
    ],
)
def test_a_row_that_cannot_become_a_request_costs_only_itself(mapping: dict[str, Any], column: Any, message: str):
    bad, good = rows(RowMapping(**mapping), x=column)
    assert message in reason(bad)
    assert bad.refused.status == (413 if "takes" in message else 0)
    assert good.refused is None


def test_requests_are_numbered_and_carry_what_is_common() -> None:
    mapping = RowMapping(text="x", headers=(("A", " b "),), explain=True)
    batch = pa.RecordBatch.from_pydict({"x": ["a", "b"], "y": [1, 2]})
    first, second = RowRequests(mapping).inputs(batch, 41)
    assert [body(first), body(second)] == [b"a", b"b"]
    assert (first.request.id[-2:], second.request.id[-2:]) == ("29", "2a")
    assert first.request.headers == (("Content-Type", "text/plain"), ("A", "b"))
    assert first.request.explain is True
    (item,) = rows(RowMapping(text="x", headers=(("bad name", "x"),)), x=["a"])  # which the server refuses
    assert item.refused.status == 400


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    (root / "sub").mkdir(parents=True)
    (root / "sub" / "a.txt").write_bytes(b"inside")
    (tmp_path / "secret.txt").write_bytes(b"secret")
    (tmp_path / "root-too").mkdir()
    (tmp_path / "root-too" / "x").write_bytes(b"secret")
    (root / "out").symlink_to(tmp_path / "secret.txt")
    (root / "up").symlink_to(tmp_path)
    (root / "in").symlink_to(root / "sub" / "a.txt")
    os.mkfifo(root / "pipe")
    return root


def test_a_file_is_sent_with_the_type_of_its_name(folder: Path) -> None:
    items = rows(RowMapping(path="p", root=str(folder)), p=["sub/a.txt", "in"])
    assert [body(item) for item in items] == [b"inside", b"inside"]
    assert items[0].request.parts[0].content_type == "text/plain"
    (large,) = rows(RowMapping(path="p", root=str(folder), max_request_size=5), p=["sub/a.txt"])
    assert large.refused.status == 413
    with pytest.raises(UsageError, check=has_code("root-not-found", where=str(folder / "none"))):
        RowRequests(RowMapping(path="p", root=str(folder / "none")))


@pytest.mark.parametrize(
    "name",
    ["../secret.txt", "sub/../../secret.txt", "/etc/hostname", "out", "up/secret.txt", "a\0b", "../root-too/x", ".."],
)
def test_no_file_outside_the_root_is_read(folder: Path, name: str) -> None:
    (item,) = rows(RowMapping(path="p", root=str(folder)), p=[name])
    assert str(folder) in item.why.hint  # which is not looked for


@pytest.mark.parametrize(
    ("name", "message"),
    [
        *(("none", "No such file"), ("sub", "is not a file"), ("\ud800", "not UTF-8"), ("pipe", "is not a file")),
        *((".", "is not read"), ("x" * 5000, "too long")),
    ],
)
def test_what_is_no_file_is_told(folder: Path, name: str, message: str) -> None:
    (item,) = rows(RowMapping(path="p", root=str(folder)), p=[name])
    assert message in reason(item)


def test_files_elsewhere_are_read_by_fsspec() -> None:
    import fsspec

    files = fsspec.filesystem("memory")
    files.pipe("/bucket/in/a.txt", b"far away")
    files.pipe("/bucket/secret", b"secret")
    mapping = RowMapping(path="p", root="memory://bucket/in", max_request_size=8)
    near, outside, gone = rows(mapping, p=["a.txt", "../secret", "none"])
    assert body(near) == b"far away"
    assert "memory://bucket/in" in outside.why.hint
    assert "memory://" not in gone.why.hint


def test_rows_that_are_given_up_wait_for_no_fetch() -> None:
    fetching, release = threading.Event(), threading.Event()

    def made(name: str, *, slow: bool) -> Input:
        if slow:
            fetching.set()
            release.wait(30)
        return Input(name, Request(id="", parts=()))

    inputs = _prefetched(iter([partial(made, "a", slow=False), partial(made, "b", slow=True)]))
    assert next(inputs).name == "a"
    assert fetching.wait(10)
    started = monotonic()
    inputs.close()
    assert monotonic() - started < 1
    assert all(thread.daemon for thread in threading.enumerate() if thread.name == "marpack-fetch")
    release.set()


def test_addresses_are_asked_ahead_and_answered_in_order() -> None:
    together = threading.Barrier(4, timeout=10)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            together.wait()  # passes only where four are asked at once
            data = self.path.encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        urls = [f"http://127.0.0.1:{server.server_port}/{number}.txt" for number in range(8)]
        items = rows(RowMapping(url="u", allow_private=True), u=[*urls, "ftp://x/y"])
        server.shutdown()
    assert [body(item) for item in items[:-1]] == [f"/{number}.txt".encode() for number in range(8)]
    assert items[0].request.parts[0].content_type == "text/plain"
    assert "https://" in reason(items[-1])


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_times_are_the_same_from_numpy_and_arrow_with_pandas_or_without(unit: str) -> None:
    moments = np.array(["2020-01-02T03:04:05", "2021-01-01T00:00:00"], f"datetime64[{unit}]")
    for column in (moments, pa.array(moments)):
        sent = [item.request.parts[0].value for item in RowRequests(RowMapping(json=("x",))).inputs({"x": column})]
        assert sent == [b'"2020-01-02T03:04:05"', b'"2021-01-01T00:00:00"']
    spans = np.array([2_000_000], f"timedelta64[{unit}]")
    (spent,) = RowRequests(RowMapping(json=("x",))).inputs({"x": spans})
    assert float(spent.request.parts[0].value) == {"s": 2e6, "ms": 2e3, "us": 2, "ns": 2e-3}[unit]
