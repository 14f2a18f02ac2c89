"""Sparse matrices of each backend: SciPy's on the CPU, CuPy's on a GPU.

Neither is imported before the first product; a program without sparse tensors needs no SciPy.
"""

from __future__ import annotations

from typing import Any

from lucid_gpu.device import device
from lucid_gpu.devices import backend, scipy
from lucid_gpu.dtypes import dtype

_MULTIPLIED = {  # what each library's products take
    "cpu": frozenset("iufc"),
    "cuda": frozenset("fc"),
}


def product(
    rows: Any,
    columns: Any,
    values: Any,
    shape: tuple[int, ...],
    dense: Any,
    d: dtype,
    where: device,
) -> Any:
    """The matrix that has ``values`` at (rows, columns) times a dense one, as an array.

    Repeated positions add up. 16-bit floats are accumulated in float32 and rounded once. None where
    the library does not multiply the type.

    Raises
    ------
    ModuleNotFoundError
        On the CPU where SciPy is missing; the message has the command that installs it.
    """
    library = scipy.module(where.type, "sparse", "sparse tensors on the CPU are multiplied")
    wide = d.compute.numpy
    values, dense = values.astype(wide, copy=False), dense.astype(wide, copy=False)
    if not values.size or not dense.size or not shape[0]:
        return backend(where).xp.zeros((shape[0], dense.shape[1]), d.numpy)
    if wide.kind not in _MULTIPLIED[where.type]:
        return None
    result = library.coo_matrix((values, (rows, columns)), shape=shape) @ dense
    return result.astype(d.numpy, copy=False)
