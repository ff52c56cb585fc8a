"""Under asyncCommunication each batch is a task with a copy of the context, and tasks that fail are forgotten."""

import json
import textwrap
from collections.abc import Iterator

import pytest
from workers import launch

from marpack.protocol.messages import Load
from marpack.protocol.targets import Target
from marpack.runner.client import BatchResult
from marpack.runner.pool import LocalPool, PoolSettings
from marpack.torchserve.http import Part, Request

HANDLER = textwrap.dedent(
    """
    import asyncio, os, threading
    from ts.handler_utils.utils import send_intermediate_predict_response

    class Handler:
        def initialize(self, context):
            self.count = 0
            self.lock = asyncio.Lock()

        async def handle(self, data, context):
            self.count += 1
            self.context = context
            async with self.lock:
                await asyncio.sleep(0)
                return [await getattr(self, bytes(row["body"]).decode())() for row in data]

        async def count_(self): return str(self.count)
        async def target(self):
            from marpack.protocol.targets import settings_of
            return settings_of(self.context).target.value
        async def leaves(self): raise SystemExit(3)
        async def exits(self): os._exit(3)
        async def cancelled(self): raise asyncio.CancelledError
        async def header(self): self.context.set_response_header(0, "x", 5)
        async def line(self): self.context.set_response_header(0, "x", "a\\nb")
        async def hangs(self): await asyncio.sleep(60)
        async def breaks_off(self):
            send_intermediate_predict_response(["a"], self.context.request_ids, "more", 200, self.context)
            os._exit(3)
    """
)
FILES = {"config.yaml": "asyncCommunication: true\n"}


def ask(folder, words: list[str], target: Target = Target.TORCHSERVE) -> list[BatchResult]:
    """Return what became of each word; one that hangs is given a second, as nothing else needs one."""

    def batches() -> Iterator[tuple[Request, ...]]:
        for word in words:
            yield (Request(id=word, parts=(Part(name="body", value=word.encode()),)),)

    load = Load(model_dir=str(folder), target=target)
    with LocalPool(load, PoolSettings(timeout=1.0 if "hangs" in words else 30.0, launch=launch)) as pool:
        pool.start()
        return list(pool.outcomes(batches()))


@pytest.fixture
def folder(make_folder):
    return make_folder(HANDLER, files=FILES, configFile="config.yaml")


@pytest.mark.parametrize(
    ("word", "dies"),
    [*((word, False) for word in ("cancelled", "header")), *((word, True) for word in ("leaves", "exits", "line")),
     pytest.param("hangs", True, marks=pytest.mark.slow)],
)  # fmt: skip
def test_a_task_that_fails_is_forgotten_and_a_worker_that_ends_takes_its_request_with_it(folder, word, dies: bool):
    first, second = ask(folder, [word, "count_"])
    assert (first.responses[0].status, first.died) == (0, dies)
    assert first.troubles if dies else len(first.troubles[0].notes) == 1
    assert second.responses[0].body == (b"1" if dies else b"2")


def test_what_was_streamed_before_the_end_was_received(folder):
    answer = ask(folder, ["breaks_off"])[0].responses[0]
    assert (answer.status, answer.body, answer.reset) == (200, b"a", True)


@pytest.mark.parametrize("word", ["cancelled", "header", "leaves", "exits", "hangs"])
def test_target_marpack_answers_all_the_same(folder, word: str):
    first, second = ask(folder, [word, "target"], Target.MARPACK)
    assert first.responses[0].status == 500
    assert json.loads(first.responses[0].body)["message"] == "Worker died."
    assert second.responses[0].body == b"marpack"  # the copies of the context know it


def test_a_context_that_cannot_be_copied_loses_every_request(make_folder):
    source = HANDLER.replace("self.count = 0", "self.count = 0; context.lock = threading.Lock()")
    (outcome,) = ask(make_folder(source, files=FILES, configFile="config.yaml"), ["count_"])
    assert outcome.responses[0].status == 0
    assert "cannot pickle" in outcome.troubles[0].message
