"""Linear layers by cuBLASLt: a product with its bias, one with the sums of its gradient."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import lucid_gpu as torch
from lucid_gpu import func, nn
from lucid_gpu.backends.cuda import preferred_blas_library

RNG = np.random.default_rng(0)
WITH_BIAS, WITH_SUMS = "multiply with epilogue 4", "multiply with epilogue 512"
TOLERANCE = {"float16": 2e-3, "bfloat16": 1.6e-2, "float32": 1e-5}


@pytest.fixture(autouse=True)
def preferred(driver: Any) -> Iterator[None]:
    preferred_blas_library("cublaslt")
    yield
    preferred_blas_library("default")


def tensors(d: str, *arrays: Any, where: str = "cuda") -> list[Any]:
    kind = getattr(torch, d)
    return [torch.tensor(a, dtype=kind, device=where).requires_grad_() for a in arrays]


def numbers(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype("float16").astype(float)


def step(x: Any, w: Any, b: Any) -> list[Any]:
    """A layer's result and its gradients."""
    y = nn.functional.linear(x, w, b)
    return [y, *torch.autograd.grad(y, (x, w, b), y.detach())]


def expected(x: Any, w: Any, b: Any) -> list[Any]:
    y = x @ w.T + b
    rows, cotangents = x.reshape(-1, w.shape[1]), y.reshape(-1, w.shape[0])
    return [y, y @ w, cotangents.T @ rows, cotangents.sum(0)]


def near(tensor: Any, array: Any, tolerance: float) -> bool:
    error = np.abs(tensor.detach().double().cpu().numpy() - array).max()
    return bool(error <= tolerance * np.abs(array).max())


@pytest.mark.parametrize("where", ["cuda:0", "cuda:1"])
@pytest.mark.parametrize("d", TOLERANCE)
@pytest.mark.parametrize("lead", [(16,), (2, 8), (1, 3, 8)])
def test_two_products_and_no_kernel_beside_them(driver: Any, lead: Any, d: str, where: str) -> None:
    arrays = numbers(*lead, 24), numbers(8, 24), numbers(8)
    leaves = tensors(d, *arrays, where=where)
    step(*leaves)
    driver.reset_counts()
    results = step(*leaves)
    counts = driver.counts()
    launched = [name for name in counts if name.startswith("launch")]
    assert (counts[WITH_BIAS], counts[WITH_SUMS], launched) == (1, 1, [])
    for result, array in zip(results, expected(*arrays), strict=True):
        assert near(result, array, 2 * TOLERANCE[d])


@pytest.mark.parametrize("layout", ["rows apart", "transposed", "weight transposed"])
def test_strides(driver: Any, layout: str) -> None:
    x, w, b = numbers(16, 24), numbers(8, 24), numbers(8)
    a, c, bias = (t.detach() for t in tensors("float32", x, w, b))
    if layout == "rows apart":
        a = torch.cat([a, a], 1)[:, :24]
    elif layout == "transposed":
        a = a.t().contiguous().t()
    else:
        c = c.t().contiguous().t()
    leaves = [t.requires_grad_() for t in (a, c, bias)]
    for result, array in zip(step(*leaves), expected(x, w, b), strict=True):
        assert near(result, array, 1e-5)
    assert driver.counts()[WITH_BIAS] == driver.counts()[WITH_SUMS] == 1


@pytest.mark.parametrize("case", ["float64", "no rows", "no columns", "an odd address", "a number"])
def test_what_is_not_taken_is_cublas_s(driver: Any, case: str) -> None:
    x, w, b = numbers(5, 24), numbers(8, 24), numbers(9)
    if case == "no rows":
        x = x[:0]
    if case == "no columns":
        x, w = x[:, :0], w[:, :0]
    a, c, bias = (
        t.detach() for t in tensors("float64" if case == "float64" else "float32", x, w, b)
    )
    first = 1 if case == "an odd address" else 0
    bias, b = bias[first : first + 8], b[first : first + 8]
    if case == "a number":
        bias, b = bias[:1], b[:1]
    y = nn.functional.linear(a.requires_grad_(), c.requires_grad_(), bias)
    assert not y.numel() or near(y, x @ w.T + b, 1e-5)
    (gradient,) = torch.autograd.grad(y.sum(), c)
    assert not x.size or near(gradient, np.ones((8, len(x))) @ x, 1e-5)
    assert WITH_BIAS not in driver.counts()


