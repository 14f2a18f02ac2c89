"""``python -m lucid_gpu``: what one can run, and the environment variables that are read."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import lucid_gpu

COMMANDS = {
    "python -m lucid_gpu.doctor": "what is installed, whether it works, and what mends it",
    "python -m lucid_gpu.precompile --arch 80,90": "fill CuPy's cache of kernels; needs no GPU",
    "python -m lucid_gpu.distributed.run --nproc-per-node 2 script.py": "a script on several ranks",
    "make train": "in a clone: train on scanned digits; make help lists what else there is",
}

SETTINGS = {
    "LUCID_EAGER": "1: each operation runs on its own line, nothing is fused",
    "LUCID_DEBUG": "1: every kernel is printed when it runs, and the line that had it planned",
    "LUCID_EXECUTOR": "host-cuda: CPU tensors run through the generated CUDA C, compiled by g++",
    "LUCID_NUM_THREADS": "threads of elementwise kernels (else OMP_NUM_THREADS, else all cores)",
    "LUCID_POOL_BYTES": "host memory kept for reuse (else a quarter of all); 0 keeps none",
    "LUCID_PLAN_BYTES": "memory that programs and plans take before they start anew (else 64 MiB)",
    "LUCID_NATIVE_CORE": "0: the core runs in Python only",
    "LUCID_MKL": "0: NumPy's BLAS multiplies matrices, also where MKL is installed",
    "LUCID_WGMMA": "1: attention by Hopper's warp groups, which no GPU has confirmed yet",
    "LUCID_NATIVE_LOOPS": "0: NumPy's loops are called from Python only",
    "LUCID_COMPILE": "wait: for each fused kernel; background: run op by op until it is compiled",
    "LUCID_KERNELS": "an archive of kernels that python -m lucid_gpu.precompile --archive wrote",
    "LUCID_HOST_ORDER": "host-cuda: blocks, warps and lanes run reversed, or mixed by a number",
    "LUCID_HOST_ARITHMETIC": "host-cuda: kernels contracted to fma, or denormal numbers flushed",
    "LUCID_CACHE_DIR": "where kernels compiled for the host are kept",
}


def main(arguments: Sequence[str] = ()) -> int:
    """Print both lists; 2 where something else is asked for, with the command that is meant."""
    others = [word for word in arguments if word not in ("-h", "--help")]
    if others:
        modules = [c.split()[2] for c in COMMANDS if c.endswith(others[0]) or f".{others[0]} " in c]
        meant = (
            f"python -m {modules[0]}"
            if modules
            else "python -m lucid_gpu, which lists the commands"
        )
        print(f"lucid_gpu: no argument {others[0]!r} is taken; say {meant}", file=sys.stderr)
        return 2
    print(f"lucid_gpu {lucid_gpu.__version__}\n")
    for title, table in (("Commands", COMMANDS), ("Environment variables", SETTINGS)):
        width = max(map(len, table))
        print(f"{title}:", *(f"  {k:<{width}}  {text}" for k, text in table.items()), sep="\n")
        print()
    print("In Python: import lucid_gpu as torch")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
