"""What the handler's process looks like; what the server's looks like is held by the probes of the same name."""

import importlib
import importlib.util
import os
import sys
from importlib.machinery import SourceFileLoader
from types import ModuleType

import pytest

from marpack.protocol import messages
from marpack.worker import startup
from marpack.worker.startup import ShadowingError, prepare, set_torchrun_environment


@pytest.fixture(autouse=True)
def _kept(monkeypatch: pytest.MonkeyPatch):
    """Undo what a worker never has to."""
    modules = dict(sys.modules)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "argv", [*sys.argv])
    monkeypatch.setattr(SourceFileLoader, "set_data", SourceFileLoader.set_data)
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


def test_imports_write_no_bytecode_into_the_model_folder(make_folder, tmp_path, monkeypatch):
    files = {"packed_one.py": "x = 1\n", "packed/__init__.py": "x = 2\n", "packed/by_path.py": "x = 3\n"}
    folder = make_folder("x = 1\n", files=files)
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "installed_one.py").write_text("x = 4\n")
    monkeypatch.setenv("PYTHONPATH", "")
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    prepare(str(folder), "handler.py", with_ts=False)
    sys.path.append(str(tmp_path / "lib"))
    assert importlib.import_module("packed_one").x == 1
    assert importlib.import_module("packed").x == 2
    assert importlib.import_module("installed_one").x == 4
    spec = importlib.util.spec_from_file_location("by_path", folder / "packed" / "by_path.py")
    spec.loader.exec_module(importlib.util.module_from_spec(spec))
    assert [path.parent.parent.name for path in tmp_path.rglob("*.pyc")] == ["lib"]


def test_a_sitecustomize_that_fails_is_noted(make_folder):
    folder = make_folder("x = 1\n", files={"sitecustomize.py": "raise KeyError('a')\n"})
    messages.drain_notes()
    prepare(str(folder), "handler.py", with_ts=False)
    assert [(each.kind, each.message) for each in messages.drain_notes()] == [
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


@pytest.mark.slow
def test_a_module_that_no_worker_comes_up_with_is_told(make_folder):
    with pytest.raises(ShadowingError, match=r"\brandom\b.* ImportError"):
        prepare(str(make_folder("x = 1\n", files={"random.py": "x = 1\n"})), "handler.py", with_ts=False)


def test_names_that_a_worker_may_stumble_over():
    harmless = {"builtins", "sys", "os", "helpers", "parser", "calendar", "_mine"}
    names = harmless | {"json", "_struct", "select", "yaml", "typing_extensions", "cuda"}
    assert {name for name in names if not startup._may_break_worker(name)} == harmless


def test_torchruns_first_process(monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    parallel = {"parallelType": "pp"}
    for config in ({}, {"torchrun": {"nproc-per-node": 1}}, parallel, parallel | {"torchrun": {"nproc-per-node": 0}}):
        set_torchrun_environment(config, "m")
    assert "WORLD_SIZE" not in os.environ
    set_torchrun_environment({"parallelType": "PP", "torchrun": {"nproc-per-node": 1}}, "m")
    assert [os.environ[name] for name in ("RANK", "WORLD_SIZE", "GROUP_WORLD_SIZE")] == ["0", "1", "1"]
    assert os.environ["TORCHELASTIC_RUN_ID"] == "m_29500"
