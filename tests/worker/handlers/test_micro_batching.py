import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

from marpack.protocol.targets import HandlerSettings, Target, keep_settings
from marpack.torchserve.context import Context
from marpack.torchserve.response import WorkerDeath
from marpack.worker.handlers.micro_batching import MicroBatching


class Slow:
    """Later micro-batches finish sooner, so that order has to be kept."""

    context: Any = None

    def preprocess(self, data: list[int]) -> list[int]:
        time.sleep(0.02 if 0 in data else 0)
        return data

    def inference(self, data: list[int]) -> list[int]:
        if -1 in data:
            raise KeyError("bad row")
        return [item * 10 for item in data]

    def postprocess(self, data: list[int]) -> list[int]:
        return data


def test_results_stay_in_order_and_threads_end():
    before = threading.active_count()
    batching = MicroBatching(Slow(), 2, {"preprocess": 3, "inference": 2})
    assert batching.handle(list(range(9))) == [item * 10 for item in range(9)]
    batching.parallelism = {"preprocess": 1}
    assert batching.parallelism == {"preprocess": 1, "inference": 2}
    assert batching.handle([3, 4]) == [30, 40]
    batching.shutdown()
    assert threading.active_count() == before


def test_threads_are_found_by_stage_and_end_by_their_events():
    batching = MicroBatching(Slow(), 2, {"inference": 2})
    groups = batching.thread_groups
    assert {stage: len(group) for stage, group in groups.items()} == {"preprocess": 1, "inference": 2, "postprocess": 1}
    one = groups["inference"][0]
    assert (type(one).__name__, one.thread.is_alive()) == ("WorkerThread", True)
    one.event.set()
    one.thread.join(5)
    assert not one.thread.is_alive()
    assert batching.handle([1, 2, 3]) == [10, 20, 30]
    for parallelism in ({"train": 2}, {"inference": -1}):
        with pytest.raises(AssertionError):
            batching.parallelism = parallelism
    batching.shutdown()


def test_a_thread_knows_its_micro_batch_and_nobody_else_does():
    class Numbering(Slow):
        def inference(self, data: list[int]) -> list[Any]:
            return [(item, self.batching.get_micro_batch_idx()) for item in data]

    handler = Numbering()
    handler.batching = MicroBatching(handler, 2)
    assert handler.batching.handle([5, 6, 7]) == [(5, 0), (6, 0), (7, 1)]
    assert handler.batching.get_micro_batch_idx() is None
    handler.batching.shutdown()


class Whole(Slow):
    """A handler as BaseHandler's are, asked for a prediction, an explanation or a description."""

    def __init__(self, asked: str) -> None:
        self._is_describe = lambda: asked == "describe"
        self._is_explain = lambda: asked == "explain"
        self.describe_handle = lambda: "a model"
        self.explain_handle = lambda rows, data: list(zip(rows, data, strict=True))
        self.preprocess = lambda data: [item + 1 for item in data]
        self._infer_with_profiler = lambda data: (data, None)


@pytest.mark.parametrize(
    ("asked", "profiler", "answer"),
    [
        ("", "", [20, 30]),
        ("describe", "", ["a model"]),
        ("explain", "", [(2, 1), (3, 2)]),
        ("describe", "true", [1, 2]),
    ],
)
def test_in_the_place_of_handle_it_answers_what_is_asked_for_and_tells_the_time(asked, profiler, answer, monkeypatch):
    monkeypatch.setenv("ENABLE_TORCH_PROFILER", profiler)
    moments = iter([10.0, 10.0123456])
    monkeypatch.setattr(time, "perf_counter", lambda: next(moments))
    added: list[tuple[Any, ...]] = []
    metrics: Any = SimpleNamespace(add_time=lambda *what: added.append(what))
    context = Context("m", "/m", {}, 1, None, "0.12.0", metrics=metrics)
    handler = Whole(asked)
    batching = MicroBatching(handler)
    assert batching([1, 2], context) == answer
    assert added == [("HandlerTime", 12.35, None, "ms")]
    assert handler.context is context
    batching.shutdown()


@pytest.mark.parametrize(("target", "fate"), [(Target.TORCHSERVE, WorkerDeath), (Target.MARPACK, KeyError)])
def test_a_failing_stage_hangs_the_server_and_is_told_by_marpack(target: Target, fate: type[BaseException]):
    handler = Slow()
    handler.context = Context("m", "/m", {}, 1, None, "0.12.0")
    keep_settings(handler.context, HandlerSettings(target))
    batching = MicroBatching(handler, 1)
    with pytest.raises(fate):
        batching.handle([1, -1, 2])
    assert batching.handle([5]) == [50]  # the threads live on
    batching.shutdown()
