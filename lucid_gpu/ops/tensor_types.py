"""Types of tensors by element type and device, as PyTorch's first programs name them.

``FloatTensor(2, 3)`` is memory for six float32 numbers, ``FloatTensor([2, 3])`` two numbers;
``isinstance(x, FloatTensor)`` asks for type and device. Every tensor is a `Tensor`.
"""

from __future__ import annotations

import builtins
from typing import Any

from lucid_gpu import dtypes as dt
from lucid_gpu.device import device as Device
from lucid_gpu.devices import get_default_device
from lucid_gpu.dtypes import as_dtype, dtype, printed
from lucid_gpu.ops.creation import empty, tensor
from lucid_gpu.ops.elementwise import to
from lucid_gpu.tensor import Size, Tensor, as_kind

NAMES: dict[dtype, str] = {
    dt.float32: "FloatTensor", dt.float64: "DoubleTensor", dt.float16: "HalfTensor",
    dt.bfloat16: "BFloat16Tensor", dt.int64: "LongTensor", dt.int32: "IntTensor",
    dt.int16: "ShortTensor", dt.int8: "CharTensor", dt.uint8: "ByteTensor", dt.bool: "BoolTensor",
    dt.complex64: "ComplexFloatTensor", dt.complex128: "ComplexDoubleTensor",
}  # fmt: skip


class TensorType(builtins.type):
    """The class of `FloatTensor` and the other tensor types: calling one makes a `Tensor`."""

    dtype: dtype
    where: str

    def __call__(cls, *args: Any, device: Any = None, **named: Any) -> Tensor:
        if device is not None and Device(device).type != cls.where:
            raise RuntimeError(
                f"legacy constructor expects device type: {cls.where} but device type: "
                f"{Device(device).type} was passed"
            )
        arguments = args or tuple(named.values())
        return made(arguments, cls.dtype, cls.where if device is None else device)

    def __instancecheck__(cls, value: Any) -> bool:
        return (
            isinstance(value, Tensor)
            and value.dtype is cls.dtype
            and value.device.type == cls.where
        )


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
        return data.detach()
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
    where = named.pop("device", None)
    if "size" in named:
        args = (Size(named["size"]),)
    arguments = args or tuple(named.values())
    alone = arguments[0] if len(arguments) == 1 else None
    d = alone.dtype if isinstance(alone, Tensor) else dt.get_default_dtype()
    constructed = made(arguments, d, where)
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

    TypeError for anything but a floating point type.
    """
    from lucid_gpu.device import set_default_device

    wanted = of_name(t) if isinstance(t, str) else t
    if not isinstance(wanted, TensorType) or not wanted.dtype.is_floating_point:
        raise TypeError("only floating-point types are supported as the default type")
    dt.set_default_dtype(wanted.dtype)
    set_default_device(wanted.where)


def new(self: Tensor, *args: Any, size: Any = None, device: Any = None) -> Tensor:
    """As the tensor's own type called: memory of a shape, or a tensor of numbers."""
    if size is not None:
        args = (*args, *size)
    return made(args, self.dtype, self.device if device is None else device)


def byte(self: Tensor, memory_format: Any = None) -> Tensor:
    """The elements in uint8."""
    return to(self, dt.uint8, memory_format=memory_format)


def char(self: Tensor, memory_format: Any = None) -> Tensor:
    """The elements in int8."""
    return to(self, dt.int8, memory_format=memory_format)


METHODS = (type, new, byte, char, _construct)
