"""Weights files → models and state_dicts, format by format; code of a file runs only where the user trusts the file.

`python -m marpack.worker.loaders.formats SOURCE TARGET` writes a safetensors file as torch.save would, for the server.
"""

import importlib
import os
import pickle
import re
import sys
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import IO, Any

import torch
from torch.serialization import get_unsafe_globals_in_checkpoint

from marpack.archive.zip_format import LargeZipError, NotZipError
from marpack.errors import HandlerError, WeightsError, join_names
from marpack.torchserve.entry_point import list_classes_from_module
from marpack.weights.contents import TorchZip, script_problems
from marpack.weights.kind import WeightsFormat
from marpack.weights.tensors import ProtobufError, read_onnx
from marpack.worker.notes import Explained, note

_ZIP = b"PK\x03\x04"
_ZIP_END = 22 + 0xFFFF  # bytes that can contain the end record
_MAX_NAMES = 5  # of a pickle's globals in a note
_PREFIXES = ("module.", "_orig_mod.", "model.")  # DataParallel, torch.compile, Lightning
_NESTS = ("state_dict", "model_state_dict", "model")
_FORCE = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"
# Constants that torch unpickles without asking torch.load; it looks them up without regard to case.
_OBJECTS = re.compile(r"(?:^|/)data/constants/(?:opaque|custom)_obj", re.IGNORECASE)
# ONNX Runtime's names of element types → torch's
_DTYPES = {
    "tensor(float)": torch.float32, "tensor(double)": torch.float64, "tensor(float16)": torch.float16,
    "tensor(int64)": torch.int64, "tensor(int32)": torch.int32, "tensor(int16)": torch.int16,
    "tensor(int8)": torch.int8, "tensor(uint8)": torch.uint8, "tensor(bool)": torch.bool,
}  # fmt: skip


class ModelFileNeededError(WeightsError):
    """Tensors came without the class they belong to."""

    code = "model-file-needed"


class PackageNeedsCodeError(WeightsError):
    """A package holds constants or TorchScript that torch would run as code."""

    code = "package-needs-code"


class ModelInputError(HandlerError, TypeError):
    """An ONNX model is called with inputs that its graph does not declare."""

    code = "model-input"


class ModelFileMissingError(HandlerError, RuntimeError):
    """The manifest's model file is not in the archive; a RuntimeError, as on the server."""

    code = "model-file-missing"


class ModelClassError(HandlerError, ValueError):
    """The model file defines no class, or several; a ValueError, as on the server."""

    code = "model-class"


def load_model(kind: WeightsFormat, path: Path, device: torch.device, *, trust: bool = False) -> Any:  # Any: a model
    """Load a file that is a model by itself; `trust` allows it to run code. Raises WeightsError.

    TorchScript and AOTInductor libraries are loaded by BaseHandler's methods, which authors override.
    """
    match kind:
        case WeightsFormat.PICKLED_MODULE:
            return read_torch_save(str(path), device, trust=trust)
        case WeightsFormat.ONNX:
            return OnnxModel(open_session(str(path), device.type), device)
        case WeightsFormat.TORCH_EXPORT:
            with weights_only(path, trust=trust):
                program = torch.export.load(path)
            tensors = (*program.state_dict.values(), *program.constants.values())
            places = {tensor.device.type for tensor in tensors if isinstance(tensor, torch.Tensor)}
            if not places <= {device.type}:  # rare: most programs are exported on the CPU, and run there
                from torch.export.passes import move_to_device_pass  # noqa: PLC0415 - heavy, and only for programs

                program = move_to_device_pass(program, str(device))
            return program.module()
        case WeightsFormat.AOTI_PACKAGE:  # native code
            from torch._inductor import aoti_load_package  # noqa: PLC0415 - heavy; torch documents it by this name

            index = device.index if device.type == "cuda" else -1
            with weights_only(path, trust=trust):
                return aoti_load_package(str(path), device_index=index)
        case WeightsFormat.STATE_DICT | WeightsFormat.SAFETENSORS:
            what = "the weights are tensors only, and the manifest names no model file"
            hint = "Set model_file: to the file with the model's class, or save TorchScript."
            raise ModelFileNeededError(what, where=path.name, hint=hint)
        case _:
            what, code = "the format of the weights is unknown", "unknown-weights-format"
            hint = "Check that the file is complete, or save TorchScript, ONNX, torch.export or AOTInductor."
            raise WeightsError(what, where=path.name, hint=hint, code=code)


