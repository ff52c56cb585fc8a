"""`--watch`: files and folders looked at again and again, until something in them has changed."""

import os
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

_EVERY = 0.05  # seconds between two looks
_SETTLED = 0.02  # seconds without a further change: an editor may write several times
_PATIENCE = 0.1  # seconds that a look waits for that: the watching thread must be able to end
_SHARE = 10  # a look takes at most a tenth of the time
_SKIPPED = (".mar", ".tar.gz", ".tgz", ".pyc", "~", ".swp", ".tmp")

_State = dict[str, tuple[int, int, int]]  # path → inode, size, time


class Watch:
    """Files and folders, as they were when last looked at."""

    def __init__(self, paths: Iterable[Path], *, without: Iterable[Path] = ()) -> None:
        """Look at files and folders (hidden files and archives in them apart) `without` what the run itself writes."""
        self._paths = tuple(paths)
        self._without = {str(path.absolute()) for path in without}
        self._seen = self._look()

    def changed(self) -> list[str]:
        """Return what changed since the last call and has settled; what keeps changing is left to a later call."""
        before, now = self._seen, self._look()
        moving = _differences(before, now)
        until = time.monotonic() + _PATIENCE
        while moving and time.monotonic() < until:
            time.sleep(_SETTLED)
            last, now = now, self._look()
            moving = _differences(last, now)
        kept = {path: before[path] for path in moving & before.keys()}
        self._seen = {path: state for path, state in now.items() if path not in moving} | kept
        return sorted(_differences(before, self._seen))

    def wait(self, tick: Callable[[], None] = lambda: None) -> list[str]:
        """Wait for a change, and return what changed; `tick` is called before each look."""
        while True:
            tick()
            started = time.monotonic()
            if changed := self.changed():
                return changed
            time.sleep(max(_EVERY, _SHARE * (time.monotonic() - started)))

    def _look(self) -> _State:
        state: _State = {}
        for path in self._paths:
            for name in _files(path):
                if name in self._without:
                    continue
                try:
                    status = os.stat(name)  # noqa: PTH116 - of many files, many times a second
                except OSError:
                    continue
                state[name] = (status.st_ino, status.st_size, status.st_mtime_ns)
        return state


def _differences(before: _State, now: _State) -> set[str]:
    return {path for path in before.keys() | now.keys() if before.get(path) != now.get(path)}


def _files(path: Path) -> Iterator[str]:
    top = str(path.absolute())
    if not path.is_dir():
        yield top  # whatever it is called: it was named
        return
    for root, folders, names in os.walk(top):
        folders[:] = [name for name in folders if not name.startswith((".", "__pycache__"))]
        yield from (f"{root}/{name}" for name in names if not name.startswith(".") and not name.endswith(_SKIPPED))
