"""An archive's requirements: what of them is not met here, and an environment of their own that meets them.

    <root>/<key>/             the environment; its site-packages come before this interpreter's
    <root>/<key>/made.json    written last: without it the environment is made anew
    <root>/<key>.lock         held while it is being made

What is installed here, torch above all, is seen from there and not installed again, unless a requirement asks for
another version.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from importlib import metadata
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace
from packaging.requirements import InvalidRequirement, Requirement
from packaging.tags import sys_tags
from packaging.version import InvalidVersion, Version

from marpack.archive.index import Vendored, index_of
from marpack.archive.protocol import INDEX_NAME, Archive
from marpack.errors import HandlerError
from marpack.findings import Finding, Severity
from marpack.inspection.requirements import Line, LineKind, read_lines, read_requirements

_BORROWED = "marpack-borrowed.pth"
_MADE = "made.json"
_MAX_BYTES = 1 << 20  # bytes of one file of requirements


class IsolationError(HandlerError):
    """An archive's requirements cannot be installed; `output` is what the installer said."""

    code = "isolation"

    def __init__(self, what: str, *, where: str, output: str, hint: str | None = None) -> None:
        super().__init__(what, where=where, hint=hint)
        self.output = output


class Environment(Struct, frozen=True):
    """One isolated environment."""

    python: str  # its interpreter
    key: str
    seconds: float | None = None  # that making it took; None: it was there


def isolated(
    requirements: Path, *, root: Path, environ: Mapping[str, str], on_start: Callable[[], None] | None = None
) -> Environment:
    """Return an environment in which a requirements file is installed, making it the first time.

    Args:
        requirements: The file; the installer runs in its folder, as the server's does.
        root: Where environments are kept.
        environ: The environment variables of the installer, and where `uv` is looked for.
        on_start: Is told when one has to be made.

    Raises IsolationError holding the installer's output.
    """
    key = _key(requirements.read_bytes())
    folder = root / key
    python = folder / "bin" / "python"
    root.mkdir(parents=True, exist_ok=True)
    with _locked(root / f"{key}.lock"):
        if (folder / _MADE).is_file():
            os.utime(folder / _MADE)  # used now: not to be cleared away
            return Environment(str(python), key)
        if on_start is not None:
            on_start()
        started = time.perf_counter()
        discard = partial(shutil.rmtree, folder, ignore_errors=True)
        discard()
        with ExitStack() as undo:
            undo.callback(discard)
            _make(folder)
            _install(python, requirements, environ)
            undo.pop_all()
        made = {"requirements": requirements.read_text("utf-8", "replace"), "python": sys.version, "base": sys.prefix}
        (folder / _MADE).write_bytes(msgspec.json.encode(made))
    return Environment(str(python), key, time.perf_counter() - started)


def clear(root: Path, *, unused: float) -> None:
    """Remove the environments that no process runs in, and that were not asked for within `unused` seconds."""
    import psutil  # noqa: PLC0415 - nothing else here asks for other processes

    running = {(process.info["cmdline"] or [""])[0] for process in psutil.process_iter(["cmdline"])}
    for made in root.glob(f"*/{_MADE}"):
        with _locked(root / f"{made.parent.name}.lock"):
            in_use = any(command.startswith(f"{made.parent}{os.sep}") for command in running)
            if not in_use and time.time() - made.stat().st_mtime > unused:
                shutil.rmtree(made.parent, ignore_errors=True)


def _key(requirements: bytes) -> str:
    """Return what changes with the requirements, the interpreter, and the torch that would be borrowed."""
    parts = (requirements, sys.version.encode(), sys.prefix.encode(), (_version("torch") or "").encode())
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _make(folder: Path) -> None:
    import venv  # noqa: PLC0415 - few runs make an environment

    venv.EnvBuilder(symlinks=True, with_pip=False).create(folder)
    (site,) = folder.glob("lib/python*/site-packages")
    # By addsitedir, so that packages installed in editable form are found, too.
    ours = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
    (site / _BORROWED).write_text("".join(f"import site; site.addsitedir({path!r})\n" for path in ours))


