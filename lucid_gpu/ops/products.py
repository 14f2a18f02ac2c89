"""Products of vectors and matrices that are added to something; Kronecker's."""

from __future__ import annotations

from typing import Any

import lucid_gpu.dtypes as dt
from lucid_gpu.ops.arguments import public, require_one_dtype
from lucid_gpu.ops.elementwise import factors_in, in_old_order
from lucid_gpu.ops.in_place import written
from lucid_gpu.ops.matmul import _conj, addmm, dot, matmul, outer, plus_nothing, unrounded
from lucid_gpu.ops.memory_formats import lying, row_major_order
from lucid_gpu.ops.record import leads_back, unsaved
from lucid_gpu.ops.shape import owned, reshape
from lucid_gpu.tape.door import op
from lucid_gpu.tensor import Tensor


def added(input: Tensor, product: Tensor, beta: Any, alpha: Any, d: dt.dtype) -> Tensor:
    """``beta * input + alpha * product``, in the product's shape; not read where beta is 0.

    The product of two tensors of type ``d``, which a sum of 16-bit floats is rounded to.
    """
    if product.dtype is not d:
        return added(input.to(product.dtype), product, beta, alpha, product.dtype).to(d)
    wide = tuple(product.shape)
    if product.dtype is dt.bool and input.dtype is dt.bool:  # numbers are truth values there
        beta, alpha = bool(beta), bool(alpha)
    beta, alpha = factors_in(product.dtype, beta, alpha)
    input = input.expand(wide)
    product = product if alpha == 1 else product * alpha
    if beta == 0:
        return plus_nothing(product, input)
    return (input if beta == 1 else input * beta) + product


@op(autocast={"cuda": "lower"})
def addmv(
    input: Tensor, mat: Tensor, vec: Tensor, *old: Any, beta: Any = 1, alpha: Any = 1
) -> Tensor:
    """``beta * input + alpha * (mat @ vec)`` of a matrix and a vector; ``input`` broadcasts to it.

    RuntimeError for other numbers of dimensions, and sizes that do not fit each other.
    """
    if old:
        return in_old_order(addmv, (input, mat, vec, *old), beta, alpha)
    if mat.ndim != 2 or vec.ndim != 1:
        raise RuntimeError(
            f"vector + matrix @ vector expected, got {input.ndim}, {mat.ndim}, {vec.ndim}"
        )
    rows, columns = mat.shape
    if vec.shape[0] != columns or (input.ndim and input.shape[0] not in (1, rows)):
        raise RuntimeError(
            f"size mismatch, got input ({input.numel()}), mat ({rows}x{columns}), vec "
            f"({vec.shape[0]})"
        )
    product = (unrounded if input.dtype is mat.dtype else matmul)(mat, vec)
    return added(input, product, beta, alpha, mat.dtype)


@op(autocast={"cuda": "lower"})
def addr(
    input: Tensor, vec1: Tensor, vec2: Tensor, *old: Any, beta: Any = 1, alpha: Any = 1
) -> Tensor:
    """``beta * input + alpha * outer(vec1, vec2)`` of two vectors; ``input`` broadcasts to it.

    RuntimeError for anything but a vector, and for integers times a real ``beta`` or ``alpha``.
    """
    if old:
        return in_old_order(addr, (input, vec1, vec2, *old), beta, alpha)
    for name, vector in (("vec1", vec1), ("vec2", vec2)):
        if vector.ndim != 1:
            raise RuntimeError(f"addr: Expected 1-D argument {name}, but got {vector.ndim}-D")
    for name, number in (("beta", beta), ("alpha", alpha)):
        if isinstance(number, bool) and input.dtype is not dt.bool:
            raise RuntimeError(f"Boolean {name} only supported for Boolean results.")
        if isinstance(number, float) and input.dtype.category < 2:
            raise RuntimeError(
                f"For integral input tensors, argument {name} must not be a floating point number."
            )
    product = outer(vec1, vec2)
    return added(input, product, beta, alpha, product.dtype)


