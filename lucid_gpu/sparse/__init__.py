"""Sparse tensors: `mm` and `sum` under PyTorch's names.

The tensors themselves come from `lucid_gpu.sparse_coo_tensor` and `Tensor.to_sparse`.
"""

from __future__ import annotations

from typing import Any

from lucid_gpu.sparse.arithmetic import elementwise as elementwise
from lucid_gpu.sparse.arithmetic import to, total_of
from lucid_gpu.sparse.arithmetic import zeros_like as zeros_like
from lucid_gpu.sparse.creation import TYPES
from lucid_gpu.sparse.creation import sparse_coo_tensor as sparse_coo_tensor
from lucid_gpu.sparse.creation import sparse_mask as sparse_mask
from lucid_gpu.sparse.creation import to_sparse as to_sparse
from lucid_gpu.sparse.products import matmul as matmul
from lucid_gpu.sparse.products import mm as mm
from lucid_gpu.sparse.tensor import SparseTensor as SparseTensor
from lucid_gpu.sparse.tensor import refuse as refuse
from lucid_gpu.sparse.tensor import refuse_the_rest
from lucid_gpu.tensor import Tensor

refuse_the_rest()


def __getattr__(name: str) -> Any:
    if name in TYPES:
        return TYPES[name]
    raise AttributeError(f"module 'lucid_gpu.sparse' has no attribute {name!r}")


def sum(input: Tensor, dim: Any = None, dtype: Any = None) -> Tensor:
    """Sum of a sparse tensor's elements (dense), or over dimensions (sparse while one remains).

    RuntimeError for a dense tensor.
    """
    if not isinstance(input, SparseTensor):
        raise RuntimeError(
            "sparse.sum(): expected a sparse tensor, got layout "
            f"{input.layout}; write x.sum() for a dense one"
        )
    if dim is not None:
        return input.sum(dim, dtype=dtype)
    return total_of(input if dtype is None else to(input, dtype), True)
