"""The surroundings of a handler, as in the server's worker: search path, environment, loaded modules.

On the server the model folder is on PYTHONPATH when the worker's Python starts. A packed module with the name of one
that the worker imports replaces it, and nearly always the worker does not start: marpack tries these in another Python.
Other packed modules replace a library's: marpack forgets the loaded one.
"""

import importlib
import os
import socket
import sys
from collections.abc import Iterable, Mapping
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

from marpack.protocol.messages import attempt, note
from marpack.torchserve.model_config import Torchrun
from marpack.torchserve.server_modules import COMPILED, UNREACHABLE, HandlerName, breaks_worker, is_standard
from marpack.worker import ts_names
from marpack.worker.trouble import message_of

_ENVIRONMENT = {"TS_DECODE_INPUT_REQUEST": "true", "TS_IPEX_ENABLE": "false", "TS_IPEX_GPU_ENABLE": "false"}
# The imports of the server's worker, which load everything else, and the names that it uses at once.
_TRIAL = (
    "import argparse, asyncio, ast, json, logging, os, platform, socket, struct, uuid, psutil, yaml, torch; "
    "argparse.ArgumentParser, asyncio.Queue, json.load, logging.getLogger, os.path.join, platform.system, "
    "socket.socket, struct.pack, uuid.uuid4, yaml.YAMLError"
)
_TORCH_WANTS = frozenset({"torch", "torchgen", "typing_extensions", "cuda"})
# Of the modules that come along with torch, those that handlers use having imported only the package.
_ALONG = {
    "concurrent": ("futures",),
    "email": ("errors", "header", "message", "parser", "utils"),
    "importlib": ("metadata",),
    "urllib": ("error", "request", "response"),
}


class ShadowingError(Exception):
    """A packed module keeps the server's worker from starting."""

    hint = "Rename the file and change its imports."


def prepare(model_dir: str, handler: str, *, with_ts: bool) -> None:
    """Put the model folder first on this process's search path, and on that of every Python it starts.

    The folder of a handler `folder/file.py:function` comes before it. `with_ts`: those Pythons get marpack's `ts`.
    Raises ShadowingError where no worker of the server's would start.
    """
    temporary = os.environ.get("TMPDIR", "/tmp")  # noqa: S108 - only named, as on the server
    folders = dict.fromkeys(("TEMP", "LOG_LOCATION", "METRICS_LOCATION"), temporary)
    for name, value in (_ENVIRONMENT | folders).items():
        os.environ.setdefault(name, value)
    sys.argv[:] = ["model_service_worker.py", "--sock-type", "unix", "--sock-name", f"{temporary}/.ts.sock.9000"]
    sys.argv += ["--metrics-config", f"{temporary}/metrics.yaml"]
    folder, inner = Path(model_dir), HandlerName.parse(handler).folder
    places = [str(folder)] if inner is None else [str(folder / inner), str(folder)]
    if folder.is_symlink():
        places.append(str(folder.resolve().parent))
    inside = [entry for place in filter(os.path.isdir, places) for entry in os.scandir(place)]
    packed = {entry.name.partition(".")[0] for entry in inside if entry.name.endswith((".py", ".so"))}
    packed |= {entry.name for entry in inside if entry.is_dir() and Path(entry.path, "__init__.py").is_file()}
    before = os.environ.get("PYTHONPATH")
    _set_path(*places, before)
    if shadowing := sorted(filter(_may_break_worker, packed)):
        failure = _try_imports(model_dir, os.environ["PYTHONPATH"])
        if failure and not _try_imports("/", before or ""):
            names = ", ".join(shadowing)
            raise ShadowingError(
                f"the server's worker imports the archive's {names} instead of its own module, and fails: {failure}"
            )
    # Forget modules that this process has loaded and the archive replaces.
    kept = {"marpack", "__main__", *UNREACHABLE, *sys.builtin_module_names}
    for module in [module for module in sys.modules if (top := module.partition(".")[0]) in packed and top not in kept]:
        del sys.modules[module]
    _leave_no_bytecode(model_dir)
    sys.path[:0] = places
    if "sitecustomize" in packed:  # which a Python runs when it starts
        sys.modules.pop("sitecustomize", None)
        error = attempt(lambda: importlib.import_module("sitecustomize"))
        if isinstance(error, Exception):  # no Python ends of it
            what = f"sitecustomize.py fails: {type(error).__name__}: {message_of(error)}"
            note("sitecustomize", what, stage="import", hint="Fix the file. The server's worker ignores it and starts.")
    if with_ts:
        _set_path(os.environ.get("PYTHONPATH"), ts_names.FOLDER)
        sys.path.append(ts_names.FOLDER)
    for name, modules in _ALONG.items():
        _import_on_demand(importlib.import_module(name), modules)


def _set_path(*places: str | None) -> None:
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, places))


def _may_break_worker(name: str) -> bool:
    """Return whether the server's worker may not start with a module of this name in the model folder."""
    if name in UNREACHABLE or name in sys.builtin_module_names:
        return False
    private = name.startswith("_") and is_standard(name)
    return private or breaks_worker(name) or name in COMPILED or name in _TORCH_WANTS


def _try_imports(folder: str, path: str) -> str:
    """Return the last line of a Python that the worker's imports end; an empty string if they succeed."""
    import subprocess  # noqa: PLC0415 - few archives need it

    done = subprocess.run(  # noqa: S603 - our own interpreter, and the archive's modules, as on the server
        [sys.executable, "-c", _TRIAL],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    return (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1] if done.returncode else ""


def _leave_no_bytecode(model_dir: str) -> None:
    """Let no import write into the model folder: the next session begins with the packed files alone."""
    below = os.path.realpath(model_dir) + os.sep
    write = SourceFileLoader.set_data

    def set_data(self: SourceFileLoader, path: str, data: bytes, *, _mode: int = 0o666) -> None:
        if not os.path.realpath(path).startswith(below):
            write(self, path, data, _mode=_mode)

    SourceFileLoader.set_data = set_data  # type: ignore[assignment,method-assign]  # takes bytes only, as it gets


def _import_on_demand(package: ModuleType, modules: Iterable[str]) -> None:
    """Bind a package's modules when they are first read."""

    def read(name: str) -> ModuleType:
        if name not in modules:
            raise AttributeError(f"module {package.__name__!r} has no attribute {name!r}")
        return importlib.import_module(f"{package.__name__}.{name}")

    vars(package).setdefault("__getattr__", read)


def set_torchrun_environment(config: Mapping[str, Any], model: str) -> None:  # Any: YAML as it stands
    """Set the environment that torchrun gives to a single process, if the server starts this model with torchrun."""
    if Torchrun.of(config) is None:
        return
    with socket.create_server(("127.0.0.1", 0)) as server:
        free_port = server.getsockname()[1]
    os.environ |= dict.fromkeys(("RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK"), "0")
    os.environ |= dict.fromkeys(("WORLD_SIZE", "LOCAL_WORLD_SIZE", "ROLE_WORLD_SIZE", "GROUP_WORLD_SIZE"), "1")
    os.environ |= {
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": str(free_port),
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "1",
        "TORCHELASTIC_RUN_ID": f"{model}_29500",
        "TORCHELASTIC_USE_AGENT_STORE": "True",
    }
    os.environ.setdefault("OMP_NUM_THREADS", "1")
