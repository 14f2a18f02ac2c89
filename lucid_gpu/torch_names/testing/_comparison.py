"""`torch.testing._comparison`: PyTorch's private file of `assert_close`."""

from __future__ import annotations

from typing import Any

from lucid_gpu.dtypes import as_dtype
from lucid_gpu.tensor import Tensor
from lucid_gpu.testing.comparison import assert_close, tolerances

__all__ = ["assert_close", "default_tolerances", "get_tolerances"]


def default_tolerances(
    *inputs: Any, dtype_precisions: dict[Any, tuple[float, float]] | None = None
) -> tuple[float, float]:
    """The default tolerances of the coarsest of some tensors or types: relative, absolute.

    ``dtype_precisions`` is PyTorch's table by default. TypeError for other inputs.
    """
    types = [x.dtype if isinstance(x, Tensor) else as_dtype(x) for x in inputs]
    if dtype_precisions is None:
        return tolerances(*types)
    pairs = [dtype_precisions.get(d, (0.0, 0.0)) for d in types]
    return max(r for r, _ in pairs), max(a for _, a in pairs)


def get_tolerances(
    *inputs: Any, rtol: float | None, atol: float | None, id: tuple[Any, ...] = ()
) -> tuple[float, float]:
    """The tolerances given, or where both are None the default ones.

    ValueError for one that is given without the other.
    """
    if (rtol is None) != (atol is None):
        raise ValueError(
            f"rtol and atol must both be specified or both be unspecified, but got rtol={rtol} and "
            f"atol={atol}"
        )
    return default_tolerances(*inputs) if rtol is None or atol is None else (rtol, atol)
