"""NVRTC, which compiles for any GPU and needs none."""

from __future__ import annotations

import re
from typing import Any

import pytest

from lucid_gpu.fusion.cuda_source import complete

ARCHITECTURES = (70, 75, 80, 86, 89, 90, 100, 120)
_EXPECTED = re.compile(
    r"nvrtc: warning: Architectures prior to '<compute/sm>_75' are deprecated.*\n?"
)


def module() -> Any:
    """CuPy's binding of NVRTC, or a skip that says how to get it."""
    try:
        from cupy_backends.cuda.libs import nvrtc

        nvrtc.getVersion()
    except Exception as error:
        pytest.skip(f"NVRTC is missing ({error}): python -m pip install 'lucid-gpu[test]'")
    return nvrtc


def architectures() -> list[int]:
    """Those of `ARCHITECTURES` this NVRTC knows: version 13 has no sm_70."""
    known = module().getSupportedArchs()
    return [a for a in ARCHITECTURES if a in known]


def compiled(source: str, architecture: int, ptx: bool = False) -> str:
    """Compile as `cupy.RawKernel` does; the log must be clean. Returns PTX where asked to."""
    nvrtc = module()
    kind = "compute" if ptx else "sm"
    program = nvrtc.createProgram(complete(source), "kernel.cu", [], [])
    options = [f"-arch={kind}_{architecture}", "-std=c++17", "-ftz=true"]
    try:
        nvrtc.compileProgram(program, options)
    except nvrtc.NVRTCError:
        pytest.fail(f"sm_{architecture}: {nvrtc.getProgramLog(program)}\n{source}")
    log = _EXPECTED.sub("", nvrtc.getProgramLog(program)).strip("\0\n ")
    assert not log, f"sm_{architecture}: {log}\n{source}"
    if not ptx:
        assert nvrtc.getCUBIN(program)
        return ""
    text = nvrtc.getPTX(program)
    return text.decode() if isinstance(text, bytes) else text
