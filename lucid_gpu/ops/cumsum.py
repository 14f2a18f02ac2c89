"""Running sums."""

from __future__ import annotations

import functools
from typing import Any

from lucid_gpu import dtypes as dt
from lucid_gpu.dtypes import as_dtype, dtype
from lucid_gpu.kernels import cumsum as kernels
from lucid_gpu.ops.arguments import public
from lucid_gpu.ops.in_place import before_write, written
from lucid_gpu.ops.record import record
from lucid_gpu.ops.reductions import along_dim, normalize_dim
from lucid_gpu.ops.registry import attach
from lucid_gpu.tape.door import op
from lucid_gpu.tape.rules import Call, batching, jvp
from lucid_gpu.tensor import Tensor


@op(autocast={"cuda": "float32"})
def cumsum(input: Tensor, dim: int, *, dtype: dtype | None = None) -> Tensor:
    """Sums of all elements up to each, along a dimension.

    Parameters
    ----------
    input : Tensor, any shape
    dim : int
    dtype : dtype, optional
        Of the result; by default the input's, or int64 for integers and bools.

    Returns
    -------
    Tensor, of input's shape
        The same input gives the same bits. 16-bit floats are added in float32.

    Raises
    ------
    NotImplementedError
        For bool as ``dtype``, unless the input has no dimensions or no elements.
    """
    own = input._expr.program.dtype
    to = own if own.category >= 2 else dt.int64
    to = to if dtype is None else as_dtype(dtype)
    require_sums("cumsum", input, to)
    return _running_sum(input, dim, to, False)


def require_sums(name: str, input: Tensor, to: dtype) -> None:
    """Refuse running sums or products in bool, unless there is nothing to combine."""
    if to is dt.bool and input.ndim and input.numel():
        raise dt.unimplemented(name, to)


def in_its_type(function: Any, before: Any = before_write) -> Any:
    """Make the in-place form of an op that takes a ``dtype``, by default that of what it writes."""

    @functools.wraps(function)
    def compute(input: Tensor, *args: Any, dtype: Any = None, **kwargs: Any) -> Tensor:
        own = input.dtype if dtype is None else dtype
        result: Tensor = function(input, *args, dtype=own, **kwargs)
        return result

    return written(compute, before)


@op
def _running_sum(input: Tensor, dim: int, to: dtype, reverse: bool) -> Tensor:
    """`cumsum`, or with ``reverse`` the sums from each element on: its adjoint."""
    value = input._expr
    dim = normalize_dim(dim, len(value.shape))
    own, where = value.program.dtype, value.program.device
    if own is not to and max(own.category, to.category) > 1:  # integers are widened as read
        input = input.to(to)
    if not value.shape or to is dt.bool:
        return input.to(to, copy=True)
    array = kernels.cumsum(input.array, dim, to, where, reverse)
    result: Tensor = record(
        "CumsumBackward0", array, (input,), _cumsum_vjp, dtype=to, dim=dim, reverse=reverse
    )
    return result


def _cumsum_vjp(node: Any, g: Tensor) -> Any:
    return (_running_sum(g, node.dim, g.dtype, not node.reverse),)


@jvp(_cumsum_vjp)
def _cumsum_jvp(call: Call) -> Any:
    tangent, how = call.tangent(), call.attributes
    return [_running_sum(tangent, how["dim"], tangent.dtype, how["reverse"])]


batching(_running_sum)(along_dim)


METHODS = (public(cumsum),)
attach(Tensor, *METHODS, in_its_type(*METHODS))
