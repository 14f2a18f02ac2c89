"""Run a script or a module over the stand-in: ``python tests/standin/run.py -m bench.gpu_nccl``."""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def main(words: list[str]) -> None:
    """Put the stand-in where ``import cupy`` finds it, and run what the words name."""
    sys.path[:1] = [str(HERE), str(HERE.parents[1])]
    os.environ["CUPY_CACHE_IN_MEMORY"] = "1"  # what it makes of kernels is nothing for a GPU
    from lucid_gpu.devices import cupy_backend

    cupy_backend._has_driver = lambda: True  # type: ignore[assignment]
    if words[0] == "-m":
        sys.argv = words[1:]
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = words
        runpy.run_path(words[0], run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
