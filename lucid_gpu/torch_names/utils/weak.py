"""`torch.utils.weak`: dictionaries whose keys are objects that they do not keep alive.

Keys are compared by identity, as tensors must be: ``==`` compares their elements.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import Any

from lucid_gpu.tensor import Tensor

__all__ = ["TensorWeakRef", "WeakIdKeyDictionary", "WeakIdRef", "WeakTensorKeyDictionary"]


class WeakIdRef(weakref.ref[Any]):
    """A weak reference that equals references to the same object only."""

    __slots__ = ("_hash",)

    def __init__(self, key: Any, callback: Callable[[Any], None] | None = None) -> None:
        super().__init__(key, callback)  # type: ignore[call-arg]
        self._hash = object.__hash__(key)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        mine = self()
        if mine is None or not isinstance(other, weakref.ref):
            return self is other
        return mine is other()

    def __ne__(self, other: object) -> bool:
        return not self == other


class TensorWeakRef:
    """A weak reference to a tensor: a call gives the tensor, or None after its end."""

    __slots__ = ("ref",)

    def __init__(self, tensor: Tensor) -> None:
        if not isinstance(tensor, Tensor):
            raise AssertionError(f"expected torch.Tensor, got {type(tensor)}.")
        self.ref = WeakIdRef(tensor)

    def __call__(self) -> Tensor | None:
        tensor: Tensor | None = self.ref()
        return tensor


class WeakIdKeyDictionary(MutableMapping[Any, Any]):
    """A dictionary with weak references to its keys, which are compared by identity.

    Parameters
    ----------
    dict : mapping, optional
        What it holds at first.
    ref_type : type
        The class of the references.
    """

    def __init__(self, dict: Mapping[Any, Any] | None = None, ref_type: Any = WeakIdRef) -> None:
        self.data: Any = {}
        self.ref_type = ref_type
        mine = weakref.ref(self)

        def remove(ended: Any) -> None:
            if (it := mine()) is not None:
                it.data.pop(ended, None)

        self._remove = remove
        if dict is not None:
            self.update(dict)

    def __getitem__(self, key: Any) -> Any:
        return self.data[self.ref_type(key)]

    def __setitem__(self, key: Any, value: Any) -> None:
        self.data[self.ref_type(key, self._remove)] = value

    def __delitem__(self, key: Any) -> None:
        del self.data[self.ref_type(key)]

    def __iter__(self) -> Iterator[Any]:
        for ref in list(self.data):
            if (key := ref()) is not None:
                yield key

    def __len__(self) -> int:
        return len(self.data)

    def __contains__(self, key: object) -> bool:
        try:
            return self.ref_type(key) in self.data
        except TypeError:  # of an object that has no weak references
            return False

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {len(self)} keys>"

    def keyrefs(self) -> list[Any]:
        """The weak references."""
        return list(self.data)

    def popitem(self) -> tuple[Any, Any]:
        """Take the newest key and its value out."""
        while True:
            ref, value = self.data.popitem()
            if (key := ref()) is not None:
                return key, value

    def copy(self) -> WeakIdKeyDictionary:
        """Another one with the same keys and values."""
        new = WeakIdKeyDictionary(ref_type=self.ref_type)
        new.update(self)
        return new

    __copy__ = copy

    def __or__(self, other: Any) -> WeakIdKeyDictionary:
        if not isinstance(other, Mapping):
            return NotImplemented
        new = self.copy()
        new.update(other)
        return new

    def __ior__(self, other: Any) -> WeakIdKeyDictionary:
        self.update(other)
        return self


WeakTensorKeyDictionary = WeakIdKeyDictionary