def _install(python: Path, requirements: Path, environ: Mapping[str, str]) -> None:
    uv = shutil.which("uv", path=environ.get("PATH"))
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--disable-pip-version-check", "--no-input"]
    command = _with_uv(uv, python, requirements) if uv else [*pip, "-r", requirements.name]
    done = subprocess.run(  # noqa: S603 - no shell; what is installed is what the user asked for
        command,
        cwd=requirements.parent,
        env=dict(environ),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    if done.returncode:
        output = done.stdout.decode("utf-8", "replace")
        hint = "correct it, or run without --env isolated"
        what = f"the archive's requirements cannot be installed by {'uv' if uv else 'pip'}"
        raise IsolationError(what, where=requirements.name, output=output, hint=hint)


def _with_uv(uv: str, python: Path, requirements: Path) -> list[str]:
    """Return uv's command; it does not look at borrowed packages, so it is told to leave out those that will do."""
    overrides = python.parents[1] / "borrowed.txt"
    kept = [name for name in ("torch", "marpack") if _will_do(name, requirements)]
    overrides.write_text("".join(f"{name}; python_version < '0'\n" for name in kept))
    return [uv, "pip", "install", "--python", str(python), "--overrides", str(overrides), "-r", requirements.name]


def _will_do(package: str, requirements: Path) -> bool:
    installed = _version(package)
    asked = (_parsed(line.text) for line in read_lines(requirements.read_bytes()) if line.name == package)
    return installed is not None and all(each is None or _holds(each, installed) for each in asked)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def unmet(archive: Archive) -> Iterator[Finding]:
    """Yield one finding per requirement that the environment does not meet, those of included files among them.

    Options and paths say nothing about packages and are passed over; so are requirements whose markers do not apply
    here. What pip could not read is for the static checks to tell. A vendored package is met where it can be loaded.
    """
    yield from _unloadable(archive)
    for file, line in _lines(archive):
        message = _unmet(line)
        if message is not None:
            yield Finding(
                code="requirement-unmet",
                severity=Severity.ERROR,
                message=message,
                where=f"{archive.source}!{file}:{line.number}",
                hint=f"pip install '{line.text}'",
            )


def _unloadable(archive: Archive) -> Iterator[Finding]:
    """Yield the vendored packages whose wheels are not for this interpreter."""
    vendored, here = _vendored(archive), set(sys_tags())
    for package in vendored.packages if vendored else ():
        if here.isdisjoint(package.tags):
            yield Finding(
                code="requirement-unmet",
                severity=Severity.ERROR,
                message=f"{package.name} is vendored for another Python or machine than this: {package.file}",
                where=f"{archive.source}!{INDEX_NAME}",
                hint="to try it here, vendor for this Python, in a copy of the project",
            )


def _vendored(archive: Archive) -> Vendored | None:
    index = index_of(archive)
    return (index.vendored or None) if index else None


def count_requirements(archive: Archive) -> int:
    """Return how many requirements an archive has, vendored packages among them."""
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


def _unmet(line: Line) -> str | None:
    if line.sort is not LineKind.REQUIREMENT or line.name is None:
        return None
    requirement = _parsed(line.text)
    if requirement is not None and requirement.marker is not None and not requirement.marker.evaluate():
        return None
    try:
        installed = metadata.version(line.name)
    except metadata.PackageNotFoundError:
        return f"{line.name} is not installed here"
    if requirement is None or _holds(requirement, installed):
        return None
    return f"{requirement.name} {installed} is installed here, the model asks for {requirement.specifier}"


def _parsed(text: str) -> Requirement | None:
    """Return a requirement, or None for one that is an address alone."""
    try:
        return Requirement(text)
    except InvalidRequirement:
        return None


def _holds(requirement: Requirement, installed: str) -> bool:
    try:
        return requirement.specifier.contains(Version(installed), prereleases=True)
    except InvalidVersion:  # one that no specifier can be held against
        return True


def has_requirements(archive: Archive) -> bool:
    """Say whether an archive has a requirements file that can be read."""
    return _bytes_of(archive, archive.manifest.model.requirements_file) is not None


def requirement_notes(archive: Archive) -> Iterator[Finding]:
    """Yield one note per requirement that this environment does not meet."""
    for finding in unmet(archive):
        hint = f"{finding.hint}, or run with --env isolated"
        yield replace(finding, severity=Severity.NOTE, hint=hint)
