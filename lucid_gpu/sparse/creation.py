"""Making sparse tensors."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from lucid_gpu import dtypes as dt
from lucid_gpu.devices import resolve, xp_of
from lucid_gpu.dtypes import as_dtype, get_default_dtype
from lucid_gpu.ops.arguments import require_one_device
from lucid_gpu.ops.creation import arange, as_tensor, zeros
from lucid_gpu.ops.registry import attach
from lucid_gpu.ops.selections import repeat_interleave
from lucid_gpu.ops.shape import stack
from lucid_gpu.ops.tensor_types import NAMES
from lucid_gpu.sparse.gradients import assemble, at_places, recorded
from lucid_gpu.sparse.pattern import Pattern
from lucid_gpu.sparse.tensor import SparseTensor, refuse
from lucid_gpu.storage import sparse_coo, sparse_csr
from lucid_gpu.tape.door import op
from lucid_gpu.tensor import Tensor, from_array

_SIGNATURES = (
    "sparse_coo_tensor(indices, values), (indices, values, size) or (size); indices and values are "
    "tensors, arrays or sequences, size is a tuple of ints"
)


@op
def sparse_coo_tensor(
    indices: Any = None,
    values: Any = None,
    size: Any = None,
    *,
    dtype: Any = None,
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
    check_invariants: bool | None = None,
    is_coalesced: bool | None = None,
) -> Tensor:
    """A sparse tensor of coordinates and values.

    Parameters
    ----------
    indices : array_like of int, shape (sparse dimensions, elements)
        Coordinates of each element; repeated ones add up. Always checked against ``size``.
    values : array_like, shape (elements, *dense dimensions)
        Numbers, or tensors of the dense dimensions; a tensor shares its memory and history.
    size : sequence of int, optional
        By default the smallest that holds the indices. Alone it gives a tensor of no elements.
    dtype, device : optional
        By default those of the values.
    requires_grad : bool
        Make it a leaf; ignored where the values have history, which continues.
    is_coalesced : bool, optional
        Say that every place is listed once, in order.

    Raises
    ------
    RuntimeError
        If indices, values and size do not fit together.
    TypeError
        For other arguments.
    IndexError
        For ``indices`` without dimensions.
    """
    if values is None:
        if size is None:
            indices, size = None, indices
        if indices is not None or size is None or isinstance(size, Tensor):
            raise TypeError(
                "sparse_coo_tensor() received an invalid combination of arguments; it takes "
                f"{_SIGNATURES}"
            )
        extents = _extents(size, "sparse_coo_tensor", _SIGNATURES)
        where = resolve(device)
        indices = zeros(len(extents), 0, dtype=dt.int64, device=where)
        kind = get_default_dtype() if dtype is None else as_dtype(dtype)
        values = zeros(0, dtype=kind, device=where)
    kept = _values(values, dtype, device)
    places = _indices(indices, kept)
    _check_count(places, kept)
    if size is None:
        extents = _smallest(places, kept)
    else:
        extents = _extents(size, "sparse_coo_tensor", _SIGNATURES)
    _check_size(places, kept, extents)
    _check_bounds(places, extents)
    pattern = Pattern(places, extents, places.shape[1] < 2)
    if is_coalesced:
        if pattern.grouping().group is not None:
            raise RuntimeError(
                "cannot set is_coalesced to true if indices correspond to uncoalesced COO tensor"
            )
        pattern.coalesced = True
    return _made(pattern, kept, "SparseCooTensorWithDimsAndTensorsBackward0", requires_grad)


def _made(pattern: Pattern, kept: Tensor, name: str, requires_grad: bool) -> Tensor:
    if requires_grad and kept.dtype.category < 2:
        raise RuntimeError(
            "Only Tensors of floating point and complex dtype can require gradients, got "
            f"{kept.dtype}"
        )
    result = assemble(pattern, kept, name)
    return result._mark() if requires_grad and not result.requires_grad else result


@op
def sparse_csr_tensor(
    crow_indices: Any,
    col_indices: Any,
    values: Any,
    size: Any = None,
    *,
    dtype: Any = None,
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
    check_invariants: bool | None = None,
) -> Tensor:
    """A sparse matrix of compressed rows.

    Parameters
    ----------
    crow_indices : array_like of int, shape (rows + 1,)
        For each row the number of elements before it, and last the number of all.
    col_indices : array_like of int, shape (elements,)
        The column of each element. All indices are always checked.
    values : array_like, shape (elements, *dense dimensions)
        A tensor shares its memory and history.
    size : sequence of int, optional
        By default the smallest that holds the indices.
    dtype, device : optional
        By default those of the values.
    requires_grad : bool
        Make it a leaf; ignored where the values have history, which continues.
    check_invariants : bool, optional
        Refuse rows whose columns are not in order too.

    Raises
    ------
    RuntimeError
        If indices, values and size do not fit together.
    TypeError
        For a size of other than integers.
    NotImplementedError
        For a batch of matrices.
    """
    kept = as_tensor(values, dtype=dtype, device=device)
    crow, columns = (_whole(i).to(kept.device) for i in (crow_indices, col_indices))
    _check_dimensions(crow, columns, kept)
    nnz = kept.shape[0]
    if size is None:
        width = int(columns.array.max()) + 1 if columns.numel() else 0
        size = (max(len(crow) - 1, 0), width, *kept.shape[1:])
    extents = _extents(size, "sparse_csr_tensor", "crow_indices, col_indices, values, size")
    if len(extents) != kept.ndim + 1:
        raise RuntimeError(
            "tensor dimensionality must be sum of batch, base, and dense dimensionalities "
            f"(=0 + 2 + {kept.ndim - 1}) but got {len(extents)}"
        )
    if len(crow) != extents[0] + 1:
        raise RuntimeError(
            "crow_indices.shape[-1] must be equal to the number of rows + 1 "
            f"(={extents[0] + 1}), but got {len(crow)}"
        )
    if len(columns) != nnz:
        raise RuntimeError(
            f"col_indices.shape[-1] must be equal to nnz (={nnz}) as defined by values.shape[0], "
            f"but got {len(columns)}"
        )
    ends, column, width = crow.array.astype("int64"), columns.array, extents[1]
    counts = ends[1:] - ends[:-1]
    _hold(ends[0] == 0, "crow_indices[..., 0] == 0")
    _hold(ends[-1] == nnz, "crow_indices[..., -1] == nnz")
    _hold(((column >= 0) & (column < width)).all(), "0 <= col_indices < ncols")
    _hold(
        ((counts >= 0) & (counts <= width)).all(),
        "0 <= crow_indices[..., 1:] - crow_indices[..., :-1] <= ncols",
    )
    rows = repeat_interleave(
        arange(extents[0], device=kept.device), from_array(counts, None, kept.device)
    )
    places = stack([rows, columns.to(dt.int64)])
    _check_size(places, kept, extents)
    pattern = Pattern(places, extents, False, crow.dtype)
    grouping = pattern.grouping()
    pattern.coalesced = grouping.group is None
    if check_invariants is None:
        check_invariants = check_sparse_tensor_invariants.is_enabled()
    _hold(
        pattern.coalesced or (not check_invariants and grouping.pattern.count == nnz),
        "col_indices[..., crow_indices[..., i - 1]:crow_indices[..., i]] for all i = 1, ..., nrows "
        "are sorted and distinct along the last dimension values",
    )
    return _made(pattern, kept, "SparseCompressedTensorBackward0", requires_grad)


def _whole(indices: Any) -> Tensor:
    source = as_tensor(indices).detach()
    return source if isinstance(indices, Tensor) or source.numel() else source.to(dt.int64)


def _check_dimensions(crow: Tensor, columns: Tensor, values: Tensor) -> None:
    if not crow.ndim:
        raise RuntimeError("crow_indices must have dimensionality >= 1 but got 0")
    if crow.ndim != columns.ndim:
        raise RuntimeError(
            "crow_indices and col_indices dimensionalities must be equal but got "
            f"{crow.ndim} and {columns.ndim}, respectively"
        )
    if values.ndim < crow.ndim:
        raise RuntimeError(
            "values must have dimensionality > sum of batch and block dimensionalities "
            f"(={crow.ndim - 1} + 0) but got {values.ndim}"
        )
    if crow.ndim > 1:
        refuse("sparse_csr_tensor", values.device, "a batch of matrices has no form here", csr=True)
    kinds = [t.dtype.type_name for t in (crow, columns)]
    if crow.dtype is not columns.dtype:
        raise RuntimeError(
            "crow_indices and col_indices must have the same dtype, bot got "
            f"{kinds[0]} and {kinds[1]}, respectively"
        )
    if crow.dtype not in (dt.int32, dt.int64):
        raise RuntimeError(
            f"crow_indices and col_indices dtype must be Int or Long, but got {kinds[0]}"
        )


def _hold(truth: Any, invariant: str) -> None:
    if not truth:
        raise RuntimeError(f"`{invariant}` is not satisfied.")


def _extents(size: Any, name: str, takes: str) -> tuple[int, ...]:
    try:
        extents = tuple([int(n.__index__()) for n in size])
    except (TypeError, AttributeError):
        raise TypeError(
            f"{name}() received an invalid combination of arguments: argument 'size' must be tuple "
            f"of ints, not {type(size).__name__}; it takes {takes}"
        ) from None
    if min(extents, default=0) < 0:
        raise RuntimeError(
            f"Trying to create tensor with negative dimension {min(extents)}: {list(extents)}"
        )
    return extents


def _values(values: Any, dtype: Any, device: Any) -> Tensor:
    kept = as_tensor(values, dtype=dtype, device=device)
    return kept if kept.ndim else kept.reshape(1)


def _indices(indices: Any, values: Tensor) -> Tensor:
    source = indices if isinstance(indices, Tensor) else as_tensor(indices)
    coordinates = source.detach().to(values.device, dt.int64)
    if coordinates.ndim == 0:
        raise IndexError(
            "Dimension specified as 0 but tensor has no dimensions: indices must have shape "
            "(sparse dimensions, elements)"
        )
    if coordinates.ndim == 1:
        raise RuntimeError(
            "indices must be sparse_dim x nnz, but got: a vector of shape "
            f"{list(coordinates.shape)}; write [indices] for a tensor of one dimension"
        )
    return coordinates if coordinates.is_contiguous() else coordinates.contiguous()


def _check_count(indices: Tensor, values: Tensor) -> None:
    if indices.ndim != 2:
        raise RuntimeError(
            f"indices must be sparse_dim x nnz, but got: shape {list(indices.shape)}"
        )
    if indices.shape[1] != values.shape[0]:
        raise RuntimeError(
            "indices and values must have same nnz, but got nnz from indices: "
            f"{indices.shape[1]}, nnz from values: {values.shape[0]}"
        )


def _smallest(indices: Tensor, values: Tensor) -> tuple[int, ...]:
    array = indices.array
    if not indices.shape[1]:
        return (0,) * indices.shape[0] + tuple(values.shape[1:])
    lowest = array.min(1).tolist()
    for dim, low in enumerate(lowest):
        if low < 0:
            raise RuntimeError(f"found negative index {low} for dim {dim}")
    return (*[int(n) + 1 for n in array.max(1).tolist()], *values.shape[1:])


def _check_size(indices: Tensor, values: Tensor, size: Sequence[int]) -> None:
    sparse, dense = indices.shape[0], values.ndim - 1
    if len(size) != sparse + dense:
        raise RuntimeError(
            f"'len(size) == sparse_dim + dense_dim' is not satisfied: len(size) = {len(size)}, "
            f"sparse_dim = {sparse}, dense_dim = {dense}"
        )
    expected = [values.shape[0], *size[sparse:]]
    if list(values.shape) != expected:
        raise RuntimeError(
            f"values has incorrect size, expected {expected}, got {list(values.shape)}"
        )


def _check_bounds(indices: Tensor, size: Sequence[int]) -> None:
    if not indices.shape[1] or not indices.shape[0]:
        return
    array = indices.array
    for dim, (low, high) in enumerate(zip(array.min(1).tolist(), array.max(1).tolist())):
        if low < 0:
            raise RuntimeError(f"found negative index {low} for dim {dim}")
        if high >= size[dim]:
            raise RuntimeError(
                f"size is inconsistent with indices: for dim {dim}, size is {size[dim]} but found "
                f"index {high}"
            )


@op
def to_sparse(
    input: Tensor, sparse_dim: int | None = None, *, layout: Any = None, blocksize: Any = None
) -> SparseTensor:
    """The elements that are not zero, as a sparse tensor.

    Parameters
    ----------
    sparse_dim : int, optional
        How many leading dimensions to list by coordinates, by default all; the others stay dense.

    Raises
    ------
    RuntimeError
        For a ``sparse_dim`` that there is not.
    """
    if layout is sparse_csr and sparse_dim is None and blocksize is None:
        return to_sparse(input).to_sparse(layout=layout)
    if layout is not None and layout is not sparse_coo:
        refuse(f"to_sparse(layout={layout})", input.device)
    if blocksize is not None:
        raise RuntimeError(
            "to_sparse for layout torch.sparse_coo takes no blocksize, but blocksize="
            f"{blocksize!r} was given: leave it out"
        )
    rank = input.ndim
    count = rank if sparse_dim is None else sparse_dim
    if not 0 <= count <= rank:
        raise RuntimeError(
            f"dense_to_sparse: sparse_dim argument must be in [0,{rank}] range, but {count} is "
            "given"
        )
    xp, array = xp_of(input), input.array
    listed = array != 0
    if count < rank:
        listed = listed.any(tuple(range(count, rank)))
    coordinates = xp.argwhere(listed).T if count else xp.zeros((0, int(bool(listed))), "int64")
    indices = from_array(xp.ascontiguousarray(coordinates.astype("int64")), dt.int64, input.device)
    pattern = Pattern(indices, tuple(input.shape), True)
    values = at_places(input.detach(), pattern)
    return recorded("ToSparseBackward1", pattern, values, (input,), _to_sparse_vjp)


def _to_sparse_vjp(node: Any, g: Tensor) -> Any:
    return (g.to_dense(),)


@op
def sparse_mask(input: Tensor, mask: Tensor) -> SparseTensor:
    """A dense tensor's elements at the places of a sparse one of its shape.

    Raises
    ------
    RuntimeError
        For a mask of another shape, or a dense one.
    NotImplementedError
        For a sparse tensor.
    """
    if not isinstance(mask, SparseTensor):
        raise RuntimeError(
            f"sparse_mask(): expected a sparse mask, got layout {mask.layout}: call .to_sparse()"
        )
    if input.shape != mask.shape:
        raise RuntimeError(
            "sparse_mask(): operands have incompatible sizes; self has size "
            f"{list(input.shape)} but mask has size {list(mask.shape)}"
        )
    if isinstance(input, SparseTensor):
        refuse("sparse_mask", input.device, "the tensor is sparse")
    require_one_device("sparse_mask", input, mask)
    pattern = mask.pattern
    values = at_places(input.detach(), pattern)
    return recorded("SparseMaskBackward0", pattern, values, (input,), _sparse_mask_vjp)


def _sparse_mask_vjp(node: Any, g: Tensor) -> Any:
    at = at_places(g, node.pattern)
    return (assemble(node.pattern, at, "SparseMaskBackward0").to_dense(),)  # twice: added up


@op
def rebuilt(
    indices: Tensor,
    values: Tensor,
    size: tuple[int, ...],
    coalesced: bool,
    requires_grad: bool,
    rows_in: Any = None,
) -> Tensor:
    """A sparse tensor from what it was taken apart to (pickle)."""
    made = assemble(Pattern(indices, size, coalesced, rows_in), values, "")
    return made._mark(requires_grad)


def _reduced(self: SparseTensor, protocol: Any) -> Any:
    if not self.is_leaf:
        raise RuntimeError("only leaf tensors can be pickled; detach() this one first")
    p, values = self.pattern, self.elements.values
    return rebuilt, (p.indices, values, p.size, p.coalesced, self.requires_grad, p.rows_in)


attach(SparseTensor, __reduce_ex__=_reduced)


# --- tensor types, as PyTorch's first programs name them: ``sparse.FloatTensor`` -----------------


class SparseTensorType(type):
    """The class of `FloatTensor` and the other tensor types: calling one makes a sparse tensor."""

    dtype: dt.dtype

    def __call__(cls, *args: Any, device: Any = None) -> Tensor:
        """Of indices, values and a size: of the values' type. Of sizes: with no elements."""
        if len(args) in (2, 3) and all(isinstance(arg, Tensor) for arg in args[:2]):
            return sparse_coo_tensor(*args, device=device)
        sizes = args[0] if len(args) == 1 and isinstance(args[0], tuple) else args
        if not all(isinstance(n, int) for n in sizes):
            raise TypeError(
                f"sparse.{cls.__name__}() takes (indices, values), (indices, values, size), both "
                "tensors, or sizes; write sparse_coo_tensor(...) for sequences"
            )
        return sparse_coo_tensor(tuple(sizes) or (0,), dtype=cls.dtype, device=device)

    def __instancecheck__(cls, value: Any) -> bool:
        cpu = isinstance(value, SparseTensor) and value.device.type == "cpu"
        return cpu and value.dtype is cls.dtype


