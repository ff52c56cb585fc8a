"""With a stand-in for transformers, which is no dependency: the batch's book-keeping is ours."""

import queue
import sys
from types import ModuleType

import pytest
import torch


class Streamer:
    """Yields each token it is given as text, until it ends."""

    def __init__(self, tokenizer, skip_prompt=False, timeout=None, **decode_kwargs):
        self.arguments = (tokenizer, skip_prompt, timeout, decode_kwargs)
        self.queue = queue.SimpleQueue()

    def put(self, value):
        self.queue.put(str(value.item()))

    def end(self):
        self.queue.put(None)

    def __iter__(self):
        return self

    def __next__(self):
        found = self.queue.get(timeout=30)
        if found is None:
            raise StopIteration
        return found


@pytest.fixture
def streamer_class(monkeypatch):
    package, generation, streamers = (ModuleType(name) for name in ("transformers", "generation", "streamers"))
    package.TextIteratorStreamer = Streamer
    streamers.BaseStreamer = object
    monkeypatch.setitem(sys.modules, "transformers", package)
    monkeypatch.setitem(sys.modules, "transformers.generation", generation)
    monkeypatch.setitem(sys.modules, "transformers.generation.streamers", streamers)
    monkeypatch.delitem(sys.modules, "marpack.worker.handlers.batch_streamer", raising=False)
    from marpack.worker.handlers.batch_streamer import TextIteratorStreamerBatch

    yield TextIteratorStreamerBatch
    sys.modules.pop("marpack.worker.handlers.batch_streamer")


def test_pieces_come_batch_by_batch_until_the_end(streamer_class):
    streamer = streamer_class("tokenizer", 2, skip_prompt=True, timeout=3.0, decode=1)
    assert streamer.streamers[0].arguments == ("tokenizer", True, 3.0, {"decode": 1})
    streamer.put(torch.tensor([1, 2]))
    streamer.put(torch.tensor([3, 4]))
    streamer.end()
    assert list(streamer) == [[{"text": "1"}, {"text": "2"}], [{"text": "3"}, {"text": "4"}]]
    with pytest.raises(ValueError, match=r"\b2\b.*\[3\]"):
        streamer_class("tokenizer", 2).put(torch.tensor([1, 2, 3]))
