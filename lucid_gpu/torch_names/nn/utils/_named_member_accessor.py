"""`torch.nn.utils._named_member_accessor`: a module's tensors exchanged by name."""

from __future__ import annotations

from typing import Any

from lucid_gpu.nn.modules.module import Module
from lucid_gpu.tensor import Tensor

__all__ = ["swap_tensor"]

_MISSING: Any = object()


def swap_tensor(module: Module, name: str, tensor: Any, allow_missing: bool = False) -> Any:
    """Put a tensor where a module has another one, and return that.

    Parameters
    ----------
    name : str
        Of the module's own parameter, buffer or attribute.
    tensor : Tensor or None
    allow_missing : bool
        Whether the module may have nothing of this name.

    Raises
    ------
    TypeError
        For anything else than a module and tensors.
    KeyError
        For an empty name, and one with a dot.
    AttributeError
        If the module has nothing of this name.
    """
    if not isinstance(module, Module):
        raise TypeError(f"{module} is not an instance of torch.nn.Module")
    if not isinstance(tensor, (Tensor, type(None))) and tensor is not _MISSING:
        raise TypeError(f"{tensor} is not an instance of torch.Tensor")
    if not name or "." in name:
        reason = 'contain "."' if name else 'be empty string ""'
        raise KeyError(f"tensor name can't {reason}")
    for held in (module._parameters, module._buffers):
        if name in held:
            return _exchange(held, name, tensor)
    old = getattr(module, name, _MISSING)
    if old is _MISSING and not allow_missing:
        raise AttributeError(f"{module._get_name()} has no attribute `{name}`")
    if not isinstance(old, (Tensor, type(None))) and old is not _MISSING:
        raise TypeError(f"attribute `{name}`: {old} is not an instance of torch.Tensor")
    if tensor is not _MISSING:
        setattr(module, name, tensor)
    elif old is not _MISSING:
        delattr(module, name)
    return old


def _exchange(held: Any, name: str, tensor: Any) -> Any:
    old = held.pop(name) if tensor is _MISSING else held[name]
    if tensor is not _MISSING:
        held[name] = tensor
    return old
