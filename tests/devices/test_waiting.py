"""What an ordinary training step asks of a GPU: kernels; no copy from the host, and no waiting."""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lucid_gpu as torch
from bench.small_steps import Step, adam, fitted, sgd
from lucid_gpu import nn
from lucid_gpu.nn import functional as F


def linear(device: str) -> Step:
    model = nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.Dropout(0.1), nn.Linear(8, 3))
    model.to(device)
    x, y = torch.randn(16, 6, device=device), torch.randn(16, 3, device=device)
    return fitted(
        model,
        lambda: F.mse_loss(model(x), y),
        sgd,
        lambda: nn.utils.clip_grad_norm_(model.parameters(), 1.0),
    )


def convolutions(device: str) -> Step:
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(36, 3),
    ).to(device)  # fmt: skip
    x, y = torch.randn(4, 1, 8, 8, device=device), torch.arange(4, device=device) % 3
    return fitted(model, lambda: F.cross_entropy(model(x), y), adam)


def words(device: str) -> Step:
    model = nn.Sequential(nn.Embedding(10, 8), nn.Flatten(), nn.Linear(24, 10)).to(device)
    x, y = torch.randint(10, (4, 3), device=device), torch.randint(10, (4,), device=device)
    return fitted(model, lambda: F.cross_entropy(model(x), y, label_smoothing=0.1), adam)


def scores(ignored: bool) -> Callable[[str], Step]:
    def made(device: str) -> Step:
        model = nn.Linear(6, 5).to(device)
        x, y = torch.randn(8, 6, device=device), torch.arange(8, device=device) % 5
        weight = torch.rand(5, device=device) + 0.5 if ignored else None
        ignore = 2 if ignored else -100
        return fitted(
            model,
            lambda: F.nll_loss(model(x).log_softmax(1), y, weight, ignore_index=ignore),
            sgd,
        )

    return made


def scheduled(device: str) -> Step:
    model = nn.Linear(6, 5).to(device)
    x = torch.randn(8, 6, device=device)
    optimizer = torch.optim.AdamW(model.parameters())
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)

    def step() -> None:
        optimizer.zero_grad()
        positions = torch.arange(6, device=device)
        model(x + positions * 0.1).square().mean().backward()
        optimizer.step()
        scheduler.step()

    return step


def scaled(device: str) -> Step:
    model = nn.Linear(6, 5).to(device)
    x = torch.randn(8, 6, device=device)
    optimizer = sgd(model.parameters())
    scaler = torch.amp.GradScaler(device, init_scale=8.0)

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            loss = model(x).square().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    return step


def masked(device: str) -> Step:
    x = torch.randn(20, device=device, requires_grad=True)
    return lambda: x[x.detach() > 0].sum().backward()


def overwritten(device: str) -> Step:
    x, grid = torch.randn(20, device=device), torch.randn(4, 5, device=device)

    def step() -> None:
        x[x > 0.5] = 0.0
        grid[grid.sum(1) > 3] = 0.5
        grid.masked_fill_(grid < 0, 1.0)

    return step


def made_anew(device: str) -> Step:
    x = torch.randn(6, 6, device=device, requires_grad=True)

    def step() -> None:
        times = torch.linspace(0.0, 1.0, 6, device=device)
        ((x * times - torch.eye(6, device=device)) ** 2).sum().backward()

    return step


# Each: what is made, how often the host waits a step, and the most kernels and functions of CuPy's.
STEPS: dict[str, tuple[Callable[[str], Step], int, int]] = {
    "linear": (linear, 0, 13),
    "convolutions": (convolutions, 0, 20),
    "words": (words, 0, 11),
    "nll_loss": (scores(False), 0, 15),
    "nll_loss, weights": (scores(True), 0, 16),
    "scheduled": (scheduled, 0, 5),
    "scaled": (scaled, 1, 11),  # as PyTorch's: whether there was an infinity
    "linspace, eye": (made_anew, 0, 8),
    "x[mask] = 0": (overwritten, 0, 7),
    "x[mask]": (masked, 1, 9),  # how many there are; of CuPy's functions some are several kernels
}


