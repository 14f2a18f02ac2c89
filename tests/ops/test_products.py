"""Products that are added to something, Kronecker's: as in torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.oracle import agree, same_error

RNG = np.random.default_rng(29)
A = RNG.standard_normal((2, 3))
CUBE = RNG.standard_normal((2, 3, 2))
CASES: dict[str, Any] = {
    "addmv": lambda m, a, c: m.addmv(a[:, 0], a, a[1], beta=2, alpha=-1),
    "addmv of a number": lambda m, a, c: a[0, 0].addmv(a, a[1]),
    "addmv_": lambda m, a, c: m.addmv_(a[:, 0] * 2, a, a[1]) + (a[:, 0] * 2).addmv_(a, a[0]),
    "addr": lambda m, a, c: m.addr(a, a[:, 0], a[1], beta=0.5, alpha=3),
    "addr_": lambda m, a, c: (a * 1).addr_(a[:, 0], a[1]),
    "addmm": lambda m, a, c: m.addmm(a[:, :1], a, c[0], beta=2),
    "addmm_": lambda m, a, c: (c[1, :2] * 1).addmm_(a, c[0], alpha=2),
    "NaN times 0": lambda m, a, c: m.addmm(a.new_full((2, 1), np.nan), a, c[0], beta=0),
    "baddbmm": lambda m, a, c: m.baddbmm(c[:, :2], c.mT, c, beta=2, alpha=3),
    "baddbmm broadcasts": lambda m, a, c: m.baddbmm(a[:, 0], c.mT, c, beta=0),
    "baddbmm_": lambda m, a, c: (c[:, :2] * 1).baddbmm_(c.mT, c),
    "addbmm": lambda m, a, c: m.addbmm(a[:, :1], c.mT, c, alpha=0.5),
    "addbmm_": lambda m, a, c: (c[0, :2] * 1).addbmm_(c.mT, c, beta=3),
    "vdot": lambda m, a, c: m.vdot(a[0], a[1]),
    "ger": lambda m, a, c: m.ger(a[0], a[:, 1]),
    "outer": lambda m, a, c: a[0].outer(a[:, 1]),
    "kron": lambda m, a, c: m.kron(a, c[0]),
    "kron of ranks": lambda m, a, c: c.kron(a[0]),
    "kron of numbers": lambda m, a, c: m.kron(a[0, 0], a[0]),
}


@pytest.mark.parametrize("name", CASES)
def test_agrees_with_torch(name: str, device: str) -> None:
    agree(CASES[name], A, CUBE, device=device)


def test_other_types_agree_with_torch(device: str) -> None:
    def both(m: Any, a: Any, b: Any) -> Any:
        z = m.complex(a * 1.0, b * 1.0) if hasattr(a, "grad") else None
        return m.vdot(z[0], z[1]).real, m.kron(a, b).to(m.int64), m.addmv(a[:, 0], a, b[0])

    ints = np.arange(6.0, dtype=np.float32).reshape(2, 3)
    agree(both, ints, ints + 1, device=device, order=1)


MISUSE: dict[str, tuple[Any, str]] = {
    "addmv ranks": (lambda m: m.addmv(m.ones(2), m.ones(2), m.ones(2)), "expected, got 1, 1, 1"),
    "addmv sizes": (
        lambda m: m.addmv(m.ones(2), m.ones(2, 3), m.ones(2)),
        "size mismatch, got input (2), mat (2x3), vec (2)",
    ),
    "addr ranks": (
        lambda m: m.addr(m.ones(2), m.ones(2, 2), m.ones(3)),
        "addr: Expected 1-D argument vec1, but got 2-D",
    ),
    "addr input": (lambda m: m.addr(m.ones(2, 2), m.ones(2), m.ones(3)), "The expanded size of"),
    "batches": (
        lambda m: m.addbmm(m.ones(2, 2), m.ones(2, 2, 3), m.ones(3, 3, 2)),
        "batch1 and batch2 must have same number of batches, got 2 and 3",
    ),
    "a matrix": (lambda m: m.baddbmm(m.ones(1), m.ones(2, 3), m.ones(2, 3, 3)), ""),
    "inner sizes": (lambda m: m.baddbmm(m.ones(1), m.ones(2, 2, 2), m.ones(2, 3, 3)), ""),
    "vdot sizes": (
        lambda m: m.vdot(m.ones(2), m.ones(3)),
        "inconsistent tensor size, expected tensor [2] and src [3] to have the same number of",
    ),
    "vdot of matrices": (lambda m: m.vdot(m.ones(2, 2), m.ones(2, 2)), "1D tensors expected"),
    "ger": (lambda m: m.ger(m.ones(2, 2), m.ones(2)), "outer: Expected 1-D argument self"),
}


@pytest.mark.parametrize("name", MISUSE)
def test_misuse_raises_as_in_torch(name: str) -> None:
    same_error(*MISUSE[name])


NOT_READ = {
    "addmm": ((2, 4), (2, 3), (3, 4)), "addmv": ((2,), (2, 3), (3,)), "addr": ((2, 4), (2,), (4,)),
    "addbmm": ((4,), (5, 2, 3), (5, 3, 4)), "baddbmm": ((1, 4), (5, 2, 3), (5, 3, 4)),
}  # fmt: skip


@pytest.mark.parametrize("name", NOT_READ)
def test_an_operand_times_0_is_not_read_and_has_a_gradient_of_zeros(name, device):
    rng = np.random.default_rng(0)
    first, *rest = [rng.standard_normal(shape) for shape in NOT_READ[name]]
    agree(
        lambda m, *operands: getattr(m, name)(*operands, beta=0, alpha=2),
        first * np.nan, *rest, device=device,
    )  # fmt: skip
