"""The gradients of attention in tiles, on a GPU: ``attention_backward.cu``.

A block walks the queries for a tile of keys, and sums of dq go through memory. Where heads are
fewer than blocks that a GPU holds, several blocks share the keys of a head, each with a copy of dq
in float32; copies are added in a fixed order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from lucid_gpu.device import device
from lucid_gpu.dtypes import float32
from lucid_gpu.kernels.attention_tiles import (
    FORM,
    GIVEN,
    TEMPLATE,
    TENSOR,
    Problem,
    Tables,
    Tiles,
)
from lucid_gpu.launch import Kernel
from lucid_gpu.launch.kernel import Launch
from lucid_gpu.launch.launchers import launcher_of

if TYPE_CHECKING:
    from lucid_gpu.devices.port import Backend

__all__ = ["Plan", "gradients"]

SPLITS = 4  # blocks that may share the keys of a head whatever their copies of dq take,
MEMORY = 1 << 29  # and bytes that all copies may take where they are more
WHOLE = 128  # columns of heads that one block has the sums of: of wider heads it has half


def _kernel(
    name: str, declaration: str, template: str, threads: int = 128, blocks: int = 2
) -> Kernel:
    forms = {"at": FORM}
    return Kernel("attention_backward.cu", name, declaration, template, threads, forms, blocks)


attention_delta = _kernel(
    "attention_delta",
    "const T* o, const T* g, const float* lse, float* lines, lucid_attention at",
    "T, W",
)
# By the kind of products: tensor cores want a warp for every 16 rows.
attention_gradients, attention_dq = (
    {
        False: _kernel(name, declaration, template),
        True: _kernel(name, declaration, template, threads=256, blocks=1),
    }
    for name, declaration, template in (
        (
            "attention_gradients",
            "const T* q, const T* k, const T* v, const T* g, const float* lines, float* dq, "
            "T* dk, T* dv" + GIVEN,
            TEMPLATE,
        ),
        (
            "attention_dq",
            "const float* copies, T* dq, int count, lucid_attention at",
            "T, D, M, N, W, MMA",
        ),
    )
)

# Chosen by registers (nothing spills) and shared memory (what the 99 KiB of a block hold that a
# multiprocessor has from compute capability 8.6 on, or two of plain products); no GPU has tuned
# them yet. Tensor cores are given many keys at once, for sums of dq come and go for each tile.
_PLAIN = {
    32: Tiles(64, 32), 64: Tiles(32, 32), 96: Tiles(32, 16), 128: Tiles(32, 8),
    192: Tiles(16, 16), 256: Tiles(16, 8),
}  # fmt: skip
_TENSOR = {
    32: Tiles(128, 64), 64: Tiles(128, 64), 96: Tiles(128, 64), 128: Tiles(128, 32),
    192: Tiles(64, 32), 256: Tiles(64, 16),
}  # fmt: skip
_RULED = _TENSOR | {64: Tiles(128, 32), 96: Tiles(64, 32), 128: Tiles(128, 16)}
_TF32 = {32: Tiles(128, 32), 64: Tiles(128, 16), 96: Tiles(64, 16), 128: Tiles(64, 16)}
TILES = Tables(_PLAIN, _PLAIN, _TENSOR, _RULED, _TF32, _TF32)


def _instance(kernel: Kernel, template: dict[str, Any]) -> tuple[Kernel, dict[str, Any]]:
    return kernel, {name: template[name] for name in kernel.template}


INSTANCES = [
    _instance(kernels[template["MMA"] > 0], template)
    for kernels in (attention_gradients, attention_dq)
    for template in TILES.templates()
]
INSTANCES += [_instance(attention_delta, {"T": t["T"], "W": t["W"]}) for t in TILES.templates()]
STACK = {"attention_delta": 0, "attention_gradients": 0, "attention_dq": 0}  # nothing spills


def shared_bytes(template: dict[str, Any], kernel: Kernel) -> int:
    """Dynamic shared memory of an instance: its tiles, padded rows, and what lies beside them."""
    if kernel is attention_delta:
        return 0
    own, other, width = template["M"], template["N"], template["D"]
    products = template["MMA"]
    row = 2 * (width + 8) if products == TENSOR else 4 * (width + 4)
    if kernel in attention_dq.values():
        return int(other * row)
    slopes = own * (4 * (other + 4), 2 * (other + 8), 4 * (other + 8))[products]
    return 2 * (own + other) * row + slopes + 8 * other


class Plan(NamedTuple):
    """The launches for arrays that lie so, and the elements of dq's copies."""

    delta: Launch
    gradients: Launch
    dq: Launch
    elements: int
    splits: int

    @classmethod
    def of(cls, problem: Problem, where: device) -> Plan:
        """Choose tiles, and how many blocks share the keys of a head."""
        template, (batch, heads) = problem.template(TILES), (problem.batch, problem.heads)
        own, other = template["M"], template["N"]
        tiles = -(-problem.queries // other)
        copy = batch * heads * tiles * other * problem.width
        blocks = launcher_of(where).processors * (1 if problem.products else 2)
        parts = 1 if problem.width <= WHOLE else 2
        wanted = -(-blocks // (batch * problem.groups * parts))
        splits = min(wanted, -(-problem.keys // own), max(SPLITS, MEMORY // (4 * copy)))

        def launch(kernel: Kernel, blocks: int, across: int) -> Launch:
            _, mine = _instance(kernel, template)
            function, shared = kernel.instance(**mine), shared_bytes(mine, kernel)
            grid = (blocks, across, batch)
            threads = 2 * own if mine.get("MMA") else 128  # a warp for 16 rows of tensor cores
            return Launch(function, where, grid, (threads, 1, 1), shared, problem.at)

        rows = attention_delta.threads // 8
        return cls(
            launch(attention_delta, -(-problem.queries // rows), heads),
            launch(attention_gradients[problem.products > 0], splits * parts, problem.groups),
            launch(attention_dq[problem.products > 0], tiles, heads),
            splits * copy,
            splits,
        )


def gradients(
    plan: Plan,
    there: Backend,
    arrays: tuple[Any, ...],
    addresses: list[int],
    mask: Any,
    numbers: list[int],
) -> None:
    """Write dq, dk and dv; ``arrays`` are q, k, v, out, g, lse and these, ``numbers`` a draw's."""
    q, k, v, out, g, lse, dq, dk, dv = arrays
    of_q, of_k, of_v, of_out, of_g, of_lse, of_dq, of_dk, of_dv = addresses
    lines = there.new((*lse.shape, 2), float32.numpy)
    copies = there.new((plan.elements,), float32.numpy)
    of_lines, of_copies = there.address(lines), there.address(copies)
    of_mask = 0 if mask is None else there.address(mask)
    plan.delta((out, g, lse, lines), (of_out, of_g, of_lse, of_lines))
    plan.gradients(
        (q, k, v, g, lines, copies, dk, dv, mask),
        (of_q, of_k, of_v, of_g, of_lines, of_copies, of_dk, of_dv, of_mask),
        *numbers,
    )
    plan.dq((copies, dq), (of_copies, of_dq), plan.splits)
