"""Results of every family of kernels on the GPU beside the CPU's, forward and backward.

What `make gpu` runs first, bare, and once more under each of compute-sanitizer's tools.

It needs nothing but the package: no pytest, no torch. ``python -m bench.gpu_check --device cpu``
compares the CPU with itself, to try the script where there is no GPU.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from bench import models
from bench.cases import power
from bench.gpu_pieces import do
from lucid_gpu.kernels import attention as by_tiles

torch: Any = importlib.import_module("lucid_gpu")  # with PyTorch's names, as scripts see it

# Sizes around the widths of vectors, warps and blocks.
SIZES = (1, 3, 33, 256, 1000, 4099, 70001)
TOLERANCE = {"float16": 4e-3, "bfloat16": 3e-2, "float32": 2e-5, "float64": 1e-12}

Work = Callable[[str], tuple[Any, ...]]
Normal = Callable[..., np.ndarray]
Checks = Iterator[tuple[str, str, Work]]  # name, dtype and work of each


def chain(x: Any, r: Any) -> Any:
    """Transcendental functions, products and a division in one expression."""
    gelu = 0.5 * x * (1 + torch.tanh(0.79788456 * (x + 0.044715 * x * x * x)))
    return gelu * r + torch.sigmoid(r) * x / (1 + r * r)


def with_gradients(
    function: Callable[..., Any], *arrays: np.ndarray, dtype: str = "float32"
) -> Work:
    """The value of a function and its gradients to all inputs, for an uneven cotangent."""

    def work(device: str) -> tuple[Any, ...]:
        kind = getattr(torch, dtype)
        inputs = [torch.tensor(a, device=device).to(kind).requires_grad_() for a in arrays]
        out = function(*inputs)
        uneven = np.cos(np.arange(out.numel(), dtype=np.float32)).reshape(tuple(out.shape))
        out.backward(torch.tensor(uneven, device=device).to(kind))
        return (out, *(x.grad for x in inputs))

    return work


def elementwise(normal: Normal, rng: np.random.Generator) -> Checks:
    for size in SIZES:
        yield f"chain of {size}", "float32", with_gradients(chain, normal(size), normal(size))
    for dtype in ("float16", "bfloat16", "float64"):
        work = with_gradients(chain, normal(1001), normal(1001), dtype=dtype)
        yield f"chain in {dtype}", dtype, work


def strides(normal: Normal, rng: np.random.Generator) -> Checks:
    two = normal(37, 65), normal(65)
    yield "a broadcast row", "float32", with_gradients(chain, *two)
    two = normal(37, 65), normal(37, 1)
    yield "a broadcast column", "float32", with_gradients(chain, *two)
    two = normal(37, 65), normal(65, 37)
    yield "a transposed operand", "float32", with_gradients(lambda x, r: chain(x, r.t()), *two)
    two = normal(64, 64), normal(64, 64)
    yield "every second row", "float32", with_gradients(lambda x, r: chain(x[::2], r[1::2]), *two)
    turned = with_gradients(lambda x: x.permute(2, 0, 1).contiguous() * 2, normal(5, 67, 33))
    yield "a permuted copy", "float32", turned
    joined = with_gradients(
        lambda x, r: torch.cat([x, r.t(), x[:, ::2]], 1), normal(37, 65), normal(9, 37)
    )
    yield "parts of a cat", "float32", joined
    yield "an odd offset", "float32", with_gradients(lambda x: (x[1:] * x[:-1]).exp(), normal(513))


def fused_sums(normal: Normal, rng: np.random.Generator) -> Checks:
    two = normal(33, 129), normal(33, 129)
    yield "a sum over rows", "float32", with_gradients(lambda x, r: chain(x, r).sum(0), *two)
    yield "a mean over columns", "float32", with_gradients(lambda x, r: chain(x, r).mean(1), *two)
    yield "a sum of all", "float32", with_gradients(lambda x, r: chain(x, r).sum(), *two)


def programs(normal: Normal, rng: np.random.Generator) -> Checks:
    two = normal(3, 17, 31), normal(3, 31, 5)
    yield "a product of stacks", "float32", with_gradients(lambda a, b: (a @ b).tanh(), *two)
    build = power(5, 100)
    yield "a custom Function", "float32", lambda device: build(torch, device, lambda f: f)()
    net = models.mlp((12, 16, 4), 10)
    yield "a training step", "float32", lambda device: net(torch, device, lambda f: f)()


def rows(normal: Normal) -> Iterator[tuple[str, str, np.ndarray]]:
    """Name, dtype and values of matrices whose rows no vector or block divides."""
    for dtype, shape in (("float32", (37, 1003)), ("bfloat16", (5, 77)), ("float32", (3, 5003))):
        yield f"{dtype}{list(shape)}", dtype, normal(*shape)


def softmax(normal: Normal, rng: np.random.Generator) -> Checks:
    f = torch.nn.functional
    for name, dtype, x in rows(normal):
        yield f"softmax of {name}", dtype, with_gradients(lambda x: f.softmax(x, 1), x, dtype=dtype)
        work = with_gradients(lambda x: f.log_softmax(x, 1), x, dtype=dtype)
        yield f"log_softmax of {name}", dtype, work


def cross_entropy(normal: Normal, rng: np.random.Generator) -> Checks:
    for name, dtype, x in rows(normal):
        where = rng.integers(0, x.shape[1], size=(x.shape[0],))
        work = with_labels(torch.nn.functional.cross_entropy, x, where, dtype)
        yield f"cross entropy of {name}", dtype, work


def norms(normal: Normal, rng: np.random.Generator) -> Checks:
    f = torch.nn.functional
    for name, dtype, x in rows(normal):
        w, b = normal(x.shape[1]), normal(x.shape[1])
        yield f"layer_norm of {name}", dtype, with_gradients(_layer_norm, x, w, b, dtype=dtype)
    two = normal(37, 1003), normal(1003)
    yield "rms_norm", "float32", with_gradients(lambda x, w: f.rms_norm(x, (1003,), w), *two)
    three = normal(2, 3, 13, 17), normal(3), normal(3)
    yield (
        "batch_norm",
        "float32",
        with_gradients(lambda x, w, b: f.batch_norm(x, None, None, w, b, training=True), *three),
    )


def row_reductions(normal: Normal, rng: np.random.Generator) -> Checks:
    for name, dtype, x in rows(normal):
        work = with_gradients(lambda x: x.cumsum(1), x, dtype=dtype)
        yield f"running sums of {name}", dtype, work
        for op in ("sum", "mean", "amax", "prod", "logsumexp", "norm", "var"):
            small = 1 + 0.01 * x if op == "prod" else x
            work = with_gradients(_over(op, 1), small, dtype=dtype)
            yield f"{op} over columns of {name}", dtype, work
        yield f"amax over rows of {name}", dtype, with_gradients(_over("amax", 0), x, dtype=dtype)


def pooling(normal: Normal, rng: np.random.Generator) -> Checks:
    f, images = torch.nn.functional, normal(2, 3, 13, 17)
    yield "max pooling", "float32", with_gradients(lambda x: f.max_pool2d(x, 3, 2, 1), images)
    yield "average pooling", "float32", with_gradients(lambda x: f.avg_pool2d(x, 3, 2, 1), images)


def indexing(normal: Normal, rng: np.random.Generator) -> Checks:
    f = torch.nn.functional
    table, index = normal(50, 33), rng.integers(0, 50, 1001)
    yield "rows by number", "float32", with_numbers(lambda x, i: f.embedding(i, x), table, index)
    work = with_numbers(lambda x, i: torch.zeros_like(x).index_add(0, i, x[i]), table, index)
    yield "index_add", "float32", work
    yield "scatter_add", "float32", with_numbers(
        lambda x, i: torch.zeros_like(x).scatter_add(0, i[:50, None].expand(50, 33), x),
        table, index,
    )  # fmt: skip


def randomness(normal: Normal, rng: np.random.Generator) -> Checks:
    work = seeded(lambda x: torch.nn.functional.dropout(x, 0.3), normal(4099))
    yield "dropout", "float32", work
    yield "random numbers", "float32", lambda device: random_numbers(device)


def attention(normal: Normal, rng: np.random.Generator) -> Checks:
    for dtype, head in (("float32", 64), ("bfloat16", 128), ("float16", 32)):
        heads = [normal(2, 3, 70, head) for _ in "qkv"]
        work = with_gradients(_attention, *heads, dtype=dtype)
        yield f"causal attention in {dtype}, head size {head}", dtype, work
        yield "the same by our kernels", dtype, _by_ours(work)
    for dtype, head in (("bfloat16", 128), ("float16", 64)):
        heads = [normal(1, 2, 260, head) for _ in "qkv"]
        work = _by_warp_groups(with_gradients(_attention, *heads, dtype=dtype))
        yield f"attention in {dtype} by warp groups, where there are some", dtype, work
    heads = [normal(2, 3, 70, 200) for _ in "qkv"]
    yield (
        "attention of heads of 200",
        "bfloat16",
        with_gradients(_attention, *heads, dtype="bfloat16"),
    )
    for kind in ("bool", "float32"):
        heads = [normal(2, 3, 70, 64) for _ in "qkv"]
        mask = normal(2, 1, 70, 70)
        work = with_gradients(_masked(mask > -1 if kind == "bool" else mask), *heads)
        yield f"attention with a mask of {kind}", "float32", work


def optimizers(normal: Normal, rng: np.random.Generator) -> Checks:
    yield "gradients clipped", "float32", clipped([normal(n) for n in range(1, 101)])
    for name in ("SGD", "Adam", "AdamW"):
        yield f"100 tensors by {name}", "float32", updates(name, [normal(n) for n in range(1, 101)])


def convolutions(normal: Normal, rng: np.random.Generator) -> Checks:
    """By cuDNN, where it is installed, and by matrix products."""
    f, cudnn = torch.nn.functional, torch.backends.cudnn
    kinds = {
        f.conv1d: (normal(2, 4, 37), normal(6, 2, 3)),
        f.conv2d: (normal(2, 4, 13, 17), normal(6, 2, 3, 3)),
        f.conv3d: (normal(2, 4, 5, 7, 6), normal(6, 2, 3, 3, 3)),
        f.conv_transpose2d: (normal(2, 6, 7, 5), normal(6, 2, 3, 3)),
    }
    for enabled in (True, False) if cudnn.is_available() else (False,):
        for function, arrays in kinds.items():
            for dtype in ("float32", "bfloat16", "float16"):
                work = with_gradients(
                    lambda x, w, function=function: function(x, w, stride=2, padding=1, groups=2),
                    *arrays,
                    dtype=dtype,
                )
                how = f"by cuDNN {cudnn.version()}" if enabled else "by products"
                yield f"{function.__name__} {how} in {dtype}", dtype, with_cudnn(enabled, work)
    same = with_gradients(
        lambda x, w: f.conv2d(x, w, padding=1), *kinds[f.conv2d][:1], normal(6, 4, 3, 3)
    )
    for enabled in (True, False):
        yield f"convolution, cuDNN {enabled}, twice", "float32", twice(with_cudnn(enabled, same))


def with_cudnn(enabled: bool, work: Work) -> Work:
    """The same with or without cuDNN."""

    def set_and_work(device: str) -> tuple[Any, ...]:
        with torch.backends.cudnn.flags(enabled=enabled):
            return work(device)

    return set_and_work


def twice(work: Work) -> Work:
    """The same, which must give the same bits once more."""

    def again(device: str) -> tuple[Any, ...]:
        first, second = work(device), work(device)
        assert all(bool((a == b).all()) for a, b in zip(first, second, strict=True))
        return first

    return again


def _layer_norm(x: Any, w: Any, b: Any) -> Any:
    return torch.nn.functional.layer_norm(x, (x.shape[1],), w, b)


def _attention(q: Any, k: Any, v: Any) -> Any:
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)


def _masked(mask: np.ndarray) -> Callable[..., Any]:
    def attend(q: Any, k: Any, v: Any) -> Any:
        here = torch.tensor(mask, device=q.device)
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=here)

    return attend


def _by_ours(work: Work) -> Work:
    """The same without cuDNN, which is the default where it is installed."""

    def attend(device: str) -> tuple[Any, ...]:
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.FLASH_ATTENTION):
            return work(device)

    return attend


def _by_warp_groups(work: Work) -> Work:
    """The same as ``LUCID_WGMMA=1`` does it, twice: a product that comes too early would differ."""

    def attend(device: str) -> tuple[Any, ...]:
        before, by_tiles.setting.wgmma = by_tiles.setting.wgmma, True
        try:
            return twice(_by_ours(work))(device)
        finally:
            by_tiles.setting.wgmma = before

    return attend


def _over(op: str, dim: int) -> Callable[[Any], Any]:
    return lambda x: getattr(x, op)(dim=dim)


def with_labels(
    function: Callable[..., Any], array: np.ndarray, labels: np.ndarray, dtype: str
) -> Work:
    """A loss of scores and labels, and its gradient."""
    return with_numbers(lambda x, i: function(x, i).reshape(1), array, labels, dtype)


def with_numbers(
    function: Callable[..., Any], array: np.ndarray, numbers: np.ndarray, dtype: str = "float32"
) -> Work:
    """A function of an array and whole numbers, and its gradient to the array."""

    def work(device: str) -> tuple[Any, ...]:
        index = torch.tensor(numbers, device=device)
        return with_gradients(lambda x: function(x, index), array, dtype=dtype)(device)

    return work


def seeded(function: Callable[..., Any], array: np.ndarray) -> Work:
    """A random function and its gradient: a seed gives the same on every device."""

    def work(device: str) -> tuple[Any, ...]:
        torch.manual_seed(0)
        return with_gradients(function, array)(device)

    return work


def random_numbers(device: str) -> tuple[Any, ...]:
    """Every kind of draw."""
    torch.manual_seed(1)
    makers = (torch.rand, torch.randn)
    numbers = [make(n, device=device) for make in makers for n in (1, 1001)]
    return (*numbers, torch.randint(0, 100, (1001,), device=device).float())


def clipped(arrays: list[np.ndarray]) -> Work:
    """Gradients of many tensors after their norm is clipped, and the norm."""

    def work(device: str) -> tuple[Any, ...]:
        parameters = [torch.tensor(a, device=device).requires_grad_() for a in arrays]
        for p in parameters:
            p.grad = p.detach() * 2
        norm = torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        return (norm, *(p.grad for p in parameters))

    return work


def updates(name: str, arrays: list[np.ndarray]) -> Work:
    """Parameters after three updates."""

    def work(device: str) -> tuple[Any, ...]:
        parameters = [torch.tensor(a, device=device).requires_grad_() for a in arrays]
        optimizer = getattr(torch.optim, name)(parameters, lr=0.1)
        for _ in range(3):
            for p in parameters:
                p.grad = (p.detach() * 0.5 + 1).sin()
            optimizer.step()
        return tuple(parameters)

    return work


def difference(found: Any, wanted: Any) -> float:
    """The largest difference relative to the largest wanted value."""
    f, w = (t.detach().cpu().to(torch.float64).numpy() for t in (found, wanted))
    if f.shape != w.shape:
        return float("inf")
    return float(np.abs(f - w).max() / (np.abs(w).max() or 1.0))


def each_alone() -> None:
    """Give every array its own allocation: a checker sees no overrun within a pool's block."""
    from lucid_gpu.devices.cupy_backend import import_cupy

    import_cupy().cuda.set_allocator(None)


