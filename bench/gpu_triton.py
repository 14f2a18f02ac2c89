"""Small Triton kernels for the cases that Triton is known for, written as its tutorials teach.

One program takes a block of elements, or a row that is kept whole on the chip.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl

from bench.gpu_cases import Kit, Step

BLOCK = 1024


@triton.jit
def chain_kernel(x_at, r_at, out_at, count, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    x = tl.load(x_at + place, inside).to(tl.float32)
    r = tl.load(r_at + place, inside).to(tl.float32)
    inner = 0.79788456 * (x + 0.044715 * x * x * x)
    gelu = 0.5 * x * (2 - 2 / (1 + tl.exp(2 * inner)))
    tl.store(out_at + place, gelu * r + x / (1 + tl.exp(-r)), inside)


@triton.jit
def chain_gradient_kernel(  # type: ignore[no-untyped-def]
    x_at, r_at, g_at, dx_at, dr_at, count, BLOCK: tl.constexpr
):
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    x = tl.load(x_at + place, inside).to(tl.float32)
    r = tl.load(r_at + place, inside).to(tl.float32)
    g = tl.load(g_at + place, inside).to(tl.float32)
    inner = 0.79788456 * (x + 0.044715 * x * x * x)
    t = 1 - 2 / (1 + tl.exp(2 * inner))
    s = 1 / (1 + tl.exp(-r))
    slope = 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * 0.79788456 * (1 + 0.134145 * x * x)
    tl.store(dx_at + place, g * (slope * r + s), inside)
    tl.store(dr_at + place, g * (0.5 * x * (1 + t) + s * (1 - s) * x), inside)


@triton.jit
def softmax_kernel(x_at, y_at, columns, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    column = tl.arange(0, BLOCK)
    place, inside = tl.program_id(0).to(tl.int64) * columns + column, column < columns
    x = tl.load(x_at + place, inside, -float("inf")).to(tl.float32)
    e = tl.exp(x - tl.max(x, 0))
    tl.store(y_at + place, e / tl.sum(e, 0), inside)


@triton.jit
def softmax_gradient_kernel(  # type: ignore[no-untyped-def]
    y_at, g_at, dx_at, columns, BLOCK: tl.constexpr
):
    column = tl.arange(0, BLOCK)
    place, inside = tl.program_id(0).to(tl.int64) * columns + column, column < columns
    y = tl.load(y_at + place, inside, 0.0).to(tl.float32)
    g = tl.load(g_at + place, inside, 0.0).to(tl.float32)
    tl.store(dx_at + place, y * (g - tl.sum(y * g, 0)), inside)


@triton.jit
def layer_norm_kernel(  # type: ignore[no-untyped-def]
    x_at, w_at, b_at, y_at, columns, BLOCK: tl.constexpr
):
    column = tl.arange(0, BLOCK)
    place, inside = tl.program_id(0).to(tl.int64) * columns + column, column < columns
    x = tl.load(x_at + place, inside, 0.0).to(tl.float32)
    away = tl.where(inside, x - tl.sum(x, 0) / columns, 0.0)
    scale = 1 / tl.sqrt(tl.sum(away * away, 0) / columns + 1e-5)
    w = tl.load(w_at + column, inside, 0.0).to(tl.float32)
    b = tl.load(b_at + column, inside, 0.0).to(tl.float32)
    tl.store(y_at + place, away * scale * w + b, inside)


@triton.jit
def cross_entropy_kernel(  # type: ignore[no-untyped-def]
    x_at, label_at, loss_at, dx_at, columns, rows, BLOCK: tl.constexpr
):
    """A row's loss, and its gradient for the mean over rows: logits are read twice."""
    row = tl.program_id(0).to(tl.int64)
    most, total = -float("inf"), 0.0
    for start in range(0, columns, BLOCK):
        column = start + tl.arange(0, BLOCK)
        x = tl.load(x_at + row * columns + column, column < columns, -float("inf")).to(tl.float32)
        now = tl.maximum(most, tl.max(x, 0))
        total = total * tl.exp(most - now) + tl.sum(tl.exp(x - now), 0)
        most = now
    label = tl.load(label_at + row)
    wanted = tl.load(x_at + row * columns + label).to(tl.float32)
    tl.store(loss_at + row, most + tl.log(total) - wanted)
    for start in range(0, columns, BLOCK):
        column = start + tl.arange(0, BLOCK)
        inside = column < columns
        x = tl.load(x_at + row * columns + column, inside, -float("inf")).to(tl.float32)
        p = tl.exp(x - most) / total
        p = tl.where(column == label, p - 1, p) / rows
        tl.store(dx_at + row * columns + column, p, inside)


