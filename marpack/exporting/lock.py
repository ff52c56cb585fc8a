"""requirements.lock: every package of an image, pinned, with its hashes, as pip resolves them here."""

import re
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from msgspec import Struct

from marpack.errors import UsageError, shortened
from marpack.project.vendoring import UnresolvedError, pip_report
from marpack.torchserve.distributions import canonical

_PINNED = re.compile(r"([A-Za-z0-9][\w.-]*)==\S+( --hash=sha256:[0-9a-f]{64})+")
_DIRECT = re.compile(r"@|://")


class Lock(Struct, frozen=True):
    """The content of requirements.lock, or why there is none."""

    data: bytes | None = None
    reason: str = ""


def read_lock(path: Path, names: Iterable[str]) -> Lock:
    """Return a lock that was made before; raise UsageError for what is none, or lacks one of these packages."""
    where = f"--lock {path}"
    try:
        text = path.read_text("utf-8")
    except OSError as error:
        raise UsageError(f"the lock cannot be read: {error.strerror}", where=where) from error
    except UnicodeDecodeError:
        raise UsageError("the lock is no text", where=where) from None
    found = set()
    for number, line in enumerate(text.splitlines(), 1):
        match = _PINNED.fullmatch(line)
        if match:
            found.add(canonical(match[1]))
        elif line and not line.startswith("#"):
            hint = "write NAME==VERSION --hash=sha256:…, as an export does"
            raise UsageError("this line pins no package by its hash", where=f"{where}:{number}", hint=hint)
    missing = sorted({canonical(name) for name in names} - found)
    if missing:
        raise UsageError(
            f"the lock has no {missing[0]}, which the image needs", where=where, hint="leave --lock out to make one"
        )
    return Lock(path.read_bytes())


def make_lock(requirements: Iterable[str], wheel: tuple[str, bytes], index: str | None) -> Lock:
    """Ask pip which packages would be installed, and return them with their hashes; nothing is built or installed.

    Args:
        requirements: Of the image, marpack aside.
        wheel: The name and the bytes of marpack's, whose own requirements count, too.
        index: Where torch comes from, beside the default index.
    """
    if sys.platform != "linux":
        return Lock(reason="pip resolves for the system that it runs on, and the image is Linux")
    direct = next((line for line in requirements if _DIRECT.search(line)), None)
    if direct is not None:
        return Lock(reason=f"'{shortened(direct, 60)}' is an address, and pip runs what it finds there to look at it")
    try:
        return Lock(_resolved(requirements, wheel, index))
    except UnresolvedError as error:
        return Lock(reason=str(error))


def _resolved(requirements: Iterable[str], wheel: tuple[str, bytes], index: str | None) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, wheel[0])
        file.write_bytes(wheel[1])
        report = pip_report([*requirements, f"{file}[serve]"], ["--extra-index-url", index] if index else [])
    lines = sorted(
        f"{name}=={package.version} --hash=sha256:{package.sha256}\n"
        for name, package in report.items()
        if name != "marpack"
    )
    return "".join(lines).encode()
