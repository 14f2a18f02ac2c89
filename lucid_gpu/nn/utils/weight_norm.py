"""`weight_norm` of old: a hook computes the weight before each forward."""

from __future__ import annotations

import warnings
from typing import Any, TypeVar

from lucid_gpu.nn.modules.module import Module
from lucid_gpu.nn.parameter import Parameter, UninitializedParameter
from lucid_gpu.nn.utils.parametrizations import _WeightNorm
from lucid_gpu.tensor import Tensor

__all__ = ["WeightNorm", "remove_weight_norm", "weight_norm"]

_M = TypeVar("_M", bound=Module)


class WeightNorm:
    """Computes ``name`` from ``name_g`` and ``name_v``."""

    kind = "weight_norm"

    def __init__(self, module: Module, name: str, dim: int | None) -> None:
        self.name, self.norm = name, _WeightNorm(dim)
        g, v = self.norm.right_inverse(taken(module, name))
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


def taken(module: Module, name: str) -> Parameter:
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


def added(module: _M, kind: Any, name: str, *settings: Any) -> _M:
    if _find(module, kind.kind, name) is not None:
        raise RuntimeError(f"Cannot register two {kind.kind} hooks on the same parameter {name}")
    if isinstance(module._parameters.get(name), UninitializedParameter):
        raise ValueError(
            f"The module passed to `{kind.__name__}` can't have uninitialized parameters. "
            f"Make sure to run the dummy forward before applying {kind.kind}"
        )
    hook = kind(module, name, *settings)
    setattr(module, name, hook.start(module))
    module.register_forward_pre_hook(hook)
    return module


def removed(module: _M, kind: str, name: str) -> _M:
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
    return added(module, WeightNorm, name, dim)


def remove_weight_norm(module: _M, name: str = "weight") -> _M:
    """Make the weight a parameter again; ValueError if it has no `weight_norm` of old."""
    return removed(module, "weight_norm", name)
