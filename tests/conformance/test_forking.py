import os
import signal
import textwrap
import time
from collections.abc import Iterator

import pytest
from conformance.forking import ForkServer
from workers import one, predict

from marpack.errors import WorkerError
from marpack.protocol.messages import Load
from marpack.runner.client import Worker
from marpack.runner.pool import LocalPool, PoolSettings

HANDLER = textwrap.dedent(
    """
    import ctypes, os, sys, time
    def handle(data, context):
        if data is None: return
        word = bytes(data[0]["body"]).decode()
        print("saw", word)
        if word == "exit": os._exit(7)
        if word == "segfault": ctypes.string_at(0)
        if word == "hang": time.sleep(60)
        if word == "torch": return [str("torch" in sys.modules)]
        return [f"{word} {os.getpgid(0) == os.getpid()} {os.getcwd()}"]
    """
)


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    with ForkServer.start() as server:
        yield server


@pytest.mark.nightly
def test_a_forked_worker_is_a_worker(server: ForkServer, make_folder):
    folder = make_folder(HANDLER)
    with Worker(server.launch()) as worker:
        worker.load(Load(model_dir=str(folder)))
        outcome = predict(worker, one("a"))
        assert outcome.responses[0].body.decode() == f"a True {folder}"
        assert outcome.logs.startswith("saw a\n")
        assert predict(worker, one("torch")).responses[0].body == b"True"
    assert worker.process.ended()


@pytest.mark.parametrize(
    ("word", "reason"), [("exit", "exit code 7"), ("segfault", "SIGSEGV"), ("hang", "did not answer in time")]
)
@pytest.mark.nightly
def test_how_a_forked_worker_ended_is_known(server: ForkServer, make_folder, word: str, reason: str):
    with Worker(server.launch()) as worker:
        worker.load(Load(model_dir=str(make_folder(HANDLER))))
        outcome = predict(worker, one(word), timeout=1 if word == "hang" else 30)
        assert outcome.died
        assert reason in outcome.troubles[0].message
        with pytest.raises(ProcessLookupError):
            os.kill(worker.process.pid, 0)


def test_a_pool_is_filled_from_the_server(server: ForkServer, make_folder):
    load = Load(model_dir=str(make_folder(HANDLER)))
    with LocalPool(load, PoolSettings(workers=2, launch=lambda: Worker(server.launch()))) as pool:
        pool.start()
        outcomes = list(pool.outcomes(one(word) for word in ["a", "exit", "b"]))
        assert pool.restarts == 1
    assert [outcome.responses[0].status for outcome in outcomes] == [200, 500, 200]


def test_a_worker_killed_at_once_is_gone_at_once(server: ForkServer):
    started = time.monotonic()
    for _ in range(5):
        server.launch().kill()
    assert time.monotonic() - started < 10  # the grace that five would be given to end by themselves


@pytest.mark.nightly
def test_a_server_that_is_gone_is_said():
    server = ForkServer.start()
    server.launch().kill()
    os.killpg(server._process.pid, signal.SIGKILL)
    with pytest.raises(WorkerError, match="fork server is gone"):
        server.launch()
    server.close()
