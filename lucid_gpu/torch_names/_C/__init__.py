"""`torch._C`: the few names of PyTorch's C++ module that packages call."""

from __future__ import annotations

import enum
import weakref
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

from lucid_gpu import (
    Generator,
    Size,
    Tensor,
    bincount,
    cat,
    device,
    dtype,
    int8,
    int32,
    int64,
    layout,
    memory_format,
    mm,
    tensor,
)
from lucid_gpu.autograd import Function
from lucid_gpu.compat.refused import refused
from lucid_gpu.core.engine import current_number as _current_graph_task_id
from lucid_gpu.core.engine import will_run as _will_engine_execute_node
from lucid_gpu.linalg import LinAlgError as _LinAlgError
from lucid_gpu.tape.levels import open_levels
from lucid_gpu.tape.modes import FORWARD, is_grad_enabled, state
from lucid_gpu.tape.overrides import (
    DISABLED,
    DisableTorchFunction,
    DisableTorchFunctionSubclass,
    overridable,
)
from lucid_gpu.tape.overrides import disabled as _disabled_torch_function_impl
from lucid_gpu.torch_names import _autograd, _functions

from ..library import AutoDispatchBelowAutograd as _AutoDispatchBelowAutograd

__all__ = [
    "DisableTorchFunction",
    "DisableTorchFunctionSubclass",
    "Generator",
    "Size",
    "_AutoDispatchBelowAutograd",
    "_WeakTensorRef",
    "_autograd",
    "_current_graph_task_id",
    "_disabled_torch_function_impl",
    "_functions",
    "_get_tracing_state",
    "_log_api_usage_once",
    "_set_fwd_grad_enabled",
    "_will_engine_execute_node",
    "device",
    "dtype",
    "is_grad_enabled",
    "layout",
    "memory_format",
]


class PyTorchFileReader:
    """PyTorch's reader of its archives; making one refuses with a RuntimeError."""

    def __init__(self, *args: Any) -> None:
        raise RuntimeError(
            "lucid_gpu.PyTorchFileReader: archives are read by lucid_gpu.load(path, mmap=True)"
        )


class _WeakTensorRef:
    """A weak reference to a tensor."""

    def __init__(self, tensor: Tensor) -> None:
        self._reference = weakref.ref(tensor)

    def expired(self) -> bool:
        """Whether it is gone."""
        return self._reference() is None


def _set_fwd_grad_enabled(enabled: bool) -> None:
    """Set whether ops on this thread act on the tangents of forward-mode AD."""
    state.tangents = bool(enabled)


def _are_functorch_transforms_active() -> bool:
    """Whether a `vmap`, or a level of forward mode, is open."""
    return bool(open_levels)


def _is_fwd_grad_enabled() -> bool:
    """Whether they do."""
    return state.tangents and state.mode is not FORWARD


TensorBase = _TensorBase = Tensor
_TensorMeta = type(Tensor)


class TensorType:
    """The type of tensors in TorchScript: for annotations and `isinstance`; nothing is one."""


class Graph:
    """A program of TorchScript: for annotations and `isinstance`; nothing is one."""


class Value:
    """A value in one: for annotations and `isinstance`; nothing is one."""


class ScriptMethod:
    """A method of a compiled module: for annotations and `isinstance`; nothing is one."""


class DeviceObjType:
    """The type of devices in TorchScript: for annotations and `isinstance`; nothing is one."""


class DispatchKey(enum.Flag):
    """PyTorch's keys that packages build sets of; ops here are not chosen by keys."""

    Undefined = 0
    CPU = enum.auto()
    CUDA = enum.auto()
    Meta = enum.auto()
    Autograd = enum.auto()
    AutogradCPU = enum.auto()
    AutogradCUDA = enum.auto()
    AutocastCPU = enum.auto()
    AutocastCUDA = enum.auto()
    AutocastXPU = enum.auto()
    AutocastMPS = enum.auto()
    ADInplaceOrView = enum.auto()
    Python = enum.auto()
    PythonTLSSnapshot = enum.auto()
    CompositeExplicitAutograd = enum.auto()
    CompositeImplicitAutograd = enum.auto()


class DispatchKeySet:
    """A set of them.

    Parameters
    ----------
    keys : DispatchKey
        One, or several joined by ``|``.
    """

    def __init__(self, keys: DispatchKey) -> None:
        self._keys = keys

    def __or__(self, other: DispatchKeySet) -> DispatchKeySet:
        return DispatchKeySet(self._keys | other._keys)

    def __and__(self, other: DispatchKeySet) -> DispatchKeySet:
        return DispatchKeySet(self._keys & other._keys)

    def __sub__(self, other: DispatchKeySet) -> DispatchKeySet:
        return DispatchKeySet(self._keys & ~other._keys)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DispatchKeySet) and self._keys == other._keys

    def __hash__(self) -> int:
        return hash(self._keys)

    def has(self, key: DispatchKey) -> bool:
        """Whether a key is in it."""
        return key in self._keys


def _get_tracing_state() -> None:
    """What a tracer is doing: there is none."""


def _is_tracing() -> bool:
    """Whether a tracer is running: never."""
    return False


