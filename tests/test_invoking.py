"""Commands that run in this process leave it as it was."""

import gc
import os
import signal
import threading
from pathlib import Path

from invoking import invoke


def state() -> tuple[object, ...]:
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    return handlers, dict(os.environ), gc.isenabled(), Path.cwd()


def test_nothing_of_a_command_is_left_behind(make_mar, tmp_path: Path):
    mar = str(make_mar("def handle(data, context):\n    return data and ['x']\n"))
    invoke("run", mar, "--data", "a")  # starts the fork server and the one thread that watches for signals
    before, files, threads = state(), len(os.listdir("/proc/self/fd")), threading.active_count()  # noqa: PTH208
    for words, code in ((["inspect", mar], 0), (["inspect", "nowhere"], 2), (["run", mar, "--data", "a"], 0)):
        invoke(*words, cwd=tmp_path, code=code, env={"MARPACK_KEY_PASSWORD": "secret"})
        assert state() == before
    assert threading.active_count() <= threads
    assert len(os.listdir("/proc/self/fd")) <= files  # noqa: PTH208


def test_the_error_that_ends_a_command_is_told_with_its_exit_code(tmp_path: Path):
    done = invoke("inspect", "nowhere", cwd=tmp_path, code=2)
    assert (done.cause, done.error and done.error.where) == ("source-not-found", "nowhere")
    assert invoke("--version").cause == ""
