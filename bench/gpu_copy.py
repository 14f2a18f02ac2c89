"""How fast this GPU copies memory: the yardstick of every elementwise kernel."""

from __future__ import annotations

import statistics
import sys
from functools import partial
from typing import Any

import cupy

from bench.gpu_pieces import do

REPEATS = 30
SIZES = (1 << 26, 1 << 28, 1 << 30)


def copy_bandwidth(nbytes: int) -> float:
    """Bytes read and written a second by a copy of ``nbytes`` within the device."""
    source = cupy.zeros(nbytes // 4, cupy.float32)
    target = cupy.empty_like(source)
    start, end = cupy.cuda.Event(), cupy.cuda.Event()
    seconds = []
    for _ in range(REPEATS):
        start.record()
        cupy.copyto(target, source)
        end.record()
        end.synchronize()
        seconds.append(cupy.cuda.get_elapsed_time(start, end) / 1e3)
    return 2 * nbytes / statistics.median(seconds[REPEATS // 3 :])  # the first are warm-up


def _figures(nbytes: int) -> dict[str, Any]:
    return {"bytes_a_second": copy_bandwidth(nbytes)}


def main() -> int:
    """Measure at the size of the large chain's arrays, and around it."""
    return do("copy", ((f"{size >> 20} MiB", partial(_figures, size)) for size in SIZES))


if __name__ == "__main__":
    sys.exit(main())
