"""`weight_norm` and `spectral_norm` of old: a hook computes the weight before each forward."""

from __future__ import annotations

import warnings
from typing import Any, TypeVar

from lucid_gpu.nn.modules.module import Module
from lucid_gpu.nn.parameter import Parameter, UninitializedParameter
from lucid_gpu.nn.utils.parametrizations import _SpectralNorm, _WeightNorm, dim_of_outputs
from lucid_gpu.ops.linalg.svd import pinv
from lucid_gpu.tape.modes import no_grad
from lucid_gpu.tensor import Tensor

__all__ = ["remove_spectral_norm", "remove_weight_norm", "spectral_norm", "weight_norm"]

_M = TypeVar("_M", bound=Module)


class _WeightNormHook:
    """Computes ``name`` from ``name_g`` and ``name_v``."""

    kind = "weight_norm"

    def __init__(self, module: Module, name: str, dim: int | None) -> None:
        self.name, self.norm = name, _WeightNorm(dim)
        g, v = self.norm.right_inverse(_taken(module, name))
        module.register_parameter(f"{name}_g", Parameter(g.detach()))
        module.register_parameter(f"{name}_v", Parameter(v.detach()))

    def compute(self, module: Module) -> Tensor:
        return self.norm(getattr(module, f"{self.name}_g"), getattr(module, f"{self.name}_v"))

    start = last = compute

    def remove(self, module: Module) -> None:
        delattr(module, f"{self.name}_g")
        delattr(module, f"{self.name}_v")

    def __call__(self, module: Module, args: Any) -> None:
        setattr(module, self.name, self.compute(module))


class _Followed(_SpectralNorm):
    """The same, which steps to ``v`` before ``u`` and starts without steps: PyTorch's of old."""

    first_steps = 0
    order = "vu"


class _SpectralNormHook(_WeightNormHook):
    """Computes ``name`` from ``name_orig``, with ``name_u`` and ``name_v``."""

    kind = "spectral_norm"

    def __init__(self, module: Module, name: str, *settings: Any) -> None:
        weight = _taken(module, name)
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


def _taken(module: Module, name: str) -> Parameter:
    weight = module._parameters.get(name)
    if weight is None:
        raise AttributeError(f"'{type(module).__name__}' object has no attribute '{name}'")
    del module._parameters[name]
    return weight


def _find(module: Module, kind: str, name: str) -> int | None:
    for key, hook in module._forward_pre_hooks.items():
        if getattr(hook, "kind", None) == kind and hook.name == name:
            return key
    return None


def _added(module: _M, kind: Any, name: str, *settings: Any) -> _M:
    if _find(module, kind.kind, name) is not None:
        raise RuntimeError(f"Cannot register two {kind.kind} hooks on the same parameter {name}")
    if isinstance(module._parameters.get(name), UninitializedParameter):
        title = {"weight_norm": "WeightNorm", "spectral_norm": "SpectralNorm"}[kind.kind]
        raise ValueError(
            f"The module passed to `{title}` can't have uninitialized parameters. Make sure to run "
            f"the dummy forward before applying {kind.kind}"
        )
    hook = kind(module, name, *settings)
    setattr(module, name, hook.start(module))
    module.register_forward_pre_hook(hook)
    return module


def _removed(module: _M, kind: str, name: str) -> _M:
    key = _find(module, kind, name)
    if key is None:
        raise ValueError(f"{kind} of '{name}' not found in {module}")
    hook = module._forward_pre_hooks.pop(key)
    weight = hook.last(module).detach()
    delattr(module, name)
    hook.remove(module)
    setattr(module, name, Parameter(weight))
    return module


def weight_norm(module: _M, name: str = "weight", dim: int | None = 0) -> _M:
    """`parametrizations.weight_norm` of old, with parameters ``name_g`` and ``name_v``.

    Raises
    ------
    RuntimeError
        If the parameter has one.
    AttributeError
        If there is no such parameter.
    """
    warnings.warn(
        "`torch.nn.utils.weight_norm` is deprecated in favor of "
        "`torch.nn.utils.parametrizations.weight_norm`.",
        FutureWarning,
        stacklevel=2,
    )
    return _added(module, _WeightNormHook, name, dim)


def remove_weight_norm(module: _M, name: str = "weight") -> _M:
    """Make the weight a parameter again; ValueError if it has no `weight_norm` of old."""
    return _removed(module, "weight_norm", name)


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
    return _added(module, _SpectralNormHook, name, n_power_iterations, dim, eps)


def remove_spectral_norm(module: _M, name: str = "weight") -> _M:
    """Make the weight a parameter again; ValueError if it has no `spectral_norm` of old."""
    return _removed(module, "spectral_norm", name)