def _batches(batch1: Tensor, batch2: Tensor) -> None:
    for name, batch in (("batch1", batch1), ("batch2", batch2)):
        if batch.ndim != 3:
            raise RuntimeError(f"{name} must be a 3D tensor, got shape {list(batch.shape)}")
    (b, _, k), shape = batch1.shape, list(batch2.shape)
    if shape[0] != b:
        raise RuntimeError(
            f"batch1 and batch2 must have same number of batches, got {b} and {shape[0]}"
        )
    if shape[1] != k:
        raise RuntimeError(
            f"Expected size for first two dimensions of batch2 tensor to be: [{b}, {k}] but got: "
            f"{shape[:2]}."
        )


@op(autocast="lower")
@lying(rule=row_major_order)
def baddbmm(
    input: Tensor, batch1: Tensor, batch2: Tensor, *old: Any, beta: Any = 1, alpha: Any = 1
) -> Tensor:
    """``beta * input + alpha * (batch1 @ batch2)``, matrix by matrix.

    RuntimeError for shapes that do not fit each other.
    """
    if old:
        return in_old_order(baddbmm, (input, batch1, batch2, *old), beta, alpha)
    _batches(batch1, batch2)
    require_one_dtype("baddbmm: Input dtypes must be the same", input, batch1, batch2)
    return added(input, unrounded(batch1, batch2), beta, alpha, batch1.dtype)


@op(autocast="lower")
@lying(rule=row_major_order)
def addbmm(
    input: Tensor, batch1: Tensor, batch2: Tensor, *old: Any, beta: Any = 1, alpha: Any = 1
) -> Tensor:
    """``beta * input + alpha * sum(batch1 @ batch2)`` of batches, (b, n, k) and (b, k, m).

    One product, with the batch in the sum.

    RuntimeError for shapes that do not fit each other.
    """
    if old:
        return in_old_order(addbmm, (input, batch1, batch2, *old), beta, alpha)
    _batches(batch1, batch2)
    require_one_dtype("addbmm: self and mat2 must have the same dtype", input, batch2)
    b, n, k = batch1.shape
    wide = leads_back(reshape(batch1.transpose(0, 1), (n, b * k)), (1, 0, 2))
    product = unrounded(wide, reshape(batch2, (b * k, batch2.shape[2])))
    return added(input, product, beta, alpha, batch1.dtype)


@op(autocast={"cuda": "promote"})
@owned
def vdot(input: Tensor, other: Tensor) -> Tensor:
    """Inner product of two vectors, the first conjugated."""
    return dot(_conj(input), other)


@op
def ger(input: Tensor, vec2: Tensor) -> Tensor:
    """Alias of `outer`."""
    return outer(input, vec2)


@op
@owned
def kron(input: Tensor, other: Tensor) -> Tensor:
    """Kronecker's product: each element of the first tensor times the whole second one."""
    rank = max(input.ndim, other.ndim)
    a = [1] * (rank - input.ndim) + list(input.shape)
    b = [1] * (rank - other.ndim) + list(other.shape)
    input, other = unsaved(input), unsaved(other)
    first = reshape(input, [n for pair in zip(a, [1] * rank, strict=True) for n in pair])
    second = reshape(other, [n for pair in zip([1] * rank, b, strict=True) for n in pair])
    return reshape(first * second, [n * m for n, m in zip(a, b, strict=True)])


def _in_place(function: Any) -> Any:
    method = written(function)
    method.__name__ = f"{function.__name__}_"
    return method


@op
def addmv_(
    input: Tensor, mat: Tensor, vec: Tensor, *old: Any, beta: Any = 1, alpha: Any = 1
) -> Tensor:
    """`addmv` in place."""
    if old:
        return in_old_order(addmv_, (input, mat, vec, *old), beta, alpha)
    result: Tensor = _in_place(addmv)(input, mat, vec, beta=beta, alpha=alpha)
    return result


_BOTH = tuple([public(f) for f in (addmv, addr, baddbmm, addbmm, vdot, ger, kron)])
METHODS = (*_BOTH, addmv_, *[_in_place(f) for f in (addmm, addr, baddbmm, addbmm)])
FUNCTIONS = (*_BOTH, addmv_)
