"""The child process, started or forked."""

import os
import platform
import resource
import secrets
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Self

from marpack.errors import ScaffoldError, WorkerError, convert_os_errors

_GRACE = 2.0  # seconds for a worker to end by itself
_REAPING = 5.0  # seconds for a supervisor to end a worker and everything that it started
_CRASHES = frozenset({signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGABRT})
_DEVICES = ("nvidia[0-9]*", "kfd", "dxg", "dri/renderD*")  # below /dev: GPUs, whose libraries must not be forked
_PATIENCE = 60.0  # seconds for importing torch
_PROMPT = 2.0  # seconds for a fork
_SLICE = 0.05  # seconds after which a thread checks whether another one has received the message
_MAX_SOURCE = 1 << 20  # bytes of a module that are searched


def _start_child(
    python: str, sock: int, words: Sequence[str], output: int, environment: Mapping[str, str] | None
) -> subprocess.Popen[bytes]:
    """Start a child with a socket and further arguments; raises OSError."""
    return subprocess.Popen(  # noqa: S603 - our own module, no shell
        # -P: the current folder must not shadow our own imports; the model folder comes onto the path later.
        [python, "-P", "-m", "marpack.worker", str(sock), *words],
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        pass_fds=(sock,),
        env=environment,
        start_new_session=True,  # only the parent handles Ctrl-C; stray children end with the group
    )


class ForkedChild:
    """A process that a zygote forked: a child of this process, not of the zygote's."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None  # negative: the signal that ended it
        self._lock = threading.Lock()

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end; raises subprocess.TimeoutExpired."""
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            with self._lock:
                if self.returncode is None:
                    try:
                        found, status = os.waitpid(self.pid, os.WNOHANG)
                        self.returncode = os.waitstatus_to_exitcode(status) if found else None
                    except ChildProcessError:  # SIGCHLD is ignored: the system tells nothing about its end
                        self.returncode = 0
                if self.returncode is not None:
                    return self.returncode
            if end is not None and time.monotonic() >= end:
                raise subprocess.TimeoutExpired("marpack.worker", timeout or 0.0)
            time.sleep(0.002)


class Zygote:
    """A process that forks workers once it was started; where it cannot, `fork` returns None.

    A fork inherits its environment, working folder and limits from the zygote: `fork` compares them each time.
    """

    def __init__(self, environment: Mapping[str, str] | None) -> None:
        """Take the environment of the workers; None: this process's."""
        self._environment = environment
        # On Linux, if torch finds no GPU.
        is_hidden = (os.environ if environment is None else environment).get("CUDA_VISIBLE_DEVICES") == ""
        has_gpu = not is_hidden and any(any(Path("/dev").glob(pattern)) for pattern in _DEVICES)
        self._is_usable = sys.platform == "linux" and platform.machine() in {"x86_64", "aarch64"} and not has_gpu
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
                words = ["", "0", str(os.getpid()), "zygote"]
                self._process = _start_child(sys.executable, theirs.fileno(), words, subprocess.PIPE, self._environment)

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


def _inheritance(environment: Mapping[str, str] | None) -> object:
    """Return the environment, working folder and limits of a process that is started now; compare it by `==`."""
    try:
        folder = Path.cwd()
    except OSError:  # it was removed: nothing equals it
        return object()
    limits = [resource.getrlimit(getattr(resource, name)) for name in dir(resource) if name.startswith("RLIMIT_")]
    return dict(os.environ if environment is None else environment), folder, limits


def uses_torch(folder: str) -> bool:
    """Return whether a model's modules name torch, or it has none; others load faster in a new process."""
    modules = [path for path in Path(folder).rglob("*.py") if path.is_file()]
    for module in modules:
        with suppress(OSError), module.open("rb") as file:  # the worker reports one that cannot be read
            if b"torch" in file.read(_MAX_SOURCE):
                return True
    return not modules


Child = subprocess.Popen[bytes] | ForkedChild


