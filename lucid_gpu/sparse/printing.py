"""How sparse tensors print: PyTorch's layout."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lucid_gpu.ops import printing
from lucid_gpu.ops.printing import OPENING
from lucid_gpu.tensor import Tensor

if TYPE_CHECKING:
    from lucid_gpu.sparse.tensor import SparseTensor


def sparse_repr(s: SparseTensor) -> str:
    """The text of a sparse tensor: coordinates, values, size and marks, on lines of their own."""
    gap = ",\n" + " " * len(OPENING)
    first, *others = _suffixes(s)
    parts = (OPENING + _part("indices", s._indices()), _part("values", s._values()), first)
    return printing._with_suffixes(gap.join(parts), others)


def _part(name: str, t: Tensor) -> str:
    array = t.cpu().array
    if t.dtype.compute is not t.dtype:
        array = array.astype(t.dtype.compute.numpy)
    opening = f"{name}={OPENING}"
    if not array.size:
        return f"{opening}[], size={tuple(t.shape)})"
    indent = len(OPENING) + len(opening)
    return f"{opening}{printing._values(array, t.dtype.category, indent)})"


def _suffixes(s: SparseTensor) -> list[str]:
    found = [f"size={tuple(s.shape)}", f"nnz={s._nnz()}"]
    if s.device.type != "cpu":
        found.insert(0, f"device='{s.device}'")
    if printing.shows_type(s.dtype):
        found.append(f"dtype={s.dtype}")
    return [*found, f"layout={s.layout}", *printing.history_of(s)]
