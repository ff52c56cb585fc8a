"""The handler for SageMaker's layout gives the responses of AWS's toolkit, case by case.

`tests/data/sagemaker/recorded.json` has the toolkit's. `make toolkit` installs it for the slow comparison, and to
record again: `cd tests/data/sagemaker && ../../../.venvs/sagemaker/bin/python play.py toolkit recorded.json`.
"""

import ast
import base64
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from conformance.forking import forked_workers, shared

import marpack
from marpack.archive.sagemaker import handler_source
from marpack.runner.client import Worker

ROOT = Path(__file__).parents[3]
DATA = ROOT / "tests/data/sagemaker"
TOOLKIT = ROOT / ".venvs/sagemaker/bin/python"
HANDLER = ROOT / "marpack/worker/handlers/sagemaker.py"
RECORDED = json.loads((DATA / "recorded.json").read_bytes())
OWN_ERRORS = {"exceptions", "transform"}  # cases in which scripts raise; other failures have the toolkit's words
# One number: two thirds of the toolkit's response are uninitialized memory. A JSON object: the toolkit refuses it.
SAFER = {("defaults", 7), ("JSON object", 0)}


def play(python, which, output, *words):
    command = [str(python), "-W", "ignore", str(DATA / "play.py"), str(which), str(output), *words]
    subprocess.run(command, check=True, timeout=300)
    return json.loads(output.read_bytes())


def plain(found):
    """Return the facts that both sides must have in common."""
    facts = {}
    for name, case in found.items():
        facts[name, "load"] = "load" in case
        for number, response in enumerate(case.get("responses", ())):
            is_compared = response["status"] == 200 or name in OWN_ERRORS
            keys = ("status", "headers", "body", "first line", "phrase") if is_compared else ("status", "headers")
            if (name, number) not in SAFER:
                facts[name, number] = {key: response.get(key) for key in keys}
    return facts


@pytest.mark.parametrize(
    "mode", [pytest.param("bytes", marks=pytest.mark.slow), pytest.param("decoded", marks=pytest.mark.peer)]
)
def test_responses_are_those_of_the_toolkit(tmp_path, mode):
    found = play(sys.executable, HANDLER, tmp_path / "found.json", *([mode] if mode == "decoded" else []))
    expected = plain(RECORDED)
    assert len(expected) > 70
    assert plain(found) == expected
    one_number = found["defaults"]["responses"][7]
    assert json.loads(base64.b64decode(one_number["body"])) == [7.0]
    json_object = found["JSON object"]["responses"][0]
    assert json.loads(base64.b64decode(json_object["body"])) == ["text"]


@pytest.mark.slow
def test_the_recorded_responses_are_those_of_the_toolkit(tmp_path):
    if not TOOLKIT.is_file():
        pytest.skip("the toolkit is missing in .venvs/sagemaker: make toolkit")
    assert plain(play(TOOLKIT, "toolkit", tmp_path / "toolkit.json")) == plain(RECORDED)


def test_the_handler_needs_only_numpy_and_torch():
    nodes = [node for node in ast.walk(ast.parse(handler_source())) if isinstance(node, ast.Import | ast.ImportFrom)]
    names = {node.module if isinstance(node, ast.ImportFrom) else node.names[0].name for node in nodes}
    assert {name.partition(".")[0] for name in names} - sys.stdlib_module_names == {"numpy", "torch"}
    assert len(handler_source().splitlines()) <= 200


def test_a_body_is_never_unpickled(tmp_path, monkeypatch):
    class Attack:
        def __reduce__(self):
            return Path.touch, (tmp_path / "pwned",)

    array = tmp_path / "array.npy"
    np.save(array, np.array([Attack()], dtype=object), allow_pickle=True)
    folder = tmp_path / "model"
    (folder / "code").mkdir(parents=True)
    (folder / "code/inference.py").write_text("")
    (folder / "model.pt").write_bytes((ROOT / "templates/init/custom/model.pt").read_bytes())
    headers = (("Content-Type", "application/x-npy"),)
    monkeypatch.setattr(Worker, "spawn", forked_workers(shared))
    with marpack.load(folder) as model:
        (answer,) = model.answer([marpack.RawRequest(headers, array.read_bytes())])
        (good,) = model.answer([marpack.RawRequest((("Content-Type", "text/csv"),), b"1,2,3")])
        # The reason phrase is the message, and a phrase that is not ASCII would end the worker.
        headers = (("Content-Type", "text/csv"), ("Accept", "image/é"))
        (foreign,) = model.answer([marpack.RawRequest(headers, b"1,2,3")])
    assert (answer.status, good.status, foreign.status) == (500, 200, 500)
    assert "image/é" in foreign.body.split("\n")[0]
    assert not (tmp_path / "pwned").exists()
