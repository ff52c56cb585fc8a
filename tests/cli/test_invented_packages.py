"""No command suggests to install a package whose name it made from a module's: anyone could publish it."""

import json
import re
from pathlib import Path

import pytest
from cli.running import marpack

NAME = "zz_invented_pkg"
HANDLER = f"import {NAME}\nfrom {NAME}.models import Net\n\n\ndef handle(data, context):\n    return data\n"
DEFERRED = f"def handle(data, context):\n    import {NAME}.inner\n    return data\n"
INSTALLING = re.compile(r"pip[ \n]+install[^\n]*(zz.invented|vllm.handler)|zz-invented|vllm-handler|list zz.invented")
PROJECTS: dict[str, dict[str, str]] = {
    "at the top": {"handler.py": HANDLER},
    "in a call": {"handler.py": DEFERRED},
    "with a package of the author's": {"handler.py": HANDLER, "__init__.py": "", "models/__init__.py": ""},
    "with requirements": {"handler.py": HANDLER, "requirements.txt": "zz-other\n"},
}


def project(folder: Path, files: dict[str, str], handler: str = "handler.py") -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    keys = "requirements: requirements.txt\n" if "requirements.txt" in files else ""
    keys += "files: [__init__.py, models]\n" if "__init__.py" in files else ""
    keys += "config: {asyncCommunication: true}\n" if handler == "vllm_handler" else ""
    (folder / "marpack.yaml").write_text(f"name: tiny\nversion: '1'\nhandler: {handler}\n{keys}")
    return folder


@pytest.mark.parametrize("name", PROJECTS)
def test_reading_suggests_no_invented_package(name: str, tmp_path: Path) -> None:
    folder = project(tmp_path, PROJECTS[name])
    for command in ("build", "inspect"):
        done = marpack(command, ".", cwd=folder)
        assert NAME in done.stdout + done.stderr
        assert not INSTALLING.search(done.stdout + done.stderr)


def test_running_suggests_no_invented_package(tmp_path: Path) -> None:
    folder = project(tmp_path, PROJECTS["with a package of the author's"])
    for words in (["run", ".", "--data", "1"], ["check", "."]):
        done = marpack(*words, cwd=folder, code=4)
        assert NAME in done.stdout + done.stderr
        assert not INSTALLING.search(done.stdout + done.stderr)


def test_a_servers_handler_without_its_engine_is_told_as_what_it_is(tmp_path: Path) -> None:
    done = marpack("check", "--json", cwd=project(tmp_path, {}, "vllm_handler"), code=1)
    text = done.stdout + done.stderr
    assert not INSTALLING.search(text)
    assert "needs vLLM" in " ".join(text.split())
    assert '"lacking-here"' in text
    assert json.loads(done.stdout)["verdict"] == "not-proved"
