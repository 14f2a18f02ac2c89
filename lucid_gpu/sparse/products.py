"""A sparse matrix times a dense one, either way round, or times a sparse one."""

from __future__ import annotations

from typing import Any

from lucid_gpu.devices import backend
from lucid_gpu.devices.sparse import product
from lucid_gpu.fusion.building import one_device
from lucid_gpu.kernels.index_add import index_add
from lucid_gpu.ops.creation import arange
from lucid_gpu.ops.matmul import matmul as dense_matmul
from lucid_gpu.ops.order import searchsorted
from lucid_gpu.ops.record import record
from lucid_gpu.ops.registry import attach
from lucid_gpu.ops.selections import repeat_interleave
from lucid_gpu.ops.shape import stack
from lucid_gpu.sparse.arithmetic import coalesce, t
from lucid_gpu.sparse.gradients import assemble, at_places, gradient, is_listed, values_of
from lucid_gpu.sparse.pattern import Pattern
from lucid_gpu.sparse.tensor import SparseTensor, refuse
from lucid_gpu.tape.door import op
from lucid_gpu.tensor import Tensor


@op
def matmul(input: Tensor, other: Tensor) -> Tensor:
    """Product of a sparse and a dense matrix or vector, in either order (dense), or two sparse.

    A sparse leaf gets a dense gradient, as in PyTorch; `lucid_gpu.sparse.mm` gives it a sparse one.

    TypeError for anything but a tensor.
    """
    return _matmul(input, other, "matmul", "MmBackward0")


@op
def mm(input: Tensor, mat2: Tensor) -> Tensor:
    """Product of a sparse matrix and a dense or another sparse one; its gradient is sparse.

    Parameters
    ----------
    input, mat2 : Tensor
        Of shapes (n, k) and (k, m), one of them sparse, or both.

    Returns
    -------
    Tensor
        Dense, or sparse if both are. The gradient of a sparse operand lists the operand's own
        places only, and no other place of it is ever computed.

    Raises
    ------
    RuntimeError
        If one is sparse and not both are matrices.
    TypeError
        For anything but a tensor.
    """
    if not isinstance(input, SparseTensor) and not isinstance(mat2, SparseTensor):
        return dense_matmul(input, mat2)
    if not input.ndim == mat2.ndim == 2:
        raise RuntimeError(
            f"sparse.mm(): expected 2-D tensors, got shapes {list(input.shape)} and "
            f"{list(mat2.shape)}"
        )
    return _matmul(input, mat2, "sparse.mm", "SparseAddmmBackward0")


def _matmul(a: Any, b: Any, name: str, node: str) -> Tensor:
    for operand in (a, b):
        if not isinstance(operand, Tensor):
            raise TypeError(f"{name}(): expected Tensor operands, not {type(operand).__name__}")
    if isinstance(a, SparseTensor) and isinstance(b, SparseTensor):
        return _of_two(a, b)
    if isinstance(b, SparseTensor):
        if a.ndim == 1:
            return _product(t(b), a.unsqueeze(1), node).squeeze(1)
        return _product(t(b), a.mT, node).mT
    if b.ndim == 1:
        return _product(a, b.unsqueeze(1), node).squeeze(1)
    return _product(a, b, node)


def _of_two(a: SparseTensor, b: SparseTensor) -> SparseTensor:
    """(n, k) sparse times (k, m) sparse, which is sparse: each element meets a row of the other."""
    for m in (a, b):
        if not m.is_sparse:
            refuse("matmul", m.device, "the other matrix is sparse", csr=True)
    _check(a, b)
    a, b = coalesce(a), coalesce(b)
    (rows, inner), (keys, columns) = a.pattern.rows, b.pattern.rows
    start = searchsorted(keys, inner)
    counts = searchsorted(keys, inner, right=True) - start
    ours = repeat_interleave(arange(len(inner), device=a.device), counts)
    first = repeat_interleave(start - counts.cumsum(0) + counts, counts)
    theirs = first + arange(len(ours), device=a.device)
    values = values_of(a).index_select(0, ours) * values_of(b).index_select(0, theirs)
    places = stack([rows.index_select(0, ours), columns.index_select(0, theirs)])
    pattern = Pattern(places, (a.shape[0], b.shape[1]), False)
    return coalesce(assemble(pattern, values, "SparseSparseMatmulBackward0"))


