"""`spectral_norm` of old: a hook computes the weight before each forward."""

from __future__ import annotations

from typing import Any, TypeVar

from lucid_gpu.nn.modules.module import Module
from lucid_gpu.nn.utils.parametrizations import _SpectralNorm, dim_of_outputs
from lucid_gpu.nn.utils.weight_norm import WeightNorm, added, removed, taken
from lucid_gpu.ops.linalg.svd import pinv
from lucid_gpu.tape.modes import no_grad
from lucid_gpu.tensor import Tensor

__all__ = ["SpectralNorm", "remove_spectral_norm", "spectral_norm"]

_M = TypeVar("_M", bound=Module)


class _Followed(_SpectralNorm):
    """The same, which steps to ``v`` before ``u`` and starts without steps: PyTorch's of old."""

    first_steps = 0
    order = "vu"


class SpectralNorm(WeightNorm):
    """Computes ``name`` from ``name_orig``, with ``name_u`` and ``name_v``."""

    kind = "spectral_norm"

    def __init__(self, module: Module, name: str, *settings: Any) -> None:
        weight = taken(module, name)
        self.name, norm = name, _Followed(weight, *settings)
        self.settings = norm.n_power_iterations, norm.dim, norm.eps
        module.register_parameter(f"{name}_orig", weight)
        module.register_buffer(f"{name}_u", norm._u)
        module.register_buffer(f"{name}_v", norm._v)
        module._register_state_dict_hook(self.saved)
        module._register_load_state_dict_pre_hook(self.loading)

    def saved(self, module: Module, state: Any, prefix: str, metadata: dict[str, Any]) -> None:
        """Write PyTorch's version of this hook's entries into the metadata."""
        metadata.setdefault("spectral_norm", {})[f"{self.name}.version"] = 1

    def loading(
        self, state: Any, prefix: str, metadata: dict[str, Any], strict: bool, missing: list[str],
        *others: Any,
    ) -> None:  # fmt: skip
        """Make ``v`` from the weight that files had before PyTorch 1.0, in its place."""
        if metadata.get("spectral_norm", {}).get(f"{self.name}.version", 0) >= 1:
            return
        key = prefix + self.name
        if key not in state and all(f"{key}_{end}" in state for end in ("orig", "u", "v")):
            return
        lacking = [k for k in (f"{key}_orig", key, f"{key}_u") if k not in state]
        if lacking:
            missing += lacking if strict else []
            return
        with no_grad():
            original, u = state[f"{key}_orig"], state[f"{key}_u"]
            sigma = (original / state.pop(key)).mean()
            matrix = original.movedim(self.settings[1], 0).reshape(len(u), -1)
            v = pinv(matrix.T @ matrix) @ (matrix.T @ u)
            state[f"{key}_v"] = v * (sigma / (u @ (matrix @ v)))

    def start(self, module: Module) -> Tensor:
        weight: Tensor = getattr(module, f"{self.name}_orig").data
        return weight

    def compute(self, module: Module, training: bool | None = None) -> Tensor:
        norm: Any = object.__new__(_Followed)
        Module.__init__(norm)
        norm.n_power_iterations, norm.dim, norm.eps = self.settings
        norm.training = module.training if training is None else training
        norm._u, norm._v = (getattr(module, f"{self.name}_{k}") for k in "uv")
        result: Tensor = norm(getattr(module, f"{self.name}_orig"))
        return result

    def last(self, module: Module) -> Tensor:
        return self.compute(module, training=False)

    def remove(self, module: Module) -> None:
        for end in ("orig", "u", "v"):
            delattr(module, f"{self.name}_{end}")
        own = (self.saved, self.loading)
        for hooks in (module._state_dict_hooks, module._load_state_dict_pre_hooks):
            for key in [k for k, h in hooks.items() if getattr(h, "hook", h) in own]:
                del hooks[key]


def spectral_norm(
    module: _M,
    name: str = "weight",
    n_power_iterations: int = 1,
    eps: float = 1e-12,
    dim: int | None = None,
) -> _M:
    """`parametrizations.spectral_norm` of old, with a parameter ``name_orig`` and two buffers.

    Raises
    ------
    RuntimeError
        If the parameter has one.
    AttributeError
        If there is no such parameter.
    """
    if dim is None:
        dim = dim_of_outputs(module)
    return added(module, SpectralNorm, name, n_power_iterations, dim, eps)


def remove_spectral_norm(module: _M, name: str = "weight") -> _M:
    """Make the weight a parameter again; ValueError if it has no `spectral_norm` of old."""
    return removed(module, "spectral_norm", name)
