"""The page's own routes: the page, what it is made of, how the models fare, and inputs tried on them."""

import asyncio
from functools import partial
from urllib.parse import quote

from marpack.archive.index import index_of
from marpack.archive.protocol import Archive
from marpack.errors import ArchiveError
from marpack.inspection.members import labels_of
from marpack.json_text import to_json
from marpack.runner.client import BatchResult
from marpack.runner.inputs import Input, type_of
from marpack.runner.results import AnsweredInput, results_of
from marpack.serving.access import Admission, TokenKind
from marpack.serving.api import JSON, Call, Operation, Route, ServingCore, method_not_allowed, not_found
from marpack.serving.http import Reply
from marpack.serving.jobs import StreamedAnswer
from marpack.serving.loading_threads import run_in_loading_thread
from marpack.serving.models import ModelState, ServedModel
from marpack.serving.page import (
    PAGE_HEADERS,
    SAMPLE_HEADERS,
    PageModel,
    PageRenderer,
    PageSample,
    PageState,
    tried_answer,
)
from marpack.torchserve.forms import receive
from marpack.torchserve.http import Response, phrase_of

_LARGEST = 16 << 20  # bytes of a sample that is offered


class PageApi:
    """Answers what the page asks for. A page of another site that asks for it is refused."""

    def __init__(self, core: ServingCore, renderer: PageRenderer) -> None:
        self._core = core
        self._renderer = renderer
        self.admission = Admission(kind=TokenKind.INFERENCE, guarded=True)

    def routes(self) -> tuple[Route, ...]:
        """Return the page's routes."""
        get = frozenset({"GET", "HEAD"})
        rows: tuple[tuple[str, Operation, frozenset[str]], ...] = (
            ("/page/state", self.state, get),
            ("/page/try/{model}/{version}", self.attempt, frozenset({"POST"})),
            ("/page/samples/{model}/{version}/{number}", self.sample, get),
            ("/page/{name}", self.asset, get),
        )
        return (
            Route("/", self.index, get),
            *(Route(path, operation, methods, self.admission.check) for path, operation, methods in rows),
        )

    async def index(self, call: Call) -> Reply:
        """Answer a browser with the page, and anything else as the original does."""
        if "text/html" not in (call.request.header("accept") or ""):
            raise method_not_allowed()
        self.admission.check(call)
        return _page(call, "text/html; charset=utf-8", self._renderer.index(self._models()))

    async def asset(self, call: Call, name: str) -> Reply:
        """Answer with a file that the page is made of."""
        asset = self._renderer.asset(name)
        if asset is None:
            raise not_found()
        return _page(call, asset.content_type, asset.data)

    async def state(self, call: Call) -> Reply:
        """Tell how the models fare."""
        return _page(call, JSON, to_json(PageState(tuple(self._models()))))

    async def sample(self, call: Call, model: str, version: str, number: str) -> Reply:
        """Answer with a packed sample."""
        archive = self._core.registry.find(model, version).prepared.archive
        names = _samples(archive)
        if not number.isdecimal() or len(number) > 6 or int(number) >= len(names):
            raise not_found()
        name = names[int(number)]
        data = await run_in_loading_thread(partial(_content, archive, name))
        return _page(call, type_of(name, data), data, dict(SAMPLE_HEADERS))

    async def attempt(self, call: Call, model: str, version: str) -> Reply:
        """Try an input on a model, and draw the answer."""
        found = call.model = self._core.registry.find(model, version)
        body = await call.request.body()
        content_type = call.request.header("content-type") or ""
        sent = (("Content-Type", content_type),) if content_type else ()
        request = receive(sent, body, request_id=call.id, limit=self._core.max_request_size)
        job = found.submit(request, named=version)
        answer = await found.answer(job)
        response = await answer.whole() if isinstance(answer, StreamedAnswer) else answer
        call.queue_ms, call.handler_ms = job.queue_ms, job.handler_ms
        found.latencies.append(job.milliseconds)
        stages = {} if job.handler_ms is None else {"handle": job.handler_ms}
        outcome = BatchResult(responses=(response,), stages=stages, troubles=job.troubles)
        answered = AnsweredInput(Input("input", request), results_of(("input",), outcome)[0])
        handler = str(found.prepared.archive.manifest.model.handler)
        labels = labels_of(found.prepared.archive)
        html = await asyncio.to_thread(self._renderer.draw, answered, labels, handler)
        headers = response.headers
        if response.content_type is not None:
            headers = (("content-type", response.content_type), *headers)
        tried = tried_answer(
            answered.result, html, headers=headers, milliseconds=job.milliseconds, queue_milliseconds=job.queue_ms
        )
        return _page(call, JSON, to_json(tried))

    def _models(self) -> list[PageModel]:
        registry = self._core.registry
        models = sorted(registry, key=lambda model: (model.name, not registry.is_default(model), model.version))
        return [_shown(model, default=registry.is_default(model)) for model in models]


def _shown(model: ServedModel, *, default: bool) -> PageModel:
    place = f"/page/samples/{quote(model.name, safe='')}/{quote(model.version, safe='')}"
    state = model.state
    detail = str(model.failure) if state is ModelState.FAILED else ""
    return PageModel(
        name=model.name,
        version=model.version,
        default=default,
        state=state,
        workers=model.living,
        detail=detail,
        latencies=tuple([round(each, 3) for each in model.latencies]),
        samples=tuple(
            PageSample(name=name.removeprefix("MAR-INF/"), content_type=type_of(name, b""), url=f"{place}/{number}")
            for number, name in enumerate(_samples(model.prepared.archive))
        ),
    )


def _samples(archive: Archive) -> list[str]:
    """Return the members that are packed samples, and not too large to be looked at."""
    try:
        index = index_of(archive)
    except ArchiveError:
        return []
    named = [item.get("input") for item in (index.samples if index else ())]
    entries = archive.entries
    return [name for name in named if isinstance(name, str) and name in entries and entries[name].size <= _LARGEST]


def _content(archive: Archive, name: str) -> bytes:
    with archive.open(name) as file:
        return file.read()


def _page(call: Call, content_type: str, data: bytes, headers: dict[str, str] | None = None) -> Reply:
    headers = dict(PAGE_HEADERS) if headers is None else headers
    response = Response(
        status=200, phrase=phrase_of(200), body=data, content_type=content_type, headers=tuple(headers.items())
    )
    return Reply(response=response, request_id=call.id)
