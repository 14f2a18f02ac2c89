"""The text of a kernel: C's names of element types, includes written out."""

from __future__ import annotations

import re

from lucid_gpu.dtypes import dtype
from lucid_gpu.launch.kernel_sources import kernel_path

_LOCK_STEP = re.compile(
    r"\b(__(syncthreads|syncwarp|shfl|ballot|any_sync|all_sync|match)|cooperative_groups\b)"
)
C_TYPES = {
    "bool": "bool",
    "uint8": "unsigned char",
    "int8": "signed char",
    "int16": "short",
    "int32": "int",
    "int64": "long long",
    "float16": "lucid_float16",
    "bfloat16": "lucid_bfloat16",
    "float32": "float",
    "float64": "double",
    "complex64": "lucid_complex<float>",
    "complex128": "lucid_complex<double>",
}


def c_type(d: dtype) -> str:
    """The C name of an element type."""
    return C_TYPES[d.name]


_INCLUDE = re.compile(r'^[ \t]*#include "([\w./]+)"[ \t]*$', re.MULTILINE)


def included(source: str) -> list[str]:
    """The files of `kernels/` a source includes."""
    return _INCLUDE.findall(source)


def complete(source: str) -> str:
    """A source with its includes written out, so that a compiler's cache sees their changes."""
    seen: set[str] = set()

    def text_of(match: re.Match[str]) -> str:
        name = match[1]
        if name in seen:
            return ""
        seen.add(name)
        return _INCLUDE.sub(text_of, kernel_path(name).read_text("utf-8"))

    return _INCLUDE.sub(text_of, source)


def is_cooperative(source: str) -> bool:
    """Whether a source, or what it includes, makes threads wait for each other."""
    return bool(_LOCK_STEP.search(complete(source)))
