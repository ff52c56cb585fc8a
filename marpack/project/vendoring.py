"""Requirements in an archive: resolved by pip for a server's Python, locked in vendor.lock, unpacked from wheels."""

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
from urllib.parse import unquote, urlsplit, urlunsplit
from urllib.request import url2pathname
from zipfile import ZipFile

import msgspec
from msgspec import Struct
from msgspec.structs import replace
from packaging.requirements import InvalidRequirement, Requirement
from packaging.version import Version

from marpack.archive.bytesource import LocalFile
from marpack.archive.cache import Cache, Cached, fetch_whole
from marpack.archive.copying import file_digest
from marpack.archive.protocol import Bar, Limits, Progress, total_size
from marpack.archive.staging import extract_blocks, replace_file, temporary_folder
from marpack.archive.zip_archive import ZipArchive
from marpack.errors import ArchiveError, ProjectError, convert_os_errors, shortened
from marpack.findings import Finding
from marpack.inspection.requirements import LineKind, read_requirements
from marpack.project.schema import LOCK_NAME, Project, VendorPlatform, VendorSpec
from marpack.torchserve.server_modules import ASKED, PINNED, canonical

_TIME_LIMIT = 300  # seconds for pip as a whole
_REPLY_LIMIT = 15  # seconds for an index to respond
# Wheels only: to read the metadata of a source distribution, pip runs its code.
_PIP_INSTALL = (
    *("install", "--dry-run", "--ignore-installed", "--only-binary", ":all:", "--quiet", "--no-input"),
    *("--timeout", str(_REPLY_LIMIT), "--retries", "1"),
)
# pip has an option for another Python's wheels, and none for its markers.
_PIP_WITH_MARKERS = """
import json, sys
from pip._vendor.packaging import markers
here = markers.default_environment
markers.default_environment = lambda: {**here(), **json.loads(sys.argv[1])}
from pip._internal.cli.main import main
sys.exit(main(sys.argv[2:]))
"""
_BLOCK = 1 << 20  # bytes
_MAX_WHEEL = 4 << 30  # bytes of a wheel of unknown size
_SHARED_LIBRARY = re.compile(r"\.(so(\.\d+)*|pyd|dylib)$")
_RESOLVE_AGAIN = "Write a new lock: marpack build --vendor"
_HEAD = "# The wheels that marpack build unpacks into the archive; marpack build --vendor writes a new one.\n"
_TARGET = re.compile(r"for (?P<python>3\.\d+) (?P<platform>linux_x86_64|linux_aarch64|any) from sha256:(?P<digest>\w+)")
_WHEEL = re.compile(
    r"(?P<name>[a-z0-9-]+)==(?P<version>\S+) (?P<file>[^\s/]+\.whl) (?P<url>(?:https?|file)://\S+)"
    r" sha256:(?P<sha256>[0-9a-f]{64}) (?P<size>\d+)"
)
_MARKERS = {  # on every server
    "implementation_name": "cpython", "platform_python_implementation": "CPython", "os_name": "posix",
    "sys_platform": "linux", "platform_system": "Linux", "platform_release": "", "platform_version": "",
}  # fmt: skip
_MAX_GLIBC = 28  # 2.28: the server's images have a later one
_INDEX_OPTION = re.compile(r"(-i|--index-url|--extra-index-url|--no-index|-f|--find-links|--pre|--trusted-host)\b")


class UnresolvedError(Exception):
    """pip is missing, reaches no index, or finds no set of versions that fit together; callers raise their own."""


class PipPackage(Struct, frozen=True, kw_only=True):
    """One wheel that pip would install."""

    version: str
    requires: tuple[str, ...]
    url: str
    sha256: str  # lower-case hex


