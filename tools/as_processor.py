"""Run Python as on an older processor: NumPy, BLAS, libm and torch without their newer loops.

Usage: ``python tools/as_processor.py avx2 -m pytest tests/test_docs.py``; ``sse`` for one without
AVX. What a program computes may then differ in its last digits, what it prints must not.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import numpy as np

# As NumPy names them; its newer releases name groups of features.
SSE = {"SSE", "SSE2", "SSE3", "SSSE3", "SSE41", "POPCNT", "SSE42", "X86_V2"}
AVX2 = SSE | {"AVX", "F16C", "FMA3", "AVX2", "X86_V3"}
KEPT = {"avx2": AVX2, "sse": SSE}
OTHERS = {
    "avx2": {
        "OPENBLAS_CORETYPE": "Haswell",
        "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX512F,-AVX512VL",
        "ATEN_CPU_CAPABILITY": "avx2",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
    },
    "sse": {
        "OPENBLAS_CORETYPE": "Nehalem",
        "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX512F,-AVX512VL,-AVX2,-AVX,-FMA,-FMA4",
        "ATEN_CPU_CAPABILITY": "default",
        "MKL_ENABLE_INSTRUCTIONS": "SSE4_2",
        "ONEDNN_MAX_CPU_ISA": "SSE41",
    },
}


def features(processor: str) -> list[str]:
    """What NumPy's build chooses between, and that processor has not."""
    known = np.show_config(mode="dicts")["SIMD Extensions"]
    chosen = [*known.get("found", []), *known.get("not found", [])]  # here, or switched off before
    return [name for name in chosen if name not in KEPT[processor]]


def environment(processor: str) -> dict[str, str]:
    """The variables by which the libraries choose the loops of an older processor."""
    return {"NPY_DISABLE_CPU_FEATURES": " ".join(features(processor)), **OTHERS[processor]}


def main(arguments: Sequence[str]) -> None:
    """Become Python as on that processor."""
    if len(arguments) < 2 or arguments[0] not in KEPT:
        sys.exit(f"usage: as_processor.py {{{','.join(KEPT)}}} what Python is told")
    processor, *command = arguments
    python = [sys.executable, *command]
    os.execve(python[0], python, {**os.environ, **environment(processor)})


if __name__ == "__main__":
    main(sys.argv[1:])
