"""`marpack doctor`: what is here of what commands need, and what the cache holds."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from packaging.requirements import Requirement
from rich.filesize import decimal

from marpack.api.results import DoctorReport
from marpack.api.settings import cache_of, environments_folder
from marpack.archive.cache import Cache
from marpack.archive.download import evict
from marpack.errors import ExtractionError, first_line
from marpack.render.doctor import Health, HealthLine
from marpack.version import __version__

# Extra → what it installs, as pyproject.toml has it: an editable installation's own list may be older.
EXTRAS = {
    "explain": ("captum>=0.7",),
    "onnx": ("onnx>=1.16",),
    "s3": ("s3fs>=2024.2",),
    "score": ("pyarrow>=20",),
    "ray": ("ray[data]>=2.60,<2.64; python_version < '3.14'", "pyarrow>=20"),
    "sign": ("cryptography>=45.0.1",),
    "oci": ("oras>=0.2.40", "requests>=2.32.2", "urllib3>=2.2.1"),
    "serve": ("aiohttp>=3.14.5", "uvloop>=0.21; sys_platform != 'win32'"),
}
# Of what a stock server has, what handlers import beside torch.
IMPORTED = ("torchvision", "torchaudio", "captum", "PIL", "requests", "matplotlib", "pynvml", "tqdm")
_MAX_SECONDS = 60  # that torch may take to be imported
_UNUSED = 600  # seconds after it was asked for, within which a file of the cache may be about to be opened
_PROBE = """
import torch
devices = ["cpu"] + [torch.cuda.get_device_name(n) for n in range(torch.cuda.device_count())]
devices += ["mps"] * torch.backends.mps.is_available() + ["xpu"] * torch.xpu.is_available()
build = f"CUDA {torch.version.cuda}" if torch.version.cuda else "ROCm" if torch.version.hip else "CPU"
print(f"\\n{torch.__version__} for {build}; devices: {', '.join(devices)}; {torch.get_num_threads()} threads")
"""


def doctor(*, clear_cache: bool = False) -> DoctorReport:
    """Tell what is here of what commands need, and how large the cache is.

    torch is imported in a process of its own, so that one that crashes or hangs is told like everything else.

    Args:
        clear_cache: Remove what the cache holds and nobody uses.

    Returns:
        A line for each thing, and what the cache holds; `healthy` is False where commands cannot work.

    """
    cache = cache_of()
    line, sizes, freed = _cache(cache, clear=clear_cache)
    lines = (*_machine(), _dependencies(), _torch(), line, *map(_extra, EXTRAS), *_server())
    healthy = all(line.health is not Health.BROKEN for line in lines)
    return DoctorReport(healthy=healthy, lines=lines, cache=str(cache.root), sizes=sizes, freed=freed)


def _machine() -> Iterator[HealthLine]:
    yield HealthLine("marpack", f"{__version__}, in {Path(__file__).parents[1]}")
    yield HealthLine("Python", f"{platform.python_version()}, {sys.executable}")
    yield HealthLine("platform", f"{platform.platform()}, {os.cpu_count()} cores")


def _dependencies() -> HealthLine:
    try:
        unmet = [*filter(None, map(_unmet, metadata.requires("marpack") or ()))]
    except metadata.PackageNotFoundError:
        return HealthLine("packages", "marpack is not installed, so nothing says what it needs", Health.NOTE)
    if unmet:
        return HealthLine("packages", "; ".join(unmet), Health.BROKEN, "pip install --upgrade marpack")
    return HealthLine("packages", "all that marpack needs is here")


def _unmet(text: str) -> str | None:
    """Return what is wrong with an installed distribution, as a requirement has it."""
    requirement = Requirement(text)
    if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
        return None
    try:
        installed = metadata.version(requirement.name)
    except metadata.PackageNotFoundError:
        return f"{requirement.name} is not installed"
    if requirement.specifier.contains(installed, prereleases=True):
        return None
    return f"{requirement.name} {installed} is installed, and {requirement.specifier} is needed"


def _torch() -> HealthLine:
    fine, output = _asked(sys.executable, "-P", "-c", _PROBE)
    last = output.strip().rpartition("\n")[2]
    if not fine:
        hint = "install it for this Python: https://pytorch.org/get-started/locally"
        return HealthLine("torch", f"importing it fails: {last}", Health.BROKEN, hint)
    return HealthLine("torch", last)


def _asked(*command: str) -> tuple[bool, str]:
    """Return whether a command succeeds, and what it prints or how it ends."""
    try:
        done = subprocess.run(  # noqa: S603 - no shell, nothing of anyone's
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_MAX_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return False, f"it takes longer than {_MAX_SECONDS} seconds"
    except OSError as error:
        return False, first_line(error)
    return not done.returncode, done.stdout.decode("utf-8", "replace") or f"it ends with exit code {done.returncode}"


def _cache(cache: Cache, *, clear: bool) -> tuple[HealthLine, dict[str, int], int | None]:
    """Return how the cache is, the bytes of what it holds by kind, and how many were freed if it is to be cleared."""
    sizes, freed = _sizes(cache.root), None
    try:
        cache.prepare()
        tempfile.TemporaryFile(dir=cache.root).close()
    except ExtractionError as error:
        return HealthLine("cache", str(error), Health.BROKEN, error.hint or ""), sizes, None
    except OSError as error:
        what = f"{cache.root}: it cannot be written: {error.strerror}"
        return HealthLine("cache", what, Health.BROKEN, "set MARPACK_CACHE_DIR to a folder of yours"), sizes, None
    if clear:  # what others can write to is left alone: links there could lead anywhere
        before = sum(sizes.values())
        _clear(cache.root)
        sizes = _sizes(cache.root)
        freed = before - sum(sizes.values())
    kinds = f"{cache.root}: " + ", ".join(f"{name} {decimal(size)}" for name, size in sizes.items())
    if freed is None:
        return HealthLine("cache", kinds, hint="marpack doctor --clear-cache"), sizes, None
    return HealthLine("cache", f"{kinds}; {decimal(freed)} freed, what is in use stays"), sizes, freed


def _extra(name: str) -> HealthLine:
    unmet = [*filter(None, map(_unmet, EXTRAS[name]))]
    if unmet:
        return HealthLine(f"extra {name}", "; ".join(unmet), Health.NOTE, f"pip install 'marpack[{name}]'")
    return HealthLine(f"extra {name}", ", ".join(Requirement(text).name for text in EXTRAS[name]))


def _server() -> Iterator[HealthLine]:
    """Yield what is here of a real server, and of what one has that handlers import."""
    for name in ("torchserve", "torch-model-archiver"):
        if (path := shutil.which(name)) is None:
            yield HealthLine(name, "not on PATH: marpack does without", Health.NOTE, f"pip install {name}")
            continue
        # It may be another Python's, whose packages lie beside it.
        packages = Path(path).parents[1].glob(f"lib/python*/site-packages/{name.replace('-', '_')}-*.dist-info")
        version = next((each.stem.rpartition("-")[2] for each in packages), "of unknown version")
        yield HealthLine(name, f"{version}, {path}")
    fine, output = _asked("java", "-version")
    yield (
        HealthLine("java", output.partition("\n")[0])
        if fine
        else HealthLine("java", "not here: a real server needs version 11 or newer", Health.NOTE)
    )
    if missing := [name for name in IMPORTED if find_spec(name) is None]:
        hint = "handlers that import them work there and fail here: pip install them, or run with --env isolated"
        yield HealthLine("server has", f"{', '.join(missing)}, which are not here", Health.NOTE, hint)


def _sizes(root: Path) -> dict[str, int]:
    folders = {"fetched": root / "blobs", "copies": root / "copies", "environments": environments_folder()}
    sizes = {name: _size(folder) for name, folder in folders.items()}
    within = sum(sizes[name] for name, folder in folders.items() if Path(os.path.realpath(folder)).parent == root)
    return {"extracted": _size(root) - within, **sizes}


def _size(folder: Path) -> int:
    total = 0
    for inside, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):  # it is gone by now
                total += os.lstat(f"{inside}/{name}").st_size
    return total


def _clear(root: Path) -> None:
    """Remove what nobody uses; a file that is open stays readable, whoever removes its name."""
    Cache(root, limit=-1).evict()
    evict(root / "blobs", -1, unused=_UNUSED)
    for copy in (root / "copies").glob("*.mar"):
        with suppress(OSError):  # another process is at it, too
            if time.time() - copy.stat().st_mtime > _UNUSED:
                copy.unlink()
    if environments_folder().is_dir():
        from marpack.runner.environments import clear

        clear(environments_folder(), unused=_UNUSED)
