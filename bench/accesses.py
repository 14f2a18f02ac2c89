"""Banks of shared memory and sectors of global memory that hand-written kernels' accesses meet.

Counted, not measured: one call of each family at a small size runs as CUDA C on the host
(``LUCID_EXECUTOR=host-cuda``), compiled so that accesses are recorded (`kernels/host/accesses.h`).
The n-th accesses of a warp's lanes at one place in the code are one request. A request to shared
memory takes as many ways as the fullest of 32 banks of 4 bytes has different words, of 32, 16 or 8
lanes together for accesses of up to 4, 8 or 16 bytes (a matrix that `ldmatrix` loads: 8 lanes); one
to global memory takes the sectors of 32 bytes that it touches. CUDA C++ Programming Guide, "Shared
Memory" and "Device Memory Accesses" (compute capability 5.x and later).

``python -m bench.accesses`` writes ``bench/results/accesses.md``.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

os.environ["LUCID_EXECUTOR"] = "host-cuda"  # before anything is compiled for another executor

import numpy as np

import lucid_gpu as torch
from bench.report import RESULTS
from lucid_gpu import nn
from lucid_gpu.launch import host
from lucid_gpu.precompile import instances

FLAGS = (
    "-fsanitize=thread", "--param=tsan-instrument-func-entry-exit=0", "-fno-tree-sra",
    "-DLUCID_HOST_ACCESSES",
)  # fmt: skip
RECORD = np.dtype([("address", "u8"), ("at", "u8"), ("block", "u4"), ("thread", "u2"),
                   ("size", "u1"), ("kind", "u1")])  # fmt: skip
MOST = 1 << 21  # accesses of a launch
F = nn.functional


class Counts(NamedTuple):
    """Sums over requests."""

    phases: int = 0  # parts of requests to shared memory that could be one way each
    ways: int = 0
    worst: int = 0  # ways of one part
    requests: int = 0  # to global memory
    sectors: int = 0
    wanted: int = 0  # bytes

    def __add__(self, other: Counts) -> Counts:  # type: ignore[override]
        sums = [a + b for a, b in zip(self, other, strict=True)]
        sums[2] = max(self.worst, other.worst)
        return Counts(*sums)

    @property
    def share(self) -> float:
        """Bytes wanted over those of the sectors that come."""
        return self.wanted / (32 * self.sectors) if self.sectors else 1.0

    @property
    def mean(self) -> float:
        """Ways of a part of a request, on average."""
        return self.ways / self.phases if self.phases else 1.0


def _numbered(*columns: Any) -> Any:
    """Return a number for each row of columns, the same for the same row."""
    rows = np.zeros(len(columns[0]), int)
    for column in columns:
        values, place = np.unique(column, return_inverse=True)
        rows = np.unique(rows * len(values) + place, return_inverse=True)[1]
    return rows


def _different(*columns: Any) -> tuple[Any, ...]:
    """Return the columns with each row once."""
    once = np.unique(_numbered(*columns), return_index=True)[1]
    return tuple(column[once] for column in columns)


def counted(records: Any) -> Counts:
    """Return what the accesses of one launch take."""
    lanes = _numbered(records["block"], records["thread"], records["at"])
    order = np.argsort(lanes, kind="stable")
    starts = np.flatnonzero(np.diff(lanes[order], prepend=-1))
    turn = np.empty(len(lanes), int)
    turn[order] = np.arange(len(lanes)) - np.repeat(starts, np.diff(starts, append=len(lanes)))
    warp = records["thread"] // 32
    request = _numbered(records["block"], warp, records["at"], turn, records["size"])
    shared = records["kind"] >= 2
    return _banks(records[shared], request[shared]) + _sectors(records[~shared], request[~shared])


def _banks(records: Any, request: Any) -> Counts:
    size = records["size"].astype(int)
    part = _numbered(request, records["thread"] % 32 * np.maximum(size, 4) // 128)
    words = -(-size // 4)
    first = np.repeat(records["address"].astype(int) // 4, words)
    step = np.arange(len(first)) - np.repeat(np.cumsum(words) - words, words)
    part, word = _different(np.repeat(part, words), first + step)
    full = np.bincount(part * 32 + word % 32, minlength=32 * (part.max(initial=-1) + 1))
    ways = full.reshape(-1, 32).max(1)
    return Counts(len(ways), int(ways.sum()), int(ways.max(initial=0)))


def _sectors(records: Any, request: Any) -> Counts:
    size, address = records["size"].astype(int), records["address"].astype(int)
    wanted = _different(request, address, size)[2].sum()
    ends = np.concatenate([address, address + size - 1]) // 32
    sectors = len(_different(np.tile(request, 2), ends)[0])
    return Counts(0, 0, 0, len(np.unique(request)), sectors, int(wanted))


@contextlib.contextmanager
def recorded() -> Iterator[dict[str, Counts]]:
    """Give the counts of each kernel that is launched meanwhile, by its name."""
    found: dict[str, Counts] = defaultdict(Counts)
    start = host.HostLauncher.start
    memory = np.empty(MOST, RECORD)

    def counting(self: Any, function: Any, grid: Any, block: Any, shared: int, table: int) -> None:
        text = function.name, function.source, function.cooperative
        library = ctypes.CDLL(str(host.build(*text, FLAGS)))
        ctypes.c_void_p.in_dll(library, "lucid_host_records").value = memory.ctypes.data
        ctypes.c_size_t.in_dll(library, "lucid_host_most").value = MOST
        count = ctypes.c_size_t.in_dll(library, "lucid_host_count")
        count.value = 0
        stacks = host.stacks(block[0] * block[1] * block[2])
        launch = library.lucid_host_launch
        launch.argtypes = [ctypes.c_void_p] * 2 + [ctypes.c_uint] * 9
        failure = launch(table, stacks, *grid, *block, shared, 0, 0)
        if failure or count.value > MOST:
            raise RuntimeError(f"{function.name}: failure {failure}, {count.value} accesses")
        found[function.name] += counted(memory[: count.value])

    host.HostLauncher.start = counting  # type: ignore[method-assign]
    try:
        yield found
    finally:
        host.HostLauncher.start = start  # type: ignore[method-assign]


def _made(*shape: int, dtype: Any = None) -> Any:
    return torch.randn(*shape).to(dtype or torch.float32).requires_grad_()


def _attention(columns: int, dtype: Any) -> Any:
    q, k, v = (_made(1, 1, 128, columns, dtype=dtype) for _ in range(3))
    return F.scaled_dot_product_attention(q, k, v)


def _clipped(parameters: Any) -> Any:
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    nn.utils.clip_grad_norm_(parameters, 1.0)
    return sum(parameter.sum() for parameter in parameters)


CALLS: dict[str, Callable[[], Any]] = {
    "attention, bfloat16, 64 columns": lambda: _attention(64, torch.bfloat16),
    "attention, bfloat16, 128 columns": lambda: _attention(128, torch.bfloat16),
    "attention, float32, 64 columns": lambda: _attention(64, torch.float32),
    "softmax": lambda: _made(8, 1024).softmax(1),
    "softmax over columns": lambda: _made(64, 128).softmax(0),
    "layer norm": lambda: nn.LayerNorm(512)(_made(64, 512)),
    "batch norm": lambda: nn.BatchNorm2d(8)(_made(4, 8, 16, 16)),
    "cross entropy": lambda: F.cross_entropy(_made(16, 512), torch.arange(16)),
    "max pool": lambda: F.max_pool2d(_made(2, 4, 32, 32), 2),
    "mean pool": lambda: F.avg_pool2d(_made(2, 4, 32, 32), 2),
    "windows": lambda: F.unfold(_made(2, 4, 32, 32), 3),
    "running sums": lambda: _made(64, 256).cumsum(1),
    "cat": lambda: torch.cat([_made(64, 128), _made(64, 128)], 1),
    "embedding": lambda: F.embedding(torch.arange(256) % 50, _made(50, 64)),
    "clipping": lambda: _clipped([_made(1000), _made(3000)]),
}


def rows() -> Iterator[tuple[str, str, Counts]]:
    """Yield call, kernel and counts, of hand-written kernels, forward and backward."""
    names = {kernel.instance(**template).name for _, kernel, template in instances()}
    for call, run in CALLS.items():
        torch.manual_seed(0)
        with recorded() as found:
            run().sum().backward()
        yield from ((call, name, counts) for name, counts in found.items() if name in names)


HEAD = """\
# Banks and sectors

Written by `python -m bench.accesses`; **nothing here was measured on a GPU**. The addresses are
those of a run on the host, one call a row and its gradient. Ways: how often shared memory works
for a part of a request that it could serve at once, on average and at worst (1: no bank conflicts).
Sectors: of 32 bytes, a request to global memory; used: the share of their bytes that the request
wants. Arrays of the host begin at multiples of 16 bytes: often a sector of 17 more than on a GPU.

| call | kernel | shared parts | ways | worst | global requests | sectors each | used |
| --- | --- | --- | --- | --- | --- | --- | --- |
"""


def line(call: str, kernel: str, c: Counts) -> str:
    """Return a row of the table."""
    shared = [f"{c.phases:,}", f"{c.mean:.2f}", c.worst] if c.phases else ["", "", ""]
    each = f"{c.sectors / max(c.requests, 1):.1f}"
    cells = [call, kernel, *shared, f"{c.requests:,}", each, f"{c.share:.0%}"]
    return f"| {' | '.join(map(str, cells))} |\n"


def main() -> int:
    """Write the table."""
    text = HEAD + "".join(line(*row) for row in rows())
    (RESULTS / "accesses.md").write_text(text, "utf-8")
    print(text, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
