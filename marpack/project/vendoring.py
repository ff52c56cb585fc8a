"""vendor.lock: the wheels of a project's requirements, resolved once for the Python and platform of a server."""

import csv
import hashlib
import re
import subprocess
import sys
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit
from urllib.request import url2pathname
from zipfile import ZipFile

import msgspec
from msgspec import Struct
from msgspec.structs import replace
from packaging.requirements import InvalidRequirement, Requirement
from packaging.version import Version

from marpack.archive.bytesource import LocalFile
from marpack.archive.cache import Cache, Cached
from marpack.archive.copying import file_digest
from marpack.archive.download import fetch_whole
from marpack.archive.extraction import extract_blocks
from marpack.archive.protocol import Bar, Limits, Progress, total_size
from marpack.archive.staging import replace_file
from marpack.archive.zip_archive import ZipArchive
from marpack.errors import ArchiveError, ProjectError, shortened
from marpack.findings import Finding
from marpack.inspection.requirements import Line, LineKind, read_requirements
from marpack.project.schema import LOCK_NAME, Project, VendorPlatform, VendorSpec
from marpack.torchserve.distributions import canonical
from marpack.torchserve.stock import ASKED, PINNED

_BLOCK = 1 << 20  # bytes
_MAX_WHEEL = 4 << 30  # bytes of one whose size nobody has said yet
_SHARED = re.compile(r"\.(so(\.\d+)*|pyd|dylib)$")
_RESOLVE = "marpack build --vendor resolves anew"


class LockedWheel(Struct, frozen=True, kw_only=True):
    """One line of vendor.lock."""

    name: str  # canonical
    version: str
    file: str
    url: str  # http, https or file, without credentials
    sha256: str  # lower-case hex
    size: int = 0  # bytes; 0: not known yet


def wheel_file(wheel: LockedWheel, cache: Cache, bar: Bar) -> Path:
    """Return a wheel as a file here, its bytes held to its digest; raises ProjectError, and what `fetch_whole` does."""
    if not wheel.url.startswith("file:"):
        return fetch_whole(wheel.url, cache, sha256=wheel.sha256, maximum=wheel.size or _MAX_WHEEL, bar=bar)
    path = Path(url2pathname(urlsplit(wheel.url).path))
    try:
        same = file_digest(path) == wheel.sha256
    except OSError as error:
        raise ProjectError(f"the wheel cannot be read: {error.strerror}", where=str(path), hint=_RESOLVE) from None
    if not same:
        raise ProjectError("the wheel's SHA-256 is not the one in vendor.lock", where=str(path), hint=_RESOLVE)
    return path


def wheel_tree(wheel: LockedWheel, cache: Cache, bar: Bar) -> Cached:
    """Return the folder of a wheel's files, under the names that they have at an archive's root.

    Raises ProjectError for a wheel that is not what it says, or native where its name says that it runs anywhere.
    """
    key = hashlib.sha256(f"wheel 1 {wheel.file} {wheel.sha256}".encode()).hexdigest()[:32]
    try:
        if (found := cache.find(key)) is not None:
            return found
        with closing(LocalFile(wheel_file(wheel, cache, bar))) as data:
            opened = ZipArchive(wheel.file, data, limits=Limits(), cache=cache)
            return cache.fill(key, partial(_extract, opened, wheel), size=total_size(opened))
    except ArchiveError as error:
        raise ProjectError(
            f"the wheel cannot be fetched or unpacked: {error.what}",
            where=wheel.file,
            hint=_RESOLVE,
            code="unreadable-wheel",
        ) from error


def _extract(opened: ZipArchive, wheel: LockedWheel, folder: Path, progress: Progress | None) -> tuple[Finding, ...]:
    record = next((name for name in opened.entries if re.fullmatch(r"[^/]+\.dist-info/RECORD", name)), None)
    if record is None:
        raise _not_sound(wheel, "it has no RECORD")
    with opened.open(record) as file:
        rows = csv.reader(file.read().decode("utf-8", "replace").splitlines())
        digests = {row[0]: row[1] for row in rows if len(row) == 3}
    stem = record.removesuffix(".dist-info/RECORD")
    for name in sorted(opened.entries):
        place = _place(name, stem)
        if place:
            extract_blocks(_verified(opened, name, digests.get(name), wheel), folder, place, progress)
    return ()


