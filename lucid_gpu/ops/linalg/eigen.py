"""Eigenvalues and eigenvectors."""

from __future__ import annotations

from typing import Any, NamedTuple

from lucid_gpu import dtypes as dt
from lucid_gpu.devices import linalg
from lucid_gpu.ops.linalg.matrices import (
    LinAlgError,
    absent,
    adjoint,
    conj,
    diagonal_of,
    is_complex,
    is_finite,
    like,
    on_arrays,
    real_type,
    require_phase_free,
    require_square,
    with_diagonal,
)
from lucid_gpu.ops.linalg.quotients import solution
from lucid_gpu.ops.memory_formats import columns
from lucid_gpu.ops.named_results import results_of
from lucid_gpu.ops.record import record
from lucid_gpu.ops.reductions import _nothing
from lucid_gpu.tape.door import op
from lucid_gpu.tape.rules import batching, on_value
from lucid_gpu.tensor import Tensor

_COMPLEX = {dt.float32: dt.complex64, dt.float64: dt.complex128}


class Eigen(NamedTuple):
    """What `eig` and `eigh` return."""

    eigenvalues: Tensor
    eigenvectors: Tensor


EIGENS = results_of(Eigen, "linalg_eig", "linalg_eigh")


@op(autocast={"cpu": "float32"})
@columns
def eigh(input: Tensor, UPLO: str = "L") -> Eigen:
    """Eigenvalues, ascending, and orthonormal eigenvectors of Hermitian matrices.

    Gradient after Giles, An extended collection of matrix derivative results (2008), 3.1:
    ``V (diag(g_L) + (V^H g_V) / (l_j - l_i)) V^H``, made Hermitian; it is finite where the values
    are distinct.

    Parameters
    ----------
    input : Tensor, shape (..., n, n)
    UPLO : {"L", "U"}
        Which triangle is read.

    Raises
    ------
    RuntimeError
        For another ``UPLO``, and for anything but square matrices.
    """
    _check(input, "linalg.eigh", UPLO)
    values, vectors = linalg.call("eigh", input.device, input.array, UPLO=UPLO.upper())
    arrays = values.astype(real_type(input.dtype).numpy, copy=False), vectors
    pairs = record("LinalgEighBackward0", arrays, (input,), _eigh_vjp, keeps_output=True)
    result: Eigen = EIGENS["linalg_eigh"](*pairs)
    return result


def _check(A: Tensor, name: str, UPLO: str) -> None:
    if str(UPLO).upper() not in ("L", "U"):
        raise RuntimeError(f"Expected UPLO argument to be 'L' or 'U', but got {UPLO}")
    require_square(name, A)


def _eigh_vjp(node: Any, g_L: Tensor, g_V: Tensor) -> Any:
    L, V = node.saved_values
    if absent(g_V):
        return (on_arrays(_from_values, V, g_L),)
    if is_complex(V):
        require_phase_free("linalg_eigh_backward", diagonal_of(adjoint(V) @ g_V))
    return (on_arrays(_from_vectors, V, L, g_L, g_V),)


batching(eigh)(on_value)


def _from_values(V: Any, g_L: Any) -> Any:
    return (V * like(g_L[..., None, :], V)) @ adjoint(V)


def _from_vectors(V: Any, L: Any, g_L: Any, g_V: Any) -> Any:
    gaps = with_diagonal(L[..., None, :] - L[..., None], 1.0)
    inner = with_diagonal(adjoint(V) @ g_V / gaps, like(g_L, V))
    return V @ ((inner + adjoint(inner)) * 0.5) @ adjoint(V)


@op(autocast={"cpu": "float32"})
def eigvalsh(input: Tensor, UPLO: str = "L") -> Tensor:
    """Eigenvalues, ascending, of Hermitian matrices, shape (..., n).

    RuntimeError for another ``UPLO``, and for anything but square matrices.
    """
    if input.requires_grad or input._wrapper is not None:
        return eigh(input, UPLO).eigenvalues
    _check(input, "linalg.eigvalsh", UPLO)
    array = linalg.call("eigvalsh", input.device, input.array, UPLO=UPLO.upper())
    d = real_type(input.dtype)
    result: Tensor = record("LinalgEighBackward0", array, (input,), _nothing, dtype=d)
    return result


batching(eigvalsh)(on_value)


@op(autocast={"cpu": "float32"})
@columns
def eig(input: Tensor) -> Eigen:
    """Eigenvalues and eigenvectors of length 1 of square matrices: always complex.

    Gradient after Boeddeker et al., On the computation of complex-valued gradients with application
    to statistically optimum beamforming (2017), (4.77). Vectors are unique up to a phase, on which
    a loss must not depend.

    Parameters
    ----------
    input : Tensor, shape (..., n, n)

    Raises
    ------
    LinAlgError
        For matrices with elements that are not finite.
    RuntimeError
        For anything but square matrices; of its kind, LinAlgError, for infinite elements and NaN.
    """
    require_square("linalg.eig", input)
    if not is_finite(input):
        raise LinAlgError("torch.linalg.eig: input tensor should not contain infs or NaNs.")
    d = _COMPLEX.get(input.dtype, input.dtype)
    eigenpairs = linalg.call("eig", input.device, input.array)
    arrays = tuple([part.astype(d.numpy, copy=False) for part in eigenpairs])
    pairs = record(
        "LinalgEigBackward0", arrays, (input,), _eig_vjp, keeps_output=True,
        real=not input.dtype.is_complex,
    )  # fmt: skip
    result: Eigen = EIGENS["linalg_eig"](*pairs)
    return result


def _eig_vjp(node: Any, g_L: Tensor, g_V: Tensor) -> Any:
    L, V = node.saved_values
    Vh = adjoint(V)
    if absent(g_V):
        inner = with_diagonal(Vh * 0, g_L)
    else:
        turned = Vh @ g_V
        require_phase_free("linalg_eig_backward", diagonal_of(turned))
        lengths = diagonal_of(turned).real.to(V.dtype)  # eigenvectors keep theirs
        gaps = with_diagonal(conj(L.unsqueeze(-2) - L.unsqueeze(-1)), 1.0)
        inner = with_diagonal((turned - Vh @ V * lengths.unsqueeze(-2)) / gaps, g_L)
    gradient = solution(Vh, inner @ Vh)
    return (gradient.real if node.real else gradient,)


batching(eig)(on_value)


@op(autocast={"cpu": "float32"})
def eigvals(input: Tensor) -> Tensor:
    """Eigenvalues of square matrices, complex, in no particular order."""
    return eig(input).eigenvalues
