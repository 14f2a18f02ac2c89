"""Objects as JSON and named arrays.

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
import math
import pickle
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from lucid_gpu import dtypes as dt
from lucid_gpu.device import device
from lucid_gpu.devices.copies import laid_in
from lucid_gpu.serialization.errors import Damage
from lucid_gpu.serialization.locations import RestoreLocation
from lucid_gpu.serialization.torch_storages import meta_tensor
from lucid_gpu.tensor import Size, Tensor, from_array

__all__ = ["packed", "unpacked"]

_VERSION, _STRUCTURE, _PAIRS = "lucid_gpu.version", "lucid_gpu.structure", "lucid_gpu.complex128"
_ORDERS = "lucid_gpu.orders"


def packed(obj: Any) -> tuple[dict[str, str], dict[str, Any]]:
    """Metadata and arrays of an object.

    Raises
    ------
    TypeError
        For a value that cannot be pickled; the message names its place in the object.
    """
    packer = _Packer()
    try:
        structure = packer.pack(obj, "")
    except RecursionError:
        raise TypeError("save cannot store an object that contains itself, or is so deep") from None
    metadata = {_VERSION: "2", _STRUCTURE: json.dumps(structure)}
    if packer.pairs_of:
        metadata[_PAIRS] = json.dumps(packer.pairs_of)
    if packer.orders:
        metadata[_ORDERS] = json.dumps(packer.orders)
    return metadata, packer.arrays


class _Packer:
    def __init__(self) -> None:
        self.arrays: dict[str, Any] = {}
        self.pairs_of: list[str] = []
        self.orders: dict[str, tuple[int, ...]] = {}
        self._names: dict[Any, str] = {}
        self._alive: list[Any] = []  # so that an address is not given out twice

    def pack(self, value: Any, path: str) -> Any:
        kind = type(value)
        if value is None or kind in (bool, int, str):
            return value
        if isinstance(value, Tensor):
            return self._tensor(value, path)
        if kind is float:
            return value if math.isfinite(value) else {"float": repr(value)}
        if isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind not in "OSUVMm":
            array = np.asarray(value)
            name = self._stored(array, array, path)
            return {"scalar" if isinstance(value, np.generic) else "array": name}
        for accepted, pack in _PACKERS:
            if isinstance(value, accepted):
                return pack(self, value, path)
        return self._pickled(value, path)

    def pairs(self, value: Mapping[Any, Any], path: str) -> list[list[Any]]:
        return [
            [self.pack(key, f"{path}.<key>"), self.pack(item, _below(path, key))]
            for key, item in value.items()
        ]

    def items(self, value: Any, path: str) -> list[Any]:
        return [self.pack(item, _below(path, i)) for i, item in enumerate(value)]

    def _tensor(self, value: Tensor, path: str) -> Any:
        if value.is_sparse:
            return self._pickled(value, path)
        where, plain = str(value.device), value.detach()
        if where == "meta":
            layout = value.dtype.name, list(value.shape), list(value.stride())
            return {"without elements": [_kind_of(value), *layout]}
        name = self._stored(plain.cpu().array, plain.array, path, where)
        order = plain._load().program.order
        if order is not None:
            self.orders[name] = order
        packed = {_kind_of(value): [name, where] if where != "cpu" else name}
        own = {k: v for k, v in value.__dict__.items() if k[0] != "_"}
        return {"with attributes": [packed, self.pairs(own, path)]} if own else packed

    def _stored(self, array: Any, original: Any, path: str, where: str = "numpy") -> str:
        """The name of an array's bytes; ``original`` is the memory ``where`` it was read from."""
        try:
            d = dt.from_numpy_dtype(array.dtype)
        except TypeError as error:
            raise TypeError(f"save cannot store the array at {path!r}: {error}") from None
        key = (where, *_address(original)) if original.size else None
        known = self._names.get(key) if key else None
        if known is None:
            array = np.asarray(array, d.numpy, order="C")  # native byte order, row-major
            known = self._free_name(path or "tensor")
            if d is dt.complex128:
                array = array[..., None].view(np.float64)
                self.pairs_of.append(known)
            self.arrays[known] = array
            self._names[key] = known
            self._alive.append(original)
        return known

    def _pickled(self, value: Any, path: str) -> dict[str, list[str]]:
        outside: list[pickle.PickleBuffer] = []
        try:
            data = pickle.dumps(value, 5, buffer_callback=outside.append)
        except Exception as error:
            where = f" at {path!r}" if path else ""
            raise TypeError(
                f"save cannot store the {type(value).__name__}{where}: it is no "
                "tensor, NumPy array, number, string, bytes, None, dict, list, tuple or set, and "
                f"cannot be pickled ({error}); for a module or an optimizer save its state_dict()"
            ) from error
        path = path or "object"
        raw: list[Any] = [data, *(b.raw() for b in outside)]
        parts = [
            self._stored(part, part, f"{path}.pickle")
            for part in (np.frombuffer(b, np.uint8) for b in raw)
        ]
        kind = type(value)
        return {"pickle": [f"{kind.__module__}.{kind.__qualname__}", *parts]}

    def _free_name(self, path: str) -> str:
        name, number = path, 2
        while name in self.arrays or name == "__metadata__":
            name, number = f"{path}#{number}", number + 1
        return name


def _below(path: str, key: Any) -> str:
    return f"{path}.{key}" if path else str(key)


def _address(array: Any) -> Any:
    """What is equal for the same elements of the same memory."""
    interface = getattr(array, "__cuda_array_interface__", None) or array.__array_interface__
    return interface["data"][0], array.shape, array.strides, str(array.dtype)


def _kind_of(value: Tensor) -> str:
    from lucid_gpu.nn import Parameter

    if isinstance(value, Parameter):
        return "parameter" if value.requires_grad else "frozen parameter"
    return "tensor that requires grad" if value.requires_grad else "tensor"


_Pack = Callable[[_Packer, Any, str], Any]
_PACKERS: tuple[tuple[Any, _Pack], ...] = (
    (OrderedDict, lambda p, v, path: {"ordered": p.pairs(v, path)}),
    (Mapping, lambda p, v, path: {"dict": p.pairs(v, path)}),
    (list, lambda p, v, path: p.items(v, path)),
    (Size, lambda p, v, path: {"size": list(v)}),
    (tuple, lambda p, v, path: {"tuple": p.items(v, path)}),
    (frozenset, lambda p, v, path: {"frozenset": p.items(v, path)}),
    (set, lambda p, v, path: {"set": p.items(v, path)}),
    ((bytes, bytearray), lambda p, v, path: {"bytes": base64.b64encode(v).decode()}),
    (complex, lambda p, v, path: {"complex": [repr(v.real), repr(v.imag)]}),
    (dt.dtype, lambda p, v, path: {"dtype": v.name}),
    (device, lambda p, v, path: {"device": str(v)}),
    (bool, lambda p, v, path: bool(v)),
    (int, lambda p, v, path: int(v)),  # an enumeration's member, for one
    (float, lambda p, v, path: p.pack(float(v), path)),
    (str, lambda p, v, path: str(v)),
)


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
