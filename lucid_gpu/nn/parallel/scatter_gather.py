"""Batches cut into one part a device, and joined again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lucid_gpu.device import device as Device
from lucid_gpu.ops.shape import cat
from lucid_gpu.tensor import Tensor

__all__ = ["gather", "is_namedtuple", "scatter", "scatter_kwargs"]


def is_namedtuple(obj: Any) -> bool:
    """Whether an object is a named tuple."""
    return isinstance(obj, tuple) and hasattr(obj, "_fields")


def _on(target: int | str | Device) -> Device:
    return Device("cuda", target) if isinstance(target, int) else Device(target)


def scatter(inputs: Any, target_gpus: Sequence[int | str | Device], dim: int = 0) -> Any:
    """Nested inputs once a device, each tensor cut along ``dim``; anything else as it is.

    Parameters
    ----------
    inputs : tensor, or nested tuples, lists and dicts
    target_gpus : sequence of int, str or device
        Numbers of GPUs, or devices.
    dim : int

    Returns
    -------
    sequence
        As many as there are devices, or fewer where a tensor has fewer rows.
    """
    if isinstance(inputs, Tensor):
        parts = inputs.chunk(len(target_gpus), dim)
        return tuple(part.to(_on(d)) for part, d in zip(parts, target_gpus))
    if is_namedtuple(inputs):
        return [type(inputs)(*row) for row in zip(*(scatter(v, target_gpus, dim) for v in inputs))]
    if isinstance(inputs, (tuple, list)) and inputs:
        rows = zip(*(scatter(v, target_gpus, dim) for v in inputs))
        return [type(inputs)(row) for row in rows]
    if isinstance(inputs, dict) and inputs:
        columns = [scatter(v, target_gpus, dim) for v in inputs.values()]
        return [type(inputs)(zip(inputs, row)) for row in zip(*columns)]
    return [inputs for _ in target_gpus]


def scatter_kwargs(
    inputs: tuple[Any, ...],
    kwargs: dict[str, Any] | None,
    target_gpus: Sequence[int | str | Device],
    dim: int = 0,
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Arguments and arguments by name, `scatter`-ed, in equal number."""
    rows = scatter(inputs, target_gpus, dim) if inputs else []
    named = scatter(kwargs, target_gpus, dim) if kwargs else []
    count = max(len(rows), len(named))
    rows = [*rows, *(() for _ in range(count - len(rows)))]
    named = [*named, *({} for _ in range(count - len(named)))]
    return tuple(rows), tuple(named)


def gather(outputs: Any, target_device: int | str | Device, dim: int = 0) -> Any:
    """What `scatter` cut, joined along ``dim`` on one device.

    Parameters
    ----------
    outputs : sequence
        One a device: tensors, or tuples, lists and dicts of equal structure.
    target_device : int, str or device
    dim : int
    """
    first = outputs[0]
    if isinstance(first, Tensor):
        rows = [o.to(_on(target_device)) for o in outputs]
        return cat([row[None] for row in rows]) if not first.ndim else cat(rows, dim)
    if first is None:
        return None
    if isinstance(first, dict):
        return type(first)((k, gather([o[k] for o in outputs], target_device, dim)) for k in first)
    columns = [gather(column, target_device, dim) for column in zip(*outputs)]
    return type(first)(*columns) if hasattr(first, "_fields") else type(first)(columns)
