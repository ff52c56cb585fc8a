"""The page to try models on: its routes, the state that it shows, and the responses to inputs tried on it."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Self
from urllib.parse import quote

from msgspec import Struct

from marpack.archive.index import index_of
from marpack.archive.protocol import Archive
from marpack.errors import ArchiveError
from marpack.inspection.members import labels_of
from marpack.json_text import to_json
from marpack.protocol.messages import Trouble
from marpack.runner.client import BatchResult
from marpack.runner.inputs import Input, type_of
from marpack.runner.results import AnsweredInput, Result, results_of
from marpack.serving.access import Admission, TokenKind
from marpack.serving.api import JSON, Call, Route, ServingCore, about, not_found
from marpack.serving.http import Reply
from marpack.serving.jobs import StreamedResponse
from marpack.serving.loading import run_in_loading_thread
from marpack.serving.models import ModelState, WorkerState
from marpack.torchserve.forms import receive

_MAX_SAMPLE = 16 << 20  # bytes of a packed sample that the page offers
_BASIC_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
PAGE_HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
        "form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    **_BASIC_HEADERS,
}
# A sample may have the type of a page or a script: opened by itself, it has no origin and cannot run anything.
SAMPLE_HEADERS: Mapping[str, str] = {"Content-Security-Policy": "default-src 'none'; sandbox", **_BASIC_HEADERS}


class PageSample(Struct, frozen=True, kw_only=True):
    """One input that was packed with a model."""

    name: str
    content_type: str
    url: str  # absolute path


class PageModel(Struct, frozen=True, kw_only=True):
    """One version of a model in the page's list."""

    name: str
    version: str
    default: bool
    state: ModelState
    workers: int  # that are ready
    detail: str = ""  # the error of a failed model
    latencies: tuple[float, ...] = ()  # ms, the latest last
    samples: tuple[PageSample, ...] = ()


class PageState(Struct, frozen=True):
    """The state that the page polls."""

    models: tuple[PageModel, ...]


class TriedResponse(Struct, frozen=True, kw_only=True):
    """The response to an input tried on the page."""

    status: int  # 0: none came
    phrase: str
    headers: tuple[tuple[str, str], ...]
    content_type: str | None
    milliseconds: float  # from the request's last byte to the response
    queue_milliseconds: float  # part of `milliseconds`
    html: str  # from `PageRenderer.draw`
    text: str | None  # a body that is text
    troubles: tuple[Trouble, ...]

    @classmethod
    def of(
        cls, result: Result, html: str, headers: Iterable[tuple[str, str]], milliseconds: float, queue_ms: float
    ) -> Self:
        """Return a result with its HTML, and the headers and times of its response."""
        return cls(
            status=result.status,
            phrase=result.phrase,
            headers=tuple(headers),
            content_type=result.content_type,
            milliseconds=round(milliseconds, 3),
            queue_milliseconds=round(queue_ms, 3),
            html=html,
            text=result.body if result.body_encoding == "text" else None,
            troubles=result.troubles,
        )


class PageAsset(Struct, frozen=True):
    """One file of the page."""

    content_type: str
    data: bytes


class PageRenderer(Struct, frozen=True):
    """The functions that draw the page.

    `draw` returns the HTML of an input with its response, from the labels {class index: label} and the handler's name.
    It decodes images, which takes up to a second: run it in a thread.
    """

    assets: Mapping[str, PageAsset]  # the page's files, by their names below `/page/`
    index: Callable[[Sequence[PageModel]], bytes]  # returns the page in UTF-8, for the models at its start
    draw: Callable[[AnsweredInput, Mapping[str, str], str], str]


