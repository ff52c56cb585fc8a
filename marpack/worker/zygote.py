"""The process that forks workers (Linux): it has imported torch, has never computed, and has one thread."""

import ctypes
import gc
import os
import signal
import socket
import sys
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_CLONE_PARENT = 0x8000  # linux/sched.h: the new process is marpack's child, as one that marpack starts itself
_SYS_CLONE = {"x86_64": 56, "aarch64": 220}
_MAX_REQUEST = 1 << 12  # bytes of a worker's arguments


def serve_forks(parent: int, descriptor: int, preload: Callable[[], None]) -> None:
    """Fork a process for each request, and return in these processes only, each as if marpack had just started it.

    Args:
        parent: The process id of marpack, with which this process ends.
        descriptor: The socket that requests arrive on, each with a worker's arguments, its socket and its log pipe.
        preload: Imports torch.
    """
    # The signal also arrives when only the thread of marpack ends that started this process.
    signal.signal(signal.SIGUSR1, lambda *_: os.getppid() == parent or os._exit(0))
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGUSR1)
    sock = socket.socket(fileno=descriptor)
    sock.set_inheritable(False)
    preload()
    _end_threads()
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


def _end_threads() -> None:
    """End OpenBLAS's threads, which a fork does and its next computation undoes; exit if any others are left."""
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitpid(child, 0)
    if len(os.listdir("/proc/self/task")) != 1:  # noqa: PTH208 - names are enough
        os._exit(1)


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
