"""torch.compile with the options of `pt2`, and its later reports (contract §6)."""

import importlib
import time
from typing import Any

import torch

from marpack.errors import HandlerError, first_line
from marpack.torchserve.entry_point import PT2Backend, check_valid_pt2_backend
from marpack.torchserve.model_config import find_program_option
from marpack.worker.notes import add_timing, attempt, milliseconds_since, note

_started: list[float] = []
_seen: set[str] = set()
_SPELLING = "Write pt2: {compile: {enable: true, backend: inductor}}"
_PACKAGES = {"openvino": "openvino.torch", "tensorrt": "torch_tensorrt"}
_MAX_LENGTH = 300  # characters of torch's message; it may list every option of a backend
Options = dict[str, Any]  # Any: keyword arguments of torch.compile


class Pt2Error(HandlerError, ValueError):
    """The `pt2` section is neither a string nor a mapping; a ValueError, as on the server."""

    code = "pt2"


class CompileError(HandlerError):
    """The model cannot be compiled with the config's options; an error under target marpack only."""

    code = "compile"


def options_of(pt2: Any) -> Options | None:  # Any: YAML as it stands
    """Return the arguments for torch.compile in a `pt2` section, None if it does not compile.

    Raises Pt2Error for a list; as the server, TypeError for null or a number, KeyError for `compile` without `enable`.
    """
    try:
        if "compile" in pt2:
            section = pt2["compile"]
            if section["enable"] != True:  # noqa: E712 - as the server has it: 1 and 1.0 enable, "true" does not
                return None
            del section["enable"]  # from the config itself, where handlers read the rest
            return dict(section)
        if "export" in pt2:
            return None
    except (TypeError, KeyError, AttributeError) as error:
        message = f"the pt2 section cannot be read: {type(error).__name__}: {error}"
        note("pt2-unreadable", message, stage="initialize", hint=_SPELLING)
        raise
    if not isinstance(pt2, str | dict):
        raise Pt2Error(
            f"pt2 is a {type(pt2).__name__}, not a string or a mapping", where="model-config.yaml: pt2", hint=_SPELLING
        )
    return {"backend": pt2} if isinstance(pt2, str) else dict(pt2)


def compile_model(model: Any, options: Options, *, strict: bool) -> Any:  # Any: what a loader returned
    """Compile a model, at its first call; if torch refuses, raise CompileError if `strict`, otherwise note it."""
    backend: Any = options.get("backend")  # Any: YAML as it stands
    if "backend" in options and not check_valid_pt2_backend(backend):
        names = ", ".join(sorted(member.value for member in PT2Backend))
        return _skip(model, f"{backend} is not a backend that the server knows", f"Use one of {names}.", strict)
    if (name := find_program_option(options)) is not None:
        hint = f"Remove {name} from the options of pt2."
        return _skip(model, f"the option {name} of torch.compile can run a program", hint, strict)
    if package := _PACKAGES.get(str(backend)):  # its import registers the backend; the server imports every one
        try:
            importlib.import_module(package)
        except ImportError as error:
            message = f"the backend {backend} comes with the package {package.partition('.')[0]}: {error}"
            note(
                "backend-missing",
                message,
                stage="initialize",
                hint="Add the package to requirements.txt, or remove pt2.",
            )
    from torch._dynamo.callback import callback_handler  # noqa: PLC0415 - heavy, and only when something is compiled

    began = time.perf_counter()
    result: Any = attempt(lambda: torch.compile(model, **options))
    if not isinstance(result, Exception):
        add_timing("compile", milliseconds_since(began))
        if _begin not in callback_handler.start_callbacks:
            callback_handler.register_start_callback(_begin)
            callback_handler.register_end_callback(_end)
        return result
    if isinstance(model, torch.jit.ScriptModule):
        hint = "Pack a model file and a state_dict in place of TorchScript, or remove pt2."
    elif not callable(model):
        hint = "Remove pt2: torch.compile takes PyTorch models only."
    else:
        available = ", ".join(torch._dynamo.list_backends())  # noqa: SLF001 - documented, in a module of that name
        hint = f"Check the options of pt2 ({', '.join(map(str, options)) or 'none'}). Available backends: {available}."
    return _skip(model, f"torch.compile refuses the model: {first_line(result, _MAX_LENGTH)}", hint, strict)


def _skip(model: Any, reason: str, hint: str, strict: bool) -> Any:  # Any: as above
    """Return the model uncompiled, as the server does if torch.compile fails."""
    if strict:
        raise CompileError(reason, where="model-config.yaml: pt2", hint=hint)
    note("not-compiled", f"{reason}; the model runs uncompiled", stage="initialize", hint=hint)
    return model


def _begin(_args: object) -> None:
    _started.append(time.perf_counter())


def _end(_args: object) -> None:
    from torch._dynamo.utils import counters  # noqa: PLC0415 - as above

    if _started:
        add_timing("compile", milliseconds_since(_started.pop()))
    for reason in (reason for reason in counters["graph_break"] if reason not in _seen):
        _seen.add(reason)
        lines = reason.splitlines()
        hint = next((line.strip().removeprefix("Hint: ") for line in lines if "Hint:" in line), None)
        note("graph-break", f"torch.compile splits the graph: {lines[0]}", stage="inference", hint=hint)
