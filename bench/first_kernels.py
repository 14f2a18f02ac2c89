"""Kernels that a GPT's first step compiles: ``python tests/driver/build.py bench.first_kernels``.

It runs over the stand-in for CUDA's driver, with the real CuPy and the real NVRTC: no GPU is
involved. Each row is a fresh process with an empty cache: with ``LUCID_COMPILE=wait``, in the
background, and with the archive of hand-written kernels that ``python -m lucid_gpu.precompile
--arch 80 --archive FILE`` wrote, if ``--archive`` names one. Counted is what NVRTC compiles until
the process has computed five steps and its background work has ended.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import Any

from bench.first_calls import PATH, write
from bench.report import machine

STEPS = 5


def worker() -> None:
    """Run the steps in this process, and print what was compiled and when each step ended."""
    from bench.launch_costs import gpt
    from lucid_gpu.launch import nvrtc

    taken, compile_one = [], nvrtc.compiled

    def compiled(*args: Any) -> bytes:
        began = time.perf_counter()
        code = compile_one(*args)
        taken.append(time.perf_counter() - began)
        return code

    nvrtc.compiled = compiled  # type: ignore[assignment]
    began = time.perf_counter()
    step, steps = gpt(), []
    for _ in range(STEPS):
        step()
        steps.append(time.perf_counter() - began)
    before = -1
    while len(taken) > before:  # until nothing more comes from the background
        before = len(taken)
        time.sleep(5)
    print(json.dumps({"kernels": len(taken), "compiling": sum(taken), "steps": steps}))


def measured(mode: str, archive: str | None) -> dict[str, Any]:
    """Return what the steps of a fresh process with an empty cache compiled."""
    with tempfile.TemporaryDirectory() as folder:
        settings = {"CUPY_CACHE_DIR": folder, "LUCID_COMPILE": mode}
        settings |= {"LUCID_KERNELS": archive} if archive else {}
        ran = subprocess.run(
            [sys.executable, "-m", "bench.first_kernels", "--worker"],
            env=os.environ | settings, stdout=subprocess.PIPE, text=True, check=True,
        )  # fmt: skip
    row: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return row


def main(arguments: Sequence[str] | None = None) -> None:
    """The command."""
    flags = argparse.ArgumentParser(prog="python -m bench.first_kernels", description=__doc__)
    flags.add_argument("--archive", help="a file of python -m lucid_gpu.precompile")
    flags.add_argument("--keep", action="store_true", help="write bench/results/first-calls.md")
    flags.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = flags.parse_args(arguments)
    if "LUCID_DRIVER_STANDIN" not in os.environ:
        flags.error("start it as python tests/driver/build.py bench.first_kernels")
    if options.worker:
        worker()
        return
    rows = {}
    for title, archive in (("no archive", None), ("with the archive", options.archive)):
        for mode in ("wait", "background") if archive or title == "no archive" else ():
            rows[f"{mode}, {title}"] = row = measured(mode, archive and os.path.abspath(archive))
            print(f"{mode}, {title}: {row}", flush=True)
    if options.keep:
        kept = json.loads(PATH.read_text("utf-8"))
        write(kept | {"kernels": {"machine": machine(), "rows": rows}})


if __name__ == "__main__":
    main()
