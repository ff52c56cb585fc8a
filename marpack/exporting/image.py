"""The image of an export: its build context, with marpack's wheel and the locked requirements."""

import hashlib
import io
import json
import re
import shlex
import sys
import zipfile
from base64 import urlsafe_b64encode
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, distribution, version
from pathlib import Path
from typing import Any

import yaml

from marpack.archive.staging import temporary_folder
from marpack.errors import UsageError, convert_os_errors, describe_os_error, printable, shortened
from marpack.exporting.plan import Content, Export, Image
from marpack.inspection.requirements import read_lines
from marpack.project.scaffold.template import templates
from marpack.torchserve.server_modules import canonical
from marpack.version import __version__

CPU_INDEX = "https://download.pytorch.org/whl/cpu"  # of torch without CUDA, which the default index lacks
LOCK = "requirements.lock"
_PINNED = re.compile(r"([A-Za-z0-9][\w.-]*)==\S+( --hash=sha256:[0-9a-f]{64})+")
_DIRECT = re.compile(r"@|://")
_PACKAGE = Path(__file__).parents[1]
_INFO = f"marpack-{__version__}.dist-info"
_WHEEL = "Wheel-Version: 1.0\nGenerator: marpack\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
_LEAVE_OUT = "Leave out --lock. The export then makes a lock."
_EPOCH = (1980, 1, 1, 0, 0, 0)  # a zip's earliest time
_HINT = "Name a wheel of marpack: --wheel FILE. To build one in its checkout: pip wheel --no-deps ."


def prepare_image(export: Export) -> Image:
    """Return what the image installs; raises UsageError for a wheel or a lock that cannot be used."""
    from marpack.project.vendoring import UnresolvedError  # noqa: PLC0415 - it imports what fetches over HTTP

    options = export.options
    try:
        torch = f"torch=={version('torch').partition('+')[0]}{'+cpu' if options.device == 'cpu' else ''}"
    except PackageNotFoundError:
        what = "torch is not installed, so its version cannot be pinned"
        raise UsageError(what, hint="Install it: pip install torch") from None
    requirements = (torch, *export.requirements)
    own = wheel(options.wheel)
    index = CPU_INDEX if options.device == "cpu" else None
    lock, reason = None, "--no-lock"
    if options.lock is not None:
        names = [line.name for line in read_lines("\n".join(requirements).encode()) if line.name]
        lock = read_lock(options.lock, names)
    elif options.resolve:
        try:
            lock = make_lock(requirements, own, index)
        except UnresolvedError as error:
            reason = str(error)
    return Image(wheel=own, requirements=requirements, index=index, lock=lock, unlocked=reason)


def image_files(export: Export, *, with_archive: bool = False) -> dict[str, Content]:
    """Return a Dockerfile and the files that it copies, by name."""
    image = export.image
    assert image is not None  # noqa: S101 - `prepare_image` has made it
    name, data = image.wheel
    lines = (*image.requirements, f"./{name}[serve]")
    dockerfile = render(
        "image/Dockerfile.j2",
        python=f"{sys.version_info.major}.{sys.version_info.minor}",
        wheel=name,
        lock=LOCK if image.lock is not None else None,
        index=image.index,
        with_archive=with_archive,
        start_seconds=export.settings.startup_timeout,
    )
    return {
        name: data,
        "requirements.txt": "".join(f"{line}\n" for line in lines).encode(),
        **({} if image.lock is None else {LOCK: image.lock}),
        **({f"model/{export.file}": export.archive} if with_archive else {}),
        "entrypoint.py": render("image/entrypoint.py.j2", device=export.options.device),
        "Dockerfile": dockerfile,
    }


def read_lock(path: Path, names: Iterable[str]) -> bytes:
    """Return an existing lock; raises UsageError if it is malformed or lacks one of these packages."""
    where = f"--lock {path}"
    with convert_os_errors(UsageError, "the lock cannot be read", where=where):
        data = path.read_bytes()
    try:
        lines = data.decode().splitlines()
    except UnicodeDecodeError:
        raise UsageError("the lock is not a text file", where=where, hint=_LEAVE_OUT) from None
    found = set()
    for number, line in enumerate(lines, 1):
        if match := _PINNED.fullmatch(line):
            found.add(canonical(match[1]))
        elif line and not line.startswith("#"):
            hint = "Write NAME==VERSION --hash=sha256:…, as in the lock of an export."
            raise UsageError("this line does not pin a package by its hash", where=f"{where}:{number}", hint=hint)
    missing = sorted({canonical(name) for name in names} - found)
    if missing:
        raise UsageError(f"the lock has no {missing[0]}, which the image needs", where=where, hint=_LEAVE_OUT)
    return data


