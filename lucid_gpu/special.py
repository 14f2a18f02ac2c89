"""Special functions, under the names of ``torch.special``.

Those of the gamma and normal distributions are rows of the op table: they fuse, and have
derivatives of every order.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from lucid_gpu import dtypes as dt
from lucid_gpu.fusion.optable import TABLE
from lucid_gpu.ops import incomplete_gamma as _incomplete
from lucid_gpu.ops import reductions
from lucid_gpu.ops import softmax as _softmax
from lucid_gpu.ops import special_functions as _functions
from lucid_gpu.ops.arguments import into, public
from lucid_gpu.ops.bessel import (
    airy_ai,
    bessel_j0,
    bessel_j1,
    bessel_y0,
    bessel_y1,
    modified_bessel_k0,
    modified_bessel_k1,
    scaled_modified_bessel_k0,
    scaled_modified_bessel_k1,
    spherical_bessel_j0,
)
from lucid_gpu.ops.bessel import float_type as _float_type
from lucid_gpu.ops.elementwise import _common_type, where
from lucid_gpu.ops.orthogonal_polynomials import (
    chebyshev_polynomial_t,
    chebyshev_polynomial_u,
    chebyshev_polynomial_v,
    chebyshev_polynomial_w,
    hermite_polynomial_h,
    hermite_polynomial_he,
    laguerre_polynomial_l,
    legendre_polynomial_p,
    shifted_chebyshev_polynomial_t,
    shifted_chebyshev_polynomial_u,
    shifted_chebyshev_polynomial_v,
    shifted_chebyshev_polynomial_w,
)
from lucid_gpu.ops.record import composes as _composes
from lucid_gpu.ops.record import keeps as _keeps
from lucid_gpu.tape.door import op as _op
from lucid_gpu.tape.overrides import overridable as _overridable
from lucid_gpu.tensor import Tensor, apply


def _of_row(row: str, name: str) -> Callable[..., Tensor]:
    op = TABLE[row]

    def function(*operands: Any, out: Tensor | None = None) -> Any:
        if len(operands) != op.arity:
            raise TypeError(f"{name}() takes {op.arity} operands, got {len(operands)}")
        return into(apply(op, *operands), out, name)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = (
        f"``{op.formula}``, element by element; operands broadcast.\n\n"
        "TypeError for another number of them."
    )
    return _overridable(function)


erf, erfc, erfcx, erfinv = [_of_row(n, n) for n in ("erf", "erfc", "erfcx", "erfinv")]
exp2, expm1, log1p = [_of_row(n, n) for n in ("exp2", "expm1", "log1p")]
i0, i0e, i1, i1e = [_of_row(n, n) for n in ("i0", "i0e", "i1", "i1e")]
modified_bessel_i0, modified_bessel_i1 = [_of_row(n, f"modified_bessel_{n}") for n in ("i0", "i1")]
ndtri, xlogy, zeta, digamma = [_of_row(n, n) for n in ("ndtri", "xlogy", "zeta", "digamma")]
gammaln, psi, expit = [
    _of_row(row, name)
    for row, name in (("lgamma", "gammaln"), ("digamma", "psi"), ("sigmoid", "expit"))
]
_HALF_ROOT = math.sqrt(0.5)


@public
def ndtr(input: Tensor) -> Tensor:
    """The standard normal distribution function of each element, accurate in both tails."""
    return (input * -_HALF_ROOT).erfc() * 0.5


@public
@_op(whole=True)
def log_ndtr(input: Tensor) -> Tensor:
    """The logarithm of `ndtr`, element by element, also where that vanishes; so its derivatives."""
    if input.dtype.category < 2:
        input = input.to(dt.get_default_dtype())
    far = input < -1
    low, high = where(far, input, -1.0), where(far, 0.0, input)
    tail = (erfcx(low * -_HALF_ROOT) * 0.5).log() - low * low * 0.5
    whole = where(far, tail, ((high * _HALF_ROOT).erfc() * -0.5).log1p())
    return _keeps(whole, input, output=True, title="SpecialLogNdtrBackward0")


@public
def entr(input: Tensor) -> Tensor:
    """``-x log(x)``, element by element: 0 at 0, minus infinity below."""
    made: Tensor = apply(TABLE["entr"], input)
    return made


@public
@_op(whole=True)
def xlog1py(input: Any, other: Any) -> Tensor:
    """``x * log(1 + y)``, and 0 where x is, element by element; the two broadcast."""
    if isinstance(input, Tensor) and isinstance(other, Tensor):
        x, y = _functions._floats(input, other)
    else:
        like = input if isinstance(input, Tensor) else other
        like = like.to(_float_type("xlog1py", _common_type(input, other)))
        x, y = [like if isinstance(t, Tensor) else like.new_full((), t) for t in (input, other)]
    # What has no logarithm at these ends, or an infinite one, must not reach gradients of zeros.
    end = (y <= -1).logical_or(y == math.inf)
    at_end = x.xlogy(where(end, y + 1, 1.0))
    whole = where(end, at_end, x * where(end, 0.0, y).log1p())
    return _composes(whole, x, y, title="SpecialXlog1PyBackward0")


round = _of_row("round", "round")
logsumexp = public(reductions.logsumexp)
logit, polygamma, sinc = [
    public(f) for f in (_functions.logit, _functions.polygamma, _functions.sinc)
]
multigammaln = public(_functions.mvlgamma)
gammainc, gammaincc = public(_incomplete.igamma), public(_incomplete.igammac)
softmax, log_softmax = public(_softmax.softmax), public(_softmax.log_softmax)
__all__ = [
    "airy_ai",
    "bessel_j0",
    "bessel_j1",
    "bessel_y0",
    "bessel_y1",
    "chebyshev_polynomial_t",
    "chebyshev_polynomial_u",
    "chebyshev_polynomial_v",
    "chebyshev_polynomial_w",
    "digamma",
    "entr",
    "erf",
    "erfc",
    "erfcx",
    "erfinv",
    "exp2",
    "expit",
    "expm1",
    "gammainc",
    "gammaincc",
    "gammaln",
    "hermite_polynomial_h",
    "hermite_polynomial_he",
    "i0",
    "i0e",
    "i1",
    "i1e",
    "laguerre_polynomial_l",
    "legendre_polynomial_p",
    "log1p",
    "log_ndtr",
    "log_softmax",
    "logit",
    "logsumexp",
    "modified_bessel_i0",
    "modified_bessel_i1",
    "modified_bessel_k0",
    "modified_bessel_k1",
    "multigammaln",
    "ndtr",
    "ndtri",
    "polygamma",
    "psi",
    "round",
    "scaled_modified_bessel_k0",
    "scaled_modified_bessel_k1",
    "shifted_chebyshev_polynomial_t",
    "shifted_chebyshev_polynomial_u",
    "shifted_chebyshev_polynomial_v",
    "shifted_chebyshev_polynomial_w",
    "sinc",
    "softmax",
    "spherical_bessel_j0",
    "xlog1py",
    "xlogy",
    "zeta",
]
