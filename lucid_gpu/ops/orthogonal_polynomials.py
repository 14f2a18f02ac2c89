"""Classical orthogonal polynomials of each element, for `lucid_gpu.special`.

All follow a recurrence of three terms (dlmf.nist.gov/18.9). Chebyshev's have the closed forms of
dlmf.nist.gov/18.5 in between -1 and 1, where many steps would be needed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from lucid_gpu.ops.arguments import public
from lucid_gpu.ops.bessel import NO_GRADIENT, computed, float_type
from lucid_gpu.ops.elementwise import _common_type
from lucid_gpu.ops.memory_formats import joint_order, lying
from lucid_gpu.ops.registry import named
from lucid_gpu.ops.stacking import broadcast_tensors
from lucid_gpu.tape.door import op
from lucid_gpu.tape.rules import Batch, batching
from lucid_gpu.tensor import Tensor

_SHORT = 6  # up to this degree the recurrence takes no longer than the closed form


class _Family(NamedTuple):
    first: Callable[[Any], Any]  # the polynomial of degree 1
    step: Callable[[Any, int, Any, Any], Any]  # of degree k, from x and the two before
    closed: Callable[[Any, Any, Any], Any] | None = None  # of the angle whose cosine is x


def _chebyshev(first: Callable[[Any], Any], closed: Callable[[Any, Any, Any], Any]) -> _Family:
    return _Family(first, lambda x, k, p, q: 2 * x * p - q, closed)


_T = _chebyshev(lambda x: x, lambda xp, n, angle: xp.cos(n * angle))
_U = _chebyshev(lambda x: 2 * x, lambda xp, n, angle: xp.sin((n + 1) * angle) / xp.sin(angle))
_V = _chebyshev(
    lambda x: 2 * x - 1, lambda xp, n, angle: xp.cos((n + 0.5) * angle) / xp.cos(angle / 2)
)
_W = _chebyshev(
    lambda x: 2 * x + 1, lambda xp, n, angle: xp.sin((n + 0.5) * angle) / xp.sin(angle / 2)
)
_H = _Family(lambda x: 2 * x, lambda x, k, p, q: 2 * x * p - 2 * (k - 1) * q)
_HE = _Family(lambda x: x, lambda x, k, p, q: x * p - (k - 1) * q)
_L = _Family(lambda x: 1 - x, lambda x, k, p, q: ((2 * k - 1 - x) * p - (k - 1) * q) / k)
_P = _Family(lambda x: x, lambda x, k, p, q: ((2 * k - 1) * x * p - (k - 1) * q) / k)


def _values(xp: Any, family: _Family, x: Any, n: Any) -> Any:
    degree = xp.where(xp.isfinite(n), xp.trunc(n), -1.0)  # of a negative degree there is none
    result = xp.where(degree < 0, 0.0, xp.ones_like(x))
    if family.closed is not None:
        closed = (abs(x) < 1) & (degree > _SHORT)
        angle = xp.arccos(xp.where(closed, x, 0.0))
        result = xp.where(closed, family.closed(xp, degree, angle), result)
        degree = xp.where(closed, 0.0, degree)
    before, last = xp.ones_like(x), family.first(x)
    result = xp.where(degree == 1, last, result)
    for k in range(2, int(degree.max()) + 1 if degree.size else 0):
        before, last = last, family.step(x, k, last, before)
        result = xp.where(degree == k, last, result)
    return result


def _function(name: str, family: _Family, text: str) -> Callable[..., Tensor]:
    shifted = name.startswith("shifted")

    def values(xp: Any, x: Any, n: Any) -> Any:
        return _values(xp, family, 2 * x - 1 if shifted else x, n)

    @op
    @lying("x", "n", rule=joint_order)
    def polynomial(x: Tensor, n: Tensor | float) -> Tensor:
        d = float_type(name, _common_type(x, n))
        like = x if isinstance(x, Tensor) else n
        both = [t if isinstance(t, Tensor) else like.new_full((), t, dtype=d) for t in (x, n)]
        return computed(values, d, *broadcast_tensors(*both))

    batching(polynomial)(_batched)
    doc = (
        f"{text} of degree ``n``, of each element; the two broadcast, one may be a number.\n\n"
        f"A degree is cut to a whole number; where it is negative, the value is 0.{NO_GRADIENT}"
    )
    return public(named(polynomial, name, doc))


def _batched(level: Batch, f: Any, x: Any, n: Any) -> Any:
    operands = x, n
    rank = max([t.ndim for t in operands if isinstance(t, Tensor)])
    return level.wrap(
        f(*[level.aligned(t, rank) if isinstance(t, Tensor) else t for t in operands])
    )


def _of_kind(letter: str, family: _Family, kind: str) -> tuple[Callable[..., Tensor], ...]:
    name, text = f"chebyshev_polynomial_{letter}", f"Chebyshev's polynomial of the {kind} kind"
    shifted = _function(f"shifted_{name}", family, f"{text} at ``2 x - 1``")
    return _function(name, family, text), shifted


chebyshev_polynomial_t, shifted_chebyshev_polynomial_t = _of_kind("t", _T, "first")
chebyshev_polynomial_u, shifted_chebyshev_polynomial_u = _of_kind("u", _U, "second")
chebyshev_polynomial_v, shifted_chebyshev_polynomial_v = _of_kind("v", _V, "third")
chebyshev_polynomial_w, shifted_chebyshev_polynomial_w = _of_kind("w", _W, "fourth")
hermite_polynomial_h = _function("hermite_polynomial_h", _H, "The physicist's Hermite polynomial")
hermite_polynomial_he = _function(
    "hermite_polynomial_he", _HE, "The probabilist's Hermite polynomial"
)
laguerre_polynomial_l = _function("laguerre_polynomial_l", _L, "Laguerre's polynomial")
legendre_polynomial_p = _function("legendre_polynomial_p", _P, "Legendre's polynomial")