def _place(name: str, stem: str) -> str:
    """Return what a file of a wheel is called at an archive's root; "" where it has no place there."""
    top, _, rest = name.partition("/")
    kind, _, inner = rest.partition("/")
    if top == f"{stem}.data":  # scripts, headers and data lie outside of Python's path
        return inner if kind in {"purelib", "platlib"} else ""
    return "" if name.startswith(f"{stem}.dist-info/RECORD") or "__pycache__" in name.split("/") else name


def _verified(opened: ZipArchive, name: str, recorded: str | None, wheel: LockedWheel) -> Iterator[bytes]:
    """Yield a file's bytes; raises ProjectError for others than the wheel's RECORD says, and for code out of place."""
    digest = hashlib.sha256()
    with opened.open(name) as file:
        while data := file.read(_BLOCK):
            is_native = _SHARED.search(name) or (file.tell() == len(data) and data.startswith(b"\x7fELF"))
            if is_native and wheel.file.endswith("-any.whl"):
                raise _not_sound(wheel, f"its name says that it runs anywhere, and {name} is native code")
            digest.update(data)
            yield data
    if recorded != f"sha256={urlsafe_b64encode(digest.digest()).decode().rstrip('=')}":
        raise _not_sound(wheel, f"{name} is not what its RECORD says")


def _not_sound(wheel: LockedWheel, what: str) -> ProjectError:
    hint = "ask for another version in the requirements, then marpack build --vendor"
    return ProjectError(f"the wheel cannot be vendored: {what}", where=wheel.file, hint=hint)


_TIME_LIMIT = 300  # seconds, for all of it
_REPLY = 15  # seconds, for an index to say anything
# Of wheels alone: to look at a source distribution, pip runs what is in it.
_COMMAND = (
    *("install", "--dry-run", "--ignore-installed", "--only-binary", ":all:", "--quiet", "--no-input"),
    *("--timeout", str(_REPLY), "--retries", "1"),
)
# pip knows an option for another Python's wheels, and none for its markers.
_ELSEWHERE = """
import json, sys
from pip._vendor.packaging import markers
here = markers.default_environment
markers.default_environment = lambda: {**here(), **json.loads(sys.argv[1])}
from pip._internal.cli.main import main
sys.exit(main(sys.argv[2:]))
"""


class UnresolvedError(Exception):
    """There is no report: pip is not there, reaches no index, or finds no set of versions that go together.

    Whoever asks for one turns it into what they raise.
    """


