import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from refusals import has_code

from marpack.archive.reader import open_archive
from marpack.errors import OutputError, ResumeMismatchError, UsageError
from marpack.project.source import ResolvedSource
from marpack.protocol.messages import Load, Trouble
from marpack.runner.client import BatchResult
from marpack.runner.inputs import Input, RequestDefaults, data_inputs, request_id
from marpack.runner.outputs import (
    BodyFolder,
    LoggedResult,
    ResultsLog,
    RunDigests,
    file_name,
    request_digest,
    suffix_of,
)
from marpack.runner.results import Result, results_of
from marpack.runner.session import PreparedModel, prepare
from marpack.torchserve.http import Part, Request, Response

NAMES = st.lists(st.text(min_size=1, max_size=3), max_size=20)
RUN = RunDigests("sha256:aa", "bb")


def inputs(names: list[str], body: bytes = b"") -> list[Input]:
    return [Input(name, Request(id="", parts=(Part("body", body),))) for name in names]


def result(name: str, **more: Any) -> Result:
    usual: dict[str, Any] = {"status": 200, "phrase": "", "headers": {}, "content_type": None, "body": ""}
    return Result(**{"input": name, **usual, "body_encoding": "text", "stages": {}, "seconds": 0.1, **more})


def line(name: str, **more: Any) -> str:
    """Return a line as an older version wrote it."""
    return msgspec.json.encode(result(name, **more)).decode() + "\n"


def written(path: Path, items: list[Input], run: RunDigests = RUN) -> bytes:
    with ResultsLog(str(path)) as log:
        log.begin(run)
        for item in items:
            log.write(item, result(item.name))
    return path.read_bytes()


def left(path: Path, items: list[Input], run: RunDigests = RUN, *, unchecked: bool = False) -> list[str]:
    with ResultsLog(str(path), unchecked=unchecked) as log:
        log.begin(run)
        return [item.name for item in log.unanswered(items)]


@given(answered=NAMES, asked=NAMES)
def test_of_each_name_as_many_are_left_out_as_are_answered(tmp_path_factory, answered: list[str], asked: list[str]):
    path = tmp_path_factory.mktemp("journal") / "r.jsonl"
    written(path, inputs(answered))
    assert Counter(left(path, inputs(asked))) == Counter(asked) - Counter(answered)


def test_what_failed_counts_as_answered_and_is_counted(tmp_path: Path):
    path = tmp_path / "r.jsonl"
    with path.open("w") as file:
        file.write(line("a") + line("b", status=503) + line("c", reset=True))
        file.write("".join(line(f"d{status}", status=status) for status in (199, 299, 300)))
    with ResultsLog(str(path), unchecked=True) as log:
        assert (log.answered, log.short) == (6, 4)
        assert list(log.unanswered(inputs(["a", "b", "c", "d300"]))) == []


def test_each_line_is_a_result_with_the_digests_of_run_and_request(tmp_path: Path):
    (item,) = inputs(["a"])
    digests = {"archive_digest": RUN.archive, "options_digest": RUN.options, "request_digest": request_digest(item)}
    assert json.loads(written(tmp_path / "r.jsonl", [item])) == digests | json.loads(line("a"))


@pytest.mark.parametrize("run", [RunDigests("sha256:cc", "bb"), RunDigests("sha256:aa", "cc")])
def test_results_of_another_run_are_refused(tmp_path: Path, run: RunDigests):
    path = tmp_path / "r.jsonl"
    before = written(path, inputs(["a", "b"]), run)
    for unchecked in (False, True):
        with pytest.raises(ResumeMismatchError) as caught:
            left(path, inputs(["a"]), unchecked=unchecked)
        assert (caught.value.where, caught.value.code) == (f"{path}:1", "resume-mismatch")
    assert path.read_bytes() == before


def test_an_input_that_changed_is_refused(tmp_path: Path):
    path = tmp_path / "r.jsonl"
    items = [*inputs(["a"], b"1"), *inputs(["b"]), *inputs(["a"], b"2")]
    before = written(path, items)
    assert left(path, [*items, *inputs(["a"], b"3")]) == ["a"]  # results of one name belong to its inputs in order
    for changed in (items[::-1], [items[0], *inputs(["b"], b"new")]):
        with pytest.raises(ResumeMismatchError) as caught:
            left(path, changed)
        assert caught.value.where == changed[-1 if len(changed) == 2 else 0].name
    assert path.read_bytes() == before


