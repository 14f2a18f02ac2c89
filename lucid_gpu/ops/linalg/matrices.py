"""What the families share: which matrices they take, and parts of matrices.

Gradients are formulas of tensors. `on_arrays` gives some of them NumPy's arrays where nobody
differentiates further: for small matrices that is much less work. What they are written with
(`adjoint`, `with_diagonal`, `lower`, `like` ...) therefore takes both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lucid_gpu import dtypes as dt
from lucid_gpu.devices import backend, linalg
from lucid_gpu.devices.linalg import LinAlgError as LinAlgError
from lucid_gpu.dtypes import dtype
from lucid_gpu.kernels.bounds import seen_at_once
from lucid_gpu.ops.creation import arange, tensor
from lucid_gpu.ops.elementwise import where
from lucid_gpu.ops.record import constant
from lucid_gpu.ops.reductions import constant_number
from lucid_gpu.tape.levels import open_levels
from lucid_gpu.tape.modes import state
from lucid_gpu.tensor import Tensor, from_array

EPSILON = {  # distance from 1 to the next number
    dt.float32: 2.0**-23, dt.float64: 2.0**-52, dt.complex64: 2.0**-23, dt.complex128: 2.0**-52,
}  # fmt: skip


def require_matrices(name: str, A: Tensor, low_precision: bool = False) -> None:
    """Refuse what has less than two dimensions or is of a type without decompositions."""
    if not isinstance(A, Tensor):
        raise TypeError(f"{name}: argument 'A' must be Tensor, not {type(A).__name__}")
    if len(A._expr.shape) < 2:
        raise RuntimeError(
            f"{name}: The input tensor A must have at least 2 dimensions. Got shape {list(A.shape)}"
        )
    require_inexact(name, A)
    if A._expr.program.dtype.itemsize == 2 and not low_precision:
        raise NotImplementedError(
            f"{name}: Low precision dtypes not supported. Got {A.dtype.type_name}; convert it with "
            ".float()"
        )


def is_finite(A: Tensor) -> bool:
    """Whether all elements are finite; on meta they are."""
    where = A._expr.program.device
    if where.type == "meta":
        return True
    if not seen_at_once(where):
        return bool(A.isfinite().all())
    xp = backend(where).xp
    return bool(xp.logical_and.reduce(xp.isfinite(A.array), None))


def refuse_zero_pivots(info: Tensor, name: str, factor: str, solve: str, instead: str) -> None:
    """Refuse factors of which ``info`` gives the number of the first zero pivot, or else 0."""
    if not info.is_meta and info.any():
        number = next(n for n in info.reshape(-1).tolist() if n)
        raise RuntimeError(
            f"{name}: {factor}[{number},{number}] is zero and using it on {solve} would result in "
            "a division by zero. If you still want to perform the factorization, consider calling "
            + instead
        )


def require_same_type(name: str, A: Tensor, B: Tensor, a: str = "A", b: str = "B") -> None:
    """Refuse operands of two types, which the sentence calls ``a`` and ``b``."""
    if A.dtype is not B.dtype:
        raise RuntimeError(
            f"{name}: Expected {a} and {b} to have the same dtype, but found {a} of type "
            f"{A.dtype.type_name} and {b} of type {B.dtype.type_name} instead"
        )


def require_inexact(name: str, A: Tensor) -> None:
    """Refuse integers and bools."""
    if A._expr.program.dtype.category < 2:
        raise RuntimeError(
            f"{name}: Expected a floating point or complex tensor as input. Got {A.dtype.type_name}"
        )


def require_square(name: str, A: Tensor, low_precision: bool = False) -> None:
    """Refuse what `require_matrices` does, and matrices that are not square."""
    require_matrices(name, A, low_precision)
    if A._expr.shape[-2] != A._expr.shape[-1]:
        raise RuntimeError(
            f"{name}: A must be batches of square matrices, but they are {A.shape[-2]} by "
            f"{A.shape[-1]} matrices"
        )


def complain(name: str, numbers: Sequence[int] | None, batch: Sequence[int], what: str) -> None:
    """Raise for the first matrix that something was wrong with."""
    if numbers is None:
        return
    i = next(i for i, number in enumerate(numbers) if number)
    element = f"(Batch element {i}): " if len(batch) else ""
    raise LinAlgError(f"{name}: {element}{what.format(numbers[i])}")


def info_of(numbers: Sequence[int] | None, A: Tensor) -> Tensor:
    """LAPACK's ``info``, one a matrix: 0 where all went well."""
    batch = tuple(A.shape[:-2])
    if numbers is None:
        return constant(0, A, batch).to(dt.int32)
    return tensor(numbers, dtype=dt.int32, device=A.device).reshape(batch)


