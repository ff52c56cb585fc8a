"""The time that a handler's stages take, as metrics (`timed`) and for marpack's results; needs no torch to import."""

import functools
import time
from collections.abc import Callable
from inspect import getattr_static
from types import FunctionType
from typing import Any, Concatenate, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
# Any: handlers of every shape are decorated, with `context` as their only common ground
Stage = Callable[Concatenate[Any, P], R]

STAGES = ("preprocess", "inference", "postprocess", "explain_handle", "describe_handle")
_TIMED = "_marpack_timed"  # marks a stage that is timed already, and holds the author's


def timed(stage: Stage[P, R]) -> Stage[P, R]:
    """Add the metric `ts_handler_<stage>` in ms when the model config says `handler: {profile: true}` (contract §6)."""

    @functools.wraps(stage)
    def measured(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        config = self.context.model_yaml_config if self.context else {}
        # No .get(): `handler: null` fails here as it does on the server.
        if not ("handler" in config and "profile" in config["handler"] and config["handler"]["profile"]):
            return stage(self, *args, **kwargs)
        import torch  # noqa: PLC0415 - only profiling needs it

        if not torch.cuda.is_available():
            start = time.time()
            result = stage(self, *args, **kwargs)
            elapsed = (time.time() - start) * 1000
        else:  # the GPU's own clock
            first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]  # torch has no types here
            first.record()
            result = stage(self, *args, **kwargs)
            last.record()
            torch.cuda.synchronize()
            elapsed = first.elapsed_time(last)
        self.context.metrics.add_time(f"ts_handler_{stage.__name__}", elapsed)
        return result

    return measured


class StageClock:
    """Times the stages of one handler, by replacing methods of its class and nothing on the instance.

    `self.preprocess(…)` is timed wherever authors call it, `super().preprocess(…)` inside it not once more.
    """

    def __init__(self) -> None:
        self._spent: dict[str, float] = {}
        self.failed: str | None = None  # the innermost stage that raised since the last call of `take`

    def watch(self, instance: object | None) -> None:
        """Replace the stages of a handler's class; those that are not methods, or forbid it, go untimed."""
        handler_class = type(instance)
        for name in STAGES:
            stage = getattr_static(handler_class, name, None)
            stage = getattr(stage, _TIMED, stage)  # of an earlier handler of this class, in this process
            if not isinstance(stage, FunctionType):
                continue
            try:
                setattr(handler_class, name, self._wrap(name, stage, id(instance)))
            except (AttributeError, TypeError):
                return

    def _wrap(self, name: str, stage: Callable[..., Any], watched: int) -> Callable[..., Any]:
        @functools.wraps(stage)
        def measured(*args: Any, **kwargs: Any) -> Any:  # Any: the author's signature
            if not args or id(args[0]) != watched:  # another handler of this class
                return stage(*args, **kwargs)
            start, failed = time.perf_counter(), True
            try:
                returned = stage(*args, **kwargs)
                failed = False
            finally:
                self._spent[name] = self._spent.get(name, 0.0) + (time.perf_counter() - start) * 1000
                if failed:
                    self.failed = self.failed or name
            return returned

        setattr(measured, _TIMED, stage)
        return measured

    def take(self) -> dict[str, float]:
        """Return the milliseconds spent per stage since the last call, and start again from zero."""
        spent, self._spent, self.failed = self._spent, {}, None
        return spent