def load_eager(model_dir: str, model_file: str, read: Callable[[], Any] | None) -> Any:  # Any: the author's class
    """Construct the archive's one model class as the server does, and load into it the state_dict from `read`.

    Without `read`, the model keeps the values that its `__init__` sets. Raises ModelFileMissingError, ModelClassError,
    and the exceptions of the author's code and of torch.
    """
    if not (Path(model_dir) / model_file).is_file():
        hint = "Set modelFile to the name of a file in the archive's top folder."
        raise ModelFileMissingError(f"the model file {model_file} is not in the archive", hint=hint)
    found = list_classes_from_module(importlib.import_module(model_file.partition(".")[0]))
    if len(found) != 1:
        what = f"the server requires exactly one class here, and finds {', '.join(c.__name__ for c in found) or 'none'}"
        hint = "Keep only the model's class in this file, and import other classes from other files."
        raise ModelClassError(what, where=model_file, hint=hint)
    try:
        model = found[0]()
    except TypeError as error:
        hint = "Give every parameter of __init__ a default, or build the model in your handler's initialize."
        note("model-construct", f"{found[0].__name__}() failed: {error}", stage="initialize", hint=hint)
        raise
    if read is None:
        message = f"the manifest does not name weights, so {model_file} keeps the values of its __init__"
        note("no-weights", message, stage="initialize", hint="Set weights: in marpack.yaml, unless this is intended.")
    else:
        state = read()
        with Explained(partial(_note_misfit, model, state)):
            model.load_state_dict(state)
    return model


def _note_misfit(model: object, state: object, _: Exception) -> None:
    if not isinstance(state, Mapping):
        message = f"the weights hold a {type(state).__name__}, not a state_dict"
        note(
            "not-a-state-dict",
            message,
            stage="initialize",
            hint="Save the weights with torch.save(model.state_dict(), path).",
        )
    if not isinstance(state, Mapping) or not isinstance(model, torch.nn.Module):
        return
    wanted, given = (
        {str(name): list(getattr(tensor, "shape", ())) for name, tensor in tensors.items()}
        for tensors in (model.state_dict(), state)
    )
    wrong = [name for name in wanted if name in given and wanted[name] != given[name]]
    missing = [name for name in wanted if name not in given]
    unknown = [name for name in given if name not in wanted]
    shapes = [f"{name}: model {wanted[name]}, file {given[name]}" for name in wrong[:1]]
    parts = [f"{len(wrong)} of another shape ({each})" for each in shapes]
    parts += [f"{len(missing)} missing (first: {each})" for each in missing[:1]]
    parts += [f"{len(unknown)} unknown to the model (first: {each})" for each in unknown[:1]]
    nest = next((nest for nest in _NESTS if isinstance(state.get(nest), Mapping)), None)
    wrappers = [each for each in _PREFIXES if unknown and all(name.startswith(each) for name in unknown)]
    prefix = next((each for each in wrappers if unknown[0].removeprefix(each) in missing), None)
    hint = "Pack the model file that these weights were trained with."
    if nest is not None:
        hint = f'Save only the state_dict of this training checkpoint: torch.save(checkpoint["{nest}"], path)'
    elif prefix is not None:
        hint = f'Remove "{prefix}" from every name before saving: the model was wrapped when it was saved.'
    message = f"the state_dict does not fit the model: {', '.join(parts) or 'torch refuses it'}"
    note("state-dict-misfit", message, stage="initialize", hint=hint)


