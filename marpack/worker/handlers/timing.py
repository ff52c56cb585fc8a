"""How long a handler's stages take: the `timed` decorator, and torch.profiler around them (contract §6)."""

import functools
import logging
import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from marpack.worker.handlers.interfaces import ProfiledHandler, Rows, Value

if TYPE_CHECKING:
    from torch.profiler import profile

P = ParamSpec("P")
R = TypeVar("R")
# Any: handlers of every shape are decorated, with `context` as their only common ground
Stage = Callable[Concatenate[Any, P], R]
logger = logging.getLogger(__name__)

_TRACES = "/tmp/pytorch_profiler"  # noqa: S108 - where the server's users look for their traces


def timed(stage: Stage[P, R]) -> Stage[P, R]:
    """Add the metric `ts_handler_<stage>` in ms when the model config says `handler: {profile: true}`."""

    @functools.wraps(stage)
    def measured(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        if not _profiles(self.context):
            return stage(self, *args, **kwargs)
        stop = _start()
        result = stage(self, *args, **kwargs)
        self.context.metrics.add_time(f"ts_handler_{stage.__name__}", stop())
        return result

    return measured


def _profiles(context: Any) -> bool:  # Any: marpack's context, or an author's mock
    if not context:
        return False
    config = context.model_yaml_config
    # No .get(): `handler: null` fails here as it does on the server.
    return "handler" in config and "profile" in config["handler"] and bool(config["handler"]["profile"])


def _start() -> Callable[[], float]:
    """Start a clock, the GPU's own where there is one, and return what stops it and tells the ms."""
    import torch  # noqa: PLC0415 - a handler without torch may be timed too, as long as it is not profiled

    if not torch.cuda.is_available():
        began = time.time()
        return lambda: (time.time() - began) * 1000
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]  # torch has no types here
    first.record()

    def stop() -> float:
        last.record()
        torch.cuda.synchronize()
        elapsed: float = first.elapsed_time(last)
        return elapsed

    return stop


def profiling_enabled() -> bool:
    """Say whether to profile; asked per request, as handlers may switch it on themselves."""
    return bool(os.environ.get("ENABLE_TORCH_PROFILER"))


def profiled(handler: ProfiledHandler, data: Rows) -> tuple[Value, "profile"]:
    """Answer one batch with every stage recorded; returns the answer and the profiler."""
    from torch.profiler import profile  # noqa: PLC0415 - the decorator in this module times handlers without torch, too

    with profile(**_arguments(handler)) as profiler:
        output = _answer(handler, data)
    logger.info(profiler.key_averages().table(sort_by="cpu_time_total", row_limit=10))
    return output, profiler


def _answer(handler: ProfiledHandler, data: Rows) -> Value:
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
