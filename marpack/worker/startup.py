"""The surroundings of a handler, as in the server's worker: search path, environment, loaded modules.

On the server the model folder is on PYTHONPATH when the worker's Python starts. A packed module with the name of one
that the worker imports replaces it, and the worker does not start: marpack refuses it. Other packed modules replace a
library's: marpack forgets the loaded one.
"""

import importlib
import os
import socket
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from marpack.torchserve.model_config import Torchrun
from marpack.torchserve.server_modules import SERVER_LOADED, SUBSTITUTABLE, UNREACHABLE, HandlerName, breaks_worker
from marpack.worker import ts_names
from marpack.worker.notes import attempt, note
from marpack.worker.trouble import message_of

_ENVIRONMENT = {"TS_DECODE_INPUT_REQUEST": "true", "TS_IPEX_ENABLE": "false", "TS_IPEX_GPU_ENABLE": "false"}
# Written in C and needed by the server's worker, whose Python has them in files.
_COMPILED = frozenset({"binascii", "math", "select"})
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
    packages = {entry.name for entry in inside if entry.is_dir() and Path(entry.path, "__init__.py").is_file()}
    packed = packages | {entry.name.partition(".")[0] for entry in inside if entry.name.endswith((".py", ".so"))}
    # A copy of a package, as `pip install -t` leaves it, does not break the worker.
    copies = (SUBSTITUTABLE - {Path(handler.partition(":")[0]).stem}) | (packages & SERVER_LOADED)
    if shadowing := sorted(name for name in packed - copies if breaks_worker(name) or name in _COMPILED):
        names = ", ".join(shadowing)
        raise ShadowingError(f"the server's worker imports the archive's {names} instead of its own module")
    _set_path(*places, os.environ.get("PYTHONPATH"))
    # Forget modules that this process has loaded and the archive replaces.
    kept = {"marpack", "__main__", *UNREACHABLE, *sys.builtin_module_names}
    for module in [module for module in sys.modules if (top := module.partition(".")[0]) in packed and top not in kept]:
        del sys.modules[module]
    sys.dont_write_bytecode = True  # the next session begins with the packed files alone
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
