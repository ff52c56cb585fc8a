"""The model store: the one folder whose archives a client may have served, by their bare names."""

import re
from collections.abc import Iterable
from pathlib import Path

from msgspec import Struct

from marpack.archive.names import quoted
from marpack.errors import UsageError
from marpack.torchserve.frontend.headers import FormError

_ALL = "all"
_SUFFIXES = (".mar", ".model", ".tar.gz", ".tgz")
_SCHEME = re.compile(r"(?:https?|file):", re.IGNORECASE)
_MOST_TOLD = 1024  # characters of a url that messages repeat


class ModelStore(Struct, frozen=True):
    """A folder of archives."""

    folder: Path

    def find(self, url: str) -> Path:
        """Return the archive, or model folder, of a bare name; raise FormError for any other url.

        Whatever the original would look up elsewhere is refused in the words that it has for what is not there: an
        address, a path, a link that leads out of the store.
        """
        told = url[:_MOST_TOLD]
        if not url:
            raise _not_found("empty url")
        if ".." in url:
            raise _not_found(f"Relative path is not allowed in url: {told}")
        if _SCHEME.match(url):
            raise _not_found(f"Given URL {told} does not match any allowed URL(s)")
        if not self._holds(url):
            raise _not_found(f"Model not found at: {told}")
        return self.folder / url

    def _holds(self, name: str) -> bool:
        if any(letter in "/\\" or not letter.isprintable() for letter in name):
            return False
        store, place = self.folder.resolve(), self.folder / name
        try:
            return place.exists() and store in place.resolve().parents
        except (OSError, RuntimeError):  # a name that is too long, a link to itself
            return False

    def all_models(self) -> list[Path]:
        """Return whatever in the store is an archive by its name, and every folder, sorted; UsageError if unreadable.

        As at every start of the original, hidden ones are left out. Links of the store's owner are followed.
        """
        try:
            return sorted(path for path in self.folder.iterdir() if not path.name.startswith(".") and _is_model(path))
        except OSError as error:
            hint = "--model-store names a folder of archives"
            raise UsageError(f"the model store cannot be read: {error.strerror}", hint=hint) from None

    def parse_models(self, words: Iterable[str]) -> list[tuple[str | None, Path]]:
        """Return the names that models are to have (None: their manifests') and their files, as `--models` names them.

        Args:
            words: Each `all`, `file` or `name=file`, or several of these with commas between. A file is looked up by
                the last part of its path, in the store; but a folder may lie anywhere. None of them need exist.

        Raises UsageError for a word that names no file, and for an address.
        """
        found: list[tuple[str | None, Path]] = []
        for word in (piece.strip() for text in words for piece in text.split(",")):
            if word.lower() == _ALL:
                found += [(None, path) for path in self.all_models()]
            elif word:
                found.append(self._started(word))
        return list(dict.fromkeys(found))

    def _started(self, word: str) -> tuple[str | None, Path]:
        name, equals, file = (piece.strip() for piece in word.partition("="))
        if not equals:
            name, file = "", name
        if "://" in file:
            hint = f"put it into {self.folder} first, and name the file"
            raise UsageError(f"models are served from the model store, not from {quoted(file)}", hint=hint)
        bare = Path(file).name
        if not bare or (equals and not name) or not file.isprintable():
            raise UsageError(f"{quoted(word)} names no model", hint="write all, file.mar or name=file.mar")
        here = self.folder / bare
        return name or None, Path(file) if not here.exists() and Path(file).is_dir() else here


def _is_model(path: Path) -> bool:
    return path.name.endswith(_SUFFIXES) or path.is_dir()


def _not_found(message: str) -> FormError:
    return FormError(message, status=404, kind="ModelNotFoundException")
