"""A batch cut into micro-batches whose stages run side by side in threads (contract §9)."""

import os
import queue
import threading
import time
from collections.abc import Callable
from typing import Any

from marpack.torchserve.response import WorkerDeath
from marpack.torchserve.targets import Target, TargetDifference

HANDLER_METHODS = ["preprocess", "inference", "postprocess"]

_END = object()  # put on a queue to end one thread of its stage


class MicroBatching:
    """Takes the place of a handler's `handle`, pipelining its three stages.

    Args:
        parent_handler: The handler whose stages are called.
        micro_batch_size: Rows per micro-batch.
        parallelism: Threads per stage; a stage that is not named has one.
    """

    def __init__(
        self, parent_handler: Any, micro_batch_size: int = 1, parallelism: dict[str, int] | None = None
    ) -> None:
        self.handler = parent_handler
        self.micro_batch_size = micro_batch_size
        self._parallelism = dict(parallelism or {})
        self._local = threading.local()
        self._queues: list[queue.Queue[Any]] = [queue.Queue() for _ in range(len(HANDLER_METHODS) + 1)]
        self._threads: dict[str, list[threading.Thread]] = {stage: [] for stage in HANDLER_METHODS}
        self._adjust()

    @property
    def parallelism(self) -> dict[str, int]:
        """A copy of the threads per stage; assigning to it starts and ends threads."""
        return dict(self._parallelism)

    @parallelism.setter
    def parallelism(self, parallelism: dict[str, int]) -> None:
        unknown = set(parallelism) - set(HANDLER_METHODS)
        if unknown:
            raise AssertionError(f"no such stages: {sorted(unknown)}")
        self._parallelism.update(parallelism)
        self._adjust()

    def _adjust(self) -> None:
        for index, stage in enumerate(HANDLER_METHODS):
            wanted = self._parallelism.get(stage, 1)
            if wanted < 0:
                raise AssertionError(f"{stage} cannot have {wanted} threads")
            threads = self._threads[stage]
            while len(threads) < wanted:
                threads.append(self._started(index, stage))
            self._end(index, threads, len(threads) - wanted)

    def _started(self, index: int, stage: str) -> threading.Thread:
        call = getattr(self.handler, stage)
        thread = threading.Thread(
            target=self._work, args=(call, self._queues[index], self._queues[index + 1]), daemon=True
        )
        thread.start()
        return thread

    def _end(self, index: int, threads: list[threading.Thread], count: int) -> None:
        for _ in range(count):
            self._queues[index].put(_END)
        while count > 0:
            for thread in [thread for thread in threads if not thread.is_alive()]:
                threads.remove(thread)
                count -= 1
            time.sleep(0.001)

    def _work(self, call: Callable[[Any], Any], source: queue.Queue[Any], sink: queue.Queue[Any]) -> None:
        while (item := source.get()) is not _END:
            index, value, failure = item
            self._local.micro_batch_idx = index
            if failure is None:
                try:
                    value = call(value)
                except Exception as error:  # noqa: BLE001 - raised again where the batch is put together
                    failure = error
            sink.put((index, value, failure))

    def shutdown(self) -> None:
        """End every thread."""
        for index, stage in enumerate(HANDLER_METHODS):
            self._end(index, self._threads[stage], len(self._threads[stage]))

    def handle(self, data: list[Any]) -> list[Any]:
        """Return the rows' answers in the rows' order; the first failure of a micro-batch is raised."""
        starts = range(0, len(data), self.micro_batch_size)
        for index, start in enumerate(starts):
            self._queues[0].put((index, data[start : start + self.micro_batch_size], None))
        done = sorted((self._queues[-1].get() for _ in starts), key=lambda item: item[0])
        for _, _, failure in done:
            if failure is not None:
                raise self._fate(failure)
        return [answer for _, answers, _ in done for answer in answers]

    def _fate(self, failure: Exception) -> BaseException:
        """Return what a stage's failure comes to: on the server its thread ends, and the batch waits for ever."""
        target = getattr(getattr(self.handler, "context", None), "_target", Target.TORCHSERVE)
        if target.has(TargetDifference.MICRO_BATCH_FAILURES):
            return failure
        death = WorkerDeath(f"a stage raised {type(failure).__name__} under MicroBatching: the server hangs here")
        death.__cause__ = failure
        return death

    def get_micro_batch_idx(self) -> int | None:
        """Return the number of the micro-batch that the calling thread works on."""
        return getattr(self._local, "micro_batch_idx", None)

    def __call__(self, data: list[Any], context: Any) -> Any:
        """Answer one batch: the handler's `handle` with its three stages pipelined."""
        start = time.perf_counter()
        handler = self.handler
        handler.context = context
        # The methods with an underscore are part of the contract (§6).
        if os.environ.get("ENABLE_TORCH_PROFILER"):
            output, _ = handler._infer_with_profiler(data=data)  # noqa: SLF001
        elif handler._is_describe():  # noqa: SLF001
            output = [handler.describe_handle()]
        elif handler._is_explain():  # noqa: SLF001
            output = handler.explain_handle(handler.preprocess(data), data)
        else:
            output = self.handle(data)
        spent = round((time.perf_counter() - start) * 1000, 2)
        context.metrics.add_time("HandlerTime", spent, None, "ms")
        return output
