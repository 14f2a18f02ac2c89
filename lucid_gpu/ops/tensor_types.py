"""Types of tensors by element type and device, as PyTorch's first programs name them.

``FloatTensor(2, 3)`` is memory for six float32 numbers, ``FloatTensor([2, 3])`` two numbers;
``isinstance(x, FloatTensor)`` asks for type and device. Every tensor is a `Tensor`.
"""

from __future__ import annotations

import builtins
from types import MethodType
from typing import Any

from lucid_gpu import dtypes as dt
from lucid_gpu.device import device as Device
from lucid_gpu.devices import get_default_device
from lucid_gpu.dtypes import as_dtype, dtype, printed
from lucid_gpu.ops.creation import empty, tensor
from lucid_gpu.ops.elementwise import to
from lucid_gpu.ops.user_warnings import warn_user_once
from lucid_gpu.storage import Size
from lucid_gpu.tensor import Tensor, as_kind

NAMES: dict[dtype, str] = {d: f"{d.type_name}Tensor" for d in dt.ALL}


class TensorType(builtins.type):
    """The class of `FloatTensor` and the other tensor types: calling one makes a `Tensor`."""

    dtype: dtype
    where: str

    def __new__(cls, name: str, bases: tuple[Any, ...], body: dict[str, Any]) -> TensorType:
        if bases:
            raise TypeError(
                f"type '{printed()}.{bases[0].__name__}' is not an acceptable base type; "
                "subclass Tensor"
            )
        return super().__new__(cls, name, bases, body)

    def __call__(cls, *args: Any, device: Any = None, **named: Any) -> Tensor:
        arguments = args or tuple(named.values())
        where = _checked_device(device, cls.where, arguments, "constructor")
        return made(arguments, cls.dtype, cls.where if where is None else where)

    def __instancecheck__(cls, value: Any) -> bool:
        return (
            isinstance(value, Tensor)
            and value.dtype is cls.dtype
            and value.device.type == cls.where
        )


# legacy forms as PyTorch's sentence names them, and what it recommends instead
_FORMS = {
    "constructor": ("torch.Tensor", "torch.tensor(...) or torch.as_tensor(...)"),
    "new": ("tensor.new", "torch.as_tensor(...)"),
}


def _checked_device(device: Any, where: str, args: tuple[Any, ...], form: str) -> Any:
    """The ``device=`` of a legacy constructor or of ``new``: its type is ``where``, or refused."""
    if device is None:
        return None
    if len(args) == 1 and isinstance(args[0], Tensor):
        call, instead = _FORMS[form]
        raise RuntimeError(
            f"Legacy tensor {form} of the form {call}(tensor, device=device) is not supported.  "
            f"Use {instead} instead."
        )
    wanted = Device(device)
    if wanted.type != where:
        raise RuntimeError(
            f"legacy constructor expects device type: {where} but device type: "
            f"{wanted.type} was passed"
        )
    return wanted


def made(args: tuple[Any, ...], d: dtype, where: Any) -> Tensor:
    """A tensor of numbers (one sequence, array or tensor) or of sizes (anything else)."""
    if len(args) != 1 or isinstance(args[0], Size) or _is_size(args[0]):
        return empty(*args, dtype=d, device=where) if args else empty(0, dtype=d, device=where)
    (data,) = args
    if isinstance(data, Tensor):
        if data.dtype is not d:
            raise TypeError(
                f"expected a tensor of type {d.name} (got {data.dtype.name}); convert it with "
                f".to(lucid_gpu.{d.name})"
            )
        return data.as_subclass(Tensor)
    if isinstance(seen := getattr(data, "_as_tensor", None), MethodType):  # a storage
        return seen(d)
    if isinstance(data, str):
        raise TypeError("new(): invalid data type 'str'")
    if not hasattr(data, "__len__"):
        kind = builtins.type(data).__name__
        raise TypeError(f"new(): data must be a sequence (got {kind})")
    return tensor(data, dtype=d, device=where)


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _construct(cls: builtins.type[Tensor], args: tuple[Any, ...], named: dict[str, Any]) -> Tensor:
    """``Tensor(...)``: as `FloatTensor`, of the default type; a tensor is taken in any type."""
    unknown = set(named) - {"device", "data", "size"}
    if unknown:
        raise TypeError(
            f"new() received an invalid combination of arguments - got {sorted(unknown)}; "
            "lucid_gpu.tensor takes dtype= and requires_grad="
        )
    device = named.pop("device", None)
    if "size" in named:
        args = (Size(named["size"]),)
    arguments = args or tuple(named.values())
    where = _checked_device(device, get_default_device().type, arguments, "constructor")
    alone = arguments[0] if len(arguments) == 1 else None
    d = alone.dtype if isinstance(alone, Tensor) else dt.get_default_dtype()
    constructed = made(arguments, d, where)
    if isinstance(alone, Tensor):
        return constructed.as_subclass(cls)
    return constructed if cls is Tensor else as_kind(cls, constructed)


