"""Random programs of duals, views and in-place writes give the same tangents as torch."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lucid_gpu
from tests.oracle import torch_module

START = [np.random.default_rng(k).uniform(0.2, 1.2, (2, 3)) for k in range(4)]

# (arity, op); shapes are made to fit by `fitted`.
OUT_OF_PLACE: list[tuple[int, Callable[..., Any]]] = [
    (1, lambda m, x: x.sin()),
    (1, lambda m, x: x * 2 + 1),
    (1, lambda m, x: x.exp() / (x.abs() + 1)),
    (1, lambda m, x: x.clone()),
    (1, lambda m, x: x.detach()),
    (1, lambda m, x: x.sum(0)),
    (1, lambda m, x: x.cumsum(0) if x.ndim else x + 0),
    (2, lambda m, x, y: x * y),
    (2, lambda m, x, y: x - y),
    (2, lambda m, x, y: m.maximum(x, y)),
    (2, lambda m, x, y: m.where(x > y, x, y * 3)),
    (2, lambda m, x, y: m.stack([x, y])),
    (2, lambda m, x, y: (x.reshape(-1) * y.reshape(-1)).sum()),
    (2, lambda m, x, y: x.reshape(-1, 1) @ y.reshape(1, -1)),
]
VIEWS: list[Callable[[Any], Any]] = [
    lambda x: x.t() if x.ndim == 2 else x.view(x.shape),
    lambda x: x[0] if x.ndim else x,
    lambda x: x[..., 1:] if x.ndim and x.shape[-1] > 1 else x,
    lambda x: x.unsqueeze(0),
    lambda x: x.unsqueeze(-1),
]
IN_PLACE: list[tuple[int, Callable[..., Any]]] = [
    (1, lambda m, x: x.mul_(2)),
    (1, lambda m, x: x.sin_()),
    (1, lambda m, x: x.zero_()),
    (1, lambda m, x: x.fill_(0.5)),
    (2, lambda m, x, y: x.add_(y)),
    (2, lambda m, x, y: x.mul_(y)),
    (2, lambda m, x, y: x.copy_(y)),
    (2, lambda m, x, y: x.__setitem__(..., y)),
]


def root_of(t: Any) -> Any:
    return t if t._base is None else t._base


def fitted(y: Any, x: Any) -> Any:
    """``y`` in the shape of ``x``: its mean, spread out."""
    return y if y.shape == x.shape else (y.sum() / max(y.numel(), 1)).expand(tuple(x.shape))


def run(module: Any, seed: int, recording: bool) -> list[Any]:
    """Values and tangents of everything after a random program."""
    rng = random.Random(seed)
    ad = module.autograd.forward_ad
    found = []
    with ad.dual_level():
        # forward over reverse reads what the tangents saved, which a write may spoil
        kinds = ("op", "op", "view") if recording else ("op", "op", "view", "write")
        a, b, c, d = [module.from_numpy(s.copy()) for s in START]
        if recording:
            a.requires_grad_()
        pool = [ad.make_dual(a, b), c, ad.make_dual(d, c * 2), c.clone()]
        for _ in range(14):
            x, y = rng.choice(pool), rng.choice(pool)
            kind = rng.choice(kinds)
            if kind == "view":
                pool.append(rng.choice(VIEWS)(x))
                continue
            arity, op = rng.choice(OUT_OF_PLACE if kind == "op" else IN_PLACE)
            if kind == "write" and (
                root_of(x) is root_of(y) or any(root_of(x) is r for r in (a, c))
            ):
                continue  # torch reads half-written tangents where operands share memory
            given = (x, fitted(y, x))[:arity]
            result = op(module, *given)
            if kind == "op":
                pool.append(result)
        for t in pool:
            primal, tangent = ad.unpack_dual(t)
            found.append(np.array(primal.detach().numpy()))
            found.append(None if tangent is None else np.array(tangent.detach().numpy()))
        if recording:
            total = sum((t * t).sum() for t in pool if t.requires_grad)
            if hasattr(total, "requires_grad"):
                (slope,) = module.autograd.grad(total, a, allow_unused=True)
                if slope is not None:
                    primal, tangent = ad.unpack_dual(slope)
                    found.append(np.array(primal.detach().numpy()))
                    found.append(None if tangent is None else np.array(tangent.detach().numpy()))
    return found


@pytest.mark.each_value
@pytest.mark.parametrize("recording", (False, True), ids=("", "recording"))
@pytest.mark.parametrize("block", range(6))
def test_random_programs_of_duals(block: int, recording: bool) -> None:
    torch = torch_module()
    for seed in range(block * 25, block * 25 + 25):
        expected = run(torch, seed, recording)
        found = run(lucid_gpu, seed, recording)
        assert len(found) == len(expected)
        for place, (mine, theirs) in enumerate(zip(found, expected, strict=True)):
            what = f"seed {seed}, place {place}"
            if mine is None or theirs is None:
                zero = all(v is None or not np.any(v) for v in (mine, theirs))
                assert zero, what
            else:
                np.testing.assert_allclose(mine, theirs, rtol=1e-9, atol=1e-11, err_msg=what)
