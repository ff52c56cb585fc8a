"""Changes of files and folders, for `run --watch`."""

import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from marpack.errors import UsageError, convert_os_errors

_EVERY = 0.05  # seconds between two calls of `tick`
_SETTLED = 0.03  # seconds in which further changes belong to the first: an editor may write several times
_SKIPPED = (".mar", ".tar.gz", ".tgz", ".pyc", "~", ".swp", ".tmp")


class Watch:
    """Files and folders whose changes are reported."""

    def __init__(self, paths: Iterable[Path], *, without: Iterable[Path] = ()) -> None:
        """Watch files and folders; in folders, ignore hidden files, archives, and the files in `without`.

        Raises UsageError if the system cannot watch that many folders.
        """
        import watchfiles  # noqa: PLC0415 - few commands watch

        named = [path.absolute() for path in paths]
        self._folders = [path for path in named if path.is_dir()]
        self._files = {str(path) for path in named} - {str(path) for path in self._folders}
        self._without = {str(path.absolute()) for path in without}
        # A file is watched through its folder: editors replace it by another one.
        places = ((self._folders, True), ({Path(file).parent for file in self._files}, False))
        self._streams = [
            watchfiles.watch(
                *existing, watch_filter=self._counts, recursive=recursive, debounce=100, step=1, rust_timeout=1,
                yield_on_timeout=True,
            )
            for some, recursive in places
            if (existing := [place for place in some if place.exists()])
        ]  # fmt: skip
        hint = "Raise fs.inotify.max_user_watches, or set WATCHFILES_FORCE_POLLING=true."
        with convert_os_errors(UsageError, "the files cannot be watched", hint=hint):
            self.changed()

    def changed(self) -> list[str]:
        """Return the files that changed since the last call."""
        return sorted({path for stream in self._streams for _, path in next(stream)})

    def wait(self, tick: Callable[[], None] = lambda: None) -> list[str]:
        """Wait for a change, and return the files that changed; call `tick` repeatedly meanwhile."""
        while not (changed := self.changed()):
            tick()
            time.sleep(_EVERY)
        time.sleep(_SETTLED)
        return sorted({*changed, *self.changed()})

    def _counts(self, _: object, path: str) -> bool:
        """Return whether a change of a path counts: of a named file, or of a file in a named folder."""
        if path in self._without or os.path.isdir(path):  # noqa: PTH112 - called for each of many files
            return False
        if path in self._files:
            return True
        return any(counts_within(each, path) for each in self._folders)


def counts_within(folder: Path, path: str) -> bool:
    """Return whether a changed file counts in a watched folder: it is not hidden, compiled, packed or temporary."""
    if path.endswith(_SKIPPED) or not Path(path).is_relative_to(folder):
        return False
    inner = Path(path).relative_to(folder).parts
    return bool(inner) and not any(part.startswith((".", "__pycache__")) for part in inner)
