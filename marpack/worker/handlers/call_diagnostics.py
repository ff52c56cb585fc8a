"""What the author should know about a model's call: what went in when it failed, and answers that are no numbers."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from marpack.protocol.diagnostics import attempt, note

_COMPILER = ("torch._dynamo", "torch._inductor")


def note_call(model: object, batch: object, error: Exception) -> None:
    """Note what the model was called with when the call failed."""
    if not callable(model):
        _note_not_callable(model)
    elif type(error).__module__.startswith(_COMPILER):
        hint = "run with --no-compile to see the model alone, then mend it, or drop pt2 from the config"
        note("compile-failed", f"torch.compile failed: {_first_line(error)}", stage="inference", hint=hint)
    else:
        hint = "compare shape and dtype with what the model was trained or exported with"
        message = f"the model was called with {described(batch)}: {_first_line(error)}"
        note("model-call", message, stage="inference", hint=hint)


def _note_not_callable(model: object) -> None:
    kind = f"{type(model).__module__}.{type(model).__name__}"
    if "onnxruntime" in kind:
        message = "on the server, self.model is an ONNX Runtime session, which BaseHandler.inference cannot call"
        hint = "override inference: self.model.run(None, {name: array}); or set target: marpack"
        note("onnx-session", message, stage="inference", hint=hint)
    else:
        set_it = "set self.model in initialize, or have it set there: super().initialize(context)"
        message = f"self.model is a {kind}, nothing that can be called"
        note("no-model", message, stage="inference", hint=set_it if model is None else None)


def described(batch: object) -> str:
    """Name a tensor by shape, dtype and device; anything else by its type."""
    if not isinstance(batch, torch.Tensor):
        return f"a {type(batch).__name__}"
    return f"a tensor {list(batch.shape)} {str(batch.dtype).removeprefix('torch.')} on {batch.device}"


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    # TorchScript puts its own trace first and what really went wrong last; the compiler names the backend first.
    if "TorchScript" in lines[0]:
        return lines[-1]
    return " ".join(lines[:2]) if lines[0].endswith(":") else lines[0]


def note_nonfinite(output: object) -> None:
    """Note NaN and infinity in a model's output: the server sends them on, and no strict JSON parser reads them."""
    if not isinstance(output, torch.Tensor):
        return
    count = attempt(lambda: int(output.numel() - torch.isfinite(output.detach()).sum()))
    # One that cannot be looked at (float8, a subclass's) is still an answer.
    if count and not isinstance(count, Exception):
        message = f"{count} of {output.numel()} numbers of the model's output are NaN or infinite"
        hint = "look for a division by zero, an overflow in half precision, or weights that never trained"
        note("not-finite", message, stage="postprocess", hint=hint)


@contextmanager
def explained_output(wanted: str, output: object) -> Iterator[None]:
    """Note what the model returned and what the handler takes, if the two do not go together."""
    try:
        yield
    except (AttributeError, IndexError, TypeError):
        message = f"the model returned {_returned(output)}, and this handler takes {wanted}"
        hint = "have the model return that, or override postprocess"
        note("model-output", message, stage="postprocess", hint=hint)
        raise


def _returned(output: object) -> str:
    if isinstance(output, dict):
        return f"a dict of {', '.join(map(str, output)) or 'nothing'}"
    if isinstance(output, (list, tuple)) and output:
        return f"a {type(output).__name__} of {len(output)}, the first {described(output[0])}"
    return described(output)
