"""The process between marpack and a worker (Linux only), which ends everything that the handler started.

It is the subreaper of the worker: a process that the handler detaches, by `setsid` or a double fork, becomes its child
instead of init's, whatever its environment, session and process group are. It ends them all when the worker ends, when
marpack asks for it with SIGTERM, and when marpack itself ends, by SIGKILL too.
"""

import ctypes
import os
import resource
import signal
import time
from pathlib import Path
from typing import NoReturn

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36  # linux/prctl.h
# SIGUSR1 says that a thread of the parent ended: that may be the parent's last one, or the one that started us.
_SIGNALS = {signal.SIGCHLD, signal.SIGTERM, signal.SIGUSR1}
_PATIENCE = 4.0  # seconds for killed processes to end; one in a system call that cannot be interrupted may take longer


def supervise(parent: int, descriptor: int) -> None:
    """Fork, and return in the child only, which is to become the worker; this process then ends as the child ends.

    Args:
        parent: The process id of marpack.
        descriptor: The worker's socket, which only the child keeps.
    """
    prctl = ctypes.CDLL(None).prctl
    prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    prctl(_PR_SET_PDEATHSIG, signal.SIGUSR1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # where a parent ignores it, its children cannot wait for theirs
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    supervisor, worker = os.getpid(), os.fork()
    if worker:
        _close(descriptor)
        _end_as(_wait(parent, worker))
    prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != supervisor:  # it ended before the call above
        os._exit(1)
    os.setsid()  # a handler that signals its process group does not reach the supervisor
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _close(descriptor: int) -> None:
    """Close the socket and the log pipe, so that their closing still shows that the worker closed them."""
    os.close(descriptor)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for standard in (1, 2):
        os.dup2(nowhere, standard)
    os.close(nowhere)


def _wait(parent: int, worker: int) -> int:
    """Return the worker's wait status, after everything that it started has ended."""
    status: int | None = None
    while status is None and os.getppid() == parent:
        if signal.sigwait(_SIGNALS) == signal.SIGTERM:
            break
        status = _reap().get(worker)
    until = time.monotonic() + _PATIENCE
    while _kill_children() and time.monotonic() < until:
        # The children of a process that ended are our children now: look again.
        ended = _reap()
        status = ended.get(worker, status)
        if not ended:
            signal.sigtimedwait({signal.SIGCHLD}, 0.05)
    return signal.SIGKILL if status is None else status


def _reap() -> dict[int, int]:
    """Return the wait statuses of the children that have ended, by their ids."""
    ended = {}
    try:
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            ended[found[0]] = found[1]
    except ChildProcessError:
        pass
    return ended


def _kill_children() -> bool:
    """Send SIGKILL to every child; False once none is left that this user may signal."""
    own, found = str(os.getpid()), False
    for place in Path("/proc").glob("[0-9]*/stat"):
        try:
            if place.read_text(errors="replace").rpartition(")")[2].split()[1] == own:
                os.kill(int(place.parent.name), signal.SIGKILL)
                found = True
        except OSError:  # it ended meanwhile, or belongs to another user
            continue
    return found


def _end_as(status: int) -> NoReturn:
    """End this process with a wait status."""
    if os.WIFSIGNALED(status):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the worker has dumped its own
        number = os.WTERMSIG(status)
        if number not in {signal.SIGKILL, signal.SIGSTOP}:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
        os.kill(os.getpid(), number)
    os._exit(os.waitstatus_to_exitcode(status) if os.WIFEXITED(status) else 1)
