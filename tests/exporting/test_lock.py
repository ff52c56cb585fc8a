"""requirements.lock, made by the pip that is here from wheels that lie in a folder."""

import hashlib
import io
import sys
import zipfile
from pathlib import Path

import pytest

from marpack.exporting.image import make_lock, read_lock
from marpack.project.vendoring import UnresolvedError


def wheel_of(name: str, version: str, *requires: str) -> bytes:
    """Return a wheel that holds nothing."""
    info = f"{name}-{version}.dist-info"
    lines = [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}", "Provides-Extra: serve"]
    metadata = "\n".join([*lines, *(f"Requires-Dist: {each}" for each in requires), ""])
    wheel = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(f"{info}/METADATA", metadata)
        archive.writestr(f"{info}/WHEEL", wheel)
        archive.writestr(f"{info}/RECORD", "")
    return buffer.getvalue()


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """Let pip know nothing but a folder of wheels."""
    wheels = {"shop": wheel_of("shop", "1.0", "Till_Roll>=2"), "till_roll": wheel_of("till_roll", "2.5")}
    for name, data in wheels.items():
        (tmp_path / f"{name}-{'1.0' if name == 'shop' else '2.5'}-py3-none-any.whl").write_bytes(data)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    return wheels


OWN = ("marpack-0.1.0-py3-none-any.whl", wheel_of("marpack", "0.1.0", "till-roll; extra == 'serve'"))


@pytest.mark.skipif(sys.platform != "linux", reason="images are Linux")
def test_every_package_is_pinned_with_its_hash_and_marpack_is_not_among_them(index: dict[str, bytes], tmp_path: Path):
    lock = make_lock(("shop>=1",), OWN, None)
    hashes = {name: hashlib.sha256(data).hexdigest() for name, data in index.items()}
    expected = f"shop==1.0 --hash=sha256:{hashes['shop']}\ntill-roll==2.5 --hash=sha256:{hashes['till_roll']}\n"
    assert lock == expected.encode()
    (tmp_path / "lock").write_bytes(lock)
    assert read_lock(tmp_path / "lock", ["Shop", "till_roll"]) == lock


def test_why_there_is_none(index: dict[str, bytes], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "platform", "linux")
    reasons = {
        "absent==1.0": "pip says: No matching distribution found for absent==1.0",
        "shop @ https://example.org/shop.tar.gz": "'shop @ https://example.org/shop.tar.gz' is an address",
        "git+https://example.org/shop": "is an address",
    }
    for line, reason in reasons.items():
        with pytest.raises(UnresolvedError, match=reason):
            make_lock((line,), OWN, None)
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(UnresolvedError, match="Linux"):
        make_lock(("shop",), OWN, None)
