"""What the handler's process looks like; what the server's looks like is held by the probes of the same name."""

import importlib
import importlib.util
import os
import sys
from types import ModuleType

import pytest

from marpack.worker import notes
from marpack.worker.startup import ShadowingError, prepare, set_torchrun_environment


@pytest.fixture(autouse=True)
def _kept(monkeypatch: pytest.MonkeyPatch):
    """Undo what a worker never has to."""
    modules = dict(sys.modules)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "argv", [*sys.argv])
    monkeypatch.setattr(sys, "dont_write_bytecode", sys.dont_write_bytecode)
    environment = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(environment)
    sys.modules.update(modules)
    for package in {"concurrent", "email", "importlib", "urllib"} & sys.modules.keys():
        vars(sys.modules[package]).pop("__getattr__", None)


def test_the_model_folder_comes_first_for_this_python_and_its_children(make_folder, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "/mine")
    folder = str(make_folder("x = 1\n", files={"sub/file.py": "", "sub/beside.py": ""}))
    prepare(folder, "sub/file.py:go", with_ts=True)
    assert sys.path[:2] == [f"{folder}/sub", folder]
    places = os.environ["PYTHONPATH"].split(os.pathsep)
    assert places[:3] == [f"{folder}/sub", folder, "/mine"]
    assert places[3].endswith("worker/children")
    assert os.environ["TS_IPEX_ENABLE"] == "false"


def test_imports_write_no_bytecode_into_the_model_folder(make_folder, monkeypatch):
    files = {"packed_one.py": "x = 1\n", "packed/__init__.py": "x = 2\n", "packed/by_path.py": "x = 3\n"}
    folder = make_folder("x = 1\n", files=files)
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    prepare(str(folder), "handler.py", with_ts=False)
    assert importlib.import_module("packed_one").x == 1
    assert importlib.import_module("packed").x == 2
    spec = importlib.util.spec_from_file_location("by_path", folder / "packed" / "by_path.py")
    spec.loader.exec_module(importlib.util.module_from_spec(spec))
    assert not list(folder.rglob("*.pyc"))


def test_a_sitecustomize_that_fails_is_noted(make_folder):
    folder = make_folder("x = 1\n", files={"sitecustomize.py": "raise KeyError('a')\n"})
    notes.drain_notes()
    prepare(str(folder), "handler.py", with_ts=False)
    assert [(each.kind, each.message) for each in notes.drain_notes()] == [
        ("sitecustomize", "sitecustomize.py fails: KeyError: 'a'")
    ]


def test_packages_know_torchs_modules_and_a_module_of_the_archive_replaces_a_loaded_one(make_folder):
    import fractions
    import urllib

    folder = make_folder("x = 1\n", files={"fractions.py": "whose = 'mine'\n"})
    prepare(str(folder), "handler.py", with_ts=False)
    assert isinstance(urllib.request, ModuleType)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = urllib.nothing
    found = __import__("fractions")
    assert (found is fractions, found.whose) == (False, "mine")


@pytest.mark.parametrize(
    ("files", "handler"),
    [
        (["random.py", "json/__init__.py"], "handler.py"),
        (["select.cpython-311-x86_64-linux-gnu.so"], "handler.py"),
        (["numpy.py"], "handler.py"),
        (["uuid.py"], "uuid.py:handle"),  # not a copy of the package
        (["sub/queue.py"], "sub/handler.py:handle"),
    ],
    ids=str,
)
def test_a_module_that_replaces_one_of_the_workers_is_refused(make_folder, files: list[str], handler: str):
    folder = make_folder("x = 1\n", files=dict.fromkeys(files, ""))
    with pytest.raises(ShadowingError) as caught:
        prepare(str(folder), handler, with_ts=False)
    assert all(name.rpartition("sub/")[2].partition("/")[0].partition(".")[0] in str(caught.value) for name in files)
    assert str(folder) not in os.environ.get("PYTHONPATH", "")


def test_modules_that_the_worker_can_do_without_are_not_refused(make_folder):
    names = ("builtins.py", "helpers.py", "parser.py", "calendar.py", "resource.py", "_mine.py", "uuid.py")
    files = dict.fromkeys((*names, "numpy/__init__.py", "json/data.txt"), "")
    prepare(str(make_folder("x = 1\n", files=files)), "handler.py", with_ts=False)


def test_torchruns_first_process(monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    parallel = {"parallelType": "pp"}
    for config in ({}, {"torchrun": {"nproc-per-node": 1}}, parallel, parallel | {"torchrun": {"nproc-per-node": 0}}):
        set_torchrun_environment(config, "m")
    assert "WORLD_SIZE" not in os.environ
    set_torchrun_environment({"parallelType": "PP", "torchrun": {"nproc-per-node": 1}}, "m")
    assert [os.environ[name] for name in ("RANK", "WORLD_SIZE", "GROUP_WORLD_SIZE")] == ["0", "1", "1"]
    assert os.environ["TORCHELASTIC_RUN_ID"] == "m_29500"
