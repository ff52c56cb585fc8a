"""Side by side with the original archiver: the same arguments, the same members, the same manifest.

`make peer` installs a `torch-model-archiver` 0.12, in a venv of its own.
"""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from conformance.peer import find_peer
from project.read_back import contents

from marpack.archive.protocol import INDEX_NAME, MANIFEST_NAME
from marpack.cli.main import marpack

_PEER = find_peer()

_BASE = ["--model-name", "m", "--version", "1.0"]
_CLASSIFIER = [*_BASE, "--handler", "image_classifier", "--serialized-file", "digits.pt"]
_CUSTOM = [*_BASE, "--handler", "handler.py", "--serialized-file", "digits.pt"]
_ALL = [
    "--model-name=m", "-v=2.1-rc", "--handler", "handler", "--serialized-file", "./state_dict.pt",
    "--model-file", "model.py", "-r", "requirements.txt", "-c", "conf/model-config.yaml",
    "--extra-files", "extras,more/,index_to_name.json,part[12].csv", "--runtime", "python",
]  # fmt: skip

ARGUMENT_SETS = {
    "built-in classifier": _CLASSIFIER,
    "built-in with labels": [*_CLASSIFIER, "--extra-files", "index_to_name.json"],
    "built-in base": [*_BASE, "--handler", "base_handler", "--serialized-file", "digits.pt"],
    "custom file": _CUSTOM,
    "custom without .py": [*_BASE, "--handler", "handler", "--serialized-file", "digits.pt"],
    "custom without weights": [*_BASE, "--handler", "functions.py"],
    "custom in a folder": [*_BASE, "--handler", "sub/nested_handler.py", "--serialized-file", "digits.pt"],
    "function": [*_BASE, "--handler", "functions:handle"],
    "another function": [*_BASE, "--handler", "functions:other"],
    "eager": [*_BASE, "--handler", "handler.py", "--model-file", "model.py", "--serialized-file", "state_dict.pt"],
    "eager in a folder": [*_BASE, "--handler", "handler.py", "--model-file", "sub/net.py", "--serialized-file",
                          "state_dict.pt"],
    "name with all it may have": ["--model-name", "0m_-.x", "-v", "3", "--handler", "functions.py"],
    "requirements": [*_CUSTOM, "--requirements-file", "requirements.txt"],
    "config": [*_CUSTOM, "--config-file", "conf/model-config.yaml"],
    "extra file in a folder": [*_CUSTOM, "--extra-files", "extras/nested/deep/c.txt"],
    "extra folder": [*_CUSTOM, "--extra-files", "extras"],
    "nested trees": [*_CUSTOM, "--extra-files", "extras,more"],
    "glob star": [*_CUSTOM, "--extra-files", "*.csv"],
    "glob class": [*_CUSTOM, "--extra-files", "part[13].csv"],
    "glob that matches folders": [*_CUSTOM, "--extra-files", "m*e"],
    "glob double star": [*_CUSTOM, "--extra-files", "extras/**/deep"],
    "glob without a match": [*_CUSTOM, "--extra-files", "*.nothing,part1.csv"],
    "spaces after commas": [*_CUSTOM, "--extra-files", "part1.csv, *.json, part[23].csv"],
    "the same file twice": [*_CUSTOM, "--extra-files", "digits.pt,handler.py,part1.csv"],
    "no extra files after all": [*_CUSTOM, "--extra-files", ""],
    "runtime python3": [*_CUSTOM, "--runtime", "python3"],
    "runtime LSP": [*_BASE, "--handler", "libdigits", "--serialized-file", "digits.pt", "--runtime", "LSP"],
    "runtime LSP, function": [*_BASE, "--handler", "libdigits:Digits", "--serialized-file", "digits.pt",
                              "--runtime", "LSP"],
    "runtime LSP, built-in": [*_BASE, "--handler", "TorchScriptHandler", "--serialized-file", "digits.pt",
                              "--runtime", "LSP"],
    "export path": [*_CUSTOM, "--export-path", "out"],
    "format default": [*_CUSTOM, "--archive-format", "default", "--extra-files", "extras"],
    "format zip-store": [*_CUSTOM, "--archive-format", "zip-store", "--extra-files", "extras"],
    "format tgz": [*_CUSTOM, "--archive-format", "tgz", "--extra-files", "extras"],
    "format no-archive": [*_CUSTOM, "--archive-format", "no-archive", "--extra-files", "extras"],
    "everything": _ALL,
    "everything, zip-store": [*_ALL, "--archive-format", "zip-store"],
    "everything, tgz": [*_ALL, "--archive-format=tgz"],
    "everything, no-archive": [*_ALL, "--archive-format", "no-archive"],
    "flags cut short": ["--model-n", "m", "--ver=1.0", "--handl", "handler.py", "--serial", "digits.pt",
                        "--extra", "*.csv"],
    "short flags with their values": ["--model-name", "m", "-v1.0", "--handler", "functions.py", "-rrequirements.txt",
                                      "-c=conf/model-config.yaml"],
    "force": [*_CUSTOM, "-f", "--force"],
}  # fmt: skip