def test_results_without_digests_need_the_option(tmp_path: Path):
    path = tmp_path / "r.jsonl"
    path.write_text(line("a"))
    with pytest.raises(ResumeMismatchError):
        ResultsLog(str(path))
    assert left(path, inputs(["a", "b"]), unchecked=True) == ["b"]
    assert path.read_text() == line("a")


REQUEST = Request(id="x", parts=(Part("body", b"1", "text/plain"),), headers=(("A", "b"),))
REFUSED = Response(status=413, body=b"too large")


@pytest.mark.parametrize(
    "other",
    [
        Input("a", replace(REQUEST, parts=(Part("body", b"2", "text/plain"),))),
        Input("a", replace(REQUEST, parts=(Part("body", b"1"),))),
        Input("a", replace(REQUEST, parts=(Part("data", b"1", "text/plain"),))),
        Input("a", replace(REQUEST, parts=(Part("body", b"", "text/plain"), Part("body", b"1", "text/plain")))),
        Input("a", replace(REQUEST, headers=(("A", "c"),))),
        Input("a", replace(REQUEST, url_path="/x")),
        Input("a", replace(REQUEST, explain=True)),
        Input("a", replace(REQUEST, id="y")),
        Input("a", REQUEST, batch="1"),
        Input("a", REQUEST, refused=REFUSED),
        Input("a", REQUEST, refused=REFUSED, why=Trouble(kind="request-too-large", message="")),
    ],
)
def test_whatever_a_handler_gets_is_in_the_requests_digest(other: Input):
    assert request_digest(other) != request_digest(Input("a", REQUEST))


def test_the_position_of_an_input_is_not_in_the_requests_digest():
    first, second = data_inputs(["x", "x"], RequestDefaults())
    assert first.request.id == request_id(0) != second.request.id
    assert request_digest(first) == request_digest(second)


@pytest.fixture
def prepared(make_mar) -> PreparedModel:
    return prepare(ResolvedSource(path=make_mar("x = 1")), options=Load(model_dir=""))


def digests(prepared: PreparedModel, *, archive: Path | None = None, **options: Any) -> RunDigests:
    own = {name: options.pop(name) for name in list(options) if name in Load.__struct_fields__}
    if archive is not None:
        prepared = replace(prepared, archive=open_archive(archive))
    usual: dict[str, Any] = {"env": "current", "in_process": False, "max_request_size": 9}
    return RunDigests.of(replace(prepared, load=replace(prepared.load, **own)), **usual | options)


@pytest.mark.parametrize(
    "options",
    [
        *({"target": "marpack"}, {"envelope": "json"}, {"batch_size": 2}, {"gpu_id": 0}, {"compile": False}),
        *({"trust_pickle": True}, {"torchserve": True}, {"max_response_size": 9}, {"limit_max_image_pixels": False}),
        *({"device": "cpu"}, {"env": "isolated"}, {"in_process": True}, {"max_request_size": 8}),
    ],
)
def test_options_that_affect_responses_are_in_the_runs_digest(prepared: PreparedModel, options: dict[str, Any]):
    usual, other = digests(prepared), digests(prepared, **options)
    assert usual.archive == other.archive
    assert usual.options != other.options


def test_places_and_what_only_observes_are_not_in_the_runs_digest(prepared: PreparedModel, tmp_path: Path):
    assert digests(prepared, model_dir="/x", show_data=True, trace=True) == digests(prepared)
    for name in ("a", "b", "c"):
        (tmp_path / name).write_text(name.replace("b", "a"))
    one, same, other = (digests(prepared, metrics_config=str(tmp_path / name)) for name in ("a", "b", "c"))
    assert one == same != other


@pytest.mark.parametrize("cut", [1, 30, 100, -1])
def test_a_torn_line_is_cut_off_and_asked_again(tmp_path: Path, cut: int):
    path = tmp_path / "r.jsonl"
    whole = written(path, inputs(["a"]))
    path.write_bytes(whole + whole[:cut])
    with ResultsLog(str(path)) as log:
        log.begin(RUN)
        (item,) = log.unanswered(inputs(["a", "b"]))
        log.write(item, result(item.name))
    assert path.read_bytes().startswith(whole)
    assert [json.loads(text)["input"] for text in path.read_text().splitlines()] == ["a", "b"]
    path.write_bytes(whole[:-20])
    assert left(path, inputs(["a"])) == ["a"]
    assert path.read_bytes() == b""


