"""Registering a model: what a request asks for, the archive in the store that it names, and the wait for workers."""

import asyncio
import re
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeVar
from urllib.parse import parse_qsl

import msgspec
from msgspec import Struct

from marpack.archive.names import quoted
from marpack.errors import ArchiveError, MarpackError, UsageError, first_line
from marpack.project.source import ResolvedSource
from marpack.serving.api import JSON, Call, ServingCore, bad_request, status_reply
from marpack.serving.http import Reply
from marpack.serving.loading import ModelLoader, ModelStore, ModelWishes
from marpack.serving.loading_threads import run_in_loading_thread
from marpack.serving.models import ModelPlan, ServedModel
from marpack.torchserve.http import RequestError, bare_type

T = TypeVar("T")
OnEnd = Callable[[asyncio.Task[Any]], None]  # Any: tasks of all kinds


class DetachedWork:
    """All such work of one port."""

    def __init__(self, on_end: OnEnd) -> None:
        """Take what is told of each task that ends: an error in it is a fault of ours."""
        self._on_end = on_end
        self._tasks: set[asyncio.Task[Reply | RequestError]] = set()  # which the loop itself would forget

    def begin(self, work: Coroutine[Any, Any, Reply]) -> asyncio.Task[Reply | RequestError]:  # Any: as typing has it
        """Begin, and wait for nothing."""
        task = asyncio.create_task(_outcome(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(self._on_end)
        return task

    async def finish(self, work: Coroutine[Any, Any, Reply]) -> Reply:  # Any: as typing has it
        """Begin, and wait for the answer as long as the client does; raises RequestError as the work does."""
        outcome = await asyncio.shield(self.begin(work))
        if isinstance(outcome, RequestError):
            raise outcome
        return outcome


async def finish_before_end(ending: asyncio.Event, work: Coroutine[Any, Any, T]) -> T:  # Any: as typing has it
    """Return the result of `work`; raises RequestError (503) as soon as the server has to end."""
    task, end = asyncio.create_task(work), asyncio.create_task(ending.wait())
    try:
        await asyncio.wait((task, end), return_when=asyncio.FIRST_COMPLETED)
    finally:
        is_done = task.done()
        for each in (task, end):
            each.cancel()
    if is_done:
        return task.result()
    raise RequestError("The server is shutting down", status=503, kind="ServiceUnavailableException")


async def _outcome(work: Coroutine[Any, Any, Reply]) -> Reply | RequestError:  # Any: as typing has it
    try:
        return await work
    except RequestError as error:
        return error


MOST_WORKERS = 1000  # of one model
_WHOLE = re.compile(r"[+-]?[0-9]{1,10}", re.ASCII)
_LARGEST = 2**31 - 1  # of a number: a Java int
_NAME = re.compile(r"(?!\.+\Z)[\w.-]+", re.ASCII)  # and `.` and `..`, which paths take for folders, are no names
_RUNTIMES = {"python", "python3"}
UNDER_WAY = "Processing worker updates..."

AddModel = Callable[[ModelPlan], ServedModel]  # raises RequestError where the version is there already


class Registration(Struct, frozen=True, kw_only=True):
    """What a request to register a model asks for; None where it says nothing."""

    url: str | None = None
    model_name: str | None = None
    handler: str | None = None
    runtime: str | None = None
    batch_size: int | None = None
    max_batch_delay: int | None = None  # ms
    initial_workers: int | None = None
    synchronous: bool | None = None
    response_timeout: int | None = None  # s
    startup_timeout: int | None = None  # s

    @classmethod
    def from_query(cls, query: str) -> Self:
        """Read a query; of one name the first counts, and a number that is none as if it weren't there."""
        asked = parameters(query)
        synchronous = asked.get("synchronous")
        return cls(
            url=asked.get("url"),
            model_name=asked.get("model_name"),
            handler=asked.get("handler"),
            runtime=asked.get("runtime"),
            batch_size=whole(asked.get("batch_size"), None),
            max_batch_delay=whole(asked.get("max_batch_delay"), None),
            initial_workers=whole(asked.get("initial_workers"), None),
            synchronous=None if synchronous is None else synchronous.lower() == "true",
            response_timeout=whole(asked.get("response_timeout"), None),
            startup_timeout=whole(asked.get("startup_timeout"), None),
        )

    @classmethod
    def from_json(cls, body: bytes, *, compat: bool) -> Self:
        """Read a JSON object of the same names; raises RequestError for what is none."""
        try:
            return msgspec.json.decode(body, type=cls, strict=False)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            status, kind = (500, "JsonSyntaxException") if compat else (400, "BadRequestException")
            raise RequestError(f"The body is no such JSON: {first_line(error)}", status=status, kind=kind) from None

    def checked(self) -> Self:
        """Return it if all that it says can be meant; raises RequestError (400)."""
        if self.runtime and self.runtime not in _RUNTIMES:
            raise bad_request(f"Invalid RuntimeType value: {self.runtime}")
        if self.model_name and not _NAME.fullmatch(self.model_name):
            raise bad_request("Parameter model_name takes letters, digits, and the signs _ . -")
        if (self.initial_workers or 0) > MOST_WORKERS:
            raise bad_request(f"Parameter initial_workers is at most {MOST_WORKERS}.")
        return self

    def wishes(self, workers: int) -> ModelWishes:
        """Return what it wishes for the model; `workers` where it names no number of them."""
        return ModelWishes(
            handler=self.handler or None,
            workers=workers if self.initial_workers is None else max(0, self.initial_workers),
            batch_size=_at_least(1, self.batch_size),
            max_batch_delay=_at_least(0, self.max_batch_delay),
            response_timeout=_at_least(1, self.response_timeout),
            startup_timeout=_at_least(1, self.startup_timeout),
        )


def parameters(query: str) -> dict[str, str]:
    """Return a query's parameters; of one name the first counts."""
    return dict(reversed(parse_qsl(query, keep_blank_values=True)))


def whole(text: str | None, default: T) -> int | T:
    """Return a number as Java reads an int; the default where it is none."""
    if text is None or not _WHOLE.fullmatch(text) or not -_LARGEST - 1 <= int(text) <= _LARGEST:
        return default
    return int(text)


def _at_least(least: int, value: int | None) -> int | None:
    return value if value is not None and least <= value <= _LARGEST else None


class Registrar:
    """Registers models of the store."""

    def __init__(
        self, core: ServingCore, add: AddModel, store: ModelStore, loader: ModelLoader, *, default_workers: int
    ) -> None:
        """Take what models are added to and loaded with; `default_workers` are started where a client says nothing."""
        self._core = core
        self._add = add
        self._store = store
        self._loader = loader
        self._default_workers = default_workers

    async def register(self, call: Call, work: DetachedWork) -> Reply:
        """Answer `POST /models`; raises RequestError for what cannot be registered."""
        asked = (await self._asked(call)).checked()
        if asked.url is None:
            raise bad_request("Parameter url is required.")
        return await work.finish(self._registered(call, work, asked, self._store.find(asked.url)))

    async def _asked(self, call: Call) -> Registration:
        if bare_type(call.request.header("content-type") or "").lower() != JSON:
            return Registration.from_query(call.query)
        return Registration.from_json(await call.request.body(), compat=self._core.compat)

    async def _registered(self, call: Call, work: DetachedWork, asked: Registration, file: Path) -> Reply:
        call.model = model = await finish_before_end(self._core.ending, self._added(asked, file))
        count = model.settings.min_workers
        registered = f'Model "{model.name}" Version: {model.version} registered with {count} initial workers'
        if not count:
            return status_reply(call, f"{registered}. Use scale workers API to add workers for the model.")
        started = self._started(model, status_reply(call, registered))
        if asked.synchronous is not False:
            return await finish_before_end(self._core.ending, started)
        work.begin(started)
        return status_reply(call, UNDER_WAY, status=202)

    async def _added(self, asked: Registration, file: Path) -> ServedModel:
        try:
            plan = await run_in_loading_thread(
                partial(
                    self._loader.plan,
                    ResolvedSource(path=file),
                    name=asked.model_name or None,
                    wishes=asked.wishes(self._default_workers),
                )
            )
        except MarpackError as error:
            self._core.listener.failed(quoted(file.name), None, error, given_up=True)
            raise _refusal(error) from None
        try:
            return self._add(plan)
        except RequestError:
            plan.prepared.archive.close()
            raise

    async def _started(self, model: ServedModel, reply: Reply) -> Reply:
        """Wait for a new model's workers; if one of them cannot be started, the model goes again."""
        if await model.settled():
            return reply
        self._core.registry.discard(model)
        await model.stop()
        raise not_started(model, model.version, compat=self._core.compat)


def not_started(model: ServedModel, version: str | None, *, compat: bool) -> RequestError:
    """Return the refusal for a model whose workers do not come up, under the version that its client named."""
    message = f"Failed to start workers for model {model.name} version: {version or 'null'}"
    if model.failure is not None and not compat:
        message += f": {model.failure.what}"
    return RequestError(message, status=500, kind="InternalServerException")


def _refusal(error: MarpackError) -> RequestError:
    """Return an archive's refusal for a client, who need not know where on the machine it lies."""
    if isinstance(error, UsageError):
        return bad_request(error.what)
    if isinstance(error, ArchiveError):
        return RequestError(error.what, status=400, kind="InvalidModelException")
    return RequestError(error.what, status=500, kind="InternalServerException")
