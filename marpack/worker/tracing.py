"""What a handler touches beside its archive and its packages, by Python's audit events (PEP 578).

Native code raises no such events, and of a process that is started only its start is seen.
"""

import _posixsubprocess
import mimetypes
import os
import re
import socket
import ssl
import sys
import sysconfig
import tempfile
import threading
import time
import zoneinfo
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from marpack.protocol.diagnostics import attempt
from marpack.protocol.messages import Access, Touched

_MAX_COUNT = 1000  # of a stage
_MAX_TEXT = 400  # characters of a command
_TICK = 0.02  # seconds that the clock of a file's times may be behind
_DEVICES = frozenset(f"/dev/{name}" for name in ("null", "zero", "full", "urandom", "random", "tty"))
_FACTS = ("/proc", "/sys", "/usr/share/locale", "/usr/lib/locale", "/etc/ssl", "/etc/pki", "/usr/share/ca-certificates")
_NAMES = ("localtime", "timezone", "os-release", "locale.alias", "nsswitch.conf", "hosts", "resolv.conf")  # in /etc
_LIBRARIES = frozenset({"libc", "libm", "libdl", "libpthread", "librt", "libgcc_s", "libstdc++", "libgomp"})
_SHELLS = frozenset({"sh", "bash", "dash"})
_BYTECODE = re.compile(r".*/__pycache__(/[^/]*\.pyc(\.\d+)?)?")
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_ANEW = os.O_TRUNC | os.O_EXCL | getattr(os, "O_TMPFILE", 0)  # of what was there before nothing is left
_PROCESS = re.compile(r"/proc/(\d+)(/|$)")
_START = "marpack.fork_exec"  # raised for processes that are started by a way that raises nothing
_LISTEN = "marpack.listen"  # raised for sockets that listen without having been bound: Python raises nothing
_Found = Iterator[tuple[Access, str]]


