"""An archive's requirements: those that are not met here, and an environment that meets them.

    <root>/<key>/                 the environment; its site-packages come before this interpreter's
    <root>/<key>/constraints.txt  the versions that pip had to keep
    <root>/<key>/made.json        written last: without it the environment is made anew
    <root>/<key>.lock             held while it is being made

The environment also contains the packages that are installed here. Those that a worker imports itself, torch first of
all, keep their versions: a requirement that needs another torch is an error.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from importlib import metadata
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from packaging.requirements import InvalidRequirement, Requirement
from packaging.tags import sys_tags
from packaging.version import InvalidVersion, Version

from marpack import finding_codes as codes
from marpack.archive.index import Vendored, index_of
from marpack.archive.protocol import INDEX_NAME, Archive
from marpack.errors import HandlerError
from marpack.findings import Code, Finding, Severity
from marpack.inspection.requirements import Line, LineKind, read_lines, read_requirements
from marpack.torchserve.server_modules import canonical

_BORROWED = "marpack-borrowed.pth"
_MADE = "made.json"
_MAX_BYTES = 1 << 20  # bytes of one file of requirements
# Packages that a worker and its built-in handlers import, or that are compiled against one version of torch.
_SHARED = (
    *("marpack", "torch", "torchvision", "torchaudio", "numpy", "onnxruntime", "pillow", "safetensors", "captum"),
    *("msgspec", "pyyaml", "packaging", "psutil"),
)
# The check of all installed packages changes nothing, and takes longer than most installations.
_PIP = ("--no-warn-conflicts", "--disable-pip-version-check", "--no-input", "--progress-bar", "off")
_OTHER_VERSION = (
    "Change the requirement to allow the installed version, or install marpack and the archive's requirements in a "
    "virtual environment and run it there without --env isolated."
)


class IsolationError(HandlerError):
    """An archive's requirements cannot be installed; `output` is the installer's."""

    code = "isolation"

    def __init__(self, what: str, *, where: str, output: str = "", hint: str | None = None) -> None:
        super().__init__(what, where=where, hint=hint)
        self.output = output


class Environment(Struct, frozen=True):
    """One isolated environment."""

    python: str  # its interpreter
    key: str
    seconds: float | None = None  # to create it; None: it existed


def isolated(
    requirements: Path,
    *,
    root: Path,  # the folder of all environments
    environ: Mapping[str, str],  # the environment variables of pip
    content: Callable[[], str],  # returns the archive's digest, part of the key if requirements name files in it
    on_start: Callable[[list[str]], object] = lambda _: None,  # receives the requirements before they are installed
) -> Environment:
    """Return an environment in which a requirements file is installed; create it the first time.

    pip runs in the file's folder, as the server's does. Raises IsolationError, with pip's output if pip fails.
    """
    constraints = "".join(f"{line}\n" for line in shared_constraints())
    key = _key(requirements, constraints, environ, content)
    folder = root / key
    python = folder / "bin" / "python"
    root.mkdir(parents=True, exist_ok=True)
    with _locked(root / f"{key}.lock"):
        if (folder / _MADE).is_file():
            os.utime(folder / _MADE)  # in use now: `clear` keeps it
            return Environment(str(python), key)
        _refuse_other_versions(requirements)
        if PathFinder.find_spec("pip") is None:  # setuptools' own finder gives up distutils once pip is looked for
            hint = f"Install it: {sys.executable} -m ensurepip"
            raise IsolationError("pip is not installed, which --env isolated needs", where=sys.prefix, hint=hint)
        lines = [line for _, line in read_requirements(requirements.name, partial(_read_beside, requirements, {}))]
        on_start([line.text for line in lines if line.sort in {LineKind.REQUIREMENT, LineKind.PATH}])
        started = time.perf_counter()
        discard = partial(shutil.rmtree, folder, ignore_errors=True)
        discard()
        with ExitStack() as undo:
            undo.callback(discard)
            _make(folder)
            (folder / "constraints.txt").write_text(constraints)
            done = _run_pip(folder, requirements, environ)
            if done.returncode:
                what = "pip cannot install the archive's requirements beside the packages that workers share"
                hint = "Correct the requirements: pip's output names the reason. Or run without --env isolated."
                raise IsolationError(what, where=requirements.name, output=done.stdout, hint=hint)
            undo.pop_all()
        made = {"requirements": requirements.read_text("utf-8", "replace"), "python": sys.version, "base": sys.prefix}
        (folder / _MADE).write_bytes(msgspec.json.encode(made))
    return Environment(str(python), key, time.perf_counter() - started)


def clear(root: Path, *, unused: float) -> None:
    """Remove the environments that no process uses and that were not requested within `unused` seconds."""
    import psutil  # noqa: PLC0415 - nothing else here asks for other processes

    running = {(process.info["cmdline"] or [""])[0] for process in psutil.process_iter(["cmdline"])}
    for made in root.glob(f"*/{_MADE}"):
        with _locked(root / f"{made.parent.name}.lock"):
            in_use = any(command.startswith(f"{made.parent}{os.sep}") for command in running)
            if not in_use and time.time() - made.stat().st_mtime > unused:
                shutil.rmtree(made.parent, ignore_errors=True)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def shared_constraints() -> Iterator[str]:
    """Yield the lines of a constraints file: installed versions that stay, and the requirements of those packages."""
    for name in _SHARED:
        try:
            distribution = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue
        yield f"{name}=={distribution.version}"  # with the local label: 2.6.0+cpu is not PyPI's 2.6.0
        for needed in filter(None, map(_parsed, distribution.requires or ())):
            applies = needed.marker is None or needed.marker.evaluate({"extra": ""})
            if applies and needed.specifier and canonical(needed.name) not in _SHARED:
                yield f"{needed.name}{needed.specifier}"


def _key(requirements: Path, constraints: str, environ: Mapping[str, str], content: Callable[[], str]) -> str:
    """Return the digest of what an environment depends on, except for pip's configuration files and the indexes."""
    files: dict[str, bytes] = {}
    lines = [line for _, line in read_requirements(requirements.name, partial(_read_beside, requirements, files))]
    # Whether a line may name a file of the archive that is not itself a requirements file.
    is_local = any(
        "file:" in line.text
        if line.sort is LineKind.REQUIREMENT
        else line.sort is not LineKind.INCLUDE and "://" not in line.text
        for line in lines
    )
    parts = (
        sorted(files.items()),
        constraints,
        content() if is_local else "",
        sorted((name, value) for name, value in environ.items() if name.startswith("PIP_")),
        (sys.version, sys.prefix, _borrowed()),
    )
    return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()[:16]


