"""`marpack doctor`: the state of the installation and of the cache.

It must work when packages are missing: beside click, it imports only the standard library at once.
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
from pathlib import Path

from marpack.errors import ExtractionError, describe_os_error, first_line
from marpack.render.doctor import DoctorReport, Health, HealthLine
from marpack.version import UPGRADE, __version__, install_hint

_EXTRA = re.compile(r"""extra == ['"]([\w.-]+)""")
_CONTRIBUTORS = ("dev", "docs", "examples")  # extras without a command that needs them
# Packages of a stock server that handlers import beside torch.
IMPORTED = ("torchvision", "torchaudio", "captum", "PIL", "requests", "matplotlib", "pynvml", "tqdm")
_MAX_SECONDS = 60  # for importing torch
_UNUSED = 600  # seconds after the last request for a cached file, within which a command may be about to open it
_PROBE = """
import torch
devices = ["cpu"] + [torch.cuda.get_device_name(n) for n in range(torch.cuda.device_count())]
devices += ["mps"] * torch.backends.mps.is_available() + ["xpu"] * torch.xpu.is_available()
build = f"CUDA {torch.version.cuda}" if torch.version.cuda else "ROCm" if torch.version.hip else "CPU"
print(f"\\n{torch.__version__} for {build}; devices: {', '.join(devices)}; {torch.get_num_threads()} threads")
"""
_MODULES = {"pillow": "PIL", "pyyaml": "yaml", "ruamel-yaml": "ruamel.yaml"}  # distribution → module, if not its name


def examine(*, clear_cache: bool) -> DoctorReport:
    """Return the state of the installation and of the cache; `clear_cache` removes its unused files first.

    torch is imported in a separate process, so that a crash or a hang is reported as well.
    """
    cache, root, sizes, freed = _examine_cache(clear=clear_cache)
    lines = [
        HealthLine("marpack", f"{__version__}, in {Path(__file__).parents[1]}"),
        HealthLine("Python", f"{platform.python_version()}, {sys.executable}"),
        HealthLine("platform", f"{platform.platform()}, {os.cpu_count()} cores"),
    ]
    required: list[str] = []
    try:
        required = metadata.requires("marpack") or []
        unmet = [*filter(None, map(find_problem, required))]
        broken = HealthLine("packages", "; ".join(unmet), Health.BROKEN, UPGRADE)
        lines.append(broken if unmet else HealthLine("packages", "all required packages are installed"))
    except metadata.PackageNotFoundError:
        lines.append(HealthLine("packages", "not checked: marpack itself is not installed", Health.NOTE))
    succeeds, output = _run_program(sys.executable, "-P", "-c", _PROBE)
    last = output.strip().rpartition("\n")[2]
    hint = "Install it for this Python: https://pytorch.org/get-started/locally."
    broken = HealthLine("torch", f"importing it fails: {last}", Health.BROKEN, hint)
    lines += [HealthLine("torch", last) if succeeds else broken, cache]
    extras = {match[1]: None for text in required if (match := _EXTRA.search(text))}
    for name in (name for name in extras if name not in _CONTRIBUTORS):
        packages = [text for text in required if (match := _EXTRA.search(text)) and match[1] == name]
        unmet = [*filter(None, (find_problem(text, name) for text in packages))]
        names = ", ".join(re.split(r"[^\w.-]", text)[0] for text in packages)
        missing = HealthLine(f"extra {name}", "; ".join(unmet), Health.NOTE, install_hint(name))
        lines.append(missing if unmet else HealthLine(f"extra {name}", names))
    lines += _examine_server()
    healthy = all(line.health is not Health.BROKEN for line in lines)
    return DoctorReport(healthy=healthy, lines=tuple(lines), cache=root, sizes=sizes, freed=freed)


def find_problem(requirement: str, extra: str = "") -> str | None:
    """Return the problem of an installed package, given one of marpack's own requirements, or None.

    Requirements of an extra count only with its name.

    Without the package `packaging`, versions and markers are not checked.
    """
    name, specifier = re.split(r"[^\w.-]", requirement, maxsplit=1)[0], None
    if not extra and _EXTRA.search(requirement):
        return None
    with suppress(ImportError):
        from packaging.requirements import Requirement

        parsed = Requirement(requirement)
        if parsed.marker is not None and not parsed.marker.evaluate({"extra": extra}):
            return None
        name, specifier = parsed.name, parsed.specifier
    try:
        installed = metadata.version(name)
    except metadata.PackageNotFoundError:
        return f"{name} is not installed"
    if specifier is not None and not specifier.contains(installed, prereleases=True):
        return f"{name} {installed} is installed, and {specifier} is needed"
    normalized = re.sub(r"[-_.]+", "-", name).lower()  # as metadata may spell it
    module = _MODULES.get(normalized, name.replace("-", "_"))
    if module != "torch" and not _is_importable(module):  # torch has a line of its own
        return f"{name} is installed, but its module {module} is missing"
    return None


def _is_importable(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def _run_program(*command: str) -> tuple[bool, str]:
    """Return whether a program succeeds, and its output or how it ends."""
    stdout, stderr = subprocess.PIPE, subprocess.STDOUT
    try:
        done = subprocess.run(  # noqa: S603 - no shell
            command, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, timeout=_MAX_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return False, f"it takes longer than {_MAX_SECONDS} seconds"
    except OSError as error:
        return False, first_line(error)
    return not done.returncode, done.stdout.decode("utf-8", "replace") or f"it ends with exit code {done.returncode}"


def _examine_server() -> Iterator[HealthLine]:
    """Yield the programs of a real server, and its packages that are not installed here."""
    for name in ("torchserve", "torch-model-archiver"):
        if (path := shutil.which(name)) is None:
            yield HealthLine(name, "not on PATH; marpack does not need it", Health.NOTE, f"pip install {name}")
            continue
        # Its Python may be another one than this.
        packages = Path(path).parents[1].glob(f"lib/python*/site-packages/{name.replace('-', '_')}-*.dist-info")
        version = next((each.stem.rpartition("-")[2] for each in packages), "of unknown version")
        yield HealthLine(name, f"{version}, {path}")
    succeeds, output = _run_program("java", "-version")
    if succeeds:
        yield HealthLine("java", output.partition("\n")[0])
    else:
        yield HealthLine("java", "not installed; a real server needs version 11 or newer", Health.NOTE)
    if missing := [name for name in IMPORTED if not _is_importable(name)]:
        hint = "Handlers that import them fail here: install them with pip, or use --env isolated."
        yield HealthLine("server has", f"{', '.join(missing)}, which are not installed here", Health.NOTE, hint)


def _examine_cache(*, clear: bool) -> tuple[HealthLine, str, dict[str, int], int | None]:
    """Return the line of the cache, its folder, its bytes by kind, and the freed bytes if it is cleared."""
    root, sizes, freed = "", {}, None
    try:
        from marpack.api.operations import cache_of

        cache = cache_of()
        root, sizes = str(cache.root), _measure_cache(cache.root)
        cache.prepare()
        tempfile.TemporaryFile(dir=root).close()
        if clear:
            _clear(cache.root)  # only after `prepare`: where others can write, links could lead anywhere
            before, sizes = sizes, _measure_cache(cache.root)
            freed = sum(before.values()) - sum(sizes.values())
    except ImportError as error:
        hint = "Install the packages that marpack needs."
        return HealthLine("cache", f"not examined: {first_line(error)}", Health.NOTE, hint), root, sizes, None
    except ExtractionError as error:
        return HealthLine("cache", str(error), Health.BROKEN, error.hint or ""), root, sizes, None
    except OSError as error:
        what = f"{root}: it cannot be written: {describe_os_error(error)}"
        hint = "Set MARPACK_CACHE_DIR to a folder that you own."
        return HealthLine("cache", what, Health.BROKEN, hint), root, sizes, None
    kinds = f"{root}: " + ", ".join(f"{name} {_size_text(size)}" for name, size in sizes.items())
    if freed is None:
        return HealthLine("cache", kinds, hint="To free its space, run marpack doctor --clear-cache"), root, sizes, None
    return HealthLine("cache", f"{kinds}; {_size_text(freed)} freed, files in use were kept"), root, sizes, freed


def _size_text(size: int) -> str:
    for scale, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if size >= scale:
            return f"{size / scale:.1f} {unit}"
    return f"{size:,} bytes"


def _measure_cache(root: Path) -> dict[str, int]:
    """Return the bytes in the cache by kind."""
    from marpack.api.sessions import environments_folder

    def measure(folder: Path) -> int:
        total = 0
        for inside, _, names in os.walk(folder):
            for name in names:
                with suppress(OSError):  # another process removed it
                    total += os.lstat(f"{inside}/{name}").st_size
        return total

    folders = {"fetched": root / "blobs", "copies": root / "copies", "environments": environments_folder()}
    sizes = {name: measure(folder) for name, folder in folders.items()}
    within = sum(sizes[name] for name, folder in folders.items() if Path(os.path.realpath(folder)).parent == root)
    return {"extracted": measure(root) - within, **sizes}


def _clear(root: Path) -> None:
    """Remove unused files; a file that another process has open stays readable to it."""
    from marpack.api.sessions import environments_folder
    from marpack.archive.cache import Cache, evict_fetched

    Cache(root, limit=-1).evict()
    evict_fetched(root / "blobs", -1, unused=_UNUSED)
    for copy in (root / "copies").glob("*.mar"):
        with suppress(OSError):  # another process removes it as well
            if time.time() - copy.stat().st_mtime > _UNUSED:
                copy.unlink()
    if environments_folder().is_dir():
        from marpack.runner.environments import clear

        clear(environments_folder(), unused=_UNUSED)
