"""The archive beside this file as an application of Ray Serve, which answers as TorchServe would.

`marpack export --to ray-serve` wrote it; from here on it is yours. What it is set to stands in config.yaml.
"""

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path

from ray import serve
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

import marpack
from marpack.api.results import Answer
from marpack.errors import MarpackError

FOLDER = Path(__file__).parent
logger = logging.getLogger("ray.serve")


@serve.deployment
class ArchiveModel:
    """A replica: the archive's model, in a worker process of its own that ends with the replica."""

    def __init__(self, archive: str, device: str) -> None:
        """Load the model; Ray tries again, and in the end gives up, where this raises."""
        self.failure: MarpackError | None = None
        self.model = marpack.load(FOLDER / archive, device=device)

    def reconfigure(self, settings: dict[str, float]) -> None:
        """Take config.yaml's `user_config`: Ray calls this at the start, and when it was changed."""
        self.answers.set_max_batch_size(settings["max_batch_size"])
        self.answers.set_batch_wait_timeout_s(settings["batch_wait_timeout_s"])

    def check_health(self) -> None:
        """Raise if the model's worker could not be started again: Ray then starts another replica."""
        if self.failure is not None:
            raise self.failure

    @serve.batch
    async def answers(self, requests: list[marpack.RawRequest]) -> list[Answer]:
        """Answer a batch, in a thread: meanwhile Ray asks for the replica's health and fills the next one."""
        try:
            return await asyncio.to_thread(self.model.answer, requests)
        except MarpackError as error:
            self.failure = error
            raise

    async def __call__(self, request: Request) -> Response:
        """Answer one request: a prediction, or under /explanations an explanation."""
        # Ray hands names of headers on in small letters; handlers look for Content-Type.
        headers = [(name.decode("latin-1").title(), value.decode("latin-1")) for name, value in request.headers.raw]
        explain = request.url.path.startswith("/explanations")
        answer = await self.answers(marpack.RawRequest(tuple(headers), await request.body(), explain))
        log(answer)
        return as_response(answer)

    def __del__(self) -> None:
        """End the worker."""
        if hasattr(self, "model"):
            self.model.close()


def log(answer: Answer) -> None:
    """Write what the handler printed, and why an answer is none, to the replica's log."""
    if answer.logs:
        logger.info(answer.logs.rstrip())
    for trouble in answer.troubles:
        logger.warning("%s: %s", trouble.kind, trouble.message)


def as_response(answer: Answer) -> Response:
    """Return an answer as Ray's HTTP server takes it, which knows the statuses from 200 to 599."""
    status = answer.status if 200 <= answer.status <= 599 else 500
    headers = dict(answer.headers)
    if answer.content_type is not None:
        headers["content-type"] = answer.content_type
    if answer.reset:
        return StreamingResponse(broken_off(answer.raw), status, headers)
    return Response(answer.raw, status, headers)


def broken_off(body: bytes) -> Iterator[bytes]:
    """Yield what there is of an answer that its handler has not ended, and then break the connection off, too."""
    yield body
    raise ConnectionAbortedError("the handler failed in the middle of this answer")


def app(args: dict[str, str]) -> serve.Application:
    """Return the application, for config.yaml's `args`."""
    return ArchiveModel.bind(args["archive"], args["device"])
