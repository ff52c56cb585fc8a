"""Accesses of a handler outside its archive and its packages, from Python's audit events (PEP 578).

Native code raises no such events; of a process that the handler starts, only the start is recorded.
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

from marpack.protocol.messages import Access, Touched
from marpack.worker.notes import attempt

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
_ANEW = os.O_TRUNC | os.O_EXCL | getattr(os, "O_TMPFILE", 0)  # nothing of an earlier file is left
_PROCESS = re.compile(r"/proc/(\d+)(/|$)")
_START = "marpack.fork_exec"  # raised for multiprocessing, whose starts raise nothing
_LISTEN = "marpack.listen"  # raised for sockets that listen unbound: Python raises nothing
_Found = Iterator[tuple[Access, str]]


class _Places:
    """The paths that a handler may read and write without a record."""

    def __init__(self, model_dir: str) -> None:
        self.names: dict[str, str] = {}  # address → the name that resolved to it
        self._since = time.time() - _TICK
        paths = sysconfig.get_paths()
        packages = [paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")]
        packages += [path for path in sys.path if path.endswith(("/site-packages", "/dist-packages"))]
        self._packages = _prefixes((*packages, str(Path(__file__).parents[1])))
        self._temporary = _prefixes((tempfile.gettempdir(), "/tmp", "/dev/shm"))  # noqa: S108 - only compared
        facts = (*_FACTS, *zoneinfo.TZPATH, f"{sys.base_prefix}/share/locale")
        self._writable = _prefixes((model_dir, f"/proc/{os.getpid()}"))
        self._readable = (*self._packages, *self._writable, *_prefixes(facts))
        zipped = f"{sys.base_prefix}/{sys.platlibdir}/python{sys.version_info.major}{sys.version_info.minor}.zip"
        files = [*(f"/etc/{name}" for name in _NAMES), sys.executable, zipped, *mimetypes.knownfiles]
        files += [ssl.get_default_verify_paths().openssl_cafile]
        self._files = _DEVICES.union(files, map(os.path.realpath, files))

    def read(self, given: Any) -> _Found:  # Any: text, bytes or a path
        """Yield a read outside these paths; in the temporary folder only of a file older than the worker."""
        name = os.fsdecode(given)
        if name.startswith(self._packages) and "/.." not in name:  # nearly always, and imports wait for it
            return
        path = os.path.realpath(name)
        process = _PROCESS.match(path)  # its environment, for example
        other = process is not None and int(process[1]) != os.getpid()
        if path in self._files or (f"{path}/".startswith(self._readable) and not other):
            return
        if not path.startswith(self._temporary) or self._is_old(path):
            yield Access.READ, path

    def write(self, given: Any, *, kept: bool = False) -> _Found:  # Any: as above
        """Yield a file made, emptied or removed elsewhere; in the temporary folder only an older one that is `kept`."""
        path = os.path.realpath(os.fsdecode(given))
        if path in _DEVICES or f"{path}/".startswith(self._writable) or _BYTECODE.fullmatch(path):
            return
        if not f"{path}/".startswith(self._temporary) or (kept and Path(path).exists() and self._is_old(path)):
            yield Access.WRITE, path

    def change(self, given: Any) -> _Found:  # Any: as above
        """Yield a file changed elsewhere."""
        return self.write(given, kept=True)

    def _is_old(self, path: str) -> bool:
        """Return whether a file of the temporary folder is older than the worker, and unchanged."""
        try:
            return Path(path).stat().st_ctime < self._since
        except OSError:  # it does not exist, or cannot be tested
            return True


def _prefixes(folders: Iterable[str]) -> tuple[str, ...]:
    return tuple({f"{each.rstrip('/')}/" for folder in folders for each in (folder, os.path.realpath(folder))})


# Readers of an event's arguments; the author's may be anything that names a file, a host or a program.


def _read_open(places: _Places, path: Any, _mode: object, flags: int) -> _Found:
    written, kept = flags & _WRITES, not flags & _ANEW
    if written:
        yield from places.write(path, kept=kept)
    if not flags & os.O_WRONLY and (kept or not written):
        yield from places.read(path)


def _read_listing(places: _Places, path: Any) -> _Found:
    if path not in sys.path:  # imports list it, and open the files
        yield from places.read(path or ".")


def _each(*ways: Callable[[_Places, Any], _Found]) -> Callable[..., _Found]:
    """Return a reader of the first arguments, each by its own method."""
    return lambda places, *given: chain(*(way(places, each) for way, each in zip(ways, given, strict=False)))


def _read_database(places: _Places, database: Any) -> _Found:
    name = os.fsdecode(database).removeprefix("file:").partition("?")[0]
    if name not in ("", ":memory:"):
        yield from places.read(name) if Path(name).exists() else places.write(name)


def _read_library(places: _Places, given: Any) -> _Found:
    name = os.fsdecode(given)
    if any(places.read(name)) if "/" in name else name.partition(".so")[0] not in _LIBRARIES:
        yield Access.LOAD, name


def _read_address(kind: Access) -> Callable[..., _Found]:
    def find(places: _Places, _socket: object, address: Any) -> _Found:  # Any: as above
        if isinstance(address, str | bytes):
            yield kind, os.fsdecode(address).replace("\0", "@")
        elif isinstance(address[0], str | bytes):  # otherwise the kernel itself
            host = os.fsdecode(address[0])
            yield kind, f"{places.names.get(host, host)}:{address[1]}"

    return find


def _read_host(_places: _Places, host: Any, *_: object) -> _Found:
    name = os.fsdecode(host)
    families = (socket.AF_INET, socket.AF_INET6)
    is_address = any(isinstance(attempt(partial(socket.inet_pton, family, name)), bytes) for family in families)
    if not is_address and name not in ("", "localhost", os.uname().nodename):
        yield Access.RESOLVE, name


def _read_program(_places: _Places, program: Any, arguments: Any = (), *_: object) -> _Found:
    """Yield a program's name; for a shell its command."""
    name, words = os.fsdecode(program), [os.fsdecode(word) for word in arguments]
    if words == ["uname", "-p"]:  # from Python's own `platform`
        return
    if Path(name).name in _SHELLS and words[1:2] == ["-c"]:
        name = f"{Path(name).name} -c {words[2]}"
    yield Access.RUN, name if len(name) <= _MAX_TEXT else f"{name[:_MAX_TEXT]}…"