class _Places:
    """What may be read and written without a word."""

    def __init__(self, model_dir: str) -> None:
        self.names: dict[str, str] = {}  # address → the name that it was found by
        self._since = time.time() - _TICK
        paths = sysconfig.get_paths()
        packages = [paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")]
        packages += [path for path in sys.path if path.endswith(("/site-packages", "/dist-packages"))]
        self._packages = _beginnings((*packages, str(Path(__file__).parents[1])))
        self._temporary = _beginnings((tempfile.gettempdir(), "/tmp", "/dev/shm"))  # noqa: S108 - only compared
        facts = (*_FACTS, *zoneinfo.TZPATH, f"{sys.base_prefix}/share/locale")
        self._writable = _beginnings((model_dir, f"/proc/{os.getpid()}"))
        self._readable = (*self._packages, *self._writable, *_beginnings(facts))
        zipped = f"{sys.base_prefix}/{sys.platlibdir}/python{sys.version_info.major}{sys.version_info.minor}.zip"
        files = [*(f"/etc/{name}" for name in _NAMES), sys.executable, zipped, *mimetypes.knownfiles]
        files += [ssl.get_default_verify_paths().openssl_cafile]
        self._files = _DEVICES.union(files, map(os.path.realpath, files))

    def read(self, given: Any) -> _Found:  # Any: whatever names a file
        """Yield what is read from elsewhere; from the temporary folder only what was there before."""
        name = os.fsdecode(given)
        if name.startswith(self._packages) and "/.." not in name:  # as nearly always, and imports wait for it
            return
        path = os.path.realpath(name)
        if path in self._files or (f"{path}/".startswith(self._readable) and not _is_of_other_process(path)):
            return
        if not path.startswith(self._temporary) or self._is_old(path):
            yield Access.READ, path

    def made(self, given: Any, *, kept: bool = False) -> _Found:  # Any: as above
        """Yield what is made, emptied or removed elsewhere; of the temporary folder what was there and is `kept`."""
        path = os.path.realpath(os.fsdecode(given))
        if path in _DEVICES or f"{path}/".startswith(self._writable) or _BYTECODE.fullmatch(path):
            return
        if not f"{path}/".startswith(self._temporary) or (kept and Path(path).exists() and self._is_old(path)):
            yield Access.WRITE, path

    def changed(self, given: Any) -> _Found:  # Any: as above
        """Yield what is changed elsewhere."""
        return self.made(given, kept=True)

    def _is_old(self, path: str) -> bool:
        """Say whether a file of the temporary folder has not come into being, nor changed, since the beginning."""
        try:
            return Path(path).stat().st_ctime < self._since
        except OSError:  # it is not there: elsewhere it might be
            return True


def _is_of_other_process(path: str) -> bool:
    """Say whether /proc tells something of another process there, such as its environment."""
    process = _PROCESS.match(path)
    return process is not None and int(process[1]) != os.getpid()


def _beginnings(folders: Iterable[str]) -> tuple[str, ...]:
    """Return how the paths of all that is in some folders begin."""
    return tuple({f"{each.rstrip('/')}/" for folder in folders for each in (folder, os.path.realpath(folder))})


# What an event tells, by its arguments; the author's may be anything that names a file, a host or a program.


def _opened(places: _Places, path: Any, _mode: object, flags: int) -> _Found:
    written, kept = flags & _WRITES, not flags & _ANEW
    if written:
        yield from places.made(path, kept=kept)
    if not flags & os.O_WRONLY and (kept or not written):
        yield from places.read(path)


def _listed(places: _Places, path: Any) -> _Found:
    if path not in sys.path:  # where imports look; what they find there is opened
        yield from places.read(path or ".")


def _each(*ways: Callable[[_Places, Any], _Found]) -> Callable[..., _Found]:
    """Return what tells of the first arguments, each in its way."""
    return lambda places, *given: chain(*(way(places, each) for way, each in zip(ways, given, strict=False)))


def _queried(places: _Places, database: Any) -> _Found:
    name = os.fsdecode(database).removeprefix("file:").partition("?")[0]
    if name not in ("", ":memory:"):
        yield from places.read(name) if Path(name).exists() else places.made(name)


def _library(places: _Places, given: Any) -> _Found:
    name = os.fsdecode(given)
    if any(places.read(name)) if "/" in name else name.partition(".so")[0] not in _LIBRARIES:
        yield Access.LOAD, name


def _addressed(kind: Access) -> Callable[..., _Found]:
    """Return a reader of a socket's address."""

    def find(places: _Places, _socket: object, address: Any) -> _Found:  # Any: as above
        if isinstance(address, str | bytes):
            yield kind, os.fsdecode(address).replace("\0", "@")
        elif isinstance(address[0], str | bytes):  # else the kernel itself
            host = os.fsdecode(address[0])
            yield kind, f"{places.names.get(host, host)}:{address[1]}"

    return find


def _resolved(_places: _Places, host: Any, *_: object) -> _Found:
    name = os.fsdecode(host)
    families = (socket.AF_INET, socket.AF_INET6)
    is_address = any(isinstance(attempt(partial(socket.inet_pton, family, name)), bytes) for family in families)
    if not is_address and name not in ("", "localhost", os.uname().nodename):
        yield Access.RESOLVE, name


def _started(_places: _Places, program: Any, arguments: Any = (), *_: object) -> _Found:
    """Yield a program's name; of a shell's the command, which could be any."""
    name, words = os.fsdecode(program), [os.fsdecode(word) for word in arguments]
    if words == ["uname", "-p"]:  # by which Python's own `platform` asks for the machine
        return
    if Path(name).name in _SHELLS and words[1:2] == ["-c"]:
        name = f"{Path(name).name} -c {words[2]}"
    yield Access.RUN, name if len(name) <= _MAX_TEXT else f"{name[:_MAX_TEXT]}…"


_READERS: dict[str, Callable[..., _Found]] = {
    "open": _opened,
    "import": lambda places, _name, file, *_: places.read(file),  # a compiled module, which Python does not open
    "sqlite3.connect": _queried,
    "socket.getnameinfo": lambda places, address: _resolved(places, address[0]),
    "os.system": lambda places, command: _started(places, "sh", ("sh", "-c", command)),
    "ctypes.dlopen": _library,
    "os.rename": _each(_Places.changed, _Places.made),
    "os.link": _each(_Places.read, _Places.made),
    "os.symlink": lambda places, _target, path, _folder: places.made(path),
    **dict.fromkeys(("subprocess.Popen", "os.posix_spawn", "os.exec"), _started),
    **dict.fromkeys(("pty.spawn", _START), lambda places, words: _started(places, words[0], words)),
    **dict.fromkeys(("os.fork", "os.forkpty"), lambda places: _started(places, "fork")),
    **dict.fromkeys(("socket.connect", "socket.sendto", "socket.sendmsg"), _addressed(Access.CONNECT)),
    **dict.fromkeys(("socket.bind", _LISTEN), _addressed(Access.LISTEN)),
    **dict.fromkeys(("socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr"), _resolved),
    **dict.fromkeys(("os.listdir", "os.scandir"), _listed),
    **dict.fromkeys(("os.mkdir", "os.remove", "os.rmdir"), _each(_Places.made)),
    **dict.fromkeys(("os.getxattr", "os.listxattr"), _each(_Places.read)),
    **dict.fromkeys(("os.truncate", "os.chmod", "os.chflags", "os.chown", "os.utime"), _each(_Places.changed)),
    **dict.fromkeys(("os.setxattr", "os.removexattr"), _each(_Places.changed)),
}
# Of these the second argument says what it is about.
_SECOND = frozenset({"import", "socket.bind", "socket.connect", "socket.sendto", "socket.sendmsg", _LISTEN})


class Tracer:
    """Keeps what is touched, by the stage at hand; one per process, as no hook can be taken away."""

    def __init__(self, model_dir: str) -> None:
        """Watch this process from here on, but for this thread, which is watched while it runs the author's code."""
        self._places = _Places(model_dir)
        self._main = threading.get_ident()
        self._stage = "import"
        self._watching = False
        self._seen: dict[str, set[tuple[Access, str]]] = {}
        self._news: list[Touched] = []
        self._wrap()
        sys.addaudithook(self._hear)

    @contextmanager
    def during(self, stage: str) -> Iterator[None]:
        """Watch what this thread does from here on, as that of a stage of the author's code."""
        self._stage, self._watching = stage, True
        try:
            yield
        finally:
            self._watching = False

    def taken(self) -> tuple[Touched, ...]:
        """Return what was touched for the first time since the last call."""
        news, self._news = self._news, []
        return tuple(news)

    def _wrap(self) -> None:
        """Learn the addresses that names stand for, of the processes that multiprocessing starts, and who listens."""
        hear = socket.socket.listen
        look_up, start = socket.getaddrinfo, _posixsubprocess.fork_exec

        def getaddrinfo(host: Any, *args: Any, **options: Any) -> Any:  # Any: as it is
            found = look_up(host, *args, **options)
            self._places.names.update((str(each[4][0]), os.fsdecode(host)) for each in found if host)
            return found

        def fork_exec(words: Any, *rest: Any) -> int:  # Any: as it is
            sys.audit(_START, words)
            return start(words, *rest)

        def listen(self: socket.socket, *backlog: int) -> None:
            address = self.getsockname()
            if isinstance(address, tuple) and address[1] == 0:  # not bound: the system chooses a port
                sys.audit(_LISTEN, self, address)
            hear(self, *backlog)

        socket.getaddrinfo, _posixsubprocess.fork_exec = getaddrinfo, fork_exec
        socket.socket.listen = listen  # type: ignore[assignment,method-assign]

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:  # Any: each event has its own
        reader = _READERS.get(event)
        if reader is None or (not self._watching and threading.get_ident() == self._main):
            return
        subject = arguments[event in _SECOND] if arguments else ""
        if isinstance(subject, int) or (subject is None and reader is not _listed):  # a descriptor, or nothing
            return
        found = attempt(lambda: tuple(reader(self._places, *arguments)))
        if isinstance(found, Exception):
            found = ((Access.UNKNOWN, f"{event}: {type(found).__name__}"),)
        seen = self._seen.setdefault(self._stage, set())
        for kind, target in found:
            legible = target.encode("utf-8", "backslashreplace").decode()
            touched = (kind, legible) if len(seen) < _MAX_COUNT else (Access.UNKNOWN, "more than is kept")
            if touched not in seen:
                seen.add(touched)
                self._news.append(Touched(*touched, self._stage))
