"""Attention in tiles: forward keeps one number a row, backward computes the scores again.

On a GPU these are the kernels of ``attention.cu``; the NumPy twin walks blocks of scores that stay
in the cache, heads shared out over the team of threads. Dao et al., "FlashAttention" (2022); Dao,
"FlashAttention-2" (2023).
"""

from __future__ import annotations

import functools
import math
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from lucid_gpu.device import device
from lucid_gpu.devices import backend, threads
from lucid_gpu.devices.blocks import each
from lucid_gpu.devices.scratch import memory_of_thread
from lucid_gpu.dtypes import bfloat16, dtype, float16, float32
from lucid_gpu.kernels import attention_by_calls as by_calls
from lucid_gpu.kernels.rows import address
from lucid_gpu.launch import Kernel, runs_cuda_c

__all__ = ["applies", "backward", "forward"]

WIDTHS = (32, 64, 96, 128)  # of heads; those between are padded
TYPES = (float16, bfloat16, float32)
ACCESS = 16  # bytes, where all rows begin at a multiple of them
LOG2_E = math.log2(math.e)
BLOCK = 1 << 18  # scores of a block of the NumPy twin
SHARED_FROM = 1 << 15  # scores of a block below which handing it to a thread costs more than it

_TEMPLATE = "T, D, M, N, W, MMA"
FORM = "24q 6i 2f"  # of the structure `at`: strides of eight arrays, sizes, scales


def _kernel(name: str, declaration: str) -> Kernel:
    declaration += ", lucid_attention at"
    return Kernel("attention.cu", name, declaration, _TEMPLATE, 128, {"at": FORM}, blocks=2)


attention_forward = _kernel(
    "attention_forward", "const T* q, const T* k, const T* v, T* o, float* lse"
)
attention_queries = _kernel(
    "attention_queries",
    "const T* q, const T* k, const T* v, const T* o, const T* g, const float* lse, T* dq, "
    "float* delta",
)
attention_keys = _kernel(
    "attention_keys",
    "const T* q, const T* k, const T* v, const T* g, const float* lse, const float* delta, T* dk, "
    "T* dv",
)


class Tiles(NamedTuple):
    """Rows of a block's own tile and of those it walks."""

    own: int
    other: int


# Chosen by registers (nothing spills) and shared memory (two blocks fit into the 100 KiB that a
# multiprocessor has from compute capability 8.6 on); no GPU has tuned them yet.
_PLAIN = {32: Tiles(64, 64), 64: Tiles(64, 32), 96: Tiles(32, 16), 128: Tiles(32, 16)}
_PLAIN_BACKWARD = {32: Tiles(64, 32), 64: Tiles(32, 32), 96: Tiles(32, 16), 128: Tiles(32, 8)}
_TENSOR = {32: Tiles(64, 64), 64: Tiles(64, 64), 96: Tiles(64, 64), 128: Tiles(64, 32)}
_TENSOR_BACKWARD = {32: Tiles(64, 64), 64: Tiles(64, 64), 96: Tiles(64, 32), 128: Tiles(64, 16)}
_TABLES = {
    (False, False): _PLAIN,
    (False, True): _PLAIN_BACKWARD,
    (True, False): _TENSOR,
    (True, True): _TENSOR_BACKWARD,
}


def _instance(
    kernel: Kernel, d: dtype, width: int, access: int, tensor: bool
) -> tuple[Kernel, dict[str, Any]]:
    tiles = _TABLES[tensor, kernel is not attention_forward][width]
    return kernel, {
        "T": d, "D": width, "M": tiles.own, "N": tiles.other, "W": access, "MMA": int(tensor)
    }  # fmt: skip


INSTANCES = [
    _instance(kernel, d, width, access, tensor)
    for kernel in (attention_forward, attention_queries, attention_keys)
    for d, access, tensor, widths in (
        (float32, 4, False, WIDTHS),
        (bfloat16, 8, True, WIDTHS),
        (float16, 8, False, (64,)),
        (float16, 1, True, (32,)),
    )
    for width in widths
]
STACK = {"attention_forward": 0, "attention_queries": 0, "attention_keys": 0}  # nothing spills


