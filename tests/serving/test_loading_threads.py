"""Archives that take for ever to scan or extract hold up neither other registrations nor the server's end."""

import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from serving.served import LOADER, Served, pack, served, wait_until

from marpack.archive.cache import Cache
from marpack.archive.protocol import Archive
from marpack.findings import Finding
from marpack.serving.loading import AdmissionRules, ModelLoader

ECHO = "def handle(data, context):\n    return [row['body'] for row in data] if data else None\n"
SLOW = (os.cpu_count() or 1) + 8  # the event loop's own executor has cpu_count + 4 threads, at most 32
SHUTTING_DOWN = 503


class SlowRules(AdmissionRules, frozen=True):
    """Takes for ever to look into some archives."""

    def check(self, archive: Archive) -> tuple[Finding, ...]:
        while archive.source.endswith("slow.mar"):
            time.sleep(0.01)
        return super().check(archive)


def loading_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "marpack-loading"]


@contextmanager
def serving(store: Path, **changes: Any) -> Iterator[tuple[Served, Callable[..., "Future[tuple[int, Any]]"]]]:
    """Serve a store; give the server, and what registers a model there in a thread."""
    loader = ModelLoader(load=LOADER.load, settings=LOADER.settings, **changes)
    with (
        ThreadPoolExecutor(SLOW + 1) as clients,
        served(model_store=store, model_api=True, loader=loader) as server,
    ):

        def register(name: str) -> "Future[tuple[int, Any]]":
            path = f"/models?url={name}.mar&model_name={name}&initial_workers=0"
            return clients.submit(server.manage, "POST", path)

        yield server, register


def test_slow_archives_block_neither_other_registrations_nor_the_end(tmp_path: Path):
    for name in ("good", "slow"):
        pack(tmp_path, f"{name}.mar", ECHO)
    with serving(tmp_path, rules=SlowRules()) as (server, register):
        slow = [register("slow") for _ in range(SLOW)]
        wait_until(lambda: len(loading_threads()) == SLOW)
        assert register("good").result(20)[0] == 200
        assert server.manage("PUT", "/models/good?min_worker=1&synchronous=true")[0] == 200
        assert server.request("POST", "/predictions/good", b"hi")[2] == b"hi"
        assert not any(each.done() for each in slow)
    assert [each.result(20)[0] for each in slow] == [SHUTTING_DOWN] * SLOW
    assert loading_threads() == []


def test_an_extraction_that_the_end_interrupts_leaves_nothing(tmp_path: Path):
    pack(tmp_path, "good.mar", ECHO)
    cache, begun = tmp_path / "cache", threading.Event()

    @contextmanager
    def slow(_what: str, _total: int) -> Iterator[Callable[[int], object]]:
        def progress(_: int) -> None:
            begun.set()
            while True:
                time.sleep(0.01)

        yield progress

    with serving(tmp_path, cache=lambda: Cache(cache, bar=slow)) as (_, register):
        registered = register("good")
        assert begun.wait(20)
        assert list(cache.iterdir())
    assert registered.result(20)[0] == SHUTTING_DOWN
    assert list(cache.iterdir()) == []


def test_a_synchronous_registration_whose_workers_do_not_load_does_not_hold_up_the_end(tmp_path: Path):
    pack(tmp_path, "hangs.mar", f"import time\ntime.sleep(3600)\n{ECHO}")
    with ThreadPoolExecutor(2) as clients, served(model_store=tmp_path, model_api=True) as server:
        waiting = clients.submit(server.manage, "POST", "/models?url=hangs.mar&initial_workers=1&synchronous=true")
        wait_until(lambda: any(model.workers and model.workers[0].pid for model in server.server.registry))
        scaling = clients.submit(server.manage, "PUT", "/models/hangs?min_worker=2&synchronous=true")
        wait_until(lambda: any(len(model.workers) == 2 for model in server.server.registry))
    assert [each.result(20)[0] for each in (waiting, scaling)] == [SHUTTING_DOWN] * 2
