"""Weights as direction and length, and weights of spectral norm one."""

from __future__ import annotations

from typing import Any

from lucid_gpu.nn.modules.conv import _ConvTransposeNd
from lucid_gpu.nn.modules.module import Module
from lucid_gpu.nn.utils.orthogonal import orthogonal
from lucid_gpu.nn.utils.parametrize import register_parametrization
from lucid_gpu.ops.arguments import in_float32
from lucid_gpu.ops.group_norm import normalize
from lucid_gpu.ops.native_functions import norm_except_dim as _norm_except_dim
from lucid_gpu.tape.modes import no_grad
from lucid_gpu.tensor import Tensor

__all__ = ["orthogonal", "spectral_norm", "weight_norm"]


def norm_except_dim(v: Tensor, dim: int | None) -> Tensor:
    """`lucid_gpu.norm_except_dim`, over all dimensions for None."""
    return _norm_except_dim(v, 2, -1 if dim is None else dim)


class _WeightNorm(Module):
    """``v * (g / norm(v))``."""

    def __init__(self, dim: int | None = 0) -> None:
        super().__init__()
        self.dim = dim

    @in_float32
    def forward(self, weight_g: Tensor, weight_v: Tensor) -> Tensor:
        return weight_v * (weight_g / norm_except_dim(weight_v, self.dim))

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Length and direction of a weight."""
        return norm_except_dim(weight, self.dim), weight


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """Let a weight be ``g * v / norm(v)``; Salimans and Kingma, "Weight Normalization" (2016).

    Parameters
    ----------
    module : Module
    name : str
    dim : int, optional
        The dimension each of whose slices has a length of its own; None gives the whole one.

    Raises
    ------
    ValueError
        If there is no such tensor.
    """
    _require(module, name)
    register_parametrization(module, name, _WeightNorm(dim), unsafe=True)

    def from_old_names(state_dict: Any, prefix: str, *rest: Any) -> None:
        """State dicts of the `weight_norm` of old call them ``name_g`` and ``name_v``."""
        old = [f"{prefix}{name}_{k}" for k in "gv"]
        if all(key in state_dict for key in old):
            for k, key in enumerate(old):
                new = f"{prefix}parametrizations.{name}.original{k}"
                state_dict[new] = state_dict.pop(key)

    module._register_load_state_dict_pre_hook(from_old_names)
    return module


def _require(module: Module, name: str) -> None:
    if getattr(module, name, None) is None:
        raise ValueError(f"Module '{module}' has no parameter or buffer with name '{name}'")


def dim_of_outputs(module: Module) -> int:
    """Which dimension of a layer's weight are its outputs."""
    return 1 if isinstance(module, _ConvTransposeNd) else 0


class _SpectralNorm(Module):
    """``W / sigma(W)``, the largest singular value followed by power iteration."""

    first_steps = 15
    order = "uv"  # which vector a step computes first

    def __init__(self, weight: Tensor, n_power_iterations: int, dim: int, eps: float) -> None:
        super().__init__()
        if n_power_iterations <= 0:
            raise ValueError(
                "Expected n_power_iterations to be positive, but got n_power_iterations="
                f"{n_power_iterations}"
            )
        if not -weight.ndim <= dim < weight.ndim:
            raise IndexError(
                "Dimension out of range (expected to be in range of "
                f"[{-weight.ndim}, {weight.ndim - 1}] but got {dim})"
            )
        self.n_power_iterations, self.dim, self.eps = n_power_iterations, dim, eps
        if weight.ndim > 1:
            matrix = self._matrix(weight.detach())
            with no_grad():
                for key, n in (("_u", matrix.shape[0]), ("_v", matrix.shape[1])):
                    start = normalize(matrix.new_empty(n).normal_(), dim=0, eps=eps)
                    self.register_buffer(key, start)
                self._iterate(matrix, self.first_steps)

    def _matrix(self, weight: Tensor) -> Tensor:
        return weight.movedim(self.dim, 0).reshape(weight.shape[self.dim], -1)

    def _iterate(self, matrix: Tensor, times: int) -> None:
        with no_grad():
            for vector in self.order * times:
                if vector == "u":
                    self._u.copy_(normalize(matrix @ self._v, dim=0, eps=self.eps))
                else:
                    self._v.copy_(normalize(matrix.T @ self._u, dim=0, eps=self.eps))

    def forward(self, weight: Tensor) -> Tensor:
        if weight.ndim == 1:
            return normalize(weight, dim=0, eps=self.eps)
        matrix = self._matrix(weight)
        if self.training:
            self._iterate(matrix.detach(), self.n_power_iterations)
        u, v = self._u.clone(), self._v.clone()
        return weight / (u * (matrix @ v)).sum()

    def right_inverse(self, value: Tensor) -> Tensor:
        """The value itself."""
        return value


def spectral_norm(
    module: Module,
    name: str = "weight",
    n_power_iterations: int = 1,
    eps: float = 1e-12,
    dim: int | None = None,
) -> Module:
    """Divide a weight by its largest singular value.

    Miyato et al., "Spectral Normalization for Generative Adversarial Networks" (2018).

    Parameters
    ----------
    module : Module
    name : str
    n_power_iterations : int
        At each reading in training.
    eps : float
    dim : int, optional
        Which dimension are the outputs: 1 for transposed convolutions, else 0.

    Raises
    ------
    ValueError
        If there is no such tensor, and for no iterations.
    IndexError
        If there is no such dimension.
    """
    _require(module, name)
    weight: Any = getattr(module, name)
    if dim is None:
        dim = dim_of_outputs(module)
    return register_parametrization(
        module, name, _SpectralNorm(weight, n_power_iterations, dim, eps)
    )
