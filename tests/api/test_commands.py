"""The commands as functions: their options, what they do beyond their results, and what is no option."""

import inspect
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import marpack
from marpack.project.planning import Flags

HANDLER = """
import os
def handle(data, context):
    if data is None: return
    if b"end" in data[0].get("body"): os._exit(3)
    return [{"rows": len(data), "lower": row["body"].decode().lower()} for row in data]
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "marpack.yaml").write_text("name: low\nversion: '1.0'\nhandler: handler.py\n")
    (tmp_path / "handler.py").write_text(HANDLER)
    return tmp_path


def test_a_project_is_made_and_built_and_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    made = marpack.init(Path("mine"), template="function", name="tiny")
    assert (made.name, made.template) == ("tiny", "function")
    assert (tmp_path / "mine" / "marpack.yaml").is_file()
    planned = marpack.plan_build("mine", archive_format="tgz")
    assert {"handler.py"} <= {member.name for member in planned.members}
    assert "handler.py" in planned._repr_html_()
    assert not Path(planned.path).exists()
    built = marpack.build("mine", output=tmp_path / "out" / "tiny.tar.gz", archive_format="tgz")
    assert built.path == str(tmp_path / "out" / "tiny.tar.gz")
    assert marpack.unpack(built.path).folder == "tiny"
    assert (tmp_path / "tiny" / "MAR-INF" / "MANIFEST.json").is_file()
    again = marpack.init(from_=Path(built.path), folder="again")
    assert (again.template, again.name) == (None, "tiny")
    assert marpack.build("again", archive_format="tgz").content_digest == built.content_digest


def test_an_archive_is_built_of_the_original_archivers_arguments(project: Path) -> None:
    (project / "a.txt").write_text("a")
    built = marpack.build(
        model_name="flat", version="1", handler="handler.py", extra_files=[Path("a.txt"), "marpack.yaml"], force=True
    )
    assert built.path == "flat.mar"
    assert {each.name for each in marpack.inspect("flat.mar").members} >= {"handler.py", "a.txt", "marpack.yaml"}
    assert set(Flags.__struct_fields__) <= set(inspect.signature(marpack.build).parameters)


def test_all_are_answered_in_order_and_held(project: Path) -> None:
    (project / "A.txt").write_bytes(b"FILE")
    report = marpack.run(None, (each for each in [Path("A.txt"), b"RAW", b"MORE"]), batch_size=2, content_type="")
    answers = [(result.json()["rows"], result.json()["lower"]) for result in report.results]
    assert answers == [(2, "file"), (2, "raw"), (1, "more")]
    assert [result.input for result in report.results] == ["A.txt", "inputs[1]", "inputs[2]"]
    assert (report.summary.inputs, report.summary.answered, report.failure) == (3, 3, None)
    assert report.summary.peak_memory
    assert repr(report) == "RunReport('low.mar', 3 inputs, all succeeded)"
    assert all(isinstance(result, marpack.api.results.Answer) for result in report.results)  # type: ignore[attr-defined]


def test_a_run_ends_at_the_first_failure_if_asked(project: Path) -> None:
    report = marpack.run(project, [b"a", b"end", b"b"], fail_fast=True, content_type="")
    assert [result.ok for result in report.results] == [True, False]


def test_a_model_that_cannot_be_loaded_again_loses_no_answer(project: Path) -> None:
    mark = project / "once"
    (project / "handler.py").write_text(
        f"import os\nif os.path.exists({str(mark)!r}): raise ValueError('gone')\n{HANDLER}"
    )

    def inputs() -> Any:
        yield b"a"
        mark.touch()
        yield b"end"
        yield b"b"

    report = marpack.run(project, inputs(), content_type="")
    assert report.results[0].ok
    assert "ValueError: gone" in report.failure.error


def test_inputs_are_asked_in_a_check(project: Path) -> None:
    said = marpack.check(inputs=[b"A", Path("marpack.yaml")], content_type="", only=["proved", "samples", "loads"])
    assert [each.verdict for each in said.checks if not each.left_out] == ["passed"] * 3
    assert "2 requests got" in next(each.reason for each in said.checks if each.name == "proved")


def test_the_cache_is_where_the_environment_says_and_nothing_is_printed(project: Path, monkeypatch, capfd) -> None:
    for name, call in (("run", partial(marpack.run, inputs=[b"a"])), ("check", partial(marpack.check, only=["loads"]))):
        monkeypatch.setenv("MARPACK_CACHE_DIR", str(project / name))
        call(project)
        assert list((project / name).iterdir())
    marpack.diff(project, project)
    assert capfd.readouterr() == ("", "")


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_an_interruption_is_pythons_own(project: Path) -> None:
    def inputs() -> Any:
        yield b"a"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        marpack.run(project, inputs(), content_type="")