class PageApi:
    """The page's routes. Requests from pages of other sites are refused."""

    def __init__(self, core: ServingCore, renderer: PageRenderer) -> None:
        self._core = core
        self._renderer = renderer
        self.admission = Admission(kind=TokenKind.INFERENCE, is_guarded=True)
        get, check = frozenset({"GET", "HEAD"}), self.admission.check
        self.routes = (
            Route("/", self.index, get, is_documented=False),
            Route("/page/state", self.state, get, check, is_documented=False),
            Route("/page/try/{model}/{version}", self.attempt, frozenset({"POST"}), check, is_documented=False),
            Route("/page/samples/{model}/{version}/{number}", self.sample, get, check, is_documented=False),
            Route("/page/{name}", self.asset, get, check, is_documented=False),
        )

    async def index(self, call: Call) -> Reply:
        """Answer a browser with the page, and other clients with the names of the server and its models."""
        is_browser = "text/html" in (call.request.header("accept") or "")
        if is_browser or not self._core.compat:  # which refuses every other client anyway
            self.admission.check(call)
        if not is_browser:
            return await about(self._core, call)
        return _page_reply(call, "text/html; charset=utf-8", self._renderer.index(self._state().models))

    async def asset(self, call: Call, name: str) -> Reply:
        """Answer with a file of the page."""
        asset = self._renderer.assets.get(name)
        if asset is None:
            raise not_found()
        return _page_reply(call, asset.content_type, asset.data)

    async def state(self, call: Call) -> Reply:
        """Answer with the state of all models."""
        return _page_reply(call, JSON, to_json(self._state()))

    async def sample(self, call: Call, model: str, version: str, number: str) -> Reply:
        """Answer with a packed sample."""
        archive = self._core.registry.find(model, version).prepared.archive
        names = _sample_names(archive)
        if not number.isdecimal() or len(number) > 6 or int(number) >= len(names):
            raise not_found()
        name = names[int(number)]

        def read() -> bytes:
            with archive.open(name) as file:
                return file.read()

        data = await run_in_loading_thread(read)
        return _page_reply(call, type_of(name, data), data, SAMPLE_HEADERS)

    async def attempt(self, call: Call, model: str, version: str) -> Reply:
        """Try an input on a model, and answer with its drawn response."""
        body = await call.request.body()
        found = call.model = self._core.registry.find(model, version)
        content_type = call.request.header("content-type") or ""
        sent = (("Content-Type", content_type),) if content_type else ()
        request = receive(sent, body, request_id=call.id, limit=call.request.max_size)
        call.job = job = found.submit(request, named_version=version)
        response = await found.response(job)
        if isinstance(response, StreamedResponse):
            response = await response.whole()
        found.latencies.append(job.milliseconds)
        stages = {} if job.handler_ms is None else {"handle": job.handler_ms}
        outcome = BatchResult(responses=(response,), stages=stages, troubles=job.troubles)
        answered = AnsweredInput(Input("input", request), results_of(("input",), outcome)[0])
        archive = found.prepared.archive
        handler = str(archive.manifest.model.handler)
        html = await asyncio.to_thread(lambda: self._renderer.draw(answered, labels_of(archive), handler))
        headers = response.headers
        if response.content_type is not None:
            headers = (("content-type", response.content_type), *headers)
        tried = TriedResponse.of(answered.result, html, headers, job.milliseconds, job.queue_ms)
        return _page_reply(call, JSON, to_json(tried))

    def _state(self) -> PageState:
        registry, models = self._core.registry, []
        for model in sorted(registry, key=lambda each: (each.name, not registry.is_default(each), each.version)):
            place = f"/page/samples/{quote(model.name, safe='')}/{quote(model.version, safe='')}"
            samples = tuple(
                PageSample(name=name.removeprefix("MAR-INF/"), content_type=type_of(name, b""), url=f"{place}/{number}")
                for number, name in enumerate(_sample_names(model.prepared.archive))
            )
            models.append(
                PageModel(
                    name=model.name,
                    version=model.version,
                    default=registry.is_default(model),
                    state=model.state,
                    workers=sum(worker.state is WorkerState.READY for worker in model.workers),
                    detail=model.failure.what if model.failure and model.state is ModelState.FAILED else "",
                    latencies=tuple([round(each, 3) for each in model.latencies]),
                    samples=samples,
                )
            )
        return PageState(tuple(models))


def _sample_names(archive: Archive) -> list[str]:
    """Return the members that are packed samples, except large ones."""
    try:
        index = index_of(archive)
    except ArchiveError:
        return []
    named = [item.get("input") for item in (index.samples if index else ())]
    entries = archive.entries
    return [name for name in named if isinstance(name, str) and name in entries and entries[name].size <= _MAX_SAMPLE]


def _page_reply(call: Call, content_type: str, data: bytes, headers: Mapping[str, str] = PAGE_HEADERS) -> Reply:
    return call.reply(data, content_type, headers=tuple(headers.items()))
