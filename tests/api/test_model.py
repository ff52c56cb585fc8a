"""A loaded model, as it is used from Python."""

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
    return [{"rows": len(data), "seen": {k: str(v) for k, v in row.items()}, "x": context.get_request_header(0, "X"),
             "type": context.get_request_header(0, "Content-Type")} for row in data]
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "marpack.yaml").write_text("name: echo\nversion: '1.0'\nhandler: handler.py\n")
    (tmp_path / "handler.py").write_text(HANDLER)
    return tmp_path


def test_build_open_and_load_are_the_commands(project: Path) -> None:
    built = marpack.build(project)
    with marpack.open(built.path) as archive:
        assert archive.manifest.model.name == "echo"
    with marpack.load(built.path) as model:
        assert model.handler == "handler:handle"
        first = model.predict({"a": 1})
        assert first.json()["seen"] == {"body": "{'a': 1}"}
        assert first.input == "00000000-0000-4000-8000-000000000001"


def test_a_value_is_sent_as_what_it_is(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)
    (project / "note.txt").write_text("hi")
    with marpack.load(project) as model:
        assert model.predict(project / "note.txt").json()["seen"] == {"body": "hi"}
        assert model.predict(b"\x00").json()["seen"] == {"body": "bytearray(b'\\x00')"}
        form = {"k": "v", "f": project / "note.txt", "j": [1]}
        assert model.predict(form=form).json()["seen"] == {"k": "bytearray(b'v')", "f": "hi", "j": "[1]"}
        assert model.predict().json()["seen"] == {"body": "bytearray(b'')"}
        assert model.predict([1], headers={"X": "y"}).json()["x"] == "y"
        assert [result.json()["rows"] for result in model.predict_batch([[1], [2]])] == [2, 2]
        assert [result.json()["rows"] for result in model.predict_many([[1], [2]])] == [1, 1]
        text = model.predict("note.txt")
        assert (text.json()["seen"], text.json()["type"]) == ({"body": "note.txt"}, "text/plain")
        assert [trouble.kind for trouble in text.troubles] == ["text-names-a-file"]
        assert "predict(Path('note.txt'))" in str(text.troubles[0].hint)
        assert model.predict("some note.txt").troubles == ()


SIZE = """
def handle(data, context):
    return [{"size": context.system_properties["batch_size"]} for _ in data or ()]
"""


def test_run_has_batches_of_one_unless_told_otherwise_and_load_keeps_the_configs(project: Path) -> None:
    (project / "handler.py").write_text(SIZE)
    with (project / "marpack.yaml").open("a") as file:
        file.write("config: {batchSize: 4}\n")
    assert marpack.run(project, ["x"]).results[0].json()["size"] == 1
    assert marpack.run(project, ["x"], batch_size=2).results[0].json()["size"] == 2
    with marpack.load(project) as model:
        assert model.predict("x").json()["size"] == 4


def test_what_the_servers_frontend_refuses_is_answered_as_there(project: Path) -> None:
    with marpack.load(project, max_request_size=200) as model:
        assert [answer.status for answer in model.predict_batch([[1], {"x": "x" * 200}, [2]])] == [200, 413, 200]
        assert model.predict(form={"k": b"x" * 200}).status == 413
        broken = model.predict(b"=1", content_type="application/x-www-form-urlencoded")
        assert (broken.status, broken.troubles[0].kind) == (400, "refused-form")


RAW = """
import os, signal
def handle(data, context):
    if data is None: return
    texts = [row.get("body") or row.get("data") or row["k"].decode() for row in data]
    if "bad" in texts: raise ValueError("no")
    if "die" in texts: os.kill(os.getpid(), signal.SIGKILL)
    return [f"{text} of {len(texts)} {context.get_request_header(n, 'Content-Type')}" for n, text in enumerate(texts)]
"""
TEXT = (("Content-Type", "text/plain"),)


