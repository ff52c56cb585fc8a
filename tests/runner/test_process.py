import errno
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import psutil
import pytest
from refusals import has_code
from workers import one, predict, runs, wait_for_end

from marpack.errors import ScaffoldError, WorkerError
from marpack.protocol.messages import Load
from marpack.runner import process as module
from marpack.runner.client import LogPipe, Worker
from marpack.runner.pool import LocalPool, PoolSettings
from marpack.runner.process import ForkedChild, WorkerProcess, Zygote, convert_safetensors, uses_torch

MARKER = b"\x1emarker\x1e"
MIB = 1 << 20
Print = Callable[[bytes], None]


@pytest.fixture
def printed() -> Iterator[tuple[LogPipe, Print, int]]:
    """A pipe of prints, what prints into it, and the end that a worker has."""
    read, write = os.pipe()
    logs = LogPipe(read, MARKER)

    def tell(text: bytes) -> None:
        for start in range(0, len(text), 1 << 14):
            os.write(write, text[start : start + (1 << 14)])
            assert logs.drain()

    yield logs, tell, write
    logs.close()
    os.close(write)


def test_each_batch_has_its_prints_and_one_that_printed_nothing_none(printed):
    logs, tell, _ = printed
    tell(b"one\n" + MARKER + MARKER + b"three\n" + MARKER + "né".encode())
    for text in ("one\n", "", "three\n"):
        assert logs.complete
        assert logs.take() == text
    assert not logs.complete
    assert [logs.take(), logs.take()] == ["né", ""]


def test_a_pipe_that_nobody_writes_to_any_more_is_told(printed):
    logs, _, write = printed
    with Path(os.devnull).open("wb") as nowhere:
        os.dup2(nowhere.fileno(), write)
    for _ in range(2):
        assert not logs.drain()
        logs.close()


