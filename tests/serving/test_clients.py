"""Clients of TorchServe and KServe with `marpack serve`."""

import shutil
import subprocess
from collections.abc import Iterator

import numpy as np
import pytest
import requests
from msgspec.structs import replace
from serving.served import LOADER, STREAM, Served, pack, served

_ECHO = """
def handle(data, context):
    return None if data is None else [{name: text(value) for name, value in row.items()} for row in data]


def text(value):
    return value.decode() if isinstance(value, bytearray) else value
"""
_DOUBLE = """
def handle(data, context):
    return None if data is None else [[2 * value for value in values(row)] for row in data]


def values(row):
    return row["data"] if isinstance(row, dict) else row  # a tensor of v2, an instance of v1
"""
SECONDS = 30


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Serve a model that says what it was sent, and one that streams."""
    folder = tmp_path_factory.mktemp("plain")
    with served(pack(folder, "echo.mar", _ECHO), pack(folder, "stream.mar", STREAM)) as server:
        yield server


@pytest.fixture(scope="module", params=["kserve"])
def doubling(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Serve a model behind an envelope of KServe."""
    loader = replace(LOADER, load=replace(LOADER.load, envelope=request.param))
    with served(pack(tmp_path_factory.mktemp("kserve"), "double.mar", _DOUBLE), loader=loader) as server:
        yield server


def _url(server: Served, path: str) -> str:
    return f"http://{server.inference}{path}"


def _curl(*args: object) -> str:
    program = shutil.which("curl")
    assert program is not None, "apt install curl"
    command = [program, "--silent", "--show-error", "--max-time", str(SECONDS), *map(str, args)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_curl_sends_files_and_forms_and_reads_heads_and_statuses(plain, tmp_path):
    file, url = tmp_path / "input.txt", _url(plain, "/predictions/echo")
    file.write_text("words")
    assert '"words"' in _curl(url, "-T", file)
    said = _curl(url, "-F", f"data=@{file}", "-F", "k=v")
    assert '"data": "words"' in said
    assert '"k": "v"' in said
    file.write_bytes(b"x" * 60_000)
    said = _curl(url, "-T", file, "-H", "Expect: 100-continue", "-i")
    assert said.startswith("HTTP/1.1 100 Continue")
    assert "x" * 60_000 in said

    for option, line in (("--http1.0", "HTTP/1.0 200"), ("--head", "HTTP/1.1 200")):
        assert _curl(_url(plain, "/predictions/echo"), option, "--include").startswith(line)
    with pytest.raises(subprocess.CalledProcessError) as caught:
        _curl(_url(plain, "/predictions/absent"), "--fail")
    assert caught.value.returncode == 22


def test_requests_keeps_its_connection_sends_files_and_chunks_and_reads_streams(plain):
    url = _url(plain, "/predictions/echo")
    with requests.Session() as session:
        answers = [session.post(url, json={"n": n}, timeout=SECONDS) for n in range(3)]
    assert [answer.json()["body"]["n"] for answer in answers] == [0, 1, 2]
    assert {answer.headers["connection"] for answer in answers} == {"keep-alive"}
    files = {"data": ("a.txt", b"words", "text/plain")}
    assert requests.post(url, files=files, timeout=SECONDS).json() == {"data": "words"}
    assert requests.post(url, data=iter((b"a", b"b")), timeout=SECONDS).json() == {"body": "ab"}
    with requests.post(_url(plain, "/predictions/stream"), stream=True, timeout=SECONDS) as answer:
        assert b"".join(answer.iter_content(None)) == b"abcd"
    answer = requests.get(_url(plain, "/predictions/absent"), timeout=SECONDS)
    with pytest.raises(requests.HTTPError, match="404 Client Error: Not Found"):
        answer.raise_for_status()


def test_sagemaker_finds_the_only_model(doubling):
    assert requests.get(_url(doubling, "/ping"), timeout=SECONDS).status_code == 200
    headers = dict.fromkeys(("Content-Type", "Accept"), "application/json")
    headers["X-Amzn-SageMaker-Custom-Attributes"] = "trace=1"
    body, url = '{"instances": [[1]]}', _url(doubling, "/invocations")
    answer = requests.post(url, data=body, headers=headers, timeout=SECONDS)
    assert answer.json() == {"predictions": [[2]]}


@pytest.mark.parametrize("doubling", ["kservev2"], indirect=True)
def test_binary_tensors_of_tritons_client_are_named_in_the_log(doubling):
    import tritonclient.http as triton

    given = triton.InferInput("x", [2], "INT64")
    given.set_data_from_numpy(np.array([1, 2]))  # binary_data=True
    with triton.InferenceServerClient(doubling.inference) as client, pytest.raises(triton.InferenceServerException):
        client.infer("double", [given])
    assert any("binary_data=False" in note for note in doubling.log.notes)


@pytest.mark.parametrize("doubling", ["kservev2"], indirect=True)
def test_tritons_client_uses_v2(doubling):
    import tritonclient.http as triton

    with triton.InferenceServerClient(doubling.inference) as client:
        assert client.is_server_live()
        assert client.is_server_ready()
        assert client.is_model_ready("double")
        assert client.get_model_metadata("double")["name"] == "double"
        given = triton.InferInput("input-0", [2], "INT64")
        given.set_data_from_numpy(np.array([1, 2]), binary_data=False)
        answer = client.infer("double", [given], outputs=None, request_id="mine").get_response()
    assert answer["id"] == "mine"
    assert answer["outputs"][0]["data"] == [2, 4]
