"""One step of a case for ncu to look at: ``ncu --profile-from-start off ... CASE``."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from bench.gpu_cases import CASES, Kit, force, sized
from bench.gpu_worker import PEERS, build, module_of
from bench.peers import named

# One of each kind of kernel: generated, over rows, with several passes, and by matrix units.
PROFILED = (
    "chain-forward",
    "chain-backward",
    "softmax-forward",
    "layer-norm-backward",
    "adam",
    "attention-forward",
)


def main(argv: Sequence[str] | None = None) -> None:
    """Run the case till its kernels are there, then once between the profiler's marks."""
    flags = argparse.ArgumentParser(prog="python -m bench.gpu_profiled", description=__doc__)
    flags.add_argument("case", choices=PROFILED)
    flags.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    flags.add_argument("--toy", action="store_true", help="a tiny size")
    options = flags.parse_args(argv)
    (case,), (peer,) = named(CASES, [options.case], "case"), named(PEERS, ["lucid_gpu"], "peer")
    kit = Kit(module_of(peer), options.device, case.dtypes[0], sized(case, options.toy), 2)
    step = build(peer, case, kit)
    assert step is not None
    for number in (0, 1, 0):
        force(kit, step(number))
    if options.device == "cpu":
        return
    import cupy

    cupy.cuda.runtime.deviceSynchronize()
    cupy.cuda.runtime.profilerStart()
    force(kit, step(1))
    cupy.cuda.runtime.deviceSynchronize()
    cupy.cuda.runtime.profilerStop()


if __name__ == "__main__":
    main()
