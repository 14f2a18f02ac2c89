"""What the pickles of ``torch.save`` may name, and what we make of it.

Everything else is refused, unless the user allowed it (`safe_globals.py`) or said that he trusts
the file.
"""

from __future__ import annotations

import _compat_pickle
import importlib
import pickletools
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
from lucid_gpu.storage import Size, sparse_coo, sparse_csr, strided
from lucid_gpu.tensor import Tensor, as_kind

__all__ = ["build", "call", "find", "is_known", "names_of", "torch_global", "trusted_global"]


class _Function:
    """Something of PyTorch's that pickles call, done here."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def __call__(self, *arguments: Any) -> Any:
        """What an unpickler does with a function."""
        return self.function(*arguments)


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
_BY_NAME = {f"torch.{kind.name}": kind for kind in (strided, sparse_coo, sparse_csr)}
_TABLE |= {f"{module}.ndarray": np.ndarray for module in ("numpy", "numpy.core.multiarray")}

_INSTEAD = {  # what to save in PyTorch, of what is not here
    "_rebuild_qtensor": "save t.dequantize() of quantized tensors",
    "_rebuild_nested_tensor": "save t.unbind() of nested tensors",
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


def _device_of(kind: str, index: int | None) -> Any:
    return device(text(kind), None if index is None else int(index))


def _uninitialized(name: str) -> Callable[..., Any]:
    def made(requires_grad: bool = True, where: Any = None, d: Any = None, *_: Any) -> Any:
        from lucid_gpu.nn import parameter

        return getattr(parameter, name)(device=where, dtype=d)._mark(bool(requires_grad))

    return made


for _name in ("UninitializedParameter", "UninitializedBuffer"):
    _stands_for(f"torch.nn.parameter.{_name}")(_uninitialized(_name))


@_stands_for("collections.defaultdict")
def _default_dict(factory: Any = None) -> Any:
    if factory is not None:
        raise Damage("it holds a defaultdict with a factory; save dict(it)")
    return defaultdict(None)


@_stands_for("torch._utils._rebuild_tensor_v3")
def _tensor_v3(
    storage: Any,
    offset: Any,
    size: Any,
    stride: Any,
    grad: Any,
    hooks: Any,
    d: Any,
    marks: Any = None,
) -> Tensor:
    return rebuild(storage, offset, size, stride, grad, hooks, marks, d)


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
    made = function(*arguments)
    if isinstance(state, dict) and state.get("_is_buffer"):
        from lucid_gpu.nn import Buffer

        made = Buffer(made, persistent=bool(state.get("persistent", True)))
    elif isinstance(kind, type) and kind is not Tensor and issubclass(kind, Tensor):
        made, grad = as_kind(kind, made.detach()), made.requires_grad
        made = made._mark() if grad else made
    return _with_attributes(made, state)


def _with_attributes(t: Tensor, state: Any) -> Tensor:
    """Set what the user had set, but nothing that stands for something else of a tensor."""
    for name, value in state.items() if isinstance(state, dict) else ():
        if isinstance(name, str) and name[:1] != "_" and not hasattr(type(t), name):
            t.__dict__[name] = value
    return t


@_stands_for("torch._utils._rebuild_sparse_tensor")
def _sparse(layout: Any, data: tuple[Any, ...]) -> Any:
    from lucid_gpu.sparse.creation import sparse_coo_tensor, sparse_csr_tensor

    if layout not in (sparse_coo, sparse_csr):
        raise Damage(f"a tensor in it is said to be sparse and has the layout {layout}")
    csr = layout is sparse_csr
    for part in data[: 3 if csr else 2]:
        low, high = np.lib.array_utils.byte_bounds(part.array)
        if high - low < part.array.nbytes:
            raise Damage("a sparse tensor in it has elements that share memory")
    if csr:
        return sparse_csr_tensor(*data)
    made = sparse_coo_tensor(*data[:3])
    return made.coalesce() if len(data) > 3 and data[3] else made


@_stands_for("torch.serialization._get_layout")
def _layout(name: str) -> Any:
    known = _BY_NAME.get(text(name))
    if known is None:
        raise Damage(
            f"a tensor in it has the layout {name}; lucid_gpu has sparse_coo and sparse_csr"
        )
    return known


_stands_for("builtins.bytes")(lambda: b"")  # what protocol 2 says of empty ones


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
    dtype = np.dtype(text(name), copy=True)
    if dtype.kind not in "biufcSU":
        raise Damage(f"a NumPy array in it has the type {name!r}")
    return dtype


@_stands_for("numpy.core.multiarray._reconstruct", "numpy._core.multiarray._reconstruct")
def _array(kind: Any, shape: Any, code: Any) -> Any:
    return np.empty(0, "b")  # its state comes with BUILD


@_stands_for("numpy.core.numeric._frombuffer", "numpy._core.numeric._frombuffer")
def _array_of_buffer(data: Any, d: Any, shape: Any, order: str) -> Any:
    if not isinstance(data, (bytes, bytearray)) or not isinstance(d, np.dtype):
        raise Damage("a NumPy array in it is damaged")
    array: Any = np.frombuffer(bytearray(data), d)
    return array.reshape(shape, order=text(order))


@_stands_for("numpy.core.multiarray.scalar", "numpy._core.multiarray.scalar")
def _scalar(d: Any, data: bytes) -> Any:
    return np.frombuffer(data, d, 1)[0]


def _give_array(array: Any, state: Any) -> None:
    _, shape, d, fortran, data = state
    if not isinstance(d, np.dtype) or not isinstance(data, bytes):
        raise Damage("a NumPy array in it is damaged")
    array.__setstate__((1, tuple(shape), d, bool(fortran), data))


def _give_byte_order(dtype: Any, state: Any) -> None:
    if state[1] == ">":
        dtype.__setstate__((3, ">", None, None, None, -1, -1, 0))


# --- the machine's three questions ----------------------------------------------------------------


def torch_global(module: str, name: str) -> Any:
    """What stands for something of PyTorch's; None for the names of other modules.

    Raises
    ------
    Damage
        For what has no counterpart here.
    """
    full = f"{module}.{name}"
    known = _allowed.get(full)
    if known is None and module.split(".")[0] == "torch":
        known = _TABLE.get(full)
        if known is None:
            instead = _INSTEAD.get(name, "save the state_dict() instead")
            if module == "torch" and name.startswith(("uint", "int", "float", "complex", "bits")):
                instead = f"convert tensors of {full} to another type first"
            raise Damage(
                f"it holds {full}, which lucid_gpu has no counterpart for; in PyTorch {instead}"
            )
    return known


def trusted_global(module: str, name: str) -> Any:
    """The same where the file may run code: also classes of this package that hold the same."""
    if module in ("torch.return_types", "torch.torch_version"):
        found = getattr(importlib.import_module(f"lucid_gpu{module[5:]}"), name)
        return found if module == "torch.torch_version" else lambda parts, *_: found(*parts)
    return torch_global(module, name)


def _of_today(module: str, name: str) -> tuple[str, str]:
    """The name that Python 3 has: torch.save writes Python 2's of modules and functions."""
    known = _compat_pickle.IMPORT_MAPPING.get(module, module), name
    return _compat_pickle.NAME_MAPPING.get((module, name), known)