def make_lock(requirements: Iterable[str], wheel: tuple[str, bytes], index: str | None) -> bytes:
    """Return every package that pip would install, pinned with its hashes; raises UnresolvedError.

    The image's `requirements` lack marpack: its `wheel` has its own. The `index` is torch's, beside the default one.
    """
    from marpack.project.vendoring import UnresolvedError, pip_report  # noqa: PLC0415 - as above

    if sys.platform != "linux":
        raise UnresolvedError("pip resolves for the system that it runs on, and the image is Linux")
    direct = next((line for line in requirements if _DIRECT.search(line)), None)
    if direct is not None:
        raise UnresolvedError(f"'{shortened(direct, 60)}' is an address, and pip would run its code to read metadata")
    with temporary_folder() as folder:
        file = folder / wheel[0]
        file.write_bytes(wheel[1])
        packages = pip_report([*requirements, f"{file}[serve]"], ["--extra-index-url", index] if index else [])
    pinned = (f"{name}=={each.version} --hash=sha256:{each.sha256}\n" for name, each in packages.items())
    return "".join(sorted(line for line in pinned if not line.startswith("marpack=="))).encode()


def wheel(named: Path | None) -> tuple[str, bytes]:
    """Return the name and the bytes of the named wheel, or of one made from the installed files.

    Raises UsageError for a file that is not a wheel of marpack, and where marpack is not installed.
    """
    if named is None:
        return _make_wheel()
    from packaging.utils import InvalidWheelFilename, parse_wheel_filename  # noqa: PLC0415 - only --wheel needs it

    where = f"--wheel {named}"
    try:
        name, *_ = parse_wheel_filename(named.name)
        data = named.read_bytes()
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            has_marpack = "marpack/__init__.py" in archive.namelist()
    except (InvalidWheelFilename, zipfile.BadZipFile):
        raise UsageError("this is not a wheel", where=where, hint=_HINT) from None
    except OSError as error:
        raise UsageError(f"the wheel cannot be read: {describe_os_error(error)}", where=where, hint=_HINT) from error
    if name != "marpack" or not has_marpack:
        raise UsageError("this wheel is not marpack's", where=where, hint=_HINT)
    return named.name, data


def _make_wheel() -> tuple[str, bytes]:
    """Return a wheel of the installed files: the same files give the same bytes."""
    try:
        installed = distribution("marpack")
    except PackageNotFoundError:
        what = "marpack is not installed, so a wheel cannot be made of its files"
        raise UsageError(what, hint=_HINT, code="not-installed") from None
    if installed.version != __version__:
        message = f"this is marpack {__version__}, but the installed package is version {installed.version}"
        raise UsageError(message, hint="Install marpack again, or name a wheel: --wheel FILE")
    files: dict[str, bytes] = {}
    for folder, prefix in ((_PACKAGE, "marpack"), (templates(), "marpack/templates")):
        for path in folder.rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                files[f"{prefix}/{path.relative_to(folder).as_posix()}"] = path.read_bytes()
    texts = {name: installed.read_text(name) for name in ("METADATA", "entry_points.txt", "licenses/LICENSE")}
    files |= {f"{_INFO}/{name}": text.encode() for name, text in (texts | {"WHEEL": _WHEEL}).items() if text}
    files = dict(sorted(files.items()))
    record = [
        f"{name},sha256={urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip('=')},{len(data)}"
        for name, data in files.items()
    ]
    files[f"{_INFO}/RECORD"] = "\n".join([*record, f"{_INFO}/RECORD,,", ""]).encode()
    buffer = io.BytesIO()
    # Stored: compressed bytes differ from one zlib to the next.
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.external_attr = 0o644 << 16
            entry.create_system = 3  # Unix, on every system
            archive.writestr(entry, data)
    return f"marpack-{__version__}-py3-none-any.whl", buffer.getvalue()


def render(name: str, /, **values: Any) -> bytes:  # Any: the variables of the template
    """Return a template below `templates/export/` with its values; a missing value is an error.

    Its filters quote untrusted values for the language they are put into: `yaml`, `python`, `shell`, `json`, `code`
    and `text` (of Markdown).
    """
    import jinja2  # noqa: PLC0415 - no other command needs it

    environment = jinja2.Environment(  # noqa: S701 - never HTML: each value passes the filter of its language
        loader=jinja2.FileSystemLoader(templates() / "export"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )

    def as_yaml(value: Any) -> str:  # Any: texts, numbers, lists and mappings of them
        """Return a value as YAML on one line, a text always in double quotes."""
        if isinstance(value, str):
            return yaml.safe_dump(value, default_style='"', allow_unicode=False, width=1 << 20).strip()
        return json.dumps(value)

    filters = {
        "yaml": as_yaml,
        "python": repr,
        "shell": shlex.quote,
        "json": json.dumps,
        "code": as_code,
        "text": as_text,
    }
    environment.filters |= filters
    return f"{environment.get_template(name).render(values).strip()}\n".encode("utf-8", "backslashreplace")


def as_code(text: str) -> str:
    """Return a text as inline code of Markdown: on one line, between more backquotes than it contains in a row."""
    line = printable(str(text), stand_in=" ") or " "
    fence = "`" * (max(map(len, re.findall("`+", line)), default=0) + 1)
    return f"{fence} {line} {fence}" if "`" in line else f"{fence}{line}{fence}"


def as_text(text: str) -> str:
    """Return a text as plain Markdown on one line, also in the cell of a table."""
    return re.sub(r"([\\`\[<|])", r"\\\1", printable(str(text), stand_in=" "))
