"""Modules that hold modules or parameters."""

from __future__ import annotations

import itertools
import operator
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, overload

from lucid_gpu.nn.modules.module import Module
from lucid_gpu.nn.modules.parameter_list import ParameterDict, ParameterList
from lucid_gpu.ops.user_warnings import warn_user

__all__ = ["Container", "ModuleDict", "ModuleList", "ParameterDict", "ParameterList", "Sequential"]


@contextmanager
def _wholly(module: Module) -> Iterator[None]:
    """All children that the body adds, or none where it fails."""
    before = dict(module._modules)
    try:
        yield
    except BaseException:
        module._modules.clear()
        module._modules.update(before)
        raise


class _Numbered(Module):
    """Children named "0", "1", ... in order: what `Sequential` and `ModuleList` share."""

    def _name_of(self, index: int) -> str:
        size, index = len(self), operator.index(index)
        if not -size <= index < size:
            raise IndexError(f"index {index} is out of range")
        return next(itertools.islice(self._modules, index % size, None))

    def _renumber(self, children: Iterable[Module]) -> None:
        self._modules.clear()
        for i, child in enumerate(children):
            self.add_module(str(i), child)

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._modules.values())

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> Any: ...
    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return self._slice(list(self._modules.items())[index])
        return self._modules[self._name_of(index)]

    def _slice(self, items: list[tuple[str, Any]]) -> Module:
        return type(self)(child for _, child in items)

    def __setitem__(self, index: int, module: Module) -> None:
        setattr(self, self._name_of(index), module)

    def __delitem__(self, index: int | slice) -> None:
        names = list(self._modules)[index] if isinstance(index, slice) else [self._name_of(index)]
        for name in names:
            del self._modules[name]
        self._renumber(list(self))

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if not name.isdigit()]

    def append(self, module: Module) -> Any:
        """Add a module at the end; returns self."""
        self.add_module(str(len(self)), module)
        return self

    def extend(self, modules: Iterable[Module]) -> Any:
        """Append all modules of an iterable, or none; returns self. TypeError for anything else."""
        if not isinstance(modules, Iterable):
            raise TypeError(
                f"{type(self).__name__}.extend should be called with an iterable, but got "
                + type(modules).__name__
            )
        with _wholly(self):
            for module in list(modules):
                self.append(module)
        return self

    def insert(self, index: int, module: Module) -> Any:
        """Put a module before position ``index``; returns self. IndexError if there is none."""
        size = len(self)
        if not -size <= index <= size:
            raise IndexError(f"Index out of range: {index}")
        if not isinstance(module, Module):
            raise AssertionError(f"module should be of type: {Module}")
        children = list(self)
        children.insert(index, module)
        with _wholly(self):
            self._renumber(children)
        return self

    def pop(self, key: int | slice = -1) -> Any:
        """Remove and return a module; IndexError if there is none."""
        module = self[key]
        del self[key]
        return module


class Container(Module):
    """A module with the children given, under their names; PyTorch's users write a `Module`.

    Parameters
    ----------
    **kwargs : Module
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__()
        warn_user(
            "`nn.Container` is deprecated. All of its functionality is now implemented in "
            "`nn.Module`. Subclass that instead.",
            FutureWarning,
        )
        for name, module in kwargs.items():
            self.add_module(name, module)


class Sequential(_Numbered):
    r"""The composition of modules: ``(f_n o ... o f_1)(x)``.

    Parameters
    ----------
    *args : Module
        In the order they are applied, or one OrderedDict of names to modules.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__()
        if len(args) == 1 and isinstance(args[0], OrderedDict):
            for name, module in args[0].items():
                self.add_module(name, module)
        else:
            for i, module in enumerate(args):
                self.add_module(str(i), module)

    def _slice(self, items: list[tuple[str, Any]]) -> Module:
        return type(self)(OrderedDict(items))

    def __add__(self, other: Sequential) -> Sequential:
        if not isinstance(other, Sequential):
            raise ValueError(
                f"add operator supports only objects of Sequential class, but {type(other)} is "
                "given."
            )
        return Sequential(*self, *other)

    def __iadd__(self, other: Sequential) -> Sequential:
        if not isinstance(other, Sequential):
            raise ValueError(
                f"add operator supports only objects of Sequential class, but {type(other)} is "
                "given."
            )
        self.extend(other)
        return self

    def __mul__(self, other: int) -> Sequential:
        if not isinstance(other, int):
            raise TypeError(f"unsupported operand type(s) for *: {type(self)} and {type(other)}")
        if other <= 0:
            raise ValueError(f"Non-positive multiplication factor {other} for {type(self)}")
        return Sequential(*[module for _ in range(other) for module in self])

    __rmul__ = __mul__

    def __imul__(self, other: int) -> Sequential:
        self.extend(list(self * other)[len(self) :])
        return self

    def forward(self, input: Any) -> Any:
        for module in self._modules.values():
            input = module(input)  # type: ignore[misc]
        return input


