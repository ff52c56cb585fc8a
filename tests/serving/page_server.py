"""A server of the page in a thread, with fixed responses instead of models."""

import asyncio
import io
import json
import threading
from concurrent.futures import Future
from typing import Any, Self
from urllib.parse import quote

from aiohttp import web
from PIL import Image, ImageDraw

from marpack.json_text import to_json
from marpack.protocol.messages import Frame, Trouble
from marpack.render.serve import page_renderer
from marpack.runner.inputs import RequestDefaults
from marpack.runner.results import AnsweredInput, Result, body_of
from marpack.serving.models import ModelState
from marpack.serving.page import PAGE_HEADERS, SAMPLE_HEADERS, PageModel, PageSample, PageState, TriedResponse

HOSTILE = """<img src=x onerror="document.title='taken'">'; $(touch taken) &amp; a/b\n"""
PARTS = {"name": str, "version": str}
BARS = {"seven": 0.93, "nine": 0.04, "<b>two</b>": 0.02, "four": 0.01}
BOXES = [{"person": [20, 30, 90, 170], "score": 0.98}, {"dog": [150, 90, 280, 190], "score": 0.71}]
RAISED = Trouble(
    kind="KeyError",
    message="'<i>gone</i>'",
    stage="preprocess",
    frames=(Frame("/models/digits/handler.py", 12, "preprocess", "row['<i>gone</i>']", user=True),),
    hint="look up what the row holds",
)


def picture(width: int = 300, height: int = 200, kind: str = "PNG") -> bytes:
    """Return a picture with a few shapes."""
    image = Image.new("RGB", (width, height), "#c8d8e8")
    draw = ImageDraw.Draw(image)
    draw.rectangle((0, height * 0.7, width, height), fill="#8aa06a")
    draw.ellipse((width * 0.08, height * 0.2, width * 0.3, height * 0.85), fill="#b5523b")
    draw.rectangle((width * 0.5, height * 0.45, width * 0.93, height * 0.95), fill="#5a4a3a")
    buffer = io.BytesIO()
    image.save(buffer, kind)
    return buffer.getvalue()


SAMPLES = {
    "samples/scene.png": ("image/png", picture()),
    "samples/seven.png": ("image/png", picture(8, 8)),
    "samples/review.txt": ("text/plain", b"a fine film"),
    "samples/rows.json": ("application/json", b'{"instances": [1, 2]}'),
    "samples/broken.json": ("application/json", b"{"),
    "samples/<u>.html": ("text/html", b"<script>document.title='taken'</script>"),
}


def model(name: str, version: str = "1.0", **given: Any) -> PageModel:
    """Return a model as the page lists it, with all samples."""
    path = f"/page/samples/{quote(name, safe='')}/{quote(version, safe='')}"
    samples = tuple(
        PageSample(name=sample, content_type=kind, url=f"{path}/{number}")
        for number, (sample, (kind, _)) in enumerate(SAMPLES.items())
    )
    values = {"default": True, "state": ModelState.READY, "workers": 1, "samples": samples}
    return PageModel(name=name, version=version, **(values | given))


MODELS = (
    model("digits", latencies=(12.1, 11.9, 14.2, 12.4, 31.0, 12.0, 11.8)),
    model("detector", default=False, samples=(), workers=2),
    model("detector", "2.0", latencies=(140.0,)),
    model("segmenter"),
    model("slow", state=ModelState.LOADING, workers=0, detail="loading for 4 s"),
    model("broken", state=ModelState.FAILED, workers=0, detail="ModuleNotFoundError: No module named 'timm'"),
    model(HOSTILE),
)


class PageServer:
    """The page under its own address; the requests for a response are in `asked`."""

    def __init__(self, models: tuple[PageModel, ...] = MODELS) -> None:
        self.models = models
        self.asked: list[tuple[str, str, str, bytes]] = []  # model, version, content type, body
        self.cancelled = threading.Event()
        self._page = page_renderer()

    def __enter__(self) -> Self:
        started: Future[str] = Future()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve(started)))
        self._thread.start()
        self.address = started.result(20)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(20)

    async def _serve(self, started: Future[str]) -> None:
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        app = web.Application()
        app.router.add_get("/", self._index)
        app.router.add_get("/page/state", self._state)
        app.router.add_get("/page/samples/{name}/{version}/{number}", self._sample)
        app.router.add_post("/page/try/{name}/{version}", self._try)
        app.router.add_get("/page/{asset}", self._asset)
        runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        started.set_result("http://{}:{}".format(*runner.addresses[0]))
        await self._end.wait()
        await runner.cleanup()

    async def _index(self, _: web.Request) -> web.Response:
        page = self._page.index(self.models)
        return web.Response(body=page, headers=PAGE_HEADERS, content_type="text/html", charset="utf-8")

    async def _asset(self, request: web.Request) -> web.Response:
        asset = self._page.assets.get(request.match_info["asset"])
        if asset is None:
            raise web.HTTPNotFound
        return web.Response(body=asset.data, headers={**PAGE_HEADERS, "Content-Type": asset.content_type})

    async def _state(self, _: web.Request) -> web.Response:
        return _json(PageState(self.models))

    async def _sample(self, request: web.Request) -> web.Response:
        kind, data = list(SAMPLES.values())[int(request.match_info["number"])]
        return web.Response(body=data, headers={**SAMPLE_HEADERS, "Content-Type": kind})

    async def _try(self, request: web.Request) -> web.Response:
        name, version = request.match_info["name"], request.match_info["version"]
        kind, body = request.headers["Content-Type"], await request.read()
        self.asked.append((name, version, kind, body))
        if name == "broken":
            error = {"code": 503, "type": "ServiceUnavailableException", "message": 'Model "broken" has <no> worker.'}
            return web.json_response(error, status=503, headers=PAGE_HEADERS)
        if name == "slow":
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                self.cancelled.set()
                raise
        answered = AnsweredInput(RequestDefaults().input("input", 0, kind, body), _answer(name, body))
        html = self._page.draw(answered, {"1": "tree", "2": "<em>car</em>"}, "image_segmenter")
        headers = [("x-request-id", "8c1f"), ("X-Odd", "<s>")]
        return _json(TriedResponse.of(answered.result, html, headers, 12.34, 1.5))


def _json(value: object) -> web.Response:
    return web.Response(body=to_json(value), headers=PAGE_HEADERS, content_type="application/json")


def _answer(name: str, body: bytes) -> Result:
    status, troubles, answer = 200, (), _canned(name, body)
    if b"fail" in body:
        status, troubles = 500, (RAISED,)
        answer = json.dumps({"code": 500, "type": "InternalServerException", "message": "Prediction failed"}).encode()
    held, stages = body_of(answer), {"preprocess": 2.0, "inference": 8.0, "postprocess": 0.5, "handle": 11.0}
    values: dict[str, Any] = {"phrase": "OK" if status == 200 else "Internal Server Error", "headers": {}}
    values |= {"content_type": "application/json", "body": held.content, "body_encoding": held.encoding}
    logs = "a line that the handler printed\n" if name == "digits" else ""
    return Result(input="input", status=status, stages=stages, seconds=0.011, logs=logs, troubles=troubles, **values)


def _canned(name: str, body: bytes) -> bytes:
    if name == "segmenter":
        return json.dumps([[int(x > 30) + int(x > 30 and y > 12) for x in range(60)] for y in range(40)]).encode()
    if name == "detector":
        return json.dumps(BOXES).encode()
    if body == b"long":
        return b"x" * 100_001
    if body == b"bytes":
        return picture(64, 64, "JPEG")
    return json.dumps(BARS).encode()
