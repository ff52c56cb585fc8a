"""The page that a model is tried on: what it asks the server for, what it gets, and who draws it."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from marpack.protocol.messages import Trouble
from marpack.runner.results import AnsweredInput, Result
from marpack.serving.models import ModelState

_NO_GUESSING = {
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
# Of all that is the page's own; what comes from an archive has headers of its own.
PAGE_HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
        "form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    **_NO_GUESSING,
}
# A sample may call itself a page or a script: opened by itself, it is one of no origin and runs nothing.
SAMPLE_HEADERS: Mapping[str, str] = {"Content-Security-Policy": "default-src 'none'; sandbox", **_NO_GUESSING}


class PageSample(Struct, frozen=True, kw_only=True):
    """One input that was packed with a model."""

    name: str
    content_type: str
    url: str  # absolute path


class PageModel(Struct, frozen=True, kw_only=True):
    """One version of a model, as the page lists it."""

    name: str
    version: str
    default: bool  # asked where a path names no version
    state: ModelState
    workers: int  # alive
    detail: str = ""  # a sentence: what it waits for, why it failed
    latencies: tuple[float, ...] = ()  # ms, the latest last
    samples: tuple[PageSample, ...] = ()


class PageState(Struct, frozen=True):
    """What the page asks for while somebody looks at it."""

    models: tuple[PageModel, ...]


class TriedAnswer(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One answer: as a client gets it, as a person looks at it, and why it is so."""

    status: int  # 0: none came
    phrase: str
    headers: tuple[tuple[str, str], ...]
    content_type: str | None
    milliseconds: float  # from the request's last byte to the answer
    html: str  # from `PageRenderer.draw`
    text: str | None  # the body, where it is text
    troubles: tuple[Trouble, ...]
    queue_milliseconds: float | None = None  # of these, before a worker took it


def tried_answer(
    result: Result,
    html: str,
    *,
    headers: Iterable[tuple[str, str]],
    milliseconds: float,
    queue_milliseconds: float | None = None,
) -> TriedAnswer:
    """Return what the page shows of a result: its drawing, and the headers and times that the front gave it."""
    return TriedAnswer(
        status=result.status,
        phrase=result.phrase,
        headers=tuple(headers),
        content_type=result.content_type,
        milliseconds=round(milliseconds, 3),
        html=html,
        text=result.body if result.body_encoding == "text" else None,
        troubles=result.troubles,
        queue_milliseconds=None if queue_milliseconds is None else round(queue_milliseconds, 3),
    )


class PageAsset(Struct, frozen=True):
    """One file that the page is made of."""

    content_type: str
    data: bytes


class PageRenderer(Protocol):
    """Draws the page and the answers on it; the room of renderers has the one body, tests may have another."""

    def index(self, models: Sequence[PageModel]) -> bytes:
        """Return the page, in UTF-8, as it is before it asks for anything."""

    def asset(self, name: str) -> PageAsset | None:
        """Return a file of the page's by its name under `/page/`, or None where there is none."""

    def draw(self, answered: AnsweredInput, labels: Mapping[str, str], handler: str) -> str:
        """Return the HTML of one input with its answer.

        It decodes pictures, which takes up to a second for a large one: it belongs beside the loop, in a thread.

        Args:
            answered: What was asked and answered.
            labels: The model's: {class index: label}.
            handler: As the manifest names it.
        """
