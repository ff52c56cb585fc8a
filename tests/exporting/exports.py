"""Archives to export, and the files of their exports."""

import socket
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from marpack.exporting.export import Exported, export
from marpack.exporting.plan import ExportOptions
from marpack.version import __version__

MakeMar = Callable[..., Path]
ECHO = "def handle(data, context):\n    return [row.get('body') for row in data] if data else None\n"
HOSTILE = "a b\"; rm -rf $(pwd) `id` '{{ 7 * 7 }}'\n- evil: true\n```\n${HOME} \\"
WHEEL = f"marpack-{__version__}-py3-none-any.whl"


def exported(source: Path, to: str, folder: Path | None = None, *, replace: bool = False, **options: Any) -> Exported:
    """Export without a run of pip, with a nearly empty wheel."""
    wheel = source.parent / WHEEL
    if "wheel" not in options and not wheel.exists():
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr("marpack/__init__.py", "")
    given = ExportOptions(**({"resolve": False, "wheel": wheel} | options))
    return export(source, to, folder or source.parent / to, given, replace=replace)


def contents(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Return the mode and bytes of each file of an export, by name."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): (path.stat().st_mode & 0o777, path.read_bytes()) for path in files}


def texts(folder: Path) -> dict[str, str]:
    """Return the text files of an export, by name."""
    found = contents(folder).items()
    return {name: data.decode() for name, (_, data) in found if not name.endswith((".whl", ".mar"))}


def free_port() -> str:
    """Return a port of this machine without a listener."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return str(sock.getsockname()[1])
