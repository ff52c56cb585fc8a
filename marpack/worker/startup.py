"""What a handler finds around it, as in the server's worker: search path, environment, modules that are there already.

On the server the model folder is on PYTHONPATH when the worker's Python starts. A module in it that is called as one of
those that the worker itself imports takes its place, and nearly always no worker comes up; any other is found instead
of a library's. Here the worker is up already: the first is tried in a Python of its own, the second made room for.
"""

import importlib
import os
import socket
import sys
from collections.abc import Callable, Iterable, Mapping
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

from marpack.protocol.diagnostics import attempt, note
from marpack.torchserve.model_config import Torchrun
from marpack.torchserve.stock import COMPILED, UNREACHABLE, HandlerName, breaks_worker, is_standard
from marpack.torchserve.ts import children
from marpack.worker.trouble import message_of

_ENVIRONMENT = {"TS_DECODE_INPUT_REQUEST": "true", "TS_IPEX_ENABLE": "false", "TS_IPEX_GPU_ENABLE": "false"}
# What the server's worker imports itself (all else that it loads comes along), and uses before it loads a handler.
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

    hint = "rename the file, and the imports of it"


def prepare(model_dir: str, handler: str, *, with_ts: bool) -> None:
    """Put the model folder first on this process's search path, and on that of every Python it starts.

    Args:
        model_dir: The folder.
        handler: As the manifest names it: of `folder/file.py:function`, the folder comes even before.
        with_ts: Whether those Pythons need marpack's `ts`.

    Raises ShadowingError where no worker of the server's would start.
    """
    _set_server_environment()
    places = _places(Path(model_dir), handler)
    packed = _names_in(places)
    before = os.environ.get("PYTHONPATH")
    _set_path(*places, before)
    shadowing = set(filter(_shadows, packed))
    if shadowing:
        _try_start(shadowing, model_dir, before)
    _make_room(packed)
    _leave_no_bytecode(model_dir)
    sys.path[:0] = places
    if "sitecustomize" in packed:  # which a Python runs when it starts
        sys.modules.pop("sitecustomize", None)
        failure = attempt(lambda: importlib.import_module("sitecustomize"))
        if isinstance(failure, Exception):  # no Python ends of it
            what = f"sitecustomize.py fails: {type(failure).__name__}: {message_of(failure)}"
            note("sitecustomize", what, stage="import", hint="mend it: the server's worker goes on without it, too")
    if with_ts:
        _set_path(os.environ.get("PYTHONPATH"), children.FOLDER)
        sys.path.append(children.FOLDER)
    for package, modules in _ALONG.items():
        _bring_along(importlib.import_module(package), modules)


def _set_server_environment() -> None:
    """Set what the server's workers are started with."""
    temporary = os.environ.get("TMPDIR", "/tmp")  # noqa: S108 - only named, as on the server
    folders = dict.fromkeys(("TEMP", "LOG_LOCATION", "METRICS_LOCATION"), temporary)
    for name, value in (_ENVIRONMENT | folders).items():
        os.environ.setdefault(name, value)
    config = str(Path(temporary) / "metrics.yaml")
    address = str(Path(temporary) / ".ts.sock.9000")
    sys.argv[:] = [
        "model_service_worker.py", "--sock-type", "unix", "--sock-name", address, "--metrics-config", config,
    ]  # fmt: skip


def _places(folder: Path, handler: str) -> list[str]:
    inner = HandlerName.parse(handler).folder
    above = [str(folder.resolve().parent)] if folder.is_symlink() else []
    return [*([] if inner is None else [str(folder / inner)]), str(folder), *above]


def _set_path(*places: str | None) -> None:
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, places))


def _bring_along(package: ModuleType, modules: Iterable[str]) -> None:
    """Bind a package's modules as soon as somebody asks for them."""

    def imported(name: str) -> ModuleType:
        if name not in modules:
            raise AttributeError(f"module {package.__name__!r} has no attribute {name!r}")
        return importlib.import_module(f"{package.__name__}.{name}")

    ask: Callable[[str], ModuleType] = imported
    vars(package).setdefault("__getattr__", ask)


def set_torchrun_environment(config: Mapping[str, Any], model: str) -> None:  # Any: YAML as it stands
    """Set the environment that torchrun gives to a single process, if the server starts this model with torchrun.

    `runner.session` refuses models of several processes before they are loaded.
    """
    if Torchrun.of(config) is None:
        return
    ranks = dict.fromkeys(("RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK"), "0")
    sizes = dict.fromkeys(("WORLD_SIZE", "LOCAL_WORLD_SIZE", "ROLE_WORLD_SIZE", "GROUP_WORLD_SIZE"), "1")
    others = {
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": str(_free_port()),
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "1",
        "TORCHELASTIC_RUN_ID": f"{model}_29500",
        "TORCHELASTIC_USE_AGENT_STORE": "True",
    }
    os.environ |= ranks | sizes | others
    os.environ.setdefault("OMP_NUM_THREADS", "1")


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port


def _shadows(name: str) -> bool:
    """Say whether the server's worker may not come up with a module of this name in the model folder."""
    if name in UNREACHABLE or name in sys.builtin_module_names:
        return False
    private = name.startswith("_") and is_standard(name)
    return private or breaks_worker(name) or name in COMPILED or name in _TORCH_WANTS


def _names_in(places: Iterable[str]) -> set[str]:
    """Return what can be imported from folders."""
    names = set()
    for place in places:
        try:
            inside = list(os.scandir(place))
        except OSError:
            continue
        names |= {entry.name.partition(".")[0] for entry in inside if entry.name.endswith((".py", ".so"))}
        names |= {entry.name for entry in inside if entry.is_dir() and Path(entry.path, "__init__.py").is_file()}
    return names


def _try_start(shadowing: Iterable[str], model_dir: str, path: str | None) -> None:
    """Raise ShadowingError if what the server's worker imports fails with the archive's modules, and only with them."""
    said = _start_fails(model_dir, os.environ["PYTHONPATH"])
    if said and not _start_fails("/", path or ""):
        names = ", ".join(sorted(shadowing))
        raise ShadowingError(f"the server's worker finds the archive's {names} in place of its own, and dies: {said}")


def _start_fails(folder: str, path: str) -> str:
    """Return the last that a Python says that dies of the worker's imports; nothing if it lives."""
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
    if not done.returncode:
        return ""
    return (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]


def _leave_no_bytecode(model_dir: str) -> None:
    """Have no import write into the model folder: the next session begins with what is packed, and nothing compiled."""
    below = os.path.realpath(model_dir) + os.sep
    write = SourceFileLoader.set_data

    def set_data(self: SourceFileLoader, path: str, data: bytes, *, _mode: int = 0o666) -> None:
        if not os.path.realpath(path).startswith(below):
            write(self, path, data, _mode=_mode)

    SourceFileLoader.set_data = set_data  # type: ignore[assignment,method-assign]  # takes bytes only, as it gets


def _make_room(packed: set[str]) -> None:
    """Forget modules that this process has loaded and the archive has its own of."""
    kept = {"marpack", "__main__", *UNREACHABLE, *sys.builtin_module_names}
    taken = {name for name in packed if name in sys.modules and name not in kept}
    for module in [module for module in sys.modules if module.partition(".")[0] in taken]:
        del sys.modules[module]