def _named(d: dtype, where: str) -> TensorType:
    module = "lucid_gpu" if where == "cpu" else f"lucid_gpu.{where}"
    doc = f"Tensors of {d.name}: calling this makes one, `isinstance` asks for type and device."
    body = {"__module__": module, "__doc__": doc, "dtype": d, "where": where}
    return TensorType(NAMES[d], (), body)


TYPES: dict[tuple[str, str], TensorType] = {
    (where, name): _named(d, where)
    for where in ("cpu", "cuda")
    for d, name in NAMES.items()
    if not d.is_complex
}


globals().update(
    {name: tensor_type for (where, name), tensor_type in TYPES.items() if where == "cpu"}
)


def type(self: Tensor, dtype: Any = None, non_blocking: bool = False) -> Any:
    """The name of the tensor's type, or the tensor in another one.

    Parameters
    ----------
    dtype : dtype, type or str, optional
        ``lucid_gpu.int64``, ``lucid_gpu.LongTensor`` or ``"lucid_gpu.LongTensor"``;
        ``lucid_gpu.Tensor`` is the default type.

    Returns
    -------
    str or Tensor
        Such as ``"lucid_gpu.FloatTensor"`` or ``"lucid_gpu.cuda.FloatTensor"``.

    Raises
    ------
    TypeError
        For anything but a type.
    """
    if dtype is None:
        where = "" if self.device.type == "cpu" else f"{self.device.type}."
        return f"{printed()}.{where}{NAMES[self.dtype]}"
    wanted = of_name(dtype) if isinstance(dtype, str) else dtype
    if wanted is Tensor:
        return to(self, dtype=dt.get_default_dtype(), device=get_default_device())
    if isinstance(wanted, TensorType):
        here = self.device if self.device.type == wanted.where else wanted.where
        return to(self, dtype=wanted.dtype, device=here)
    if not isinstance(wanted, (dt.dtype, builtins.type)):
        raise TypeError("dtype must be a type, str, or dtype object")
    return to(self, dtype=as_dtype(wanted))


def of_name(name: str) -> TensorType:
    """The type of a name such as ``"lucid_gpu.cuda.FloatTensor"``; ``torch`` will do as well."""
    package, *rest = name.split(".")
    where = "cuda" if rest[:-1] == ["cuda"] else "cpu"
    tensor_type = TYPES.get((where, rest[-1])) if rest else None
    if tensor_type is None or package not in ("lucid_gpu", "torch") or len(rest) > 2:
        raise ValueError(f"invalid type: '{name}'")
    return tensor_type


def set_default_tensor_type(t: Any) -> None:
    """Set the default floating point type, and the default device, by a type of tensors.

    Deprecated, as in PyTorch: use `set_default_dtype` and `set_default_device`. TypeError for
    anything but a floating point type.
    """
    from lucid_gpu.device import set_default_device

    warn_user_once(
        "torch.set_default_tensor_type() is deprecated as of PyTorch 2.1, please use "
        "torch.set_default_dtype() and torch.set_default_device() as alternatives."
    )

    wanted = of_name(t) if isinstance(t, str) else t
    if not isinstance(wanted, TensorType) or not wanted.dtype.is_floating_point:
        raise TypeError("only floating-point types are supported as the default type")
    dt.set_default_dtype(wanted.dtype)
    set_default_device(wanted.where)


def new(self: Tensor, *args: Any, size: Any = None, device: Any = None) -> Tensor:
    """As the tensor's own type called: memory of a shape, or a tensor of numbers.

    RuntimeError for a ``device`` of another type, or beside a tensor.
    """
    if size is not None:
        args = (*args, *size)
    where = _checked_device(device, self.device.type, args, "new")
    return made(args, self.dtype, self.device if where is None else where)


def byte(self: Tensor, memory_format: Any = None) -> Tensor:
    """The elements in uint8."""
    return to(self, dt.uint8, memory_format=memory_format)


def char(self: Tensor, memory_format: Any = None) -> Tensor:
    """The elements in int8."""
    return to(self, dt.int8, memory_format=memory_format)


METHODS = (type, new, byte, char, _construct)
