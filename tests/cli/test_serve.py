"""The command `marpack serve`: what is typed, what is told, what is refused."""

import http.client
import json
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from serving.commands import ECHO, serving

from marpack.api.session_options import ServeOptions
from marpack.cli.main import main
from marpack.cli.serve_settings import ServeSettings
from marpack.serving.settings import Address

MARPACK_YAML = 'name: echo\nversion: "2.0"\nhandler: handler.py:handle\n'


@pytest.fixture
def project(tmp_path):
    folder = tmp_path / "echo"
    folder.mkdir()
    (folder / "handler.py").write_text(ECHO)
    (folder / "marpack.yaml").write_text(MARPACK_YAML)
    return folder


@pytest.fixture
def refused(tmp_path, monkeypatch, capsys):
    """Return what a command line that cannot be served ends with: its exit code, and what it says."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")

    def refused(*words):
        with pytest.raises(SystemExit) as end:
            main(["serve", *words])
        return end.value.code, capsys.readouterr().err

    return refused


def test_a_project_is_built_and_served_and_ended(project):
    with serving("--log-requests", "--log-slow", "0.5", cwd=project) as server:
        status, headers, body = server.request("/predictions/echo", b"hi")
        assert (status, body, headers["x-batch"]) == (200, b"echo hi", "1")
        assert server.request("/predictions/echo/2.0/some/more", b"x")[2] == b"echo x"
        assert server.request("/ping")[0] == 200
        assert server.request("/predictions/echo", b"raise")[0] == 503
        answered = server.wait_for("answered", status=503)
        assert (answered["model"], answered["version"], answered["target"]) == ("echo", "2.0", "/predictions/echo")
        assert answered["handler_ms"] >= 0
        trouble = server.wait_for("trouble")["trouble"]
        assert (trouble["kind"], trouble["message"]) == ("ValueError", "as asked")
        server.request("/predictions/echo", b"print")
        assert server.wait_for("printed")["line"].startswith("printed ")
        server.request("/predictions/echo", b"sleep 0.6")
        assert server.wait_for("answered", level="warning")["handler_ms"] > 500
        assert server.end() == 0
        summary = server.wait_for("summary")
        assert summary["requests"] == 6
        assert summary["failures"] == {"503 Prediction failed": 1}
    assert (project / "echo.mar").is_file()


def test_options_have_the_last_word_over_the_config_and_sources_other_names(make_mar, tmp_path):
    config = "batchSize: 8\nmaxBatchDelay: 60000\n"
    one = make_mar(ECHO, name="one", files={"config.yaml": config}, configFile="config.yaml")
    two = make_mar(ECHO, name="two")
    with serving(str(one), f"other={two}", "--max-batch-delay", "1", cwd=tmp_path, loaded=2) as server:
        assert server.request("/predictions/one", b"1")[2] == b"echo 1"
        assert server.request("/predictions/other", b"2")[2] == b"echo 2"
        assert server.request("/predictions/two", b"2")[0] == 404
        assert server.request("/invocations", b"2")[0] == 400  # which of the two?


def test_reload(project):
    with serving("--reload", cwd=project) as server:
        assert server.request("/predictions/echo", b"a")[2] == b"echo a"
        (project / "handler.py").write_text(ECHO.replace("echo {", "anew {"))
        assert server.wait_for("reloaded", kept=False)["changed"] == ["handler.py"]
        assert server.request("/predictions/echo", b"a")[2] == b"anew a"


@pytest.mark.parametrize(("signals", "seconds"), [([signal.SIGTERM], 2), ([signal.SIGINT, signal.SIGINT], 9)])
def test_a_replaced_model_answers_its_requests_before_the_server_ends(make_mar, tmp_path, signals, seconds):
    served, new = make_mar(ECHO, name="probe"), make_mar(ECHO.replace("echo {", "anew {"), name="new")
    with serving("--reload", f"probe={served}", cwd=tmp_path) as server:
        with socket.create_connection(("127.0.0.1", server.port())) as connection:
            request = f"POST /predictions/probe HTTP/1.1\r\nHost: x\r\nContent-Length: 7\r\n\r\nsleep {seconds}"
            connection.sendall(request.encode())
            assert server.request("/ping")[0] == 200  # by now the worker has the request
            new.replace(served)
            assert server.wait_for("reloaded", kept=False)["changed"] == ["probe.mar"]
            workers = psutil.Process(server.process.pid).children(recursive=True)
            assert len(workers) >= 2
            for number in signals:
                server.process.send_signal(number)
                time.sleep(0.1)  # two signals at once count as one
            with connection.makefile("rb") as stream:
                answer = stream.read()
        assert server.process.wait(60) == (130 if len(signals) == 2 else 0)
        assert answer.endswith(b"echo sleep 2") is (len(signals) == 1)
        assert [each for each in workers if each.is_running() and each.status() != psutil.STATUS_ZOMBIE] == []


def test_a_token_is_asked_for_and_rotated(project):
    def keys():
        found = json.loads((project / "keys.json").read_text())
        return [{"Authorization": f"Bearer {found[kind]['key']}"} for kind in ("inference", "management", "API")]

    with serving("--token", "keys.json", cwd=project) as server:
        first = keys()
        assert server.request("/predictions/echo", b"a")[0] == 401
        assert server.request("/predictions/echo", b"a", first[0])[2] == b"echo a"
        assert server.request("/predictions/echo", b"a", first[1])[0] == 403
        assert server.request("/", headers={"Accept": "text/html"})[0] == 401  # no page: it could carry no token
    with serving("--token", "keys.json", "--rotate-token", cwd=project) as server:
        assert all(before != now for before, now in zip(first, keys(), strict=True))
        assert server.request("/predictions/echo", b"a", first[0])[0] == 401


def taken_port():
    sock = socket.create_server(("127.0.0.1", 0))
    return sock, str(sock.getsockname()[1])


FREE = "--port 0 --metrics-port 0"
REFUSED = {  # words → exit code
    "": 2,
    "text.mar": 3,
    "x.mar --device cuda:77": 2,
    "x.mar --drain -1": 2,
    "--model-store nix --models all": 2,
    "x.mar --ts-config nix.properties": 2,
    "x.mar --ts-config tokens.properties": 2,
    "x.mar --port TAKEN --metrics-port 0": 2,
    "x.mar --host no.such.host.invalid --metrics-port 0": 2,
    f"x.mar {FREE} --allowed-host a/b": 2,
    f"x.mar {FREE} --cors-origin x": 2,
    "x.mar --metrics-config nix.yaml": 2,
    "--models x.mar": 2,
    "x.mar --enable-model-api": 2,
    "x.mar --rotate-token": 2,
    "x.mar --allow-remote-register": 2,
    "x.mar --model-store . --enable-model-api --allow-remote-register": 2,
    "x.mar --store-root .": 2,
    "--stop": 2,
    "x.mar --token text.mar": 2,
}


@pytest.mark.parametrize("words", REFUSED)
def test_wrong_usage_has_its_exit_code(words, refused, make_mar, tmp_path):
    make_mar(ECHO, name="x")
    (tmp_path / "text.mar").write_text("no archive")
    (tmp_path / "tokens.properties").write_text("disable_token_authorization=false\n")
    sock, port = taken_port()
    with sock:
        code, said = refused(*words.replace("TAKEN", port).split())
    assert code == REFUSED[words]
    assert "error:" in said or "Error:" in said


@pytest.mark.parametrize(("word", "code"), [("--help", 0), ("x.mar", 2)])
def test_a_process_without_the_extra_shows_its_help_and_names_the_extra(word, code):
    program = "import sys; sys.modules['aiohttp'] = None; from marpack.cli.main import main; main(sys.argv[1:])"
    done = subprocess.run([sys.executable, "-c", program, "serve", word], capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    assert (".[serve]" in done.stderr) is (code == 2)


@pytest.mark.slow
def test_a_log_that_cannot_be_written_costs_nobody_an_answer(make_mar, tmp_path):
    sock, port = taken_port()
    sock.close()
    words = [str(make_mar(ECHO)), "--port", port, "--metrics-port", "0", "--log-requests", "--log-format", "json"]
    command = [sys.executable, "-m", "marpack", "serve", *words]
    with Path("/dev/full").open("w") as full:
        process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=full)
    try:
        until = time.monotonic() + 60
        while True:
            try:
                connection = http.client.HTTPConnection("127.0.0.1", int(port), timeout=60)
                connection.request("POST", "/predictions/probe", b"print")
                break
            except ConnectionRefusedError:
                assert time.monotonic() < until
                time.sleep(0.05)
        assert connection.getresponse().read() == b"echo print"
        connection.close()
        process.terminate()
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()


ALL, HERE = Address("0.0.0.0", 8081), Address("127.0.0.1", 8081)
PUBLIC = "management_address=http://0.0.0.0:8081\n"
SAME_PORT = f"inference_address=http://0.0.0.0:8081\n{PUBLIC}"
MANAGEMENT: list[tuple[str, dict[str, Any], Address | None]] = [  # config, options, where management listens
    ("", {}, None),
    ("disable_token_authorization=false\n", {"disable_token_auth": True}, None),
    ("", {"management_port": 8081}, HERE),
    ("", {"host": "0.0.0.0", "management_port": 8081}, HERE),
    (PUBLIC, {}, HERE),  # as the original's container images have it
    (PUBLIC, {"disable_token_auth": True, "token": "keys.json"}, HERE),
    (PUBLIC, {"token": "keys.json"}, ALL),
    (PUBLIC, {"open_management": True}, ALL),
    (SAME_PORT, {}, None),  # as KServe's and SageMaker's have it
    (SAME_PORT, {"port": 8082}, HERE),
    (SAME_PORT, {"open_management": True}, ALL),
]


@pytest.mark.parametrize("number", range(len(MANAGEMENT)))
def test_management_without_tokens_stays_on_this_machine(number, tmp_path):
    config, options, address = MANAGEMENT[number]
    (tmp_path / "c.properties").write_text(config)
    settings = ServeSettings.of(ServeOptions(ts_config=str(tmp_path / "c.properties"), **options))
    assert settings.management_address == address
    notes = " ".join(settings.notes())
    assert ("can change the models" in notes) is (address == ALL and "token" not in options)
    assert ("could change the models" in notes) is (PUBLIC in config and address != ALL)


def test_a_start_line_of_torchserve_with_a_model_store_and_a_config(make_mar, tmp_path):
    store = tmp_path / "store"
    store.mkdir()
    shutil.move(make_mar(ECHO, name="one"), store / "one.mar")
    shutil.move(make_mar(ECHO, name="two"), store / "other-name.mar")
    (store / "broken.mar").write_text("no archive")
    (tmp_path / "config.properties").write_text(
        "default_workers_per_model=2\nenable_model_api=true\nnumber_of_netty_threads=4\nload_models=all\n"
        'models={"two": {"1.0": {"minWorkers": 1, "batchSize": 4, "maxBatchDelay": 1}}}\n'
    )
    words = ["--start", "--foreground", "--ncs", "--disable-token-auth", "--log-config", "log4j2.xml"]
    words += ["--model-store", "store", "--ts-config", "config.properties", "--management-port", "0"]
    with serving(*words, cwd=tmp_path, loaded=3) as server:
        assert "number_of_netty_threads" in server.wait_for("note")["message"]
        assert "--log-config" in server.wait_for("note", times=2)["message"]
        assert server.wait_for("failed", model="broken.mar")["given_up"]
        assert server.request("/predictions/one", b"1")[2] == b"echo 1"
        (described,) = json.loads(server.request("/models/two", what="management")[2])
        assert (described["minWorkers"], described["batchSize"], described["maxBatchDelay"]) == (1, 4, 1)
        assert json.loads(server.request("/models/one", what="management")[2])[0]["minWorkers"] == 2
        status, _, body = server.request("/models/one", method="DELETE", what="management")
        assert (status, json.loads(body)) == (200, {"status": 'Model "one" unregistered'})
        assert server.request("/models?url=one.mar&initial_workers=1", b"", what="management")[0] == 200
        assert server.request("/predictions/one", b"again")[2] == b"echo again"
        assert b"ts_inference_requests_total" in server.request("/metrics", what="metrics")[2]


INFERENCE = """
def model_fn(model_dir):
    return "loaded"