def test_of_a_flood_the_beginning_and_the_end_are_kept(printed):
    logs, tell, _ = printed
    tell(b"before" + MARKER)
    tell(b"first" + b"x" * 5 * MIB + b"last" + MARKER + b"after")
    assert logs.take() == "before"
    first, told, last = logs.take().split("\n")
    assert (first[:6], len(first), last[-5:]) == ("firstx", MIB // 2, "xlast")
    dropped = int(told.split()[1])
    assert told.startswith(f"… {dropped} bytes ")
    assert len(first) + dropped + len(last) == len("first") + 5 * MIB + len("last")
    assert MIB // 2 <= len(last) <= MIB * 3 // 2
    assert logs.take() == "after"


def test_what_is_no_flood_is_kept_whole(printed):
    logs, tell, _ = printed
    tell(b"x" * 2 * MIB)
    assert logs.take() == "x" * 2 * MIB
    sizes = [MIB * 5 // 4, *[MIB // 4] * 5]  # of batches that nobody has taken yet, of which none prints too much
    for size in sizes:
        tell(b"x" * size + MARKER)
    assert [len(logs.take()) for _ in sizes] == sizes


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    """A process that has begun, and waits."""
    with subprocess.Popen(["cat"], start_new_session=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdin.write(b"ready\n")
        process.stdin.flush()
        process.stdout.readline()
        yield process
        process.kill()


@pytest.mark.parametrize("crashes", [True, False])
def test_of_a_process_the_memory_and_the_end_are_told(child: subprocess.Popen[bytes], crashes: bool):
    ours, theirs = socket.socketpair()
    with ours, theirs:
        process = WorkerProcess(child, ours, -1, MARKER)
        assert process.resident_memory() == psutil.Process(child.pid).memory_info().rss
        assert process.peak_memory() >= process.resident_memory()
        assert (process.ended(), process.signal) == (False, None)
        assert "SIG" not in process.how_it_ended()
        if crashes:
            child.send_signal(signal.SIGSEGV)
            child.wait()
            assert {"SIGSEGV;", "PYTHONFAULTHANDLER=1"} <= set(process.how_it_ended().split())
            return
        process.kill()
        assert process.signal == signal.SIGKILL
        assert process.how_it_ended().endswith("SIGKILL")
        assert (process.resident_memory(), process.exit) == (None, None)
        assert theirs.recv(1) == b""
        process.kill()  # nobody else's, whose number it may be by now


def test_an_interpreter_that_is_not_there_is_said_and_leaves_nothing_open(tmp_path):
    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(WorkerError, match=os.strerror(errno.ENOENT)) as caught:
        WorkerProcess.start(python=str(tmp_path / "python"))
    assert caught.value.where == str(tmp_path / "python")
    assert len(list(Path("/proc/self/fd").iterdir())) == before


@pytest.mark.slow
def test_safetensors_that_cannot_be_converted_are_named(tmp_path):
    damaged = tmp_path / "damaged.safetensors"
    damaged.write_bytes(b"\x08\0\0\0\0\0\0\0{}")
    with pytest.raises(ScaffoldError, match="SafetensorError", check=has_code("conversion-failed", where=str(damaged))):
        convert_safetensors(damaged, tmp_path / "m.pt")
    assert not (tmp_path / "m.pt").exists()


pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere every worker is a new process")

# What is asked for is an expression, or "die" and how.
HANDLER = textwrap.dedent(
    """
    import ctypes, gc, json, logging, multiprocessing, os, random, resource, signal, socket, subprocess, sys
    import tempfile, threading, time, uuid, warnings
    import numpy, torch

    def handle(data, context):
        if data is None:
            return
        word = bytes(data[0]["body"]).decode()
        if word == "exit": os._exit(7)
        if word == "kill": os.kill(os.getpid(), 9)
        if word == "segfault": ctypes.string_at(0)
        if word == "hang": time.sleep(90)
        return [json.dumps(eval(word))]
    """
)
PLAIN = "import os\ndef handle(data, context):\n    return [str(os.getpid())] * len(data) if data else None\n"
KILLED = textwrap.dedent(
    """
    import sys, time
    from marpack.runner.client import Worker
    from marpack.runner.process import Zygote
    from marpack.protocol.messages import Load

    zygote = Zygote(None)
    zygote.start()
    assert zygote.wait()
    worker = Worker.spawn(zygote=zygote)
    worker.load(Load(model_dir=sys.argv[1]))
    print(zygote._process.pid, worker.process.pid, worker.process.handler_pid, flush=True)
    time.sleep(90)
    """
)


# pytest names the test at hand in a variable, by which every test would have another environment.
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}


@pytest.fixture(scope="module")
def shared() -> Iterator[Zygote]:
    zygote = Zygote(ENVIRONMENT)
    zygote.start()
    assert zygote.wait()
    yield zygote
    zygote.close()


@pytest.fixture
def zygote(request: pytest.FixtureRequest) -> Zygote:
    """Return one that can fork."""
    zygote: Zygote = request.getfixturevalue("shared")
    zygote.start()
    assert zygote.wait()
    return zygote


@pytest.fixture
def folder(make_folder) -> str:
    return str(make_folder(HANDLER))


def ask(folder: str, word: str, **how: Any) -> Any:
    """Return what a handler finds, in a worker of its own."""
    with Worker.spawn(environment=ENVIRONMENT, **how) as worker:
        worker.load(Load(model_dir=folder))
        assert is_forked(worker) == ("zygote" in how)
        response = predict(worker, one(word)).responses[0]
    assert response.status == 200, response.body
    return json.loads(response.body)


def is_forked(worker: Worker) -> bool:
    return isinstance(worker.process._process, ForkedChild)


SAME = [
    "[str(sys.flags), sys.argv, sys.path, sys.orig_argv[:4], os.getcwd(), dict(os.environ)]",
    "[os.getsid(0) == os.getpid(), os.getpgid(0) == os.getpid(), os.getsid(os.getppid()) == os.getppid()]",
    "[str(signal.getsignal(each)) for each in signal.Signals] + [str(signal.pthread_sigmask(0, []))]",
    "[resource.getrlimit(getattr(resource, name)) for name in dir(resource) if name.startswith('RLIMIT')]",
    (
        "[sys.stdout.encoding, sys.stderr.encoding, sys.stderr.line_buffering, sys.__stdout__.line_buffering, "
        "sys.stdin.encoding, os.readlink('/proc/self/fd/1')[:5], os.fstat(1) == os.fstat(2)]"
    ),
    (
        "sorted(os.readlink(f'/proc/self/fd/{each}').partition(':')[0] for each in os.listdir('/proc/self/fd') "
        "if os.path.exists(f'/proc/self/fd/{each}'))"
    ),
    "[str(logging.root.handlers), str(warnings.filters), [each.name for each in threading.enumerate()]]",
    "[sys.modules['__main__'].__file__, torch.get_num_threads(), multiprocessing.parent_process(), gc.get_threshold()]",
    (
        "[line for line in open('/proc/self/status') if line.startswith(('Cap', 'Sig', 'Groups', 'NoNew', 'Umask')) "
        "and not line.startswith('SigQ')]"
    ),
]


@pytest.mark.peer
def test_a_forked_worker_finds_what_a_new_one_finds(zygote: Zygote, folder: str):
    everything = f"[{', '.join(SAME)}]"
    for new, forked, asked in zip(ask(folder, everything), ask(folder, everything, zygote=zygote), SAME, strict=True):
        assert forked == new, asked


DRAWN = (
    "[random.random(), float(numpy.random.rand()), float(torch.rand(1)), torch.initial_seed(), str(uuid.uuid4()), "
    "tempfile.mktemp(), multiprocessing.current_process().authkey.hex(), str(uuid.uuid1()), os.urandom(8).hex()]"
)


def test_random_numbers_differ_between_workers(zygote: Zygote, folder: str):
    drawn = [ask(folder, DRAWN, zygote=zygote) for _ in range(2)]
    assert [one for one, other in zip(*drawn, strict=True) if one == other] == []


COMPUTED = (
    "float((numpy.ones((600, 600)) @ numpy.ones((600, 600))).sum())",  # OpenBLAS
    "float((torch.ones(600, 600) @ torch.ones(600, 600)).sum())",  # OpenMP
    "len(list(torch.utils.data.DataLoader(range(4), num_workers=2)))",  # forks the worker
    "subprocess.run(['true']).returncode",
    "multiprocessing.get_context('spawn').Pool(1).apply(abs, (-3,))",
)


@pytest.mark.slow
def test_what_libraries_do_with_threads_and_processes_works_in_a_fork(zygote: Zygote, folder: str):
    assert Path(f"/proc/{zygote._process.pid}/task").stat().st_nlink == 3  # one thread: no lock is held by another
    assert ask(folder, f"[{', '.join(COMPUTED)}]", zygote=zygote) == [600**3, 600**3, 4, 0, 3]
    assert ask(folder, "len(os.listdir('/proc/self/task'))", zygote=zygote) == 1


ENDS = {"exit": "exit code 7", "segfault": "SIGSEGV", "kill": "SIGKILL", "hang": "did not respond in time"}


def test_how_a_forked_worker_ended_is_known(zygote: Zygote, folder: str):
    for word, reason in ENDS.items():
        with Worker.spawn(environment=ENVIRONMENT, zygote=zygote) as worker:
            worker.load(Load(model_dir=folder))
            outcome = predict(worker, one(word), timeout=1 if word == "hang" else 30)
            assert outcome.died
            assert reason in outcome.troubles[0].message
        wait_for_end(worker.process.handler_pid)
        with pytest.raises(ChildProcessError):  # reaped
            os.waitpid(worker.process.pid, os.WNOHANG)


@pytest.mark.slow
def test_zygote_and_workers_end_with_a_parent_that_is_killed(folder: str):
    with subprocess.Popen([sys.executable, "-c", KILLED, folder], stdout=subprocess.PIPE, text=True) as parent:
        pids = [int(word) for word in parent.stdout.readline().split()]
        assert all(map(runs, pids))
        parent.kill()
    assert len(pids) == 3
    wait_for_end(*pids)


@pytest.mark.slow
def test_a_zygote_outlives_the_thread_that_started_it_and_its_workers_outlive_it(folder: str):
    zygote = Zygote(ENVIRONMENT)
    thread = threading.Thread(target=zygote.start)
    thread.start()
    thread.join()
    assert zygote.wait()
    with Worker.spawn(environment=ENVIRONMENT, zygote=zygote) as worker:
        worker.load(Load(model_dir=folder))
        zygote.close()
        assert predict(worker, one("1 + 1")).responses[0].body == b"2"
        assert is_forked(worker)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.slow
def test_a_worker_starts_by_itself_without_its_zygote(zygote: Zygote, number: int):
    process = zygote._process
    os.kill(process.pid, number)
    with Worker.spawn(environment=ENVIRONMENT, zygote=zygote) as worker:
        assert not is_forked(worker)
    assert not runs(process.pid)


@pytest.mark.slow
def test_a_thread_does_not_wait_for_what_another_has_received(monkeypatch: pytest.MonkeyPatch):
    zygote = Zygote(ENVIRONMENT)
    receives, waits = zygote._receives, []

    def receive_after_another_thread(seconds: float) -> bool:
        waits.append(seconds)
        with monkeypatch.context() as patch:
            patch.setattr(zygote, "_receives", receives)
            assert zygote.wait()
        return receives(seconds)

    zygote.start()
    try:
        with monkeypatch.context() as patch:
            patch.setattr(zygote, "_receives", receive_after_another_thread)
            assert zygote.wait()
    finally:
        zygote.close()
    assert max(waits) < 1.0


def test_a_worker_starts_by_itself_where_a_fork_is_refused(zygote: Zygote, monkeypatch: pytest.MonkeyPatch):
    receive = zygote._receive
    monkeypatch.setattr(zygote, "_receive", lambda: receive() and b"-11")  # EAGAIN
    with Worker.spawn(environment=ENVIRONMENT, zygote=zygote) as worker:
        assert not is_forked(worker)
    monkeypatch.undo()
    with Worker.spawn(environment=ENVIRONMENT, zygote=zygote) as worker:
        assert is_forked(worker)


SOFT, HARD = resource.getrlimit(resource.RLIMIT_CORE)


@pytest.mark.slow
def test_a_worker_starts_by_itself_where_it_would_inherit_something_else(zygote: Zygote, monkeypatch):
    def forks(**variables: str) -> bool:
        with Worker.spawn(environment=ENVIRONMENT | variables, zygote=zygote) as worker:
            return is_forked(worker)

    assert not any(forks(**{name: "3"}) for name in ("OMP_NUM_THREADS", "PYTHONHASHSEED", "ANY_OTHER"))
    with monkeypatch.context() as patch:
        patch.chdir("/")
        assert not forks()
    resource.setrlimit(resource.RLIMIT_CORE, (1 if SOFT != 1 else 0, HARD))
    try:
        assert not forks()
    finally:
        resource.setrlimit(resource.RLIMIT_CORE, (SOFT, HARD))
    assert forks()


@pytest.mark.slow
def test_a_zygote_that_prints_forks_nothing(tmp_path: Path):
    (tmp_path / "sitecustomize.py").write_text("print('a warning that workers print')")
    zygote = Zygote({**os.environ, "PYTHONPATH": str(tmp_path)})
    zygote.start()
    assert not zygote.wait()
    assert zygote._process is None
    zygote.start()  # not once more
    assert zygote._process is None


def test_no_zygote_starts_beside_a_gpu_unless_it_is_hidden(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "_DEVICES", ("null",))
    for hidden, can_fork in ({}, False), ({"CUDA_VISIBLE_DEVICES": "0"}, False), ({"CUDA_VISIBLE_DEVICES": ""}, True):
        assert Zygote(hidden)._is_usable is can_fork


@pytest.mark.slow
def test_memory_of_a_forked_worker_is_bounded(zygote: Zygote, folder: str):
    with Worker.spawn(environment=ENVIRONMENT, max_memory=512 << 20, zygote=zygote) as worker:
        worker.load(Load(model_dir=folder))
        assert predict(worker, one("len(bytearray(1 << 30))")).responses[0].status in (500, 507)


@pytest.mark.peer
def test_further_workers_of_a_pool_are_forked(folder: str):
    with LocalPool(Load(model_dir=folder), PoolSettings(workers=3)) as pool:
        pool.start()
        assert [is_forked(each.worker) for each in pool._workers] == [False, True, True]
        process = pool._zygote._process
        assert [outcome.died for outcome in pool.outcomes(map(one, ["1", "exit", "2"]))] == [False, True, False]
    assert not runs(process.pid)


@pytest.mark.slow
def test_the_second_restart_of_a_pool_is_forked(folder: str):
    with LocalPool(Load(model_dir=folder), PoolSettings()) as pool:
        pool.start()
        for forked in (False, True, True):
            list(pool.outcomes([one("exit")]))
            assert is_forked(pool._workers[0].worker) is forked


def test_no_zygote_is_started_for_a_model_without_torch(make_folder):
    with LocalPool(Load(model_dir=str(make_folder(PLAIN))), PoolSettings(workers=2)) as pool:
        pool.start()
        assert pool._zygote is None


def test_a_module_that_cannot_be_read_is_left_to_the_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "handler.py").write_text("import torch\n")
    assert uses_torch(str(tmp_path))
    monkeypatch.setattr(Path, "open", Mock(side_effect=PermissionError))
    assert not uses_torch(str(tmp_path))
