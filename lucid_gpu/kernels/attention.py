"""Attention in tiles: forward keeps one number a row, backward computes the scores again.

On a GPU these are the kernels of ``attention_forward.cu`` and ``attention_backward.cu``. On a CPU a
head is a recording of NumPy's loops and BLAS (`lucid_gpu.devices.recording`), strip after strip of
rows whose scores stay in the cache; of a causal head only scores that are seen are computed, but
for the corners of the blocks on the diagonal. Threads share the heads. Dao et al., "FlashAttention"
(2022); Dao, "FlashAttention-2" (2023).

`forward_by_cudnn` and `backward_by_cudnn` are cuDNN's way, for programs that ask for it.
"""

from __future__ import annotations

import functools
import itertools
import operator
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from lucid_gpu.device import device
from lucid_gpu.devices import backend, cudnn, loops, threads
from lucid_gpu.devices.blocks import each, slices
from lucid_gpu.devices.copies import row_major
from lucid_gpu.devices.current_gpu import on_gpu
from lucid_gpu.devices.precision import matmul as precision
from lucid_gpu.devices.recording import Immediate, Recording
from lucid_gpu.dtypes import bfloat16, dtype, float16, float32, int64
from lucid_gpu.kernels import attention_backward
from lucid_gpu.kernels.attention_tiles import (
    ACCESS,
    FORM,
    GIVEN,
    LOG2_E,
    PLAIN,
    TEMPLATE,
    TENSOR,
    TF32,
    WGMMA,
    WIDTHS,
    Described,
    Layout,
    Problem,
    Tables,
    Tiles,
    Typed,
)
from lucid_gpu.kernels.dispatch import by_device
from lucid_gpu.launch import Kernel, runs_cuda_c
from lucid_gpu.launch.arguments import number_fields
from lucid_gpu.launch.kernel import Launch

if TYPE_CHECKING:
    from lucid_gpu.devices.port import Backend

__all__ = [
    "Dropout", "Rules", "applies", "backward", "backward_by_cudnn", "forward", "forward_by_cudnn",
]  # fmt: skip

TYPES = (float16, bfloat16, float32)

# On a CPU:
SCORES = 1 << 18  # of a strip of a head's rows
ROWS = 16  # of a block of a causal head: what is computed in vain is a triangle in each
SHARED_FROM = 1 << 15  # scores that are worth another thread
FEWEST = 1 << 15  # scores below which a recording of the shape costs more than they do


class Dropout(NamedTuple):
    """Weights are dropped with probability ``p``, by a draw of their matrix of all heads.

    `seed` and `draw` are those of a generator (`lucid_gpu.devices.philox`).
    """

    p: float
    seed: int
    draw: int


class Rules(NamedTuple):
    """What attention is told beside its arrays.

    Attributes
    ----------
    scale : float
    causal : bool
        Query i sees the keys 0 to i.
    mask : array, shape (batch, heads, queries, keys), optional
        Of bool, True where a key takes part, or numbers to add to the scores, of the type of q or
        float32. Broadcast to that shape, its strides are 0.
    dropout : Dropout, optional
    """

    scale: float
    causal: bool = False
    mask: Any = None
    dropout: Dropout | None = None


class setting:
    """Whether ``LUCID_WGMMA=1`` asks for `attention_hopper`, which no GPU has confirmed."""

    wgmma = os.environ.get("LUCID_WGMMA", "") not in ("", "0")


attention_forward, attention_hopper = (
    Kernel(
        source,
        "attention_forward",
        "const T* q, const T* k, const T* v, T* o, float* lse" + GIVEN,
        TEMPLATE,
        128,
        {"at": FORM},
        blocks=2,
    )
    for source in ("attention_forward.cu", "attention_hopper.cu")
)

