"""The container's entry: which archive it finds, and what it asks marpack serve for."""

import json
import os
import runpy
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from exporting.exports import ECHO, MakeMar, exported

Start = Callable[..., list[str]]
OURS = ("MODEL_FOLDERS", "MODEL_NAME", "PORT", "SAGEMAKER_BIND_TO_PORT")


@pytest.fixture
def start(make_mar: MakeMar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Start:
    """Return a function that starts a container's entry and returns the command that it becomes."""
    folder = Path(exported(make_mar(ECHO), "docker", device="cuda").folder)

    def start(*words: str, **environment: str) -> list[str]:
        become: list[list[str]] = []
        for name in OURS:
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("MODEL_FOLDERS", f"{tmp_path}/mnt:{tmp_path}/opt:{folder}/model")
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(os, "execv", lambda _, command: become.append(command))
        monkeypatch.setattr(sys, "argv", ["entrypoint.py", *words])
        runpy.run_path(str(folder / "entrypoint.py"), run_name="__main__")
        return become[0][4:]

    return start


FIXED = ["--host", "0.0.0.0", "--port", "8080", "--no-page", "--device", "cuda"]


def test_the_three_ways(start: Start, tmp_path: Path):
    ways = [
        ((), {}, [], ""),
        (("serve",), {}, [], ""),
        (("--model-name", "net"), {}, [], "net="),
        (("--model_name=net", "--envelope", "kserve"), {}, ["--envelope", "kserve"], "net="),
        ((), {"MODEL_NAME": "net"}, [], "net="),
        (("serve", "--workers", "2"), {}, ["--workers", "2"], ""),
    ]
    for words, environment, further, name in ways:
        assert start(*words, **environment) == [*FIXED, *further, f"{name}{tmp_path}/docker/model/probe.mar"]


def test_the_port(start: Start):
    both = {"PORT": "9001", "SAGEMAKER_BIND_TO_PORT": "9000"}
    ports = (({"SAGEMAKER_BIND_TO_PORT": "9000"}, "9000"), ({"PORT": "9001"}, "9001"), (both, "9000"))
    for environment, port in (*ports, ({"SAGEMAKER_BIND_TO_PORT": ""}, "8080")):
        assert start("serve", **environment)[3] == port


@pytest.mark.parametrize(
    ("made", "found"),
    [
        (["mnt/net.mar"], "mnt/net.mar"),
        (["opt/net.mar"], "opt/net.mar"),
        (["mnt/a.mar", "opt/b.mar"], "mnt/a.mar"),
        (["mnt/model-store/net.mar", "mnt/config/config.properties"], "mnt/model-store/net.mar"),
        (["opt/net.tar.gz", "opt/notes.txt"], "opt/net.tar.gz"),
        (["opt/MAR-INF/MANIFEST.json", "opt/other.mar"], "opt"),
        (["opt/net/MAR-INF/MANIFEST.json"], "opt/net"),
    ],
)
def test_the_first_folder_that_holds_an_archive_counts(made: list[str], found: str, start: Start, tmp_path: Path):
    for name in made:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(json.dumps({}))
    assert start()[-1] == str(tmp_path / found)


def test_two_archives_or_none_end_it_with_a_sentence(start: Start, tmp_path: Path):
    (tmp_path / "opt").mkdir()
    for name in ("a.mar", "b.mar"):
        (tmp_path / "opt" / name).write_text("")
    with pytest.raises(SystemExit, match=r"several archives: a\.mar, b\.mar"):
        start()
    with pytest.raises(SystemExit, match="no archive"):
        start(MODEL_FOLDERS=str(tmp_path / "nowhere"))


def test_a_server_that_is_not_there_is_not_healthy(start: Start):
    with pytest.raises(SystemExit) as end:
        start("--healthy", PORT="1")
    assert end.value.code == 1
