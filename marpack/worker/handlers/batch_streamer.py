"""TextIteratorStreamerBatch: a batch's texts, streamed piece by piece from transformers' `generate` (contract §8)."""

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from transformers import TextIteratorStreamer
from transformers.generation.streamers import BaseStreamer

if TYPE_CHECKING:
    import torch


class TextIteratorStreamerBatch(BaseStreamer):  # type: ignore[misc]  # transformers is no dependency of ours
    """One of transformers' text streamers per row; iterating yields a list of `{"text": piece}` for the batch."""

    def __init__(
        self,
        tokenizer: Any,  # Any: a tokenizer of transformers
        batch_size: int,
        skip_prompt: bool = False,
        timeout: float | None = None,
        **decode_kwargs: Any,  # Any: passed on to the tokenizer
    ) -> None:
        self.batch_size = batch_size
        rows = range(batch_size)
        self.streamers = [TextIteratorStreamer(tokenizer, skip_prompt, timeout, **decode_kwargs) for _ in rows]
        self.streamer_iterators = [iter(streamer) for streamer in self.streamers]

    def put(self, value: "torch.Tensor") -> None:
        """Take the next token of every row, [N] or [N, T]; raises ValueError for another number of rows."""
        if value.shape[0] != self.batch_size:
            raise ValueError(f"a batch of {self.batch_size} was announced, and {list(value.shape)} tokens came")
        for index, streamer in enumerate(self.streamers):
            streamer.put(value[index : index + 1])

    def end(self) -> None:
        """Tell every row's streamer that its text is complete."""
        for streamer in self.streamers:
            streamer.end()

    def __iter__(self) -> Iterator[list[dict[str, str]]]:
        return self

    def __next__(self) -> list[dict[str, str]]:
        """Return every row's next piece; the first row to end ends the batch."""
        pieces = [{"text": piece} for iterator in self.streamer_iterators for piece in itertools.islice(iterator, 1)]
        if len(pieces) < self.batch_size:
            raise StopIteration
        return pieces