def pip_report(
    lines: Iterable[str],
    options: Sequence[str] = (),
    *,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> Any:  # Any: JSON of pip's
    """Return pip's report on the lines of a requirements file, wheels alone; raises UnresolvedError.

    It runs in a folder, with options of its command line, as if the markers' environment were the given one.
    """
    with TemporaryDirectory() as place:
        listing, report = Path(place, "requirements.txt"), Path(place, "report.json")
        listing.write_text("\n".join(lines))
        pip = ["-m", "pip"] if environment is None else ["-c", _ELSEWHERE, msgspec.json.encode(environment).decode()]
        command = [sys.executable, *pip, *_COMMAND, "--report", str(report), "--requirement", str(listing), *options]
        try:
            subprocess.run(  # noqa: S603 - our own words, and files
                command, capture_output=True, text=True, errors="replace", timeout=_TIME_LIMIT, check=True, cwd=folder
            )
        except subprocess.TimeoutExpired:
            raise UnresolvedError(f"pip has not answered within {_TIME_LIMIT} s") from None
        except subprocess.CalledProcessError as error:
            said = [
                line for line in error.stderr.splitlines() if line.startswith("ERROR") and "for help" not in line
            ] or [error.stderr]
            raise UnresolvedError(f"pip says: {shortened(said[-1].removeprefix('ERROR: '), 120)}") from None
        return msgspec.json.decode(report.read_bytes())


def sha256_of(item: Any) -> str:  # Any: as above
    """Return the SHA-256 of what a report says is to be installed; raises UnresolvedError where no index tells it."""
    digest: str | None = item["download_info"].get("archive_info", {}).get("hashes", {}).get("sha256")
    if digest is None:
        raise UnresolvedError(f"the index tells no hash of {item['metadata']['name']}")
    return digest


_REDO = "marpack build --vendor makes it anew"
_HEAD = f"# The wheels that marpack build unpacks into the archive; {_REDO}.\n"
_FOR = re.compile(r"for (?P<python>3\.\d+) (?P<platform>linux_x86_64|linux_aarch64|any) from sha256:(?P<digest>\w+)")
_WHEEL = re.compile(
    r"(?P<name>[a-z0-9-]+)==(?P<version>\S+) (?P<file>[^\s/]+\.whl) (?P<url>(?:https?|file)://\S+)"
    r" sha256:(?P<sha256>[0-9a-f]{64}) (?P<size>\d+)"
)
_GLIBC = 28  # 2.28: the server's images have a later one
# Options that may stand in the requirements: where pip looks, and for what.
_INDEX = re.compile(r"(-i|--index-url|--extra-index-url|--no-index|-f|--find-links|--pre|--trusted-host)\b")


class VendorLock(Struct, frozen=True, kw_only=True):
    """What vendor.lock says."""

    python: str  # "3.9"
    platform: str
    digest: str  # SHA-256 of all that it was resolved from
    server: tuple[str, ...] = ()  # requirements that the server meets
    wheels: tuple[LockedWheel, ...] = ()

    def to_text(self) -> str:
        """Return the file's text, the same for the same wheels."""
        lines = [f"for {self.python} {self.platform} from sha256:{self.digest}", *(f"server {s}" for s in self.server)]
        lines += [f"{w.name}=={w.version} {w.file} {w.url} sha256:{w.sha256} {w.size}" for w in self.wheels]
        return _HEAD + "".join(f"{line}\n" for line in lines)

    @classmethod
    def parse(cls, text: str, where: str) -> "VendorLock":
        """Parse the file's text; raises ProjectError naming the line that is none of its own."""
        head, *lines = [line for line in text.splitlines() if not line.startswith("#")] or [""]
        found = _FOR.fullmatch(head)
        wheels = [_WHEEL.fullmatch(line) for line in lines if not line.startswith("server ")]
        if found is None or None in wheels:
            raise ProjectError("the lock is not as marpack writes it", where=where, hint=_REDO)
        server = tuple(line.removeprefix("server ") for line in lines if line.startswith("server "))
        known = [msgspec.convert(wheel.groupdict(), LockedWheel, strict=False) for wheel in wheels if wheel]
        return cls(**found.groupdict(), server=server, wheels=tuple(known))


class _Wanted(Struct, frozen=True, kw_only=True):
    """All that a lock is resolved from."""

    spec: VendorSpec
    installed: dict[str, str]  # canonical name → version
    lines: tuple[str, ...]  # as pip takes them
    requirements: tuple[tuple[Requirement, str], ...]  # with where each stands
    digest: str
    path: Path  # of the requirements
    environment: dict[str, str]  # what markers are about


def read_lock(project: Project) -> VendorLock:
    """Return a project's lock; raises ProjectError where it is missing, malformed, or of other requirements."""
    path = project.folder / LOCK_NAME
    try:
        lock = VendorLock.parse(path.read_text("utf-8", "replace"), str(path))
    except FileNotFoundError:
        hint = "marpack build --vendor resolves the requirements, and writes it"
        raise ProjectError(f"there is no {LOCK_NAME}", where=project.place("vendor"), hint=hint) from None
    spec = project.vendor or VendorSpec(python=lock.python, platform=VendorPlatform(lock.platform))
    if _wanted(project, spec).digest != lock.digest:
        what = "it was made of other requirements, or for another server, than the project's"
        raise ProjectError(what, where=str(path), hint=_REDO, code="outdated-lock")
    return lock


def make_lock(project: Project, spec: VendorSpec, cache: Cache, bar: Bar) -> None:
    """Resolve a project's requirements, fetch the wheels into the cache, and write vendor.lock.

    Raises ProjectError for requirements that no wheels meet beside what the server has.
    """
    wanted = _wanted(project, spec)
    with bar("asking pip for wheels", 0):
        wheels, server = _resolved(wanted)
    fetched = tuple(replace(each, size=wheel_file(each, cache, bar).stat().st_size) for each in wheels)
    lock = VendorLock(python=spec.python, platform=spec.platform, digest=wanted.digest, server=server, wheels=fetched)
    replace_file(project.folder / LOCK_NAME, lock.to_text().encode())


def _wanted(project: Project, spec: VendorSpec) -> _Wanted:
    """Return what a lock is resolved from; raises ProjectError for what no lock can hold."""
    first, where = project.requirements, project.place("vendor")
    if first is None or not re.fullmatch(r"3\.\d{1,2}", spec.python):
        what = "there are no requirements to vendor" if first is None else f"{spec.python} is no version of Python"
        hint = "requirements: requirements.txt names their file" if first is None else 'write it as "3.9"'
        raise ProjectError(what, where=where, hint=hint)
    sources: dict[str, bytes] = {}

    def read(name: str) -> bytes:
        try:
            sources[name] = (project.folder / name).read_bytes()
        except OSError as error:
            what, hint = f"it cannot be read: {error.strerror}", "put the file there, or correct its name"
            raise ProjectError(what, where=str(project.folder / name), hint=hint) from None
        if b"--hash" in sources[name]:
            what = "it has hashes of its own, and vendor.lock is to have them"
            raise ProjectError(what, where=str(project.folder / name), hint="state versions alone")
        return sources[name]

    read_lines = ((line, f"{project.folder / file}:{line.number}") for file, line in read_requirements(first, read))
    taken = [(line, at) for line, at in read_lines if line.sort is not LineKind.INCLUDE and _is_taken(line, at)]
    installed = PINNED | dict(_pin(text, project.place("vendor.installed")) for text in spec.installed)
    known = [spec.python, spec.platform, sorted(installed.items()), ASKED, sorted(sources.items())]
    return _Wanted(
        spec=spec,
        installed=installed,
        lines=tuple(line.text for line, _ in taken),
        requirements=tuple((Requirement(line.text), place) for line, place in taken if line.name),
        digest=hashlib.sha256(msgspec.json.encode(known)).hexdigest(),
        path=project.folder / first,
        environment=_environment(spec),
    )


def _is_taken(line: Line, where: str) -> bool:
    """Raise ProjectError for what is neither a requirement that wheels of an index can meet, nor names an index."""
    if line.sort is LineKind.REQUIREMENT and "://" not in line.text:
        return True
    if line.sort is LineKind.OPTION and _INDEX.match(line.text):
        return True
    what = f"'{shortened(line.text, 60)}' is nothing that wheels of an index can meet"
    raise ProjectError(what, where=where, hint="name a released version: NAME==VERSION")


def _pin(text: str, where: str) -> tuple[str, str]:
    try:
        requirement = Requirement(text)
        (pin,) = requirement.specifier
        if pin.operator == "==":
            return canonical(requirement.name), str(Version(pin.version))
    except (InvalidRequirement, ValueError):
        pass
    what = f"'{shortened(text, 60)}' states no version that a server has"
    raise ProjectError(what, where=where, hint="write NAME==VERSION, as pip freeze does there")


def _environment(spec: VendorSpec) -> dict[str, str]:
    """Return what markers are about on the server; where the platform is any, as on most."""
    machine = "aarch64" if spec.platform is VendorPlatform.LINUX_AARCH64 else "x86_64"
    names = {"implementation_name": "cpython", "platform_python_implementation": "CPython", "os_name": "posix"}
    system = {"sys_platform": "linux", "platform_system": "Linux", "platform_machine": machine}
    full = dict.fromkeys(("python_full_version", "implementation_version"), f"{spec.python}.0")
    return {**names, **system, **full, "platform_release": "", "platform_version": "", "python_version": spec.python}


def _resolved(wanted: _Wanted) -> tuple[list[LockedWheel], tuple[str, ...]]:
    """Return the wheels that the requirements take, by name, and what they take of the server."""
    for requirement, where in wanted.requirements:
        version = wanted.installed.get(canonical(requirement.name))
        if version and _applies(requirement, wanted, {""}) and not _holds(requirement, version):
            what = f"'{requirement}' asks for another {requirement.name} than the server's, which is {version}"
            raise ProjectError(what, where=where, hint="change it, or say what the server has: vendor.installed")
    try:
        items = {canonical(item["metadata"]["name"]): item for item in _report(wanted)["install"]}
        needed, server = _walk(wanted, items)
        wheels = [_locked(name, items[name]) for name in sorted(needed)]
    except UnresolvedError as error:
        what = f"no wheels for Python {wanted.spec.python} on {wanted.spec.platform} meet the requirements: {error}"
        raise ProjectError(what, where=str(wanted.path), hint="state other versions") from None
    return wheels, server


def _report(wanted: _Wanted) -> Any:  # Any: JSON of pip's
    """Ask pip for the server's Python; what the server has is there as wheels that hold nothing and need nothing."""
    python = wanted.spec.python
    with TemporaryDirectory() as name:
        constraints = Path(name, "constraints.txt")
        asked = [each for each in ASKED if canonical(Requirement(each).name) not in wanted.installed]
        pins = [_write_stub(Path(name), package, version) for package, version in wanted.installed.items()]
        constraints.write_text("\n".join([*pins, *asked]))
        options = ["--python-version", python, "--implementation", "cp", "--abi", f"cp{python.replace('.', '')}"]
        options += [word for tag in _platforms(wanted.spec.platform) for word in ("--platform", tag)]
        options += ["--target", name, "--find-links", name, "--constraint", str(constraints)]
        return pip_report(wanted.lines, options, environment=wanted.environment, folder=wanted.path.parent)


def _platforms(platform: VendorPlatform) -> list[str]:
    if platform is VendorPlatform.ANY:
        return ["any"]
    names = [
        *(f"manylinux_2_{minor}" for minor in range(_GLIBC, 4, -1)),
        "manylinux2014",
        "manylinux2010",
        "manylinux1",
    ]
    return [platform.replace("linux", name, 1) for name in names]


def _write_stub(folder: Path, name: str, version: str) -> str:
    """Write a wheel of a version that no index has, though specifiers take it for that one; return its pin."""
    own = f"{version}{'.' if '+' in version else '+'}server"
    stem = f"{name.replace('-', '_')}-{own}"
    with ZipFile(folder / f"{stem}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{stem}.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {own}\n")
        wheel.writestr(f"{stem}.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{stem}.dist-info/RECORD", "")
    return f"{name}=={own}"


def _walk(wanted: _Wanted, items: Mapping[str, Any]) -> tuple[set[str], tuple[str, ...]]:  # Any: as above
    """Follow every requirement to what meets it on the server: pip's word alone is no proof.

    Return what is not the server's, and what is asked of that; raises UnresolvedError.
    """
    needed, server, seen = set[str](), set[str](), set[tuple[str, str, frozenset[str]]]()
    ahead = [(requirement, frozenset({""}), where) for requirement, where in wanted.requirements]
    while ahead:
        requirement, extras, by = ahead.pop()
        visit = (str(requirement), by, extras)
        if visit in seen or not _applies(requirement, wanted, extras):
            continue
        seen.add(visit)
        name = canonical(requirement.name)
        is_theirs = name in wanted.installed
        version = wanted.installed.get(name) or (items[name]["metadata"]["version"] if name in items else None)
        if version is None or requirement.url or not _holds(requirement, version) or (is_theirs and requirement.extras):
            raise UnresolvedError(f"nothing certain meets '{requirement}', which {by} asks for")
        if is_theirs:
            server.add(f"{name}{requirement.specifier}")
        else:
            needed.add(name)
            inner = map(Requirement, items[name]["metadata"].get("requires_dist", []))
            ahead += [(each, frozenset({"", *requirement.extras}), f"{name} {version}") for each in inner]
    return needed, tuple(sorted(server))


def _applies(requirement: Requirement, wanted: _Wanted, extras: Iterable[str]) -> bool:
    marker = requirement.marker
    return marker is None or any(marker.evaluate(wanted.environment | {"extra": extra}) for extra in extras)


def _holds(requirement: Requirement, version: str) -> bool:
    return requirement.specifier.contains(version, prereleases=True)


def _locked(name: str, item: Any) -> LockedWheel:  # Any: as above
    parts = urlsplit(item["download_info"]["url"])
    url = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment=""))
    file = unquote(parts.path).rpartition("/")[2]
    return LockedWheel(name=name, version=item["metadata"]["version"], file=file, url=url, sha256=sha256_of(item))
