"""Parts of complex numbers: views with gradients; putting numbers together; angles."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu.autograd import gradcheck, gradgradcheck
from tests.oracle import agree, gives, same_error, torch_module

PARTS = np.array([[1.0, -2.0, 0.5], [0.0, 3.0, -1.5]])
OTHERS = np.array([[0.5, 1.0, -1.0], [2.0, 0.25, 0.0]])


def joined(m: Any, x: Any, y: Any) -> Any:
    return m.complex(x, y)


@pytest.mark.parametrize(
    "function",
    [
        lambda m, x, y: joined(m, x, y).real * 2,
        lambda m, x, y: joined(m, x, y).imag * joined(m, x, y).real,
        lambda m, x, y: m.real(joined(m, x, y) * (1 + 2j)),
        lambda m, x, y: m.imag(joined(m, x, y).exp()),
        lambda m, x, y: joined(m, x, y).abs(),
        lambda m, x, y: joined(m, x, y)[1].real.sum(),
        lambda m, x, y: m.real(x),
        lambda m, x, y: m.complex(x, y[0]).imag,
        lambda m, x, y: joined(m, x + 3, y + 3).angle(),
        lambda m, x, y: m.angle(x) * y,
    ],
)
def test_parts_and_their_gradients(function: Any, device: str) -> None:
    agree(function, PARTS, OTHERS, device=device)


def test_real_inputs_of_complex_ops_get_real_gradients_without_warnings(device: str) -> None:
    x = lucid_gpu.tensor([1.0, 2.0], dtype=lucid_gpu.float64, device=device, requires_grad=True)
    z = lucid_gpu.tensor([1 + 1j, 2 - 1j], dtype=lucid_gpu.complex128, device=device)
    z = z.requires_grad_()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (x * z + x / z - x).abs().sum().backward()
        ((x * 1j).exp() ** x).real.sum().backward()
        lucid_gpu.where(x > 1, x, z).imag.sum().backward()
    assert x.grad is not None
    assert z.grad is not None
    assert x.grad.dtype is lucid_gpu.float64
    assert z.grad.dtype is lucid_gpu.complex128
    for function in (lambda a, b: a * b, lambda a, b: b**a, lambda a, b: a - b):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert gradcheck(function, (x, z))
            assert gradgradcheck(function, (x, z))


def test_parts_share_memory(device: str) -> None:
    z = lucid_gpu.tensor([1 + 2j, 3 + 4j], device=device)
    part = z.imag
    part.mul_(10)
    assert z.tolist() == [1 + 20j, 3 + 40j]
    z.real = lucid_gpu.tensor([7.0, 8.0], device=device)
    assert z.tolist() == [7 + 20j, 8 + 40j]
    z.add_(1j)
    assert part.tolist() == [21, 41]
    assert part._base is z
    assert part._version == z._version == 3


def test_recorded_writes_to_parts_have_their_gradients() -> None:
    def scenario(module: Any, device: str) -> list[Any]:
        z = module.tensor([1 + 2j, 3 + 4j], dtype=module.complex128, requires_grad=True)
        v = module.tensor([5.0, 6.0], dtype=module.float64, requires_grad=True)
        w = z * 1
        w.imag.copy_(v)
        w.real.mul_(2)
        w.conj().imag.mul_(3)
        (w * w).abs().sum().backward()
        return [np.round(t.tolist(), 9).tolist() for t in (w, z.grad, v.grad)]

    gives([[2 + 15j, 6 + 18j], [8, 24], [90, 108]], scenario)


def test_real_tensors_have_no_imaginary_part() -> None:
    same_error(lambda m: m.ones(2).imag, "imag is not implemented for tensors with non-complex")
    same_error(lambda m: m.complex(m.ones(2), m.ones(2).double()), "Expected object of scalar type")
    x = lucid_gpu.ones(2)
    assert x.real is x


def test_angles_of_real_numbers(device: str) -> None:
    x = lucid_gpu.tensor([-2.0, -0.0, 0.0, 3.0, math.nan], device=device)
    found = x.angle().tolist()
    assert found[:4] == [pytest.approx(math.pi), 0, 0, 0]
    assert math.isnan(found[4])
    assert lucid_gpu.tensor([1, -1], device=device).angle().tolist() == [0, pytest.approx(math.pi)]


def test_log1p_keeps_small_real_parts(device: str) -> None:
    numbers = np.array([1e-10 + 1e-10j, 1e-20 + 0j, -1e-8 + 1.4142135e-4j, 1e-3j, -2 + 1e-6j, -1])
    numbers = np.append(numbers, [3 + 4j, 1e200 + 1e200j, np.inf])
    for kind, precision in (("complex128", 1e-8), ("complex64", 2e-6)):
        z = numbers[:-2].astype(kind) if kind == "complex64" else numbers
        ours = lucid_gpu.tensor(z, device=device).log1p().numpy(force=True)
        theirs = torch_module().tensor(z).log1p().numpy()
        np.testing.assert_allclose(ours.real, theirs.real, precision)
        np.testing.assert_allclose(ours.imag, theirs.imag, precision)


def test_complex_numbers_without_imaginary_part_become_real_numbers() -> None:
    x = lucid_gpu.tensor(2.5 + 0j)
    assert (float(x), int(x), complex(x)) == (2.5, 2, 2.5 + 0j)
    for kind in (float, int):
        same_error(lambda m, kind=kind: kind(m.tensor(2.5 + 1j)), "without overflow")