def _check(s: SparseTensor, d: Tensor) -> None:
    if any(m.ndim != 2 or (isinstance(m, SparseTensor) and m.dense_dim()) for m in (s, d)):
        raise RuntimeError(
            "matrices expected: a product takes a sparse tensor of 2 sparse and 0 dense dimensions "
            f"and a dense matrix or vector, got {s.sparse_dim()} sparse and {s.dense_dim()} dense "
            f"dimensions and a dense shape {list(d.shape)}; call .to_dense() first"
        )
    one_device("matmul", (s._expr, d._expr))
    if s.dtype is not d.dtype:
        raise RuntimeError(
            f"expected scalar type {s.dtype.name} but found {d.dtype.name}; convert one with "
            ".to(...)"
        )
    if s.shape[1] != d.shape[0]:
        raise RuntimeError(
            f"mat1 and mat2 shapes cannot be multiplied ({s.shape[0]}x{s.shape[1]} and "
            f"{d.shape[0]}x{d.shape[1]}); Expected dim 0 size {s.shape[1]}, got {d.shape[0]}"
        )


def _product(s: SparseTensor, d: Tensor, name: str) -> Tensor:
    """(n, k) sparse times (k, m) dense."""
    _check(s, d)
    p = s.pattern
    rows, columns = p.rows
    values, right = s.elements.values.array, d.array
    array = product(rows.array, columns.array, values, p.size, right, d.dtype, d.device)
    if array is None:
        array = backend(d.device).xp.zeros((p.size[0], d.shape[1]), d.dtype.numpy)
        parts = values[:, None] * right[columns.array]
        index_add(array[None], rows.array, parts[None], d.device, False)
    moves = d.requires_grad or d._wrapper is not None  # has a gradient or a tangent
    listed = name == "SparseAddmmBackward0" or is_listed(s)
    result: Tensor = record(
        name,
        array,
        (s, d),
        _product_vjp,
        (s if moves else None, d if s.requires_grad else None),
        d.dtype,
        pattern=p,
        listed=listed,
    )
    return result


def _product_vjp(node: Any, g: Tensor) -> Any:
    s, d = node.saved_values
    g_s: Tensor | None = None
    g_d = None
    if node.needs_input_grad[0]:
        d = _conj(d)
        if node.listed:
            g_s = gradient(node.pattern, _sampled(node.pattern, g, d))
        else:
            g_s = dense_matmul(g, d.mT)
    if node.needs_input_grad[1]:
        adjoint = t(s)
        if s.dtype.is_complex:
            adjoint = assemble(adjoint.pattern, values_of(adjoint).conj_physical(), "ConjBackward0")
        g_d = _product(adjoint, g, "SparseAddmmBackward0")
    return g_s, g_d


def _conj(x: Tensor) -> Tensor:
    return x.conj_physical() if x.dtype.is_complex else x


def _sampled(pattern: Any, g: Tensor, d: Tensor) -> Tensor:
    """``g @ d.mT`` at the listed places, and nowhere else."""
    rows, columns = pattern.rows
    n, m = pattern.size
    if n * m <= pattern.count:  # all of it is less
        return at_places(dense_matmul(g, d.mT), pattern)
    return (g.index_select(0, rows) * d.index_select(0, columns)).sum(1)


def _rmatmul(self: SparseTensor, other: Any) -> Tensor:
    return matmul(other, self)


attach(
    SparseTensor,
    matmul=matmul, mm=matmul, mv=matmul, __matmul__=matmul, __rmatmul__=_rmatmul,
)  # fmt: skip
