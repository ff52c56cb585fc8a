"""torch.profiler around a handler's stages, when ENABLE_TORCH_PROFILER is set (contract §6)."""

import logging
import os
from typing import TYPE_CHECKING, Any

from marpack.handlers.protocol import ProfiledHandler, Rows

if TYPE_CHECKING:
    from torch.profiler import profile

logger = logging.getLogger(__name__)

_TRACES = "/tmp/pytorch_profiler"  # noqa: S108 - where the server's users look for their traces


def enabled() -> bool:
    """Say whether to profile; asked per request, as handlers may switch it on themselves."""
    return bool(os.environ.get("ENABLE_TORCH_PROFILER"))


def traced(handler: ProfiledHandler, data: Rows) -> tuple[Any, "profile"]:  # Any: as BaseHandler.handle
    """Answer one batch with every stage recorded; returns the answer and the profiler."""
    from torch.profiler import profile  # noqa: PLC0415 - the decorator in this module times handlers without torch, too

    with profile(**_arguments(handler)) as profiler:
        output = _answer(handler, data)
    logger.info(profiler.key_averages().table(sort_by="cpu_time_total", row_limit=10))
    return output, profiler


def _answer(handler: ProfiledHandler, data: Rows) -> Any:  # Any: as above
    from torch.profiler import record_function  # noqa: PLC0415 - as above

    with record_function("preprocess"):
        prepared = handler.preprocess(data)
    if handler._is_explain():  # noqa: SLF001 - the contract's names for authors, part of BaseHandler
        with record_function("explain"):
            return handler.explain_handle(prepared, data)
    with record_function("inference"):
        output = handler.inference(prepared)
    with record_function("postprocess"):
        return handler.postprocess(output)


def _arguments(handler: ProfiledHandler) -> dict[str, Any]:  # Any: keyword arguments of torch.profiler.profile
    """Complete the handler's own `profiler_args` in place, for its author to read back."""
    from torch.profiler import ProfilerActivity, tensorboard_trace_handler  # noqa: PLC0415 - as above

    arguments = handler.profiler_args
    if not arguments:
        arguments.update(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], record_shapes=True)
    if "on_trace_ready" not in arguments:
        folder = f"{_TRACES}/{handler.manifest['model'].get('modelName', '')}"
        arguments["on_trace_ready"] = tensorboard_trace_handler(folder)
        logger.info("traces go to %s", folder)
    return arguments