def pip_report(
    lines: Iterable[str],
    options: Sequence[str] = (),
    *,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> dict[str, PipPackage]:
    """Return the wheels that pip would install in a folder for the lines of a requirements file, by canonical name.

    `environment` has the values of markers for another Python. Raises UnresolvedError.
    """
    with temporary_folder() as temporary:
        listing, report = temporary / "requirements.txt", temporary / "report.json"
        listing.write_text("\n".join(lines))
        pip = ["-m", "pip"]
        if environment is not None:
            pip = ["-c", _PIP_WITH_MARKERS, msgspec.json.encode(environment).decode()]
        files = ["--report", str(report), "--requirement", str(listing)]
        try:
            subprocess.run(  # noqa: S603 - our own words, and files
                [sys.executable, *pip, *_PIP_INSTALL, *files, *options],
                capture_output=True, text=True, errors="replace", timeout=_TIME_LIMIT, check=True, cwd=folder,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise UnresolvedError(f"pip has not finished within {_TIME_LIMIT} s") from None
        except subprocess.CalledProcessError as error:
            lines = [line for line in error.stderr.splitlines() if line.startswith("ERROR") and "for help" not in line]
            last = lines[-1] if lines else error.stderr
            raise UnresolvedError(f"pip says: {shortened(last.removeprefix('ERROR: '), 120)}") from None
        packages = {}
        for item in msgspec.json.decode(report.read_bytes())["install"]:
            metadata, download = item["metadata"], item["download_info"]
            name, digest = canonical(metadata["name"]), download.get("archive_info", {}).get("hashes", {}).get("sha256")
            if digest is None:
                raise UnresolvedError(f"the index has no hash of {name}")
            requires, version = tuple(metadata.get("requires_dist", ())), metadata["version"]
            packages[name] = PipPackage(version=version, requires=requires, url=download["url"], sha256=digest)
    return packages


class LockedWheel(Struct, frozen=True, kw_only=True):
    """One line of vendor.lock."""

    name: str  # canonical
    version: str
    file: str
    url: str  # http, https or file, without credentials
    sha256: str  # lower-case hex
    size: int = 0  # bytes; 0: unknown


def wheel_tree(wheel: LockedWheel, cache: Cache, bar: Bar) -> Cached:
    """Return the folder of a wheel's files under their names at an archive's root, unpacked once into the cache.

    Raises ProjectError for a wheel that differs from its lock, name or RECORD.
    """
    key = hashlib.sha256(f"wheel 1 {wheel.file} {wheel.sha256}".encode()).hexdigest()[:32]
    try:
        if (found := cache.find(key)) is not None:
            return found
        with closing(LocalFile(_wheel_file(wheel, cache, bar))) as data:
            opened = ZipArchive(wheel.file, data, limits=Limits(), cache=cache)
            return cache.fill(key, partial(_unpack, opened, wheel), size=total_size(opened))
    except ArchiveError as error:
        what = f"the wheel cannot be fetched or unpacked: {error.what}"
        raise ProjectError(what, where=wheel.file, hint=_RESOLVE_AGAIN, code="unreadable-wheel") from error


def _wheel_file(wheel: LockedWheel, cache: Cache, bar: Bar) -> Path:
    """Return a local file with the wheel's digest; raises ProjectError, and what `fetch_whole` raises."""
    if not wheel.url.startswith("file:"):
        return fetch_whole(wheel.url, cache, sha256=wheel.sha256, maximum=wheel.size or _MAX_WHEEL, bar=bar)
    path = Path(url2pathname(urlsplit(wheel.url).path))
    with convert_os_errors(ProjectError, "the wheel cannot be read", where=str(path), hint=_RESOLVE_AGAIN):
        digest = file_digest(path)
    if digest != wheel.sha256:
        raise ProjectError("the wheel's SHA-256 is not the one in vendor.lock", where=str(path), hint=_RESOLVE_AGAIN)
    return path


def _unpack(opened: ZipArchive, wheel: LockedWheel, folder: Path, progress: Progress | None) -> tuple[Finding, ...]:
    """Write a wheel's files as they are at an archive's root, each checked against RECORD while it is copied."""
    record = next((name for name in opened.entries if re.fullmatch(r"[^/]+\.dist-info/RECORD", name)), None)
    if record is None:
        raise _unsound(wheel, "it has no RECORD")
    with opened.open(record) as file:
        rows = csv.reader(file.read().decode("utf-8", "replace").splitlines())
        digests = {row[0]: row[1] for row in rows if len(row) == 3}

    def checked_blocks(name: str) -> Iterator[bytes]:
        digest = hashlib.sha256()
        with opened.open(name) as file:
            while data := file.read(_BLOCK):
                is_native = _SHARED_LIBRARY.search(name) or (file.tell() == len(data) and data.startswith(b"\x7fELF"))
                if is_native and wheel.file.endswith("-any.whl"):
                    raise _unsound(wheel, f"its name says that it runs anywhere, and {name} is native code")
                digest.update(data)
                yield data
        if digests.get(name) != f"sha256={urlsafe_b64encode(digest.digest()).decode().rstrip('=')}":
            raise _unsound(wheel, f"{name} differs from its RECORD")

    data = f"{record.removesuffix('.dist-info/RECORD')}.data/"
    for name in sorted(opened.entries):
        place = name
        if name.startswith(data):  # scripts, headers and data are installed outside of Python's path
            kind, _, inner = name.removeprefix(data).partition("/")
            place = inner if kind in {"purelib", "platlib"} else ""
        elif name.startswith(record) or "__pycache__" in name.split("/"):
            place = ""
        if place:
            extract_blocks(checked_blocks(name), folder, place, progress)
    return ()


def _unsound(wheel: LockedWheel, what: str) -> ProjectError:
    hint = "Require another version, then run marpack build --vendor"
    return ProjectError(f"the wheel cannot be vendored: {what}", where=wheel.file, hint=hint)


class VendorLock(Struct, frozen=True, kw_only=True):
    """The content of vendor.lock."""

    python: str  # "3.9"
    platform: str
    digest: str  # SHA-256 of all that it was resolved from
    server: tuple[str, ...] = ()  # requirements that the server's own packages meet
    wheels: tuple[LockedWheel, ...] = ()

    def to_text(self) -> str:
        """Return the file's text, the same for the same wheels."""
        lines = [f"for {self.python} {self.platform} from sha256:{self.digest}", *(f"server {s}" for s in self.server)]
        lines += [f"{w.name}=={w.version} {w.file} {w.url} sha256:{w.sha256} {w.size}" for w in self.wheels]
        return _HEAD + "".join(f"{line}\n" for line in lines)

    @classmethod
    def parse(cls, text: str, where: str) -> "VendorLock":
        """Parse the file's text; raises ProjectError for any line that `to_text` does not write."""
        head, *lines = [line for line in text.splitlines() if not line.startswith("#")] or [""]
        found = _TARGET.fullmatch(head)
        wheels = [_WHEEL.fullmatch(line) for line in lines if not line.startswith("server ")]
        if found is None or None in wheels:
            raise ProjectError("marpack did not write this lock", where=where, hint=_RESOLVE_AGAIN)
        server = tuple(line.removeprefix("server ") for line in lines if line.startswith("server "))
        known = [msgspec.convert(wheel.groupdict(), LockedWheel, strict=False) for wheel in wheels if wheel]
        return cls(**found.groupdict(), server=server, wheels=tuple(known))


def read_lock(project: Project) -> VendorLock:
    """Return a project's lock; raises ProjectError if it is missing, malformed, or of other requirements."""
    path = project.folder / LOCK_NAME
    try:
        lock = VendorLock.parse(path.read_text("utf-8", "replace"), str(path))
    except FileNotFoundError:
        hint = "Resolve the requirements and write it: marpack build --vendor"
        raise ProjectError(f"{LOCK_NAME} is missing", where=project.place("vendor"), hint=hint) from None
    spec = project.vendor or VendorSpec(python=lock.python, platform=VendorPlatform(lock.platform))
    if lock_inputs(project, spec).digest != lock.digest:
        what = "the requirements or the server have changed since the lock was written"
        raise ProjectError(what, where=str(path), hint=_RESOLVE_AGAIN, code="outdated-lock")
    return lock


def make_lock(project: Project, spec: VendorSpec, cache: Cache, bar: Bar) -> None:
    """Resolve a project's requirements, fetch the wheels into the cache, and write vendor.lock.

    Raises ProjectError for requirements that no wheels meet together with the server's packages.
    """
    inputs = lock_inputs(project, spec)
    for requirement, where in inputs.requirements:
        version = inputs.installed.get(canonical(requirement.name)) if inputs.applies(requirement, {""}) else None
        if version and not requirement.specifier.contains(version, prereleases=True):
            what = f"'{requirement}' excludes the server's {requirement.name}, which is {version}"
            raise ProjectError(what, where=where, hint="Change it, or name the server's version in vendor.installed.")
    try:
        with bar("resolving with pip", 0):
            packages = _resolve(inputs)
            needed, server = _follow(inputs, packages)
    except UnresolvedError as error:
        what = f"no wheels for Python {spec.python} on {spec.platform} meet the requirements: {error}"
        raise ProjectError(
            what, where=str(inputs.path), hint="Require other versions, or change vendor.python or vendor.platform."
        ) from None
    wheels = []
    for name in sorted(needed):
        package, parts = packages[name], urlsplit(packages[name].url)
        public = parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="")  # no credentials
        url, file = urlunsplit(public), unquote(parts.path).rpartition("/")[2]
        wheel = LockedWheel(name=name, version=package.version, file=file, url=url, sha256=package.sha256)
        wheels.append(replace(wheel, size=_wheel_file(wheel, cache, bar).stat().st_size))
    lock = VendorLock(
        python=spec.python, platform=spec.platform, digest=inputs.digest, server=server, wheels=tuple(wheels)
    )
    replace_file(project.folder / LOCK_NAME, lock.to_text().encode())


class LockInputs(Struct, frozen=True, kw_only=True):
    """All that a lock is resolved from."""

    spec: VendorSpec
    installed: dict[str, str]  # the server's packages: canonical name → version
    lines: tuple[str, ...]  # for pip
    requirements: tuple[tuple[Requirement, str], ...]  # each with its place, as file:line
    digest: str
    path: Path  # of the requirements

    @property
    def environment(self) -> dict[str, str]:
        """The values of markers on the server; x86_64 where the platform is any."""
        machine = "aarch64" if self.spec.platform is VendorPlatform.LINUX_AARCH64 else "x86_64"
        full = dict.fromkeys(("python_full_version", "implementation_version"), f"{self.spec.python}.0")
        return {**_MARKERS, **full, "platform_machine": machine, "python_version": self.spec.python}

    def applies(self, requirement: Requirement, extras: Iterable[str]) -> bool:
        """Return whether a requirement's marker is true on the server, with one of the extras ("" for none)."""
        marker = requirement.marker
        return marker is None or any(marker.evaluate(self.environment | {"extra": extra}) for extra in extras)


def lock_inputs(project: Project, spec: VendorSpec) -> LockInputs:
    """Return what a lock is resolved from; raises ProjectError for requirements that no lock can hold."""
    first, where = project.requirements, project.place("vendor")
    if first is None:
        hint = "Name their file in marpack.yaml: requirements: requirements.txt"
        raise ProjectError("vendoring needs requirements", where=where, hint=hint)
    if not re.fullmatch(r"3\.\d{1,2}", spec.python):
        raise ProjectError(f"{spec.python} is not a version of Python 3", where=where, hint='Write it as "3.9".')
    sources: dict[str, bytes] = {}

    def read(name: str) -> bytes:
        path, hint = project.folder / name, "Create the file, or correct its name."
        with convert_os_errors(ProjectError, "the file cannot be read", where=str(path), hint=hint):
            sources[name] = path.read_bytes()
        if b"--hash" in sources[name]:
            raise ProjectError(
                "vendor.lock replaces hashes in requirements", where=str(path), hint="Remove --hash from each line."
            )
        return sources[name]

    lines, requirements = [], []
    for file, line in read_requirements(first, read):
        if line.sort is LineKind.INCLUDE:
            continue
        place = f"{project.folder / file}:{line.number}"
        is_option = line.sort is LineKind.OPTION and _INDEX_OPTION.match(line.text)
        if not is_option and (line.sort is not LineKind.REQUIREMENT or "://" in line.text):
            what = f"'{shortened(line.text, 60)}' cannot be met by wheels of an index"
            raise ProjectError(what, where=place, hint="Name a released version: NAME==VERSION")
        lines.append(line.text)
        if line.name:
            requirements.append((Requirement(line.text), place))
    installed = _server_packages(spec, project.place("vendor.installed"))
    known = [spec.python, spec.platform, sorted(installed.items()), ASKED, sorted(sources.items())]
    return LockInputs(
        spec=spec,
        installed=installed,
        lines=tuple(lines),
        requirements=tuple(requirements),
        digest=hashlib.sha256(msgspec.json.encode(known)).hexdigest(),
        path=project.folder / first,
    )


def _server_packages(spec: VendorSpec, where: str) -> dict[str, str]:
    """Return the versions on the server: a stock image's, unless marpack.yaml states others."""
    installed = dict(PINNED)
    for text in spec.installed:
        try:
            stated = Requirement(text)
            (pin,) = stated.specifier
            if pin.operator != "==":
                raise ValueError
            installed[canonical(stated.name)] = str(Version(pin.version))
        except (InvalidRequirement, ValueError):
            what, hint = f"'{shortened(text, 60)}' is not NAME==VERSION", "Copy it from pip freeze on the server."
            raise ProjectError(what, where=where, hint=hint) from None
    return installed


def _resolve(inputs: LockInputs) -> dict[str, PipPackage]:
    """Return what pip would install on the server; the server's own packages are empty wheels for pip."""
    python, platform = inputs.spec.python, inputs.spec.platform
    tags = ["any"]
    if platform is not VendorPlatform.ANY:
        names = [f"manylinux_2_{minor}" for minor in range(_MAX_GLIBC, 4, -1)]
        names += ["manylinux2014", "manylinux2010", "manylinux1"]
        tags = [platform.replace("linux", name, 1) for name in names]
    with temporary_folder() as folder:
        constraints = [each for each in ASKED if canonical(Requirement(each).name) not in inputs.installed]
        for name, version in inputs.installed.items():
            # A local version is in no index, and specifiers accept it as the public one.
            own = f"{version}{'.' if '+' in version else '+'}server"
            stem = f"{name.replace('-', '_')}-{own}"
            with ZipFile(folder / f"{stem}-py3-none-any.whl", "w") as stub:
                metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {own}\n"
                wheel = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
                for member, text in {"METADATA": metadata, "WHEEL": wheel, "RECORD": ""}.items():
                    stub.writestr(f"{stem}.dist-info/{member}", text)
            constraints.append(f"{name}=={own}")
        (folder / "constraints.txt").write_text("\n".join(constraints))
        options = ["--python-version", python, "--implementation", "cp", "--abi", f"cp{python.replace('.', '')}"]
        options += [word for tag in tags for word in ("--platform", tag)]
        options += ["--target", str(folder), "--find-links", str(folder)]
        options += ["--constraint", str(folder / "constraints.txt")]
        return pip_report(inputs.lines, options, environment=inputs.environment, folder=inputs.path.parent)


def _follow(inputs: LockInputs, packages: Mapping[str, PipPackage]) -> tuple[set[str], tuple[str, ...]]:
    """Follow every requirement to the package that meets it on the server: pip's report alone is not proof.

    Return the names of the packages to vendor, and the requirements on the server's; raises UnresolvedError.
    """
    needed, server, seen = set[str](), set[str](), set[tuple[str, str, frozenset[str]]]()
    ahead = [(requirement, frozenset({""}), where) for requirement, where in inputs.requirements]
    while ahead:
        requirement, extras, by = ahead.pop()
        visit = (str(requirement), by, extras)
        if visit in seen or not inputs.applies(requirement, extras):
            continue
        seen.add(visit)
        name = canonical(requirement.name)
        version = None if requirement.extras else inputs.installed.get(name)
        if name not in inputs.installed and name in packages:
            version = packages[name].version
        if version is None or requirement.url or not requirement.specifier.contains(version, prereleases=True):
            raise UnresolvedError(f"no package certainly meets '{requirement}', required by {by}")
        if name in inputs.installed:
            server.add(f"{name}{requirement.specifier}")
        else:
            needed.add(name)
            inner = map(Requirement, packages[name].requires)
            ahead += [(each, frozenset({"", *requirement.extras}), f"{name} {version}") for each in inner]
    return needed, tuple(sorted(server))
