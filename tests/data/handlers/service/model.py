import torch
import torch.nn.functional as F
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super(Net, self).__init__()
        self.layer = nn.Linear(2, 2)

    def forward(self, x):
        return F.log_softmax(self.layer(torch.flatten(x, 1)), dim=1)