def _shared_bytes(template: dict[str, Any], kernel: Kernel) -> int:
    """Dynamic shared memory of an instance: its tiles, padded rows, and what lies beside them."""
    own, other, width = template["M"], template["N"], template["D"]
    row = 2 * (width + 8) if template["MMA"] else 4 * (width + 4)
    scratch = 0 if template["MMA"] else 4 * own * (other + 4)
    if kernel is attention_forward:
        return (own + 2 * other) * row + scratch
    return 2 * (own + other) * row + scratch + (8 * other if kernel is attention_keys else 0)


def applies(q: Any, k: Any, v: Any) -> bool:
    """Whether arrays of shape (batch, heads, rows, columns), of `TYPES`, can be taken in tiles."""
    batch, heads = q.shape[:2]
    return (
        0 < q.shape[3] == v.shape[3] <= WIDTHS[-1]
        and k.shape[0] == v.shape[0] == batch <= 65535
        and heads <= 65535
        and 0 < k.shape[1] == v.shape[1]
        and heads % k.shape[1] == 0
        and 0 not in q.shape
        and 0 not in k.shape
    )


def forward(
    q: Any, k: Any, v: Any, scale: float, causal: bool, d: dtype, where: device
) -> tuple[Any, Any]:
    """``softmax(q k^T scale) v``, and log2 of each row's sum of ``2 ** (q k^T scale log2(e))``.

    Parameters
    ----------
    q : array, shape (batch, heads, queries, columns)
        Any strides. ``applies`` holds of all three.
    k, v : array, shape (batch, groups, keys, columns)
        ``heads / groups`` heads of queries share one.

    Returns
    -------
    array of q's shape and order in memory, and array of float32, shape (batch, heads, queries)
    """
    out = _empty_like(where, d, q)
    lse = backend(where).empty(q.shape[:3], float32, where)
    if runs_cuda_c(where):
        q, k, v = (_rows_together(where, x) for x in (q, k, v))
        walked = (q, k, v, out, None, None, None, None)
        _launch(attention_forward, (q, k, v, out, lse), walked, scale, causal, d, where)
    else:
        _forward_on_host(q, k, v, out, lse, scale, causal)
    return out, lse


def backward(
    saved: tuple[Any, Any, Any, Any, Any],
    g: Any,
    scale: float,
    causal: bool,
    d: dtype,
    where: device,
) -> tuple[Any, Any, Any]:
    """The gradients of q, k and v; ``saved`` is q, k, v, out and lse of `forward`.

    Where q, k and v are the thirds of each row of one array, so are the gradients, in memory of
    shape (batch, rows, 3 * heads * columns).
    """
    q, k, v, out, lse = saved
    dq, dk, dv = _empty_gradients(where, d, q, k, v)
    if runs_cuda_c(where):
        q, k, v, out, g = (_rows_together(where, x) for x in (q, k, v, out, g))
        delta = backend(where).empty(lse.shape, float32, where)
        walked = (q, k, v, out, g, dq, dk, dv)
        first = (q, k, v, out, g, lse, dq, delta)
        _launch(attention_queries, first, walked, scale, causal, d, where)
        second = (q, k, v, g, lse, delta, dk, dv)
        _launch(attention_keys, second, walked, scale, causal, d, where)
    else:
        _backward_on_host(saved, g, (dq, dk, dv), scale, causal)
    return dq, dk, dv


def _empty_gradients(where: device, d: dtype, q: Any, k: Any, v: Any) -> Any:
    batch, heads, rows, columns = q.shape
    third = heads * columns * q.itemsize
    packed = (3 * rows * third, columns * q.itemsize, 3 * third, q.itemsize)
    if (
        q.strides == k.strides == v.strides == packed
        and q.shape == k.shape == v.shape
        and address(v) - address(k) == address(k) - address(q) == third
    ):
        made = backend(where).empty((batch, rows, 3 * heads * columns), d, where)
        return made.reshape(batch, rows, 3, heads, columns).transpose(2, 0, 3, 1, 4)
    return [_empty_like(where, d, x) for x in (q, k, v)]


def _empty_like(where: device, d: dtype, x: Any) -> Any:
    """A fresh array of x's shape, with heads inside rows in memory where ``x`` has them there."""
    batch, heads, rows, columns = x.shape
    if x.strides[1] < x.strides[2] and heads > 1:
        made = backend(where).empty((batch, rows, heads, columns), d, where)
        return made.transpose(0, 2, 1, 3)
    return backend(where).empty(x.shape, d, where)


# --- CUDA C --------------------------------------------------------------------------------------


