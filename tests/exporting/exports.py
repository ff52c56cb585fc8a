"""Archives to export, and what an export of them is asked for."""

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


def exported(source: Path, to: str, folder: Path | None = None, *, replace: bool = False, **options: Any) -> Exported:
    """Export without asking pip for anything, with a wheel that has hardly anything in it."""
    wheel = source.parent / f"marpack-{__version__}-py3-none-any.whl"
    if "wheel" not in options and not wheel.exists():
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr("marpack/__init__.py", "")
    given = ExportOptions(**({"resolve": False, "wheel": wheel} | options))
    return export(source, to, folder or source.parent / to, given, replace=replace)


def texts(folder: Path) -> dict[str, str]:
    """Return the text files of an export, by name."""
    found = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    return {name: path.read_text() for name, path in found.items() if path.suffix not in {".whl", ".mar"}}
