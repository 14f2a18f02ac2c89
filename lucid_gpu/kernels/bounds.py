"""Positions held against a dimension: at once on the CPU, by a kernel nobody waits for on a GPU."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from lucid_gpu import dtypes as dt
from lucid_gpu.device import device
from lucid_gpu.devices import backend
from lucid_gpu.devices.copies import row_major, unspread
from lucid_gpu.devices.device_errors import DeviceError
from lucid_gpu.kernels.dispatch import by_device
from lucid_gpu.launch import Kernel, runs_cuda_c

__all__ = ["INSTANCES", "check", "no_element", "no_row", "no_row_of_bag", "outside"]

THREADS = 256
BLOCKS = 1024

_check = Kernel(
    "bounds.cu", "bounds_check",
    "const K* index, long long count, long long low, long long size, long long dim, "
    "long long fault",
    template="K", threads=THREADS,
)  # fmt: skip


OUTSIDE = "index {} is out of bounds for dimension {} with size {}"
NOTHING = "index is out of bounds for dimension with size 0"
outside = DeviceError(
    lambda *numbers: IndexError(OUTSIDE.format(*numbers) if numbers[-1] else NOTHING)
)
no_element = DeviceError(
    lambda *numbers: RuntimeError(OUTSIDE.format(*numbers))
)  # of gather, scatter
no_row = DeviceError(
    lambda position, _, size: IndexError(
        f"index out of range in self: embedding was asked for row {position} of a weight with "
        f"{size} rows"
    )
)


no_row_of_bag = DeviceError(
    lambda position, _, size: RuntimeError(
        "embedding_bag: Expected idx >= 0 && idx < num_embeddings but found idx to be "
        f"{position}; the weight has {size} rows"
    )
)


@by_device
def check(
    index: Any,
    size: int,
    dim: int,
    where: device,
    low: int | None = None,
    fault: DeviceError = outside,
    wait: bool = False,
) -> None:
    """Raise a fault's error where positions leave ``[low, size)``.

    On a GPU the error is raised where the host next waits for it; until then what was read there
    is some other element, and what was to be written is left out or written elsewhere within the
    tensor. ``LUCID_EAGER=1`` waits here.

    Parameters
    ----------
    index : array of integers
    size, dim : int
        The dimension, for the error.
    where : device
    low : int, optional
        ``-size`` unless given.
    fault : Fault
        Which error it is.
    wait : bool
        Raise it here, because something is about to be written in place.
    """
    low = -size if low is None else low
    if not index.size:
        return
    here = backend(where)
    index = row_major(index)
    grid = min(-(-index.size // THREADS), BLOCKS)
    numbers = index.size, low, size, dim, fault.address(here)
    _check(grid, (index, *numbers), K=dt.from_numpy_dtype(index.dtype))
    if where.type == "cpu":
        fault.check()
    elif wait or os.environ.get("LUCID_EAGER", "") not in ("", "0"):
        here.synchronize()


@check.on_meta
def _unknown(*_: Any, **__: Any) -> None:
    """Positions without values are within all bounds."""


@check.on_host
def _check_at_once(
    index: Any,
    size: int,
    dim: int,
    where: device,
    low: int | None = None,
    fault: DeviceError = outside,
    wait: bool = False,
) -> None:
    if not index.size:
        return
    low = -size if low is None else low
    if 0 in index.strides:
        index = unspread(index)
    if np.minimum.reduce(index, None) < low or np.maximum.reduce(index, None) >= size:
        bad = int(index[(index < low) | (index >= size)].flat[0])
        raise fault.error(bad, dim, size)


def seen_at_once(where: device) -> bool:
    """Whether numbers can be looked at here and now: a GPU would wait, a graph look only once."""
    return where.type == "cpu" and not runs_cuda_c(where) and not backend(where).records


INSTANCES = [(_check, {"K": d}) for d in (dt.int8, dt.int16, dt.int32, dt.int64)]
