"""Train a model that counts in words, and write the example's files.

From the repository's root: python -m examples.streaming.train [FOLDER]
"""

import sys
from pathlib import Path
from random import Random

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence

from examples.exporting import make_deterministic, save_torchscript
from examples.streaming.words import END, NEXT, WORDS, encode, spell

HERE = Path(__file__).parent
EPOCHS = 8
BATCH = 32
HIDDEN = 96
GOOD_ENOUGH = 0.97
IGNORED = -100  # a position that the loss ignores

Example = tuple[torch.Tensor, torch.Tensor]  # the input words, and the next word of each


class CountingNet(nn.Module):
    """Map words `[N, T]` and a state to the logits of the next words `[N, T, words]` and the next state."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(len(WORDS), 32)
        self.memory = nn.GRU(32, HIDDEN, batch_first=True)
        self.word = nn.Linear(HIDDEN, len(WORDS))

    def forward(self, words: torch.Tensor, state: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        heard, state = self.memory(self.embedding(words), state)
        return self.word(heard), state


def main(folder: Path = HERE) -> float:
    make_deterministic()
    numbers = Random(0).sample(range(9999), 9999)
    held_out, known = numbers[:1000], numbers[1000:]
    net = train([example(number) for number in known])
    right = sum(count_on(net, number) == [*spell(number + 1), END] for number in held_out)
    accuracy = right / len(held_out)
    print(f"{accuracy:.2%} of {len(held_out)} numbers never seen are counted on from rightly (trained on {len(known)})")
    if accuracy < GOOD_ENOUGH:
        sys.exit(f"less than {GOOD_ENOUGH:.0%}: nothing written")
    save_torchscript(net, folder / "counting.pt")
    return accuracy


def example(number: int) -> Example:
    """Return `three hundred next three hundred one` and its target after `next`, `three hundred one end`."""
    question, answer = encode([*spell(number), NEXT]), encode([*spell(number + 1), END])
    asked = [IGNORED] * (len(question) - 1) + answer
    return torch.tensor(question + answer[:-1]), torch.tensor(asked)


def train(examples: list[Example]) -> CountingNet:
    net = CountingNet().train()
    optimizer = torch.optim.Adam(net.parameters())
    steps = EPOCHS * -(-len(examples) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.01, total_steps=steps)
    for epoch in range(EPOCHS):
        order = Random(epoch).sample(examples, len(examples))
        for start in range(0, len(order), BATCH):
            heard, asked = zip(*order[start : start + BATCH], strict=True)
            logits, _ = net(pad_sequence(heard, batch_first=True), None)
            wanted = pad_sequence(asked, batch_first=True, padding_value=IGNORED)
            optimizer.zero_grad()
            nn.functional.cross_entropy(logits.flatten(0, 1), wanted.flatten(), ignore_index=IGNORED).backward()
            optimizer.step()
            schedule.step()
    return net.eval()


@torch.inference_mode()
def count_on(net: CountingNet, number: int) -> list[str]:
    """Return the predicted words of the next number, at most ten."""
    heard, state, said = encode([*spell(number), NEXT]), None, []
    while len(said) < 10 and said[-1:] != [END]:
        logits, state = net(torch.tensor([heard]), state)
        heard = [logits[0, -1].argmax().item()]
        said.append(WORDS[heard[0]])
    return said


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