# Chosen by registers (nothing spills) and shared memory (two blocks fit into the 100 KiB that a
# multiprocessor has from compute capability 8.6 on); no GPU has tuned them yet.
_PLAIN = {
    32: Tiles(64, 64), 64: Tiles(64, 32), 96: Tiles(32, 16), 128: Tiles(32, 16),
    192: Tiles(32, 8), 256: Tiles(16, 8),
}  # fmt: skip
_TENSOR = {
    32: Tiles(128, 64), 64: Tiles(128, 64), 96: Tiles(128, 32), 128: Tiles(64, 32),
    192: Tiles(64, 16), 256: Tiles(64, 16),
}  # fmt: skip
_RULED = {width: Tiles(64, tiles.other) for width, tiles in _TENSOR.items()}
_TF32 = {32: Tiles(64, 32), 64: Tiles(64, 32), 96: Tiles(64, 16), 128: Tiles(64, 16)}
_WGMMA = {64: Tiles(64, 64), 128: Tiles(64, 64)}
TILES = Tables(_PLAIN, _PLAIN, _TENSOR, _RULED, _TF32, _TF32, _WGMMA, _WGMMA)
FEW = TILES._replace(tensor=_RULED)  # for heads whose queries are one such tile


def _kernel(template: dict[str, Any]) -> Kernel:
    return attention_hopper if template["MMA"] == WGMMA else attention_forward


INSTANCES = [
    (_kernel(template), template)
    for template in (*TILES.templates(), FEW.template(bfloat16, 64, 8, TENSOR, None, False))
]
STACK = {"attention_forward": 0}  # nothing spills


def shared_bytes(template: dict[str, Any], kernel: Kernel) -> int:
    """Dynamic shared memory of an instance: its tiles, padded rows, and what lies beside them."""
    own, other, width = template["M"], template["N"], template["D"]
    rows = {TENSOR: 2 * (width + 8), WGMMA: 2 * width}
    row = rows.get(template["MMA"], 4 * (width + 4))
    if template["MMA"]:
        return max(own, 4 * other) * row
    return (own + 2 * other) * row + 4 * own * (other + 4)


def takes(scale: float, ruled: bool, where: device) -> bool:
    """Whether a device's tiles take a scale and, where ``ruled`` says so, a mask or dropout.

    CUDA C takes both, and looks for the largest score before it scales them; NumPy takes neither.
    """
    return scale > 0 if runs_cuda_c(where) else not ruled


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


@by_device
def forward(q: Any, k: Any, v: Any, rules: Rules, d: dtype, where: device) -> tuple[Any, Any]:
    """``softmax(q k^T scale) v``, and log2 of each row's sum of ``2 ** (q k^T scale log2(e))``.

    Where ``rules`` has a mask, a row it hides whole is zeros, and its logarithm infinite.

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
    there = backend(where)
    out = _empty_like(there, d, q, q.shape[3])
    lse = there.new(q.shape[:3], float32.numpy)
    q, k, v = _rows_together(there, q, k, v)
    layouts = (*map(_layout, (q, k, v, out)), None, None, None, None)
    arrays = q, k, v, out, lse
    addresses, aligned = _addresses(arrays, where)
    mask, described, numbers = _given(rules, there)
    products = _products(d, where, q.shape[3])
    if products == TENSOR and setting.wgmma and has_warp_groups(where):
        products = WGMMA
    launch = _plan(layouts, described, d, where, aligned, products)
    launch((*arrays, mask), (*addresses, there.address(mask) if mask is not None else 0), *numbers)
    return out, lse


@by_device
def backward(
    saved: tuple[Any, Any, Any, Any, Any],
    g: Any,
    rules: Rules,
    d: dtype,
    where: device,
) -> tuple[Any, Any, Any]:
    """The gradients of q, k and v; ``saved`` is q, k, v, out and lse of `forward`.

    Where q, k and v are the thirds of each row of one array, so are the gradients, in memory of
    shape (batch, rows, 3 * heads * columns).
    """
    q, k, v, out, lse = saved
    there = backend(where)
    dq, dk, dv = _empty_gradients(there, d, q, k, v)
    q, k, v, out, g = _rows_together(there, q, k, v, out, g)
    layouts = (*map(_layout, (q, k, v, out, g, dq, dk, dv)),)
    arrays = q, k, v, out, g, lse, dq, dk, dv
    addresses, aligned = _addresses(arrays, where)
    mask, described, numbers = _given(rules, there)
    products = _products(d, where, q.shape[3])
    plan = _plan_of_gradients(layouts, described, d, where, aligned, products)
    attention_backward.gradients(plan, there, arrays, addresses, mask, numbers)
    return dq, dk, dv


def _empty_gradients(there: Backend, d: dtype, q: Any, k: Any, v: Any) -> Any:
    batch, heads, rows, columns = q.shape
    address = there.address
    third = heads * columns * q.itemsize
    packed = (3 * rows * third, columns * q.itemsize, 3 * third, q.itemsize)
    if (
        q.strides == k.strides == v.strides == packed
        and q.shape == k.shape == v.shape
        and address(v) - address(k) == address(k) - address(q) == third
    ):
        made = there.new((batch, rows, 3 * heads * columns), d.numpy)
        return made.reshape(batch, rows, 3, heads, columns).transpose(2, 0, 3, 1, 4)
    return [_empty_like(there, d, x, x.shape[3]) for x in (q, k, v)]


def _empty_like(there: Backend, d: dtype, x: Any, columns: int) -> Any:
    """A fresh array of x's shape but so many columns, heads inside rows where ``x`` has them so."""
    batch, heads, rows, _ = x.shape
    if x.strides[1] < x.strides[2] and heads > 1:
        made = there.new((batch, rows, heads, columns), d.numpy)
        return made.transpose(0, 2, 1, 3)
    return there.new((batch, heads, rows, columns), d.numpy)