TYPES: dict[str, SparseTensorType] = {
    name: SparseTensorType(name, (), {"__module__": "lucid_gpu.sparse", "dtype": d})
    for d, name in NAMES.items()
    if not d.is_complex
}


class check_sparse_tensor_invariants:
    """PyTorch's setting of whether the parts of sparse tensors are checked.

    Here they always are, but for the order of columns in CSR.

    Parameters
    ----------
    enable : bool
        What `is_enabled` says inside a ``with`` block, or a function decorated with this.
    """

    _enabled = False

    def __init__(self, enable: bool = True) -> None:
        self.state = enable
        self._before: list[bool] = []

    @staticmethod
    def is_enabled() -> bool:
        """What was asked for last."""
        return check_sparse_tensor_invariants._enabled

    @staticmethod
    def enable() -> None:
        """Ask for checks."""
        check_sparse_tensor_invariants._enabled = True

    @staticmethod
    def disable() -> None:
        """Ask for none; indices are checked all the same."""
        check_sparse_tensor_invariants._enabled = False

    def __enter__(self) -> None:
        self._before.append(self.is_enabled())
        check_sparse_tensor_invariants._enabled = self.state

    def __exit__(self, *exception: Any) -> None:
        check_sparse_tensor_invariants._enabled = self._before.pop()

    def __call__(self, function: Any) -> Any:
        @functools.wraps(function)
        def checked(*args: Any, **kwargs: Any) -> Any:
            with type(self)(self.state):
                return function(*args, **kwargs)

        return checked