def is_known(full: str) -> bool:
    """Whether a file that must not run code may name it."""
    return full in _allowed or full in _TABLE


def names_of(content: bytes) -> list[str]:
    """What a pickle names, each once, as "module.name"; nothing of it is made."""
    names: dict[str, None] = {}
    memo: dict[int, Any] = {}
    last: list[Any] = [None, None]  # what was pushed last, where it is text
    for op, value, _ in pickletools.genops(content):
        argument: Any = value
        if op.name == "GLOBAL":
            names[".".join(_of_today(*argument.split(" ", 1)))] = None
        elif op.name == "STACK_GLOBAL" and all(type(part) is str for part in last):
            names[".".join(_of_today(*last))] = None
        if op.name == "MEMOIZE" or op.name.endswith("PUT"):
            memo[len(memo) if argument is None else int(argument)] = last[-1]
        else:
            pushed = memo.get(int(argument)) if op.name.endswith("GET") else argument
            last = [last[-1], pushed]
    return list(names)


def find(module: str, name: str) -> Any:
    """What a name stands for in a file that must not run code."""
    module, name = _of_today(module, name)
    found = torch_global(module, name)
    full = f"{module}.{name}"
    if found is None and full not in _TABLE:
        raise Damage(
            f"it names {full}, and using that would run code. If you trust the file, call "
            f"lucid_gpu.serialization.add_safe_globals([{name}]) first, or say weights_only=False"
        )
    return _TABLE[full] if found is None else found


def _may_use(thing: Any) -> bool:
    return any(thing is allowed for allowed in _allowed.values())


def call(function: Any, arguments: tuple[Any, ...]) -> Any:
    """What a function or class makes, if the file may use it."""
    if isinstance(function, _Function):
        return function(*arguments)
    if isinstance(function, _New) and _may_use(function.cls):
        return function.cls.__new__(function.cls, *arguments)
    if _may_use(function):
        return function(*arguments)
    raise Damage("its pickle calls what is no function")


def build(thing: Any, state: Any) -> None:
    """Give an object its state, if the file may."""
    if type(thing) is OrderedDict and isinstance(state, dict):
        if not all(isinstance(name, str) for name in state):
            raise Damage("an attribute in it has no name")
        thing.__dict__.update(state)
    elif type(thing) is np.ndarray:
        _give_array(thing, state)
    elif isinstance(thing, np.dtype):
        _give_byte_order(thing, state)
    elif _may_use(type(thing)):
        if hasattr(thing, "__setstate__"):
            thing.__setstate__(state)
        else:
            thing.__dict__.update(state)
    else:
        raise Damage(f"its pickle gives a state to a {type(thing).__name__}")
