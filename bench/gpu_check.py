"""A few dozen results on the GPU beside the CPU's; what `make gpu` runs first, bare and checked.

It needs nothing but the package: no pytest, no torch. ``python -m bench.gpu_check cpu`` compares
the CPU with itself, to try the script where there is no GPU.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from bench.cases import mlp, power

torch: Any = importlib.import_module("lucid_gpu")  # with PyTorch's names, as scripts see it

# Sizes around the widths of vectors, warps and blocks.
SIZES = (1, 3, 33, 256, 1000, 4099, 70001)
TOLERANCE = {"float16": 4e-3, "bfloat16": 3e-2, "float32": 2e-5, "float64": 1e-12}

Work = Callable[[str], tuple[Any, ...]]


def chain(x: Any, r: Any) -> Any:
    """Transcendental functions, products and a division in one expression."""
    gelu = 0.5 * x * (1 + torch.tanh(0.79788456 * (x + 0.044715 * x * x * x)))
    return gelu * r + torch.sigmoid(r) * x / (1 + r * r)


def with_gradients(
    function: Callable[..., Any], *arrays: np.ndarray, dtype: str = "float32"
) -> Work:
    """The value of a function and its gradients to all inputs."""

    def work(device: str) -> tuple[Any, ...]:
        kind = getattr(torch, dtype)
        inputs = [torch.tensor(a, device=device).to(kind).requires_grad_() for a in arrays]
        out = function(*inputs)
        out.backward(torch.ones_like(out) * 0.5)
        return (out, *(x.grad for x in inputs))

    return work


def checks() -> Iterator[tuple[str, str, Work]]:
    """Name, dtype and work of each check."""
    rng = np.random.default_rng(0)

    def normal(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(np.float32)

    for size in SIZES:
        yield f"chain of {size}", "float32", with_gradients(chain, normal(size), normal(size))
    for dtype in ("float16", "bfloat16", "float64"):
        work = with_gradients(chain, normal(1001), normal(1001), dtype=dtype)
        yield f"chain in {dtype}", dtype, work
    two = normal(37, 65), normal(65)
    yield "a broadcast row", "float32", with_gradients(chain, *two)
    two = normal(37, 65), normal(37, 1)
    yield "a broadcast column", "float32", with_gradients(chain, *two)
    two = normal(37, 65), normal(65, 37)
    yield "a transposed operand", "float32", with_gradients(lambda x, r: chain(x, r.t()), *two)
    two = normal(64, 64), normal(64, 64)
    yield "every second row", "float32", with_gradients(lambda x, r: chain(x[::2], r[1::2]), *two)
    yield "an odd offset", "float32", with_gradients(lambda x: (x[1:] * x[:-1]).exp(), normal(513))
    two = normal(33, 129), normal(33, 129)
    yield "a sum over rows", "float32", with_gradients(lambda x, r: chain(x, r).sum(0), *two)
    yield "a mean over columns", "float32", with_gradients(lambda x, r: chain(x, r).mean(1), *two)
    yield "a sum of all", "float32", with_gradients(lambda x, r: chain(x, r).sum(), *two)
    two = normal(3, 17, 31), normal(3, 31, 5)
    yield "a product of stacks", "float32", with_gradients(lambda a, b: (a @ b).tanh(), *two)
    build = power(5, 100)
    yield "a custom Function", "float32", lambda device: build(torch, device, lambda f: f)()
    net = mlp((12, 16, 4), 10)
    yield "a training step", "float32", lambda device: net(torch, device, lambda f: f)()


def difference(found: Any, wanted: Any) -> float:
    """The largest difference relative to the largest wanted value."""
    f, w = (t.detach().cpu().to(torch.float64).numpy() for t in (found, wanted))
    if f.shape != w.shape:
        return float("inf")
    return float(np.abs(f - w).max() / (np.abs(w).max() or 1.0))


def main(device: str = "cuda") -> int:
    """Run every check; 1 when one fails."""
    failed = count = 0
    for name, dtype, work in checks():
        count += 1
        try:
            pairs = zip(work(device), work("cpu"), strict=True)
            worst = max(difference(f, w) for f, w in pairs)
            problem = None if worst <= TOLERANCE[dtype] else f"off by {worst:.2g}"
        except Exception as error:  # say it and go on to the next
            problem = f"{type(error).__name__}: {error}"
        if problem:
            failed += 1
            print(f"{name}: {problem}")
    print(f"{count - failed} passed, {failed} failed")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
