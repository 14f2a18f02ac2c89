"""Settings of compilers, which are kept for a block or a function and have no effect."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

__all__ = ["patcher"]

_ABSENT: Any = object()


def patcher(namespace: dict[str, Any]) -> Callable[..., AbstractContextManager[None]]:
    """The function ``patch`` of a module of settings.

    Parameters
    ----------
    namespace : dict
        The module's `globals()`.
    """

    @contextmanager
    def kept(changes: Mapping[str, Any]) -> Iterator[None]:
        before = {}
        try:
            for path, value in changes.items():
                above, _, name = path.rpartition(".")
                held = vars(operator.attrgetter(above)(_Held(namespace))) if above else namespace
                before[path] = held, name, held.get(name, _ABSENT)
                held[name] = value
            yield
        finally:
            for held, name, value in reversed(list(before.values())):
                if value is _ABSENT:
                    del held[name]
                else:
                    held[name] = value

    def patch(
        arg1: str | Mapping[str, Any] | None = None, arg2: Any = None, **kwargs: Any
    ) -> AbstractContextManager[None]:
        """Settings for a ``with`` block or a decorated function: a name and a value, or several.

        Parameters
        ----------
        arg1, arg2 : str and object, or dict
        **kwargs
            Names and values.
        """
        if isinstance(arg1, str):
            return kept({arg1: arg2})
        return kept(kwargs if arg1 is None else arg1)

    return patch


class _Held:
    """A namespace, by attributes."""

    def __init__(self, namespace: dict[str, Any]) -> None:
        self.__dict__ = namespace
