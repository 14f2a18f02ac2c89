"""How files above a class give it methods, at once or when one is first asked for.

`attach` is the one place where a class gets attributes from outside its own file. Most ops no
program asks for, so their files are imported late: `lucid_gpu.ops.index` names them, and `Tensor`
and `lucid_gpu` know them before the import. The same index names methods of `Tensor` that need what
lies above `lucid_gpu.ops`, such as ``__repr__`` and ``__array_function__``. A file below calls
those as methods, and imports nothing from above.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable
from typing import Any

from lucid_gpu.ops import index
from lucid_gpu.tape import overrides
from lucid_gpu.tape.door import body_of
from lucid_gpu.tensor import Tensor

__all__ = ["FUNCTIONS", "attach", "findable", "load"]

FUNCTIONS: dict[str, str] = {
    name: file for file, names in index.FUNCTIONS.items() for name in names.split()
}


class LazyMethod:
    """A method that makes way for the real one when it is first looked up."""

    def __init__(self, module: str, name: str) -> None:
        self.module, self.name = module, name

    def load(self) -> Callable[..., Any]:
        """The method itself; its file is imported now."""
        return _listed(self.module, "METHODS", self.name)

    def __get__(self, tensor: Tensor | None, owner: type[Tensor]) -> Any:
        function = self.load()
        attach(Tensor, **{self.name: function})
        return function.__get__(tensor, owner)


def attach(owner: type, *functions: Callable[..., Any], **named: Any) -> None:
    """Give a class methods under the functions' own names, and attributes under other names."""
    for function in functions:
        named[function.__name__] = function
    for name, attribute in named.items():
        _name_inside(attribute, name)
        if owner is Tensor:
            attribute = overrides.as_method(name, attribute)
        setattr(owner, name, attribute)


def load(file: str, name: str) -> Callable[..., Any]:
    """The op called ``name`` in ``FUNCTIONS`` of a file of this folder."""
    return _listed(f"lucid_gpu.ops.{file}", "FUNCTIONS", name)


def _listed(module: str, table: str, name: str) -> Callable[..., Any]:
    """The function of this name in a module's table; the module is imported now."""
    listed: Iterable[Callable[..., Any]] = getattr(importlib.import_module(module), table)
    return next(function for function in listed if function.__name__ == name)


def named(function: Callable[..., Any], name: str, doc: str | None) -> Callable[..., Any]:
    """Return a function that a factory made, under its name, with its documentation."""
    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return function


def findable(namespace: dict[str, Any], module: str) -> None:
    """Name functions that some factory made after the place where pickle can find them: here.

    Ops among them that no public function wraps show themselves to those who override them.
    """
    for name, function in namespace.items():
        if type(function) not in overrides.METHODS or name[0] == "_":
            continue
        if body_of(function) is not function:
            function.__dict__.setdefault("shown", function)
        resolved: Any = sys.modules.get(function.__module__)
        for part in function.__qualname__.split("."):
            resolved = getattr(resolved, part, None)
        if resolved is not function:
            function.__module__, function.__qualname__ = module, name
        _name_inside(function, name)


def _name_inside(function: Any, name: str) -> None:
    """Name what a factory made, down to the function whose name Python's errors say."""
    while type(function) in overrides.METHODS:
        if "<locals>" in function.__qualname__:
            function.__qualname__ = name
        function = function.__dict__.get("__wrapped__")


_MODULES = {f"ops.{file}": names for file, names in index.METHODS.items()} | index.ABOVE
for _module, _names in _MODULES.items():
    for _name in _names.split():
        attach(Tensor, **{_name: LazyMethod(f"lucid_gpu.{_module}", _name)})