def transform_fn(model, body, content_type, accept, context):
    name = "X-Amzn-SageMaker-Custom-Attributes"
    context.set_response_header(0, name, context.get_request_header(0, name))
    return f"{model} {type(body).__name__} {content_type}", accept
"""


@pytest.mark.peer  # its adapter imports torch
def test_a_folder_of_sagemaker_s_is_served_with_the_start_line_of_aws_images(tmp_path, monkeypatch):
    (tmp_path / "store").mkdir()
    (tmp_path / "model/code").mkdir(parents=True)
    (tmp_path / "model/code/inference.py").write_text(INFERENCE)
    (tmp_path / "config.properties").write_text(
        "decode_input_request=false\ndefault_service_handler=/toolkit/handler_service.py:handle\n"
    )
    words = ["--start", "--model-store", "store", "--ts-config", "config.properties", "--models", "model=model"]
    monkeypatch.setenv("SAGEMAKER_TS_BATCH_SIZE", "4")
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    with serving(*words, "--enable-model-api", "--management-port", "0", cwd=tmp_path) as server:
        (described,) = json.loads(server.request("/models/model", what="management")[2])
        assert (described["batchSize"], described["minWorkers"]) == (4, 1)
        assert server.request("/ping")[0] == 200
        attributes = "X-Amzn-SageMaker-Custom-Attributes"
        headers = {"Content-Type": "text/csv", "Accept": "text/plain", attributes: "trace=1"}
        status, found, body = server.request("/invocations", b"1,2", headers=headers)
        assert (status, body) == (200, b"loaded str text/csv")
        assert (found["content-type"], found[attributes.lower()]) == ("text/plain", "trace=1")
        assert len(list((tmp_path / "tmp").iterdir())) == 1
        assert server.end() == 0
    assert not list((tmp_path / "tmp").iterdir())
    assert not list((tmp_path / "model").rglob("__pycache__"))


def test_a_folder_that_needs_the_default_service_handler_is_refused(refused, tmp_path):
    (tmp_path / "store/model").mkdir(parents=True)
    (tmp_path / "store/model/model.pt").write_bytes(b"")
    (tmp_path / "config.properties").write_text("default_service_handler=handler.py:handle\n")
    code, said = refused("--model-store", "store", "--ts-config", "config.properties", "--models", "model=model")
    assert code == 2
    assert "store/model" in said
    assert "default_service_handler" in said


def test_a_model_store_alone_is_served_empty(make_mar, tmp_path):
    words = ["--model-store", str(make_mar(ECHO).parent), "--enable-model-api", "--management-port", "0"]
    with serving(*words, cwd=tmp_path, loaded=0) as server:
        assert server.request("/ping")[0] == 200
        assert server.request("/predictions/probe", b"1")[0] == 404
        assert server.request("/models?url=probe.mar&initial_workers=1", b"", what="management")[0] == 200
        assert server.request("/predictions/probe", b"1")[2] == b"echo 1"


def test_the_config_says_which_version_answers(make_mar, tmp_path):
    for version in ("1.0", "2.0"):
        make_mar(ECHO.replace("echo {", f"{version} {{"), modelVersion=version).rename(tmp_path / f"{version}.mar")
    (tmp_path / "c.properties").write_text('models={"probe": {"2.0": {"defaultVersion": true}}}\n')
    words = ["--model-store", ".", "--models", "1.0.mar", "2.0.mar", "--ts-config", "c.properties"]
    with serving(*words, cwd=tmp_path, loaded=2) as server:
        assert server.request("/predictions/probe", b"a")[2] == b"2.0 a"
        assert server.request("/predictions/probe/1.0", b"a")[2] == b"1.0 a"


def test_what_must_be_safe_or_of_a_digest_is_not_loaded_otherwise(refused, make_mar, project):
    import pickle

    code, said = refused(str(make_mar(ECHO)), "--require-digest", "sha256:00")
    assert (code, "MAR-INF/marpack.json" in said) == (3, True)
    trusting = make_mar(ECHO, name="t", files={"weights.pt": pickle.dumps(Path())}, serializedFile="weights.pt")
    code, said = refused(str(trusting), "--require-safe")
    assert (code, "weights.pt" in said) == (3, True)
    assert refused(str(project), "--require-digest", "sha256:00")[0] == 3


def test_a_handler_that_does_not_load_is_told_and_tried_again(make_mar, tmp_path):
    with serving(str(make_mar("import nix_da\n")), cwd=Path(tmp_path), loaded=0) as server:
        failed = server.wait_for("failed")
        assert failed["trouble"]["kind"] == "ModuleNotFoundError"
        assert not failed["given_up"]
        assert server.request("/ping")[0] == 500
        assert server.end() == 0
