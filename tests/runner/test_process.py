import errno
import os
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from marpack.errors import ScaffoldError, WorkerError
from marpack.runner.process import LogPipe, WorkerProcess, convert_safetensors

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
    assert not logs.drain()
    logs.close()
    logs.close()
    assert not logs.drain()


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


def test_of_a_process_the_memory_and_the_end_are_told(child: subprocess.Popen[bytes]):
    ours, theirs = socket.socketpair()
    with ours, theirs:
        process = WorkerProcess(child, ours, -1, MARKER)
        assert process.resident_memory() == psutil.Process(child.pid).memory_info().rss
        assert process.peak_memory() >= process.resident_memory()
        assert (process.ended(), process.signal) == (False, None)
        assert "SIG" not in process.how_it_ended()
        process.kill()
        assert process.signal == signal.SIGKILL
        assert process.how_it_ended().endswith("SIGKILL")
        assert (process.resident_memory(), process.exit) == (None, None)
        assert theirs.recv(1) == b""
        process.kill()  # nobody else's, whose number it may be by now


def test_an_interpreter_that_is_not_there_is_said_and_leaves_nothing_open(tmp_path):
    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(WorkerError, match=os.strerror(errno.ENOENT)) as caught:
        WorkerProcess.start(str(tmp_path / "python"))
    assert caught.value.where == str(tmp_path / "python")
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_of_a_crash_it_is_told_how_its_place_is_found(child: subprocess.Popen[bytes]):
    ours, theirs = socket.socketpair()
    with ours, theirs:
        process = WorkerProcess(child, ours, -1, MARKER)
        child.send_signal(signal.SIGSEGV)
        child.wait()
        assert {"SIGSEGV;", "PYTHONFAULTHANDLER=1"} <= set(process.how_it_ended().split())


@pytest.mark.nightly
def test_safetensors_that_cannot_be_converted_are_named(tmp_path):
    damaged = tmp_path / "damaged.safetensors"
    damaged.write_bytes(b"\x08\0\0\0\0\0\0\0{}")
    with pytest.raises(ScaffoldError, match="SafetensorError") as caught:
        convert_safetensors(damaged, tmp_path / "m.pt")
    assert (caught.value.code, caught.value.where) == ("conversion-failed", str(damaged))
    assert not (tmp_path / "m.pt").exists()