# At sizes that no vector, block or row divides; a sanitizer runs them one by one.
FAMILIES: dict[str, Callable[[Normal, np.random.Generator], Checks]] = {
    "elementwise": elementwise,
    "strides": strides,
    "fused-sums": fused_sums,
    "programs": programs,
    "softmax": softmax,
    "cross-entropy": cross_entropy,
    "norms": norms,
    "row-reductions": row_reductions,
    "convolutions": convolutions,
    "pooling": pooling,
    "indexing": indexing,
    "randomness": randomness,
    "attention": attention,
    "optimizers": optimizers,
}


def checks(family: str) -> Checks:
    """Those of a family, with the same numbers each time."""
    rng = np.random.default_rng(0)
    return FAMILIES[family](lambda *shape: rng.standard_normal(shape).astype(np.float32), rng)


def compare(device: str, dtype: str, work: Work) -> None:
    """Raise where a device's results are not the CPU's."""
    pairs = zip(work(device), work("cpu"), strict=True)
    worst = max(difference(found, wanted) for found, wanted in pairs)
    if not worst <= TOLERANCE[dtype]:
        raise ArithmeticError(f"off by {worst:.2g}, {TOLERANCE[dtype]:.2g} is allowed")


def main(argv: Sequence[str] | None = None) -> int:
    """Do every check; `bench.gpu_pieces.SOME_FAILED` when one fails."""
    flags = argparse.ArgumentParser(prog="python -m bench.gpu_check", description=__doc__)
    flags.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    flags.add_argument("--family", action="append", choices=list(FAMILIES))
    flags.add_argument("--alone", action="store_true", help="without CuPy's pool of memory")
    flags.add_argument("--part", default="check", help="under which results are noted")
    options = flags.parse_args(argv)
    if options.alone:
        each_alone()
    works = (
        (f"{family}: {name}", partial(compare, options.device, dtype, work))
        for family in options.family or FAMILIES
        for name, dtype, work in checks(family)
    )
    return do(options.part, works)


if __name__ == "__main__":
    sys.exit(main())
