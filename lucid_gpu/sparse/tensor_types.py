"""Types of sparse tensors, as PyTorch's first programs name them: ``sparse.FloatTensor``."""

from __future__ import annotations

from typing import Any

from lucid_gpu.dtypes import dtype
from lucid_gpu.ops.tensor_types import NAMES
from lucid_gpu.sparse.creation import sparse_coo_tensor
from lucid_gpu.sparse.tensor import SparseTensor
from lucid_gpu.tensor import Tensor


class SparseTensorType(type):
    """The class of `FloatTensor` and the other tensor types: calling one makes a sparse tensor."""

    dtype: dtype

    def __call__(cls, *args: Any, device: Any = None) -> Tensor:
        """Of indices, values and a size: of the values' type. Of sizes: with no elements."""
        if len(args) in (2, 3) and all(isinstance(given, Tensor) for given in args[:2]):
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
