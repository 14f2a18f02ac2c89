"""What numbers a type holds: `finfo`, `iinfo`, and which type goes into which: `can_cast`."""

from __future__ import annotations

from typing import Any

from lucid_gpu.dtypes import as_dtype, dtype, get_default_dtype

__all__ = ["can_cast", "finfo", "iinfo"]


class finfo:
    """Limits of a floating point type.

    Parameters
    ----------
    type : dtype, optional
        By default `get_default_dtype`; of a complex type, that of its parts.

    Attributes
    ----------
    bits : int
    eps : float
        From 1 to the next number.
    max, min : float
    smallest_normal, tiny : float
    resolution : float
        The last decimal digit that is kept.
    dtype : str

    Raises
    ------
    TypeError
        For integers and bool.
    """

    def __init__(self, type: dtype | None = None) -> None:
        import ml_dtypes

        d = get_default_dtype() if type is None else as_dtype(type)
        if d.category < 2:
            raise TypeError(
                "torch.finfo() requires a floating point input type. Use torch.iinfo to handle "
                f"'{d}'"
            )
        found: Any = ml_dtypes.finfo(d.numpy)
        self.bits: int = found.bits
        self.eps, self.resolution = float(found.eps), float(f"1e-{found.precision}")
        self.max, self.min = float(found.max), float(found.min)
        self.tiny = self.smallest_normal = float(found.tiny)
        self.dtype = str(found.dtype)

    def __repr__(self) -> str:
        return (
            f"finfo(resolution={self.resolution:g}, min={self.min:g}, max={self.max:g}, "
            f"eps={self.eps:g}, smallest_normal={self.tiny:g}, tiny={self.tiny:g}, "
            f"dtype={self.dtype})"
        )


class iinfo:
    """Limits of an integer type.

    Attributes
    ----------
    bits, max, min : int
    dtype : str

    Raises
    ------
    TypeError
        For floating point, complex and bool.
    """

    def __init__(self, type: dtype) -> None:
        d = as_dtype(type)
        if d.category != 1:
            raise TypeError(
                f"torch.iinfo() requires an integer input type. Use torch.finfo to handle '{d}'"
            )
        self.bits = 8 * d.itemsize
        self.min = -(2 ** (self.bits - 1)) if d.is_signed else 0
        self.max = self.min + 2**self.bits - 1
        self.dtype = d.name

    def __repr__(self) -> str:
        return f"iinfo(min={self.min:g}, max={self.max:g}, dtype={self.dtype})"


def can_cast(from_: dtype, to: dtype) -> bool:
    """Whether an op's result may be written into a type: into no lower category."""
    a, b = as_dtype(from_), as_dtype(to)
    return a.category <= b.category
