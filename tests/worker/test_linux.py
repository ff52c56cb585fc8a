"""A worker on Linux: the processes that it detached end with it, and offline it reaches only its own loopback."""

import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from workers import one, predict, runs

from marpack.protocol.messages import Load
from marpack.runner.client import Worker

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="other systems have no subreapers")

# Each process writes its id to a file of its own: nothing else tells the two apart from outside.
HANDLER = textwrap.dedent(
    """
    import os, subprocess, sys, time

    def note(name, pid):
        with open(f"../pids/{name}~", "w") as file:
            file.write(str(pid))
        os.rename(f"../pids/{name}~", f"../pids/{name}")

    def handle(data, context):
        if data is None:
            return
        word = bytes(data[0]["body"]).decode()
        # Without an environment, a session and a group of the worker's: nothing but its ancestors tells whose it is.
        note("session", subprocess.Popen(["/bin/sleep", "90"], start_new_session=True, env={}).pid)
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                note("daemon", os.getpid())
                os.execve("/bin/sleep", ["sleep", "90"], {})
            os._exit(0)
        while not os.path.exists("../pids/daemon"):
            time.sleep(0.01)
        note("worker", os.getpid())
        if word == "exit":
            os._exit(3)
        if word == "hang":
            time.sleep(90)
        if word == "group":
            os.killpg(os.getpgid(0), 9)
        return ["ok"]
    """
)
PROCESSES = ("session", "daemon", "worker")
PARENT = textwrap.dedent(
    """
    import sys, threading, time
    from marpack.runner.client import Worker
    from marpack.protocol.messages import Load
    from marpack.torchserve.http import Part, Request

    def ask():
        worker = Worker.spawn()
        worker.load(Load(model_dir=sys.argv[1]))
        worker.submit((Request(id="id", parts=(Part("body", b"hang"),)),))

    thread = threading.Thread(target=ask)
    thread.start() if sys.argv[2] == "thread" else ask()
    time.sleep(90)
    """
)


@pytest.fixture
def folder(make_folder, tmp_path: Path) -> Path:
    (tmp_path / "pids").mkdir()
    return make_folder(HANDLER)


def started(folder: Path) -> dict[str, int]:
    """Return the ids of the processes that the handler started, and its own, once all of them exist."""
    pids, until = folder.parent / "pids", time.monotonic() + 60
    while not all((pids / name).exists() for name in PROCESSES):
        assert time.monotonic() < until
        time.sleep(0.02)
    return {name: int((pids / name).read_text()) for name in PROCESSES}


def survivors(processes: dict[str, int]) -> list[str]:
    """Return which of some processes still run after half a minute, and end those; by themselves they run longer."""
    until = time.monotonic() + 30
    while (alive := [name for name, pid in processes.items() if runs(pid)]) and time.monotonic() < until:
        time.sleep(0.02)
    for name in alive:
        os.kill(processes[name], signal.SIGKILL)
    return alive


@pytest.mark.parametrize("where", ["main", "thread"])
def test_detached_processes_end_with_a_parent_that_is_killed(folder: Path, where: str):
    with subprocess.Popen([sys.executable, "-c", PARENT, str(folder), where]) as parent:
        processes = started(folder)
        parent.kill()
    assert survivors(processes) == []


@pytest.mark.parametrize(
    ("word", "ending"),
    [("hang", "did not respond in time"), ("exit", "ended with exit code 3"), ("group", "was killed by SIGKILL")],
)
def test_detached_processes_end_with_a_worker_that_ends_early(folder: Path, word: str, ending: str):
    with Worker.spawn() as worker:
        worker.load(Load(model_dir=str(folder)))
        worker.submit(one(word))
        processes = started(folder)
        if word != "hang":
            assert worker.process.ended(within=30)
        assert worker.process.how_it_ended() == ending
        worker.kill()
        assert survivors(processes) == []


def test_a_supervisor_reaps_what_ends_and_detached_processes_end_when_the_worker_is_closed(folder: Path):
    with Worker.spawn() as worker:
        worker.load(Load(model_dir=str(folder)))
        assert not worker.process.is_offline()  # as it was not asked to be
        worker.submit(one("answer"))
        processes = started(folder)
        assert processes["worker"] == worker.process.handler_pid != worker.process.pid
        os.kill(processes["daemon"], signal.SIGKILL)
        until = time.monotonic() + 30
        while Path(f"/proc/{processes['daemon']}").exists():  # a zombie still has its entry
            assert time.monotonic() < until
            time.sleep(0.02)
        assert not worker.process.ended()
    assert survivors(processes) == []


def test_a_supervisor_that_is_killed_takes_its_worker_along(folder: Path):
    with Worker.spawn() as worker:
        loaded = worker.load(Load(model_dir=str(folder)))
        os.kill(worker.process.pid, signal.SIGKILL)
        assert survivors({"worker": loaded.pid}) == []
        assert worker.process.ended(within=30)


@pytest.mark.parametrize(("parent", "code"), [("os.getppid()", 7), ("os.getpid()", -signal.SIGKILL)])
def test_a_worker_whose_parent_is_gone_already_ends(parent: str, code: int):
    source = f"""
import os, time
from marpack.worker.linux import supervise
parent = {parent}
supervise(parent, os.open(os.devnull, os.O_RDONLY))
time.sleep(60 if {code} < 0 else 0)
os._exit(7)
"""
    assert subprocess.run([sys.executable, "-c", source], timeout=30, check=False).returncode == code


# The connection is made by libc, which raises no audit event; the second one is to the handler's own server.
NETWORK_HANDLER = """
import ctypes, socket, struct

def handle(data, context):
    if data is None:
        return
    port = int(data[0]["body"])
    libc = ctypes.CDLL(None)
    address = struct.pack("=H", socket.AF_INET) + struct.pack("!H", port) + socket.inet_aton("127.0.0.1") + bytes(8)
    refused = libc.connect(libc.socket(socket.AF_INET, socket.SOCK_STREAM, 0), address, 16)
    with socket.create_server(("127.0.0.1", 0)) as own:
        socket.create_connection(own.getsockname()).close()
    return [{"refused": refused, "interfaces": [name for _, name in socket.if_nameindex()]}]
"""
ORPHAN = """
import os, sys, time
from marpack.runner.client import Worker
from marpack.protocol.messages import Load
from marpack.torchserve.http import Part, Request
worker = Worker.spawn(offline=True)
worker.load(Load(model_dir=sys.argv[1]))
worker.submit((Request(id="a", parts=(Part("body", b""),)),))
print(worker.process.pid, flush=True)
time.sleep(0.3)
os._exit(0)
"""


def test_nothing_outside_is_reached_and_its_own_loopback_is(make_folder):
    folder = make_folder(NETWORK_HANDLER)
    with socket.create_server(("127.0.0.1", 0)) as server, Worker.spawn(offline=True) as worker:
        worker.load(Load(model_dir=str(folder)))
        if not worker.process.is_offline():
            pytest.skip("this kernel, or what this runs in, gives this user no network namespace")
        outcome = predict(worker, one(str(server.getsockname()[1])))
    assert not outcome.troubles
    assert json.loads(outcome.responses[0].body) == {"refused": -1, "interfaces": ["lo"]}


@pytest.mark.slow
def test_it_ends_with_its_parent_all_the_same(make_folder):
    folder = make_folder("import time\n\ndef handle(data, context):\n    time.sleep(60 if data else 0)\n")
    command = [sys.executable, "-c", ORPHAN, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert not survivors({"worker": int(done.stdout)})
