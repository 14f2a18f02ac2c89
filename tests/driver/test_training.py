"""lucid_gpu trains over the real CuPy, with the values it has on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lucid_gpu as torch
from lucid_gpu import nn
from lucid_gpu.nn import functional as F

STEPS = 4


def mlp() -> tuple[nn.Module, Any, Any]:
    model = nn.Sequential(nn.Linear(6, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 3))
    return model, torch.randn(8, 6), torch.arange(8) % 3


def convolutions() -> tuple[nn.Module, Any, Any]:
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(36, 3),
    )  # fmt: skip
    return model, torch.randn(4, 1, 8, 8), torch.arange(4) % 3


class Block(nn.Module):
    """A language model of one layer: embedding, causal attention, two linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(11, 16), nn.Parameter(torch.randn(7, 16) * 0.1)
        self.before, self.after = nn.LayerNorm(16), nn.LayerNorm(16)
        self.mixed, self.out = nn.Linear(16, 48), nn.Linear(16, 16)
        self.wide, self.narrow = nn.Linear(16, 32), nn.Linear(32, 16)
        self.head = nn.Linear(16, 11)

    def forward(self, words: Any) -> Any:
        x = self.words(words) + self.places
        parts = self.mixed(self.before(x)).reshape(*words.shape, 3, 2, 8).permute(2, 0, 3, 1, 4)
        heads = F.scaled_dot_product_attention(*parts, is_causal=True)
        x = x + self.out(heads.transpose(1, 2).reshape(x.shape))
        x = x + self.narrow(F.gelu(self.wide(self.after(x))))
        return self.head(x).reshape(-1, 11)


def gpt() -> tuple[nn.Module, Any, Any]:
    words = torch.arange(22).reshape(2, 11)[:, :8] * 7 % 11
    return Block(), words[:, :-1], words[:, 1:].reshape(-1)


def trained(made: Callable[[], tuple[nn.Module, Any, Any]], device: str) -> list[Any]:
    """The losses of some steps, then the parameters."""
    torch.manual_seed(3)
    model, x, y = made()
    model, x, y = model.to(device), x.to(device), y.to(device)
    # Not Adam: some gradients are zero but for rounding, and it would make steps of them.
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return [np.array(losses), *[p.detach().cpu().numpy() for p in model.parameters()]]


@pytest.mark.parametrize("made", [mlp, convolutions, gpt])
def test_training_gives_the_values_of_the_cpu(driver: Any, made: Any) -> None:
    for found, wanted in zip(trained(made, "cuda"), trained(made, "cpu"), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=2e-4, atol=2e-5)
    assert any(name.startswith("launch lucid_") for name in driver.counts())


def test_the_order_of_independent_work_makes_no_difference(driver: Any) -> None:
    first = trained(mlp, "cuda")
    for seed in (1, 2, 3):
        with driver.order(seed):
            again = trained(mlp, "cuda")
        assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))


def test_a_step_neither_waits_nor_copies(driver: Any) -> None:
    torch.manual_seed(3)
    model, x, y = mlp()
    model, x, y = model.to("cuda"), x.to("cuda"), y.to("cuda")
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()

    for _ in range(3):
        step()
    driver.reset_counts()
    step()
    counts = driver.counts()
    waits = [name for name in counts if name.startswith(("synchronize", "query", "copy"))]
    assert waits == [] and "allocate device" not in counts
    assert sum(n for name, n in counts.items() if name.startswith("launch ")) <= 13, counts