def _read_beside(requirements: Path, files: dict[str, bytes], name: str) -> bytes:
    """Return an included file's bytes and add them to `files`; empty for a file that pip will report as missing."""
    path = requirements.parent / name
    files[name] = path.read_bytes() if path.is_file() else b""
    return files[name]


def _installed(package: str | None) -> str | None:
    """Return a package's installed version, if it stays the same in every environment."""
    with suppress(metadata.PackageNotFoundError):
        return metadata.version(package) if package in _SHARED and package is not None else None
    return None


def _borrowed() -> list[str]:
    return [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]


def _refuse_other_versions(requirements: Path) -> None:
    """Raise IsolationError for a requirement that no shared package's installed version meets."""
    problems = []
    for file, line in read_requirements(requirements.name, partial(_read_beside, requirements, {})):
        version = _installed(line.name)
        if version is not None and _unmet(line) is not None:
            what = f"the archive requires {line.text}, but workers share the installed {line.name} {version}"
            problems.append((f"{file}:{line.number}", what))
    if problems:
        (where, what), more = problems[0], len(problems) - 1
        raise IsolationError(f"{what} (and {more} more)" if more else what, where=where, hint=_OTHER_VERSION)


def _make(folder: Path) -> None:
    import venv  # noqa: PLC0415 - few runs make an environment

    venv.EnvBuilder(symlinks=True, with_pip=False).create(folder)
    (site,) = folder.glob("lib/python*/site-packages")
    # By addsitedir, which also finds packages installed in editable form.
    (site / _BORROWED).write_text("".join(f"import site; site.addsitedir({path!r})\n" for path in _borrowed()))


