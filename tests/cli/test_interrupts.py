"""Requests to end a command end it at once, with its exit code, and nothing is left half-written."""

import json
import os
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from workers import wait_for_end

from marpack.cli import run
from marpack.cli.inputs import InputOptions
from marpack.cli.interrupts import Interrupts
from marpack.errors import ExitCode

SECONDS = 60.0  # in which an interrupted command has ended; each here would go on for longer, or for ever
MANIFEST = json.dumps({"runtime": "python", "model": {"modelName": "m", "modelVersion": "1.0", "handler": "h.py"}})
HANDLER = "def handle(data, context):\n    return [str(row) for row in data] if data else None\n"


@pytest.fixture
def interrupts() -> Iterator[Interrupts]:
    """Handle signals of this process as a command does, until the test ends."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in numbers}
    wakeup = signal.set_wakeup_fd(-1)
    yield Interrupts()
    signal.set_wakeup_fd(wakeup)
    for number, handler in before.items():
        signal.signal(number, handler)


def test_every_request_to_end_interrupts_but_one_that_was_ignored_from_the_start(interrupts: Interrupts):
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    for number in (signal.SIGINT, signal.SIGTERM):
        interrupts.install()
        signal.raise_signal(signal.SIGHUP)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)
        signal.raise_signal(number)  # at once, as `timeout` sends it: it does not disturb the end


def test_an_interruption_waits_until_a_result_is_shown(interrupts: Interrupts, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("marpack.cli.interrupts.INTERRUPTS", interrupts)
    shown, ended = [], []

    def show(number: int) -> int:
        signal.raise_signal(signal.SIGTERM)
        shown.append(number)
        return number

    pool = SimpleNamespace(kill=lambda: ended.append("killed"))
    output: Any = SimpleNamespace(show=show, end=lambda _, code: code)
    session: Any = SimpleNamespace(pool=pool)
    for _ in range(2):
        interrupts.install()
        results: Any = iter([1, 2])
        assert run._show_all(session, results, output, lambda _: False) == ExitCode.INTERRUPTED
    assert (shown, ended) == ([1, 1], ["killed"] * 2)
    interrupts.install()
    with pytest.raises(KeyboardInterrupt):  # at once: nothing is shown
        signal.raise_signal(signal.SIGINT)


@contextmanager
def command(*words: object, **options: Any) -> Iterator["subprocess.Popen[str]"]:
    """Run marpack, and end it in any case."""
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL, **options}
    process = subprocess.Popen([sys.executable, "-m", "marpack", *map(str, words)], text=True, **options)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def wait_until(happens: Callable[[], bool], process: "subprocess.Popen[str]") -> None:
    end = time.monotonic() + 60
    while not happens():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.02)


def interrupted(process: "subprocess.Popen[str]", number: int = signal.SIGTERM) -> tuple[int, str, str]:
    """Send a signal; return exit code, stdout and stderr. Fails for a process that goes on."""
    process.send_signal(number)
    out, err = process.communicate(timeout=SECONDS)
    assert "Traceback" not in err
    return process.returncode, out, err


def has_read(process: "subprocess.Popen[str]") -> bool:
    return int(psutil.Process(process.pid).io_counters().read_chars) > 1 << 28


@pytest.fixture
def slow(tmp_path: Path) -> Path:
    """Return a small archive with a pickle of 60 million opcodes, which takes longer to read than any test here."""
    path = tmp_path / "slow.mar"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("h.py", HANDLER)
        archive.writestr("w.pkl", b"\x80\x02" + b"N0" * 30_000_000 + b"N.", zipfile.ZIP_DEFLATED)
        archive.writestr("MAR-INF/MANIFEST.json", MANIFEST)
    return path


def large_archive(path: Path, size: int = 200 << 30) -> Path:
    """Write an archive with a member of so many zeros, which take no room on the disk."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("h.py", HANDLER)
        archive.writestr("MAR-INF/MANIFEST.json", MANIFEST)
        large = zipfile.ZipInfo("large.bin")
        large.file_size = large.compress_size = size
        large.CRC = 1  # which a reader learns at the member's end
        large.header_offset = archive.start_dir
        assert archive.fp is not None
        archive.fp.seek(archive.start_dir)
        archive.fp.write(large.FileHeader(zip64=True))
        archive.start_dir = archive.fp.seek(size, os.SEEK_CUR)
        archive.filelist.append(large)
        archive.NameToInfo[large.filename] = large
    return path