_READERS: dict[str, Callable[..., _Found]] = {
    "open": _read_open,
    "import": lambda places, _name, file, *_: places.read(file),  # a compiled module, which Python does not open
    "sqlite3.connect": _read_database,
    "socket.getnameinfo": lambda places, address: _read_host(places, address[0]),
    "os.system": lambda places, command: _read_program(places, "sh", ("sh", "-c", command)),
    "ctypes.dlopen": _read_library,
    "os.rename": _each(_Places.change, _Places.write),
    "os.link": _each(_Places.read, _Places.write),
    "os.symlink": lambda places, _target, path, _folder: places.write(path),
    **dict.fromkeys(("subprocess.Popen", "os.posix_spawn", "os.exec"), _read_program),
    **dict.fromkeys(("pty.spawn", _START), lambda places, words: _read_program(places, words[0], words)),
    **dict.fromkeys(("os.fork", "os.forkpty"), lambda places: _read_program(places, "fork")),
    **dict.fromkeys(("socket.connect", "socket.sendto", "socket.sendmsg"), _read_address(Access.CONNECT)),
    **dict.fromkeys(("socket.bind", _LISTEN), _read_address(Access.LISTEN)),
    **dict.fromkeys(("socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr"), _read_host),
    **dict.fromkeys(("os.listdir", "os.scandir"), _read_listing),
    **dict.fromkeys(("os.mkdir", "os.remove", "os.rmdir"), _each(_Places.write)),
    **dict.fromkeys(("os.getxattr", "os.listxattr"), _each(_Places.read)),
    **dict.fromkeys(("os.truncate", "os.chmod", "os.chflags", "os.chown", "os.utime"), _each(_Places.change)),
    **dict.fromkeys(("os.setxattr", "os.removexattr"), _each(_Places.change)),
}
# Events whose subject is the second argument.
_SECOND = frozenset({"import", "socket.bind", "socket.connect", "socket.sendto", "socket.sendmsg", _LISTEN})


class Tracer:
    """Records accesses by stage; one per process, because an audit hook cannot be removed."""

    def __init__(self, model_dir: str) -> None:
        """Watch this process from now on; this thread only while it runs the author's code."""
        self._places = _Places(model_dir)
        self._main = threading.get_ident()
        self._stage = "import"
        self._watching = False
        self._seen: dict[str, set[tuple[Access, str]]] = {}
        self._news: list[Touched] = []
        # Record also the addresses that names resolve to, the processes of multiprocessing, and unbound listeners.
        listen_unwatched = socket.socket.listen
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
            listen_unwatched(self, *backlog)

        socket.getaddrinfo, _posixsubprocess.fork_exec = getaddrinfo, fork_exec
        socket.socket.listen = listen  # type: ignore[assignment,method-assign]
        sys.addaudithook(self._record)

    @contextmanager
    def during(self, stage: str) -> Iterator[None]:
        """Watch this thread, as a stage of the author's code."""
        self._stage, self._watching = stage, True
        try:
            yield
        finally:
            self._watching = False

    def take(self) -> tuple[Touched, ...]:
        """Return the first accesses since the last call."""
        news, self._news = self._news, []
        return tuple(news)

    def _record(self, event: str, arguments: tuple[Any, ...]) -> None:  # Any: each event has its own
        reader = _READERS.get(event)
        if reader is None or (not self._watching and threading.get_ident() == self._main):
            return
        subject = arguments[event in _SECOND] if arguments else ""
        if isinstance(subject, int) or (subject is None and reader is not _read_listing):  # a descriptor, or nothing
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
