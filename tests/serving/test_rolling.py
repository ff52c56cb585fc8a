"""Models that change under load: no request fails. Requests start on schedule, whether or not others are answered."""

import asyncio
import itertools
import json
from collections import Counter
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from aiohttp import ClientError, ClientSession, ClientTimeout, TCPConnector
from msgspec import Struct
from msgspec.structs import replace
from serving.commands import SECONDS, serving
from serving.fronts import eventually
from serving.served import LOADER, pack, served

from marpack.serving.http import HttpSettings
from marpack.serving.settings import ModelSettings

RATE = 200  # requests per second; a busy machine may send them later
HANDLER = """
import pathlib, time
from ts.handler_utils.utils import send_intermediate_predict_response


def handle(data, context):
    if data is None:
        return None
    texts = [bytes(row["body"]).decode() for row in data]
    if any("stream" in text for text in texts):
        send_intermediate_predict_response(["{version} "] * len(data), context.request_ids, "more", 200, context)
    while any("held" in text for text in texts) and not pathlib.Path({gate!r}).exists():
        time.sleep(0.01)
    time.sleep(0.002)
    return ["{version}"] * len(data)
"""
BY_NAME = ("/predictions/m", "/v1/models/m:predict", "/v2/models/m/infer", "/models/m/invoke", "/invocations")
SETTINGS = ModelSettings(
    min_workers=2, max_workers=2, batch_size=4, max_batch_delay=5, queue_size=100_000, leave_timeout=int(SECONDS)
)


def by_version(version: str) -> tuple[str, ...]:
    return f"/predictions/m/{version}", f"/v2/models/m/versions/{version}/infer"


def pack_version(folder: Path, version: str, *, handler: str = HANDLER, **model: str) -> Path:
    """Pack a version of m, which answers with its version, and holds some requests until the file `gate` exists."""
    source = handler.replace("{version}", version).replace("{gate!r}", repr(str(folder / "gate")))
    return pack(folder, f"m{version}.mar", source, **{"modelName": "m", "modelVersion": version} | model)


class Sent(Struct):
    """A request, and its response: without a status, it was broken off."""

    path: str
    phase: str
    status: int = 0
    versions: frozenset[str] = frozenset()  # that answered: its words


class Traffic:
    """Requests to some paths in turn, at a rate."""

    def __init__(self, session: ClientSession, address: str, *paths: str) -> None:
        self.paths = paths
        self.phase = ""
        self.sent: list[Sent] = []
        self._session, self._address = session, address
        self._tasks: dict[asyncio.Task[Sent], Sent] = {}  # without a response

    def post(self, path: str, text: str = "x") -> "asyncio.Task[Sent]":
        async def post() -> Sent:
            with suppress(ClientError):
                async with self._session.post(f"http://{self._address}{path}", data=text.encode()) as response:
                    sent.versions = frozenset((await response.text()).split())
                    sent.status = response.status
            return sent

        sent = Sent(path, self.phase)
        self.sent.append(sent)
        task = asyncio.create_task(post())
        self._tasks[task] = sent
        task.add_done_callback(self._tasks.pop)
        return task

    async def run(self) -> None:
        begun = asyncio.get_running_loop().time()
        for number in itertools.count():
            await asyncio.sleep(begun + number / RATE - asyncio.get_running_loop().time())
            self.post(self.paths[number % len(self.paths)], "stream" if number % 7 == 0 else "x")

    @asynccontextmanager
    async def during(self, phase: str) -> AsyncIterator[None]:
        """Send requests in a phase, also before and after the block; end it once each has its response."""
        self.phase = phase
        await self._send(30)
        yield
        await self._send(60)
        self.phase = "between"
        await asyncio.gather(*(task for task, sent in self._tasks.items() if sent.phase == phase))

    async def _send(self, count: int) -> None:
        await eventually(lambda: Counter(sent.phase for sent in self.sent)[self.phase] >= count)

    def versions(self, phase: str, paths: Collection[str] = BY_NAME) -> set[str]:
        """Return the versions that answered the requests of a phase; each request must have one of them."""
        found = [sent for sent in self.sent if sent.phase == phase and sent.path in paths]
        assert found
        assert [sent for sent in found if (sent.status, len(sent.versions)) != (200, 1)] == []
        return {version for sent in found for version in sent.versions}


@asynccontextmanager
async def traffic(address: str, *paths: str) -> AsyncIterator[Traffic]:
    """Send requests until the block ends."""
    connector, timeout = TCPConnector(limit=0), ClientTimeout(total=None, sock_read=SECONDS)
    async with ClientSession(connector=connector, timeout=timeout) as session:
        sending = Traffic(session, address, *paths)
        running = asyncio.create_task(sending.run())
        try:
            yield sending
        finally:
            running.cancel()
            await asyncio.gather(*sending._tasks)


