"""Of the inside of `torch.nn.functional`, what layers written after PyTorch's call."""

from __future__ import annotations

import functools
import inspect
import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from lucid_gpu import Tensor, dtype, zeros_like
from lucid_gpu.nn import functional
from lucid_gpu.nn.functional import linear

from .nn import _reduction as _Reduction  # noqa: F401  losses of packages ask it

__all__: list[str] = []


def _with_indices(pool: Callable[..., Any]) -> Callable[..., Any]:
    """A pool of largest elements that says where they are, whatever ``return_indices`` is."""
    signature = inspect.signature(pool)

    @functools.wraps(pool)
    def pooled(*args: Any, **kwargs: Any) -> Any:
        call = signature.bind(*args, **kwargs)
        call.arguments["return_indices"] = True
        return pool(*call.args, **call.kwargs)

    pooled.__name__ = pooled.__qualname__ = f"{pool.__name__}_with_indices"
    pooled.__module__ = __name__
    return pooled


for _pool in (
    *(functional.max_pool1d, functional.max_pool2d, functional.max_pool3d),
    *(functional.adaptive_max_pool1d, functional.adaptive_max_pool2d),
    *(functional.adaptive_max_pool3d, functional.fractional_max_pool2d),
    functional.fractional_max_pool3d,
):
    globals()[f"{_pool.__name__}_with_indices"] = _with_indices(_pool)


def _in_projection_packed(
    q: Tensor, k: Tensor, v: Tensor, w: Tensor, b: Tensor | None = None
) -> list[Tensor]:
    """Queries, keys and values of ``w``, which holds the weights of the three, one below the other.

    Parameters
    ----------
    q, k, v : Tensor, shapes (..., e)
    w : Tensor, shape (3 e, e)
    b : Tensor, shape (3 e), optional
    """
    if k is v and q is k:  # each contiguous: callers take `view` of them
        return list(linear(q, w, b).unflatten(-1, (3, -1)).movedim(-2, 0).contiguous().unbind())
    biases: Sequence[Any] = (None,) * 3 if b is None else b.chunk(3)
    return _in_projection(q, k, v, *w.chunk(3), *biases)


def _in_projection(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    w_q: Tensor,
    w_k: Tensor,
    w_v: Tensor,
    b_q: Tensor | None = None,
    b_k: Tensor | None = None,
    b_v: Tensor | None = None,
) -> Any:
    """Queries, keys and values, each by a weight and a bias of its own."""
    return [linear(x, w, b) for x, w, b in ((q, w_q, b_q), (k, w_k, b_k), (v, w_v, b_v))]


def _none_or_dtype(input: Tensor | None) -> dtype | None:
    """The type of a tensor; None for None."""
    return None if input is None else input.dtype


def _canonical_mask(
    mask: Tensor | None,
    mask_name: str,
    other_type: dtype | None,
    other_name: str,
    target_type: dtype,
    check_other: bool = True,
) -> Tensor | None:
    """A mask that is added: of bools, minus infinity where it is True.

    RuntimeError for a mask of integers; a warning if another mask has another type.
    """
    if mask is None:
        return None
    is_bool = str(mask.dtype).endswith(".bool")
    if not is_bool and not mask.is_floating_point():
        raise RuntimeError(f"only bool and floating types of {mask_name} are supported")
    if check_other and other_type is not None and mask.dtype != other_type:
        warnings.warn(
            f"Support for mismatched {mask_name} and {other_name} is deprecated. Use same type for "
            "both instead.",
            stacklevel=3,
        )
    if is_bool:
        return zeros_like(mask, dtype=target_type).masked_fill_(mask, -math.inf)
    return mask


def _verify_batch_size(size: Sequence[int]) -> None:
    """ValueError for a shape with one value per channel."""
    if math.prod([n for d, n in enumerate(size) if d != 1]) == 1:
        raise ValueError(
            f"Expected more than 1 value per channel when training, got input size {size}"
        )


def _get_softmax_dim(name: str, ndim: int, stacklevel: int) -> int:
    """The dimension that a softmax without one takes, with a warning."""
    warnings.warn(
        f"Implicit dimension choice for {name} has been deprecated. Change the call to include "
        "dim=X as an argument.",
        stacklevel=stacklevel,
    )
    return 0 if ndim in (0, 1, 3) else 1
