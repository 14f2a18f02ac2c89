"""How fast this GPU copies memory: the yardstick of every elementwise kernel. Prints JSON."""

from __future__ import annotations

import json
import statistics

import cupy

REPEATS = 30


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


def main() -> None:
    """Measure at the size of the large chain's arrays and at the largest that fits well."""
    free, _ = cupy.cuda.runtime.memGetInfo()
    sizes = [1 << 26, min(1 << 30, free // 4 // 4096 * 4096)]
    print(json.dumps({str(size): copy_bandwidth(size) for size in sizes}))


if __name__ == "__main__":
    main()
