"""How exactly the GPU multiplies matrices: PyTorch's settings, one meaning for every product."""

from __future__ import annotations

from typing import Any

__all__ = ["get_float32_matmul_precision", "matmul", "set_float32_matmul_precision"]

LEVELS = ("highest", "high", "medium")
_FLAGS = (
    "allow_fp16_reduced_precision_reduction",
    "allow_bf16_reduced_precision_reduction",
    "allow_fp16_accumulation",
)


class MatmulPrecision:
    """What matrix products on a GPU may give up for speed; products on the CPU give up nothing.

    Attributes
    ----------
    allow_tf32 : bool
        Round float32 operands to 10 bits of mantissa, so that tensor cores multiply them.
    fp32_precision : {"ieee", "tf32"}
        The same switch under its newer name.
    allow_fp16_reduced_precision_reduction, allow_bf16_reduced_precision_reduction : bool
        Let partial sums of one product be added in the 16-bit type. On, as in PyTorch.
    allow_fp16_accumulation : bool
        Accumulate float16 products in float16.

    Raises
    ------
    RuntimeError, TypeError
        For a value that is no such setting.
    AttributeError
        For an unknown name.
    """

    __slots__ = ("_chosen", "_level", *_FLAGS)

    _chosen: tuple[Any, ...]  # all of them: what a product is computed by
    _level: str
    allow_fp16_reduced_precision_reduction: bool
    allow_bf16_reduced_precision_reduction: bool
    allow_fp16_accumulation: bool

    def __init__(self) -> None:
        self._level = "highest"
        self.allow_fp16_reduced_precision_reduction = True
        self.allow_bf16_reduced_precision_reduction = True
        self.allow_fp16_accumulation = False

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _FLAGS and not isinstance(value, bool):
            raise TypeError(f"{name} expects a bool, but got {type(value).__name__}")
        try:
            object.__setattr__(self, name, value)
        except AttributeError:
            raise AttributeError(f"Unknown attribute {name}") from None
        chosen = tuple([getattr(self, known, None) for known in ("_level", *_FLAGS)])
        object.__setattr__(self, "_chosen", chosen)

    @property
    def allow_tf32(self) -> bool:
        return self._level != "highest"

    @allow_tf32.setter
    def allow_tf32(self, value: bool) -> None:
        if not isinstance(value, bool):
            raise RuntimeError(f"allow_tf32 expects a bool, but got {type(value).__name__}")
        self._level = "high" if value else "highest"

    @property
    def fp32_precision(self) -> str:
        return "tf32" if self.allow_tf32 else "ieee"

    @fp32_precision.setter
    def fp32_precision(self, value: str) -> None:
        if value not in ("ieee", "tf32", "none"):
            raise RuntimeError(f"Unknown precision: {value}; fp32_precision is 'ieee' or 'tf32'")
        self.allow_tf32 = value == "tf32"


matmul = MatmulPrecision()


def get_float32_matmul_precision() -> str:
    """How exactly float32 matrices are multiplied on a GPU.

    Returns
    -------
    {"highest", "high", "medium"}
    """
    return matmul._level


def set_float32_matmul_precision(precision: str) -> None:
    """Say how exactly float32 matrices are multiplied on a GPU.

    Parameters
    ----------
    precision : {"highest", "high", "medium"}
        ``"highest"`` multiplies in float32; the others let operands be rounded to TF32, as
        ``lucid_gpu.backends.cuda.matmul.allow_tf32 = True`` does.

    Raises
    ------
    ValueError
        For any other word. (PyTorch warns and leaves the setting as it was.)
    """
    if precision not in LEVELS:
        raise ValueError(
            f"{precision!r} is not one of 'highest', 'high', or 'medium': the setting stays "
            f"{matmul._level!r}"
        )
    matmul._level = precision