def counted(step: Step) -> tuple[Counter[str], Any]:
    """How often each kind of thing but products is asked of the GPU; a stand-in counts."""
    try:
        counts = importlib.import_module("cupy._counts")
    except ImportError:
        driver = pytest.importorskip("driver_standin", reason="only the stand-ins count")
        driver.reset_counts()
        step()
        found, asked = Counter[str](), driver.counts()
        for name, times in asked.items():
            kind, _, what = name.partition(" ")
            if kind == "copy":  # on the device it is a kernel's work
                kind = {"device to device": "launch", "device to host": ""}.get(what, "copy")
            kinds = {"fill": "launch", "synchronize": "wait"}
            found[kinds.get(kind, kind)] += times
        return found, asked
    with counts.noted() as noted:
        step()
    return Counter(kind for kind, *_ in noted), noted


@pytest.mark.parametrize("name", STEPS)
def test_a_step_neither_waits_nor_copies(name: str, device: str) -> None:
    if device == "cpu":
        pytest.skip("the host and the CPU are one")
    made, waits, most = STEPS[name]
    step = made(device)
    for _ in range(3):
        step()
    found, asked = counted(step)
    assert found["wait"] == waits, asked
    assert found["copy"] == 0, asked
    assert found["launch"] + found["function"] <= most, (found, asked)


@pytest.mark.parametrize("bad", [5, -1, 1000])
def test_a_target_that_is_no_class_is_told_where_the_program_waits(bad: int, device: str) -> None:
    if device == "cpu":
        pytest.skip("the CPU raises at once")
    x = torch.randn(3, 5, device=device, requires_grad=True)
    loss = F.nll_loss(x.log_softmax(1), torch.tensor([1, bad, 2], device=device), ignore_index=2)
    loss.backward()
    with pytest.raises(IndexError, match=f"Target {bad} is out of bounds: the input has 5 classes"):
        loss.item()
    assert F.nll_loss(x, torch.tensor([1, 2, 2], device=device), ignore_index=2).isfinite().item()


@pytest.mark.parametrize("kind", ["int32", "int64", "uint8", "int8", "float32", "float64"])
@pytest.mark.parametrize("ends", [(7,), (2, 9), (0, 10, 3), (10, 0, -4)])
def test_ranges_made_on_a_gpu_have_the_same_bits(kind: str, ends: Any, device: str) -> None:
    for more in (0, 0.3) if kind.startswith("float") else (0,):
        given = [n + more for n in ends]
        found = torch.arange(*given, dtype=getattr(torch, kind), device=device)
        wanted = torch.arange(*given, dtype=getattr(torch, kind))
        assert found.cpu().equal(wanted) and found.dtype is wanted.dtype


@pytest.mark.parametrize("kind", ["int32", "uint8", "bfloat16", "float32", "float64"])
def test_spaced_numbers_made_on_a_gpu_have_the_same_bits(kind: str, device: str) -> None:
    rng = np.random.default_rng(0)
    d = getattr(torch, kind)
    for steps in (0, 1, 2, 3, 7, 100):
        for scale in (1.0, 40.0):
            start, end = scale * rng.random(2) + (0 if kind == "uint8" else rng.integers(-9, 9))
            found = torch.linspace(start, end, steps, dtype=d, device=device)
            wanted = torch.linspace(start, end, steps, dtype=d)
            assert found.cpu().equal(wanted) and found.dtype is d
    same = torch.linspace(2.5, 2.5, 4, dtype=d, device=device)
    assert same.cpu().equal(torch.linspace(2.5, 2.5, 4, dtype=d))
    for shape in ((0,), (3,), (2, 4), (4, 2), (3, 0)):
        assert torch.eye(*shape, dtype=d, device=device).cpu().equal(torch.eye(*shape, dtype=d))
