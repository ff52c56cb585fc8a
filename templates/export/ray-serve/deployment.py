"""Serve the archive in this folder with Ray Serve, with the responses of TorchServe.

Written by `marpack export --to ray-serve`; edit it as needed. Its settings are in config.yaml.
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
    """A replica: the archive's model in its own worker process, which ends with the replica."""

    def __init__(self, archive: str, device: str) -> None:
        """Load the model; if this raises, Ray retries and finally gives up."""
        self.failure: MarpackError | None = None
        self.model = marpack.load(FOLDER / archive, device=device)

    def reconfigure(self, settings: dict[str, float]) -> None:
        """Apply the `user_config` of config.yaml, at the start and after each change."""
        self.answers.set_max_batch_size(settings["max_batch_size"])
        self.answers.set_batch_wait_timeout_s(settings["batch_wait_timeout_s"])

    def check_health(self) -> None:
        """Raise if the model's worker could not be restarted: Ray then starts another replica."""
        if self.failure is not None:
            raise self.failure

    @serve.batch
    async def answers(self, requests: list[marpack.RawRequest]) -> list[Answer]:
        """Return the responses to a batch, computed in a thread: meanwhile Ray checks the replica's health."""
        try:
            return await asyncio.to_thread(self.model.answer, requests)
        except MarpackError as error:
            self.failure = error
            raise

    async def __call__(self, request: Request) -> Response:
        """Return the response to one request: a prediction, or below /explanations an explanation."""
        # Ray passes header names in lower case; handlers look for Content-Type.
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
    """Log the handler's output and the reasons of failed requests."""
    if answer.logs:
        logger.info(answer.logs.rstrip())
    for trouble in answer.troubles:
        logger.warning("%s: %s", trouble.kind, trouble.message)


def as_response(answer: Answer) -> Response:
    """Return a response for Ray's HTTP server, which accepts the statuses from 200 to 599."""
    status = answer.status if 200 <= answer.status <= 599 else 500
    headers = dict(answer.headers)
    if answer.content_type is not None:
        headers["content-type"] = answer.content_type
    if answer.reset:
        return StreamingResponse(broken_off(answer.raw), status, headers)
    return Response(answer.raw, status, headers)


def broken_off(body: bytes) -> Iterator[bytes]:
    """Yield an incomplete response, then close the connection, as the server does."""
    yield body
    raise ConnectionAbortedError("the handler failed during this response")


def app(args: dict[str, str]) -> serve.Application:
    """Return the application, for config.yaml's `args`."""
    return ArchiveModel.bind(args["archive"], args["device"])
