"""Ops whose files are imported when one is first asked for: most programs never do.

`lucid_gpu.ops.index` names them, so that `Tensor` and `lucid_gpu` know them before the import.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from types import FunctionType
from typing import Any

from lucid_gpu.ops import index
from lucid_gpu.tensor import Tensor

__all__ = ["FUNCTIONS", "findable", "load"]

FUNCTIONS: dict[str, str] = {
    name: file for file, names in index.FUNCTIONS.items() for name in names.split()
}


class LazyMethod:
    """A method that makes way for the real one when it is first looked up."""

    def __init__(self, file: str, name: str) -> None:
        self.file, self.name = file, name

    def __get__(self, tensor: Tensor | None, owner: type[Tensor]) -> Any:
        function = load(self.file, self.name)
        setattr(Tensor, self.name, function)
        return function.__get__(tensor, owner)


def load(file: str, name: str) -> Callable[..., Any]:
    """The op called ``name``, which ``file`` of this folder defines."""
    module = importlib.import_module(f"lucid_gpu.ops.{file}")
    ops = (*getattr(module, "METHODS", ()), *getattr(module, "FUNCTIONS", ()))
    return next(function for function in ops if function.__name__ == name)


def findable(namespace: dict[str, Any], module: str) -> None:
    """Name functions that some factory made after the place where pickle can find them: here."""
    for name, function in namespace.items():
        if type(function) is not FunctionType or name[0] == "_":
            continue
        found: Any = sys.modules.get(function.__module__)
        for part in function.__qualname__.split("."):
            found = getattr(found, part, None)
        if found is not function:
            function.__module__, function.__qualname__ = module, name


for _file, _names in index.METHODS.items():
    for _name in _names.split():
        setattr(Tensor, _name, LazyMethod(_file, _name))
