"""Lists and dictionaries of parameters: attributes of a module, which registers them."""

from __future__ import annotations

import operator
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from lucid_gpu.nn.modules.module import Module
from lucid_gpu.nn.parameter import Parameter
from lucid_gpu.tensor import Tensor

__all__ = ["ParameterDict", "ParameterList"]


def _kept(value: Any) -> Any:
    """Tensors become parameters; anything else stays what it is."""
    plain = isinstance(value, Tensor) and not isinstance(value, Parameter)
    return Parameter(value) if plain else value


def _lines(pairs: Iterable[tuple[Any, Any]], kind_of: Callable[[Tensor], Any]) -> str:
    """What is held, a line each; ``kind_of`` is how PyTorch calls a tensor's type there."""
    return "\n".join([f"  ({key}): {_described(value, kind_of)}" for key, value in pairs])


def _described(value: Any, kind_of: Callable[[Tensor], Any]) -> str:
    if not isinstance(value, Tensor):
        return f"Object of type: {type(value).__name__}"
    sizes = "x".join(map(str, value.shape))
    kind = "Parameter" if isinstance(value, Parameter) else "Tensor"
    where = "" if value.device.type == "cpu" else f" ({value.device})"
    return f"{kind} containing: [{kind_of(value)} of size {sizes}{where}]"


class ParameterList(Module):
    """A list whose tensors are parameters of the module that holds it.

    Parameters
    ----------
    values : iterable, optional
        Tensors become parameters.
    """

    def __init__(self, values: Iterable[Any] | None = None) -> None:
        super().__init__()
        self._size = 0
        if values is not None:
            self.extend(values)

    def _name_of(self, index: int) -> str:
        index = operator.index(index)
        if not -self._size <= index < self._size:
            raise IndexError(f"index {index} is out of range")
        return str(index % self._size)

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return type(self)([self[i] for i in range(self._size)[index]])
        return getattr(self, self._name_of(index))

    def __setitem__(self, index: int, value: Any) -> None:
        setattr(self, self._name_of(index), _kept(value))

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Any]:
        return iter([self[i] for i in range(self._size)])

    def __iadd__(self, values: Iterable[Any]) -> ParameterList:
        return self.extend(values)

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if not name.isdigit()]

    def append(self, value: Any) -> ParameterList:
        """Add a value at the end; returns self."""
        self._size += 1
        self[self._size - 1] = value
        return self

    def extend(self, values: Iterable[Any]) -> ParameterList:
        """Append an iterable of values; TypeError for a tensor or non-iterable. Returns self."""
        if not isinstance(values, Iterable) or isinstance(values, Tensor):
            raise TypeError(
                "ParameterList.extend should be called with an iterable, but got "
                + type(values).__name__
            )
        for value in list(values):
            self.append(value)
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("ParameterList should not be called.")

    def extra_repr(self) -> str:
        return _lines(enumerate(self), lambda t: t.dtype)


class ParameterDict(Module):
    """A dictionary, in order, whose tensors are parameters of the module that holds it.

    Parameters
    ----------
    parameters : mapping of str, or iterable of pairs, optional
        Tensors become parameters.
    """

    def __init__(self, parameters: Any = None) -> None:
        super().__init__()
        self._keys: dict[str, None] = {}
        if parameters is not None:
            self.update(parameters)

    def __getitem__(self, key: str) -> Any:
        return getattr(self, _checked(key))

    def __setitem__(self, key: str, value: Any) -> None:
        setattr(self, _checked(key), _kept(value))
        self._keys[key] = None

    def __delitem__(self, key: str) -> None:
        del self._keys[key]
        delattr(self, _checked(key))

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __reversed__(self) -> Iterator[str]:
        return reversed(list(self._keys))

    def __contains__(self, key: object) -> bool:
        return key in self._keys

    def __or__(self, other: ParameterDict) -> ParameterDict:
        joined = self.copy()
        joined.update(other)
        return joined

    def __ror__(self, other: ParameterDict) -> ParameterDict:
        joined = other.copy()
        joined.update(self)
        return joined

    def __ior__(self, other: ParameterDict) -> ParameterDict:
        self.update(other)
        return self

    def keys(self) -> Iterable[str]:
        """The names."""
        return self._keys.keys()

    def values(self) -> Iterable[Any]:
        """The parameters."""
        return (self[key] for key in self._keys)

    def items(self) -> Iterable[tuple[str, Any]]:
        """Pairs of name and parameter."""
        return ((key, self[key]) for key in self._keys)

    def copy(self) -> ParameterDict:
        """Another dictionary of the same parameters."""
        return ParameterDict(self.items())  # pairs keep their order

    def setdefault(self, key: str, default: Any = None) -> Any:
        """What stands at a key, after putting ``default`` there if nothing did."""
        if key not in self._keys:
            self[key] = default
        return self[key]

    def get(self, key: str, default: Any = None) -> Any:
        """What stands at a key, or ``default``."""
        return self[key] if key in self._keys else default

    def fromkeys(self, keys: Iterable[str], default: Any = None) -> ParameterDict:
        """A dictionary with one value at all keys."""
        return ParameterDict((key, default) for key in keys)

    def pop(self, key: str) -> Any:
        """Remove and return a parameter; AttributeError if there is none."""
        value = self[key]
        del self[key]
        return value

    def popitem(self) -> tuple[str, Any]:
        """Remove and return the last pair."""
        key = next(reversed(self._keys))
        return key, self.pop(key)

    def clear(self) -> None:
        """Remove every parameter."""
        for key in list(self._keys):
            del self[key]

    def update(self, parameters: Any) -> None:
        """Add or replace parameters from a mapping or an iterable of pairs.

        Raises
        ------
        TypeError, ValueError
            For anything but a mapping or an iterable of pairs.
        """
        if not isinstance(parameters, Iterable):
            raise TypeError(
                "ParametersDict.update should be called with an iterable of key/value pairs, but "
                f"got {type(parameters).__name__}"
            )
        if isinstance(parameters, (OrderedDict, ParameterDict)):
            parameters = parameters.items()
        elif isinstance(parameters, Mapping):  # in PyTorch's order, which `parameters()` shows
            parameters = sorted(parameters.items())
        for position, pair in enumerate(list(parameters)):
            if not isinstance(pair, Iterable):
                raise TypeError(
                    f"ParameterDict update sequence element #{position} should be Iterable; is "
                    + type(pair).__name__
                )
            key_and_value = tuple(pair)
            if len(key_and_value) != 2:
                raise ValueError(
                    f"ParameterDict update sequence element #{position} has length "
                    f"{len(key_and_value)}; 2 is required"
                )
            self[key_and_value[0]] = key_and_value[1]

    def extra_repr(self) -> str:
        return _lines(self.items(), lambda t: t.type())


def _checked(key: Any) -> str:
    if not isinstance(key, str):
        raise TypeError(
            "Index given to ParameterDict cannot be used as a key as it is not a string (type is "
            f"'{type(key).__name__}')."
        )
    return key
