"""marpack.yaml → Project: what is taken, and what is said of what is not."""

from collections.abc import Callable
from pathlib import Path

import pytest

from marpack.errors import NoProjectError, ProjectError
from marpack.project.load import load_project
from marpack.project.schema import Expectation, FileMapping, Project, ProjectFile, SampleSpec, TextExpectation
from marpack.protocol.targets import Target

EVERYTHING = """\
name: digits
version: "1.0"
weights: digits.pt
model_file: model.py
handler: handler.py
labels: labels.txt
requirements: requirements.txt
target: marpack
files: [vocab.json, {from: assets/, to: assets/}]
config:
  batchSize: 8
  pt2: {compile: {enable: true, backend: inductor}}
stand_ins: auto
samples:
  - input: samples/seven.png
    expect: {status: 200, json: {"7": {min: 0.9}}}
  - input: samples/other.png
    expect: {text: {contains: [a, b], regex: "c+"}, shape: [1, 3], body: "x"}
  - {input: bare.json}
"""


def test_every_key_of_the_file_is_read(make_project: Callable[..., Path]) -> None:
    folder = make_project(EVERYTHING)
    project = load_project(folder)
    assert project == Project(
        name="digits",
        version="1.0",
        weights="digits.pt",
        model_file="model.py",
        handler="handler.py",
        labels="labels.txt",
        requirements="requirements.txt",
        target=Target.MARPACK,
        files=["vocab.json", FileMapping("assets/", "assets/")],
        config={"batchSize": 8, "pt2": {"compile": {"enable": True, "backend": "inductor"}}},
        samples=[
            SampleSpec("samples/seven.png", Expectation(status=200, json={"7": {"min": 0.9}})),
            SampleSpec(
                "samples/other.png",
                Expectation(text=TextExpectation(["a", "b"], "c+"), shape=[1, 3], body="x"),
            ),
            SampleSpec("bare.json"),
        ],
        folder=folder,
        file=str(folder / "marpack.yaml"),
        lines=project.lines,
    )
    assert project.place("samples[1].expect.text.regex") == f"{folder}/marpack.yaml:18: samples[1].expect.text.regex"


@pytest.mark.parametrize("written", ["1.10", "2", "2024-01-01", "1e3", "0x10", '"1.0"', "no"])
def test_a_version_is_taken_as_it_is_written(make_project: Callable[..., Path], written: str) -> None:
    project = load_project(make_project(f"name: 7\nversion: {written}\nhandler: base_handler\n"))
    assert (project.name, project.version) == ("7", written.strip('"'))


HEAD = "name: n\nversion: 1\nhandler: h.py\n"
EXPECT = HEAD + "samples: [{{input: a, expect: {}}}]\n"
# marpack.yaml → the line and key, and the code of the one finding, and a word of its message or hint.
WRONG = {
    HEAD + "wieghts: a\n": ("4: wieghts", "unknown-key", "weights?"),
    HEAD + "zzz: 1\n": ("4: zzz", "unknown-key", ", ".join(ProjectFile.__struct_fields__)),
    HEAD + "1: a\n": ("4: 1", "unknown-key", "1"),
    EXPECT.format("{text: {containing: a}}"): ("4: samples[0].expect.text.containing", "unknown-key", "contains?"),
    "name: n\nversion: 1\n": ("", "missing-key", "handler"),
    HEAD + "files:\n  - {from: a}\n": ("5: files[0]", "missing-key", "to"),
    HEAD + "weights:\n": ("4: weights", "empty-key", "weights"),
    HEAD + "weights: [a]\n": ("4: weights", "wrong-type", "must be text, not a list"),
    HEAD + "files: a\n": ("4: files", "wrong-type", "must be a list, not 'a'"),
    EXPECT.format("{status: ok}"): ("4: samples[0].expect.status", "wrong-type", "must be a number, not 'ok'"),
    EXPECT.format("{status: true}"): ("4: samples[0].expect.status", "wrong-type", "a number, not true or false"),
    HEAD + "samples: [a.png]\n": ("4: samples[0]", "wrong-type", "a mapping of input, expect, generated, not 'a.png'"),
    HEAD + "files: [[a]]\n": ("4: files[0]", "wrong-type", "must be text or a mapping of from, to, not a list"),
    HEAD + "stand_ins: never\n": ("4: stand_ins", "wrong-type", "must be true or false or auto, not 'never'"),
    HEAD + "checks: {samples: warnin}\n": ("4: checks.samples", "wrong-type", "warning?"),
    HEAD + "checks: {memry: warning}\n": ("4: checks.memry", "unknown-key", "memory?"),
    HEAD + "target: torchsrve\n": ("4: target", "wrong-type", "torchserve?"),
}


@pytest.mark.parametrize("yaml", WRONG)
def test_a_mistake_is_reported_where_it_is(make_project: Callable[..., Path], yaml: str) -> None:
    folder = make_project(yaml)
    with pytest.raises(ProjectError) as caught:
        load_project(folder)
    (finding,) = caught.value.findings
    place, code, word = WRONG[yaml]
    assert (finding.where, finding.code) == (f"{folder}/marpack.yaml" + (f":{place}" if place else ""), code)
    assert word in f"{finding.message} {finding.hint}"


def test_every_problem_is_told_in_one_go(make_project: Callable[..., Path]) -> None:
    folder = make_project("version: []\nfiles: [{to: a}, 3, {from: a, to: b, x: 1}]\nsamples: {}\nwieghts: 1\n")
    with pytest.raises(ProjectError, match=r"marpack\.yaml .* 7 ") as caught:
        load_project(folder)
    keys = ("version", "from", "x", "samples", "wieghts", "name", "handler")
    assert len(caught.value.findings) == len(keys)
    for key, finding in zip(keys, caught.value.findings, strict=True):
        assert key in finding.message.split()


@pytest.mark.parametrize("text", ["", "# only a comment\n", "- a\n", "text\n"])
def test_a_file_that_holds_no_keys(make_project: Callable[..., Path], text: str) -> None:
    with pytest.raises(ProjectError) as caught:
        load_project(make_project(text))
    assert caught.value.code == "not-a-mapping"
    assert ("empty" in caught.value.what) == (text[:1] in {"", "#"})


def test_no_project_here(tmp_path: Path) -> None:
    def refused(path: Path) -> NoProjectError:
        with pytest.raises(NoProjectError) as caught:
            load_project(path)
        return caught.value

    assert refused(tmp_path).where == str(tmp_path)
    assert "marpack init" in str(refused(tmp_path).hint)
    assert refused(tmp_path / "nowhere").where == str(tmp_path / "nowhere")
    (tmp_path / "marpack.yml").touch()
    assert refused(tmp_path).hint == "rename marpack.yml to marpack.yaml"
    assert refused(tmp_path / "marpack.yml").where == str(tmp_path / "marpack.yml")
    (tmp_path / "marpack.yaml").mkdir()
    assert refused(tmp_path).where == str(tmp_path / "marpack.yaml")
