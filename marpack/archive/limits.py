"""How much an archive may hold before it is refused unread."""

from msgspec import Struct

_MIB = 1 << 20
_GIB = 1 << 30


class Limits(Struct, frozen=True, kw_only=True):
    """The limits in force; every one can be raised by its user.

    Only what deflate and gzip expand is held to `ratio`: stored bytes cannot be a bomb.
    """

    members: int = 65_536  # files and folders together
    total: int = 256 * _GIB  # bytes, uncompressed, of all members
    ratio: int = 100  # uncompressed bytes per compressed one, of each member and of all together…
    allowance: int = 64 * _MIB  # …beyond this many uncompressed bytes

    @property
    def directory(self) -> int:
        """How many bytes a zip's central directory may have: a kilobyte for each member."""
        return self.members * 1024

    def expands_too_much(self, size: int, compressed: int) -> bool:
        """Say whether so many bytes may not come out of so few."""
        return size > self.allowance and size > self.ratio * compressed