def load_torchscript(path: str, device: torch.device | str | None, *, trust: bool = False) -> torch.jit.ScriptModule:
    """Load a TorchScript file to a device; raises RuntimeError for anything else.

    Unless it is trusted, PackageNeedsCodeError for code that may do more than compute.
    """
    problem = None if trust else _find_script_problem(Path(path))
    if problem is not None:
        hint = "Remove the code from the model, or pass --trust-pickle if you trust the file as you trust code."
        raise PackageNeedsCodeError(problem[1], where=f"{Path(path).name}!{problem[0]}", hint=hint)
    module: torch.jit.ScriptModule = torch.jit.load(path, map_location=device)  # type: ignore[no-untyped-call]
    return module


def _find_script_problem(path: Path) -> tuple[str, str] | None:
    with suppress(OSError), path.open("rb") as file:  # torch cannot read it either, and says why
        try:
            return next(script_problems(TorchZip(file)), None)
        except (LargeZipError, NotZipError) as error:
            # torch may read a zip that marpack does not; without an end record, it is no zip.
            file.seek(max(0, os.fstat(file.fileno()).st_size - _ZIP_END))
            return ("", str(error)) if b"PK\5\6" in file.read() else None
    return None


def load_safetensors(path: Path, device: torch.device) -> dict[str, torch.Tensor]:
    """Return a safetensors file's tensors by name, mapped into memory; raises SafetensorError for a damaged file."""
    from safetensors.torch import load_file  # noqa: PLC0415 - only where there are safetensors to read

    tensors: dict[str, torch.Tensor] = load_file(path, device=str(device) if device.type != "xla" else "cpu")
    return tensors


def read_torch_save(
    path: str | os.PathLike[str] | IO[bytes], map_location: torch.device | str | None, *, trust: bool = False
) -> Any:
    """Load a torch.save file to a device with weights_only=True, mapped instead of read where its layout allows.

    `trust` runs the code that the pickle calls: the user trusts these very bytes. Otherwise raises UnpicklingError for
    a pickle that needs more than tensors, after noting the names that it imports.
    """
    if torch.device(map_location or "cpu").type == "xla":
        map_location = None  # as on the server: read where it was saved, and moved with the model
    with Explained(partial(_note_globals, path)):
        return torch.load(path, map_location=map_location, weights_only=not trust, mmap=is_mappable(path))


def is_mappable(path: object) -> bool:
    """Return whether a file is a zip for torch, and every record in it is stored as it is in memory."""
    if not isinstance(path, str | os.PathLike):
        return False
    with Path(path).open("rb") as file:
        begins_as_zip = file.read(len(_ZIP)) == _ZIP
    if not begins_as_zip or not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as archive:
        return all(record.compress_type == zipfile.ZIP_STORED for record in archive.infolist())


def _note_globals(path: object, error: Exception) -> None:
    if not isinstance(error, pickle.UnpicklingError) or not isinstance(path, str | os.PathLike):
        return
    try:
        names = sorted(get_unsafe_globals_in_checkpoint(path))
    except (RuntimeError, ValueError, pickle.UnpicklingError):  # not a zip, or not a pickle at all
        return
    if not names:
        return
    shown = join_names(names, _MAX_NAMES)
    message = f"{Path(path).name} is a pickle that imports and calls {shown}; weights_only=True refuses it"
    hint = "Save model.state_dict() instead, or pass --trust-pickle if you trust the file as you trust code."
    note("pickle-needs-code", message, stage="initialize", hint=hint)


@contextmanager
def weights_only(path: Path, *, trust: bool) -> Iterator[None]:
    """Restrict torch to weights_only=True while it opens a package, unless it is trusted; PackageNeedsCodeError."""
    if trust:
        yield
        return
    with path.open("rb") as file:
        archive = TorchZip(file)
        member = next((entry.name for entry in archive.entries if _OBJECTS.search(entry.name)), None)
    if member is not None:
        what = "the package holds an object that is made by running pickled code"
        hint = (
            "Export the model without custom objects, or pass --trust-pickle if you trust the file as you trust code."
        )
        raise PackageNeedsCodeError(what, where=f"{path.name}!{member}", hint=hint)
    before = {name: text for name, text in os.environ.items() if name == _FORCE}
    os.environ[_FORCE] = "1"
    try:
        yield
    finally:
        del os.environ[_FORCE]
        os.environ.update(before)