class ModuleList(_Numbered):
    """A list of modules that are registered.

    Parameters
    ----------
    modules : iterable of Module, optional
    """

    def __init__(self, modules: Iterable[Module] | None = None) -> None:
        super().__init__()
        self.extend(() if modules is None else modules)

    def __iadd__(self, modules: Iterable[Module]) -> ModuleList:
        self.extend(modules)
        return self

    def __add__(self, other: Iterable[Module]) -> ModuleList:
        return ModuleList([*self, *other])

    def _child_lines(self) -> list[str]:
        """Equal neighbors share one line: ``(0-2): 3 x Linear(...)``."""
        lines = []
        numbered = [(repr(child), i) for i, child in enumerate(self)]
        for text, group in itertools.groupby(numbered, key=operator.itemgetter(0)):
            indices = [i for _, i in group]
            text = text.replace("\n", "\n  ")
            if len(indices) == 1:
                lines.append(f"({indices[0]}): {text}")
            else:
                lines.append(f"({indices[0]}-{indices[-1]}): {len(indices)} x {text}")
        return lines


class ModuleDict(Module):
    """A dict of modules that are registered.

    Parameters
    ----------
    modules : mapping of str to Module, or iterable of pairs, optional
    """

    def __init__(self, modules: Any = None) -> None:
        super().__init__()
        if modules is not None:
            self.update(modules)

    def __getitem__(self, key: str) -> Any:
        return self._modules[key]

    def __setitem__(self, key: str, module: Module) -> None:
        self.add_module(key, module)

    def __delitem__(self, key: str) -> None:
        del self._modules[key]

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __contains__(self, key: str) -> bool:
        return key in self._modules

    def keys(self) -> Iterable[str]:
        """The names."""
        return self._modules.keys()

    def values(self) -> Iterable[Any]:
        """The modules."""
        return self._modules.values()

    def items(self) -> Iterable[tuple[str, Any]]:
        """Pairs of name and module."""
        return self._modules.items()

    def clear(self) -> None:
        """Remove every module."""
        self._modules.clear()

    def pop(self, key: str) -> Any:
        """Remove and return a module; KeyError if there is none."""
        return self._modules.pop(key)

    def update(self, modules: Any) -> None:
        """Add or replace modules from a mapping or an iterable of pairs: all or none.

        Raises
        ------
        TypeError, ValueError
            For anything but a mapping or an iterable of pairs.
        """
        if not isinstance(modules, Iterable):
            raise TypeError(
                "ModuleDict.update should be called with an iterable of key/value pairs, but got "
                + type(modules).__name__
            )
        pairs = modules.items() if isinstance(modules, (Mapping, ModuleDict)) else modules
        with _wholly(self):
            for position, pair in enumerate(list(pairs)):
                if len(pair) != 2:
                    raise ValueError(
                        f"ModuleDict update sequence element #{position} has length {len(pair)}; 2 "
                        "is required"
                    )
                self[pair[0]] = pair[1]
