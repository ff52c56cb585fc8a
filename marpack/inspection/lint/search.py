"""Where Python's import would find a module among an archive's members."""

from collections.abc import Iterable
from enum import StrEnum

from msgspec import Struct

_INIT = "__init__"


class Found(StrEnum):
    """What an import finds, in the order in which Python looks for it in a folder."""

    EXTENSION = "extension"  # compiled: .so
    SOURCE = "source"  # .py
    BYTECODE = "bytecode"  # .pyc
    NAMESPACE = "namespace"  # a folder without __init__.py


class Located(Struct, frozen=True):
    """A module's place among the members."""

    dotted: str
    kind: Found
    member: str  # the folder's name with "/", for a namespace
    package: bool = False


class Members:
    """The names of an archive's members as folders and files."""

    def __init__(self, names: Iterable[str]) -> None:
        self.names = frozenset(names)
        self._folders: dict[str, set[str]] = {}
        self._compiled: dict[str, str] = {}  # name without suffix → member
        for name in sorted(self.names):
            self._add(name)

    def files_in(self, folder: str) -> set[str]:
        """Return the base names of the files in a folder ("" or ending in "/")."""
        return self._folders.get(folder, set())

    def is_folder(self, folder: str) -> bool:
        """Say whether members lie under this name, which ends in "/"."""
        return folder in self._folders

    def locate(self, dotted: str, roots: Iterable[str] = ("",)) -> Located | None:
        """Find a module by its dotted name in the first root that has it.

        Args:
            dotted: As in an import statement.
            roots: Folders, "" or ending in "/", in the order of the search path.
        """
        namespace = None
        for root in roots:
            found = self._locate(dotted, root)
            if found and found.kind is not Found.NAMESPACE:
                return found
            namespace = namespace or found
        return namespace

    def _locate(self, dotted: str, root: str) -> Located | None:
        folder = root
        found: Located | None = None
        walked = ""
        for part in dotted.split("."):
            if found and not (found.package or found.kind is Found.NAMESPACE):
                return None  # a plain module has no modules inside
            walked = f"{walked}.{part}" if walked else part
            found = self._in_folder(folder, part, walked)
            if found is None:
                return None
            folder = f"{folder}{part}/"
        return found

    def _in_folder(self, folder: str, name: str, dotted: str) -> Located | None:
        inner = f"{folder}{name}/"
        for place, stem, package in ((inner, _INIT, True), (folder, name, False)):
            found = self._file(place, stem)
            if found:
                return Located(dotted, *found, package)
        return Located(dotted, Found.NAMESPACE, inner) if self.is_folder(inner) else None

    def _file(self, folder: str, stem: str) -> tuple[Found, str] | None:
        stem = folder + stem
        if stem in self._compiled:
            return Found.EXTENSION, self._compiled[stem]
        if f"{stem}.py" in self.names:
            return Found.SOURCE, f"{stem}.py"
        return (Found.BYTECODE, f"{stem}.pyc") if f"{stem}.pyc" in self.names else None

    def _add(self, name: str) -> None:
        folder, slash, base = name.rpartition("/")
        self._folders.setdefault(folder + slash, set()).add(base)
        stem, _, tag = base.partition(".")
        if tag in {"so", "abi3.so"} or (tag.endswith(".so") and tag.startswith("cpython-")):
            self._compiled.setdefault(folder + slash + stem, name)
        while folder:
            folder = folder.rpartition("/")[0]
            self._folders.setdefault(f"{folder}/" if folder else "", set())
