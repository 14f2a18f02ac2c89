"""Methods that arrays have and PyTorch's tensors have not, for programs written for arrays."""

from __future__ import annotations

from typing import Any

from lucid_gpu.dtypes import as_dtype, element_type
from lucid_gpu.tape.overrides import declined
from lucid_gpu.tensor import Tensor, is_foreign


def astype(self: Tensor, dtype: Any, copy: bool = True) -> Tensor:
    """In another element type, also by NumPy's name; with ``copy=False`` copied only if needed."""
    converted = self.to(element_type(dtype) if isinstance(dtype, str) else as_dtype(dtype))
    return converted.clone() if copy and converted is self else converted


def copy(self: Tensor, order: str = "C") -> Tensor:
    """A copy of the same shape; ``order`` is its memory layout, as in NumPy."""
    return laid_out(self.clone(), order)


def laid_out(a: Tensor, order: Any) -> Tensor:
    """In memory with the last axis fastest (``"C"``) or the first (``"F"``); else as it is."""
    if order not in ("C", "F", "A", "K", None):
        raise ValueError(f"order must be one of 'C', 'F', 'A', or 'K' (got {order!r})")
    if order == "F":
        turned = tuple(range(a.ndim))[::-1]
        return a.permute(turned).contiguous().permute(turned)
    return a.contiguous() if order == "C" else a


def conjugate(self: Tensor) -> Tensor:
    """The elements' complex conjugates; a real tensor itself."""
    return self.conj()


def to_device(self: Tensor, device: Any, /, *, stream: Any = None) -> Tensor:
    """The elements on another device, under the name of the array API standard.

    Parameters
    ----------
    stream : optional
        Not taken: copies go to the current stream.

    Raises
    ------
    ValueError
        For a ``stream``.
    """
    if stream is not None:
        raise ValueError(f"to_device() copies on the current stream, got stream={stream!r}")
    return self.to(device)


def __imatmul__(self: Tensor, other: Tensor) -> Tensor:
    """``self @= other``."""
    return self.copy_(self.matmul(other))


def __ilshift__(self: Tensor, other: Any) -> Any:
    """``self <<= other``."""
    if not isinstance(other, Tensor) and is_foreign("ilshift", other):
        return declined("__ilshift__", self, other)
    return self.bitwise_left_shift_(other)


def __irshift__(self: Tensor, other: Any) -> Any:
    """``self >>= other``."""
    if not isinstance(other, Tensor) and is_foreign("irshift", other):
        return declined("__irshift__", self, other)
    return self.bitwise_right_shift_(other)


IN_PLACE = (__imatmul__, __ilshift__, __irshift__)
METHODS = (astype, copy, conjugate, to_device, *IN_PLACE)
FUNCTIONS = ()
