"""marpack's own wheel, made from the installed files: the same files give the same bytes."""

import hashlib
import io
import zipfile
from base64 import urlsafe_b64encode
from collections.abc import Iterator, Mapping
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from marpack.errors import UsageError
from marpack.project.scaffold.template import templates
from marpack.version import __version__

_PACKAGE = Path(__file__).parents[1]
_INFO = f"marpack-{__version__}.dist-info"
_WHEEL = "Wheel-Version: 1.0\nGenerator: marpack\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the first moment that a zip can tell
_HINT = "name a wheel: --wheel FILE (pip download --no-deps marpack)"


def wheel(named: Path | None) -> tuple[str, bytes]:
    """Return the name and the bytes of the wheel that is named, or of one made from the installed files.

    Raises UsageError for a file that is no wheel of marpack, and where marpack is not installed.
    """
    return _made() if named is None else (named.name, _checked(named))


def _checked(path: Path) -> bytes:
    """Return a wheel's bytes; raise UsageError for what is none, or not marpack's."""
    from packaging.utils import InvalidWheelFilename, parse_wheel_filename  # noqa: PLC0415 - only --wheel needs it

    where = f"--wheel {path}"
    try:
        name, *_ = parse_wheel_filename(path.name)
        data = path.read_bytes()
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            holds = "marpack/__init__.py" in archive.namelist()
    except (InvalidWheelFilename, zipfile.BadZipFile):
        raise UsageError("this is no wheel", where=where, hint=_HINT) from None
    except OSError as error:
        raise UsageError(f"the wheel cannot be read: {error.strerror}", where=where) from error
    if name != "marpack" or not holds:
        raise UsageError("this is a wheel of something else than marpack", where=where, hint=_HINT)
    return data


def _made() -> tuple[str, bytes]:
    try:
        installed = distribution("marpack")
    except PackageNotFoundError:
        what = "marpack is not installed, so no wheel can be made of it"
        raise UsageError(what, hint=_HINT, code="not-installed") from None
    if installed.version != __version__:
        message = f"marpack {__version__} runs, and {installed.version} is installed"
        raise UsageError(f"{message}: a wheel would be neither", hint="install it again, or name a wheel: --wheel FILE")
    files = dict(sorted({**dict(_package_files()), **_metadata(installed)}.items()))
    files[f"{_INFO}/RECORD"] = _record(files)
    return f"marpack-{__version__}-py3-none-any.whl", _zipped(files)


def _package_files() -> Iterator[tuple[str, bytes]]:
    """Yield code and templates by their names in the wheel, wherever this installation keeps the templates."""
    for folder, prefix in ((_PACKAGE, "marpack"), (templates(), "marpack/templates")):
        for path in folder.rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                yield f"{prefix}/{path.relative_to(folder).as_posix()}", path.read_bytes()


def _metadata(installed: Distribution) -> dict[str, bytes]:
    texts = {name: installed.read_text(name) for name in ("METADATA", "entry_points.txt", "licenses/LICENSE")}
    texts["WHEEL"] = _WHEEL
    return {f"{_INFO}/{name}": text.encode() for name, text in texts.items() if text is not None}


def _record(files: Mapping[str, bytes]) -> bytes:
    lines = [
        f"{name},sha256={urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip('=')},{len(data)}"
        for name, data in files.items()
    ]
    return "\n".join([*lines, f"{_INFO}/RECORD,,", ""]).encode()


def _zipped(files: Mapping[str, bytes]) -> bytes:
    """Return a zip of files, all of them stored: what compresses differs from zlib to zlib."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.external_attr = 0o644 << 16
            entry.create_system = 3  # Unix, whatever wrote it
            archive.writestr(entry, data)
    return buffer.getvalue()
