"""Playing: a probe's steps sent to the real server, in order, each batch as one."""

import threading
import time
from pathlib import Path

from conformance.archives import pack
from conformance.probe import Batch, Call, Probe
from conformance.recording import Recording, Reply, question_of
from conformance.requests import message_of
from conformance.server import Server
from conformance.wire import Answer, exchange

# Long enough for the frontend to queue one request of a batch before the next: their order is then the batch's.
GAP_SECONDS = 0.04
# A batch that is complete leaves at once; one that is not waits this long for the rest.
BATCH_DELAY_MS = 1500
ANSWER_SECONDS = 60.0


def play(probe: Probe, server: Server, folder: Path) -> Recording:
    """Register a probe's archive, send its steps, unregister it, and return what came back."""
    options: dict[str, object] = {"response_timeout": 40, "startup_timeout": 40}
    if probe.batch_size > 1:
        options |= {"batch_size": probe.batch_size, "max_batch_delay": BATCH_DELAY_MS}
    registered = server.register(pack(probe, folder), probe.name, **options | dict(probe.options))
    replies: dict[str, Reply] = {}
    for step in probe.steps if registered.status == 200 else ():
        calls = step.calls if isinstance(step, Batch) else (step,)
        answers = _together(calls, probe, server)
        replies |= {call.name: Reply.of(answer) for call, answer in zip(calls, answers, strict=True)}
    server.unregister(probe.name)
    return Recording(probe.name, question_of(probe), Reply.of(registered), replies)


def _together(calls: tuple[Call, ...], probe: Probe, server: Server) -> list[Answer]:
    answers: dict[int, Answer] = {}

    def ask(index: int, call: Call) -> None:
        answers[index] = exchange(server.inference, message_of(call, probe.name), seconds=ANSWER_SECONDS)

    threads = [threading.Thread(target=ask, args=pair, daemon=True) for pair in enumerate(calls)]
    for thread in threads:
        thread.start()
        if len(threads) > 1:
            time.sleep(GAP_SECONDS)
    for thread in threads:
        thread.join()
    return [answers[index] for index in range(len(calls))]
