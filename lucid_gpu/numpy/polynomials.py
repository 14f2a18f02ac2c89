"""Polynomials as their coefficients, the highest power's first, under NumPy's names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from lucid_gpu.numpy import matrices
from lucid_gpu.numpy.applied import trim_zeros
from lucid_gpu.numpy.naming import named
from lucid_gpu.numpy.operands import as_tensor, as_tensors, first_tensor, inexact
from lucid_gpu.numpy.products import alike, convolve, vander
from lucid_gpu.numpy.shapes import atleast_1d
from lucid_gpu.ops.shape import cat
from lucid_gpu.tensor import Tensor

__all__ = ["poly", "polyadd", "polyder", "polydiv", "polyfit", "polyint", "polymul", "polysub"]
__all__ += ["roots"]


def _row(p: Any) -> Tensor:
    p = atleast_1d(as_tensor(p))
    if p.ndim != 1:
        raise ValueError("Polynomial must be 1d only.")
    row: Tensor = p
    return row


def _trimmed(p: Tensor) -> Tensor:
    """Without zeros before the highest power; one zero of a polynomial that is none."""
    trimmed = trim_zeros(p, "f")
    return trimmed if trimmed.numel() else p.new_zeros(1)


def _summed(name: str, join: Callable[[Tensor, Tensor], Tensor]) -> Callable[..., Any]:
    def function(a1: Any, a2: Any) -> Tensor:
        a, b = alike(*[atleast_1d(t) for t in as_tensors((a1, a2))])
        n = max(a.shape[0], b.shape[0])
        a, b = (cat([t.new_zeros(n - t.shape[0]), t]) for t in (a, b))
        return join(a, b)

    return named(function, name)


polyadd, polysub = _summed("polyadd", Tensor.__add__), _summed("polysub", Tensor.__sub__)


def polymul(a1: Any, a2: Any) -> Tensor:
    """`numpy.polymul`."""
    a, b = as_tensors((a1, a2))
    return convolve(_trimmed(_row(a)), _trimmed(_row(b)))


def polydiv(u: Any, v: Any) -> tuple[Tensor, Tensor]:
    """`numpy.polydiv`: quotient and remainder, by long division."""
    u, v = alike(*[inexact(_row(t)) for t in as_tensors((u, v))])
    n = v.shape[0]
    parts = []
    for _ in range(max(u.shape[0] - n + 1, 0)):
        parts.append(u[:1] / v[0])
        u = cat([u[1:n] - parts[-1] * v[1:], u[n:]])
    while u.shape[0] > 1 and bool(np.isclose(u[0], 0, rtol=1e-14)):
        u = u[1:]
    return cat(parts) if parts else u.new_zeros(1), u if u.numel() else v.new_zeros(1)


def polyder(p: Any, m: int = 1) -> Tensor:
    """`numpy.polyder`: of the m-th derivative."""
    if m < 0:
        raise ValueError("Order of derivative must be positive (see polyint)")
    p = _row(p)
    for _ in range(int(m)):
        powers = as_tensor(np.arange(max(p.shape[0] - 1, 0), 0, -1), p)
        p = Tensor.__mul__(*alike(p[:-1], powers))
    return p


def polyint(p: Any, m: int = 1, k: Any = None) -> Tensor:
    """`numpy.polyint`: of the m-th integral, with its constants ``k``."""
    if m < 0:
        raise ValueError("Order of integral must be positive (see polyder)")
    like = first_tensor((p, k))
    p = _row(as_tensor(p, like))
    constants = atleast_1d(as_tensor(0.0 if k is None else k, like))
    if constants.shape[0] == 1:
        constants = constants.expand(max(int(m), 1))
    if constants.shape[0] < m:
        raise ValueError("k must be a scalar or a rank-1 array of length 1 or >m.")
    for step in range(int(m)):
        powers = as_tensor(np.arange(float(p.shape[0]), 0, -1), p)
        p = cat(alike(inexact(p) / powers.to(inexact(p).dtype), constants[step : step + 1]))
    return p


def poly(seq_of_zeros: Any) -> Tensor:
    """`numpy.poly`: from the roots, or those of a matrix's characteristic polynomial."""
    zeros = atleast_1d(inexact(as_tensor(seq_of_zeros)))
    if zeros.ndim == 2 and zeros.shape[0] == zeros.shape[1] != 0:
        zeros = matrices.eigvals(zeros)
    elif zeros.ndim != 1:
        raise ValueError("input must be 1d or non-empty square 2d array.")
    if not zeros.numel():
        return zeros.new_ones(())
    coefficients = zeros.new_ones(1)
    for zero in zeros.unbind():
        coefficients = cat([coefficients, coefficients[:1] * 0]) - cat(
            [coefficients[:1] * 0, coefficients * zero]
        )
    if coefficients.dtype.category == 3:
        values: Any = np.sort(zeros.detach().cpu().numpy())
        return coefficients.real if np.all(values == np.sort(values.conj())) else coefficients
    return coefficients


def roots(p: Any) -> Tensor:
    """`numpy.roots`, by the companion matrix's eigenvalues; always complex numbers."""
    p = atleast_1d(inexact(as_tensor(p)))
    if p.ndim != 1:
        raise ValueError("Input must be a rank-1 array.")
    p = trim_zeros(p, "f")
    inner = trim_zeros(p, "b")
    n = inner.shape[0] - 1
    if n < 1:
        eigenvalues = matrices.eigvals(p.new_zeros((0, 0)))
    else:
        below = p.new_ones(n - 1).diag(-1) if n > 1 else p.new_zeros((1, 1))
        eigenvalues = matrices.eigvals(cat([(-inner[1:] / inner[0]).unsqueeze(0), below[1:]]))
    return cat([eigenvalues, eigenvalues.new_zeros(p.shape[0] - inner.shape[0])])


def polyfit(
    x: Any,
    y: Any,
    deg: Any,
    rcond: float | None = None,
    full: bool = False,
    w: Any = None,
    cov: Any = False,
) -> Tensor:
    """`numpy.polyfit`: the coefficients of least squares, differentiable by x, y and w.

    Raises
    ------
    TypeError
        For ``full`` and ``cov``, which tensors do not have.
    """
    if full or cov:
        raise TypeError("numpy.polyfit of tensors gives the coefficients: without full and cov")
    like = first_tensor((x, y, w))
    x, y = alike(inexact(as_tensor(x, like)), inexact(as_tensor(y, like)))
    if deg < 0:
        raise ValueError("expected deg >= 0")
    if x.ndim != 1 or y.ndim not in (1, 2):
        raise TypeError(
            "expected 1D vector for x" if x.ndim != 1 else "expected 1D or 2D array for y"
        )
    if not x.numel() or x.shape[0] != y.shape[0]:
        raise TypeError(
            "expected non-empty vector for x"
            if not x.numel()
            else "expected x and y to have same length"
        )
    powers = vander(x, int(deg) + 1)
    if w is not None:
        w = as_tensor(w, x).to(x.dtype)
        if tuple(w.shape) != (y.shape[0],):
            raise TypeError("expected w and y to have the same length")
        powers, y = powers * w.unsqueeze(-1), y * (w.unsqueeze(-1) if y.ndim > 1 else w)
    bound = x.shape[0] * float(np.finfo(x.dtype.numpy).eps) if rcond is None else rcond
    scale = powers.square().sum(0).sqrt()
    scaled = matrices.lstsq(powers / scale, y, bound)[0]
    coefficients: Tensor = scaled / (scale.unsqueeze(-1) if y.ndim > 1 else scale)
    return coefficients
