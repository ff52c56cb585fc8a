"""`--record`, answer by answer: which file is a sample, what is expected of it, what stays as it was."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from gate.archives import project, result

from marpack.errors import ProjectError
from marpack.gate.recording import Recorder, SavedSample
from marpack.project.load import load_project
from marpack.runner.inputs import Input
from marpack.runner.results import AnsweredInput, Result
from marpack.torchserve.http import Part, Request, Response

ADDED, FILLED, UPDATED, MET, REFUSED = SavedSample


def answered(name: str, data: bytes = b"x", body: str = "5", *, content_type: str = "", **values: Any) -> AnsweredInput:
    sent = Request(id="1", parts=(Part("body", data, content_type),))
    return AnsweredInput(Input(name, sent), msgspec.structs.replace(result(body, **values), input=name))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a project with three samples, which is the current folder; of two it is known what to expect."""
    path = project(tmp_path / "project", expect={"sky.txt": {"json": 5}, "sea.txt": {"text": "5"}})
    monkeypatch.chdir(path)
    return path


def recorded(folder: Path, *answers: AnsweredInput) -> list[tuple[str, SavedSample, str]]:
    recorder = Recorder(load_project(folder))
    assert list(recorder.through(answers)) == list(answers)
    recorder.write()
    return [(done.sample, done.kept, done.reason) for done in recorder.done]


def expectations(folder: Path) -> dict[str, Any]:
    told = yaml.safe_load((folder / "marpack.yaml").read_text())
    return {sample["input"]: sample.get("expect") for sample in told["samples"]}


def test_a_sample_of_the_projects_is_kept_under_the_name_it_has_there(folder: Path):
    text = (folder / "marpack.yaml").read_text()
    (folder / "marpack.yaml").write_text(text.replace("samples/sky.txt", "./samples/../samples/sky.txt"))
    asked = [str(folder / "samples" / "bee.txt"), "samples/sky.txt", "samples/sea.txt"]
    bodies = ["5", "6", "5"]
    assert recorded(folder, *(answered(name, body=body) for name, body in zip(asked, bodies, strict=True))) == [
        ("samples/bee.txt", FILLED, ""),  # nothing was expected of it
        ("./samples/../samples/sky.txt", UPDATED, ""),
        ("samples/sea.txt", MET, ""),
    ]
    assert expectations(folder) == {
        "samples/bee.txt": {"status": 200, "json": 5},
        "./samples/../samples/sky.txt": {"status": 200, "json": 6},
        "samples/sea.txt": {"text": "5"},
    }


@pytest.mark.parametrize(
    ("expect", "body", "kept", "told"),
    [
        ({"status": 200}, "5", FILLED, {"status": 200, "json": 5}),
        ({}, "5", FILLED, {"status": 200, "json": 5}),
        ({"status": 404}, "5", UPDATED, {"status": 200, "json": 5}),
        ({"status": 200}, "\0", MET, {"status": 200}),  # no more can be said of it
        ({"status": 200, "shape": []}, "5", MET, {"status": 200, "shape": []}),
    ],
)
def test_what_expects_a_status_alone_is_filled_in(
    tmp_path: Path, expect: dict[str, Any], body: str, kept: SavedSample, told: dict[str, Any]
):
    folder = project(tmp_path / "p", expect={"bee.txt": expect})
    name = str(folder / "samples" / "bee.txt")
    assert recorded(folder, answered(name, body=body)) == [("samples/bee.txt", kept, "")]
    assert expectations(folder)["samples/bee.txt"] == told


@pytest.mark.parametrize(
    ("name", "content_type", "sample"),
    [
        ("https://host/a/x.png?key=1", "", "samples/x.png"),
        ("https://host/", "", "samples/sample"),
        ("s3://bucket/deep/y.txt", "", "samples/y.txt"),
        ('{"a": 1}', "application/json", "samples/recorded-2d711642.json"),
        ("some text", "of/nothing", "samples/recorded-2d711642"),
    ],
)
def test_what_is_no_file_becomes_one(folder: Path, name: str, content_type: str, sample: str):
    assert recorded(folder, answered(name, b"x", content_type=content_type)) == [(sample, ADDED, "")]
    assert (folder / sample).read_bytes() == b"x"
    assert list(expectations(folder))[3:] == [sample]


def test_a_file_from_elsewhere_is_copied_and_one_of_the_projects_is_not(folder: Path):
    (folder / "data").mkdir()
    (folder / "data" / "in.txt").write_text("in")
    (folder.parent / "out.txt").write_text("out")
    inside, outside = answered("data/in.txt", b"in"), answered("../out.txt", b"out")
    assert recorded(folder, inside, outside) == [("data/in.txt", ADDED, ""), ("samples/out.txt", ADDED, "")]
    assert (folder / "samples" / "out.txt").read_text() == "out"
    assert not (folder / "samples" / "in.txt").exists()


def test_another_file_of_that_name_is_never_overwritten(folder: Path):
    done = recorded(
        folder,
        answered("https://a/sky.txt", b"other"),
        answered("https://a/new.txt", b"one"),
        answered("https://b/new.txt", b"two"),
        answered("https://c/new.txt", b"one"),
    )
    assert [(name, kept) for name, kept, _ in done] == [
        ("samples/sky.txt", REFUSED),
        ("samples/new.txt", ADDED),
        ("samples/new.txt", REFUSED),
        ("samples/new.txt", ADDED),
    ]
    assert (folder / "samples" / "new.txt").read_bytes() == b"one"
    same = (folder / "samples" / "bee.txt").read_bytes()
    assert recorded(folder, answered("https://a/bee.txt", same)) == [("samples/bee.txt", FILLED, "")]


@pytest.mark.parametrize("values", [{"status": 500}, {"status": 600}, {"status": 99}, {"reset": True}])
def test_a_response_that_cannot_be_expected_is_not_recorded(folder: Path, values: dict[str, Any]):
    before = (folder / "marpack.yaml").read_bytes()
    ((name, kept, reason),) = recorded(folder, answered("samples/bee.txt", **values))
    assert (name, kept, bool(reason)) == ("samples/bee.txt", REFUSED, True)
    assert (folder / "marpack.yaml").read_bytes() == before


@pytest.mark.parametrize(
    "asked",
    [
        Input("x", Request(id="1", parts=(Part("data", b"x"),))),
        Input("x", Request(id="1", parts=(Part("body", b"x"), Part("more", b"y")))),
        Input("x", Request(id="1", parts=(Part("body", b"x"),)), refused=Response(status=413, body=b"")),
    ],
)
def test_only_a_body_can_be_a_sample(folder: Path, asked: Input):
    told: Result = msgspec.structs.replace(result("5"), input="x")
    assert [(name, kept) for name, kept, _ in recorded(folder, AnsweredInput(asked, told))] == [("x", REFUSED)]


def test_a_sample_that_cannot_be_written_is_told_and_nothing_is_recorded(tmp_path: Path):
    folder = project(tmp_path / "project", samples={})
    (folder / "samples").touch()
    before = (folder / "marpack.yaml").read_bytes()
    with pytest.raises(ProjectError) as caught:
        recorded(folder, answered("https://host/x.txt"))
    assert caught.value.code == "unwritable-sample"
    assert caught.value.where == str(folder / "samples" / "x.txt")
    assert (folder / "marpack.yaml").read_bytes() == before
