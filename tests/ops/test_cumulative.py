"""Running products and extrema, differences and integrals, against torch."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu.autograd import gradcheck, gradgradcheck
from lucid_gpu.func import jvp, vmap
from tests.oracle import agree, same_error, torch_module

RNG = np.random.default_rng(21)
CUBE = RNG.standard_normal((3, 5, 4))
ZEROS = np.where(RNG.random((3, 5, 4)) < 0.3, 0.0, CUBE)
INTEGERS = RNG.integers(0, 4, (4, 6))
SINGLE = CUBE.astype(np.float32) / 2
TIED = RNG.integers(0, 3, (4, 6)).astype(np.float64)
LONG = RNG.uniform(0.9, 1.1, (70, 9))  # the slices of many rows
HOLES = np.array([[1.0, np.nan, 2.0, 0.5], [-np.inf, -np.inf, 3.0, np.inf]])
WIDE = RNG.standard_normal((40, 3, 140)) / 9  # rows that are walked side by side
NOTHING = np.ones((2, 0))
AT = np.array([0.0, 0.5, 1.5, 2.0, 4.0])

CASES: dict[str, tuple[Any, ...]] = {
    "cumprod": (lambda m, t: t.cumprod(1), CUBE),
    "cumprod of zeros": (lambda m, t: m.cumprod(t, dim=-2), ZEROS),
    "cumprod of many rows": (lambda m, t: t.cumprod(1), LONG),
    "side by side": (lambda m, t: (t.flip(2).cumsum(-1), *t.cummax(2), t.exp2().cumprod(2)), WIDE),
    "cumprod of halves": (lambda m, t: t.half().cumprod(0).float(), SINGLE),
    "cumprod of integers": (lambda m, t: (t.cumprod(0), t.cumprod(1, dtype=m.float64)), INTEGERS),
    "cumprod of views": (lambda m, t: t.transpose(0, 1)[::2].cumprod(0), ZEROS),
    "cumprod of a number": (lambda m, t: t[0, 0, 0].cumprod(0), CUBE),
    "cumprod of nothing": (lambda m, t: t.cumprod(1), NOTHING),
    "cumprod_": (lambda m, t: (t * 1).cumprod_(0), CUBE),
    "logcumsumexp": (lambda m, t: t.logcumsumexp(1), CUBE * 30),
    "logcumsumexp of inf": (lambda m, t: t[:, :3].logcumsumexp(1), HOLES),
    "logcumsumexp of nothing": (lambda m, t: t.logcumsumexp(0), NOTHING),
    "cummax": (lambda m, t: tuple(t.cummax(1)), CUBE),
    "cummin": (lambda m, t: tuple(m.cummin(t, 0)), CUBE),
    "cummax of ties": (lambda m, t: tuple(t.cummax(0)), TIED),
    "cummin of NaN": (lambda m, t: tuple(t.cummin(1)), HOLES),
    "cummax of NaN": (lambda m, t: tuple(t.cummax(-1)), HOLES),
    "cummax of bytes": (lambda m, t: tuple(t.cummax(1)), TIED.astype(np.uint8)),
    "cummax of bools": (lambda m, t: tuple((t > 1).cummax(1)), TIED),
    "cummin of a number": (lambda m, t: tuple(t[0, 0].cummin(0)), TIED),
    "cummax of halves": (lambda m, t: t.bfloat16().cummax(0).values.float(), SINGLE),
    "cumsum out": (lambda m, t: m.cumsum(t.detach(), 0, out=t.detach().new_zeros(t.shape)), CUBE),
    "diff": (lambda m, t: (t.diff(), t.diff(2, 1), m.diff(t, dim=0, n=0)), CUBE),
    "diff beyond": (lambda m, t: (t.diff(9), t.diff(dim=0)), CUBE),
    "diff between": (lambda m, t, u: m.diff(t, prepend=u, append=u), CUBE, CUBE[..., :1]),
    "diff of bools": (lambda m, t: ((t > 1).diff(), t.long().diff()), TIED),
    "trapezoid": (lambda m, t: (m.trapezoid(t), m.trapz(t, dx=0.5, dim=0)), CUBE),
    "trapezoid of points": (lambda m, t, x: m.trapezoid(t, x, dim=1), CUBE, AT),
    "trapezoid of places": (lambda m, t, x: m.trapezoid(t, x), CUBE, CUBE[1] * 2),
    "trapezoid of integers": (lambda m, t: m.trapezoid(t), INTEGERS),
    "trapezoid of nothing": (lambda m, t: m.trapezoid(t), NOTHING),
    "cumulative_trapezoid": (lambda m, t: m.cumulative_trapezoid(t, dx=2.0, dim=1), CUBE),
    "cumulative_trapezoid of points": (
        lambda m, t, x: m.cumulative_trapezoid(t, x, dim=1), CUBE, AT
    ),
    "gradient": (lambda m, t: tuple(m.gradient(t)), CUBE),
    "gradient, edges": (lambda m, t: tuple(m.gradient(t, spacing=0.5, edge_order=2)), CUBE),
    "gradient along": (lambda m, t: tuple(m.gradient(t, dim=(1, 0), spacing=[2.0, 0.5])), CUBE),
    "gradient at": (lambda m, t, x: tuple(m.gradient(t, dim=1, spacing=(x,))), CUBE, AT),
    "gradient at, edges": (
        lambda m, t, x: tuple(m.gradient(t, dim=1, spacing=(x,), edge_order=2)), CUBE, AT
    ),
    "gradient of integers": (lambda m, t: tuple(m.gradient(t, dim=0)), INTEGERS),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_as_in_torch(name: str, device: str) -> None:
    function, *arrays = CASES[name]
    rough = 1e-2 if "halves" in name else 1e-6
    rough_or_linear = ("NaN", "halves", "gradient", "trapezoid")
    order = 0 if "inf" in name else 1 if any(word in name for word in rough_or_linear) else 2
    agree(function, *arrays, device=device, rtol=rough, atol=rough, order=order)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("kind", ["complex64", "complex128"])
def test_logcumsumexp_of_complex_numbers(seed: int, kind: str, device: str) -> None:
    torch = torch_module()
    rng = np.random.default_rng(seed)
    shape = [(7,), (3, 5), (2, 0), (1,), ()][seed % 5]
    parts = [np.asarray(rng.integers(-3, 4, shape), float) for _ in range(2)]  # equal sizes
    if seed % 2:
        parts = [np.asarray(rng.standard_normal(shape) * 5) for _ in range(2)]
    numbers = np.asarray(parts[0] + 1j * parts[1]).astype(kind)
    if seed == 6:
        numbers[1, 0] = complex(-np.inf, 1)
    weights = rng.standard_normal(shape)
    found = []
    for m, where in ((torch, "cpu"), (lucid_gpu, device)):
        x = m.tensor(numbers, device=where).requires_grad_()
        y = m.logcumsumexp(x, -1)
        (y * m.tensor(weights, device=where)).real.sum().backward()
        assert str(y.dtype).endswith(kind)
        found.append([v.detach().cpu().resolve_conj().numpy() for v in (y, x.grad)])
    for expected, got in zip(*found, strict=True):
        there = ~np.isnan(expected)  # NaN where PyTorch subtracts infinities
        np.testing.assert_allclose(got[there], expected[there], rtol=2e-4, atol=2e-4)


def test_logcumsumexp_of_complex_numbers_has_derivatives(device: str) -> None:
    x = lucid_gpu.tensor(CUBE[0] + 1j * CUBE[1], device=device).requires_grad_()
    assert gradcheck(lambda t: t.logcumsumexp(1), x, check_forward_ad=True)
    assert gradgradcheck(lambda t: t.logcumsumexp(1), x)


def test_logcumsumexp_of_nothing_but_infinities_is_flat(device: str) -> None:
    x = lucid_gpu.tensor([-math.inf, -math.inf, 0.0], device=device, requires_grad=True)
    x.logcumsumexp(0)[2].backward()
    assert x.grad.tolist() == [0.0, 0.0, 1.0]


SMOOTH = {
    "cumprod": lambda t: t.cumprod(1),
    "logcumsumexp": lambda t: t.logcumsumexp(1),
    "recurrence": lambda t: lucid_gpu.ops.cumulative.recurrence(t, t * t, 1, True),
}


@pytest.mark.parametrize("name", SMOOTH)
def test_gradients(name: str, device: str) -> None:
    array = np.array([[0.5, 0.0, -1.5, 0.0], [2.0, 0.3, 0.7, 1.1]])
    x = lucid_gpu.tensor(array, device=device, requires_grad=True)
    assert gradcheck(SMOOTH[name], (x,))
    assert gradgradcheck(SMOOTH[name], (x,))


def test_transforms(device: str) -> None:
    x = lucid_gpu.tensor(CUBE, device=device)
    for function in (
        lambda t: t.cumprod(0),
        lambda t: t.logcumsumexp(-1),
        lambda t: t.cummax(0).values,
        lambda t: lucid_gpu.func.grad(lambda u: u.cumprod(0).sum())(t),
    ):
        expected = lucid_gpu.stack([function(part) for part in x])
        np.testing.assert_allclose(vmap(function)(x).cpu(), expected.cpu(), rtol=1e-12)
    direction = lucid_gpu.tensor(CUBE[::-1].copy(), device=device)
    _, tangent = jvp(lambda t: t.cumprod(1), (x,), (direction,))
    step = 1e-6
    slope = (x + step * direction).cumprod(1) - (x - step * direction).cumprod(1)
    np.testing.assert_allclose(tangent.cpu(), (slope / (2 * step)).cpu(), atol=1e-7)


REFUSED: dict[str, Any] = {
    "logcumsumexp of integers": lambda m: m.tensor([1]).logcumsumexp(0),
    "cummax of complex numbers": lambda m: m.tensor([1j]).cummax(0),
    "diff of a number": lambda m: m.tensor(1.0).diff(),
    "diff, negative": lambda m: m.ones(3).diff(-1),
    "no such dimension": lambda m: m.ones(3).cumprod(1),
    "trapezoid of too few": lambda m: m.trapezoid(m.ones(3), m.ones(2)),
    "gradient, third order": lambda m: m.gradient(m.ones(3), edge_order=3),
    "gradient of too few": lambda m: m.gradient(m.ones(1)),
    "gradient of too many": lambda m: m.gradient(m.ones(3, 3), spacing=[1.0]),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name: str) -> None:
    same_error(REFUSED[name])


def test_a_long_running_product(device: str) -> None:
    torch = torch_module()
    array = RNG.uniform(0.99, 1.01, 5000)
    t, u = lucid_gpu.tensor(array, device=device, requires_grad=True), torch.tensor(array)
    t.cumprod(0).sum().backward()
    u.requires_grad_().cumprod(0).sum().backward()
    np.testing.assert_allclose(t.grad.cpu().numpy(), u.grad.numpy(), rtol=1e-9)