def _log_api_usage_once(event: str) -> None:
    """Do nothing: nobody counts."""


def _is_torch_function_enabled() -> bool:
    """Whether ops ask objects that define ``__torch_function__``."""
    return not state.override_level


def _is_torch_function_all_disabled() -> bool:
    """Whether ops ask neither objects nor modes."""
    return state.override_level == DISABLED


def _cuda_getDeviceCount() -> int:
    """How many GPUs there are."""
    from lucid_gpu.cuda import device_count

    return device_count()


def _jit_set_profiling_executor(enabled: bool) -> bool:
    """Set nothing."""
    return False


_jit_set_profiling_mode = _jit_set_nvfuser_enabled = _jit_set_profiling_executor
_jit_override_can_fuse_on_cpu = _jit_override_can_fuse_on_gpu = _jit_set_profiling_executor
_jit_set_texpr_fuser_enabled = _jit_set_profiling_executor
_debug_set_autodiff_subgraph_inlining = _jit_set_profiling_executor
_set_graph_executor_optimize = _use_cudnn_rnn_flatten_weight = lambda *enabled: False
_jit_get_operation = refused("_C._jit_get_operation", "call the function of that name")
_GLIBCXX_USE_CXX11_ABI = True
_FunctionBase = Function


def _check(
    cond: object,
    message: Callable[[], object] | None = None,
    error: type[Exception] = RuntimeError,
) -> None:
    """Raise an error with a message, which is made then, unless a condition holds.

    TypeError for a condition that is not a bool.
    """
    if not isinstance(cond, bool):
        raise TypeError(f"cond must be a bool, but got {type(cond)}")
    if not cond:
        if message is not None and not callable(message):
            raise TypeError("message must be a callable")
        raise error(
            "Expected cond to be True, but got False" if message is None else str(message())
        )


_check_index = partial(_check, error=IndexError)
_check_value = partial(_check, error=ValueError)
_check_type = partial(_check, error=TypeError)
_check_not_implemented = partial(_check, error=NotImplementedError)


def _check_is_size(
    i: int, message: Callable[[], object] | None = None, *, max: int | None = None
) -> None:
    """Raise a RuntimeError for a number that is negative, or above ``max``."""
    _check(i >= 0, message)
    _check(max is None or i <= max, message)


def _check_tensor_all(cond: Tensor, message: Callable[[], object] | None = None) -> None:
    """Raise a RuntimeError unless all elements of a tensor of bools are True.

    TypeError for anything but a tensor of bools.
    """
    if not isinstance(cond, Tensor):
        raise TypeError(f"cond must be a tensor, but got {type(cond)}")
    if cond.dtype.name != "bool":
        raise TypeError(f"cond tensor must have dtype torch.bool, but got {cond.dtype.name}")
    _check(bool(cond.all().item()), message)


def _assert_async(
    input: Tensor,
    assert_msg: str = "Expected Tensor with single nonzero value, but got zero",
) -> None:
    """Raise a RuntimeError where a tensor of one element is zero; this waits for a GPU."""
    if not input:
        raise RuntimeError(assert_msg)


def _convert_indices_from_coo_to_csr(
    input: Tensor, size: int, *, out_int32: bool = False
) -> Tensor:
    """Where each row begins in ascending row numbers, and where the last ends."""
    counts = bincount(input, minlength=size).cumsum(0)
    return cat([counts.new_zeros(1), counts]).to(int32 if out_int32 else int64)


def _has_compatible_shallow_copy_type(self: Tensor, from_: Tensor) -> bool:
    """Whether ``self.data = from_`` leaves the kind of tensor: its device and layout."""
    return self.device.type == from_.device.type and self.layout == from_.layout


def _shape_as_tensor(self: Tensor) -> Tensor:
    """The sizes of a tensor, as a tensor on the CPU."""
    return tensor(tuple(self.shape), dtype=int64)


def _int_mm(self: Tensor, mat2: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The product of two matrices of int8, in int32.

    RuntimeError for other types and shapes.
    """
    for role, matrix in (("self", self), ("mat2", mat2)):
        if matrix.ndim != 2:
            raise RuntimeError(f"Expected {role} to be of dimension 2 but got {matrix.ndim}")
        if matrix.dtype is not int8:
            raise RuntimeError(
                f"Expected {role} dtype to be of type int8 but got {matrix.dtype.name}"
            )
    return mm(self.to(int32), mat2.to(int32), out=out)


@overridable
def _assert(condition: object, message: str) -> None:
    """Raise an AssertionError if a condition does not hold."""
    assert condition, message


def _linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`nn.functional.linear`, of shape ``(..., out_features)``."""
    from lucid_gpu.nn.functional import linear

    return linear(input, weight, bias)


def _parse_to(*args: Any, **kwargs: Any) -> tuple[Any, Any, bool, Any]:
    """What arguments of `Tensor.to` say: device, dtype, whether it may be late, and the order."""
    from lucid_gpu.ops.elementwise import read_to

    where, kind, late, copy, order = read_to(args, kwargs)
    if copy:
        raise RuntimeError(".to() does not accept copy argument")
    return where, kind, late, order


_nn = SimpleNamespace(_parse_to=_parse_to, linear=_linear)
