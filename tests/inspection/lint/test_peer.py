"""The server's own loader, asked anew: the verdicts are those recorded, its modules those written down."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from conformance.peer import require_peer
from inspection.lint.verdicts import CASES, Verdicts, ask, recorded

from marpack.torchserve import server_modules
from marpack.torchserve.server_modules import LOADED, SERVER_LOADED, UNREACHABLE

pytestmark = [pytest.mark.peer, pytest.mark.slow]


@pytest.fixture(scope="module")
def peer() -> Path:
    return require_peer()


@pytest.fixture(scope="module")
def verdicts(peer: Path, tmp_path_factory: pytest.TempPathFactory) -> Verdicts:
    return ask(peer, tmp_path_factory.mktemp("folders"))


def test_the_recorded_verdicts_still_hold(verdicts: Verdicts) -> None:
    kept = recorded()
    assert [case.name for case in CASES if verdicts[case.name] != kept[case.name]] == []


LOADED_BY_WORKER = """
import sys
import ts.model_service_worker
def origin(name):
    return getattr(getattr(sys.modules[name], "__spec__", None), "origin", None)
tops = {name for name in sys.modules if "." not in name}
print(" ".join(name for name in tops if origin(name) not in (None, "built-in", "frozen")))
print(" ".join(tops))
"""


def _says(program: str, folder: Path, peer: Path) -> list[str]:
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    done = subprocess.run([peer / "python", "-c", program], env=environment, cwd=folder, text=True, capture_output=True)
    return done.stdout.splitlines() if done.returncode == 0 else []


def test_the_worker_loads_what_shadowing_would_break(peer: Path, tmp_path: Path) -> None:
    from_files, loaded = (set(line.split()) for line in _says(LOADED_BY_WORKER, tmp_path, peer))
    assert from_files >= LOADED | SERVER_LOADED
    assert loaded >= UNREACHABLE - {"genericpath", "ntpath", "runpy", "pwd", "faulthandler", "gc", "encodings"}


@pytest.mark.parametrize("name", ["types.py", "json/__init__.py", "random.py", "yaml.py", "ts.py"])
def test_a_shadowed_module_breaks_the_worker(name: str, peer: Path, tmp_path: Path) -> None:
    assert _says(LOADED_BY_WORKER, tmp_path, peer)
    tmp_path.joinpath(name).parent.mkdir(exist_ok=True)
    tmp_path.joinpath(name).write_text("")
    assert not _says(LOADED_BY_WORKER, tmp_path, peer)


NAMES_OF_TS = """
import contextlib, importlib, io, json, sys
rows = {}
for name in json.loads(sys.argv[1]):
    with contextlib.suppress(ImportError), contextlib.redirect_stdout(io.StringIO()):
        rows[name] = sorted(n for n in dir(importlib.import_module(name)) if not n.startswith("__"))
print(json.dumps(rows))
"""


def test_the_servers_names_are_what_it_has(peer: Path) -> None:
    modules = list(server_modules.modules())
    done = subprocess.run(
        [peer / "python", "-c", NAMES_OF_TS, json.dumps(modules)], text=True, capture_output=True, check=True
    )
    rows = json.loads(done.stdout.splitlines()[-1])
    assert len(rows) > 40
    for module, names in rows.items():
        assert set(names) <= server_modules.names_of(module), module