# --- cuDNN ----------------------------------------------------------------------------------------


def forward_by_cudnn(
    q: Any, k: Any, v: Any, rules: Rules, d: dtype, where: device, trained: bool
) -> tuple[Any, Any]:
    """``softmax(q k^T scale) v``, and what `backward_by_cudnn` wants where it is ``trained``.

    That is the natural logarithm of each row's sum of exponentials, of shape (batch, heads,
    queries, 1); else None. `cudnn.NoEngine` where cuDNN does not compute it or, of what is trained,
    its gradient.
    """
    there = backend(where)
    with on_gpu(there.xp.cuda, where.index):
        out = _empty_like(there, d, q, v.shape[3])
        sums = there.new((*q.shape[:3], 1), float32.numpy) if trained else None
        arrays = [*[_for_cudnn(where, x) for x in (q, k, v)], out, *([sums] if trained else ())]
        cudnn.attend(there.xp, "sdpa", d.name, arrays, rules.scale, rules.causal)
    return out, sums


def backward_by_cudnn(
    saved: tuple[Any, Any, Any, Any, Any],
    g: Any,
    rules: Rules,
    d: dtype,
    where: device,
) -> tuple[Any, Any, Any]:
    """The gradients of q, k and v, as `backward` gives them."""
    q, k, v, out, sums = saved
    there = backend(where)
    xp = there.xp
    with on_gpu(xp.cuda, where.index):
        written = _empty_gradients(there, d, q, k, v)
        q, k, v = (_for_cudnn(where, x) for x in (q, k, v))
        if g.strides != out.strides or there.address(g) % ACCESS:
            same = _empty_like(there, d, out, out.shape[3])  # cuDNN wants it to lie as out does
            same[...] = g
            g = same
        arrays = (q, k, v, out, g, sums, *written)
        cudnn.attend(xp, "sdpa_backward", d.name, arrays, rules.scale, rules.causal)
    return tuple(written)


def _for_cudnn(where: device, x: Any) -> Any:
    """An array that cuDNN reads as it lies, the same or a copy: rows begin at `ACCESS`."""
    steps = x.strides[:3]
    if (
        x.strides[3] == x.itemsize
        and all(step > 0 and step % ACCESS == 0 for step in steps)
        and backend(where).address(x) % ACCESS == 0
    ):
        return x
    return x.copy()


# --- CUDA C --------------------------------------------------------------------------------------


def _rows_together(there: Backend, *arrays: Any) -> list[Any]:
    """Arrays whose columns lie side by side, or copies of them."""
    return [x if x.strides[3] == x.itemsize or x.shape[3] == 1 else row_major(x) for x in arrays]


def _addresses(arrays: tuple[Any, ...], where: device) -> tuple[list[int], bool]:
    """Where arrays lie, and whether all begin at multiples of `ACCESS`."""
    addresses = [*map(backend(where).address, arrays)]
    return addresses, functools.reduce(operator.or_, addresses) % ACCESS == 0


