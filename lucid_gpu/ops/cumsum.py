"""Running sums."""

from __future__ import annotations

from typing import Any

from lucid_gpu import dtypes as dt
from lucid_gpu.dtypes import as_dtype, dtype
from lucid_gpu.kernels import cumsum as kernels
from lucid_gpu.ops.arguments import public
from lucid_gpu.ops.in_place import written
from lucid_gpu.ops.record import record
from lucid_gpu.ops.reductions import normalize_dim
from lucid_gpu.ops.registry import attach
from lucid_gpu.tape.door import op
from lucid_gpu.tape.rules import Batch, Call, batching, jvp
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
        For bool as ``dtype``.
    """
    to = input.dtype if input.dtype.category >= 2 else dt.int64
    to = to if dtype is None else as_dtype(dtype)
    if to is dt.bool:
        raise dt.unimplemented("cumsum", to)
    return running_sum(input, dim, to, False)


@op
def running_sum(input: Tensor, dim: int, to: dtype, reverse: bool) -> Tensor:
    """`cumsum`, or with ``reverse`` the sums from each element on: its adjoint."""
    dim = normalize_dim(dim, input.ndim)
    if max(input.dtype.category, to.category) > 1:  # integers are widened as they are read
        input = input.to(to)
    if not input.ndim:
        return input.to(to, copy=True)
    array = kernels.cumsum(input.array, dim, to, input.device, reverse)
    result: Tensor = record(
        "CumsumBackward0", array, (input,), _cumsum_vjp, dtype=to, dim=dim, reverse=reverse
    )
    return result


def _cumsum_vjp(node: Any, g: Tensor) -> Any:
    return (running_sum(g, node.dim, g.dtype, not node.reverse),)


@jvp(_cumsum_vjp)
def _cumsum_jvp(call: Call) -> Any:
    tangent, how = call.tangent(), call.attributes
    return [running_sum(tangent, how["dim"], tangent.dtype, how["reverse"])]


@batching(running_sum)
def _running_sum_batched(level: Batch, f: Any, x: Tensor, dim: int, *rest: Any) -> Any:
    if not x.ndim:
        return NotImplemented
    return level.wrap(f(level.value(x), normalize_dim(dim, x.ndim) + 1, *rest))


METHODS = (public(cumsum),)
attach(Tensor, *METHODS, written(*METHODS))
