"""Clipping gradients: PyTorch's results and words, in few kernels."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

import lucid_gpu
from lucid_gpu import profiler
from lucid_gpu.core.program import forget
from lucid_gpu.kernels.multi_tensor import TABLE
from lucid_gpu.nn.utils import (
    clip_grad_norm_,
    clip_grad_value_,
    clip_grads_with_norm_,
    get_total_norm,
)
from tests.oracle import agree, same_error

SHAPES = [(3, 4), (), (5,), (0,), (70, 130), (1,)]


def parameters(m: Any, dtype: str = "float32", device: str = "cpu") -> list[Any]:
    """Leaves with gradients, one of them laid out in columns, and one without a gradient."""
    result = []
    for i, shape in enumerate(SHAPES):
        d = getattr(m, dtype)
        n = math.prod(shape)
        p = m.ones(*shape, dtype=d, device=device) if shape else m.ones((), dtype=d, device=device)
        p.requires_grad_()
        p.grad = (m.arange(n, dtype=m.float32, device=device) % 7 - 3).to(d).reshape(shape) * (
            i + 1
        )
        result.append(p)
    turned = m.ones(4, 6, dtype=getattr(m, dtype), device=device).t().requires_grad_()
    turned.grad = m.arange(24, dtype=m.float32, device=device).to(turned.dtype).reshape(4, 6).t()
    return [*result, turned, m.ones(3, requires_grad=True, device=device)]


def after(m: Any, clip: Any, **kinds: Any) -> list[Any]:
    """What a function of parameters gives, and their gradients."""
    some = parameters(m, **kinds)
    result = clip(some)
    found = [*([] if result is None else [result]), *[p.grad for p in some if p.grad is not None]]
    return [t.to(m.float32) if t.dtype is m.bfloat16 else t for t in found]


def on(m: Any, device: str) -> str:
    return device if m is lucid_gpu else "cpu"


@pytest.mark.parametrize("order", [1, 2, 3.5, 0, "inf", math.inf, -math.inf])
@pytest.mark.parametrize("limit", [0.7, 1e9])
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_norms_as_torch(order: Any, limit: float, dtype: str, device: str) -> None:
    def run(m: Any) -> list[Any]:
        def clip(some: list[Any]) -> Any:
            if math.isinf(float(order)):  # PyTorch refuses the largest of nothing
                some[:] = [p for p in some if p.numel()]
            return m.nn.utils.clip_grad_norm_(some, limit, order)

        return after(m, clip, dtype=dtype, device=on(m, device))

    few = {"bfloat16": 2e-2, "float32": 1e-4, "float64": 1e-9}[dtype]
    agree(run, device=device, rtol=few, atol=few)


@pytest.mark.parametrize("which", [slice(None), 0], ids=["all", "one"])
def test_values_as_torch(which: Any, device: str) -> None:
    def run(m: Any) -> list[Any]:
        clip = m.nn.utils.clip_grad_value_
        return after(m, lambda some: clip(some[which], 1.5), device=on(m, device))

    agree(run, device=device)


def test_the_parts_as_torch(device: str) -> None:
    def run(m: Any) -> list[Any]:
        def clip(some: list[Any]) -> Any:
            total = m.nn.utils.get_total_norm([p.grad for p in some if p.grad is not None])
            m.nn.utils.clip_grads_with_norm_(some, 2.0, total)
            return total

        return after(m, clip, device=on(m, device))

    agree(run, device=device, rtol=1e-5)


def test_few_tensors_as_torch(device: str) -> None:
    def run(m: Any) -> list[Any]:
        five = m.arange(5.0, device=on(m, device))
        alone = m.ones(2, requires_grad=True, device=on(m, device))
        return [m.nn.utils.get_total_norm(five), m.nn.utils.clip_grad_norm_([alone], 1.0)]

    agree(run, device=device)
    agree(lambda m: m.nn.utils.get_total_norm([]), device="cpu")


def test_what_is_not_finite(device: str) -> None:
    def run(m: Any, raises: bool) -> list[Any]:
        p = m.ones(2, requires_grad=True, device=on(m, device))
        p.grad = m.tensor([1.0, math.inf], device=on(m, device))
        return [m.nn.utils.clip_grad_norm_(p, 1.0, error_if_nonfinite=raises), p.grad]

    agree(lambda m: run(m, False), device=device)
    same_error(lambda m: run(m, True))


def test_an_empty_generator_is_named() -> None:
    with pytest.warns(UserWarning, match="empty generator, no gradient clipping will occur"):
        clip_grad_norm_((p for p in ()), 1.0)


def test_complex_gradients() -> None:
    p = lucid_gpu.ones(2, dtype=lucid_gpu.complex64, requires_grad=True)
    p.grad = lucid_gpu.tensor([3 + 4j, 0j])
    for order in (2.0, 1.0, math.inf):
        assert get_total_norm(p.grad, order).item() == 5
    clip_grad_norm_(p, 1.0)
    assert p.grad.tolist()[0] == pytest.approx(0.6 + 0.8j)


def test_types_that_have_no_norm() -> None:
    with pytest.raises(RuntimeError, match="expected dense floating point tensors, got int64"):
        get_total_norm(lucid_gpu.arange(3))


def test_who_reads_the_gradient_keeps_what_he_read(device: str) -> None:
    """A pending reader of a gradient, and its versions."""
    p = lucid_gpu.ones(3, device=device, requires_grad=True)
    (p * 4).sum().backward()
    doubled, version = p.grad * 2, p.grad._version
    clip_grad_norm_(p, 1.0)
    assert doubled.tolist() == [8, 8, 8] and p.grad._version > version
    clip_grad_value_(p, 0.1)
    assert p.grad.tolist() == pytest.approx([0.1] * 3)
    clip_grads_with_norm_(p, 0.01, get_total_norm(p.grad))
    assert get_total_norm(p.grad).item() == pytest.approx(0.01, rel=1e-3)


# --- how much runs ------------------------------------------------------------------------------


@pytest.fixture
def cuda_c(device: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    if device == "cpu":
        if shutil.which("g++") is None:
            pytest.skip("the host executor compiles with g++, which is missing")
        monkeypatch.setattr("lucid_gpu.launch.Executor.host_cuda", True)
    forget()
    yield device
    forget()


def with_gradients(count: int, device: str, size: int = 100) -> list[Any]:
    some = [lucid_gpu.ones(size, device=device, requires_grad=True) for _ in range(count)]
    for p in some:
        p.grad = lucid_gpu.ones(size, device=device)
        p.grad.array
    return some


def kernels(run: Any, *arguments: Any) -> list[Any]:
    with profiler.record() as log:
        run(*arguments)
    return list(log.kernels)


def test_three_kernels_whatever_the_number_of_parameters(cuda_c: str) -> None:
    """The gradients are read, their shares added, and the gradients read and written once."""
    rows = TABLE.rows
    for count in (1, 5, 100, rows):
        some = with_gradients(count, cuda_c)
        n = count * 100 * 4
        norm, finish, clip = kernels(clip_grad_norm_, some, 1.0)
        assert (norm.bytes_read, clip.bytes_read, clip.bytes_written) == (n, n + 4, n)
        assert finish.bytes_read == norm.bytes_written == count * 4
    assert len(kernels(clip_grad_norm_, with_gradients(rows + 1, cuda_c), 1.0)) == 5
    assert len(kernels(clip_grad_norm_, with_gradients(3 * rows, cuda_c, 3), 1.0)) == 7


def test_clamping_is_one_kernel(cuda_c: str) -> None:
    (kernel,) = kernels(clip_grad_value_, with_gradients(100, cuda_c), 0.5)
    assert (kernel.bytes_read, kernel.bytes_written) == (40_000, 40_000)
    assert len(kernels(clip_grad_value_, with_gradients(TABLE.rows + 3, cuda_c), 0.5)) == 2


def test_the_norm_never_comes_to_the_host(cuda_c: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any) -> Any:
        raise AssertionError("a number was read")

    some = with_gradients(7, cuda_c)
    for name in ("item", "tolist", "__bool__", "__float__", "numpy"):
        monkeypatch.setattr(lucid_gpu.Tensor, name, refused)
    clip_grad_norm_(some, 1.0)
