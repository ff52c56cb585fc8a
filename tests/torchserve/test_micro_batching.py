import threading
import time
from typing import Any

import pytest

from marpack.torchserve.micro_batching import MicroBatching
from marpack.torchserve.response import WorkerDeath
from marpack.torchserve.targets import HandlerSettings, Target, keep_settings


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
    batching.shutdown()


def test_stages_that_do_not_exist_are_refused():
    batching = MicroBatching(Slow())
    with pytest.raises(AssertionError):
        batching.parallelism = {"train": 2}
    batching.shutdown()


@pytest.mark.parametrize(("target", "fate"), [(Target.TORCHSERVE, WorkerDeath), (Target.MARPACK, KeyError)])
def test_a_failing_stage_hangs_the_server_and_is_told_by_marpack(target: Target, fate: type[BaseException]):
    handler = Slow()
    keep_settings(handler, HandlerSettings(target))
    batching = MicroBatching(handler, 1)
    with pytest.raises(fate):
        batching.handle([1, -1, 2])
    assert batching.handle([5]) == [50]  # the threads live on
    batching.shutdown()
