"""How long a handler's stages take: the `timed` decorator (contract §6); without torch, as long as nobody profiles."""

import functools
import time
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
# Any: handlers of every shape are decorated, with `context` as their only common ground
Stage = Callable[Concatenate[Any, P], R]


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
    import torch  # noqa: PLC0415 - see above

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
