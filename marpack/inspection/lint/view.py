"""The little that static checks need of an archive: its members' names and their bytes."""

from collections.abc import Iterable
from typing import BinaryIO, Protocol


class MemberView(Protocol):
    """Members by name, whether they lie in an archive already or only in a plan."""

    def names(self) -> Iterable[str]:
        """Return every member's name, with "/", the manifest's folder included or not."""

    def open(self, name: str) -> BinaryIO:
        """Open one member for reading, seekable; the caller closes it.

        Raises KeyError for a name that is no member, OSError or ArchiveError for one that cannot be read.
        """
