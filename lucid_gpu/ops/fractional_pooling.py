"""Fractional max pooling: maxima of windows at random places, of a wanted number."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from lucid_gpu.dtypes import int64
from lucid_gpu.ops.arguments import require_tensor
from lucid_gpu.ops.convolution import of_rank
from lucid_gpu.ops.creation import arange
from lucid_gpu.ops.random import rand
from lucid_gpu.ops.record import keeping, ties
from lucid_gpu.ops.shape import cat, own
from lucid_gpu.tape.door import Truth, op
from lucid_gpu.tape.modes import no_grad
from lucid_gpu.tensor import Tensor

__all__ = ["fractional_max_pool2d", "fractional_max_pool3d"]

_MAX = """The largest number of each of a given count of windows of {what}, at random places.

    Along an axis of length ``n``, window ``i`` of ``m`` begins at ``trunc((i + u) a) - trunc(u a)``
    with ``a = (n - k) / (m - 1)`` and a random ``u`` for each channel of each sample; the last one
    ends where the axis does (Graham, Fractional max-pooling, 2014).

    Parameters
    ----------
    input : Tensor, shape (n, c, {size}) or (c, {size})
    kernel_size : int or tuple of int
    output_size : int or tuple of int
        How many windows.
    output_ratio : float or tuple of float
        The same as a share of the input's size, instead.
    return_indices : bool
        Also return where in its plane, counted row by row, each maximum is.

    Returns
    -------
    Tensor, shape (n, c, ...) or (c, ...), or two of them

    Raises
    ------
    RuntimeError
        For settings that do not fit the input.
    ValueError
        With neither a size nor a ratio.
    IndexError
        For another rank.
    """
_AXES = ("time", "height", "width")


def _of_rank(rank: int) -> Callable[..., Any]:
    name = f"fractional_max_pool{rank}d"

    @op
    @keeping("input")
    def fractional_max_pool(
        input: Tensor,
        kernel_size: Any,
        output_size: Any = None,
        output_ratio: Any = None,
        return_indices: Truth = False,
        _random_samples: Tensor | None = None,
    ) -> Any:
        require_tensor(name, "input", 1, input)
        kernel, size = _settings(name, rank, input, kernel_size, output_size, output_ratio)
        shape = (1 if input.ndim == rank + 1 else input.shape[0], input.shape[-rank - 1])
        u = _random_samples
        if u is None:
            u = rand(*shape, rank, dtype=input.dtype, device=input.device)
        _check_samples(u, input, shape, rank)
        with no_grad():
            windows = _windows(u[: shape[0]], input.shape[-rank:], kernel, size)
            values = (
                input.detach()
                .reshape(*shape, prod(input.shape[-rank:]))
                .gather(-1, windows.flatten(2))
            )
            largest = values.view(windows.shape).argmax(-1, keepdim=True)
            places = windows.gather(-1, largest).view(*input.shape[:-rank], prod(size))
        pooled = ties(input.flatten(-rank).gather(-1, places))
        pooled = own(pooled.view(*input.shape[:-rank], *size))
        return (pooled, own(places.view(pooled.shape))) if return_indices else pooled

    return of_rank(fractional_max_pool, name, _MAX, rank)


fractional_max_pool2d, fractional_max_pool3d = map(_of_rank, (2, 3))


def _settings(
    name: str, rank: int, input: Tensor, kernel_size: Any, output_size: Any, output_ratio: Any
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Kernel and number of windows along each axis."""
    if output_size is None and output_ratio is None:
        raise ValueError(f"{name} requires specifying either an output_size or an output_ratio")
    if input.ndim not in (rank + 1, rank + 2):
        raise IndexError(
            f"{name}: expected an input of {rank + 1} or {rank + 2} dimensions, got {input.ndim}"
        )
    for dim in range(1, input.ndim):  # the first may be of channels, as in PyTorch
        if not input.shape[dim]:
            raise RuntimeError(
                f"{name}(): Expected input to have non-zero size for non-batch dimensions, but got "
                f"{list(input.shape)} with dimension {dim} being empty."
            )
    sizes = tuple(input.shape[-rank:])
    if output_size is None:
        ratios = _each(name, "output_ratio", rank, output_ratio)
        output_size = [int(n * r) for n, r in zip(sizes, ratios, strict=True)]
    kernel = _each(name, "kernel_size", rank, kernel_size)
    size = _each(name, "output_size", rank, output_size)
    for axis, n, k, m in zip(_AXES[-rank:], sizes, kernel, size, strict=True):
        if m + k - 1 > n:
            raise RuntimeError(
                f"{name}(): pool {axis} {k} too large relative to input {axis} {n}: "
                f"{m} windows need {m + k - 1}"
            )
        if k < 1:
            raise RuntimeError(f"{name}: kernel_size should be greater than zero, but got {k}")
    return kernel, size


def _each(name: str, setting: str, rank: int, value: Any) -> tuple[Any, ...]:
    values = tuple(value) if isinstance(value, Sequence) else (value,) * rank
    if len(values) != rank:
        count = {2: "Ints", 3: "three Ints"}[rank]
        if setting == "output_ratio":
            raise ValueError(
                f"{name} requires output_ratio to either be a single Int or tuple of {count}."
            )
        raise RuntimeError(f"{name}: {setting} must either be a single Int or tuple of {count}")
    return values


def _check_samples(u: Tensor, input: Tensor, shape: tuple[int, int], rank: int) -> None:
    if u.dtype is not input.dtype:
        raise RuntimeError("Expect _random_samples to have the same dtype as input")
    if u.ndim != 3:
        raise RuntimeError(f"Expect _random_samples to have 3 dimensions, got {u.ndim}")
    if u.shape[0] < shape[0]:
        raise RuntimeError("Expect _random_samples.size(0) no less then input batch size.")
    if u.shape[1] != shape[1]:
        raise RuntimeError("Expect _random_samples.size(1) equals to input channel size.")
    if u.shape[2] != rank:
        raise RuntimeError(f"Expect _random_samples.size(2) equals to {rank}; got {u.shape[2]}.")


def _windows(
    u: Tensor, sizes: Sequence[int], kernel: Sequence[int], counts: Sequence[int]
) -> Tensor:
    """Places in a plane, shape (n, c, *counts, numbers of a window)."""
    rank, places = len(sizes), None
    for axis, (n, k, m) in enumerate(zip(sizes, kernel, counts, strict=True)):
        # PyTorch numbers the samples of images from the width, those of volumes from the time.
        at = u[..., 1 - axis if rank == 2 else axis, None]
        inside = arange(k, device=u.device)
        along = _starts(at, n, k, m)[..., None] + inside
        shape = [*u.shape[:2], *[1] * (2 * rank)]
        shape[2 + axis], shape[2 + rank + axis] = m, k
        along = along.view(shape)
        places = along if places is None else places * n + along
    assert places is not None
    return places.flatten(-rank)


def _starts(u: Tensor, n: int, k: int, m: int) -> Tensor:
    """Where the windows begin, shape (n, c, m)."""
    last = u.new_full((*u.shape[:2], min(m, 1)), n - k).to(int64)
    if m < 2:
        return last
    step = (n - k) / u.new_full((), m - 1)
    i = arange(m - 1, dtype=u.dtype, device=u.device)
    return cat([(((i + u) * step).trunc() - (u * step).trunc()).to(int64), last], -1)
