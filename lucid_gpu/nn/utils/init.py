"""Modules made without drawing their first values."""

from __future__ import annotations

import inspect
from typing import Any

from lucid_gpu.nn.modules.module import Module

__all__ = ["skip_init"]


def skip_init(module_cls: Any, *args: Any, **kwargs: Any) -> Any:
    """A module whose parameters are of the right shape and of no particular values.

    Parameters
    ----------
    module_cls : type
        A `Module` class that takes ``device=``.
    *args, **kwargs
        Of its constructor.

    Raises
    ------
    RuntimeError
        For anything but a module class, and one that takes no ``device=``.
    """
    if not issubclass(module_cls, Module):
        raise RuntimeError(f"Expected a Module; got {module_cls}")
    if "device" not in inspect.signature(module_cls).parameters:
        raise RuntimeError("Module must support a 'device' arg to skip initialization")
    silent = type(module_cls.__name__, (module_cls,), {"reset_parameters": lambda self: None})
    made = silent(*args, **kwargs)
    made.__class__ = module_cls
    return made