needs_peer = pytest.mark.skipif(isinstance(_PEER, str), reason=f"no real TorchServe to compare with: {_PEER}")


# One run with a peer is enough for each change.
SETS = [
    pytest.param(words, id=name, marks=[] if name == "everything" else pytest.mark.slow)
    for name, words in ARGUMENT_SETS.items()
]


@pytest.mark.peer
@needs_peer
@pytest.mark.parametrize("arguments", SETS)
def test_same_arguments_make_the_same_archive(
    arguments: list[str], workshop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(workshop)
    Path("out").mkdir()
    run_peer(arguments, workshop)
    theirs = set_aside(workshop, "theirs")
    marpack.main(["build", *arguments], standalone_mode=False)
    ours = set_aside(workshop, "ours")

    assert ours.name == theirs.name
    assert ours.parent.name == theirs.parent.name
    assert content(ours) == content(theirs)


@pytest.mark.slow
@pytest.mark.peer
@needs_peer
def test_takes_the_spelling_that_only_the_server_takes(workshop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(workshop)
    run_peer([*_BASE, "--handler", "functions:other"], workshop)
    theirs, their_manifest = content(set_aside(workshop, "theirs"))
    marpack.main(["build", *_BASE, "--handler", "functions.py:other"], standalone_mode=False)
    ours, manifest = content(set_aside(workshop, "ours"))
    assert manifest["model"].pop("handler") == "functions.py:other"
    assert their_manifest["model"].pop("handler") == "functions:other"
    assert (ours, manifest) == (theirs, their_manifest)


def run_peer(arguments: list[str], folder: Path) -> None:
    scratch = folder.parent / "scratch"  # it deletes what it finds under the model's name there
    scratch.mkdir()
    command = [str(Path(_PEER) / "torch-model-archiver"), *arguments]
    subprocess.run(command, check=True, cwd=folder, env=os.environ | {"TMPDIR": str(scratch)}, capture_output=True)


def set_aside(workshop: Path, name: str) -> Path:
    """Move the one archive that was made out of the workshop."""
    candidates = [
        place / f"{model}{suffix}"
        for place in (workshop, workshop / "out")
        for model in ("m", "0m_-.x")
        for suffix in ("", ".mar", ".tar.gz")
    ]
    (made,) = [path for path in candidates if path.exists()]
    target = workshop.parent / name / made.parent.name / made.name
    target.parent.mkdir(parents=True)
    return made.rename(target)


def content(path: Path) -> tuple[dict[str, bytes], dict[str, Any]]:
    """Return the members and the manifest in which two archives of one model must agree."""
    members = contents(path)
    members.pop(INDEX_NAME, None)
    manifest = json.loads(members.pop(MANIFEST_NAME))
    manifest.pop("createdOn", None)
    manifest.pop("archiverVersion")
    return members, manifest
