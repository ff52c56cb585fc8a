"""The ray-serve folder on a real Ray, as AWS's containers start it: answers are those of `marpack run`."""

import http.client
import json
import os
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest
from exporting.exports import MakeMar, free_port

import marpack
from marpack.runner.inputs import type_of

slow = pytest.mark.slow(reason="an application of Ray Serve each")

REPOSITORY = Path(__file__).parents[2]
EXAMPLES = sorted(path.parent.name for path in REPOSITORY.glob("examples/*/marpack.yaml"))
SERVE = (sys.executable, "-c", "from ray.serve.scripts import cli; cli()")
BOUNDARY = "0f1e2d3c"
PROBE = """
import os, signal, time

if os.path.exists("@STOP@"):
    raise ValueError("it loads no more")

def handle(data, context):
    if data is None:
        return None
    texts = [row.get("body") or "" for row in data]
    if "kill" in texts:
        os.kill(os.getpid(), signal.SIGKILL)
    if "bad" in texts:
        raise ValueError("it is bad")
    if "endless" in texts:
        while True:
            pass
    for row, text in enumerate(texts):
        if text.startswith("status "):
            context.set_response_status(int(text[7:]), "Own phrase", row)
        context.set_response_header(row, "X-Own", context.get_request_header(row, "X-My-Key") or "none")
        context.set_response_content_type(row, "text/plain; charset=utf-8")
        time.sleep(0.5 if text == "slow" else 0)
    explained = context.get_request_header(0, "explain")
    return [f"{text}: {len(data)} together, explain={explained}" for text in texts]
"""
STREAMED = """
from ts.handler_utils.utils import send_intermediate_predict_response

def handle(data, context):
    if data:
        send_intermediate_predict_response(["one "], context.request_ids, "", 200, context)
        raise ValueError("in the middle")
"""


class Answered(NamedTuple):
    status: int
    content_type: str | None
    body: bytes


class RayServe:
    """Ray Serve on a cluster that imports code from one folder, as in AWS's containers."""

    def __init__(self, cluster: Any, model: Path) -> None:
        self.cluster = cluster
        self.model = model
        self.port = free_port()
        self.stop = model.with_name("stop")  # while it is there, the probe cannot be loaded
        start = ("start", "--proxy-location", "HeadOnly", "--http-host", "127.0.0.1", "--http-port", self.port)
        if self.command(*start).returncode != 0:  # its proxy has a minute to come up, which a busy machine may not give
            self.run_command(*start)

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        line = [*SERVE, words[0], "--address", self.cluster.address, *words[1:]]
        return subprocess.run(line, cwd=self.model, capture_output=True, text=True, timeout=240)

    def run_command(self, *words: str) -> None:
        done = self.command(*words)
        assert done.returncode == 0, done.stdout + done.stderr

    def deploy(self, archive: Path, **options: Any) -> None:
        """Replace the application with the export of an archive, and wait until it is routed."""
        marpack.export(archive, to="ray-serve", output=self.model, force=True, **options)
        self.run_command("run", "--non-blocking", "config.yaml")
        name = (self.model / "config.yaml").read_text().partition('name: "')[2].partition('"')[0]
        until = time.monotonic() + 120
        while self.routes().get("/") != name:
            assert time.monotonic() < until, "the application does not come up"
            time.sleep(0.2)

    def routes(self) -> dict[str, str]:
        with suppress(urllib.error.URLError, ConnectionError):
            answer = self.ask(None, path="/-/routes")
            return dict(json.loads(answer.body)) if answer.status == 200 else {}
        return {}

    def ask(
        self, body: bytes | None, content_type: str = "text/plain", path: str = "/", timeout: float = 240
    ) -> Answered:
        """Return the response to a request with the two headers that AWS's adapter passes on."""
        headers = {"Accept": "application/json"} | ({} if body is None else {"Content-Type": content_type})
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", body, headers)
        try:
            with urllib.request.urlopen(request, timeout=timeout) as answer:
                return Answered(answer.status, answer.headers.get("Content-Type"), answer.read())
        except urllib.error.HTTPError as error:
            return Answered(error.status or 0, error.headers.get("Content-Type"), error.read())

    def ask_together(self, *texts: str) -> list[Answered]:
        with ThreadPoolExecutor(len(texts)) as threads:
            return list(threads.map(self.ask, [text.encode() for text in texts]))

    def worker(self) -> psutil.Process:
        """Return the process of the one replica's model."""
        nodes = self.cluster.list_all_nodes()
        raylets = [info.process.pid for node in nodes for info in node.all_processes["raylet"]]
        children = [each for pid in raylets for each in psutil.Process(pid).children(recursive=True)]
        workers = [each for each in children if "marpack.worker" in command_line(each)]
        [found] = [each for each in workers if each.parent() in workers]  # the other one is its supervisor
        return found


