"""Objects as JSON and named arrays: files that `save` wrote before it wrote PyTorch's archives.

None, booleans, numbers, strings and lists stand for themselves. Everything else is an object with
one entry that says what it is:

``{"tensor": [name, place]}``
    and ``"tensor that requires grad"``, ``"parameter"``, ``"frozen parameter"``; the place is where
    it was, such as ``"cuda:0"``.
``{"with attributes": [one of these, [[name, value], ...]]}``
    a tensor on which the user has set attributes.
``{"array": name}``, ``{"scalar": name}``
    NumPy's.
``{"dict": [[key, value], ...]}``, ``{"ordered": ...}``, ``{"tuple": [...]}``, ``{"set": [...]}``,
``{"frozenset": [...]}``, ``{"size": [...]}``
    containers.
``{"bytes": base64}``, ``{"complex": [re, im]}``, ``{"float": "nan"}``, ``{"dtype": "float32"}``,
``{"device": "cpu"}``
    single values.
``{"pickle": [name, class, buffers...]}``
    any other object, its pickle and the buffers it left outside as arrays of bytes. Only
    ``load(weights_only=False)`` makes it again.

Arrays are named by their path, such as ``model.0.weight``; memory that occurs twice is stored once,
and comes back as one. complex128, which safetensors lack, is an F64 array with a last dimension of
2 whose name stands in the metadata's list ``lucid_gpu.complex128``. Arrays are row-major; the order
in which the dimensions of a tensor lay in memory, channels last for one, stands under its name in
``lucid_gpu.orders``.
"""

from __future__ import annotations

import base64
import json
import pickle
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from lucid_gpu import dtypes as dt
from lucid_gpu.device import device
from lucid_gpu.devices.copies import laid_in
from lucid_gpu.serialization.errors import Damage
from lucid_gpu.serialization.locations import RestoreLocation
from lucid_gpu.serialization.torch_storages import meta_tensor
from lucid_gpu.storage import Size
from lucid_gpu.tensor import Tensor, from_array

__all__ = ["unpacked"]

_VERSION, _STRUCTURE, _PAIRS = "lucid_gpu.version", "lucid_gpu.structure", "lucid_gpu.complex128"
_ORDERS = "lucid_gpu.orders"


def unpacked(
    metadata: dict[str, str],
    arrays: dict[str, Any],
    restore_location: RestoreLocation,
    weights_only: bool,
) -> Any:
    """The object again; a file without our metadata is a dict of tensors."""
    for name in json.loads(metadata.get(_PAIRS, "[]")):
        arrays[name] = arrays[name].view(np.complex128)[..., 0]
    orders = json.loads(metadata.get(_ORDERS, "{}"))
    if any(sorted(order) != [*range(arrays[name].ndim)] for name, order in orders.items()):
        raise Damage("an order is none of its tensor's dimensions")
    unpacker = _Unpacker(arrays, restore_location, weights_only, orders)
    if _STRUCTURE not in metadata:
        return {name: unpacker.tensor(name) for name in arrays}
    if metadata.get(_VERSION) not in ("1", "2"):
        raise Damage(f"it is of version {metadata.get(_VERSION)!r}, which a later lucid_gpu reads")
    return unpacker.unpack(json.loads(metadata[_STRUCTURE]))


class _Unpacker:
    def __init__(
        self,
        arrays: dict[str, Any],
        restore_location: RestoreLocation,
        weights_only: bool,
        orders: dict[str, list[int]],
    ) -> None:
        self.arrays, self.weights_only, self.orders = arrays, weights_only, orders
        self.restore_location = restore_location
        self._made: dict[Any, Tensor] = {}

    def unpack(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self.unpack(item) for item in value]
        if isinstance(value, dict):
            ((kind, content),) = value.items()
            return _READERS[kind](self, content)
        return value

    def pairs(self, items: Any) -> Iterator[tuple[Any, Any]]:
        return ((self.unpack(key), self.unpack(value)) for key, value in items)

    def items(self, items: Any) -> Iterator[Any]:
        return map(self.unpack, items)

    def tensor(self, content: Any, finish: Callable[[Tensor], Tensor] | None = None) -> Tensor:
        """A tensor by name, or name and place; made once, so that what was one is one."""
        name, where = (content, "cpu") if isinstance(content, str) else content
        if (name, finish) not in self._made:
            if finish is None:
                array, order = self.arrays[name], self.orders.get(name)
                if order is not None:
                    array = laid_in(array, order)
                made = self.restore_location(from_array(array)._keep_order(), where)
            else:
                made = finish(self.tensor(content).detach())
            self._made[name, finish] = made
        return self._made[name, finish]

    def attributed(self, content: Any) -> Tensor:
        """A tensor with attributes that the user set."""
        made: Tensor = self.unpack(content[0])
        made.__dict__.update(self.pairs(content[1]))
        return made

    def without_elements(self, content: Any) -> Tensor:
        """A tensor on the device meta."""
        kind, name, shape, strides = content
        made = meta_tensor(dt.BY_NAME[name], shape, strides)
        finish = _FINISHES[kind]
        return made if finish is None else finish(made)

    def of_pairs(self, name: str) -> str:
        """The name of a complex array of version 1, which is a real one in the file."""
        if self.arrays[name].dtype != np.complex128:
            self.arrays[name] = self.arrays[name].view(np.complex128)[..., 0]
        return name

    def unpickled(self, content: Any) -> Any:
        what, data, *buffers = content
        if self.weights_only:
            raise Damage(
                f"it holds a pickled {what}, and unpickling runs code. If you trust the file, say "
                "load(..., weights_only=False); better files hold a state_dict()"
            )
        outside = [self.arrays[name].data for name in buffers]
        return pickle.loads(self.arrays[data].data, buffers=outside)


def _parameter(t: Tensor) -> Tensor:
    from lucid_gpu.nn import Parameter

    return Parameter(t)


def _frozen(t: Tensor) -> Tensor:
    from lucid_gpu.nn import Parameter

    return Parameter(t, requires_grad=False)


_FINISHES: dict[str, Callable[[Tensor], Tensor] | None] = {
    "tensor": None,
    "tensor that requires grad": Tensor.requires_grad_,
    "parameter": _parameter,
    "frozen parameter": _frozen,
}
_READERS: dict[str, Callable[[_Unpacker, Any], Any]] = {
    **{
        kind: lambda u, c, finish=finish: u.tensor(c, finish)  # type: ignore[misc]
        for kind, finish in _FINISHES.items()
    },
    "with attributes": _Unpacker.attributed,
    "without elements": _Unpacker.without_elements,
    "array": lambda u, name: u.arrays[name],
    "scalar": lambda u, name: u.arrays[name][()],
    "tensor of pairs": lambda u, name: u.tensor(u.of_pairs(name)),  # version 1
    "array of pairs": lambda u, name: u.arrays[u.of_pairs(name)],
    "dict": lambda u, items: dict(u.pairs(items)),
    "ordered": lambda u, items: OrderedDict(u.pairs(items)),
    "tuple": lambda u, items: tuple(u.items(items)),
    "set": lambda u, items: set(u.items(items)),
    "frozenset": lambda u, items: frozenset(u.items(items)),
    "size": lambda u, sizes: Size(sizes),
    "bytes": lambda u, text: base64.b64decode(text),
    "complex": lambda u, parts: complex(*map(float, parts)),
    "float": lambda u, text: float(text),
    "dtype": lambda u, name: dt.BY_NAME[name],
    "device": lambda u, name: device(name),
    "pickle": _Unpacker.unpickled,
}
