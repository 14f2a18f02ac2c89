"""`torch.masked`: reductions and normalizations of the elements that a mask says are there.

What is masked out is replaced by the number that changes no result: 0 for a sum, 1 for a product.
There is no `MaskedTensor`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import lucid_gpu
from lucid_gpu import Tensor, dtypes, linalg
from lucid_gpu.ops.reductions import normalize_dim, normalize_dims

__all__ = [
    "amax",
    "amin",
    "argmax",
    "argmin",
    "cumprod",
    "cumsum",
    "log_softmax",
    "logaddexp",
    "logsumexp",
    "mean",
    "median",
    "norm",
    "normalize",
    "prod",
    "softmax",
    "softmin",
    "std",
    "sum",
    "var",
]

Dims = int | Sequence[int] | None


def _shown(input: Tensor, mask: Tensor) -> Tensor:
    """The mask as bools of the input's shape; IndexError where it has more dimensions."""
    if mask.ndim > input.ndim:
        raise IndexError(
            "_input_mask expected broadcastable mask (got mask dimensionality higher than of the "
            f"input): {list(mask.shape)} for {list(input.shape)}"
        )
    shown: Tensor = mask.to(lucid_gpu.bool).expand(input.shape)
    return shown


def _filled(input: Tensor, mask: Tensor | None, value: Any) -> Tensor:
    """The input with another number where the mask is False."""
    if mask is None:
        return input
    filled: Tensor = input.where(_shown(input, mask), input.new_full((), value))
    return filled


def _end(name: str, input: Tensor, sign: int) -> float:
    """The smallest number of a type for ``sign`` -1, the largest for 1."""
    if input.dtype.category == 2:
        return sign * math.inf
    if input.dtype.category != 1:
        raise NotImplementedError(f"identity of {name} on {input.dtype} input")
    range_ = dtypes.iinfo(input.dtype)
    return range_.max if sign > 0 else range_.min


def _extreme(name: str, sign: int) -> Callable[..., Tensor]:
    reduce = getattr(lucid_gpu, name)

    def function(
        input: Tensor,
        dim: Any = None,
        *,
        keepdim: bool = False,
        dtype: Any = None,
        mask: Tensor | None = None,
    ) -> Tensor:
        if mask is not None:
            input = _filled(input, mask, _end(name, input, sign))
        dims = dim if name.startswith("arg") else normalize_dims(dim, input.ndim)
        result: Tensor = reduce(input, dims, bool(keepdim)).to(dtype or input.dtype)
        return result

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"`lucid_gpu.{name}` of the elements where ``mask`` is True."
    return function


amax, amin = _extreme("amax", -1), _extreme("amin", 1)
argmax, argmin = _extreme("argmax", -1), _extreme("argmin", 1)


def sum(
    input: Tensor,
    dim: Dims = None,
    *,
    keepdim: bool = False,
    dtype: Any = None,
    mask: Tensor | None = None,
) -> Tensor:
    """`lucid_gpu.sum` of the elements where ``mask`` is True; 0 where there are none."""
    dims = normalize_dims(dim, input.ndim)
    result: Tensor = lucid_gpu.sum(_filled(input, mask, 0), dims, bool(keepdim), dtype=dtype)
    return result


