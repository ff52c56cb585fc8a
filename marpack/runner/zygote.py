"""Workers forked from a process that has imported torch: they start in milliseconds and share its memory (Linux)."""

import os
import platform
import resource
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

_MACHINES = frozenset({"x86_64", "aarch64"})
_DEVICES = ("nvidia[0-9]*", "kfd", "dxg", "dri/renderD*")  # below /dev: GPUs, whose libraries must not be forked
_PATIENCE = 60.0  # seconds for importing torch
_PROMPT = 2.0  # seconds for a fork
_SLICE = 0.05  # seconds between two looks at what other threads have received
_MAX_SOURCE = 1 << 20  # bytes of a module that are searched
# Of /proc/PID/status: what a process inherits from the one that starts it.
_FIELDS = "Umask Uid Gid Groups SigBlk SigIgn CapInh CapPrm CapEff CapBnd CapAmb NoNewPrivs Seccomp Seccomp_filters"
_INHERITED = frozenset(f"{name}:" for name in (*_FIELDS.split(), "Cpus_allowed", "Mems_allowed"))


class ForkedChild:
    """A process that a zygote forked: a child of this process, not of the zygote's."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None  # negative: the signal that ended it
        self._lock = threading.Lock()

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end; raises subprocess.TimeoutExpired."""
        end = None if timeout is None else time.monotonic() + timeout
        while (code := self._reap()) is None:
            if end is not None and time.monotonic() >= end:
                raise subprocess.TimeoutExpired("marpack.worker", timeout or 0.0)
            time.sleep(0.002)
        return code

    def _reap(self) -> int | None:
        with self._lock:
            if self.returncode is None:
                try:
                    found, status = os.waitpid(self.pid, os.WNOHANG)
                    self.returncode = os.waitstatus_to_exitcode(status) if found else None
                except ChildProcessError:  # SIGCHLD is ignored: the system tells nothing about its end
                    self.returncode = 0
            return self.returncode


class Zygote:
    """A process that forks workers once it was started; where it cannot, `fork` returns None.

    A fork inherits from the zygote what a new process would inherit from this one: `fork` compares it each time.
    """

    def __init__(self, environment: Mapping[str, str] | None) -> None:
        """Take the environment of the workers; None: this process's."""
        self._environment = environment
        self._is_usable = _can_fork(os.environ if environment is None else environment)
        self._process: subprocess.Popen[bytes] | None = None
        self._inheritance: object = None
        self._is_ready = False
        self._lock = threading.RLock()

    def start(self) -> None:
        """Start the process, unless it runs; it imports torch while the caller goes on."""
        with self._lock, suppress(OSError):  # no descriptors or processes are left
            if not self._is_usable or self._process is not None:
                return
            self._inheritance = _inheritance(self._environment)
            self._sock, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs:
                words = [str(theirs.fileno()), "", "0", str(os.getpid()), "zygote"]
                self._process = subprocess.Popen(  # noqa: S603 - our own module, no shell
                    [sys.executable, "-P", "-m", "marpack.worker", *words],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    pass_fds=(theirs.fileno(),),
                    env=self._environment,
                    start_new_session=True,  # Ctrl-C is the parent's to handle
                )

    def wait(self, seconds: float = _PATIENCE) -> bool:
        """Wait until it can fork; False where it cannot."""
        end = time.monotonic() + seconds
        # Without the lock and in slices: meanwhile another thread may close it, or receive that it is ready.
        while self._process is not None and not self._is_ready and (left := end - time.monotonic()) > 0.0:
            if self._receives(min(_SLICE, left)):
                break
        with self._lock:
            process = self._process
            if process is not None and process.stdout is not None and not self._is_ready and self._receives(0.0):
                # What it printed, a new process would print into its worker's log: such ones are needed.
                is_silent = not _readable(process.stdout.fileno(), 0.0)
                self._is_ready = self._is_usable = self._receive() == b"ready" and is_silent
                if not self._is_ready:
                    self.close()
            return self._is_ready

    def fork(
        self, arguments: Sequence[str], sock: int, log_end: int, environment: Mapping[str, str] | None
    ) -> ForkedChild | None:
        """Return a worker with its arguments (without the socket's number), socket, stdout and environment, or None."""
        with self._lock:
            if not self.wait(0.0) or self._inheritance != _inheritance(environment):
                return None
            with suppress(OSError):
                socket.send_fds(self._sock, ["\0".join(arguments).encode()], (sock, log_end))
            pid = int(self._receive()) if self._receives(_PROMPT) else 0
            if pid == 0:  # it was killed, or is stopped; a negative number is the system's reason to refuse a fork
                self.close()
            return ForkedChild(pid) if pid > 0 else None

    def _receives(self, seconds: float) -> bool:
        return _readable(self._sock.fileno(), seconds)

    def _receive(self) -> bytes:
        with suppress(OSError):
            return self._sock.recv(16) or b"0"
        return b"0"

    def close(self) -> None:
        """End the process; the workers that it forked go on."""
        with self._lock:
            process, self._process, self._is_ready = self._process, None, False
            if process is not None:
                with process:
                    process.kill()
                self._sock.close()


def _readable(descriptor: int, seconds: float) -> bool:
    if descriptor < 0:  # another thread has closed it
        return False
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


def _can_fork(environment: Mapping[str, str]) -> bool:
    """Say whether workers can be forked: on Linux, where torch finds no GPU."""
    if sys.platform != "linux" or platform.machine() not in _MACHINES:
        return False
    is_hidden = environment.get("CUDA_VISIBLE_DEVICES") == ""
    return is_hidden or not any(True for pattern in _DEVICES for _ in Path("/dev").glob(pattern))


def _inheritance(environment: Mapping[str, str] | None) -> object:
    """Return what a process that this thread starts with an environment would inherit."""
    own = Path("/proc/thread-self")
    try:
        status = [line for line in (own / "status").read_text().splitlines() if line.split()[0] in _INHERITED]
        texts = [(own / name).read_text() for name in ("cgroup", "oom_score_adj")]
        namespaces = {str(place.readlink()) for place in (own / "ns").iterdir()}
        limits = [resource.getrlimit(getattr(resource, name)) for name in dir(resource) if name.startswith("RLIMIT_")]
        nice, folder = os.getpriority(os.PRIO_PROCESS, 0), Path.cwd()
    except OSError:  # this system does not tell: nothing equals it
        return object()
    return dict(os.environ if environment is None else environment), folder, status, texts, namespaces, limits, nice


def uses_torch(folder: str) -> bool:
    """Say whether a model's modules name torch, or it has none; others load faster in a new process."""
    modules = [path for path in Path(folder).rglob("*.py") if path.is_file()]
    return not modules or any(map(_names_torch, modules))


def _names_torch(module: Path) -> bool:
    try:
        with module.open("rb") as file:
            return b"torch" in file.read(_MAX_SOURCE)
    except OSError:  # the worker will report it
        return False
