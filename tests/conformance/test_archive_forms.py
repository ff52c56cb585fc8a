"""What the real server cannot read, marpack refuses or tells; what the original makes, marpack reads without a word."""

import gzip
import io
import json
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest
from conformance.peer import require_peer
from inspection import containers

from marpack.archive.reader import open_archive
from marpack.errors import ArchiveError

pytestmark = pytest.mark.peer

MANIFEST = {"runtime": "python", "model": {"modelName": "m", "handler": "h.py"}}
MODEL = MANIFEST["model"]


class Unseekable(io.BytesIO):
    def seekable(self):
        return False

    def tell(self):
        raise io.UnsupportedOperation


def zipped(manifest=MANIFEST, *, root="", zip64=False):
    return _write(io.BytesIO(), manifest, root=root, zip64=zip64)


def streamed(method, *, zip64=False):
    """Return a zip as it is written to a pipe: each member's size behind it."""
    return _write(Unseekable(), MANIFEST, method=method, zip64=zip64)


def _write(out, manifest, *, root="", method=zipfile.ZIP_STORED, zip64=False):
    text = manifest if isinstance(manifest, bytes) else json.dumps(manifest).encode()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, data in ((f"{root}h.py", b"x = 1\n"), (f"{root}MAR-INF/MANIFEST.json", text)):
            with archive.open(name, "w", force_zip64=zip64) as member:
                member.write(data)
    return out.getvalue()


def tarred(root="m/"):
    manifest = json.dumps(MANIFEST).encode()
    return containers.tarred({f"{root}h.py": b"x = 1\n", f"{root}MAR-INF/MANIFEST.json": manifest}, mode="w:gz")


PLAIN, TAR = zipped(), tarred()
SECOND = PLAIN.index(b"PK\3\4", 4)
ARCHIVES = {
    "plain.mar": PLAIN,
    "rooted.mar": zipped(root="m/"),
    "wide.mar": zipped(zip64=True),
    "streamed-deflated.mar": streamed(zipfile.ZIP_DEFLATED),
    "streamed-stored.mar": streamed(zipfile.ZIP_STORED),
    "streamed-wide.mar": streamed(zipfile.ZIP_DEFLATED, zip64=True),
    "bzip2.mar": streamed(zipfile.ZIP_BZIP2),
    "before.mar": b"#!/bin/sh\n" + PLAIN,
    "between.mar": PLAIN[:SECOND] + bytes(16) + PLAIN[SECOND:],
    "behind.mar": PLAIN + b"x",
    "cut.mar": PLAIN[: len(PLAIN) // 2],
    "local-crc.mar": PLAIN[:14] + bytes([PLAIN[14] ^ 1]) + PLAIN[15:],
    "named.zip": PLAIN,
    "tar-inside.mar": TAR,
    "empty.mar": zipped(b""),
    "bom.mar": zipped(b"\xef\xbb\xbf" + json.dumps(MANIFEST).encode()),
    "utf16.mar": zipped(json.dumps(MANIFEST).encode("utf-16")),
    "not-json.mar": zipped(b"{"),
    "list.mar": zipped([]),
    "no-model.mar": zipped({"runtime": "python"}),
    "no-runtime.mar": zipped({"model": MODEL}),
    "java.mar": zipped({"runtime": "java", "model": MODEL}),
    "no-name.mar": zipped({"runtime": "python", "model": {"handler": "h.py"}}),
    "no-handler.mar": zipped({"runtime": "python", "model": {"modelName": "m"}}),
    "number.mar": zipped({"runtime": "python", "model": {**MODEL, "modelVersion": 1.5}}),
    "model-is-list.mar": zipped({"runtime": "python", "model": []}),
    "name-is-object.mar": zipped({"runtime": "python", "model": {**MODEL, "modelName": {}}}),
    "m.tar.gz": TAR,
    "m.tgz": TAR,
    "dot.tar.gz": tarred("./"),
    "flat.tar.gz": tarred(""),
    "dot-root.tar.gz": tarred("./m/"),
    "two-streams.tar.gz": gzip.compress(gzip.decompress(TAR)[:600]) + gzip.compress(gzip.decompress(TAR)[600:]),
    "cut.tar.gz": TAR[:-9],
    "zip-inside.tar.gz": PLAIN,
}
# What the server takes and marpack refuses: the rest of what it takes, marpack finds fine.
SAFER = {
    "bom.mar": "the server's Java reads it, and its Python worker then dies of it",
    "cut.tar.gz": "the sum that would show a damage is missing",
    "behind.mar": "there are bytes behind the last record: they belong to nothing",
    "no-name.mar": "the server names the model after the request that registers it",
    "no-handler.mar": "a server may be configured with a default handler",
}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    folder = tmp_path_factory.mktemp("store")
    for name, data in ARCHIVES.items():
        (folder / name).write_bytes(data)
    return folder


@pytest.fixture(scope="module")
def served(store) -> dict[str, bool]:
    """Ask the server's own classes which archives they take."""
    peer = require_peer()
    if shutil.which("javac") is None:
        pytest.skip("there is a Java, but no compiler with it")
    jar = next(peer.parent.glob("lib/python*/site-packages/ts/frontend/model-server.jar"))
    source = Path(__file__).with_name("ReadArchives.java")
    command = ["java", f"-Djava.io.tmpdir={store}", "-cp", jar, source, store, *ARCHIVES]
    told = subprocess.run(command, check=True, capture_output=True, text=True, cwd=store)  # it writes logs
    lines = [line.split("\t") for line in told.stdout.splitlines() if "\t" in line]
    return {name: verdict == "taken" for name, verdict in lines}


@pytest.mark.parametrize("name", ARCHIVES)
def test_marpack_calls_fine_what_the_server_takes(store, served, name):
    assert fine(store / name) == (served[name] and name not in SAFER)


def fine(path):
    try:
        with open_archive(path) as archive:
            return archive.manifest.model.name == "m" and not archive.server_findings
    except ArchiveError:
        return False