def real_type(d: dtype) -> dtype:
    """The type of absolute values."""
    return {dt.complex64: dt.float32, dt.complex128: dt.float64}.get(d, d)


def on_arrays(formula: Callable[..., Any], first: Tensor, *rest: Tensor) -> Tensor:
    """``formula(first, *rest)``, a tensor of the type of ``first``, by NumPy where that will do."""
    if state.grad or open_levels or first.device.type != "cpu":
        result: Tensor = formula(first, *rest)
        return result
    array = linalg.quietly(formula, *[t.array for t in (first, *rest)])
    return from_array(array, first.dtype, first.device)


def like(x: Any, other: Any) -> Any:
    """In the type of another."""
    return x.to(other.dtype) if isinstance(x, Tensor) else x.astype(other.dtype, copy=False)


def is_complex(x: Any) -> bool:
    """Of tensors and of arrays."""
    return bool(x.dtype.is_complex if isinstance(x, Tensor) else x.dtype.kind == "c")


def conj(x: Tensor) -> Tensor:
    """The complex conjugate; a real tensor itself."""
    return x.conj_physical() if x.dtype.is_complex else x


def adjoint(x: Any) -> Any:
    """Transposed and conjugated."""
    return conj(x.mT) if isinstance(x, Tensor) else linalg.adjoint(x)


def absent(cotangent: Tensor) -> bool:
    """Whether nothing asked for a gradient through this output."""
    return bool(constant_number(cotangent) == 0)


def offsets(x: Tensor) -> Tensor:
    """How far each place of a matrix lies to the right of the main diagonal."""
    rows = arange(x.shape[-2], device=x.device)
    return arange(x.shape[-1], device=x.device) - rows.unsqueeze(1)


def lower(x: Any, diagonal: int = 0) -> Any:
    """What lies on the diagonal and below; zeros elsewhere."""
    if not isinstance(x, Tensor):
        return linalg.lower(x, diagonal)
    kept: Tensor = where(offsets(x) <= diagonal, x, 0.0)
    return kept


def upper(x: Tensor, diagonal: int = 0) -> Tensor:
    """What lies on the diagonal and above; zeros elsewhere."""
    kept: Tensor = where(offsets(x) >= diagonal, x, 0.0)
    return kept


def with_diagonal(x: Any, values: Any) -> Any:
    """Square matrices with other numbers on their diagonals: (..., n), or one number."""
    if not isinstance(x, Tensor):
        return linalg.with_diagonal(x, values)
    if isinstance(values, Tensor):
        values = values.unsqueeze(-1)
    changed: Tensor = where(offsets(x) == 0, values, x)
    return changed


def diagonal_of(x: Any) -> Any:
    """The diagonals of square matrices."""
    if not isinstance(x, Tensor):
        return x.diagonal(0, -2, -1)
    kept: Tensor = where(offsets(x) == 0, x, 0.0)
    return kept.sum(-1)


def identity_like(x: Any, n: int) -> Any:
    """A unit matrix of another tensor's type and device."""
    if not isinstance(x, Tensor):
        return linalg.identity(n, x.dtype)
    places = arange(n, device=x.device)
    return (places == places.unsqueeze(1)).to(x.dtype)


def require_phase_free(name: str, slopes: Tensor, what: str = "eigen") -> None:
    """Refuse a loss that depends on the phases of complex vectors, which no decomposition fixes.

    ``slopes`` are its derivatives by them, as the imaginary parts of complex numbers.
    """
    if slopes._wrapper is not None or slopes.device.type == "meta":  # of many examples, or of none
        return
    if bool((slopes.detach().imag.abs() > 1e-2).any()):
        raise RuntimeError(
            f"{name}: The {what}vectors in the complex case are specified up to multiplication by "
            "e^{i phi}. The specified loss function depends on "
            + (
                "this phase term, making it ill-defined."
                if what == "singular "
                else "this quantity, so it is ill-defined."
            )
        )
