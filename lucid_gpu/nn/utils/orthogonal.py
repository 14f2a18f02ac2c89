"""Weights that are orthogonal matrices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lucid_gpu.nn.modules.module import Module
from lucid_gpu.nn.utils.parametrize import register_parametrization
from lucid_gpu.ops.creation import eye
from lucid_gpu.ops.random import randn
from lucid_gpu.ops.shape import cat
from lucid_gpu.tape.modes import no_grad
from lucid_gpu.tensor import Tensor

__all__ = ["orthogonal"]


def _cayley(A: Tensor) -> Tensor:
    """``(I - A/2)^-1 (I + A/2)``."""
    from lucid_gpu.ops.linalg.inverse import solve

    one = eye(A.shape[-1], dtype=A.dtype, device=A.device)
    return solve(one - 0.5 * A, one + 0.5 * A)


def _exponential(A: Tensor) -> Tensor:
    from lucid_gpu.ops.linalg.products import matrix_exp

    return matrix_exp(A)


def _of_skew(exponential: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """The first columns of a function of the skew-symmetric matrix of a lower triangle."""

    def matrix(X: Tensor) -> Tensor:
        n, k = X.shape[-2:]
        X = X.tril()
        if n != k:
            X = cat([X, X.new_zeros((*X.shape[:-1], n - k))], -1)
        return exponential(X - X.mH)[..., :k]

    return matrix


def _householder(X: Tensor) -> Tensor:
    """A product of reflections; the diagonal holds signs, which are not learned."""
    from lucid_gpu.ops.linalg.householder import householder_product

    vectors = X.tril(-1)
    tau = 2.0 / (1.0 + (vectors * vectors).sum(-2))
    return householder_product(vectors, tau) * X.detach().diagonal(0, -2, -1).int().unsqueeze(-2)


_MAPS = {
    "matrix_exp": _of_skew(_exponential), "cayley": _of_skew(_cayley), "householder": _householder,
}  # fmt: skip


class _Orthogonal(Module):
    """``base @ map(X)``, of wide matrices the transpose."""

    def __init__(self, weight: Tensor, orthogonal_map: str, use_trivialization: bool) -> None:
        super().__init__()
        if weight.is_complex() and orthogonal_map == "householder":
            raise ValueError("The householder parametrization does not support complex tensors.")
        self.shape, self.orthogonal_map = weight.shape, orthogonal_map
        if use_trivialization:
            self.register_buffer("base", None)

    def forward(self, X: Tensor) -> Tensor:
        wide = X.shape[-2] < X.shape[-1]
        Q = _MAPS[self.orthogonal_map](X.mT if wide else X)
        if "base" in self._buffers:
            Q = self.base @ Q
        return Q.mT if wide else Q

    def right_inverse(self, Q: Tensor) -> Tensor:
        """Where the map gives ``Q``, made orthogonal if it is not."""
        if Q.shape != self.shape:
            raise ValueError(
                f"Expected a matrix or batch of matrices of shape {self.shape}. "
                f"Got a tensor of shape {Q.shape}."
            )
        with no_grad():
            wide = Q.shape[-2] < Q.shape[-1]
            tall = Q.mT if wide else Q
            if "base" not in self._buffers:
                reflections = self._reflections(tall)
                return reflections.mT if wide else reflections
            self.base = _completed(tall)
            start = Q.new_zeros(Q.shape)
            start.diagonal(0, -2, -1).fill_(-1.0)  # where reflections give the unit matrix
            return start

    def _reflections(self, Q: Tensor) -> Tensor:
        if self.orthogonal_map != "householder":
            raise NotImplementedError(
                "It is not possible to assign to the matrix exponential or the Cayley "
                "parametrizations when use_trivialization=False."
            )
        from lucid_gpu.ops.linalg.householder import geqrf

        A, tau = geqrf(Q)
        diagonal = A.diagonal(0, -2, -1)
        diagonal.copy_(diagonal.sign() * (1 - 2 * (tau == 0).to(A.dtype)))
        return A


def _completed(Q: Tensor) -> Tensor:
    """A square orthogonal matrix whose first columns are those of ``Q``, made orthonormal."""
    from lucid_gpu.ops.linalg.qr import qr

    n, k = Q.shape[-2:]
    if n != k:
        rest = randn(*Q.shape[:-1], n - k, dtype=Q.dtype, device=Q.device)
        Q = cat([Q, rest], -1)
    elif _is_orthogonal(Q):
        return Q.clone()
    factors = qr(Q)
    return factors.Q * factors.R.diagonal(0, -2, -1).sgn().unsqueeze(-2)


def _is_orthogonal(Q: Tensor) -> bool:
    from lucid_gpu.ops.linalg.matrices import EPSILON

    one = eye(Q.shape[-1], dtype=Q.dtype, device=Q.device)
    difference = (Q.mH @ Q - one).abs()
    return bool((difference < 10 * Q.shape[-2] * EPSILON[Q.dtype]).all())


def orthogonal(
    module: Module,
    name: str = "weight",
    orthogonal_map: str | None = None,
    *,
    use_trivialization: bool = True,
) -> Module:
    """Let a weight be a matrix with orthonormal columns, or rows where it has more of these.

    Lezcano-Casado, "Trivializations for Gradient-Based Optimization on Manifolds" (2019).

    Parameters
    ----------
    module : Module
    name : str
        A matrix or a batch of matrices; an orthogonal one stays, others are made so by QR.
    orthogonal_map : {"matrix_exp", "cayley", "householder"}, optional
        How the matrix is made of free numbers: the exponential or Cayley's map of a skew-symmetric
        matrix, or a product of reflections. By default the exponential for square and complex
        matrices, else reflections.
    use_trivialization : bool
        Multiply with a kept matrix, ``module.parametrizations.weight[0].base``, from which the map
        leads on.

    Raises
    ------
    ValueError
        If there is no such tensor, for one of fewer than two dimensions, and another map.
    """
    weight: Any = getattr(module, name, None)
    if not isinstance(weight, Tensor):
        raise ValueError(f"Module '{module}' has no parameter or buffer with name '{name}'")
    if weight.ndim < 2:
        raise ValueError(
            f"Expected a matrix or batch of matrices. Got a tensor of {weight.ndim} dimensions."
        )
    if orthogonal_map is None:
        square = weight.shape[-2] == weight.shape[-1]
        orthogonal_map = "matrix_exp" if square or weight.is_complex() else "householder"
    if orthogonal_map not in _MAPS:
        raise ValueError(
            'orthogonal_map has to be one of "matrix_exp", "cayley", "householder". '
            f"Got: {orthogonal_map}"
        )
    orth = _Orthogonal(weight, orthogonal_map, use_trivialization)
    return register_parametrization(module, name, orth, unsafe=True)
