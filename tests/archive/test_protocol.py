import json
import zipfile

import pytest

from marpack.archive.cache import Cache
from marpack.archive.manifest import MAX_BYTES
from marpack.archive.protocol import MANIFEST_NAME
from marpack.archive.reader import open_archive, unpack
from marpack.errors import ExitCode, ManifestError
from marpack.inspection.inspect import inspect

MODEL = {"modelName": "m", "handler": "h.py"}


def made(path, manifest, names=("h.py",)):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in names:
            archive.writestr(name, "x = 1\n")
        if manifest is not None:
            archive.writestr(MANIFEST_NAME, manifest)
    return path


def manifest(**model):
    return json.dumps({"runtime": "python", "model": {**MODEL, **model}})


BAD = [
    (None, f"the archive has no {MANIFEST_NAME}"),
    (" " * (MAX_BYTES + 1), f"the manifest has {MAX_BYTES + 1} bytes; the maximum is {MAX_BYTES}"),
    (manifest(configFile="../../etc/passwd"), "model.configFile points outside the archive: '../../etc/passwd'"),
    (manifest(serializedFile="/etc/passwd"), "model.serializedFile points outside the archive: '/etc/passwd'"),
    (manifest(modelFile="a\\..\\model.py"), "model.modelFile points outside the archive: 'a\\\\..\\\\model.py'"),
    (manifest(serializedFile="w\x00.pt"), "model.serializedFile points outside the archive: 'w\\x00.pt'"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "sentence"), BAD, ids=[str(number) for number in range(len(BAD))])
def test_a_bad_manifest_is_refused_before_anything_is_written(tmp_path, text, sentence):
    path = made(tmp_path / "m.mar", text)
    with open_archive(path, cache=Cache(tmp_path / "cache")) as archive, pytest.raises(ManifestError) as caught:
        archive.materialize()
    assert caught.value.what == sentence
    assert caught.value.where.startswith(str(path))
    assert caught.value.exit_code is ExitCode.ARCHIVE
    assert not (tmp_path / "cache").exists()


MISSING = [
    (manifest(serializedFile="w.pt"), "model.serializedFile points at 'w.pt', which is not in the archive"),
    (manifest(handler="gone.py"), "model.handler points at 'gone.py', which is not in the archive"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "sentence"), MISSING, ids=[str(number) for number in range(len(MISSING))])
def test_a_file_that_is_not_there_is_refused_by_all_but_running(tmp_path, text, sentence):
    path = made(tmp_path / "m.mar", text)
    with open_archive(path, cache=Cache(tmp_path / "cache")) as archive:
        for refuses in (lambda: unpack(archive, tmp_path / "out"), lambda: inspect(archive)):
            with pytest.raises(ManifestError) as caught:
                refuses()
            assert caught.value.what == sentence
            assert caught.value.exit_code is ExitCode.ARCHIVE
        assert not (tmp_path / "out").exists()
        assert archive.materialize().is_dir()  # the server serves it, if the handler never opens the file


GOOD = [
    manifest(handler="/home/me/h.py"),
    json.dumps({"model": MODEL}),
    json.dumps({"runtime": "PYTHON", "model": MODEL}),
    manifest(),
    manifest(handler="h.py:run"),
    manifest(handler="package/h.py"),  # the server imports the base name
    manifest(handler="image_classifier"),
    manifest(handler="h:run"),
    manifest(serializedFile="w.pt", modelFile="model.py", requirementsFile="r.txt", configFile="c.yaml"),
    manifest(serializedFile=None, configFile=""),
]


@pytest.mark.parametrize("text", GOOD)
def test_what_the_manifest_may_point_at(tmp_path, text):
    path = made(tmp_path / "m.mar", text, ["h.py", "w.pt", "model.py", "r.txt", "c.yaml"])
    with open_archive(path, cache=Cache(tmp_path / "cache")) as archive:
        assert archive.manifest.model.name == "m"