def command_line(process: psutil.Process) -> str:
    with suppress(psutil.NoSuchProcess):
        return " ".join(process.cmdline())
    return ""


@pytest.fixture(scope="module")
def serve(cluster: Any) -> Iterator[RayServe]:
    served = RayServe(cluster, Path(os.environ["RAY_TMPDIR"]) / "model")
    yield served
    end = "import ray, ray.serve, sys; ray.init(sys.argv[1]); ray.serve.shutdown()"  # gives back its CPUs
    subprocess.run([sys.executable, "-c", end, cluster.address], check=True, capture_output=True)


def form(sample: Path) -> bytes:
    """Return a form with one file."""
    head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="data"; filename="{sample.name}"\r\n'
    kind = f"Content-Type: {type_of(sample.name, sample.read_bytes())}\r\n\r\n"
    return (head + kind).encode() + sample.read_bytes() + f"\r\n--{BOUNDARY}--\r\n".encode()


@pytest.mark.parametrize(
    "example",
    [pytest.param(name, marks=pytest.mark.peer if name == "digits" else slow) for name in EXAMPLES],
)
def test_every_example_answers_as_in_a_run(serve: RayServe, example: str, tmp_path: Path) -> None:
    folder = REPOSITORY / "examples" / example
    archive = Path(marpack.build(folder, output=tmp_path / f"{example}.mar").path)
    samples = sorted((folder / "samples").iterdir())
    serve.deploy(archive)
    with marpack.load(archive) as model:
        expected = [model.predict(sample) for sample in samples]
        expected += [
            model.predict(b"\xffnone of it", content_type="text/plain"),
            model.predict(form={"data": samples[0]}),
        ]
    answers = [serve.ask(sample.read_bytes(), type_of(sample.name, sample.read_bytes())) for sample in samples]
    answers += [serve.ask(b"\xffnone of it"), serve.ask(form(samples[0]), f"multipart/form-data; boundary={BOUNDARY}")]
    assert answers == [(each.status, each.content_type, each.raw) for each in expected]
    assert 200 in {answer.status for answer in answers}


@pytest.fixture
def probe(serve: RayServe, make_mar: MakeMar) -> RayServe:
    config = "batchSize: 4\nmaxBatchDelay: 1000\n"
    handler = PROBE.replace("@STOP@", str(serve.stop))
    serve.deploy(make_mar(handler, name="probe", files={"c.yaml": config}, configFile="c.yaml"))
    return serve


@slow
def test_a_failed_request_does_not_affect_its_batch(probe: RayServe) -> None:
    answers = probe.ask_together("a", "b", "c", "d")
    assert [each.body for each in answers] == [f"{text}: 4 together, explain=False".encode() for text in "abcd"]
    assert {each.content_type for each in answers} == {"text/plain; charset=utf-8"}
    assert [each.status for each in probe.ask_together("a", "bad", "c", "d")] == [200, 503, 200, 200]
    assert [each.status for each in probe.ask_together("a", "kill", "c", "d")] == [200, 507, 200, 200]
    explained = probe.ask(b"e", path="/explanations/probe")
    assert explained.body == b"e: 1 together, explain=True"
    assert [probe.ask(f"status {code}".encode()).status for code in (418, 201, 599, 999)] == [418, 201, 599, 500]
    headers = {"x-my-key": "k", "Content-Type": "text/plain"}  # the handler reads X-My-Key
    request = urllib.request.Request(f"http://127.0.0.1:{probe.port}/", b"a", headers)
    with urllib.request.urlopen(request, timeout=60) as response:
        assert response.headers["X-Own"] == "k"


@slow
def test_a_worker_ends_with_its_replica_and_another_takes_over(probe: RayServe) -> None:
    probe.ask(b"a")
    worker = probe.worker()
    asking = threading.Thread(target=probe.ask, args=[b"endless"])
    asking.start()
    time.sleep(1.0)  # until the handler is at it
    worker.parents()[1].kill()  # behind the supervisor
    worker.wait(30)
    asking.join()
    assert probe.ask(b"a").status == 200


@slow
def test_a_replica_whose_model_loads_no_more_is_replaced(probe: RayServe) -> None:
    probe.ask(b"a")
    replica = probe.worker().parents()[1]  # behind the supervisor
    probe.stop.touch()
    assert probe.ask(b"kill").status == 500
    probe.stop.unlink()
    replica.wait(60)
    assert probe.ask(b"a").status == 200


@slow
def test_an_aborted_stream_is_aborted_for_the_client(serve: RayServe, make_mar: MakeMar) -> None:
    serve.deploy(make_mar(STREAMED, name="streamed"))
    with pytest.raises(http.client.IncompleteRead) as cut:
        serve.ask(b"a")
    assert cut.value.partial == b"one "
