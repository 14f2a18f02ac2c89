"""What a module answers when asked for a name that it does not hold: imported now, or absent.

Names of PyTorch that are absent on purpose say what to write instead.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Container, Mapping
from typing import Any

__all__ = ["beside", "imported", "lacking"]

_INSTEAD = {
    "export": "models are saved by their state_dict()",
    "quantization": "there is no quantization; amp.autocast computes in 16 bits",
}


def lacking(module: str, name: str) -> AttributeError:
    """The error of a module that has no such name; ``module`` is "" or, say, "nn"."""
    path = f"{module}.{name}".lstrip(".")
    where = f"lucid_gpu.{module}".rstrip(".")
    why = f": {_INSTEAD[path]} (docs/names.md)" if path in _INSTEAD else ""
    return AttributeError(f"module {where!r} has no attribute {name!r}{why}")


def imported(
    namespace: dict[str, Any],
    name: str,
    names: Mapping[str, str] | None = None,
    modules: Container[str] = (),
) -> Any:
    """What ``__getattr__`` of a module returns: it is imported when it is first asked for.

    Parameters
    ----------
    namespace : dict
        The module's `globals()`, which keep what is found.
    name : str
    names : mapping, optional
        In which module a name is, such as ``{"load": "lucid_gpu.serialization"}``.
    modules : container of str
        Modules of this package.

    Raises
    ------
    AttributeError
        For any other name.
    """
    package = namespace["__name__"]
    if name in modules:
        return importlib.import_module(f"{package}.{name}")
    if names is None or name not in names:
        raise lacking(package.removeprefix("lucid_gpu").lstrip("."), name)
    value = namespace[name] = getattr(importlib.import_module(names[name]), name)
    return value


def beside(namespace: dict[str, Any], names: Mapping[str, str]) -> Callable[[str], Any]:
    """The ``__getattr__`` of a module some of whose names lie in files that import it.

    Parameters
    ----------
    namespace : dict
        The module's `globals()`.
    names : mapping
        By file, such as ``{"lucid_gpu.nn.modules.lazy": "LazyConv1d LazyConv2d"}``.
    """
    table = {name: file for file, listed in names.items() for name in listed.split()}
    return lambda name: imported(namespace, name, table)
