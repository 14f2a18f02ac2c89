"""What the pickles of ``torch.save`` may name, and what we make of it.

Everything else is refused, unless the user allowed it (`safe_globals.py`) or said that he trusts
the file.
"""

from __future__ import annotations

import _compat_pickle
import importlib
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np

from lucid_gpu import dtypes as dt
from lucid_gpu.device import device
from lucid_gpu.serialization.errors import Damage
from lucid_gpu.serialization.pickle_machine import _New, key, text
from lucid_gpu.serialization.safe_globals import _allowed
from lucid_gpu.serialization.torch_storages import StorageType, meta_tensor, rebuild
from lucid_gpu.tensor import Size, Tensor

__all__ = ["Globals"]


class _Function:
    """Something of PyTorch's that pickles call, done here."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function


_TABLE: dict[str, Any] = {}


def _stands_for(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def note(function: Callable[..., Any]) -> Callable[..., Any]:
        _TABLE.update(dict.fromkeys(names, _Function(function)))
        return function

    return note


_STORAGES = {
    "Double": dt.float64,
    "Float": dt.float32,
    "Half": dt.float16,
    "BFloat16": dt.bfloat16,
    "Long": dt.int64,
    "Int": dt.int32,
    "Short": dt.int16,
    "Char": dt.int8,
    "Byte": dt.uint8,
    "Bool": dt.bool,
    "ComplexFloat": dt.complex64,
    "ComplexDouble": dt.complex128,
}
_TABLE |= {f"torch.{name}Storage": StorageType(d) for name, d in _STORAGES.items()}
_TABLE |= {f"torch.cuda.{name}Storage": StorageType(d) for name, d in _STORAGES.items()}
_TABLE["torch.storage.UntypedStorage"] = StorageType(dt.uint8)
_TABLE |= {f"torch.{name}": d for name, d in {**dt.BY_NAME, **dt.ALIASES}.items()}
_TABLE |= {"torch.Tensor": Tensor, "torch.nn.parameter.Parameter": "parameter"}
_TABLE |= {f"{module}.ndarray": np.ndarray for module in ("numpy", "numpy.core.multiarray")}

_INSTEAD = {  # what to save in PyTorch, of what is not here
    "_rebuild_qtensor": "save t.dequantize() of quantized tensors",
    "_rebuild_nested_tensor": "save t.unbind() of nested tensors",
    "UninitializedParameter": "run lazy modules once before saving them",
    "UninitializedBuffer": "run lazy modules once before saving them",
}

_stands_for("torch._utils._rebuild_tensor", "torch._utils._rebuild_tensor_v2")(rebuild)
_stands_for("torch._utils._rebuild_meta_tensor_no_storage")(
    lambda d, size, stride, requires_grad=False: meta_tensor(d, size, stride).requires_grad_(
        requires_grad
    )
)
_stands_for("torch.Size")(lambda sizes=(): Size(int(n) for n in sizes))
_stands_for("torch.device")(lambda kind, index=None: _device_of(kind, index))
_stands_for("collections.OrderedDict")(lambda pairs=(): OrderedDict((key(k), v) for k, v in pairs))
_stands_for("collections.Counter")(lambda counts=(): Counter({key(k): counts[k] for k in counts}))
_stands_for("builtins.set")(lambda items=(): set(map(key, items)))
_stands_for("builtins.frozenset")(lambda items=(): frozenset(map(key, items)))
_stands_for("builtins.complex")(lambda real, imag: complex(real, imag))
_stands_for("torch.serialization._get_layout")(text)


def _device_of(kind: str, index: int | None) -> Any:
    return device(text(kind), None if index is None else int(index))


@_stands_for("collections.defaultdict")
def _default_dict(factory: Any = None) -> Any:
    if factory is not None:
        raise Damage("it holds a defaultdict with a factory; save dict(it)")
    return defaultdict(None)


@_stands_for("torch._utils._rebuild_tensor_v3")
def _tensor_v3(
    storage: Any, offset: Any, size: Any, stride: Any, grad: Any, hooks: Any, d: Any, *more: Any
) -> Tensor:
    return rebuild(storage.viewed(d), offset, size, stride, grad, hooks, *more)


@_stands_for("torch._utils._rebuild_parameter", "torch._utils._rebuild_parameter_with_state")
def _parameter(data: Tensor, requires_grad: bool, hooks: Any = None, state: Any = None) -> Any:
    from lucid_gpu.nn import Parameter

    if not isinstance(data, Tensor):
        raise Damage("a parameter in it is made of no tensor")
    return _with_attributes(Parameter(data, bool(requires_grad)), state)


@_stands_for("torch._tensor._rebuild_from_type_v2")
def _from_type(function: Any, kind: Any, arguments: tuple[Any, ...], state: Any) -> Any:
    if not isinstance(function, _Function):
        raise Damage("a tensor in it is rebuilt by an unknown function")
    made = function.function(*arguments)
    if isinstance(state, dict) and state.get("_is_buffer"):
        from lucid_gpu.nn import Buffer

        made = Buffer(made, persistent=bool(state.get("persistent", True)))
    return _with_attributes(made, state)


def _with_attributes(t: Tensor, state: Any) -> Tensor:
    """Set what the user had set, but nothing that stands for something else of a tensor."""
    for name, value in state.items() if isinstance(state, dict) else ():
        if isinstance(name, str) and name[:1] != "_" and not hasattr(type(t), name):
            t.__dict__[name] = value
    return t


@_stands_for("torch._utils._rebuild_sparse_tensor")
def _sparse(layout: str, data: tuple[Any, ...]) -> Any:
    from lucid_gpu.sparse.creation import sparse_coo_tensor

    if layout != "torch.sparse_coo":
        raise Damage(f"a tensor in it has the layout {layout}; lucid_gpu has sparse_coo only")
    indices, values, size = data[:3]
    for part in (indices, values):
        low, high = np.lib.array_utils.byte_bounds(part.array)
        if high - low < part.array.nbytes:
            raise Damage("a sparse tensor in it has elements that share memory")
    made = sparse_coo_tensor(indices, values, size)
    return made.coalesce() if len(data) > 3 and data[3] else made


@_stands_for("builtins.bytearray")
def _bytearray(content: Any = b"") -> bytearray:
    if not isinstance(content, bytes):  # a number would be a size
        raise Damage("a bytearray in it is made of no bytes")
    return bytearray(content)


# --- NumPy's --------------------------------------------------------------------------------------


@_stands_for("_codecs.encode")
def _bytes(text: str, encoding: str) -> bytes:
    if encoding != "latin1":
        raise Damage(f"bytes in it are encoded as {encoding!r}")
    return text.encode("latin1")


@_stands_for("numpy.dtype")
def _dtype(name: str, *_: Any) -> Any:
    dtype = np.dtype(text(name))
    if dtype.kind not in "biufcSU":
        raise Damage(f"a NumPy array in it has the type {name!r}")
    return dtype


@_stands_for("numpy.core.multiarray._reconstruct", "numpy._core.multiarray._reconstruct")
def _array(kind: Any, shape: Any, code: Any) -> Any:
    return np.empty(0, "b")  # its state comes with BUILD


@_stands_for("numpy.core.multiarray.scalar", "numpy._core.multiarray.scalar")
def _scalar(d: Any, data: bytes) -> Any:
    return np.frombuffer(data, d, 1)[0]


def _give_array(array: Any, state: Any) -> None:
    _, shape, d, fortran, data = state
    if not isinstance(d, np.dtype) or not isinstance(data, bytes):
        raise Damage("a NumPy array in it is damaged")
    array.__setstate__((1, tuple(shape), d, bool(fortran), data))


def _check_dtype(state: Any) -> None:
    if state[1] == ">":
        raise Damage("a NumPy array in it has the byte order of another machine")


# --- the machine's three questions ----------------------------------------------------------------


class Globals:
    """What names stand for, how to call it, and how to give it its state.

    Parameters
    ----------
    trusted : bool
        Whether names outside the tables are imported.
    """

    def __init__(self, trusted: bool) -> None:
        self.trusted = trusted

    def find(self, module: str, name: str) -> Any:
        # torch.save writes Python 2's names of modules and functions.
        known = _compat_pickle.IMPORT_MAPPING.get(module, module), name
        module, name = _compat_pickle.NAME_MAPPING.get((module, name), known)
        full = f"{module}.{name}"
        if full in _allowed:
            return _allowed[full]
        if full in _TABLE:
            return _TABLE[full]
        if module.split(".")[0] == "torch":
            instead = _INSTEAD.get(name, "save the state_dict() instead")
            if module == "torch" and name.startswith(("uint", "int", "float", "complex", "bits")):
                instead = f"convert tensors of {full} to another type first"
            raise Damage(
                f"it holds {full}, which lucid_gpu has no counterpart for; in PyTorch {instead}"
            )
        if self.trusted:
            resolved = importlib.import_module(module)
            for part in name.split("."):
                resolved = getattr(resolved, part)
            return resolved
        raise Damage(
            f"it names {full}, and using that would run code. If you trust the file, call "
            f"lucid_gpu.serialization.add_safe_globals([{name}]) first, or say weights_only=False"
        )

    def _may_use(self, thing: Any) -> bool:
        return self.trusted or any(thing is allowed for allowed in _allowed.values())

    def call(self, function: Any, arguments: tuple[Any, ...]) -> Any:
        if isinstance(function, _Function):
            return function.function(*arguments)
        if isinstance(function, _New) and self._may_use(function.cls):
            return function.cls.__new__(function.cls, *arguments)
        if self._may_use(function):
            return function(*arguments)
        raise Damage("its pickle calls what is no function")

    def build(self, thing: Any, state: Any) -> None:
        if type(thing) is OrderedDict and isinstance(state, dict):
            if not all(isinstance(name, str) for name in state):
                raise Damage("an attribute in it has no name")
            thing.__dict__.update(state)
        elif type(thing) is np.ndarray:
            _give_array(thing, state)
        elif isinstance(thing, np.dtype):
            _check_dtype(state)
        elif self._may_use(type(thing)):
            if hasattr(thing, "__setstate__"):
                thing.__setstate__(state)
            else:
                thing.__dict__.update(state)
        else:
            raise Damage(f"its pickle gives a state to a {type(thing).__name__}")
