"""Train a model that predicts which module of scikit-learn a sentence is about, on scikit-learn's docstrings.

From the repository's root: python -m examples.text_classifier.train [FOLDER]
"""

import importlib
import inspect
import re
import string
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path
from random import Random

import torch
from torch import nn

from examples.exporting import make_deterministic
from examples.text_classifier.model import WORDS, TopicNet

HERE = Path(__file__).parent
MODULES = ("cluster", "decomposition", "ensemble", "linear_model", "metrics", "preprocessing")
EPOCHS = 25
BATCH = 32
FORGET = 0.2  # share of words that training makes unknown, for texts with other words
GOOD_ENOUGH = 0.75

Passage = tuple[list[str], int]  # words and pairs of words, index into MODULES


def main(folder: Path = HERE) -> float:
    make_deterministic()
    passages = load()
    Random(0).shuffle(passages)
    held_out, known = passages[: len(passages) // 5], passages[len(passages) // 5 :]
    vocabulary = number(known)
    net = train(known, vocabulary)
    text, offsets, topics = pack(held_out, vocabulary)
    accuracy = (net(text, offsets).argmax(1) == topics).float().mean().item()
    print(f"{accuracy:.2%} of {len(held_out)} held-out passages are right (trained on {len(known)})")
    if accuracy < GOOD_ENOUGH:
        sys.exit(f"less than {GOOD_ENOUGH:.0%}: nothing written")
    torch.save(net.state_dict(), folder / "state_dict.pt")
    torch.save(vocabulary, folder / "source_vocab.pt")
    (folder / "labels.txt").write_text("".join(f"sklearn.{module}\n" for module in MODULES))
    return accuracy


def load() -> list[Passage]:
    """Return every passage that only one module's documentation contains."""
    passages = {module: documentation(importlib.import_module(f"sklearn.{module}")) for module in MODULES}
    spread = Counter(passage for found in passages.values() for passage in found)
    return [
        (tokens(passage), topic)
        for topic, module in enumerate(MODULES)
        for passage in sorted(passages[module])
        if spread[passage] == 1
    ]


def documentation(module: object) -> set[str]:
    """Return the passages of running text in the docstrings of a module's public names and their methods."""
    public = [getattr(module, name) for name in module.__all__]
    methods = [
        member
        for cls in filter(inspect.isclass, public)
        for name, member in vars(cls).items()
        if callable(member) and not name.startswith("_")
    ]
    parts = (part for thing in public + methods for part in re.split(r"\n\s*\n", inspect.getdoc(thing) or ""))
    return {
        " ".join(part.split()) for part in parts if len(part.split()) >= 12 and not re.search(r">>>|----|\.\. ", part)
    }


def tokens(text: str) -> list[str]:
    """Return words and pairs of words, as the handler `text_classifier` does for plain English."""
    words = text.lower().translate(str.maketrans("", "", string.punctuation)).split()
    return words + [f"{first} {second}" for first, second in pairwise(words)]


def number(passages: list[Passage]) -> Counter[str]:
    """Number the words of at least three passages, from 1.

    The result is a Counter, because the handler looks words up with `[]`: an unknown word is 0, where a dict would
    raise an exception. torch loads it without trusting the file.
    """
    spread = Counter(word for words, _ in passages for word in set(words))
    known = sorted(word for word, count in spread.items() if count >= 3)[: WORDS - 1]
    return Counter({word: index for index, word in enumerate(known, start=1)})


def pack(passages: list[Passage], vocabulary: Counter[str]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return concatenated texts `[words]`, their offsets `[N]` and topics `[N]`."""
    starts = [0]
    for words, _ in passages:
        starts.append(starts[-1] + len(words))
    text = [vocabulary[word] for words, _ in passages for word in words]
    return torch.tensor(text), torch.tensor(starts[:-1]), torch.tensor([topic for _, topic in passages])


def train(passages: list[Passage], vocabulary: Counter[str]) -> TopicNet:
    net = TopicNet().train()
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    for epoch in range(EPOCHS):
        order = Random(epoch).sample(passages, len(passages))
        for start in range(0, len(order), BATCH):
            text, offsets, topics = pack(order[start : start + BATCH], vocabulary)
            text = text.where(torch.rand(text.shape) >= FORGET, 0)
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(text, offsets), topics, label_smoothing=0.05).backward()
            optimizer.step()
    return net.eval()


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
