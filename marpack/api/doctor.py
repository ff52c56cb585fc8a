"""`marpack doctor`: the state of the installation and of the cache.

A dependency may be missing, which is when this is needed: beside click, which prints, only the standard library is
imported. The cache is examined by the modules that use it, and only where these can be imported.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from importlib import metadata
from importlib.util import find_spec
from operator import eq, ge, gt, le, lt, ne
from pathlib import Path
from typing import NamedTuple

from marpack.errors import ExtractionError, first_line
from marpack.render.doctor import DoctorReport, Health, HealthLine
from marpack.version import __version__

# Extra → what it installs, as pyproject.toml has it: an editable installation's own list may be older.
EXTRAS = {
    "explain": ("captum>=0.7",),
    "onnx": ("onnx>=1.16",),
    "s3": ("s3fs>=2024.2",),
    "score": ("pyarrow>=20",),
    "ray": ("ray[data]>=2.60,<2.64; python_version < '3.14'", "pyarrow>=20"),
    "sign": ("cryptography>=45.0.1",),
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


_MODULES = {"pillow": "PIL", "pyyaml": "yaml"}  # distribution → module, where their names differ
_REQUIREMENT = re.compile(r"(?P<name>[\w.-]+)(?:\[[^]]*\])?\s*\(?(?P<versions>[^;)]*)\)?\s*(?:;(?P<marker>.*))?")
_CLAUSE = re.compile(r"(?P<left>\w*)\s*(?P<operator>[<>=!]=|[<>])\s*['\"]?(?P<right>[^'\"]*)['\"]?")
_COMPARE = {">=": ge, "<=": le, ">": gt, "<": lt, "==": eq, "!=": ne}


class _CacheState(NamedTuple):
    line: HealthLine
    root: str = ""
    sizes: dict[str, int] | None = None  # bytes by kind; None: not examined
    freed: int | None = None  # bytes


def examine(*, clear_cache: bool) -> DoctorReport:
    """Return the state of the installation and of the cache; `clear_cache` removes its unused files first.

    torch is imported in a separate process, so that a crash or a hang is reported as well.
    """
    cache = _cache(clear=clear_cache)
    lines = (*_machine(), _dependencies(), _torch(), cache.line, *map(_extra, EXTRAS), *_server())
    healthy = all(line.health is not Health.BROKEN for line in lines)
    return DoctorReport(healthy=healthy, lines=lines, cache=cache.root, sizes=cache.sizes or {}, freed=cache.freed)


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
    """Return the problem of an installed distribution, as one of marpack's own requirements has it."""
    found = _REQUIREMENT.match(text)
    if found is None or not all(map(_applies, filter(None, re.split(r"\band\b|[()]", found["marker"] or "")))):
        return None
    name, versions = found["name"], found["versions"].strip()
    try:
        installed = metadata.version(name)
    except metadata.PackageNotFoundError:
        return f"{name} is not installed"
    clauses = filter(None, map(_CLAUSE.search, versions.split(",")))
    if not all(_COMPARE[each["operator"]](*_releases(installed, each["right"])) for each in clauses):
        return f"{name} {installed} is installed, and {versions} is needed"
    module = _MODULES.get(name, name.replace("-", "_"))
    if module != "torch" and not _can_be_found(module):  # torch has a line of its own
        return f"{name} is installed, but its module {module} is missing"
    return None


def _applies(clause: str) -> bool:
    """Return whether a clause of a marker holds here, for an installation without extras."""
    found = _CLAUSE.search(clause)
    here = {"extra": "", "sys_platform": sys.platform, "python_version": platform.python_version()}
    if found is None or found["left"] not in here:
        return True
    left, right = here[found["left"]], found["right"]
    if found["left"] == "python_version":
        return bool(_COMPARE[found["operator"]](*_releases(left, right)))
    return (left == right) is (found["operator"] == "==")


def _releases(one: str, other: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the numbers of two versions, as many of each; what follows them, such as rc1, does not count."""
    first, second = _numbers(one), _numbers(other)
    length = max(len(first), len(second))
    return first + (0,) * (length - len(first)), second + (0,) * (length - len(second))


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(each) for each in re.findall(r"\d+", re.split(r"[^\d.]", version.strip())[0]))


def _can_be_found(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):
        return False


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


def _cache(*, clear: bool) -> _CacheState:
    """Return how the cache is, the bytes of what it holds by kind, and how many were freed if it is to be cleared."""
    try:
        from marpack.api.operations import cache_of

        cache = cache_of()
        root, sizes = cache.root, _sizes(cache.root)
        cache.prepare()
        tempfile.TemporaryFile(dir=root).close()
        if not clear:
            return _CacheState(
                HealthLine("cache", _kinds(root, sizes), hint="marpack doctor --clear-cache"), str(root), sizes
            )
        before = sum(sizes.values())
        _clear(root)  # what others can write to is left alone: links there could lead anywhere
    except ImportError as error:
        what = f"not examined: {first_line(error)}"
        return _CacheState(HealthLine("cache", what, Health.NOTE, "Install the packages that marpack needs."))
    except ExtractionError as error:
        return _CacheState(HealthLine("cache", str(error), Health.BROKEN, error.hint or ""), str(root), sizes)
    except OSError as error:
        what = f"{root}: it cannot be written: {error.strerror}"
        line = HealthLine("cache", what, Health.BROKEN, "set MARPACK_CACHE_DIR to a folder of yours")
        return _CacheState(line, str(root), sizes)
    sizes = _sizes(root)
    freed = before - sum(sizes.values())
    line = HealthLine("cache", f"{_kinds(root, sizes)}; {_size_text(freed)} freed, files in use were kept")
    return _CacheState(line, str(root), sizes, freed)


def _kinds(root: Path, sizes: dict[str, int]) -> str:
    return f"{root}: " + ", ".join(f"{name} {_size_text(size)}" for name, size in sizes.items())


def _size_text(size: int) -> str:
    number, unit = float(size), "bytes"
    for larger in ("kB", "MB", "GB", "TB"):
        if abs(number) < 1000:
            break
        number, unit = number / 1000, larger
    return f"{size:,} {unit}" if unit == "bytes" else f"{number:.1f} {unit}"


def _extra(name: str) -> HealthLine:
    unmet = [*filter(None, map(_unmet, EXTRAS[name]))]
    if unmet:
        return HealthLine(f"extra {name}", "; ".join(unmet), Health.NOTE, f"pip install 'marpack[{name}]'")
    return HealthLine(f"extra {name}", ", ".join(re.split(r"[^\w.-]", text)[0] for text in EXTRAS[name]))


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
    if missing := [name for name in IMPORTED if not _can_be_found(name)]:
        hint = "handlers that import them work there and fail here: pip install them, or run with --env isolated"
        yield HealthLine("server has", f"{', '.join(missing)}, which are not here", Health.NOTE, hint)


def _sizes(root: Path) -> dict[str, int]:
    from marpack.api.sessions import environments_folder

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
    from marpack.api.sessions import environments_folder
    from marpack.archive.cache import Cache
    from marpack.archive.download import evict

    Cache(root, limit=-1).evict()
    evict(root / "blobs", -1, unused=_UNUSED)
    for copy in (root / "copies").glob("*.mar"):
        with suppress(OSError):  # another process is at it, too
            if time.time() - copy.stat().st_mtime > _UNUSED:
                copy.unlink()
    if environments_folder().is_dir():
        from marpack.runner.environments import clear

        clear(environments_folder(), unused=_UNUSED)
