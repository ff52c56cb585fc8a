"""`marpack.archiver` in place of torch-model-archiver: its functions, its arguments and its exit codes."""

import json
import subprocess
import sys
import zipfile
from argparse import Namespace
from pathlib import Path

import pytest
from conformance.peer import require_peer

from marpack.archiver import generate_model_archive, package_model, parse_arguments
from marpack.errors import MarpackError

HANDLER = "def handle(data, context):\n    return data\n"
WORDS = ["--model-name", "m", "--handler", "handler.py", "-v", "1.0"]


@pytest.fixture(autouse=True)
def workshop(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("handler.py").write_text(HANDLER)
    Path("extra.txt").write_text("x")
    return tmp_path


def manifest():
    with zipfile.ZipFile("m.mar") as archive:
        return json.loads(archive.read("MAR-INF/MANIFEST.json"))


def test_the_arguments_of_the_original_are_parsed():
    found = parse_arguments(
        [*WORDS, "--extra-files", "extra.txt", "--archive-format", "zip-store", "-f", "--runt=python3"]
    )
    assert (found.model_name, found.version, found.extra_files) == ("m", "1.0", "extra.txt")
    assert (found.force, found.archive_format, found.runtime, found.export_path) == (True, "zip-store", "python3", None)


@pytest.mark.parametrize("words", [[], WORDS[2:], [*WORDS, "--runtime", "java"], [*WORDS, "--unknown"]])
def test_unknown_and_missing_arguments_exit_with_2(words, capsys):
    with pytest.raises(SystemExit) as end:
        parse_arguments(words)
    assert end.value.code == 2
    assert "usage: torch-model-archiver" in capsys.readouterr().err


def test_functions_write_an_archive():
    generate_model_archive(parse_arguments([*WORDS, "--extra-files", "extra.txt"]))
    assert manifest()["model"] == {"modelName": "m", "handler": "handler.py", "modelVersion": "1.0"}
    with pytest.raises(MarpackError):
        generate_model_archive(parse_arguments(WORDS))  # it exists
    own = json.dumps({"runtime": "python", "model": {"modelName": "m", "handler": "handler.py", "mine": 1}})
    package_model(Namespace(model_name="m", handler="handler.py", version="1.0", force=True), own)
    assert manifest()["model"] == {"modelName": "m", "handler": "handler.py", "mine": 1}


def test_the_module_s_exit_codes(workshop):
    def run(*words):
        return subprocess.run([sys.executable, "-m", "marpack.archiver", *words], capture_output=True, text=True)

    assert run(*WORDS).returncode == 0
    again = run(*WORDS)
    assert (again.returncode, "m.mar" in again.stderr, "Traceback" in again.stderr) == (1, True, False)
    assert run(*WORDS, "--force", "--serialized-file", "missing.pt").returncode == 1
    assert run("--model-name", "m").returncode == 2


ENDS = {
    "help": ["--help"],
    "archive": WORDS,
    "abbreviated": ["--model-n", "m", "--handl=handler.py", "-v1"],
    "no handler": ["--model-name", "m", "-v", "1.0"],
    "no version": ["--model-name", "m", "--handler", "handler.py"],
    "unknown option": [*WORDS, "--unknown", "1"],
    "unknown format": [*WORDS, "--archive-format", "rar"],
    "unknown runtime": [*WORDS, "--runtime", "java"],
    "invalid name": ["--model-name", "m m", *WORDS[2:]],
    "no such handler": [*WORDS[:2], "--handler", "nothing.py", "-v", "1"],
    "no such weights": [*WORDS, "--serialized-file", "nothing.pt"],
    "no such requirements": [*WORDS, "-r", "nothing.txt"],
    "existing archive": [*WORDS, "--export-path", "there"],
    "replaced archive": [*WORDS, "--export-path", "there", "--force"],
    "folder": [*WORDS, "--archive-format", "no-archive"],
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ENDS)
def test_exit_codes_are_the_original_s(workshop, name):
    original = [str(require_peer() / "torch-model-archiver")]
    codes = []
    for number, command in enumerate((original, [sys.executable, "-m", "marpack.archiver"])):
        folder = workshop / str(number)
        (folder / "there").mkdir(parents=True)
        (folder / "there/m.mar").write_bytes(b"")
        (folder / "handler.py").write_text(HANDLER)
        codes.append(subprocess.run([*command, *ENDS[name]], cwd=folder, capture_output=True).returncode)
    assert codes[0] == codes[1]
