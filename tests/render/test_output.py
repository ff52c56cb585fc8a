"""Results as JSON, on stdout and in files."""

import errno
import io
import json
import os
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

from marpack.errors import UsageError
from marpack.protocol.messages import Loaded
from marpack.render.output import expect_writable, show, show_line, write_whole
from marpack.render.run_json import ReportStream, RunHead
from marpack.runner.results import Result, Summary


def test_a_result_is_indented_or_a_line(capsysbinary: pytest.CaptureFixture[bytes]):
    show({"a": [1], "b": "ü"})
    assert capsysbinary.readouterr().out == '{\n  "a": [\n    1\n  ],\n  "b": "ü"\n}\n'.encode()
    show_line({"a": [1], "b": "ü"})
    assert capsysbinary.readouterr().out == '{"a":[1],"b":"ü"}\n'.encode()


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("", "it has no name"),
        ("folder", "it is a folder"),
        ("gone/x.json", "there is no folder gone"),
        ("x" * 300, "File name too long"),
    ],
)
def test_a_path_that_cannot_be_written_is_refused_beforehand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, why: str
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    with pytest.raises(UsageError, match=why) as caught:
        expect_writable(path, option="--junit")
    assert caught.value.where == f"--junit {path}".strip()


def test_what_can_be_written_and_what_nobody_asked_for_is_fine(tmp_path: Path):
    (tmp_path / "there.json").touch()
    for path in (None, str(tmp_path / "there.json"), str(tmp_path / "new.json")):
        expect_writable(path, option="--junit")
    assert [path.name for path in tmp_path.iterdir()] == ["there.json"]


def test_a_file_is_replaced_whole_and_a_pipe_is_written_to(tmp_path: Path):
    file, pipe = tmp_path / "a.json", tmp_path / "pipe"
    file.write_text("a longer text than the new one")
    write_whole(str(file), b"new", option="--junit")
    assert file.read_bytes() == b"new"
    os.mkfifo(pipe)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    write_whole(str(pipe), b"new", option="--junit")
    reader.join()
    assert read == [b"new"]
    assert pipe.is_fifo()


def test_a_file_that_cannot_be_written_is_one_sentence(tmp_path: Path):
    with pytest.raises(UsageError, match=os.strerror(errno.EISDIR)) as caught:
        write_whole(str(tmp_path), b"", option="--junit")
    assert (caught.value.code, caught.value.where) == ("output", f"--junit {tmp_path}")


def result(name: str) -> Result:
    given: dict[str, Any] = {"status": 200, "phrase": "", "headers": {}, "content_type": None, "body": "{}"}
    return Result(input=name, body_encoding="text", stages={}, seconds=0.0, **given)


HEAD = RunHead(
    archive="a.mar",
    content_digest=None,
    target="torchserve",
    loaded=Loaded(handler="h", device="cpu", stages={}),
    load_logs="",
)
SUMMARY = Summary(inputs=2, answered=2, short=0, seconds=1.0, throughput=2.0, stages={}, restarts=0, peak_memory=None)


@pytest.mark.parametrize("names", [[], ["a"], ["a", "b"]])
def test_a_document_that_streams_looks_like_one_written_at_once(names: list[str]):
    stream = io.BytesIO()
    document = ReportStream(stream, HEAD)
    for name in names:
        document.show(result(name))
        assert stream.getvalue().endswith(b"\n    }")  # it can be read at once
    document.close(SUMMARY, interrupted=True)
    text = stream.getvalue().decode()
    told = json.loads(text)
    assert [each["input"] for each in told["results"]] == names
    assert (told["archive"], told["summary"]["inputs"], told["interrupted"], told["failure"]) == (
        "a.mar",
        2,
        True,
        None,
    )
    assert list(told)[-4:] == ["results", "summary", "interrupted", "failure"]
    assert text == msgspec.json.format(text, indent=2) + "\n"
