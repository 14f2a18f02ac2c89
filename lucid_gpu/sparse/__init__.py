"""Sparse tensors: `mm` and `sum` under PyTorch's names.

The tensors themselves come from `lucid_gpu.sparse_coo_tensor`, `sparse_csr_tensor` and
`Tensor.to_sparse`.
"""

from __future__ import annotations

from typing import Any

from lucid_gpu.compat.refused import refused
from lucid_gpu.sparse.arithmetic import elementwise as elementwise
from lucid_gpu.sparse.arithmetic import to, total_of
from lucid_gpu.sparse.arithmetic import zeros_like as zeros_like
from lucid_gpu.sparse.creation import TYPES
from lucid_gpu.sparse.creation import (
    check_sparse_tensor_invariants as check_sparse_tensor_invariants,
)
from lucid_gpu.sparse.creation import sparse_coo_tensor as sparse_coo_tensor
from lucid_gpu.sparse.creation import sparse_csr_tensor as sparse_csr_tensor
from lucid_gpu.sparse.creation import sparse_mask as sparse_mask
from lucid_gpu.sparse.creation import to_sparse as to_sparse
from lucid_gpu.sparse.products import matmul as matmul
from lucid_gpu.sparse.products import mm as mm
from lucid_gpu.sparse.tensor import SparseTensor as SparseTensor
from lucid_gpu.sparse.tensor import refuse as refuse
from lucid_gpu.sparse.tensor import refuse_the_rest
from lucid_gpu.tensor import Tensor

refuse_the_rest()

_BY_PARTS = "there is no sparse form of it here; write it for x.coalesce().values() and .indices()"
log_softmax = refused("sparse.log_softmax", _BY_PARTS)
softmax = refused("sparse.softmax", _BY_PARTS)
sampled_addmm = refused(
    "sparse.sampled_addmm",
    "there is no form of it for the layout CSR here; write (mat1[rows] * mat2.mT[columns]).sum(1) "
    "for rows, columns = input.to_sparse().indices()",
)
spdiags = refused(
    "sparse.spdiags", "write sparse_coo_tensor(indices, values, shape) of the diagonals' places"
)


def __getattr__(name: str) -> Any:
    if name in TYPES:
        return TYPES[name]
    raise AttributeError(f"module 'lucid_gpu.sparse' has no attribute {name!r}")


def addmm(
    mat: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1.0, alpha: float = 1.0
) -> Tensor:
    """``beta * mat + alpha * (mat1 @ mat2)`` with a sparse ``mat1``, whose gradient is sparse.

    Parameters
    ----------
    mat, mat1, mat2 : Tensor
        Of shapes (n, m), (n, k) and (k, m); ``mat1`` may be sparse, as in `sparse.mm`.
    beta, alpha : float
    """
    product = mm(mat1, mat2)
    product = product if alpha == 1 else product * alpha
    if beta == 0:  # not even NaN is read
        return product
    return product + (mat if beta == 1 else mat * beta)


def sum(input: Tensor, dim: Any = None, dtype: Any = None) -> Tensor:
    """Sum of a sparse tensor's elements (dense), or over dimensions (sparse while one remains).

    RuntimeError for a dense tensor.
    """
    if not isinstance(input, SparseTensor) or not input.is_sparse:
        raise RuntimeError(
            "sparse.sum(): expected a sparse tensor, got layout "
            f"{input.layout}; write x.sum() for a dense one"
        )
    if dim is not None:
        return input.sum(dim, dtype=dtype)
    return total_of(input if dtype is None else to(input, dtype), True)