def _chain(kit: Kit) -> Step:
    pairs = kit.every(lambda: (kit.normal(*kit.size), kit.normal(*kit.size)))

    def step(i: int) -> tuple[Any, ...]:
        x, r = pairs[i]
        out = torch.empty_like(x)
        chain_kernel[(triton.cdiv(x.numel(), BLOCK),)](x, r, out, x.numel(), BLOCK=BLOCK)
        return (out,)

    return step


def _chain_gradient(kit: Kit) -> Step:
    sets = kit.every(lambda: [kit.normal(*kit.size) for _ in "xrg"])

    def step(i: int) -> tuple[Any, ...]:
        x, r, g = sets[i]
        outs = torch.empty_like(x), torch.empty_like(r)
        grid = (triton.cdiv(x.numel(), BLOCK),)
        chain_gradient_kernel[grid](x, r, g, *outs, x.numel(), BLOCK=BLOCK)
        return outs

    return step


def _rows(kit: Kit) -> dict[str, Any]:
    """A row in one block, on as many warps as keep its elements in registers."""
    block = triton.next_power_of_2(kit.size[-1])
    return {"BLOCK": block, "num_warps": max(4, min(16, block // 512))}


def _softmax(kit: Kit) -> Step:
    xs, shape = kit.every(lambda: kit.normal(*kit.size)), _rows(kit)

    def step(i: int) -> tuple[Any, ...]:
        out = torch.empty_like(xs[i])
        softmax_kernel[(kit.size[0],)](xs[i], out, kit.size[1], **shape)
        return (out,)

    return step


def _softmax_gradient(kit: Kit) -> Step:
    def one() -> tuple[Any, Any]:
        return kit.normal(*kit.size).float().softmax(-1).to(dtype), kit.normal(*kit.size)

    dtype = getattr(torch, kit.dtype)
    sets, shape = kit.every(one), _rows(kit)

    def step(i: int) -> tuple[Any, ...]:
        out = torch.empty_like(sets[i][0])
        softmax_gradient_kernel[(kit.size[0],)](*sets[i], out, kit.size[1], **shape)
        return (out,)

    return step


def _layer_norm(kit: Kit) -> Step:
    columns, shape = kit.size[1], _rows(kit)
    weight, bias = kit.normal(columns), kit.normal(columns)
    xs = kit.every(lambda: kit.normal(*kit.size))

    def step(i: int) -> tuple[Any, ...]:
        out = torch.empty_like(xs[i])
        layer_norm_kernel[(kit.size[0],)](xs[i], weight, bias, out, columns, **shape)
        return (out,)

    return step


def _cross_entropy(kit: Kit) -> Step:
    rows, classes = kit.size
    sets = kit.every(lambda: (kit.normal(rows, classes), kit.labels(rows, classes)))

    def step(i: int) -> tuple[Any, ...]:
        x, labels = sets[i]
        losses = torch.empty(rows, dtype=torch.float32, device=x.device)
        out = torch.empty_like(x)
        cross_entropy_kernel[(rows,)](
            x, labels, losses, out, classes, rows, BLOCK=4096, num_warps=8
        )
        return losses.mean(), out

    return step


STEPS: dict[str, Callable[[Kit], Step]] = {
    "chain-forward": _chain,
    "chain-backward": _chain_gradient,
    "softmax-forward": _softmax,
    "softmax-backward": _softmax_gradient,
    "layer-norm-forward": _layer_norm,
    "cross-entropy-32k": _cross_entropy,
    "cross-entropy-128k": _cross_entropy,
}
