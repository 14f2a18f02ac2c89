"""Positions and their combinations: grids, products, triangles."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lucid_gpu import dtypes as dt
from lucid_gpu.device import device
from lucid_gpu.devices import backend, resolve
from lucid_gpu.dtypes import as_dtype, dtype
from lucid_gpu.ops.arguments import require_tensor
from lucid_gpu.ops.registry import named
from lucid_gpu.ops.shape import stack
from lucid_gpu.ops.splitting import unbind
from lucid_gpu.ops.user_warnings import warn_user
from lucid_gpu.tape.door import op
from lucid_gpu.tensor import Tensor, from_array


@op
def meshgrid(*tensors: Any, indexing: str | None = None) -> tuple[Tensor, ...]:
    """Coordinates on the grid that vectors span, as views of them.

    Parameters
    ----------
    tensors : vectors or numbers of one dtype, or one sequence of them
    indexing : {"ij", "xy"}
        ``"xy"`` exchanges the first two dimensions; the default is ``"ij"``.

    Returns
    -------
    tuple of Tensor
        One for each vector, all of shape ``(len(first), len(second), ...)``.

    Raises
    ------
    RuntimeError
        For no tensors, matrices, two types, and another ``indexing``.
    """
    vectors = tensors[0] if len(tensors) == 1 and not isinstance(tensors[0], Tensor) else tensors
    if not vectors:
        raise RuntimeError("meshgrid expects a non-empty TensorList")
    first = vectors[0]._expr.program
    for t in vectors:
        program = t._expr.program
        if len(t._expr.shape) > 1:
            raise RuntimeError(
                "torch.meshgrid: Expected 0D or 1D tensor in the tensor list but got: "
                f"a tensor of shape {list(t.shape)}"
            )
        if program.dtype is not first.dtype:
            raise RuntimeError("torch.meshgrid expects all tensors to have the same dtype")
        if program.device is not first.device:
            raise RuntimeError(
                "torch.meshgrid expects all tensors to have the same device, but got "
                f"{first.device} and {program.device}"
            )
    if indexing not in (None, "ij", "xy"):
        raise RuntimeError(
            'torch.meshgrid: indexing must be one of "xy" or "ij", but received: ' + f"{indexing}"
        )
    if indexing is None:
        warn_user(
            "torch.meshgrid: in an upcoming release, it will be required to pass the indexing "
            'argument; write indexing="ij".'
        )
    if indexing == "xy" and len(vectors) > 1:
        one, other, *rest = vectors
        other, one, *rest = meshgrid(other, one, *rest, indexing="ij")
        return (one, other, *rest)
    sizes = tuple([t.numel() for t in vectors])
    rank = len(vectors)
    return tuple(
        [t.reshape((*[1] * i, -1, *[1] * (rank - i - 1))).expand(sizes)
         for i, t in enumerate(vectors)]
    )  # fmt: skip


@op
def cartesian_prod(*tensors: Tensor) -> Tensor:
    """All tuples of one element of each vector, as the rows of a matrix.

    RuntimeError for anything but a vector.
    """
    for t in tensors:
        if t.ndim != 1:
            raise RuntimeError("Expect a 1D vector, but got shape " + str(list(t.shape)))
    if len(tensors) == 1:
        return tensors[0]
    return stack([t.reshape(-1) for t in meshgrid(*tensors, indexing="ij")], 1)


@op
def combinations(input: Tensor, r: int = 2, with_replacement: bool = False) -> Tensor:
    """All choices of ``r`` elements of a vector, as the rows of a matrix.

    RuntimeError for anything but a vector, and a negative ``r``.
    """
    if input.ndim != 1:
        raise RuntimeError(f"Expect a 1D vector, but got shape {list(input.shape)}")
    if r < 0:
        raise RuntimeError(f"Expect a non-negative number, but got {r}")
    if not r:
        return input.new_zeros((0,))
    places = np.indices((input.shape[0],) * r).reshape(r, -1)
    in_order = np.less_equal if with_replacement else np.less
    chosen = places[:, in_order(places[:-1], places[1:]).all(0)].T
    return input[_positions(chosen, dt.int64, input.device)]


def _positions(array: Any, d: dtype, where: device) -> Tensor:
    return from_array(backend(where).asarray(array, d, where), d, where)


def _triangle(row: Any, col: Any, offset: int, d: Any, where: Any, below: bool) -> Tensor:
    if row < 0 or col < 0:
        which, n = ("row", row) if row < 0 else ("col", col)
        raise RuntimeError(f"{which} must be non-negative, got{n}")
    rows, columns = np.arange(row)[:, None], np.arange(col)
    coordinates = np.nonzero(columns - rows <= offset if below else columns - rows >= offset)
    return _positions(np.stack(coordinates), dt.int64 if d is None else as_dtype(d), resolve(where))


def _indices(name: str, below: bool, doc: str) -> Callable[..., Tensor]:
    @op
    def indices(
        row: int, col: int, offset: int = 0, *, dtype: Any = None, device: Any = None,
        layout: Any = None,
    ) -> Tensor:  # fmt: skip
        return _triangle(row, col, offset, dtype, device, below)

    return named(indices, name, doc)


_DOC = """Rows and columns of {which} triangle's elements, row by row: a matrix (2, n).

    Parameters
    ----------
    row, col : int
        How many rows and columns the matrix has.
    offset : int
        The {end} diagonal that counts: positive ones lie above the main one.

    Raises
    ------
    RuntimeError
        For negative extents.
    """
tril_indices = _indices("tril_indices", True, _DOC.format(which="a lower", end="last"))
triu_indices = _indices("triu_indices", False, _DOC.format(which="an upper", end="first"))


@op
def unravel_index(indices: Tensor, shape: Any) -> tuple[Tensor, ...]:
    """Positions in a flattened tensor as positions along its dimensions, ``shape``.

    TypeError for positions that are not integers; ValueError for a negative extent.

    One tensor for each, of the shape of ``indices``.
    """
    require_tensor("unravel_index", "indices", 1, indices)
    if indices.dtype.category != 1:
        raise TypeError(f"expected 'indices' to be integer dtype, but got {indices.dtype}")
    if not isinstance(shape, (int, Sequence)):
        raise TypeError(f"expected 'shape' to be int or sequence of ints, but got {type(shape)}")
    extents = (shape,) if isinstance(shape, int) else tuple(shape)
    for n in extents:
        if not isinstance(n, int):
            raise TypeError(f"expected 'shape' sequence to only contain ints, but got {type(n)}")
    if any(n < 0 for n in extents):
        raise ValueError(f"'shape' cannot have negative values, but got {extents}")
    behind = [math.prod(extents[i + 1 :]) for i in range(len(extents))]
    steps, sizes = [indices.new_tensor(row, dtype=dt.int64) for row in (behind, extents)]
    return unbind(indices.unsqueeze(-1) // steps % sizes, -1)


FUNCTIONS = (meshgrid, cartesian_prod, combinations, tril_indices, triu_indices, unravel_index)
