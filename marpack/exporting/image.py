"""The image: a build context whose container serves an archive, by itself, on SageMaker and on KServe."""

import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from marpack.errors import UsageError
from marpack.exporting.lock import Lock, make_lock, read_lock
from marpack.exporting.plan import Export, Image
from marpack.exporting.texts import render
from marpack.exporting.wheel import wheel
from marpack.findings import Finding
from marpack.inspection.lint.codes import Code
from marpack.inspection.requirements import read_lines

CPU_INDEX = "https://download.pytorch.org/whl/cpu"  # of torch without CUDA, which the default index has not
LOCK = "requirements.lock"

UNHASHED = Code(
    "export-requirements-unhashed",
    "The image installs the requirements without hashes: whatever the index offers on the day that it is built.",
    "Export where pip reaches the index, or give a lock that was made there: --lock requirements.lock.",
)


def prepare_image(export: Export) -> Image:
    """Return what the image installs; raise UsageError for a wheel or a lock that cannot be."""
    options = export.options
    requirements = (_torch(options.device), *export.requirements.lines)
    own = wheel(options.wheel)
    index = CPU_INDEX if options.device == "cpu" else None
    if options.lock is not None:
        names = [line.name for line in read_lines("\n".join(requirements).encode()) if line.name]
        lock = read_lock(options.lock, names)
    elif options.resolve:
        lock = make_lock(requirements, own, index)
    else:
        lock = Lock(reason="--no-lock")
    return Image(wheel=own, requirements=requirements, index=index, lock=lock)


def _torch(device: str) -> str:
    """Return the requirement of the torch that is installed here, as built for a device."""
    try:
        public = version("torch").partition("+")[0]
    except PackageNotFoundError:
        raise UsageError("torch is not installed, so nobody knows which one to pin", hint="pip install torch") from None
    return f"torch=={public}+cpu" if device == "cpu" else f"torch=={public}"


def image_files(export: Export, *, with_archive: bool) -> dict[str, bytes | Path]:
    """Return a Dockerfile and what it copies, by names; without LOCK where there are no hashes."""
    image = export.image
    assert image is not None  # noqa: S101 - `prepare_image` has been here
    name, data = image.wheel
    lines = (*image.requirements, f"./{name}[serve]")
    files: dict[str, bytes | Path] = {name: data, "requirements.txt": "".join(f"{line}\n" for line in lines).encode()}
    if image.lock.data is not None:
        files[LOCK] = image.lock.data
    if with_archive:
        files[f"model/{export.file}"] = export.archive
    files["entrypoint.py"] = render("image/entrypoint.py.j2", device=export.options.device)
    files["Dockerfile"] = render(
        "image/Dockerfile.j2",
        python=f"{sys.version_info.major}.{sys.version_info.minor}",
        wheel=name,
        lock=LOCK if LOCK in files else None,
        index=image.index,
        with_archive=with_archive,
        start_seconds=export.settings.startup_timeout,
    )
    return files


def image_findings(export: Export) -> Iterator[Finding]:
    """Yield what the image lacks."""
    if export.image is not None and export.image.lock.data is None:
        yield UNHASHED.warning(f"its requirements have no hashes: {export.image.lock.reason}", str(export.archive))
