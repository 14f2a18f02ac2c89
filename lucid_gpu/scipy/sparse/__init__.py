"""`scipy.sparse` with derivatives by values: matrices of tensors are tensors of `lucid_gpu.sparse`.

``csr_array((data, indices, indptr), shape)`` of a tensor `data` is a `lucid_gpu.sparse_csr_tensor`,
which is multiplied by ``@``; its gradient is asked for at the listed places only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lucid_gpu.numpy.operands import as_tensor, first_tensor, inexact
from lucid_gpu.ops.creation import arange
from lucid_gpu.ops.registry import named
from lucid_gpu.ops.selections import repeat_interleave
from lucid_gpu.ops.shape import stack
from lucid_gpu.scipy.rows import composed, others
from lucid_gpu.scipy.sparse import linalg as linalg
from lucid_gpu.sparse import sparse_coo_tensor, sparse_csr_tensor, to_sparse
from lucid_gpu.storage import sparse_csr
from lucid_gpu.tensor import Tensor

__all__ = ["coo_array", "coo_matrix", "csc_array", "csc_matrix", "csr_array", "csr_matrix"]
__all__ += ["linalg"]


def _of_columns(indices: Any, indptr: Any, like: Tensor) -> list[Tensor]:
    """Return the row and the column of each element of compressed columns."""
    ends, rows = as_tensor(indptr, like).long(), as_tensor(indices, like).long()
    columns = arange(len(ends) - 1, device=ends.device)
    return [rows, repeat_interleave(columns, ends[1:] - ends[:-1])]


def _made(form: str, kind: str) -> Callable[..., Tensor]:
    def function(arg1: Any, shape: Any = None) -> Tensor:
        if isinstance(arg1, Tensor):
            return to_sparse(arg1, layout=sparse_csr if form == "csr" else None)
        data, *places = arg1
        data = inexact(as_tensor(data, first_tensor(arg1)))
        if len(places) == 1:
            rows = [as_tensor(part, data).long() for part in places[0]]
        elif form == "csr":
            return sparse_csr_tensor(places[1], places[0], data, shape)
        else:
            rows = _of_columns(places[0], places[1], data)
        made = sparse_coo_tensor(stack(rows), data, shape)
        return to_sparse(made, layout=sparse_csr) if form == "csr" else made

    doc = f"""Return a sparse matrix of `arg1`: a tensor of `lucid_gpu.sparse` where that has one.

    Parameters
    ----------
    arg1 : (data, (rows, columns)), (data, indices, indptr) or a matrix
        As `scipy.sparse.{form}_{kind}` takes it; repeated places add up.
    shape : (int, int), optional
        By default the smallest that holds the places.
    """
    return composed("sparse", by="arg1")(named(function, f"{form}_{kind}", doc))


coo_array, coo_matrix = _made("coo", "array"), _made("coo", "matrix")
csc_array, csc_matrix = _made("csc", "array"), _made("csc", "matrix")
csr_array, csr_matrix = _made("csr", "array"), _made("csr", "matrix")

__getattr__ = others("sparse", globals())
