"""What users' kernels may read and write, and the memory they get."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from lucid_gpu.core.program import INFERENCE
from lucid_gpu.device import device
from lucid_gpu.devices import backend_of_array
from lucid_gpu.devices import device_of as _of_array
from lucid_gpu.dtypes import dtype, from_numpy_dtype
from lucid_gpu.launch.signature import NUMBERS, Parameter
from lucid_gpu.launch.taking import declared
from lucid_gpu.ops.in_place import refuse_inference, refuse_overlap, refuse_recorded
from lucid_gpu.tape.modes import state
from lucid_gpu.tensor import Tensor


def device_of(name: str, parameters: Sequence[Parameter], operands: Sequence[Any]) -> device:
    """The device of a kernel's arrays.

    Raises
    ------
    RuntimeError
        If they are on several.
    TypeError
        If there is none, or an argument for a pointer is neither tensor nor array.
    """
    first: tuple[str, device] | None = None
    for parameter, argument in zip(parameters, operands, strict=True):
        if not parameter.pointer or argument is None:
            continue
        if not isinstance(argument, Tensor) and backend_of_array(argument) is None:
            raise TypeError(
                f"{name}: {parameter.name} is declared '{declared(parameter)}' and takes a tensor; "
                f"got {argument!r} ({type(argument).__name__})"
            )
        where = argument.device if isinstance(argument, Tensor) else _of_array(argument)
        if first is None:
            first = parameter.name, where
        elif where is not first[1]:
            raise RuntimeError(
                "Expected all tensors to be on the same device, but found at least two devices, "
                f"{first[1]} and {where}! ({name}: {first[0]} is on {first[1]}, {parameter.name} "
                f"on {where})"
            )
    if first is None:
        raise TypeError(f"{name} was given no tensor, so it does not know where to run")
    return first[1]


def element_type(name: str, parameter: Parameter, argument: Any) -> dtype:
    """The dtype of a tensor or an array."""
    if isinstance(argument, Tensor):
        return argument.dtype
    try:
        return from_numpy_dtype(argument.dtype)
    except TypeError as error:
        raise TypeError(f"{name}: {parameter.name}: {error}") from None


def size_of(argument: Any) -> int:
    """How many elements a tensor or an array has."""
    return prod(argument.shape)


def check(name: str, parameter: Parameter, argument: Any) -> None:
    """Refuse a tensor or array that is not what a parameter declares, or must not be used so."""
    if not parameter.pointer or argument is None:
        return
    _check_type(name, parameter, argument)
    _check_layout(name, parameter, argument)
    if isinstance(argument, Tensor):
        _check_use(name, parameter, argument)
    elif not parameter.const and not _writeable(argument):
        raise ValueError(f"{_says(name, parameter)} and is written; got a read-only array")


def _says(name: str, parameter: Parameter) -> str:
    return f"{name}: {parameter.name} is declared '{declared(parameter)}'"


def _check_type(name: str, parameter: Parameter, argument: Any) -> None:
    wanted = NUMBERS.get(parameter.type, (None, None))[1]
    if wanted is None:
        return
    got = element_type(name, parameter, argument)
    if got is not wanted:
        raise TypeError(
            f"{_says(name, parameter)}; expected elements of type {wanted.name}, got {got.name}"
        )


def _check_layout(name: str, parameter: Parameter, argument: Any) -> None:
    dimensions = len(argument.shape)
    if parameter.dimensions:
        if dimensions != parameter.dimensions:
            raise ValueError(
                f"{_says(name, parameter)}; expected {parameter.dimensions} dimensions, got shape "
                f"{list(argument.shape)}"
            )
        if not parameter.const:
            refuse_overlap(getattr(argument, "array", argument), name)
        return
    tensor = isinstance(argument, Tensor)
    whole = argument.is_contiguous() if tensor else argument.flags.c_contiguous
    if not whole:
        array = argument.array if tensor else argument
        strides = tuple([s // array.itemsize for s in array.strides])
        const = f"const {parameter.type}" if parameter.const else parameter.type
        mend = (
            f"pass {parameter.name}.contiguous()"
            if parameter.const
            else "write to a new tensor and copy_ it"
        )
        raise ValueError(
            f"{_says(name, parameter)}, which takes a contiguous array; got strides {strides} for "
            f"shape {list(argument.shape)}. Either {mend}, or declare it "
            f"'strided<{const}, {dimensions}> {parameter.name}'"
        )


def _check_use(name: str, parameter: Parameter, tensor: Tensor) -> None:
    """Refuse what would lose a gradient, and what must not be written."""
    if tensor._wrapper is not None:
        raise RuntimeError(
            f"{name} cannot see into {parameter.name}, which is batched or has a tangent: call the "
            "kernel in an autograd.Function that has a vmap or jvp method"
        )
    if not parameter.const:
        if tensor._expr.program.marks & INFERENCE:
            refuse_inference()
        if state.grad:
            refuse_recorded(tensor, False, name)
    if state.grad and tensor.requires_grad:
        use = "reads" if parameter.const else "writes"
        raise RuntimeError(
            f"{name} {use} {parameter.name}, which requires grad, and a kernel records no "
            "gradient: call it in forward of an autograd.Function whose backward gives the "
            f"gradient, under lucid_gpu.no_grad(), or with {parameter.name}.detach(); a backward "
            "that calls it is marked once_differentiable"
        )


def _writeable(array: Any) -> bool:
    return bool(getattr(array.flags, "writeable", True))  # CuPy's arrays always are


def buffers(name: str, parameters: Sequence[Parameter], operands: Sequence[Any]) -> list[Any]:
    """The arguments with arrays for tensors: pending values computed, then written ones marked."""
    arrays = list(operands)
    pairs = [(i, t) for i, t in enumerate(operands) if isinstance(t, Tensor)]
    for i, tensor in pairs:
        arrays[i] = tensor.array
    for i, tensor in pairs:
        if not parameters[i].const:
            arrays[i] = tensor._writable(name)
    return arrays
