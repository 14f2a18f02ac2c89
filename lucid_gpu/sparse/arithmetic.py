"""Ops on the elements of sparse tensors: what keeps zeros zero, sums, and changes of form."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from lucid_gpu import dtypes as dt
from lucid_gpu.devices import backend, resolve, xp_of
from lucid_gpu.fusion.optable import Op
from lucid_gpu.kernels.index_add import index_add as add_rows
from lucid_gpu.ops.creation import zeros
from lucid_gpu.ops.index_add import index_add
from lucid_gpu.ops.record import record
from lucid_gpu.ops.reductions import expand_lazily, normalize_dim, normalize_dims
from lucid_gpu.ops.registry import attach
from lucid_gpu.ops.shape import cat
from lucid_gpu.sparse.gradients import (
    assemble,
    at_places,
    gradient,
    is_listed,
    recorded,
    values_of,
)
from lucid_gpu.sparse.pattern import Pattern
from lucid_gpu.sparse.tensor import SparseTensor, asked_by, refuse
from lucid_gpu.storage import sparse_coo, sparse_csr
from lucid_gpu.tape.door import op
from lucid_gpu.tensor import Tensor, from_array

_NUMBERS = (bool, int, float, complex)


def _is_scalar(value: Any) -> bool:
    return isinstance(value, _NUMBERS) or (isinstance(value, Tensor) and not value.ndim)


# --- changes of form ------------------------------------------------------------------------------


@op
def coalesce(input: SparseTensor) -> SparseTensor:
    """Elements at one place added up, in order; the tensor itself where that is known."""
    if input.pattern.coalesced:
        return input
    grouping, values = input.pattern.grouping(), input.elements.values
    if grouping.group is None:
        values = values.clone()
    else:
        shape = (grouping.pattern.count, *values.shape[1:])
        start = zeros(shape, dtype=values.dtype, device=values.device)
        values = index_add(start, 0, grouping.group, values)
    return recorded("CoalesceBackward0", grouping.pattern, values, (input,), _same_vjp)


def _same_vjp(node: Any, g: Tensor) -> Any:
    return (g,)


@op
def values(input: SparseTensor) -> Tensor:
    """The values of a coalesced tensor, shape (elements, *dense dimensions)."""
    if input.is_sparse:
        input._check_coalesced("values")
    kept = values_of(input)
    return kept if kept.requires_grad else kept.detach()


@op
def to_sparse(
    input: SparseTensor, sparse_dim: int | None = None, *, layout: Any = None, blocksize: Any = None
) -> SparseTensor:
    """The elements in coordinates, or in compressed rows for the layout `sparse_csr`.

    NotImplementedError for another ``sparse_dim`` or layout, and for rows of other than a matrix.
    """
    csr = layout is sparse_csr
    other = layout not in (None, sparse_coo, sparse_csr) or blocksize is not None
    if other or sparse_dim not in (None, input.sparse_dim()) or (csr and input.sparse_dim() != 2):
        why = "it lists other dimensions, or has another layout"
        refuse("to_sparse", input.device, why, csr=not input.is_sparse)
    if input.layout is (layout or sparse_coo):
        return input
    name, rows_in = ("ToSparseCsrBackward0", dt.int64) if csr else ("ToSparseBackward1", None)
    input = coalesce(input) if csr else input
    elements = input.elements
    return recorded(name, elements.pattern.shown(rows_in), elements.values, (input,), _same_vjp)


@op
def to_dense(input: SparseTensor, dtype: Any = None, *, masked_grad: bool | None = None) -> Tensor:
    """All elements in one array; RuntimeError for a ``dtype``."""
    if dtype is not None:
        raise RuntimeError(
            f"dtype argument is not supported by sparse_to_dense: write x.to_dense().to({dtype})"
        )
    result: Tensor = record(
        "ToDenseBackward0",
        _added(None, input, 1),
        (input,),
        _to_dense_vjp,
        dtype=input.dtype,
        pattern=input.pattern,
        masked=masked_grad is not False,
    )
    return result


def _to_dense_vjp(node: Any, g: Tensor) -> Any:
    if not node.masked:
        return (g.to_sparse(len(node.pattern.sparse_size)),)
    return (gradient(node.pattern, at_places(g, node.pattern)),)


def _added(start: Any, s: SparseTensor, alpha: Any) -> Any:
    """An array of sums of elements and of what was there before."""
    elements, where = s.elements, backend(s.device)
    p, wide = elements.pattern, s.dtype.compute
    array = where.xp.zeros(p.size, wide.numpy) if start is None else start
    flat = array.reshape(1, math.prod(p.sparse_size), math.prod(p.dense_size))
    added = elements.values if alpha == 1 else elements.values * alpha
    values = added.to(dt.from_numpy_dtype(array.dtype)).array
    add_rows(
        flat,
        p.keys.array,
        values.reshape(1, p.keys.numel(), flat.shape[2]),
        s.device,
        start is not None,
    )
    return array.astype(s.dtype.numpy, copy=False) if start is None else array


@op
def transpose(input: SparseTensor, dim0: int, dim1: int) -> SparseTensor:
    """Two of the listed dimensions exchanged.

    RuntimeError for a dense dimension; IndexError for a dimension that there is not.
    """
    a, b = normalize_dim(dim0, input.ndim), normalize_dim(dim1, input.ndim)
    return _transposed(input, a, b, "TransposeBackward0")


def _transposed(input: SparseTensor, a: int, b: int, name: str) -> SparseTensor:
    pattern = input.pattern
    if max(a, b) >= pattern.sparse_dim:
        raise RuntimeError(
            "transpose of a sparse tensor exchanges sparse dimensions only: it has "
            f"{pattern.sparse_dim}, got dimensions {a} and {b}; call .to_dense() first"
        )
    values = input.elements.values
    return recorded(name, pattern.transposed(a, b), values, (input,), _transposed_vjp, dims=(a, b))


def _transposed_vjp(node: Any, g: Tensor) -> Any:
    return (g.transpose(*node.dims),)


@op
def t(input: SparseTensor) -> SparseTensor:
    """A matrix transposed; a vector as it is.

    RuntimeError for more than two dimensions, and dense ones.
    """
    dims, dense = input.sparse_dim(), input.dense_dim()
    if dims > 2 or dense:
        raise RuntimeError(
            "t() expects a tensor with <= 2 sparse and 0 dense dimensions, but got "
            f"{dims} sparse and {dense} dense dimensions"
        )
    if dims < 2:
        return recorded("TBackward0", input.pattern, input.elements.values, (input,), _same_vjp)
    return _transposed(input, 0, 1, "TBackward0")


@op
def matrix_transposed(self: SparseTensor) -> SparseTensor:
    """The last two dimensions exchanged: ``x.mT``."""
    return transpose(self, -2, -1)


@op
def clone(input: SparseTensor) -> SparseTensor:
    """A copy with its own memory, through which gradients flow."""
    elements = input.elements
    return recorded(
        "CloneBackward0", elements.pattern, elements.values.clone(), (input,), _same_vjp
    )


@op
def to(input: SparseTensor, *args: Any, **kwargs: Any) -> SparseTensor:
    """Convert to a dtype, a device, both, or those of another tensor."""
    before = input.elements.values
    after = before.to(*args, **kwargs)
    if after is before:
        return input
    pattern = input.pattern
    if after.device != pattern.device:
        pattern = pattern.to(after.device)
    home = (before.device, before.dtype)
    return recorded("ToCopyBackward0", pattern, after, (input,), _to_vjp, home=home)


def _to_vjp(node: Any, g: Tensor) -> Any:
    return (g.to(*node.home),)


@op
def cpu(self: SparseTensor) -> SparseTensor:
    """The tensor in host memory."""
    return to(self, "cpu")


@op
def cuda(self: SparseTensor, index: Any = None) -> SparseTensor:
    """The tensor on a GPU (the current one, or of a number)."""
    return to(self, "cuda" if index is None else f"cuda:{int(index)}")


def _convert(d: dt.dtype) -> Any:
    def method(self: SparseTensor) -> SparseTensor:
        return to(self, d)

    return method


# --- arithmetic -----------------------------------------------------------------------------------


@op
def neg(input: SparseTensor) -> SparseTensor:
    """The negative of each element."""
    return recorded("NegBackward0", input.pattern, -input.elements.values, (input,), _neg_vjp)


def _neg_vjp(node: Any, g: Tensor) -> Any:
    return (-g,)


@op
def mul(input: Any, other: Any) -> SparseTensor:
    """A sparse tensor times a number."""
    s, factor = (input, other) if isinstance(input, SparseTensor) else (other, input)
    if not _is_scalar(factor):
        why = "a sparse tensor is multiplied by numbers only"
        refuse("mul", s.device, why, csr=not s.is_sparse)
    return _scaled("MulBackward0", s, factor)


def _scaled(name: str, s: SparseTensor, factor: Any) -> SparseTensor:
    values = s.elements.values * (factor.detach() if isinstance(factor, Tensor) else factor)
    if not isinstance(factor, Tensor):
        return recorded(name, s.pattern, values, (s,), _scaled_vjp, factor=factor, dtype=s.dtype)
    return recorded(name, s.pattern, values, (s, factor), _scaled_by_tensor_vjp, saved=(s, factor))


def _scaled_vjp(node: Any, g: Tensor) -> Any:
    factor = node.factor
    return ((g * (factor.conjugate() if isinstance(factor, complex) else factor)).to(node.dtype),)


def _scaled_by_tensor_vjp(node: Any, g: Tensor) -> Any:
    s, factor = node.saved_values
    g_s = g_factor = None
    if node.needs_input_grad[0]:
        g_s = (g * _conj(factor)).to(s.dtype)
    if node.needs_input_grad[1]:
        g_factor = (_conj(values_of(s)) * at_places(g, s.pattern)).sum().to(factor.dtype)
    return g_s, g_factor


def _conj(x: Tensor) -> Tensor:
    return x.conj_physical() if x.dtype.is_complex else x


@op
def div(input: Any, other: Any, *, rounding_mode: str | None = None) -> SparseTensor:
    """A sparse tensor divided by a number.

    RuntimeError for a tensor with dimensions.
    """
    if not isinstance(input, SparseTensor) and _is_scalar(input):
        refuse("reciprocal", other.device, "zeros would become infinite")
    if not isinstance(input, SparseTensor) or not _is_scalar(other):
        shape = list(other.shape) if isinstance(other, Tensor) else type(other).__name__
        raise RuntimeError(
            "Sparse division requires a scalar or zero-dim dense tensor divisor (got shape "
            f"{shape} for divisor); call .to_dense() first"
        )
    if rounding_mode is not None:
        refuse(f"div(rounding_mode={rounding_mode!r})", input.device)
    if isinstance(other, Tensor):
        return _scaled("DivBackward0", input, other.reciprocal())
    values = input.elements.values / other
    return recorded(
        "DivBackward0", input.pattern, values, (input,), _div_vjp, divisor=other, dtype=input.dtype
    )


def _div_vjp(node: Any, g: Tensor) -> Any:
    divisor = node.divisor
    divisor = divisor.conjugate() if isinstance(divisor, complex) else divisor
    return ((g / divisor).to(node.dtype),)


@op
def add(input: Any, other: Any, *, alpha: Any = 1) -> Tensor:
    """``input + alpha * other``, of one shape: two sparse tensors, or dense and sparse (dense).

    RuntimeError for shapes or numbers of sparse dimensions that differ, and for a number.
    """
    if isinstance(input, SparseTensor) and isinstance(other, SparseTensor):
        return _add_sparse(input, other, alpha)
    if isinstance(input, Tensor) and isinstance(other, SparseTensor):
        return _add_to_dense(input, other, alpha)
    tensors = isinstance(input, Tensor) and isinstance(other, Tensor)
    if tensors and other.ndim:  # past PyTorch: gradients of both kinds meet
        scaled = other if alpha == 1 else other * alpha
        return _add_to_dense(scaled, input, 1)
    raise RuntimeError(
        "add(sparse, dense) is not supported. Use add(dense, sparse) instead. A number cannot be "
        "added to elements that are not listed: call .to_dense() first"
    )


@op
def sub(input: Any, other: Any, *, alpha: Any = 1) -> Tensor:
    """``input - alpha * other`` of one shape, as `add`."""
    return add(input, other, alpha=-alpha)


def _add_sparse(a: SparseTensor, b: SparseTensor, alpha: Any) -> SparseTensor:
    if a.shape != b.shape:
        raise RuntimeError(
            "add: expected sizes of 'self' and 'other' to match, but "
            f"{list(a.shape)} != {list(b.shape)}"
        )
    if a.sparse_dim() != b.sparse_dim():
        raise RuntimeError(
            f"add: expected 'self' and 'other' to have same number of sparse dimensions, but "
            f"{a.sparse_dim()} != {b.sparse_dim()}; call .to_dense() first"
        )
    left, right = a.elements.values, b.elements.values
    right = right if alpha == 1 else right * alpha
    d = dt.promote_types(left.dtype, right.dtype)
    pattern = a.pattern
    if _same_positions(pattern, b.pattern):
        total = left + right
    else:
        pattern = Pattern(cat([a._indices(), b._indices()], 1), pattern.size, False)
        total = cat([left.to(d), right.to(d)], 0)
    both = a.is_coalesced() and b.is_coalesced() and not pattern.coalesced
    types = (a.dtype, b.dtype)
    joined = recorded("AddBackward0", pattern, total, (a, b), _add_vjp, types=types, alpha=alpha)
    return coalesce(joined) if both else joined


def _add_vjp(node: Any, g: Tensor) -> Any:
    a, b = node.types
    return g.to(a), (g if node.alpha == 1 else g * node.alpha).to(b)


def _same_positions(a: Pattern, b: Pattern) -> bool:
    if a.is_same(b):
        return True
    return a.count == b.count and bool((a.keys.array == b.keys.array).all())


def _add_to_dense(dense: Tensor, s: SparseTensor, alpha: Any) -> Tensor:
    if dense.shape != s.shape:
        raise RuntimeError(
            f"add: expected 'self' and 'other' to have same size, but self has size "
            f"{list(dense.shape)} while other has size {list(s.shape)} (FYI: dense-sparse addition "
            "does not currently support broadcasting)"
        )
    d = dt.promote_types(dense.dtype, s.dtype)
    start = xp_of(dense).array(dense.array, dtype=d.compute.numpy, order="C")
    result: Tensor = record(
        "AddBackward0",
        _added(start, s, alpha).astype(d.numpy, copy=False),
        (dense, s),
        _add_vjp,
        dtype=d,
        types=(dense.dtype, s.dtype),
        alpha=alpha,
    )
    return result


@op
def add_(self: SparseTensor, other: Any, *, alpha: Any = 1) -> SparseTensor:
    """Add a sparse tensor, in place."""
    return self._write(add(self, other, alpha=alpha), "add_")


@op
def zero_(self: SparseTensor) -> SparseTensor:
    """List no elements any more."""
    return self._write(zeros_like(self, None, None, False), "zero_")


@op
def zeros_like(input: SparseTensor, dtype: Any, device: Any, requires_grad: bool) -> Tensor:
    """A sparse tensor of the same size that lists no elements."""
    p, where = input.pattern, input.device if device is None else resolve(device)
    none = zeros(p.sparse_dim, 0, dtype=dt.int64, device=where)
    kind = input.dtype if dtype is None else dtype
    nothing = zeros(0, *p.dense_size, dtype=kind, device=where)
    made = assemble(Pattern(none, p.size, True), nothing, "")
    return made._mark() if requires_grad else made


def _full_like(
    input: SparseTensor, value: Any, dtype: Any, device: Any, requires_grad: bool
) -> Tensor:
    """`lucid_gpu.full_like` of a sparse tensor, which only zeros make sparse."""
    if value != 0:
        refuse(f"a tensor full of {value} like it", input.device)
    return zeros_like(input, dtype, device, requires_grad)


# --- sums -----------------------------------------------------------------------------------------


@op
def sum(
    input: SparseTensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> Tensor:
    """Sum of all elements (dense), or over dimensions (sparse while a listed one remains).

    IndexError for a dimension that there is not; RuntimeError for one given twice.
    """
    if dtype is not None:
        input = to(input, dtype)
    if dim is None or len(dims := normalize_dims(dim, input.ndim)) == input.ndim:
        total = total_of(input, is_listed(input))
        return total.reshape((1,) * input.ndim) if keepdim else total
    kept = values_of(input)
    p, own = input.pattern, input.sparse_dim()
    inner = tuple(d - own + 1 for d in dims if d >= own)
    if inner:
        kept = kept.sum(inner, keepdim).to(input.dtype)
    outer = [d for d in dims if d < own]
    size = tuple(1 if d in dims else n for d, n in enumerate(p.size) if keepdim or d not in dims)
    if len(outer) == own:
        return kept.sum(0).reshape(size).to(input.dtype)
    return _without(p, outer, keepdim, size, kept)


@op
def total_of(input: SparseTensor, listed: bool) -> Tensor:
    """The sum of all elements; ``listed``: the gradient is sparse."""
    total = input.elements.values.sum()
    result: Tensor = record(
        "SumBackward0",
        total.array,
        (input,),
        _total_vjp,
        dtype=total.dtype,
        pattern=input.pattern,
        listed=listed,
    )
    return result


def _total_vjp(node: Any, g: Tensor) -> Any:
    p = node.pattern
    if not node.listed:
        return (expand_lazily(g, p.size),)
    return (gradient(p, expand_lazily(g, (p.count, *p.dense_size))),)


def _without(
    p: Pattern, dims: Sequence[int], keepdim: bool, size: tuple[int, ...], kept: Tensor
) -> SparseTensor:
    """Values in their places without some dimensions, added up."""
    array, xp = p.indices.array, xp_of(p)
    rows = [
        array[d] if d not in dims else array[d] * 0
        for d in range(p.sparse_dim)
        if keepdim or d not in dims
    ]
    indices = from_array(xp.stack(rows), dt.int64, p.device)
    flag = p.coalesced and not dims
    return coalesce(assemble(Pattern(indices, size, flag), kept, "SumBackward1"))


# --- as methods, and for functions that meet a sparse operand -------------------------------------

METHODS = (coalesce, values, to_sparse, to_dense, transpose, t, clone, to, cpu, cuda, neg, mul,
           div, add, sub, add_, zero_, sum)  # fmt: skip
attach(SparseTensor, *METHODS, T=property(t), mT=property(matrix_transposed))
for _name, _d in (("float", dt.float32), ("double", dt.float64), ("half", dt.float16),
                  ("bfloat16", dt.bfloat16), ("int", dt.int32), ("long", dt.int64),
                  ("short", dt.int16), ("bool", dt.bool), ("cfloat", dt.complex64),
                  ("cdouble", dt.complex128)):  # fmt: skip
    attach(SparseTensor, **{_name: _convert(_d)})


def _reflected(function: Any) -> Any:
    return lambda self, other: function(other, self)


for _name, _function in (("add", add), ("sub", sub), ("mul", mul), ("truediv", div)):
    attach(SparseTensor, **{f"__{_name}__": _function, f"__r{_name}__": _reflected(_function)})
attach(SparseTensor, __neg__=neg, __iadd__=add_, _full_like=_full_like)
_ELEMENTWISE: dict[str, Any] = {"add": add, "sub": sub, "mul": mul, "div": div, "neg": neg}


def elementwise(op: Op, operands: Sequence[Any]) -> Tensor:
    """A row of the op table, element by element, where an operand is sparse."""
    function = _ELEMENTWISE.get(op.name)
    sparse = [o for o in operands if isinstance(o, SparseTensor)]
    csr = not all(o.is_sparse for o in sparse)
    if function is None or (csr and function not in (mul, neg)):
        refuse(asked_by(op.name), sparse[0].device, csr=csr)
    result: Tensor = function(*operands)
    return result


attach(SparseTensor, _elementwise=staticmethod(elementwise))