@pytest.mark.parametrize("rounds", [1, pytest.param(4, marks=pytest.mark.slow)])
def test_a_new_version_replaces_the_old_one_under_load(tmp_path: Path, rounds: int):
    gate, names = tmp_path / "gate", [f"{number}.0" for number in range(1, rounds + 2)]
    archives = [pack_version(tmp_path, name) for name in names]
    http = HttpSettings(max_request_size=65_536, max_connections=100_000, drain=SECONDS)
    loader = replace(LOADER, settings=SETTINGS)

    async def change(load: Traffic, old: str, new: str) -> None:
        async def manage(method: str, path: str) -> None:
            assert (await asyncio.to_thread(server.manage, method, path))[0] == 200

        gate.unlink(missing_ok=True)
        load.paths = (*BY_NAME, *by_version(old))
        async with load.during(f"{new} loads"):
            await manage("POST", f"/models?url=m{new}.mar&initial_workers=2")
        load.paths += by_version(new)
        async with load.during(f"{new} becomes the default"):
            await manage("PUT", f"/models/m/{new}/set-default")
        load.paths = (*BY_NAME, *by_version(new))
        async with load.during(f"{new} is the default"):
            pass
        # One request in each of the workers of the old version, and more than a batch in its queue.
        leaving, load.phase = server.server.registry.find("m", old), f"{old} leaves"
        held = [load.post(by_version(old)[0], "stream held")]
        await eventually(lambda: any(worker.in_flight for worker in leaving.workers))
        held += [load.post(by_version(old)[0], "held")]
        await eventually(lambda: all(worker.in_flight for worker in leaving.workers))
        held += [load.post(path) for path in by_version(old) * 5]
        await eventually(lambda: len(leaving.queue) == 10)
        unregistered = asyncio.create_task(manage("DELETE", f"/models/m/{old}"))
        while (await asyncio.to_thread(server.manage, "GET", f"/models/m/{old}"))[0] != 404:
            assert not unregistered.done()
        load.phase = "refused"
        refused = [(await load.post(path)).status for path in by_version(old)]
        async with load.during(f"{old} still answers"):
            pass
        assert not any(each.done() for each in (*held, unregistered))
        gate.touch()
        assert [(sent.status, sent.versions) for sent in await asyncio.gather(*held)] == [(200, {old})] * len(held)
        await unregistered
        assert refused == [(await load.post(path)).status for path in by_version(old)] == [404, 404]

    async def main() -> Traffic:
        async with traffic(server.inference, *BY_NAME) as load:
            for old, new in itertools.pairwise(names):
                await change(load, old, new)
        return load

    with served(archives[0], model_store=tmp_path, loader=loader, http=http) as server:
        load = asyncio.run(main())
    for old, new in itertools.pairwise(names):
        assert load.versions(f"{new} loads") == {old}
        assert load.versions(f"{new} becomes the default") <= {old, new}
        for phase, versions in ((f"{new} loads", [old]), (f"{new} becomes the default", [old, new])):
            assert [load.versions(phase, by_version(each)) for each in versions] == [{each} for each in versions]
        for phase in (f"{new} is the default", f"{old} leaves", f"{old} still answers"):
            assert load.versions(phase) == load.versions(phase, by_version(new)) == {new}


@pytest.mark.parametrize("rounds", [1, pytest.param(4, marks=pytest.mark.slow)])
def test_a_changed_file_is_loaded_again_under_load(tmp_path: Path, rounds: int):
    ready, begun, gate = (tmp_path / name for name in ("ready", "begun", "gate"))
    slow = f"import pathlib, time\npathlib.Path({str(begun)!r}).touch()\n"
    slow += f"while not pathlib.Path({str(ready)!r}).exists():\n    time.sleep(0.01)\n"
    words, paths = [f"answer-{number}" for number in range(rounds + 1)], (*BY_NAME, *by_version("1.0"))

    def change(word: str, prefix: str = "") -> None:
        """Replace the archive by another one of the same version."""
        pack_version(tmp_path, word, handler=prefix + HANDLER, modelVersion="1.0").replace(tmp_path / "m.mar")

    async def waiting() -> int:
        body = (await asyncio.to_thread(server.request, "/models/m", what="management"))[2]
        return int(json.loads(body)[0]["jobQueueStatus"]["pendingRequests"])

    async def reload(load: Traffic, old: str, new: str, number: int) -> None:
        for each in (ready, begun, gate):
            each.unlink(missing_ok=True)
        async with load.during(f"{new} cannot be loaded"):
            change(new, "import missing\n")
            await asyncio.to_thread(server.wait_for, "reloaded", kept=True, times=number)
        async with load.during(f"{new} is loading"):
            change(new, slow)
            await eventually(begun.exists)
        # A request in each worker, and requests in the queue.
        load.phase = f"{old} is busy"
        held = [load.post(path, text) for path, text in zip(by_version("1.0"), ("stream held", "held"), strict=True)]
        while await waiting() < 10:
            assert not any(each.done() for each in held)
        async with load.during(f"{new} is loaded"):
            ready.touch()
            await asyncio.to_thread(server.wait_for, "reloaded", kept=False, times=number)
        assert not any(each.done() for each in held)
        gate.touch()
        assert [(sent.status, sent.versions) for sent in await asyncio.gather(*held)] == [(200, {old})] * 2

    async def main() -> Traffic:
        async with traffic(f"127.0.0.1:{server.port()}", *paths) as load:
            for number, (old, new) in enumerate(itertools.pairwise(words), 1):
                await reload(load, old, new, number)
        return load

    change(words[0])
    options = ("--management-port", "0", "--workers", "2", "--queue", "100000")
    with serving("--reload", *options, "m=m.mar", cwd=tmp_path, loaded=2, forks=True) as server:
        load = asyncio.run(main())
    for old, new in itertools.pairwise(words):
        assert load.versions(f"{new} cannot be loaded", paths) == load.versions(f"{new} is loading", paths) == {old}
        assert load.versions(f"{new} is loaded", paths) == {new}
