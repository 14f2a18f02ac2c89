"""Functions whose code is exchanged for a while, so that somebody sees their arguments first.

An op is a plain function, called by name from many places. All references to a function share its
code, so none is missed when that is exchanged; and as soon as nobody asks any more, the function is
what it was: ordinary programs pay nothing.
"""

from __future__ import annotations

import inspect
import threading
import types
from collections.abc import Callable, Sequence
from typing import Any, Protocol

__all__ = ["Exchanged", "Layer", "Place", "changing", "place_of"]


class Layer(Protocol):
    """What sees the arguments of the function at ``place``; the highest comes first."""

    height: int
    place: Place

    def run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any: ...


class Place:
    """One function whose code is exchanged while layers lie over it.

    Attributes
    ----------
    function : function
        Calling it comes to the highest layer.
    body : function
        What it does otherwise.
    """

    def __init__(self, function: Any) -> None:
        self.function = function
        self.code = code = function.__code__
        function.__signature__ = inspect.signature(function)  # else that of the exchanged code
        self.exchanged = _entry(self, code)
        self.body = types.FunctionType(
            code,
            function.__globals__,
            function.__name__,
            function.__defaults__,
            function.__closure__,
        )
        self.body.__kwdefaults__ = function.__kwdefaults__
        self.layers: tuple[Layer, ...] = ()

    def add(self, layer: Layer) -> None:
        self.layers = tuple(sorted([*self.layers, layer], key=lambda one: one.height))
        self.function.__code__ = self.exchanged

    def remove(self, layer: Layer) -> None:
        self.layers = tuple([one for one in self.layers if one is not layer])
        if not self.layers:
            self.function.__code__ = self.code

    def run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        layers = self.layers
        return layers[-1].run(args, kwargs) if layers else self.body(*args, **kwargs)

    def below(self, height: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call what lies under a layer."""
        for layer in reversed(self.layers):
            if layer.height < height:
                return layer.run(args, kwargs)
        return self.body(*args, **kwargs)


def place_of(function: Any) -> Place:
    """The place of a function; it has only one."""
    found = _places.get(function)
    if found is None:
        found = _places[function] = Place(function)
    return found


class Exchanged:
    """Layers that lie over their places while any thread is inside a ``with`` of this.

    Parameters
    ----------
    make : callable
        Gives the layers, when they are first wanted.
    """

    def __init__(self, make: Callable[[], Sequence[Layer]]) -> None:
        self.make = make
        self.layers: Sequence[Layer] | None = None
        self.users = 0

    def __enter__(self) -> None:
        with changing:
            if self.layers is None:
                self.layers = self.make()
            if not self.users:
                for layer in self.layers:
                    layer.place.add(layer)
            self.users += 1

    def __exit__(self, *_: object) -> None:
        with changing:
            self.users -= 1
            if not self.users:
                for layer in self.layers or ():
                    layer.place.remove(layer)


changing = threading.Lock()  # one for all: vmap, autocast and other GPUs share places
_places: dict[Any, Place] = {}
_PLACE = 0.123456789


def _entry(place: Place, code: types.CodeType) -> types.CodeType:
    """Code that calls ``place.run``, with the free variables of ``code``, which it must have."""
    names = code.co_freevars
    lines = [f"  {name} = None" for name in names] + [
        "  def entry(*args, **kwargs):",
        f"    return {_PLACE}.run(args, kwargs)",
        f"    ({', '.join(names)})" if names else "",
        "  return entry",
    ]
    namespace: dict[str, Any] = {}
    exec("def make():\n" + "\n".join(lines), namespace)
    made: types.CodeType = namespace["make"]().__code__
    return made.replace(
        co_consts=tuple([place if c == _PLACE else c for c in made.co_consts]),
        co_name=code.co_name,
        co_filename=code.co_filename,
        co_firstlineno=code.co_firstlineno,
    )
