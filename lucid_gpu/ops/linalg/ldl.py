"""Factors ``L D L^T`` of symmetric matrices, which need not be definite; without gradients."""

from __future__ import annotations

from typing import Any, NamedTuple, NoReturn

from lucid_gpu import dtypes as dt
from lucid_gpu.devices import ldl
from lucid_gpu.dtypes import unimplemented
from lucid_gpu.fusion.typing_rules import broadcast_shapes
from lucid_gpu.ops.linalg.matrices import refuse_zero_pivots, require_inexact
from lucid_gpu.ops.memory_formats import columns
from lucid_gpu.ops.named_results import result_of
from lucid_gpu.ops.record import record
from lucid_gpu.tape.door import op
from lucid_gpu.tape.rules import batching, on_value
from lucid_gpu.tensor import Tensor, from_array


@result_of("linalg_ldl_factor")
class LDL(NamedTuple):
    """What `ldl_factor` returns."""

    LD: Tensor
    pivots: Tensor


@result_of("linalg_ldl_factor_ex")
class LDLWithInfo(NamedTuple):
    """What `ldl_factor_ex` returns."""

    LD: Tensor
    pivots: Tensor
    info: Tensor


@op
@columns
def ldl_factor(A: Tensor, *, hermitian: bool = False) -> LDL:
    """Factors ``L D L^T`` of symmetric matrices, of which the lower triangle is read.

    ``D`` has blocks of one and of two rows, chosen by Bunch's and Kaufman's rule; computed on the
    host, whatever the device.

    Parameters
    ----------
    A : Tensor, shape (..., n, n)
    hermitian : bool
        Whether complex matrices are Hermitian, with ``L D L^H``, and not symmetric.

    Returns
    -------
    LD : Tensor, shape (..., n, n)
        ``D`` on the diagonal and beside it, ``L`` below; zeros above.
    pivots : Tensor of int32, shape (..., n)
        Which row each was exchanged with, from 1; two equal negative ones are a block of two rows.

    Raises
    ------
    RuntimeError
        If a block of ``D`` is zero; for other shapes and types; in a backward pass.
    NotImplementedError
        For 16-bit floats.
    """
    LD, pivots, info = ldl_factor_ex(A, hermitian=hermitian)
    _check("torch.linalg.ldl_factor", info)
    return LDL(LD, pivots)


def _check(name: str, info: Tensor) -> None:
    refuse_zero_pivots(info, name, "D", "ldl_solve", "linalg.ldl_factor_ex(A)")


@op
@columns
def ldl_factor_ex(A: Tensor, *, hermitian: bool = False, check_errors: bool = False) -> LDLWithInfo:
    """As `ldl_factor`; ``info`` is the first row of ``D`` that is zero, or 0.

    RuntimeError where one is, with ``check_errors``, and for other shapes and types.
    """
    name = "torch.linalg.ldl_factor_ex"
    _require(name, "ldl_factor_kernel_cpu", A)
    factors, places, numbers = ldl.factored(A.device, A.array, hermitian)
    pivots = from_array(places, dt.int32, A.device)
    info = from_array(numbers, dt.int32, A.device)
    LD: Tensor = record("LinalgLdlFactorExBackward0", factors, (A,), _factor_vjp, dtype=A.dtype)
    if check_errors:
        _check(name, info)
    return LDLWithInfo(LD, pivots, info)


batching(ldl_factor, ldl_factor_ex)(on_value)


def _require(name: str, kernel: str, A: Tensor) -> None:
    if A.ndim < 2:
        raise RuntimeError(f"{name}: The input tensor A must have at least 2 dimensions.")
    rows, width = A.shape[-2:]
    if rows != width:
        raise RuntimeError(
            f"{name}: A must be batches of square matrices, but they are {rows} by {width} matrices"
        )
    require_inexact(name, A)
    if A.dtype.itemsize == 2:
        raise unimplemented(kernel, A.dtype)


def _factor_vjp(node: Any, g: Tensor) -> NoReturn:
    raise RuntimeError("derivative for aten::linalg_ldl_factor_ex is not implemented")


def _solve_vjp(node: Any, g: Tensor) -> NoReturn:
    raise RuntimeError(
        "derivative for aten::linalg_ldl_solve is not implemented; linalg.solve has one"
    )


@op
@columns
def ldl_solve(LD: Tensor, pivots: Tensor, B: Tensor, *, hermitian: bool = False) -> Tensor:
    """The solution of ``A X = B`` from `ldl_factor`'s answer.

    Parameters
    ----------
    LD, pivots : Tensor, shapes (..., n, n) and (..., n)
        What `ldl_factor` returned.
    B : Tensor, shape (..., n, k)
    hermitian : bool
        What `ldl_factor` was told.

    Raises
    ------
    RuntimeError
        For shapes and types that do not fit each other; in a backward pass.
    IndexError
        For ``B`` of one dimension.
    NotImplementedError
        For 16-bit floats.
    """
    name = "torch.linalg.ldl_solve"
    _require(name, "ldl_solve_kernel_cpu", LD)
    if B.ndim < 2:
        raise IndexError(
            f"Dimension out of range (expected to be in range of [{-max(B.ndim, 1)}, "
            f"{max(B.ndim, 1) - 1}], but got -2)"
        )
    if B.dtype is not LD.dtype:
        raise RuntimeError(
            f"Expected b and A to have the same dtype, but found b of type {B.dtype.type_name} and "
            f"A of type {LD.dtype.type_name} instead."
        )
    if LD.shape[-1] != B.shape[-2]:
        n = LD.shape[-1]
        raise RuntimeError(
            f"Incompatible matrix sizes for {name}: each A matrix is {n} by {n} but each b matrix "
            f"is {B.shape[-2]} by {B.shape[-1]}"
        )
    if pivots.shape != LD.shape[:-1]:
        raise RuntimeError(
            f"{name}: Expected LD.shape[:-1] and pivots.shape to be the same, but got pivots with "
            f"shape {list(pivots.shape)} instead"
        )
    if pivots.dtype.category != 1:
        raise RuntimeError(f"{name}: Expected pivots to be integers. Got {pivots.dtype.type_name}")
    batch = broadcast_shapes([tuple(LD.shape[:-2]), tuple(B.shape[:-2])], name)
    n, k = B.shape[-2:]
    LD, B = LD.expand((*batch, n, n)), B.expand((*batch, n, k))
    array = ldl.solved(LD.device, LD.array, pivots.expand((*batch, n)).array, B.array, hermitian)
    X: Tensor = record("LinalgLdlSolveBackward0", array, (LD, B), _solve_vjp, dtype=B.dtype)
    return X
