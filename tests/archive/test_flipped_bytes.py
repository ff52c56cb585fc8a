"""A law: whatever byte of a good archive changes, it is found, or changes nothing that matters."""

import io
import json
import tarfile
import zipfile

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from marpack.archive.reader import open_archive
from marpack.errors import ArchiveError

MANIFEST = json.dumps({"runtime": "python", "model": {"modelName": "m", "handler": "h.py"}}).encode()
FILES = {"w.pt": bytes(range(256)), "h.py": b"x = 1\n" * 9, "empty": b"", "MAR-INF/MANIFEST.json": MANIFEST}


def zipped(method):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, data in FILES.items():
            archive.writestr(name, data)
        archive.comment = b"a comment"
    return out.getvalue()


class Unseekable(io.BytesIO):
    def seekable(self):
        return False

    def tell(self):
        raise io.UnsupportedOperation


def streamed():
    out = Unseekable()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in FILES.items():
            archive.writestr(name, data)
    return out.getvalue()


def tarred():
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, data in FILES.items():
            header = tarfile.TarInfo(f"m/{name}")
            header.size = len(data)
            archive.addfile(header, io.BytesIO(data))
    return out.getvalue()


ARCHIVES = {
    "stored.mar": zipped(zipfile.ZIP_STORED),
    "deflated.mar": zipped(zipfile.ZIP_DEFLATED),
    "streamed.mar": streamed(),
    "m.tar.gz": tarred(),
}


def look(path):
    """Return all that matters of an archive, having read every byte of it."""
    with open_archive(path) as archive:
        members = {}
        for name in archive.entries:
            with archive.open(name) as file:
                members[name] = file.read()
        return members, archive.manifest, archive.server_findings


def found_or_harmless(path, bad, good):
    path.write_bytes(bad)
    try:
        return look(path) == good
    except ArchiveError:
        return True


@pytest.mark.parametrize("third", [0, pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ARCHIVES)
def test_any_byte_inverted_is_found_or_does_not_matter(tmp_path, name, third):
    path, whole = tmp_path / name, ARCHIVES[name]
    path.write_bytes(whole)
    good = look(path)
    assert good[0] == FILES
    for place in range(int(third), len(whole), 3):
        bad = whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :]
        assert found_or_harmless(path, bad, good), place


@pytest.mark.parametrize("name", ARCHIVES)
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_changed_byte_is_found_or_does_not_matter(tmp_path, name, data):
    path, whole = tmp_path / name, ARCHIVES[name]
    path.write_bytes(whole)
    good = look(path)
    bad = bytearray(whole)
    bad[data.draw(st.integers(0, len(bad) - 1))] ^= data.draw(st.integers(1, 255))
    assert found_or_harmless(path, bad, good)


@given(st.binary(max_size=300) | st.binary(max_size=200).map(lambda tail: b"PK\3\4" + tail))
@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_bytes_that_are_no_archive(tmp_path, data):
    path = tmp_path / "x.mar"
    path.write_bytes(data)
    with pytest.raises(ArchiveError):
        look(path)