class WorkerProcess:
    """One `python -m marpack.worker`, its socket and the pipe of all it prints."""

    def __init__(
        self, process: Child, sock: socket.socket, logs: int, marker: bytes, *, supervised: bool = False
    ) -> None:
        self._process = process
        self._supervised = supervised  # the process is the worker's supervisor, not the worker itself
        self.handler_pid = process.pid  # the process that the handler runs in: the worker's own, once it is known
        self.socket = sock
        self.logs = logs
        self.marker = marker  # printed by the worker between two batches
        # Becomes readable when the process ends, where the system has such descriptors. The socket proves nothing: a
        # child of the handler may hold it open after the worker is gone.
        self.exit: int | None = None
        with suppress(AttributeError, OSError):
            self.exit = os.pidfd_open(process.pid)
        self._killed = False

    @classmethod
    def start(
        cls,
        *,
        python: str = sys.executable,  # must have marpack installed
        environment: Mapping[str, str] | None = None,  # None: this process's
        max_memory: int | None = None,  # bytes of data; None: no bound
        preload: bool = False,  # import torch while it waits
        offline: bool = False,  # leave the network, if this user may do that
        zygote: Zygote | None = None,  # forks it, if possible, in place of a new interpreter
    ) -> Self:
        """Start a child that waits for a model; raises WorkerError if it cannot be started."""
        marker = secrets.token_hex(8)
        words = [marker, str(max_memory or 0), str(os.getpid())]
        words += [*(["preload"] if preload else []), *(["offline"] if offline else [])]
        failing = convert_os_errors(WorkerError, "the worker process cannot be started", where=python)
        with failing, ExitStack() as always, ExitStack() as on_error:
            ours, theirs = socket.socketpair()
            on_error.callback(ours.close)
            always.callback(theirs.close)
            logs, log_end = os.pipe()
            on_error.callback(os.close, logs)
            always.callback(os.close, log_end)
            forked = None
            if zygote is not None and python == sys.executable:
                forked = zygote.fork(words, theirs.fileno(), log_end, environment)
            process = forked or _start_child(python, theirs.fileno(), words, log_end, environment)
            on_error.pop_all()
        return cls(process, ours, logs, f"\x1e{marker}\x1e".encode(), supervised=sys.platform == "linux")

    @property
    def pid(self) -> int:
        """The id of the process that was started: the worker's supervisor, where there is one."""
        return self._process.pid

    def ended(self, *, within: float = 0.0) -> bool:
        """Return whether the process is gone, waiting `within` seconds for it."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(within)
        return self._process.returncode is not None

    @property
    def signal(self) -> int | None:
        """The number of the signal that ended the process, or None."""
        code = self._process.returncode
        return -code if code is not None and code < 0 else None

    def how_it_ended(self) -> str:
        """Return the end of a sentence that begins with "the worker"."""
        if not self.ended(within=0.1):
            return "did not respond in time"
        if self.signal is None:
            return f"ended with exit code {self._process.returncode}"
        try:
            name = signal.Signals(self.signal).name
        except ValueError:  # of the real-time signals, only the first and the last have names
            name = f"SIGRTMIN+{self.signal - signal.SIGRTMIN}"
        crashed = "; compiled code crashed: PYTHONFAULTHANDLER=1 marpack run --logs tells the line that called it"
        return f"was killed by {name}{crashed if self.signal in _CRASHES else ''}"

    def is_offline(self) -> bool:
        """Return whether the process has a network namespace of its own."""
        try:
            return Path(f"/proc/{self.pid}/ns/net").readlink() != Path("/proc/self/ns/net").readlink()
        except OSError:
            return False

    def peak_memory(self) -> int | None:
        """Return the most bytes of memory the process has had resident so far, where the system tells."""
        return self._status("VmHWM:")

    def resident_memory(self) -> int | None:
        """Return the bytes of memory the process has resident now, where the system tells."""
        return self._status("VmRSS:")

    def _status(self, field: str) -> int | None:
        try:
            status = Path(f"/proc/{self.handler_pid}/status").read_text()
        except OSError:
            return None
        kilobytes = [line.split()[1] for line in status.splitlines() if line.startswith(field)]
        return int(kilobytes[0]) * 1024 if kilobytes else None

    def close(self) -> None:
        """End the process: politely, then not."""
        self.socket.close()
        self.ended(within=_GRACE)
        self.kill()

    def kill(self) -> None:
        """End the process and everything it started, at once."""
        if self._killed:  # the number may be another's by now
            return
        self._killed = True
        if self._supervised and not self.ended():
            os.kill(self.pid, signal.SIGTERM)
            self.ended(within=_REAPING)
        if not self._supervised or not self.ended():
            # The group may outlive its leader: processes that the handler forked must also end.
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
            self._process.wait()
        self.socket.close()
        if self.exit is not None:
            os.close(self.exit)
            self.exit = None


def convert_safetensors(source: Path, target: Path) -> None:
    """Write a safetensors file's tensors as a state_dict, in a process that imports torch; raises ScaffoldError."""
    command = [sys.executable, "-P", "-m", "marpack.worker.loaders.formats", str(source), str(target)]
    done = subprocess.run(  # noqa: S603 - our own module, no shell
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode:
        reason = done.stderr.strip().rpartition("\n")[2] or f"exit code {done.returncode}"
        hint = "Check the file, or keep it as it is for marpack's own server: --target marpack"
        what = f"the file cannot be converted to a state_dict: {reason}"
        raise ScaffoldError(what, where=str(source), hint=hint, code="conversion-failed")
