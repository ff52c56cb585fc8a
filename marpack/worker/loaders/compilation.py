"""torch.compile as `pt2` asks for it, and what it does later (contract §6)."""

import importlib
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from marpack.errors import HandlerError, first_line
from marpack.protocol.diagnostics import add_timing, attempt, milliseconds_since, note
from marpack.torchserve.ts_util import PT2Backend, check_valid_pt2_backend

_started: list[float] = []
_seen: set[str] = set()
_SPELLING = "write pt2: {compile: {enable: true, backend: inductor}}"
_PACKAGES = {"openvino": "openvino.torch", "tensorrt": "torch_tensorrt"}
_MAX_LENGTH = 300  # characters of torch's message; it may list every option of a backend
Options = dict[str, Any]  # Any: keyword arguments of torch.compile


def watch() -> None:
    """Have torch tell when it compiles; compile time is then shown apart from inference. Asking twice is once."""
    from torch._dynamo.callback import callback_handler  # noqa: PLC0415 - heavy, and only when something is compiled

    if _begin not in callback_handler.start_callbacks:
        callback_handler.register_start_callback(_begin)
        callback_handler.register_end_callback(_end)


def _begin(_args: object) -> None:
    _started.append(time.perf_counter())


def _end(_args: object) -> None:
    if _started:
        add_timing("compile", milliseconds_since(_started.pop()))
    _note_breaks()


def _note_breaks() -> None:
    from torch._dynamo.utils import counters  # noqa: PLC0415 - as above

    for reason in counters["graph_break"]:
        if reason not in _seen:
            _seen.add(reason)
            what = reason.partition("\n")[0]
            hint = next((line.strip().removeprefix("Hint: ") for line in reason.splitlines() if "Hint:" in line), None)
            note("graph-break", f"torch.compile splits the graph: {what}", stage="inference", hint=hint)


class Pt2Error(HandlerError, ValueError):
    """The `pt2` section is neither text nor a mapping; a ValueError, as on the server."""

    code = "pt2"


class CompileError(HandlerError):
    """The model cannot be compiled as the config asks; only target marpack makes this an error."""

    code = "compile"


def options_of(pt2: Any) -> Options | None:  # Any: YAML as it stands
    """Return the arguments for torch.compile that a `pt2` section asks for, None if it asks for no compiling.

    Raises:
        Pt2Error: It is a list.
        TypeError: It is null or a number, as on the server.
        KeyError: `compile` has no `enable`, as on the server.

    """
    if "compile" in pt2:
        asked = pt2["compile"]
        if asked["enable"] != True:  # noqa: E712 - as the server has it: 1 and 1.0 enable, "true" does not
            return None
        del asked["enable"]  # from the config itself, where handlers read the rest
        return dict(asked)
    if "export" in pt2:
        return None
    if isinstance(pt2, str):
        return {"backend": pt2}
    if isinstance(pt2, dict):
        return dict(pt2)
    raise Pt2Error(f"pt2 is a {type(pt2).__name__}", where="model-config.yaml: pt2", hint=_SPELLING)


@contextmanager
def explained() -> Iterator[None]:
    """Note what the `pt2` section should look like, where reading it fails as it does on the server."""
    try:
        yield
    except (TypeError, KeyError, AttributeError) as error:
        message = f"the pt2 section cannot be read: {type(error).__name__}: {error}"
        note("pt2-unreadable", message, stage="initialize", hint=_SPELLING)
        raise


def compiled(model: Any, options: Options, *, strict: bool) -> Any:  # Any: whatever a loader returned
    """Compile a model; what the server would run uncompiled is noted and returned as it is, or raised if `strict`.

    torch compiles at the first call: what fails only then fails the request, on either target.
    """
    if "backend" in options and not check_valid_pt2_backend(options["backend"]):
        names = ", ".join(sorted(member.value for member in PT2Backend))
        return _uncompiled(model, f"{options['backend']} is not a backend the server knows", f"one of {names}", strict)
    _register(options.get("backend"))
    began = time.perf_counter()
    result: Any = attempt(lambda: torch.compile(model, **options))
    if isinstance(result, Exception):  # the server goes on whatever torch.compile raises
        what = f"torch.compile refuses: {first_line(result, _MAX_LENGTH)}"
        return _uncompiled(model, what, _way_out(model, options), strict)
    add_timing("compile", milliseconds_since(began))
    watch()
    return result


def _register(backend: object) -> None:
    """Import the package that brings a backend of its own, as the server does for every one it finds."""
    package = _PACKAGES.get(str(backend))
    if package is None:
        return
    try:
        importlib.import_module(package)
    except ImportError as error:
        message = f"the backend {backend} comes with the package {package.partition('.')[0]}: {error}"
        note("backend-missing", message, stage="initialize", hint="name it in requirements.txt, or drop pt2")


def _uncompiled(model: Any, reason: str, hint: str, strict: bool) -> Any:
    if strict:
        raise CompileError(reason, where="model-config.yaml: pt2", hint=hint)
    note("not-compiled", f"{reason}; the model runs uncompiled", stage="initialize", hint=hint)
    return model


def _way_out(model: Any, options: Options) -> str:
    if isinstance(model, torch.jit.ScriptModule):
        return "TorchScript cannot be compiled: pack model_file and a state_dict, or drop pt2"
    if not callable(model):
        return "torch.compile takes PyTorch models only: drop pt2"
    available = ", ".join(torch._dynamo.list_backends())  # noqa: SLF001 - torch documents it for this very question
    return f"check pt2's options ({', '.join(map(str, options)) or 'none'}); backends here: {available}"
