"""A script as a user writes it whose type checker reads our annotations: `make lint` checks it."""

from __future__ import annotations

import lucid_gpu as torch
from lucid_gpu import distributions, nn, optim
from lucid_gpu.nn import functional as F
from lucid_gpu.utils.data import DataLoader, TensorDataset


class Classifier(nn.Module):
    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        self.norm: nn.LayerNorm = nn.LayerNorm(features)
        self.head: nn.Linear = nn.Linear(features, classes)
        self.pool: nn.MaxPool1d = nn.MaxPool1d(2)
        self.activation: nn.Module = nn.ReLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.head(self.activation(self.norm(x)))
        return found


def train(device: torch.device, dtype: torch.dtype = torch.float32) -> float:
    x: torch.Tensor = torch.tensor([[0.0, 1.0], [1.0, 0.0]], dtype=dtype, device=device)
    model = Classifier(2, 2).to(device)
    optimizer = optim.AdamW(model.parameters(), lr=1e-3)
    prior = distributions.Normal(0.0, 1.0)
    for inputs, targets in DataLoader(TensorDataset(x, torch.tensor([0, 1])), batch_size=2):
        loss: torch.Tensor = F.cross_entropy(model(inputs), targets)
        optimizer.zero_grad()
        (loss - prior.log_prob(x).mean()).backward()
        optimizer.step()
    with torch.no_grad():
        return float(model(x).roll(1).sum())
