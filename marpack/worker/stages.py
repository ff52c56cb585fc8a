"""How long each stage of a handler takes, and in which of them it failed."""

import time
from collections.abc import Callable
from functools import wraps
from inspect import getattr_static
from types import FunctionType
from typing import Any

STAGES = ("preprocess", "inference", "postprocess", "explain_handle", "describe_handle")
_TIMED = "_marpack_timed"  # what marks a stage that is timed already, and holds the author's


class StageClock:
    """Times the stages of one handler.

    The methods of its class are replaced, and nothing on the instance: what authors see there, copy, pickle or compare
    is their own. `self.preprocess(…)` is timed wherever they call it, `super().preprocess(…)` inside it not once more.
    """

    def __init__(self) -> None:
        self._spent: dict[str, float] = {}
        self._failed: str | None = None

    def watch(self, instance: object | None) -> None:
        """Replace the stages of a handler's class; those that are no methods, or forbid it, go untimed."""
        handler_class = type(instance)
        for name in STAGES:
            stage = getattr_static(handler_class, name, None)
            stage = getattr(stage, _TIMED, stage)  # of an earlier handler of this class, in this process
            if not isinstance(stage, FunctionType):
                continue
            try:
                setattr(handler_class, name, self._timed(name, stage, id(instance)))
            except (AttributeError, TypeError):
                return

    def _timed(self, name: str, stage: Callable[..., Any], watched: int) -> Callable[..., Any]:
        @wraps(stage)
        def timed(*args: Any, **kwargs: Any) -> Any:  # Any: the author's signature
            if not args or id(args[0]) != watched:  # another handler of this class
                return stage(*args, **kwargs)
            start, failed = time.perf_counter(), True
            try:
                returned = stage(*args, **kwargs)
                failed = False
            finally:
                self._spent[name] = self._spent.get(name, 0.0) + (time.perf_counter() - start) * 1000
                if failed:
                    self._failed = self._failed or name
            return returned

        setattr(timed, _TIMED, stage)
        return timed

    @property
    def failed(self) -> str | None:
        """The innermost stage that raised since the last call of `take`."""
        return self._failed

    def take(self) -> dict[str, float]:
        """Return the milliseconds spent per stage since the last call, and begin anew."""
        spent, self._spent, self._failed = self._spent, {}, None
        return spent
