"""A worker that has left the network: native code reaches nothing, the handler itself, and its parent still ends it."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from workers import predict

from marpack.protocol.messages import Load
from marpack.runner.client import Worker
from marpack.torchserve.http import Part, Request

# The connection is made by libc, which raises no audit event; the second one is to the handler's own server.
HANDLER = """
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


def _expect_offline(worker: Worker) -> None:
    if not worker.process.is_offline():
        pytest.skip("this kernel, or what this runs in, gives this user no network namespace")


def test_nothing_outside_is_reached_and_its_own_loopback_is(make_folder):
    folder = make_folder(HANDLER)
    with socket.create_server(("127.0.0.1", 0)) as server, Worker.spawn(offline=True) as worker:
        worker.load(Load(model_dir=str(folder)))
        _expect_offline(worker)
        body = Part("body", str(server.getsockname()[1]).encode())
        outcome = predict(worker, (Request(id="a", parts=(body,)),))
    assert not outcome.troubles
    assert json.loads(outcome.responses[0].body) == {"refused": -1, "interfaces": ["lo"]}


def test_without_being_asked_it_stays_in_the_network(make_folder):
    folder = make_folder("def handle(data, context):\n    return data")
    with Worker.spawn() as worker:
        worker.load(Load(model_dir=str(folder)))
        assert not worker.process.is_offline()


@pytest.mark.nightly
def test_it_ends_with_its_parent_all_the_same(make_folder):
    folder = make_folder("import time\n\ndef handle(data, context):\n    time.sleep(60 if data else 0)\n")
    done = subprocess.run(
        [sys.executable, "-c", ORPHAN, str(folder)], capture_output=True, text=True, check=True, timeout=60
    )
    pid = int(done.stdout)
    until = time.monotonic() + 10
    while Path(f"/proc/{pid}").exists() and time.monotonic() < until:
        time.sleep(0.02)
    alive = Path(f"/proc/{pid}").exists()
    if alive:
        os.kill(pid, signal.SIGKILL)
    assert not alive
