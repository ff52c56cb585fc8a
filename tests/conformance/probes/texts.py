"""The built-in handler of texts, on inputs of every kind (contract §7)."""

from collections import Counter
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

from conformance.probe import Batch, Call, Field, Form, Probe

JSON = "application/json"

_WORDS = "the a cat dog sat on mat is not it i am do good bad film very would have cannot 5 2000 cafe"
_TOKENS = [*_WORDS.split(), *(f"{one} {other}" for one, other in pairwise(_WORDS.split()))]

_TEXT_MODEL = """
import torch
from torch import nn


class Bag(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.EmbeddingBag(64, 4)
        self.out = nn.Linear(4, 3)

    def forward(self, text, offsets):
        return self.out(self.embedding(text, offsets))
"""

_TEXTS = {
    "plain": "the cat sat on the mat",
    "case": "The CAT sat",
    "punctuation": "the cat, sat. on! the? mat;",
    "contractions": "it's good, i'm bad, don't, wouldn't've, can't",
    "html": "<b>the</b> cat &amp; <br/> dog",
    "html-alone": "<p></p>",
    "accents": "caf\u00e9 the",
    "unknown-word": "the zebra sat",
    "one-word": "cat",
    "numbers": "2,000 5",
    "blanks": "  the \n\t cat ",
    "empty": "",
    "punctuation-alone": "?!",
    "emoji": "the cat \U0001f600 sat",
    "curly-quote": "it\u2019s the cat",
}


def _text_members(folder: Path) -> Mapping[str, Path]:
    from conformance import nets

    numbers = {token: number for number, token in enumerate(_TOKENS, 1)}
    return {
        "w.pt": nets.save(nets.seeded(_TEXT_MODEL, "Bag").state_dict(), folder / "w.pt"),
        "source_vocab.pt": nets.save(Counter(numbers), folder / "source_vocab.pt"),  # other words are number 0
    }


_TEXT_FILES = {"model.py": _TEXT_MODEL, "index_to_name.json": '{"0": "bad", "1": "so so", "2": "good"}'}
_TEXT = {"handler": "text_classifier", "serializedFile": "w.pt", "modelFile": "model.py"}

TEXT = Probe(
    name="text",
    files=_TEXT_FILES,
    make=_text_members,
    model=_TEXT,
    numeric=True,
    steps=(
        *(Call(name, text, "text/plain") for name, text in _TEXTS.items()),
        Call("untyped", "the cat sat"),
        Call("latin-bytes", b"caf\xe9"),
        Call("json-string", '"the cat"', JSON),
        Call("json-object", '{"data": "the cat"}', JSON),
        Call("json-list", '["the cat"]', JSON),
        Call("form", Form(fields=(Field("data", b"the cat"),))),
        Call("explained", "the cat sat", "text/plain", route="explanations"),
        Call("explained-one-word", "cat", "text/plain", route="explanations"),
        Call(
            "explained-target",
            Form(fields=(Field("data", b"the cat"), Field("target", b"1", "t", JSON))),
            route="explanations",
        ),
        Call("described", "the", "text/plain", (("describe", "True"),)),
    ),
)

TEXT_BATCH = Probe(
    name="text-batch",
    files=_TEXT_FILES,
    make=_text_members,
    model=_TEXT,
    batch_size=2,
    steps=(Batch("two", (Call("first", "the cat", "text/plain"), Call("second", "the dog", "text/plain"))),),
)

TEXT_WITHOUT_VOCABULARY = Probe(
    name="text-without-vocabulary",
    files=_TEXT_FILES,
    make=lambda folder: {"w.pt": _text_members(folder)["w.pt"]},
    model=_TEXT,
    steps=(Call("ask", "the", "text/plain"),),
)

PROBES = (TEXT, TEXT_BATCH, TEXT_WITHOUT_VOCABULARY)
