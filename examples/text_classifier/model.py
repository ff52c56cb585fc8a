"""The net: the mean of what each word and pair of words says."""

import torch
from torch import nn

WORDS = 6000  # at most; 0 stands for every word the net has not met
TOPICS = 6


class TopicNet(nn.Module):
    """Word numbers of several texts on end `[words]`, and where each text begins `[N]`, to logits `[N, 6]`."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.EmbeddingBag(WORDS, 16, mode="mean")
        self.topic = nn.Linear(16, TOPICS)

    def forward(self, text: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
        return self.topic(self.embedding(text, offsets))