def test_check_ends_while_it_scans(slow: Path):
    with command("check", slow, "--max-opcodes", 10**9, "--junit", "out.xml", cwd=slow.parent) as process:
        assert process.stdout is not None
        while "manifest" not in process.stdout.readline():  # the last check before the scan
            assert process.poll() is None
        assert interrupted(process)[0] == ExitCode.INTERRUPTED
    cases = ET.parse(slow.parent / "out.xml").iter("testcase")
    done = {case.get("name"): case.find("skipped") is None for case in cases}
    assert (done["manifest"], done["pickles"], done["proved"]) == (True, False, False)


def test_a_command_ends_while_it_reads_a_large_file(tmp_path: Path):
    large = large_archive(tmp_path / "large.mar")
    before = sorted(tmp_path.rglob("*"))
    with command("inspect", large, "--verify", cwd=tmp_path) as process:
        wait_until(lambda: has_read(process), process)
        code, out, _ = interrupted(process)
    assert (code, out) == (ExitCode.INTERRUPTED, "")
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.slow
def test_a_reader_that_takes_nothing_does_not_hold_up_the_end(tmp_path: Path):
    path = tmp_path / "many.mar"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("h.py", HANDLER)
        for number in range(3000):
            archive.writestr(f"{number}.txt", "x")
        archive.writestr("MAR-INF/MANIFEST.json", MANIFEST)
    reader, writer = os.pipe()
    try:
        with command("inspect", path, "--json", stdout=writer) as process:
            os.close(writer)
            wait_until(lambda: is_full(reader), process)
            process.send_signal(signal.SIGTERM)
            time.sleep(0.5)  # the second request counts only a while after the first
            assert interrupted(process)[0] == ExitCode.INTERRUPTED
    finally:
        os.close(reader)


def is_full(reader: int) -> bool:
    """Say whether a pipe holds as much as pipes do."""
    import fcntl
    import termios

    return int.from_bytes(fcntl.ioctl(reader, termios.FIONREAD, bytes(4)), sys.byteorder) >= 1 << 16


def test_a_second_signal_ends_a_main_thread_that_is_stuck_in_c_and_its_workers(make_folder: Callable[..., Path]):
    code = (
        "import ctypes, sys\n"
        "from marpack.cli.interrupts import INTERRUPTS\n"
        "from marpack.protocol.messages import Load\n"
        "from marpack.runner.client import Worker\n"
        "INTERRUPTS.install()\n"
        "worker = Worker.spawn()\n"
        "worker.load(Load(model_dir=sys.argv[1]))\n"
        "lock, libc = ctypes.create_string_buffer(64), ctypes.CDLL(None)\n"
        "libc.pthread_mutex_lock(lock)\n"
        "print(worker.process.pid, worker.process.handler_pid, flush=True)\n"
        "libc.pthread_mutex_lock(lock)\n"  # as a look-up of a host's name, no signal ends it
    )
    words = [sys.executable, "-c", code, str(make_folder(HANDLER))]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            pids = [int(word) for word in process.stdout.readline().split()]
            for _ in range(2):
                time.sleep(0.4)  # the second request counts only a while after the first
                assert process.poll() is None
                process.send_signal(signal.SIGTERM)
            assert process.wait(SECONDS) == ExitCode.INTERRUPTED
        finally:
            process.kill()
    wait_for_end(*pids)


def test_a_benchmark_that_is_interrupted_kills_its_workers(monkeypatch: pytest.MonkeyPatch):
    ends: list[object] = []

    @contextmanager
    def session(*_: object, **__: object) -> Iterator[object]:
        try:
            yield SimpleNamespace(archive=None)
        except BaseException as error:
            ends.append(type(error))
            raise

    def measure(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("marpack.cli.run.open_session", session)
    monkeypatch.setattr("marpack.cli.run.read_inputs", lambda *_: [])
    monkeypatch.setattr("marpack.inspection.members.model_config", measure)
    assert run.benchmark(run.RunCommandOptions("x.mar"), InputOptions()) == ExitCode.INTERRUPTED
    assert ends == [KeyboardInterrupt]  # by which a session knows that it is to kill, not to wait
