"""Micro-batches of a batch, with their stages side by side in threads (contract §9)."""

import os
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from marpack.protocol.targets import TargetDifference, settings_for
from marpack.torchserve.response import WorkerDeath
from marpack.worker.notes import attempt, milliseconds_since

HANDLER_METHODS = ["preprocess", "inference", "postprocess"]

_POLL = 0.1  # seconds between two looks at a thread's event


@dataclass
class WorkerThread:
    """One thread of a stage, and the event that ends it."""

    event: threading.Event
    thread: threading.Thread


class MicroBatching:
    """Replaces a handler's `handle`: its three stages run as a pipeline of threads, one per stage by default."""

    def __init__(
        self, parent_handler: Any, micro_batch_size: int = 1, parallelism: dict[str, int] | None = None
    ) -> None:
        self.handler = parent_handler
        self.micro_batch_size = micro_batch_size
        self._parallelism = dict(parallelism or {})
        self.thread_groups: dict[str, list[WorkerThread]] = {stage: [] for stage in HANDLER_METHODS}
        self.thread_local_data = threading.local()
        self._queues: list[queue.Queue[Any]] = [queue.Queue() for _ in range(len(HANDLER_METHODS) + 1)]
        self._adjust()

    @property
    def parallelism(self) -> dict[str, int]:
        """A copy of the threads per stage; assigning to it starts and ends threads."""
        return dict(self._parallelism)

    @parallelism.setter
    def parallelism(self, parallelism: dict[str, int]) -> None:
        unknown = set(parallelism) - set(HANDLER_METHODS)
        if unknown:
            raise AssertionError(f"unknown stages: {sorted(unknown)}; the stages are {', '.join(HANDLER_METHODS)}")
        self._parallelism.update(parallelism)
        self._adjust()

    def _adjust(self) -> None:
        for index, stage in enumerate(HANDLER_METHODS):
            wanted = self._parallelism.get(stage, 1)
            if wanted < 0:
                raise AssertionError(f"the stage {stage} has {wanted} threads; set 0 or more")
            group = self.thread_groups[stage]
            while len(group) < wanted:
                event = threading.Event()
                target = partial(self._work, index, getattr(self.handler, stage), event)
                group.append(WorkerThread(event, threading.Thread(target=target, daemon=True)))
                group[-1].thread.start()
            _end(group[wanted:])
            del group[wanted:]

    def _work(self, index: int, call: Callable[[Any], Any], ended: threading.Event) -> None:
        source, sink = self._queues[index : index + 2]
        while not ended.is_set():
            try:
                number, value, failure = source.get(timeout=_POLL)
            except queue.Empty:
                continue
            self.thread_local_data.micro_batch_idx = number
            done = attempt(partial(call, value)) if failure is None else failure
            sink.put((number, done, done if isinstance(done, Exception) else None))

    def shutdown(self) -> None:
        """End every thread."""
        _end([each for group in self.thread_groups.values() for each in group])

    def handle(self, data: list[Any]) -> list[Any]:
        """Return the rows' responses in the rows' order; the first failure of a micro-batch is raised.

        On the server the failing thread ends, and the batch hangs: there the failure becomes a WorkerDeath.
        """
        starts = range(0, len(data), self.micro_batch_size)
        for index, start in enumerate(starts):
            self._queues[0].put((index, data[start : start + self.micro_batch_size], None))
        done = sorted((self._queues[-1].get() for _ in starts), key=lambda item: item[0])
        for _, _, failure in done:
            if failure is None:
                continue
            if settings_for(self.handler).target.has(TargetDifference.MICRO_BATCH_FAILURES):
                raise failure
            message = f"a stage raised {type(failure).__name__} under MicroBatching: the server hangs here"
            raise WorkerDeath(message) from failure
        return [answer for _, answers, _ in done for answer in answers]

    def get_micro_batch_idx(self) -> int | None:
        """Return the number of the micro-batch that the calling thread works on."""
        return getattr(self.thread_local_data, "micro_batch_idx", None)

    def __call__(self, data: list[Any], context: Any) -> Any:
        """Respond to one batch as the handler's `handle` does, with its three stages in a pipeline."""
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
        context.metrics.add_time("HandlerTime", round(milliseconds_since(start), 2), None, "ms")
        return output


def _end(threads: list[WorkerThread]) -> None:
    for each in threads:
        each.event.set()
    for each in threads:
        each.thread.join()
