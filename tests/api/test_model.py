import doctest
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import marpack
from marpack.errors import ProjectError, UsageError
from marpack.runner.client import LoadError

HANDLER = """
def handle(data, context):
    if data is None: return
    return [{"rows": len(data), "seen": {k: str(v) for k, v in row.items()}, "x": context.get_request_header(0, "X")}
            for row in data]
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "marpack.yaml").write_text("name: echo\nversion: '1.0'\nhandler: handler.py\n")
    (tmp_path / "handler.py").write_text(HANDLER)
    return tmp_path


def test_build_open_and_load_are_the_commands(project: Path):
    built = marpack.build(project)
    with marpack.open(built.path) as archive:
        assert archive.manifest.model.name == "echo"
    with marpack.load(built.path) as model:
        assert model.handler == "handler:handle"
        first = model.predict({"a": 1})
        assert first.json()["seen"] == {"body": "{'a': 1}"}
        assert first.input == "00000000-0000-4000-8000-000000000001"


def test_a_str_that_names_no_file_is_told_how_text_is_sent(project: Path):
    with marpack.load(project) as model:
        for text, why in (("no such thing", "No such file"), ("x" * 9000, "too long"), ("a\0b", "null byte")):
            with pytest.raises(UsageError, match=why) as caught:
                model.predict(text)
            assert "predict(text.encode(), content_type='text/plain')" in str(caught.value.hint)
            assert len(str(caught.value.where)) <= 80
        with pytest.raises(UsageError, match="No such file"):
            model.predict(form={"a": Path("no such thing")})


def test_inputs_are_files_bytes_json_and_forms(project: Path):
    (project / "note.txt").write_text("hi")
    with marpack.load(project) as model:
        assert model.predict(project / "note.txt").json()["seen"] == {"body": "hi"}
        assert model.predict(b"\x00").json()["seen"] == {"body": "bytearray(b'\\x00')"}
        assert model.predict(form={"k": "v", "f": project / "note.txt"}).json()["seen"] == {
            "k": "bytearray(b'v')",
            "f": "hi",
        }
        assert model.predict().json()["seen"] == {"body": "bytearray(b'')"}
        assert model.predict([1], headers={"X": "y"}).json()["x"] == "y"
        assert [result.json()["rows"] for result in model.predict_batch([[1], [2]])] == [2, 2]
        assert [result.json()["rows"] for result in model.predict_many([[1], [2]])] == [1, 1]


def test_what_the_servers_frontend_refuses_is_answered_as_there(project: Path):
    with marpack.load(project, max_request_size=200) as model:
        assert [answer.status for answer in model.predict_batch([[1], {"x": "x" * 200}, [2]])] == [200, 413, 200]
        assert model.predict(form={"k": b"x" * 200}).status == 413
        broken = model.predict(b"=1", content_type="application/x-www-form-urlencoded")
        assert (broken.status, broken.troubles[0].kind) == (500, "refused-form")


def test_errors_are_of_the_rooted_tree(project: Path):
    (project / "handler.py").write_text("def handle(data, context): raise ValueError('no')\n")
    with pytest.raises(LoadError, match="ValueError: no"):
        marpack.load(project)
    (project / "marpack.yaml").write_text("name: echo\n")
    with pytest.raises(ProjectError):
        marpack.build(project)


def test_importing_marpack_costs_nothing():
    code = "import sys, marpack; print(*[m for m in sys.modules if m in {'msgspec', 'torch', 'click', 'yaml'}])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
    with pytest.raises(AttributeError):
        _ = marpack.bild  # type: ignore[attr-defined]


def test_the_apis_own_examples_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from marpack import api

    shutil.copytree(Path(__file__).parents[2] / "examples" / "digits", tmp_path / "digits")
    monkeypatch.chdir(tmp_path / "digits")
    done = doctest.testmod(api.model)
    assert done.failed == 0
    assert done.attempted > 4
