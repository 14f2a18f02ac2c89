"""Small training steps, as deep as one asks: what they cost the host is counted and timed.

`tests/devices/test_budgets.py` bounds what they ask of a GPU; `bench.host_costs` times them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lucid_gpu as torch
from lucid_gpu import nn
from lucid_gpu.nn import functional as F

Step = Callable[[], Any]

DEPTHS = (2, 4, 8)


def fitted(model: nn.Module, loss: Callable[[], Any], made: Any, after: Step | None = None) -> Step:
    optimizer = made(model.parameters())

    def step() -> None:
        optimizer.zero_grad()
        loss().backward()
        if after is not None:
            after()
        optimizer.step()

    return step


def adam(p: Any) -> Any:
    return torch.optim.Adam(p, lr=1e-3)


def sgd(p: Any) -> Any:
    return torch.optim.SGD(p, lr=1e-2, momentum=0.9)


def mlp(device: str, depth: int) -> Step:
    layers = [m for _ in range(depth) for m in (nn.Linear(8, 8), nn.ReLU())]
    model = nn.Sequential(*layers)
    x, y = torch.randn(16, 8, device=device), torch.randn(16, 8, device=device)
    return fitted(model.to(device), lambda: F.mse_loss(model(x), y), sgd)


def convolutions(device: str, depth: int) -> Step:
    def block() -> list[nn.Module]:
        return [nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU()]

    model = nn.Sequential(*[m for _ in range(depth) for m in block()], nn.Flatten())
    model.append(nn.Linear(4 * 6 * 6, 3))
    x, y = torch.randn(4, 4, 6, 6, device=device), torch.arange(4, device=device) % 3
    return fitted(model.to(device), lambda: F.cross_entropy(model(x), y), adam)


class Block(nn.Module):
    """A block of a GPT."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Any) -> Any:
        batch, rows, width = x.shape
        parts = self.qkv(self.first(x)).reshape(batch, rows, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4).unbind(0)
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, rows, width))
        return x + self.down(F.gelu(self.up(self.second(x))))


def gpt(device: str, depth: int) -> Step:
    model = nn.Sequential(*[Block(32, 2) for _ in range(depth)])
    x, y = torch.randn(2, 8, 32, device=device), torch.randn(2, 8, 32, device=device)
    return fitted(model.to(device), lambda: F.mse_loss(model(x), y), adam)


def lstm(device: str, depth: int) -> Step:
    model = nn.LSTM(8, 8, num_layers=depth, batch_first=True)
    x = torch.randn(4, 5, 8, device=device)
    return fitted(model.to(device), lambda: model(x)[0].square().mean(), adam)


def hundred(device: str, depth: int) -> Step:
    """An optimizer alone, of as many hundred parameters."""
    parameters = [torch.randn(3 + i % 5, device=device) for i in range(100 * depth)]
    for p in parameters:
        p.grad = torch.randn_like(p)
    return torch.optim.AdamW(parameters, lr=1e-3).step


def scores(device: str, depth: int) -> Step:
    """Cross entropy of as many tensors of scores, forward and backward."""
    given = [torch.randn(16, 10, device=device, requires_grad=True) for _ in range(depth)]
    target = torch.arange(16, device=device) % 10

    def step() -> None:
        for x in given:
            x.grad = None
            F.cross_entropy(x, target, label_smoothing=0.1).backward()

    return step


CASES: dict[str, Callable[[str, int], Step]] = {
    "MLP": mlp,
    "convolutions": convolutions,
    "GPT": gpt,
    "LSTM": lstm,
    "AdamW of 100": hundred,
    "cross entropy": scores,
}