def _given(rules: Rules, there: Backend) -> tuple[Any, Described, list[int]]:
    """The mask, what of the rules a launch depends on, and the numbers of dropout's draw."""
    scale, causal, mask, drops = rules
    if mask is not None and mask.strides[3] not in (0, mask.itemsize):
        mask = there.xp.ascontiguousarray(mask)
    p, draw = (0.0, (0, 0)) if drops is None else (drops.p, drops[1:])
    described = Described(scale, causal, p, None if mask is None else _layout(mask))
    return mask, described, [number_fields(n, int64)[0] for n in draw]


_layout: Callable[[Any], Typed] = operator.attrgetter("shape", "strides", "dtype")


def _products(d: dtype, where: device, columns: int) -> int:
    """Return how products are made: of float32 by tensor cores where a program allows TF32."""
    if not has_tensor_cores(where):
        return PLAIN
    if d is float32:
        return TF32 if precision.allow_tf32 and columns <= max(_TF32) else PLAIN
    return TENSOR


@functools.lru_cache(maxsize=1024)
def _plan(
    layouts: tuple[Typed | None, ...],
    rules: Described,
    d: dtype,
    where: device,
    aligned: bool,
    products: int,
) -> Launch:
    """The launch for arrays that lie so, with its structure of strides and sizes."""
    problem = Problem.of(layouts, rules, d, products, aligned)
    if products == WGMMA and (problem.access == 1 or problem.width not in _WGMMA):
        problem = problem._replace(products=TENSOR)
    template = problem.template(FEW if problem.queries <= 64 else TILES)
    kernel = _kernel(template)
    shared = shared_bytes(template, kernel)
    grid = (-(-problem.queries // template["M"]), problem.heads, problem.batch)
    function = kernel.instance(**template)
    return Launch(function, where, grid, (kernel.threads, 1, 1), shared, problem.at)


@functools.lru_cache(maxsize=1024)
def _plan_of_gradients(
    layouts: tuple[Typed | None, ...],
    rules: Described,
    d: dtype,
    where: device,
    aligned: bool,
    products: int,
) -> attention_backward.Plan:
    """The launches of the gradients, the same way."""
    problem = Problem.of(layouts, rules, d, products, aligned)
    return attention_backward.Plan.of(problem, where)


def has_tensor_cores(where: device) -> bool:
    """Whether a device multiplies 16-bit matrices by mma.sync, as the host does in its stead."""
    return where.type == "cpu" or _capability(where) >= 80


def has_warp_groups(where: device) -> bool:
    """Whether a device multiplies them by wgmma, as the host does in its stead."""
    return where.type == "cpu" or _capability(where) == 90


@functools.cache
def _capability(where: device) -> int:
    return int(backend(where).xp.cuda.Device(where.index).compute_capability)


# --- NumPy, recorded: strips of rows whose scores stay in cache ----------------------------------


@forward.on_meta
def _forward_shape(
    q: Any, k: Any, v: Any, rules: Rules, d: dtype, where: device
) -> tuple[Any, Any]:
    there = backend(where)
    return _empty_like(there, d, q, q.shape[3]), there.new(q.shape[:3], float32.numpy)


@backward.on_meta
def _backward_shape(
    saved: tuple[Any, Any, Any, Any, Any],
    g: Any,
    rules: Rules,
    d: dtype,
    where: device,
) -> tuple[Any, Any, Any]:
    dq, dk, dv = (_empty_like(backend(where), d, x, x.shape[3]) for x in saved[:3])
    return dq, dk, dv


@forward.on_host
def _forward_on_host(
    q: Any, k: Any, v: Any, rules: Rules, d: dtype, where: device
) -> tuple[Any, Any]:
    assert rules.mask is None and rules.dropout is None  # see `takes`
    out = _empty_like(backend(where), d, q, q.shape[3])
    lse = backend(where).new(q.shape[:3], float32.numpy)
    heads = _Heads.of(q, k, rules.causal)
    written = out if out.dtype == np.float32 else np.empty(out.shape, np.float32)
    _run(_forward, heads, [*map(_in_rows, (q, k, v)), written, lse[..., None]], [], rules.scale)
    if written is not out:
        out[...] = written
    return out, lse


@backward.on_host
def _backward_on_host(
    saved: tuple[Any, Any, Any, Any, Any],
    g: Any,
    rules: Rules,
    d: dtype,
    where: device,
) -> tuple[Any, Any, Any]:
    assert rules.mask is None and rules.dropout is None  # see `takes`
    q, k, v, out, lse = saved
    dq, dk, dv = _empty_gradients(backend(where), d, q, k, v)
    heads = _Heads.of(q, k, rules.causal)
    narrow = g.dtype != np.float32
    written = np.empty(dq.shape, np.float32) if narrow else dq
    read = [*map(_in_rows, (q, k, v, out)), lse[..., None], _in_rows(g)]
    apart = narrow or heads.parts * heads.members > 1 or not _adds_in_place(heads, dk)
    if apart:
        sums = [np.empty((*heads.extents, *k.shape[2:]), np.float32) for _ in (dk, dv)]
    else:
        sums = [heads.numbered(x)[None] for x in (dk, dv)]
    _run(_backward, heads, [*read, written], sums, rules.scale)
    if apart:  # parts of rows and heads that share a key are added in their order
        for x, partials in zip((dk, dv), sums, strict=True):
            x[...] = partials.sum((0, 3) if heads.members > 1 else (0, 1))
    if narrow:
        dq[...] = written
    return dq, dk, dv


def _in_rows(x: Any) -> Any:
    """In float32, rows one behind the other and their columns side by side."""
    step = x.shape[3] * x.itemsize
    if x.dtype == np.float32 and x.strides[2] >= step and x.strides[3] == x.itemsize:
        return x
    return np.ascontiguousarray(x, np.float32)


def _adds_in_place(heads: _Heads, x: Any) -> bool:
    """Whether strips of rows can be added up in an array of dk's or dv's layout."""
    return heads.head.queries <= heads.head.strip or x.strides[2] == x.shape[3] * x.itemsize


class _Head(NamedTuple):
    """What recordings of a head depend on, beside its layout."""

    queries: int
    keys: int
    causal: bool

    @property
    def strip(self) -> int:
        """Rows whose scores are a table of their own."""
        return max(SCORES // self.keys, ROWS)


class _Heads(NamedTuple):
    """How heads are handed to threads.

    Attributes
    ----------
    parts : int
        Parts of a head's rows, where there are fewer heads than threads and these are large.
    batch, groups, members : int
        ``members`` heads of queries share one of the ``groups`` of keys.
    """

    parts: int
    batch: int
    groups: int
    members: int
    head: _Head

    @classmethod
    def of(cls, q: Any, k: Any, causal: bool) -> _Heads:
        (batch, heads, queries, _), (groups, keys) = q.shape, k.shape[1:3]
        parts, wanted = 1, threads.team.count
        if batch * heads < wanted and queries * keys > 8 * SCORES:
            step = -(-queries * batch * heads // (2 * wanted))
            parts = -(-queries // step)
        return cls(parts, batch, groups, heads // groups, _Head(queries, keys, causal))

    @property
    def extents(self) -> tuple[int, int, int, int]:
        """Parts, and heads in three dimensions: a recording walks the last two."""
        if self.members == 1:
            return self.parts, 1, self.batch, self.groups
        return self.parts, self.batch, self.groups, self.members

    @property
    def scores(self) -> int:
        """Of all heads."""
        return self.batch * self.groups * self.members * self.head.queries * self.head.keys

    def numbered(self, x: Any) -> Any:
        """An array with its heads in three dimensions."""
        if self.members == 1:
            return x[None]
        batch, heads, *rest = x.shape
        if heads == self.groups:
            return np.broadcast_to(x[:, :, None], (batch, heads, self.members, *rest))
        return x.reshape(batch, self.groups, self.members, *rest)

    def places(self) -> list[tuple[int, int, slice, slice]]:
        """What a thread takes at once: between two recordings it would wait for the others."""
        parts, outer, groups, inner = self.extents
        worth = -(-self.scores // SHARED_FROM)
        shares = -(-min(threads.team.count, worth) // outer)
        many, together = -(-groups // shares), inner
        if self.head.queries * self.head.keys > SCORES:
            many = together = 1
        elif groups < shares:
            many, together = 1, -(-groups * inner // shares)
        cut = slices(groups, many), slices(inner, together)
        return [*itertools.product(range(parts), range(outer), *cut)]

    def rows(self, part: int) -> tuple[int, int]:
        """The first row of a part, and that after its last."""
        queries = self.head.queries
        step = -(-queries // self.parts)
        return part * step, min((part + 1) * step, queries)


Text = Callable[[Any, Sequence[Any], float, _Head, tuple[int, int]], None]


def _run(text: Text, heads: _Heads, arrays: list[Any], sums: list[Any], scale: float) -> None:
    """Make a text's calls for each part of the rows; ``sums`` have a dimension of parts."""
    walked = [*[heads.numbered(x)[None] for x in arrays], *sums]
    if heads.scores < FEWEST:
        now = Immediate(heads.extents)
        each([heads.rows(0)], functools.partial(text, now, walked, scale, heads.head))
        return
    layouts = tuple([(x.shape[4:], x.strides[2:]) for x in walked])
    bases = [(loops.address(x), x.strides[:4]) for x in walked]

    def work(block: tuple[int, int, slice, slice]) -> None:
        part, outer, some, few = block
        calls = _recorded(text, layouts, scale, heads.head, heads.rows(part))
        first = part, outer, some.start, few.start
        at = [base + sum(map(operator.mul, first, strides)) for base, strides in bases]
        calls.run(at, few.stop - few.start, some.stop - some.start)

    each(heads.places(), work)


@functools.lru_cache(maxsize=64)
def _recorded(
    text: Text,
    layouts: tuple[Layout, ...],
    scale: float,
    head: _Head,
    part: tuple[int, int],
) -> Recording:
    calls = Recording()
    operands = [
        calls.operand(shape, (down, 4), over, across) for shape, (across, over, down, _) in layouts
    ]
    text(calls, operands, scale, head, part)
    return calls


class _Block(NamedTuple):
    """Rows of a strip whose scores are multiplied together, and how many keys are.

    A causal row does not see the last of these: of the ``hidden`` columns, from ``first`` on.
    """

    rows: slice
    keys: int
    hidden: slice
    first: Any


@functools.lru_cache(maxsize=64)
def _strips(head: _Head, rows: tuple[int, int]) -> list[tuple[slice, list[_Block]]]:
    """Return the rows whose scores stay in cache, cut into blocks."""
    most = max(ROWS, head.keys // 32) if head.causal else head.strip
    return [
        (strip, [_block(head, part) for part in _cut(strip.start, strip.stop, most)])
        for strip in _cut(*rows, head.strip)
    ]


@functools.lru_cache(maxsize=64)
def _ones(count: int) -> Any:
    return np.ones((count, 1), np.float32)


def _cut(first: int, last: int, step: int) -> list[slice]:
    return [slice(i, min(i + step, last)) for i in range(first, last, step)]


def _block(head: _Head, rows: slice) -> _Block:
    if not head.causal:
        return _Block(rows, head.keys, slice(0, 0), None)
    keys = min(rows.stop, head.keys)
    hidden = slice(min(rows.start, keys), keys)
    seen = np.arange(rows.start, rows.stop) + 1 - hidden.start
    return _Block(rows, keys, hidden, np.minimum(seen, hidden.stop - hidden.start))


def _hide(calls: Any, value: Any, scores: Any, block: _Block) -> None:
    """Write a value over what causal rows do not see of a block."""
    if block.hidden.stop - block.hidden.start > 1:
        calls.rows(np.positive, value, scores[..., block.hidden], first=block.first)


# --- NumPy: what is computed of a head; `Immediate` has dimensions of heads before the rows ------


def _forward(
    calls: Any, operands: Sequence[Any], scale: float, head: _Head, part: tuple[int, int]
) -> None:
    q, k, v, out, lse = operands
    width, strips = q.shape[-1], _strips(head, part)
    blocks = [block for _, blocks in strips for block in blocks]
    most = blocks[0].rows.stop - blocks[0].rows.start
    s, wide = calls.scratch(most * head.keys), calls.scratch(most, width)
    tops, totals = (calls.scratch(part[1] - part[0], 1) for _ in range(2))
    turned = _turned(calls, k, head)
    factor, ones = calls.constant(scale), calls.constant(_ones(head.keys))
    least = calls.constant(-np.inf)
    calls(np.positive, least, tops)
    for block in blocks:
        rows, keys = block.rows, block.keys
        count = rows.stop - rows.start
        scores = s[..., : count * keys].reshape(*s.shape[:-1], count, keys)
        my_q = wide[..., :count, :]
        at = slice(rows.start - part[0], rows.stop - part[0])
        calls.rows(np.multiply, q[..., rows, :], factor, my_q)
        calls.matmul(my_q, turned[..., :keys], scores)
        _hide(calls, least, scores, block)
        calls.rows(np.maximum, tops[..., at, :], scores, tops[..., at, :])
        calls.rows(np.subtract, scores, tops[..., at, :], scores)
        calls(np.exp, scores, scores)
        calls.matmul(scores, ones[:keys], totals[..., at, :])
        calls.matmul(scores, v[..., :keys, :], out[..., rows, :])
    of_part = slice(*part)
    calls.rows(np.divide, out[..., of_part, :], totals, out[..., of_part, :])
    calls(np.log, totals, totals)
    calls(np.add, tops, totals, tops)
    calls(np.multiply, tops, calls.constant(LOG2_E), lse[..., of_part, :])


def _turned(calls: Any, x: Any, head: _Head) -> Any:
    """A transpose: BLAS takes longer over a few rows' products with one that is not laid out."""
    if not ROWS <= head.queries <= head.strip:
        return x.mT
    laid = calls.scratch(*x.shape[:-3:-1])
    calls.rows(np.positive, x.mT, laid)
    return laid


def _backward(
    calls: Any, operands: Sequence[Any], scale: float, head: _Head, part: tuple[int, int]
) -> None:
    q, k, v, out, lse, g, dq, dk, dv = operands
    keys, width = k.shape[-2:]
    strips = _strips(head, part)
    most = strips[0][0].stop - strips[0][0].start
    tables = [calls.scratch(most, keys) for _ in range(2)]
    columns = [calls.scratch(most, 1) for _ in range(2)]
    wide = [calls.scratch(most, width) for _ in range(2)]
    more = calls.scratch(keys if len(strips) > 1 else 0, width)
    turned_k, turned_v = _turned(calls, k, head), _turned(calls, v, head)
    factor, ones = calls.constant(scale), calls.constant(_ones(width))
    base, zero = calls.constant(1 / LOG2_E), calls.constant(0)
    done = 0  # keys whose gradients are begun
    for strip, blocks in strips:
        size = strip.stop - strip.start
        p, ds, less, delta, my_q, along = (x[..., :size, :] for x in (*tables, *columns, *wide))
        calls(np.multiply, lse[..., strip, :], base, less)
        calls.rows(np.multiply, q[..., strip, :], factor, my_q)
        calls.rows(np.multiply, g[..., strip, :], out[..., strip, :], along)
        calls.matmul(along, ones, delta)
        for block in blocks:
            rows, seen = block.rows, slice(0, block.keys)
            at = slice(rows.start - strip.start, rows.stop - strip.start)
            weights, slopes = p[..., at, seen], ds[..., at, seen]
            calls.matmul(my_q[..., at, :], turned_k[..., seen], weights)
            calls.rows(np.subtract, weights, less[..., at, :], weights)
            calls.rows(np.exp, weights, weights)
            calls.matmul(g[..., rows, :], turned_v[..., seen], slopes)
            calls.rows(np.subtract, slopes, delta[..., at, :], slopes)
            calls.rows(np.multiply, slopes, weights, slopes)
            for table in (weights, slopes):
                _hide(calls, zero, table, block)
            calls.matmul(slopes, k[..., seen, :], dq[..., rows, :])
            calls.rows(np.multiply, dq[..., rows, :], factor, dq[..., rows, :])
        first, last = min(strip.start, keys) if head.causal else keys, blocks[-1].keys
        cuts = [slice(0, first)] if first else []
        if head.causal:
            cuts += [block.hidden for block in blocks if block.hidden.start < block.hidden.stop]
        for sums, table, factors in ((dv, p, g[..., strip, :]), (dk, ds, my_q)):
            for cut in cuts:
                under = slice(max(cut.start - strip.start, 0) if head.causal else 0, size)
                to = sums if cut.stop > done else more
                calls.matmul(table[..., under, cut].mT, factors[..., under, :], to[..., cut, :])
            if done:
                begun = sums[..., : min(done, first), :]
                calls(np.add, begun, more[..., : min(done, first), :], begun)
        done = last
    if done < keys:
        for sums in (dk, dv):
            calls.rows(np.positive, zero, sums[..., done:, :])
