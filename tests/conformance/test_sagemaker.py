"""A model.tar.gz of SageMaker's, turned into a .mar, on a real TorchServe: the recorded responses of AWS's toolkit."""

import base64
import json
import sys
from pathlib import Path

import pytest
from conformance.peer import require_peer
from conformance.server import Server
from conformance.wire import Message, exchange

import marpack
from marpack.archive.sagemaker import SCRIPT

pytestmark = pytest.mark.slow  # a server takes seconds to come up

DATA = Path(__file__).parents[1] / "data/sagemaker"
RECORDED = json.loads((DATA / "recorded.json").read_bytes())
CASES = ("defaults", "bodies", "context", "transform", "exceptions", "return values", "environment", "hooks")
SAFER = {("defaults", 7)}  # one number: of the toolkit's response, two thirds are uninitialized memory


def source_of(folder, files):
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        is_model = text is None
        path.write_bytes((DATA / "model.pt").read_bytes() if is_model else text.encode())
    return folder


def test_the_built_archive_gives_the_toolkit_s_responses(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(DATA)
    cases = __import__("cases").CASES
    monkeypatch.delitem(sys.modules, "cases")
    with Server(require_peer(), tmp_path / "server") as server:
        for number, name in enumerate(CASES):
            files, _, requests = cases[name]
            source = source_of(tmp_path / f"source-{number}", files)
            project = tmp_path / f"project-{number}"
            marpack.init(project, from_=source)
            assert (project / SCRIPT).read_bytes() == (source / SCRIPT).read_bytes()
            built = marpack.build(project, output=tmp_path / f"m{number}.mar")
            assert server.register(Path(built.path), f"m{number}").status == 200
            for index, (request, expected) in enumerate(zip(requests, RECORDED[name]["responses"], strict=True)):
                body = base64.b64decode(request["body"])
                message = Message("POST", f"/predictions/m{number}", tuple(request["headers"].items()), body)
                answer = exchange(server.inference, message, seconds=60)
                assert answer.status == expected["status"], (name, index, answer)
                if answer.status == 200 and (name, index) not in SAFER:
                    assert answer.body == base64.b64decode(expected["body"]), (name, index)
                    sent = {key.lower(): value for key, value in answer.headers}
                    given = {key.lower(): value for key, value in expected["headers"].items()}
                    assert sent.items() >= given.items(), (name, index)
