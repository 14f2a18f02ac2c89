"""Modules that are one function of `functional` and its settings: each a row of a table."""

import inspect
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any

from lucid_gpu.nn import functional as F
from lucid_gpu.nn.modules.module import Module
from lucid_gpu.tensor import Tensor

__all__ = ["NEEDED", "Row", "row", "signature_of"]

NEEDED = inspect.Parameter.empty


class Row(Module):
    """``function(*inputs, **settings)``, the base class of all rows. Weights are buffers."""

    kind: Any = inspect.Parameter.POSITIONAL_OR_KEYWORD  # how settings are given
    _name: str  # of the function in `functional`, where it is looked up at each call
    _signature: inspect.Signature  # of the constructor

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Settings by position or name; TypeError for others."""
        super().__init__()
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{type(self).__name__}.__init__() {error}") from None
        bound.apply_defaults()
        settings = self._read(bound.arguments)
        self._settings = tuple(settings)
        for name, value in settings.items():
            if name.endswith("weight"):
                self.register_buffer(name, value)
            else:
                setattr(self, name, value)

    def _read(self, settings: dict[str, Any]) -> dict[str, Any]:
        """The settings as they are kept; those that cannot be are refused."""
        return settings

    def forward(self, *inputs: Any, **named: Any) -> Tensor:
        settings = {name: getattr(self, name) for name in self._settings}
        called: Tensor = getattr(F, self._name)(*inputs, **named, **settings)
        return called


def signature_of(
    settings: Mapping[str, Any], kind: Any = inspect.Parameter.POSITIONAL_OR_KEYWORD
) -> inspect.Signature:
    """The signature of a constructor that takes settings, which are given with their defaults."""
    return inspect.Signature([inspect.Parameter(n, kind, default=d) for n, d in settings.items()])


def row(base: type[Row], name: str, function: Callable[..., Tensor], /, **settings: Any) -> Any:
    """A module class of one function; ``settings`` are its arguments and their defaults."""
    body = {
        "_name": next(n for n, f in vars(F).items() if f is function),
        "_signature": signature_of(settings, base.kind),
        "__doc__": _doc(function, settings),
        "__module__": base.__module__,
    }
    return type(name, (base,), body)


def _doc(function: Callable[..., Tensor], settings: Collection[str]) -> str:
    """The function's docstring, with the settings as parameters and how the module is called."""
    summary, *more = inspect.cleandoc(function.__doc__ or "").split("\n\n", 1)
    before, head, after = "".join(more).partition("Parameters\n----------\n")
    parameters, gap, rest = after.rstrip().partition("\n\n")
    entries = re.split(r"\n(?=\w)", parameters)
    own = [e for e in entries if {*re.split(r" :|, ", e.strip())} & {*settings}]
    tensors = entries[: entries.index(own[0])] if own else entries
    called = [f"- {entry.strip()}" for entry in tensors if entry]
    function_name = function.__name__.lstrip("_")
    where = f"The layer is called with the tensor arguments of `nn.functional.{function_name}`."
    parts = [summary, before.rstrip(), head + "\n".join(own) if own else "", rest.rstrip()]
    notes = "\n".join([f"Notes\n-----\n{where}", *(["", *called] if called else [])])
    return "\n\n".join([part for part in [*parts, notes] if part])