def _rows_together(where: device, x: Any) -> Any:
    """An array whose columns lie side by side."""
    if x.strides[3] == x.itemsize or x.shape[3] == 1:
        return x
    return backend(where).xp.ascontiguousarray(x)


def _launch(
    kernel: Kernel,
    pointers: tuple[Any, ...],
    walked: tuple[Any, ...],
    scale: float,
    causal: bool,
    d: dtype,
    where: device,
) -> None:
    """Start a kernel; ``walked`` are the arrays of its structure of strides, None where unused."""
    aligned = not any(address(x) % ACCESS for x in walked if x is not None)
    layouts = tuple([None if x is None else (x.shape, x.strides) for x in walked])
    tensor = d is not float32 and has_tensor_cores(where)
    grid, shared, at, template = _plan(kernel, layouts, scale, causal, d, tensor, aligned)
    kernel(grid, (*pointers, at), shared=shared, **template)


Layout = tuple[tuple[int, ...], tuple[int, ...]]  # shape, and strides in bytes


@functools.lru_cache(maxsize=1024)
def _plan(
    kernel: Kernel,
    layouts: tuple[Layout | None, ...],
    scale: float,
    causal: bool,
    d: dtype,
    tensor: bool,
    aligned: bool,
) -> tuple[tuple[int, int, int], int, bytes, dict[str, Any]]:
    """Grid, shared memory, structure of strides and sizes, and template arguments of a launch."""
    present = [layout for layout in layouts if layout is not None]
    ((batch, heads, queries, columns), _), ((_, groups, keys, _), _) = present[:2]
    aligned = aligned and columns * d.itemsize % ACCESS == 0
    aligned = aligned and not any(step % ACCESS for _, strides in present for step in strides[:3])
    width = next(w for w in WIDTHS if w >= columns)
    access = ACCESS // d.itemsize if aligned else 1
    _, template = _instance(kernel, d, width, access, tensor)
    steps: list[int] = []
    for layout in layouts:
        steps += (0, 0, 0) if layout is None else [step // d.itemsize for step in layout[1][:3]]
    sizes = (heads, heads // groups, queries, keys, columns, int(causal))
    at = struct.pack(f"={FORM}", *steps, *sizes, scale * LOG2_E, scale)
    rows, across = (keys, groups) if kernel is attention_keys else (queries, heads)
    grid = (-(-rows // template["M"]), across, batch)
    return grid, _shared_bytes(template, kernel), at, template


@functools.cache
def has_tensor_cores(where: device) -> bool:
    """Whether a device multiplies 16-bit matrices by mma.sync, as the host does in its stead."""
    if where.type == "cpu":
        return True
    cuda = backend(where).xp.cuda
    return int(cuda.Device(where.index).compute_capability) >= 80


# --- NumPy ---------------------------------------------------------------------------------------

Place = tuple[slice, slice, slice]  # batches, groups of heads, rows of queries


def _forward_on_host(
    q: Any, k: Any, v: Any, out: Any, lse: Any, scale: float, causal: bool
) -> None:
    if by_calls.applies((q, k, v, out), causal):
        by_calls.forward(q, k, v, out, lse, scale, causal)
        return
    q, k, v, out, lse = (_by_group(x, k) for x in (q, k, v, out, lse))

    def work(place: Place) -> None:
        heads = place[:2]
        wide_k, wide_v = _wide(k[heads]), _wide(v[heads])
        ones = np.ones(k.shape[3], np.float32)
        for rows, end in _blocks(place, q, k, causal):
            at = (*heads, slice(None), rows)
            my_q = _wide(q[at]) * np.float32(scale)
            (s,) = memory_of_thread.views([float32], (*my_q.shape[:-1], end))
            _scores(my_q, wide_k[..., :end, :], rows, causal, s)
            top = s.max(axis=-1, keepdims=True)
            s -= top
            np.exp(s, out=s)
            total = np.matmul(s, ones[:end])[..., None]  # faster than numpy.add.reduce
            weighted = np.matmul(s, wide_v[..., :end, :])
            np.divide(weighted, total, out=out[at], casting="unsafe")
            lse[at] = ((top + np.log(total)) * np.float32(LOG2_E))[..., 0]

    each([*_places(q, k)], work)


def _backward_on_host(
    saved: tuple[Any, ...], g: Any, gradients: tuple[Any, ...], scale: float, causal: bool
) -> None:
    if by_calls.applies((*saved[:4], g, *gradients), causal):
        by_calls.backward(saved, g, gradients, scale, causal)
        return
    q, k, v, out, lse, g, dq, dk, dv = (_by_group(x, saved[1]) for x in (*saved, g, *gradients))
    places = [*_places(q, k)]

    def work(place: Place) -> tuple[Any, Any] | None:
        heads = place[:2]
        wide_k, wide_v = _with_column(k[heads], 1), _with_column(v[heads], 1)
        dk_sum, dv_sum = (np.zeros(x[heads].shape, np.float32) for x in (k, v))
        for rows, end in _blocks(place, q, k, causal):
            at = (*heads, slice(None), rows)
            my_g = _wide(g[at])
            my_q = _wide(q[at]) * np.float32(scale)
            p, ds = memory_of_thread.views([float32, float32], (*my_q.shape[:-1], end))
            less = lse[at] * np.float32(-1 / LOG2_E)
            _scores(_with_column(my_q, less), wide_k[..., :end, :], rows, causal, p)
            np.exp(p, out=p)
            dv_sum[..., :end, :] += _over_group(p, my_g)
            less = -np.vecdot(my_g, _wide(out[at]))
            np.matmul(_with_column(my_g, less), wide_v[..., :end, :].swapaxes(-1, -2), ds)
            ds *= p
            dk_sum[..., :end, :] += _over_group(ds, my_q)
            weighted = np.matmul(ds, wide_k[..., :end, :-1])
            np.multiply(weighted, np.float32(scale), out=dq[at], casting="unsafe")
        if place[2] == slice(0, q.shape[3]):
            dk[heads], dv[heads] = dk_sum, dv_sum
            return None
        return dk_sum, dv_sum

    parts = [part for part in each(places, work) if part is not None]
    if parts:  # of one head, added in their order whoever found them
        dk[...], dv[...] = sum([a for a, _ in parts]), sum([b for _, b in parts])


def _by_group(x: Any, k: Any) -> Any:
    """The heads' dimension as two: the groups that share a key, and their members."""
    return x.reshape(x.shape[0], k.shape[1], x.shape[1] // k.shape[1], *x.shape[2:])


def _places(q: Any, k: Any) -> Iterator[Place]:
    """Heads whose scores are about a block together; a single large head falls into parts."""
    batch, groups, shared, queries = q.shape[:4]
    of_group = shared * queries * k.shape[3]
    block = min(BLOCK, max(batch * groups * of_group // threads.team.count, SHARED_FROM))
    heads = min(max(block // of_group, 1), groups)
    batches = max(block // (of_group * groups), 1)
    parts = 2 * threads.team.count if batch * groups == 1 and of_group > 8 * BLOCK else 1
    rows = -(-queries // parts)
    for b in range(0, batch, batches):
        for h in range(0, groups, heads):
            for r in range(0, queries, rows):
                yield slice(b, b + batches), slice(h, h + heads), slice(r, min(r + rows, queries))


def _blocks(place: Place, q: Any, k: Any, causal: bool) -> Iterator[tuple[slice, int]]:
    """Rows of a place whose scores are a block, and how many keys these see."""
    keys = k.shape[3]
    of_row = math.prod(q[place[:2]].shape[:3]) * keys
    rows = max(BLOCK // of_row, 16)
    for first in range(place[2].start, place[2].stop, rows):
        last = min(first + rows, place[2].stop)
        yield slice(first, last), min(last, keys) if causal else keys


def _scores(q: Any, k: Any, rows: slice, causal: bool, out: Any) -> None:
    """``q k^T`` of a block; of what a causal row does not see, -inf."""
    np.matmul(q, k.swapaxes(-1, -2), out)
    if causal:
        hidden = np.arange(rows.start, rows.stop)[:, None] < np.arange(rows.start, k.shape[-2])
        np.copyto(out[..., rows.start :], -np.inf, where=hidden)


def _with_column(x: Any, column: Any) -> Any:
    """Rows of float32 with one more element: their product with rows that end in 1 adds it."""
    wide = np.empty((*x.shape[:-1], x.shape[-1] + 1), np.float32)
    wide[..., :-1], wide[..., -1] = x, column
    return wide


def _wide(x: Any) -> Any:
    return x.astype(np.float32, copy=False)


def _over_group(weights: Any, x: Any) -> Any:
    """``weights^T x``, summed over the heads that share a key."""
    product = np.matmul(weights.swapaxes(-1, -2), x)
    return product if product.shape[2] == 1 else product.sum(axis=2, keepdims=True)
