"""Define the model: the mean of the embeddings of words and pairs of words."""

import torch
from torch import nn

WORDS = 6000  # maximum number; 0 is an unknown word
TOPICS = 6


class TopicNet(nn.Module):
    """Map the word numbers of concatenated texts `[words]` and their offsets `[N]` to logits `[N, 6]`."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.EmbeddingBag(WORDS, 16, mode="mean")
        self.topic = nn.Linear(16, TOPICS)

    def forward(self, text: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
        return self.topic(self.embedding(text, offsets))
