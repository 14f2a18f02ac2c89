"""What may be asked of dense tensors as of sparse ones, and the way from one to the other."""

from __future__ import annotations

from typing import Any, NoReturn

from lucid_gpu.dtypes import as_dtype
from lucid_gpu.ops.registry import attach
from lucid_gpu.storage import sparse_coo, sparse_csr, strided
from lucid_gpu.tensor import Tensor


def to_sparse(
    input: Tensor, sparse_dim: int | None = None, *, layout: Any = None, blocksize: Any = None
) -> Tensor:
    """The elements that are not zero, as a sparse tensor of coordinates and values.

    Parameters
    ----------
    sparse_dim : int, optional
        How many leading dimensions to list by coordinates, by default all; the others stay dense.
    """
    from lucid_gpu.sparse import to_sparse

    return to_sparse(input, sparse_dim, layout=layout, blocksize=blocksize)


def to_sparse_coo(input: Tensor) -> Tensor:
    """The elements that are not zero, or are listed, as a sparse tensor of coordinates."""
    return input.to_sparse()


def to_sparse_csr(input: Tensor, dense_dim: int | None = None) -> Tensor:
    """The elements of a matrix that are not zero, or are listed, in compressed rows.

    ``dense_dim``: how many trailing dimensions of a dense tensor stay dense, by default none.
    """
    listed = input if dense_dim is None else input.to_sparse(input.ndim - dense_dim)
    return listed.to_sparse(layout=sparse_csr)


def sparse_mask(input: Tensor, mask: Tensor) -> Tensor:
    """A dense tensor's elements at the places of a sparse one of its shape, as a sparse tensor."""
    from lucid_gpu.sparse import sparse_mask

    return sparse_mask(input, mask)


def to_dense(input: Tensor, dtype: Any = None, *, masked_grad: bool | None = None) -> Tensor:
    """A sparse tensor's elements in one array; a dense tensor itself.

    Parameters
    ----------
    dtype : dtype, optional
        Of the result; of dense tensors only.
    masked_grad : bool, optional
        False: the gradient of a sparse tensor has all elements; by default those that it lists.
    """
    if input._is_sparse:
        return input.to_dense(dtype, masked_grad=masked_grad)
    return input if dtype is None else input.to(as_dtype(dtype))


def sparse_dim(input: Tensor) -> int:
    """How many dimensions are listed by coordinates."""
    return input.sparse_dim() if input._is_sparse else 0


def dense_dim(input: Tensor) -> int:
    """How many dimensions are not listed by coordinates."""
    return input.dense_dim() if input._is_sparse else input.ndim


def _of_sparse_tensors(name: str) -> Any:
    def method(self: Tensor) -> NoReturn:
        csr = name in _OF_ROWS
        expected, way = ("row compressed", "_csr") if csr else ("coordinate", "")
        raise RuntimeError(
            f"{name} expected sparse {expected} tensor layout but got {_LAYOUTS[self.layout]}; "
            f"call .to_sparse{way}() first"
        )

    method.__name__ = name
    method.__doc__ = "Of sparse tensors only, whatever the shape: RuntimeError."
    return method


METHODS = (to_sparse, to_sparse_coo, to_sparse_csr, to_dense, sparse_mask, sparse_dim, dense_dim)
attach(Tensor, *METHODS)
_OF_SPARSE = ("coalesce", "is_coalesced", "indices", "values", "_indices", "_values", "_nnz")
_OF_ROWS = ("crow_indices", "col_indices")
_LAYOUTS = {strided: "Strided", sparse_coo: "Sparse", sparse_csr: "SparseCsr"}
attach(Tensor, *map(_of_sparse_tensors, _OF_SPARSE + _OF_ROWS))
