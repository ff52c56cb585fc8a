"""Linux only: the supervisor of a worker, the zygote that forks workers, and the namespace of an offline worker.

The supervisor is the process between marpack and a worker. It is the worker's subreaper: a process that the handler
detaches, by `setsid` or a double fork, becomes its child instead of init's. It kills them all when the worker ends,
when marpack sends SIGTERM, and when marpack itself ends, even by SIGKILL.
"""

import ctypes
import fcntl
import gc
import os
import resource
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36  # linux/prctl.h
_CLONE_NEWUSER, _CLONE_NEWNET = 0x10000000, 0x40000000  # linux/sched.h
_CLONE_PARENT = 0x8000  # linux/sched.h: the new process is marpack's child, as one that marpack starts itself
_SYS_CLONE = {"x86_64": 56, "aarch64": 220}
_SIOCSIFFLAGS, _IFF_UP = 0x8914, 0x1  # linux/sockios.h, linux/if.h
# SIGUSR1 says that a thread of the parent ended: that may be the parent's last one, or the one that started us.
_SIGNALS = {signal.SIGCHLD, signal.SIGTERM, signal.SIGUSR1}
_PATIENCE = 4.0  # seconds for killed processes to end; one in a system call that cannot be interrupted may take longer
_MAX_REQUEST = 1 << 12  # bytes of a worker's arguments


def supervise(parent: int, descriptor: int) -> None:
    """Fork, and return in the child only, which becomes the worker; this process then ends as the child ends.

    `parent` is marpack's process id, `descriptor` the worker's socket, which only the child keeps.
    """
    prctl = ctypes.CDLL(None).prctl
    prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    prctl(_PR_SET_PDEATHSIG, signal.SIGUSR1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # where a parent ignores it, its children cannot wait for theirs
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    supervisor, worker = os.getpid(), os.fork()
    if worker:
        # Close the socket and the log pipe, so that their closing still shows that the worker closed them.
        os.close(descriptor)
        null = os.open(os.devnull, os.O_RDWR)
        for standard in (1, 2):
            os.dup2(null, standard)
        os.close(null)
        _wait_and_end(parent, worker)
    prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != supervisor:  # it ended before the call above
        os._exit(1)
    os.setsid()  # a handler that signals its process group does not reach the supervisor
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _wait_and_end(parent: int, worker: int) -> NoReturn:
    """Wait for the worker and end everything that it started; then end this process as the worker ended."""
    status: int | None = None
    while status is None and os.getppid() == parent:
        if signal.sigwait(_SIGNALS) == signal.SIGTERM:
            break
        status = _reap().get(worker)
    until = time.monotonic() + _PATIENCE
    while _kill_children() and time.monotonic() < until:
        # The children of a process that ended are our children now: kill again.
        ended = _reap()
        status = ended.get(worker, status)
        if not ended:
            signal.sigtimedwait({signal.SIGCHLD}, 0.05)
    if status is None or os.WIFSIGNALED(status):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the worker has dumped its own
        number = signal.SIGKILL if status is None else os.WTERMSIG(status)
        if number not in {signal.SIGKILL, signal.SIGSTOP}:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
        os.kill(os.getpid(), number)
    os._exit(os.waitstatus_to_exitcode(status) if status is not None and os.WIFEXITED(status) else 1)


def _reap() -> dict[int, int]:
    ended = {}
    with suppress(ChildProcessError):
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            ended[found[0]] = found[1]
    return ended


def _kill_children() -> bool:
    """Send SIGKILL to every child; return False once this user may signal none."""
    own, found = str(os.getpid()), False
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it ended meanwhile, or belongs to another user
            if stat.read_text(errors="replace").rpartition(")")[2].split()[1] == own:
                os.kill(int(stat.parent.name), signal.SIGKILL)
                found = True
    return found


def serve_forks(parent: int, descriptor: int, preload: Callable[[], None]) -> None:
    """Fork a process for each request, and return in these processes only, each as if marpack had just started it.

    This process, the zygote, has imported torch (`preload`), has never computed, has one thread, and ends with marpack,
    the process `parent`. A request on `descriptor` holds a worker's arguments, its socket and its log pipe.
    """
    # The signal also arrives when only the thread of marpack ends that started this process.
    signal.signal(signal.SIGUSR1, lambda *_: os.getppid() == parent or os._exit(0))
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGUSR1)
    sock = socket.socket(fileno=descriptor)
    sock.set_inheritable(False)
    preload()
    # A fork ends OpenBLAS's threads, and its next computation starts them again. No other thread may be left.
    if not (child := os.fork()):
        os._exit(0)
    os.waitpid(child, 0)
    if len(os.listdir("/proc/self/task")) != 1:  # noqa: PTH208 - names are enough
        os._exit(1)
    gc.collect()
    gc.freeze()  # a collection in a worker must not write to the pages that all of them share
    if os.getppid() == parent:  # marpack may have ended before the signal was set
        sock.send(b"ready")
    clone = ctypes.PyDLL(None, use_errno=True).syscall  # PyDLL: the interpreter's lock stays held
    while (request := socket.recv_fds(sock, _MAX_REQUEST, 2))[0]:
        child = clone(_SYS_CLONE[os.uname().machine], _CLONE_PARENT | signal.SIGCHLD, 0, 0, 0, 0)
        if child == 0:
            sock.close()
            _become_worker(request[0].decode().split("\0"), *request[1])
            return
        for each in request[1]:
            os.close(each)
        sock.send(str(child if child > 0 else -ctypes.get_errno()).encode())
    os._exit(0)


def _become_worker(arguments: list[str], sock: int, log_end: int) -> None:
    """Take the session, streams, arguments, signal handlers and random numbers of a new process."""
    os.setsid()
    for standard in (1, 2):
        os.dup2(log_end, standard)
    os.close(log_end)
    signal.signal(signal.SIGUSR1, signal.SIG_DFL)
    sys.argv[1:] = sys.orig_argv[4:] = [str(sock), *arguments]
    if "numpy.random" in sys.modules:  # `random` seeds itself anew in each fork
        sys.modules["numpy.random"].seed()
    if "torch" in sys.modules:
        sys.modules["torch"].default_generator.seed()
    if "multiprocessing.process" in sys.modules:
        sys.modules["multiprocessing.process"].current_process().authkey = os.urandom(32)


def leave_network() -> None:
    """Enter a network namespace with nothing in it but a loopback, where this user may, while there is one thread.

    A child tries it first: where the namespace cannot be furnished, a process that has entered it is of no more use.
    """
    child = os.fork()
    if not child:
        os._exit(not _enter_namespace())
    if os.waitpid(child, 0)[1] == 0:
        _enter_namespace()


def _enter_namespace() -> bool:
    user, group = os.geteuid(), os.getegid()
    try:
        unshare = ctypes.CDLL(None).unshare
        if unshare(_CLONE_NEWNET):  # without a namespace of users, root keeps its rights
            if unshare(_CLONE_NEWUSER | _CLONE_NEWNET):
                return False
            Path("/proc/self/setgroups").write_text("deny")
            Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
            Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
            fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", _IFF_UP))
    except (OSError, AttributeError):  # another system has no such call
        return False
    return True