def test_only_what_is_asked_for(driver: Any) -> None:
    x, w, b = numbers(16, 24), numbers(8, 24), numbers(8)
    for wanted in ([0], [1], [2], [0, 2], [0, 1], [1, 2]):
        leaves = tensors("float32", x, w, b)
        y = nn.functional.linear(*[t if i in wanted else t.detach() for i, t in enumerate(leaves)])
        gradients = torch.autograd.grad(y, [leaves[i] for i in wanted], y.detach())
        for i, gradient in zip(wanted, gradients, strict=True):
            assert near(gradient, expected(x, w, b)[i + 1], 1e-5)


def test_gradients_of_gradients_tangents_and_batches(driver: Any) -> None:
    x, w, b = tensors("float32", numbers(2, 16, 24), numbers(8, 24), numbers(8))

    def results() -> list[Any]:
        first = torch.autograd.grad(
            nn.functional.linear(x, w, b).exp().sum(), (x, w, b), create_graph=True
        )
        second = torch.autograd.grad([g.square().sum() for g in first], (x, w, b))
        pushed = func.jvp(nn.functional.linear, (x, w, b), (x, w, b))
        mapped = func.vmap(nn.functional.linear, (0, None, None))(x, w, b)
        added = torch.addmm(b, x[0], w.t())
        return [*first, *second, *pushed, mapped, added]

    fused = results()
    assert driver.counts()[WITH_BIAS] == 3
    preferred_blas_library("cublas")
    for a, c in zip(fused, results(), strict=True):
        assert near(a, c.detach().double().cpu().numpy(), 1e-4)


def test_a_captured_step_has_the_same_bits(driver: Any) -> None:
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Linear(24, 16), nn.Tanh(), nn.Linear(16, 8)).to("cuda")
    x = torch.randn(8, 24, device="cuda")

    def run() -> list[Any]:
        loss = layers(x).square().sum()
        return [loss, *torch.autograd.grad(loss, list(layers.parameters()))]

    plain = [t.detach().cpu().numpy().tobytes() for t in run()]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = run()
    driver.reset_counts()
    for _ in range(2):
        graph.replay()
        assert [t.detach().cpu().numpy().tobytes() for t in results] == plain
    assert driver.counts().get(WITH_BIAS, 0) == 0  # replays ask no library


def test_streams_and_threads(driver: Any) -> None:
    x, w, b = tensors("float32", numbers(16, 24), numbers(8, 24), numbers(8))
    with torch.cuda.stream(torch.cuda.Stream()):
        results = step(x, w, b)
    torch.cuda.synchronize()
    arrays = [t.detach().double().cpu().numpy() for t in (x, w, b)]
    assert all(near(r, a, 1e-5) for r, a in zip(results, expected(*arrays), strict=True))


def test_exact_reductions_and_tf32_are_asked_for(driver: Any) -> None:
    matmul = torch.backends.cuda.matmul
    x, w, b = tensors("bfloat16", numbers(16, 24), numbers(8, 24), numbers(8))
    try:
        matmul.allow_bf16_reduced_precision_reduction = False
        assert near(
            nn.functional.linear(x, w, b), step(x, w, b)[0].double().detach().cpu().numpy(), 0
        )
        matmul.allow_tf32 = True
        step(*[t.detach().float().requires_grad_() for t in (x, w, b)])
        assert driver.counts()[WITH_BIAS] == 3
    finally:
        matmul.allow_bf16_reduced_precision_reduction, matmul.allow_tf32 = True, False