def prod(
    input: Tensor,
    dim: Dims = None,
    *,
    keepdim: bool = False,
    dtype: Any = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The product of the elements where ``mask`` is True; 1 where there are none."""
    result = _filled(input, mask, 1)
    if dtype is not None or input.dtype.category < 2:
        result = result.to(lucid_gpu.int64 if dtype is None else dtype)
    dims = () if isinstance(dim, list) and not dim else normalize_dims(dim, input.ndim)
    for d in reversed(dims):
        result = result.prod(d, keepdim=bool(keepdim))
    return result


def logsumexp(
    input: Tensor,
    dim: Dims = None,
    *,
    keepdim: bool = False,
    dtype: Any = None,
    mask: Tensor | None = None,
) -> Tensor:
    """`lucid_gpu.logsumexp` of the elements where ``mask`` is True."""
    if mask is not None:
        complex_ = input.dtype.category > 2
        input = _filled(input, mask, -math.inf if complex_ else _end("logsumexp", input, -1))
    dims = normalize_dims(dim, input.ndim)
    result: Tensor = lucid_gpu.logsumexp(input, dims, keepdim=keepdim).to(dtype or input.dtype)
    return result


def norm(
    input: Tensor,
    ord: float | None = 2.0,
    dim: Dims = None,
    *,
    keepdim: bool = False,
    dtype: Any = None,
    mask: Tensor | None = None,
) -> Tensor:
    """`linalg.vector_norm` of the elements where ``mask`` is True."""
    filled = _filled(input, mask, math.inf if ord == -math.inf else 0)
    dims = normalize_dims(dim, input.ndim)
    order = 2.0 if ord is None else ord
    result: Tensor = linalg.vector_norm(
        filled, order, dims, bool(keepdim), dtype=dtype or input.dtype
    )
    return result


def mean(
    input: Tensor,
    dim: Dims = None,
    *,
    keepdim: bool = False,
    dtype: Any = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The mean of the elements where ``mask`` is True; NaN where there are none.

    ValueError for a type without fractions.
    """
    kind = dtypes.as_dtype(dtype or input.dtype)
    if kind.category < 2:
        source = "Input" if dtype is None else "Optional"
        raise ValueError(
            f"mean(): Could not infer output dtype. {source} dtype must be either a floating point "
            f"or complex dtype. Got: {kind}"
        )
    total = sum(input, dim, keepdim=keepdim, dtype=kind, mask=mask)
    return total / _count(input, dim, keepdim, mask)


def _count(input: Tensor, dim: Dims, keepdim: bool, mask: Tensor | None) -> Tensor:
    ones = input.new_ones((), dtype=lucid_gpu.bool) if mask is None else mask
    return sum(_shown(input, ones), dim, keepdim=keepdim)


def median(
    input: Tensor,
    dim: int = -1,
    *,
    keepdim: bool = False,
    dtype: Any = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The median of the elements where ``mask`` is True; NaN where there are none.

    ValueError where there are none and the type has no NaN.
    """
    whole = input.dtype.category != 2
    filled = _filled(input.float() if whole else input, mask, math.nan)
    result: Tensor = filled.nanmedian(normalize_dim(dim, input.ndim), keepdim).values
    if not whole:
        return result
    if result.isnan().any():
        raise ValueError(
            "masked median expects no fully masked out rows if dtype is not floating point"
        )
    return result.to(dtype or input.dtype)


def var(
    input: Tensor,
    dim: Dims = None,
    unbiased: bool | None = None,
    *,
    correction: float | None = None,
    keepdim: bool = False,
    dtype: Any = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The variance of the elements where ``mask`` is True.

    RuntimeError for ``unbiased`` beside ``correction``.
    """
    if unbiased is not None and correction is not None:
        raise RuntimeError("Only one of unbiased and correction may be given")
    less = float(unbiased is not False) if correction is None else correction
    kind = dtypes.as_dtype(dtype or input.dtype)
    kind = kind if kind.category > 1 else lucid_gpu.float32
    center = mean(input, dim, keepdim=True, dtype=kind, mask=mask)
    away = input - center
    total = sum(away * away.conj(), dim, keepdim=keepdim, dtype=kind, mask=mask)
    count = _count(input, dim, keepdim, mask)
    divisor = (count - less).clamp_min(0) if less else count
    return (total / divisor).to(kind)


def std(
    input: Tensor,
    dim: Dims = None,
    unbiased: bool | None = None,
    *,
    correction: float | None = None,
    keepdim: bool = False,
    dtype: Any = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The square root of `var`."""
    result: Tensor = var(
        input, dim, unbiased, correction=correction, keepdim=keepdim, dtype=dtype, mask=mask
    ).sqrt()
    return result


def _along(name: str, value: Callable[[Tensor], float], doc: str) -> Callable[..., Tensor]:
    apply = getattr(lucid_gpu, name, None) or getattr(lucid_gpu.nn.functional, name)

    def function(
        input: Tensor, dim: int, *, dtype: Any = None, mask: Tensor | None = None
    ) -> Tensor:
        filled = input if mask is None else _filled(input, mask, value(input))
        result: Tensor = apply(filled, normalize_dim(dim, input.ndim), dtype=dtype or input.dtype)
        return result

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{doc} where ``mask`` is True, along a dimension."
    return function


softmax = _along("softmax", lambda x: _end("amax", x, -1), "The softmax of the elements")
log_softmax = _along("log_softmax", lambda x: _end("amax", x, -1), "The logarithm of `softmax`")
softmin = _along("softmin", lambda x: _end("amin", x, 1), "The softmax of minus the elements")
cumsum = _along("cumsum", lambda x: 0, "The sums of the elements so far")
cumprod = _along("cumprod", lambda x: 1, "The products of the elements so far")


def normalize(
    input: Tensor,
    ord: float,
    dim: int,
    *,
    eps: float = 1e-12,
    dtype: Any = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The elements where ``mask`` is True, divided by their `norm` or ``eps``; 0 elsewhere."""
    length = norm(input, ord, dim, keepdim=True, dtype=dtype, mask=mask)
    return _filled(input, mask, 0) / length.clamp_min(eps)


def logaddexp(
    input: Tensor,
    other: Tensor,
    *,
    dtype: Any = None,
    input_mask: Tensor | None = None,
    other_mask: Tensor | None = None,
) -> Tensor:
    """`lucid_gpu.logaddexp`; a masked element counts as minus infinity."""
    pair = [
        x if mask is None else _filled(x, mask, _end("logaddexp", x, -1))
        for x, mask in ((input, input_mask), (other, other_mask))
    ]
    result: Tensor = lucid_gpu.logaddexp(*pair).to(dtype or input.dtype)
    return result