def _run_pip(folder: Path, requirements: Path, environ: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run pip, which is borrowed as everything that is installed here, in the environment's Python."""
    # -P: a module in the model folder must not take the place of one of pip's.
    return subprocess.run(  # noqa: S603 - no shell; the user requested this installation
        [
            *(str(folder / "bin" / "python"), "-P", "-m", "pip", "install", *_PIP),
            *("--constraint", str(folder / "constraints.txt"), "--requirement", requirements.name),
        ],
        cwd=requirements.parent,
        env=dict(environ),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
        text=True,
        errors="replace",
    )


def unmet(archive: Archive, *, as_notes: bool = False) -> Iterator[Finding]:
    """Yield one finding per requirement that the environment does not meet, also of included files.

    `as_notes`: for a run that goes on; the hints then name --env isolated where that helps.

    Options and paths name no packages and are ignored, as are requirements whose markers do not apply here. The static
    checks report what pip cannot read. A vendored package is met if it can be loaded.
    """
    severity = Severity.NOTE if as_notes else None
    vendored, here = _vendored(archive), set(sys_tags())
    for package in vendored.packages if vendored else ():
        if here.isdisjoint(package.tags):
            where, file = f"{archive.source}!{INDEX_NAME}", package.file
            yield codes.REQUIREMENT_OTHER_PLATFORM.at(where, severity=severity, package=package.name, wheel=file)
    for file, line in _lines(archive):
        if found := _unmet(line):
            code, values = found
            isolated = ", or run with --env isolated" if as_notes and code is codes.REQUIREMENT_UNMET else ""
            where, hint = f"{archive.source}!{file}:{line.number}", f"Install it: pip install '{line.text}'{isolated}"
            yield code.at(where, hint=hint, severity=severity, **values)


def _vendored(archive: Archive) -> Vendored | None:
    index = index_of(archive)
    return (index.vendored or None) if index else None


def count_requirements(archive: Archive) -> int:
    """Return the number of requirements of an archive, including vendored packages."""
    vendored = _vendored(archive)
    count = len(vendored.packages) if vendored else 0
    return count + sum(line.sort is LineKind.REQUIREMENT for _, line in _lines(archive))


def required(archive: Archive) -> tuple[str, ...]:
    """Return the distributions that an archive's requirements name."""
    return tuple(dict.fromkeys(line.name for _, line in _lines(archive) if line.name is not None))


def _lines(archive: Archive) -> Iterator[tuple[str, Line]]:
    first, vendored = archive.manifest.model.requirements_file, _vendored(archive)
    if first:
        yield from read_requirements(first, lambda name: _bytes_of(archive, name))
    for line in read_lines("\n".join(vendored.server if vendored else ()).encode()):
        yield INDEX_NAME, line


def _bytes_of(archive: Archive, name: str | None) -> bytes | None:
    if name is None or name not in archive.entries or archive.entries[name].size > _MAX_BYTES:
        return None
    with archive.open(name) as file:
        return file.read()


def _unmet(line: Line) -> tuple[Code, dict[str, Any]] | None:  # Any: see `Code.at`
    """Return how the installed package differs from a requirement; None if it is met or does not apply."""
    if line.sort is not LineKind.REQUIREMENT or line.name is None:
        return None
    requirement = _parsed(line.text)
    if requirement is not None and requirement.marker is not None and not requirement.marker.evaluate():
        return None
    try:
        installed = metadata.version(line.name)
    except metadata.PackageNotFoundError:
        return codes.REQUIREMENT_UNMET, {"package": line.name}
    with suppress(InvalidVersion):  # no specifier can be compared with it
        if requirement is not None and not requirement.specifier.contains(Version(installed), prereleases=True):
            values = {"package": requirement.name, "version": installed, "specifier": requirement.specifier}
            return codes.REQUIREMENT_OTHER_VERSION, values
    return None


def _parsed(text: str) -> Requirement | None:
    """Return a requirement, or None for one that is an address alone."""
    try:
        return Requirement(text)
    except InvalidRequirement:
        return None


def has_requirements(archive: Archive) -> bool:
    """Return whether an archive has a requirements file that can be read."""
    return _bytes_of(archive, archive.manifest.model.requirements_file) is not None
