"""How long each stage of a handler takes, and in which of them it failed."""

import time
from collections.abc import Callable
from functools import wraps
from typing import Any

STAGES = ("preprocess", "inference", "postprocess", "explain_handle", "describe_handle")


class StageClock:
    """Times the stages of one handler from outside, leaving the handler's class untouched.

    Each stage is shadowed on the instance, so that `self.preprocess(…)` is timed wherever the author calls it, while
    `super().preprocess(…)` inside it is not counted again.
    """

    def __init__(self) -> None:
        self._spent: dict[str, float] = {}
        self._failed: str | None = None

    def watch(self, instance: object | None) -> None:
        """Shadow the stages of a handler; one that forbids new attributes goes untimed."""
        for name in STAGES:
            stage = getattr(instance, name, None)
            if not callable(stage):
                continue
            try:
                setattr(instance, name, self._timed(name, stage))
            except AttributeError:
                return

    def _timed(self, name: str, stage: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(stage)
        def timed(*args: Any, **kwargs: Any) -> Any:  # Any: the author's signature
            start = time.perf_counter()
            try:
                return stage(*args, **kwargs)
            except BaseException:
                self._failed = self._failed or name
                raise
            finally:
                spent = (time.perf_counter() - start) * 1000
                self._spent[name] = self._spent.get(name, 0.0) + spent

        return timed

    @property
    def failed(self) -> str | None:
        """The innermost stage that raised since the last call of `take`."""
        return self._failed

    def take(self) -> dict[str, float]:
        """Return the milliseconds spent per stage since the last call, and begin anew."""
        spent, self._spent, self._failed = self._spent, {}, None
        return spent