def test_raw_requests_are_answered_together_and_a_bad_one_costs_only_itself(project: Path) -> None:
    (project / "handler.py").write_text(RAW)
    form = "multipart/form-data; boundary=b"
    part = b'--b\r\nContent-Disposition: form-data; name="k"\r\n\r\nv\r\n--b--'
    requests = [
        marpack.RawRequest(TEXT, b"a"),
        marpack.RawRequest((("Content-Type", form),), part),
        marpack.RawRequest(TEXT, b"x" * 300),
        marpack.RawRequest((("Content-Type", form),), part.replace(b"name=", b"nome=")),
        marpack.RawRequest((("content-type", "text/plain"),), b"b"),
    ]
    with marpack.load(project, max_request_size=200) as model:
        answers = model.answer(requests)
        assert [each.status for each in answers] == [200, 200, 413, 400, 200]
        assert [answers[n].raw for n in (0, 1, 4)] == [b"a of 3 text/plain", f"v of 3 {form}".encode(), b"b of 3 None"]
        for text, status in ((b"bad", 503), (b"die", 507)):
            answers = model.answer([requests[0], marpack.RawRequest(TEXT, text), requests[1]])
            assert [each.status for each in answers] == [200, status, 200]
            assert answers[0].raw == b"a of 1 text/plain"
        assert model.answer([]) == []
        with pytest.raises(UsageError, match="bytes") as refused:
            model.answer([b"a"])  # type: ignore[list-item]
        assert refused.value.where == "requests"


def test_raw_requests_tell_their_route(project: Path) -> None:
    rows = "[[c.get_request_header(n, k) for k in ('explain', 'url_path')] for n in (0, 1)]"
    (project / "handler.py").write_text(f"def handle(data, c):\n    if data: return {rows}\n")
    with marpack.load(project) as model:
        plain, explained = model.answer([marpack.RawRequest(()), marpack.RawRequest((), explain=True, url_path="a/b")])
    assert (plain.json(), explained.json()) == (["False", ""], ["True", "a/b"])


def test_errors_are_of_the_rooted_tree(project: Path) -> None:
    (project / "handler.py").write_text("def handle(data, context): raise ValueError('no')\n")
    with pytest.raises(LoadError, match="ValueError: no"):
        marpack.load(project)
    (project / "marpack.yaml").write_text("name: echo\n")
    with pytest.raises(ProjectError):
        marpack.build(project)


def test_one_value_is_not_several(project: Path) -> None:
    with marpack.load(project) as model:
        for several in (model.predict_batch, model.predict_many):
            for one in ("text", b"raw", {"a": 1}, project, 5):
                with pytest.raises(UsageError) as refused:
                    several(one)  # type: ignore[arg-type]
                assert refused.value.where == "inputs"


def test_importing_marpack_costs_nothing_and_looking_imports_no_torch(project: Path) -> None:
    path = marpack.build(project).path
    heavy = "{'msgspec', 'torch', 'click', 'yaml'}"
    look = f"marpack.inspect({path!r})._repr_html_(), marpack.diff({path!r}, {path!r})._repr_html_()"
    code = f"import sys, marpack; print(*sys.modules.keys() & {heavy}); {look}"
    code += "; from marpack.api.requests import payload; payload([1, 2], 'data'); payload('text', 'data')"
    code += "; print(*sys.modules.keys() & {'torch', 'onnxruntime', 'PIL', 'numpy'})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
    with pytest.raises(AttributeError):
        _ = marpack.bild  # type: ignore[attr-defined]


def test_every_public_name_is_there_and_listed() -> None:
    for name in marpack.__all__:
        assert getattr(marpack, name) is not None
        assert name in dir(marpack)


@pytest.mark.slow
def test_the_apis_own_examples_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from marpack import api

    examples = Path(__file__).parents[2] / "examples"
    shutil.copytree(examples / "digits", tmp_path / "digits", ignore=shutil.ignore_patterns("*.mar", "__pycache__"))
    monkeypatch.chdir(tmp_path / "digits")
    done = doctest.testmod(api)
    assert done.failed == 0
    assert done.attempted > 4