DEEP = '{"chunks": ' + "[" * 1500 + "]" * 1500 + "}\n"


@pytest.mark.parametrize(
    "text",
    [
        *("no json\n", '{"status": 200}\n', "[1]\n", '{"input": "a"}\n', '{"input": "a", "status": 200}\n', "\xff\n"),
        *(DEEP, "\n", '{"learning_rate": 0.1}', '{"input": "data/", "status": 200}', "{", "{\n}", '{"input":"data/"}'),
        *("x" * 100_000, '{"archive_digest": "x"}', "\0" * 8),
    ],
)
def test_what_is_no_results_file_is_left_as_it_is(tmp_path: Path, text: str):
    path = tmp_path / "notes"
    path.write_text(text, encoding="latin-1")
    for unchecked in (False, True):
        assert_refused(path, 1, unchecked=unchecked)


@pytest.mark.parametrize("more", [b"# the end", b"\0\0", b'{"input": "b"', b"no json\n", b"\n"])
def test_what_follows_results_and_is_none_is_left_as_it_is(tmp_path: Path, more: bytes):
    path = tmp_path / "r.jsonl"
    path.write_bytes(written(path, inputs(["a"])) + more)
    assert_refused(path, 2)


def assert_refused(path: Path, line: int, **how: bool) -> None:
    before = path.read_bytes()
    with pytest.raises(UsageError) as caught:
        ResultsLog(str(path), **how)
    assert caught.value.where == f"{path}:{line}"
    assert path.read_bytes() == before


def test_a_journal_that_is_not_there_or_empty_is_begun(tmp_path: Path):
    path = tmp_path / "r.jsonl"
    for _ in range(2):
        with ResultsLog(str(path)) as log:
            assert log.answered == 0
    with pytest.raises(UsageError):
        ResultsLog(str(path / "x"))


def test_a_link_is_followed_and_windows_line_ends_are_read(tmp_path: Path):
    path = tmp_path / "r.jsonl"
    path.write_bytes(written(path, inputs(["a"])).replace(b"\n", b"\r\n"))
    (tmp_path / "link").symlink_to("r.jsonl")
    with ResultsLog(str(tmp_path / "link")), pytest.raises(UsageError) as caught:
        ResultsLog(str(path))
    assert caught.value.where == str(path)  # in use
    assert left(tmp_path / "link", inputs(["a", "b"])) == ["b"]


def test_what_is_no_file_is_not_read(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "read-only").touch(0o400)
    places = ["/dev/zero", "/dev/full", ".", str(tmp_path / "pipe"), str(tmp_path / "read-only")]
    for place in places if os.geteuid() else places[:-1]:  # root may write everywhere
        with pytest.raises(UsageError) as caught:
            ResultsLog(place)
        assert caught.value.where == place