def load_library(path: str, map_location: str | None) -> Any:  # Any: a function of the exported signature
    """Load an AOTInductor shared library, which is native code, to the current GPU or the CPU."""
    from torch._export import aot_load  # noqa: PLC0415 - heavy; and torch has no public name for it

    return aot_load(path, str(map_location))


def open_session(path: str, map_location: str | None) -> Any:  # Any: onnxruntime has no types
    """Open an ONNX file as the server does: every logical core, CUDA first if that is the device."""
    import onnxruntime  # noqa: PLC0415 - only where there is ONNX to run

    providers = ["CUDAExecutionProvider"] * (map_location == "cuda") + ["CPUExecutionProvider"]
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = os.cpu_count() or 0
    with Explained(partial(_note_refusal, path)):
        session = onnxruntime.InferenceSession(path, sess_options=options, providers=providers)
    missing = set(providers) - set(session.get_providers())
    if missing:
        message = f"ONNX Runtime has no {missing.pop()}, so the model runs on the CPU"
        note("onnx-provider", message, stage="initialize", hint="Install it: pip install onnxruntime-gpu")
    return session


def _note_refusal(path: str, error: Exception) -> None:
    try:
        with Path(path).open("rb") as file:
            facts = read_onnx(file).facts
    except (OSError, ProtobufError):
        return
    # ONNX Runtime's reason comes last, after its own file names and signatures.
    reason = str(error).strip().rstrip(".").rpartition(". ")[2]
    message = (
        f"ONNX Runtime refuses {Path(path).name} (IR version {facts['IR version']}, opset {facts['opsets']}): {reason}"
    )
    hint = "Export the model with an opset_version that this ONNX Runtime supports, or update onnxruntime."
    note("onnx-refused", message, stage="initialize", hint=hint)


class OnnxModel:
    """A session that is called like a torch model; it also has the session's own methods (`run`, `get_inputs` …)."""

    def __init__(self, session: Any, device: torch.device) -> None:  # Any: onnxruntime has no types
        self._session = session
        self._device = device
        self._inputs = {port.name: port for port in session.get_inputs()}
        self._outputs = [port.name for port in session.get_outputs()]

    def __call__(self, *tensors: torch.Tensor, **named: torch.Tensor) -> torch.Tensor | dict[str, torch.Tensor]:
        """Feed tensors by position or input name; return the one output, or all by name; raises ModelInputError."""
        feeds = dict(zip(self._inputs, tensors, strict=False)) | named
        if len(tensors) > len(self._inputs) or feeds.keys() != self._inputs.keys():
            given = str(len(tensors)) if len(tensors) > len(self._inputs) else ", ".join(feeds) or "no"
            declared = ", ".join(f"{name} {port.type} {port.shape}" for name, port in self._inputs.items())
            hint = "Return these inputs from preprocess, in the order of the graph or by name."
            raise ModelInputError(f"the call has the inputs {given}, the graph declares {declared}", hint=hint)
        for name, tensor in feeds.items():
            wanted = _DTYPES.get(self._inputs[name].type)
            if tensor.dtype is not wanted:
                raise ModelInputError(
                    f"input {name} is {self._inputs[name].type}, not {tensor.dtype}",
                    hint=f"Convert it in preprocess: data.to({wanted})" if wanted else None,
                )
        arrays = {name: tensor.detach().cpu().numpy() for name, tensor in feeds.items()}
        results = [torch.as_tensor(result, device=self._device) for result in self._session.run(None, arrays)]
        return results[0] if len(results) == 1 else dict(zip(self._outputs, results, strict=True))

    def __getattr__(self, name: str) -> Any:  # Any: the session's own methods
        if name == "_session":  # not set yet, as while unpickling
            raise AttributeError(name)
        return getattr(self._session, name)


if __name__ == "__main__":
    torch.save(load_safetensors(Path(sys.argv[1]), torch.device("cpu")), sys.argv[2])
