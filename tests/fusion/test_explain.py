"""explain says what would run, and runs nothing."""

from __future__ import annotations

import pytest

import lucid_gpu
from lucid_gpu import explain, profiler
from lucid_gpu.fusion import pending_reductions


def test_nothing_is_computed(device: str) -> None:
    pending_reductions.flush()  # what earlier tests left waiting in cycles
    x = lucid_gpu.rand(3, device=device, requires_grad=True)
    y = x.exp() + 1
    y.sum().backward()
    z = y * 2
    with profiler.record() as log:
        text = str(explain(y, z, x.grad))
    assert log.kernels == []
    assert not z._expr.program.is_load
    assert text.startswith(("3 kernels", "2 kernels"))


def test_what_is_said_is_what_runs(device: str) -> None:
    x = lucid_gpu.rand(3, 4, device=device, requires_grad=True)
    w = lucid_gpu.rand(4, 2, device=device, requires_grad=True)
    y = (x * 2) @ w + 1
    z = y.tanh() * x.sum()
    said = explain(z).kernels
    with profiler.record() as log:
        z.array
    assert [(k.name, k.ops, k.bytes_read, k.bytes_written, k.shape) for k in said] == [
        (k.name, k.ops, k.bytes_read, k.bytes_written, k.shape) for k in log.kernels
    ]
    assert said[0].source == log.kernels[0].source


def test_each_boundary_has_its_reason(device: str) -> None:
    given = lucid_gpu.rand(3, 2, device=device)
    leaf = lucid_gpu.rand(2, device=device, requires_grad=True)
    product = lucid_gpu.rand(3, 4, device=device, requires_grad=True) @ lucid_gpu.rand(
        4, 2, device=device
    )
    text = str(explain((given + product).exp() * leaf + given.t().t()[:1]))
    assert "float32[3, 2]: input, or computed before" in text
    assert "float32[2] broadcast: input: a leaf that requires grad" in text
    assert "already realized: the result of MmBackward0" in text
    assert "float32[1, 2] broadcast" in text
    assert "ops: add, exp, mul, add" in text
    assert "writes 24 bytes" in text


def test_realized_tensors_need_no_kernel(device: str) -> None:
    x = lucid_gpu.rand(3, device=device)
    found = explain(x, x + 1)
    assert len(found.kernels) == 1
    assert "tensor 0 is already realized" in str(found)
    assert explain(x).kernels == []
    assert str(explain(x)).startswith("0 kernels")


def test_totals_are_sums_over_kernels(device: str) -> None:
    x, y = lucid_gpu.rand(3, device=device), lucid_gpu.rand(5, device=device)
    found = explain(x + 1, y * 2)
    assert len(found.kernels) == 2
    assert (found.bytes_read, found.bytes_written) == (32, 32)
    assert all(k.source in found.source for k in found.kernels)


def test_tensors_on_one_memory_are_computed_once(device: str) -> None:
    x = lucid_gpu.rand(3, device=device, requires_grad=True)
    y = x.exp()
    assert len(explain(y, y.detach()).kernels) == 1


def test_other_arguments_are_refused() -> None:
    with pytest.raises(TypeError, match=r"explain\(\) takes tensors; argument 1 is of type int"):
        explain(lucid_gpu.ones(1), 3)


def test_a_strided_operand_is_called_so(device: str) -> None:
    x = lucid_gpu.rand(4, 3, device=device).t()
    assert "float32[3, 4] strided" in str(explain(x + 1))