def test_a_file_system_without_locks_is_used_without_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def fail(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr("marpack.runner.outputs.flock", fail)
    with ResultsLog(str(tmp_path / "r.jsonl")), ResultsLog(str(tmp_path / "r.jsonl")):
        pass


@pytest.mark.parametrize("more", [b"x", b'{"archive_digest":"'])
def test_a_file_that_grows_while_it_is_read_is_left_as_it_is(tmp_path, monkeypatch, more):
    path = tmp_path / "r.jsonl"
    before = written(path, inputs(["a"])) + b'{"archive_digest":"sha'
    path.write_bytes(before)

    def grow(_: ResultsLog, data: bytes, __: int) -> LoggedResult:
        with path.open("ab") as file:
            file.write(more)
        return msgspec.json.decode(data, type=LoggedResult)

    monkeypatch.setattr(ResultsLog, "_decode", grow)
    with pytest.raises(UsageError):
        ResultsLog(str(path))
    assert path.read_bytes() == before + more


@pytest.mark.parametrize(
    ("content_type", "body", "suffix"),
    [
        ("application/json", b"", ".json"),
        ("Text/Plain; charset=utf-8", b"", ".txt"),
        ("image/jpeg", b"", ".jpg"),
        ("application/octet-stream", b"\x89PNG\r\n\x1a\n", ".png"),
        ("nonsense/nonsense", b"{}", ".json"),
        (None, b'{"a": 1}', ".json"),
        (None, b"[1, 2", ".txt"),
        (None, b"", ".txt"),
        (None, b" \n[1]", ".json"),
        (None, b"[" * 100_000, ".txt"),
        (None, b"\xff\xd8\xff\xe0", ".jpg"),
        (None, b"RIFF\0\0\0\0WAVE", ".txt"),
        (None, b"PK\x03\x04" + b"\0" * 499 + b"/data.pkl", ".pt"),
        (None, b"PK\x03\x04" + b"\0" * 500 + b"/data.pkl", ".zip"),
        (None, b"RIFF\0\0\0\0WEBPVP8 ", ".webp"),
        (None, b"\x93NUMPY\1\0", ".npy"),
        (None, b"\x00\xff\xfe", ".bin"),
    ],
)
def test_a_suffix_goes_by_type_then_by_content(content_type: str | None, body: bytes, suffix: str):
    assert suffix_of(content_type, body) == suffix


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("in/a.png", "a.png"),
        ("https://host/x/a.png?key=1&b=/etc", "a.png"),
        ("https://host/", "host"),
        ("r.jsonl:12", "r.jsonl:12"),
        ("..", "answer"),
        ("a/..", "answer"),
        ("", "answer"),
        ("in/", "answer"),
        ("a\0b\nc", "a_b_c"),
    ],
)
def test_a_file_is_called_like_its_input_and_lies_nowhere_else(name: str, file: str):
    assert file_name(name) == file


def test_long_names_stay_apart():
    one, other = (file_name("é" * 300 + letter) for letter in "ab")
    assert one != other
    assert len(one.encode()) <= len(file_name("a" * 181)) == 180
    assert file_name("a" * 180) == "a" * 180
    assert file_name("a" * 181).startswith("a" * 171 + "-")


def answered(name: str, body: bytes, status: int = 200) -> Result:
    return results_of((name,), BatchResult(responses=(Response(status=status, body=body),)))[0]


def test_no_file_is_ever_replaced(tmp_path: Path):
    (tmp_path / "a.txt").write_text("of an earlier run")
    folder = BodyFolder(str(tmp_path), may_hold_files=True)
    saved = [folder.save(answered(f"in/{name}", body)) for name, body in (("a", b"1"), ("a", b"2"), ("a", b"{}"))]
    assert [Path(each.file).name for each in saved] == ["a-2.txt", "a-3.txt", "a.json"]
    assert [Path(each.file).read_bytes() for each in saved] == [b"1", b"2", b"{}"]
    assert (tmp_path / "a.txt").read_text() == "of an earlier run"


def test_what_is_no_answer_has_no_file(tmp_path: Path):
    folder = BodyFolder(str(tmp_path / "new" / "folder"), may_hold_files=False)
    assert folder.save(answered("a", b"", status=0)).file is None
    assert folder.save(answered("a", b"no", status=500)).file == str(tmp_path / "new" / "folder" / "a.txt")
    assert len(list((tmp_path / "new" / "folder").iterdir())) == 1


def test_a_folder_that_is_none_or_is_used_is_not_taken(tmp_path: Path):
    (tmp_path / "file").touch()
    for path, code in ((tmp_path / "file", "not-a-folder"), (tmp_path, "folder-not-empty")):
        with pytest.raises(UsageError, check=has_code(code, where=str(path))):
            BodyFolder(str(path), may_hold_files=False)
    with pytest.raises(OutputError) as unmade:
        BodyFolder(str(tmp_path / "file" / "x"), may_hold_files=False)
    assert unmade.value.where == str(tmp_path / "file" / "x")
    (tmp_path / "gone").mkdir()
    folder = BodyFolder(str(tmp_path / "gone"), may_hold_files=False)
    (tmp_path / "gone").rmdir()
    with pytest.raises(OutputError) as unwritten:
        folder.save(answered("a", b""))
    assert str(unwritten.value.where).startswith(str(tmp_path / "gone" / "a"))
