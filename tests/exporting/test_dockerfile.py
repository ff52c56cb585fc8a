"""What an image installs, and what its Dockerfile says; test_image.py does what it says."""

import re
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from exporting.exports import ECHO, MakeMar, exported

from marpack.version import __version__

TORCH = version("torch").partition("+")[0]
HASH = "0" * 64


def steps(folder: str) -> list[tuple[str, str]]:
    lines = Path(folder, "Dockerfile").read_text().splitlines()
    return [(step, rest) for step, _, rest in (line.partition(" ") for line in lines) if step != "#"]


@pytest.mark.parametrize(
    ("device", "torch", "index"),
    [("cpu", f"torch=={TORCH}+cpu", "https://download.pytorch.org/whl/cpu"), ("cuda", f"torch=={TORCH}", None)],
)
def test_torch_is_pinned_from_the_index_of_the_device(device: str, torch: str, index: str | None, make_mar: MakeMar):
    more = {"more.txt": "scipy ; python_version > '3'\n"}
    files = {"requirements.txt": "-r more.txt\nnumpy>=1 --hash=sha256:00 # why\n"} | more
    archive = make_mar(ECHO, files=files, requirementsFile="requirements.txt")
    done = exported(archive, "docker", device=device)
    lines = Path(done.folder, "requirements.txt").read_text().splitlines()
    assert lines[0] == torch
    assert set(lines[1:-1]) == {"numpy>=1", "scipy ; python_version > '3'"}
    assert lines[-1] == f"./marpack-{__version__}-py3-none-any.whl[serve]"
    text = Path(done.folder, "Dockerfile").read_text()
    assert (f"ARG TORCH_INDEX={index}" in text) == ("--extra-index-url" in text) == (index is not None)
    assert not Path(done.folder, "requirements.lock").exists()
    assert "requirements.lock" not in Path(done.folder, "README.md").read_text()
    assert "--require-hashes" not in text


def test_a_lock_is_given_back_as_it_is_and_the_image_installs_nothing_else(make_mar: MakeMar, tmp_path: Path):
    lock = f"# mine\ntorch=={TORCH}+cpu --hash=sha256:{HASH} --hash=sha256:{HASH}\n"
    (tmp_path / "lock").write_text(lock)
    done = exported(make_mar(ECHO), "docker", lock=tmp_path / "lock")
    assert Path(done.folder, "requirements.lock").read_text() == lock
    assert "requirements.lock" in Path(done.folder, "README.md").read_text()
    installs = [rest for step, rest in steps(done.folder) if step == "RUN" and "pip" in rest]
    assert ["--require-hashes -r requirements.lock" in installs[0], "--no-deps" in installs[1]] == [True, True]
    assert len(installs) == 2
    assert "export-requirements-unhashed" not in {finding.code for finding in done.findings}


def test_python_is_the_one_that_runs_here_and_the_server_is_not_root(make_mar: MakeMar):
    found = steps(exported(make_mar(ECHO), "docker").folder)
    assert found[0] == ("FROM", f"python:{sys.version_info.major}.{sys.version_info.minor}-slim")
    order = [step for step, _ in found]
    assert dict(found)["USER"] == "1000"
    assert order.index("USER") < order.index("ENTRYPOINT")
    assert not {"RUN", "COPY"} & set(order[order.index("USER") :])
    assert "--healthy" in dict(found)["HEALTHCHECK"]


@pytest.mark.parametrize("to", ["docker", "kserve", "sagemaker"])
def test_all_that_is_copied_is_there(to: str, make_mar: MakeMar):
    done = exported(make_mar(ECHO), to)
    assert [file.name for file in done.files if file.name.endswith(".mar")] == ["model/probe.mar"]
    folder = Path(done.folder, "" if to == "docker" else "image")
    copied = [name for step, rest in steps(str(folder)) if step == "COPY" for name in rest.split()[:-1]]
    assert copied
    assert all((folder / name).exists() for name in copied)
    assert ("model/" in copied) == (to == "docker")


def test_a_models_name_is_spelt_for_an_address(make_mar: MakeMar):
    command = exported(make_mar(ECHO, modelName="a/b c?"), "docker").commands[2]
    assert re.search(r"/predictions/a%2Fb%20c%3F -T FILE$", command)
