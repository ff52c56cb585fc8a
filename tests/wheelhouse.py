"""Wheels of a few bytes, and the only ones that pip then knows."""

import hashlib
import zipfile
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from pathlib import Path

import pytest

ELF = b"\x7fELF" + bytes(60)


def write_wheel(
    folder: Path,
    file: str,
    files: Mapping[str, bytes],
    *lines: str,
    record: str | None = None,
    left_out: tuple[str, ...] = (),
) -> Path:
    """Write a wheel of these files, with further lines of metadata; `record` takes the place of its RECORD."""
    name, version = file.split("-")[:2]
    info = f"{name}-{version}.dist-info"
    metadata = "\n".join(["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}", *lines, ""])
    tag = "-".join(file.removesuffix(".whl").split("-")[-3:])
    described = f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n"
    packed = {**files, f"{info}/METADATA": metadata.encode(), f"{info}/WHEEL": described.encode()}
    digests = {name: urlsafe_b64encode(hashlib.sha256(data).digest()) for name, data in packed.items()}
    rows = [f"{name},sha256={digest.decode().rstrip('=')},{len(packed[name])}" for name, digest in digests.items()]
    listed = "\n".join([*rows, f"{info}/RECORD,,", ""]) if record is None else record
    with zipfile.ZipFile(folder / file, "w") as wheel:
        for name, data in (packed | {f"{info}/RECORD": listed.encode()}).items():
            if name not in left_out:
                wheel.writestr(name, data)
    return folder / file


def only(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let pip know nothing but a folder of wheels."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
