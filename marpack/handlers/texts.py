"""Texts as requests carry them, and why one is refused (contract §7)."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import accumulate
from typing import Any

from marpack.handlers.text_pipeline import ngram_count
from marpack.torchserve.diagnostics import note

_HINT = "send the text itself as the body, with Content-Type: text/plain, or in a form field named data"


def text_of(row: dict[str, Any]) -> Any:  # Any: text, unless the request held something else
    """Return a row's text, decoded as UTF-8 if it came as bytes."""
    text = row.get("data") or row.get("body")
    return text.decode("utf-8") if isinstance(text, (bytes, bytearray)) else text


@contextmanager
def explained(row: dict[str, Any]) -> Iterator[None]:
    """Note why a request's text is refused."""
    try:
        yield
    except Exception:
        value = row.get("data") or row.get("body")
        if isinstance(value, (bytes, bytearray)):
            note("not-utf-8", f"the text ({len(value)} bytes) is not UTF-8", stage="preprocess", hint=_HINT)
        elif not isinstance(value, str):
            what = f"a JSON {type(value).__name__}" if value else "empty"
            note("not-text", f"the body is {what}, not text", stage="preprocess", hint=_HINT)
        raise


def note_no_words(text: str) -> None:
    """Note that nothing of a text is left without markup and punctuation, which fails in the embedding."""
    message = f"no word is left of the text ({len(text)} characters) without markup, punctuation and foreign letters"
    note("no-words", message, stage="preprocess", hint="send English words")


def note_batch(rows: int) -> None:
    """Note that the server's text classifier answers the first request of a batch only."""
    message = f"the server's text_classifier answers one request a batch, and this batch has {rows}"
    note("text-batch", message, stage="preprocess", hint="set batchSize: 1, or target: marpack")


def offsets_of(tokens: Any, ngrams: int) -> list[int]:  # Any: one text's tokens, or a list of them per text
    """Return where each text's n-grams begin in the batch's one tensor."""
    if not (tokens and isinstance(tokens[0], list)):
        return [0]
    counts = [ngram_count(len(each), ngrams) for each in tokens]
    return [0, *accumulate(counts[:-1])]
