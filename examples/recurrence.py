"""Read digits pixel by pixel with a recurrence in CUDA C: a custom kernel in a `Function`.

``h[t] = a[t] h[t-1] + x[t]`` is not elementwise: written as ops, it takes a launch for each step.
Here it is one kernel and its gradient another, each with a NumPy version that runs on a CPU. Two
such layers read 64 pixels in sequence. With ``--plain``, and with torch, ops compute the same.
"""

from __future__ import annotations

import argparse
import functools
from typing import Any

import training  # first: from here on Ctrl-C ends in one sentence

# isort: split
import digits
import numpy as np

import lucid_gpu as torch
from lucid_gpu import nn
from lucid_gpu.nn import functional as F

WIDTH, BATCH, LEARNING_RATE = 32, 64, 1e-2

FORWARD = r"""
__global__ void scan(const T* a, const T* x, T* h, int columns, int steps)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;  // a channel of a sequence
    if (i >= columns) return;
    compute_T state = 0;
    for (long long t = 0, j = i; t < steps; ++t, j += columns)
        h[j] = state = (compute_T)a[j] * state + (compute_T)x[j];
}
"""

BACKWARD = r"""
__global__ void scan_bwd(const T* a, const T* h, const T* grad, T* da, T* dx,
                         int columns, int steps)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= columns) return;
    compute_T s = 0;  // the gradient of h[t], by itself and by all that comes after it
    for (long long t = steps - 1, j = t * columns + i; t >= 0; --t, j -= columns) {
        s += (compute_T)grad[j];
        dx[j] = s;
        da[j] = t ? s * (compute_T)h[j - columns] : (compute_T)0;
        s *= (compute_T)a[j];
    }
}
"""


def scan_on_host(a: Any, x: Any, h: Any, columns: int, steps: int) -> None:
    h[0] = x[0]
    for t in range(1, steps):
        h[t] = a[t] * h[t - 1] + x[t]


def scan_bwd_on_host(a: Any, h: Any, grad: Any, da: Any, dx: Any, columns: int, steps: int) -> None:
    s = np.zeros_like(grad[0])
    for t in reversed(range(steps)):
        dx[t] = s = s + grad[t]
        da[t] = s * h[t - 1] if t else 0
        s = s * a[t]


@functools.cache
def kernel(source: str, twin: Any) -> Any:
    return torch.cuda.kernel(source, source[source.index("scan") : source.index("{")], cpu=twin)


class Scan(torch.autograd.Function):
    """``h[t] = a[t] * h[t - 1] + x[t]`` along the first dimension."""

    @staticmethod
    def forward(ctx: Any, a: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        a, x = a.contiguous(), x.contiguous()
        h, columns = torch.empty_like(x), x[0].numel()
        kernel(FORWARD, scan_on_host)(a, x, h, columns, len(x), size=columns)
        ctx.save_for_backward(a, h)
        return h

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        a, h = ctx.saved_tensors
        g, da, dx, n = grad.contiguous(), torch.empty_like(h), torch.empty_like(h), h[0].numel()
        kernel(BACKWARD, scan_bwd_on_host)(a, h, g, da, dx, n, len(h), size=n)
        return da, dx


def plain(a: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    h = [x[0]]
    for t in range(1, len(x)):
        h.append(a[t] * h[-1] + x[t])
    return torch.stack(h)


class Layer(nn.Module):
    def __init__(self, scan: Any) -> None:
        super().__init__()
        self.scan, self.norm = scan, nn.LayerNorm(WIDTH)
        self.read, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.reach = nn.Parameter(torch.linspace(0, 5, WIDTH))  # some channels forget soon

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        value, gate, keep = self.read(self.norm(x)).chunk(3, 2)
        keep = (keep + self.reach).sigmoid()
        return x + self.out(F.silu(gate) * self.scan(keep, (1 - keep) * value))


class Reader(training.Run):
    unit, ticks_of, reaches = "epoch", "images", "test accuracy"
    flags_in_torch = ("--plain",)

    def __init__(self, args: argparse.Namespace) -> None:
        super().__init__(args, args.epochs, ("training", "test"))
        self.data, self.test = (
            (images.flatten(1).t().unsqueeze(2), labels)
            for images, labels in digits.tensors(self.device)
        )
        self.ticks = len(self.data[1])
        layers = [Layer(plain if args.plain else Scan.apply) for _ in range(2)]
        head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 10)
        self.learn(nn.Sequential(nn.Linear(1, WIDTH), *layers, *head), lr=LEARNING_RATE)

    def advance(self, bar: Any) -> dict[str, float]:
        right = 0
        for chosen in self.batches(BATCH, bar):
            scores, labels = self.model(self.data[0][:, chosen]).mean(0), self.data[1][chosen]
            loss = F.cross_entropy(scores, labels)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            right += (scores.argmax(1) == labels).sum().item()
            bar.set_postfix_str(f"loss {loss.item():.3f}", False)
        self.schedule.step()
        self.done += 1
        with torch.no_grad():
            found = self.model(self.test[0]).mean(0).argmax(1) == self.test[1]
        return {"training": right / self.ticks, "test": found.float().mean().item()}


flags = training.parser("Read digits pixel by pixel.", "runs/recurrence", epochs=20)
flags.add_argument("--plain", action="store_true", help="the recurrence as ops, not as a kernel")

if __name__ == "__main__":
    training.main(flags, Reader)
