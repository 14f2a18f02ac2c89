"""NVRTC, which compiles for any GPU and needs none: a clean log, registers and spills.

What a source compiled to is kept in the cache folder under a hash of source, options and version,
so that only what changed is compiled again.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from lucid_gpu import precompile
from lucid_gpu.launch import Kernel, nvrtc
from lucid_gpu.launch.source import complete

ARCHITECTURES = (70, 75, 80, 86, 89, 90, 100, 120)
FOLDER = Path.home() / ".cache" / "lucid_gpu" / "nvrtc"
_EXPECTED = re.compile(
    r"nvrtc: warning: Architectures prior to '<compute/sm>_75' are deprecated.*\n?"
    r"|ptxas (?:info\s*:|\s+\.).*\n?"
)
_PTXAS = {
    "registers": r"Used (\d+) registers",
    "stack": r"(\d+) bytes stack frame",
    "spilled": r"(\d+) bytes spill stores",
    "shared": r"(\d+) bytes smem",
}


# What is looked for in PTX. A copy by cp.async goes past the registers.
_PTX = {
    "doubles": r"\.f64\b",
    "local": r"\b(?:ld|st)\.local|\.local\b",
    "wide_loads": r"ld\.global\S*\.v(?:4\.[bsuf]32|2\.[bsuf]64)|cp\.async\.\S+ [^;]*, 16[,;]",
    "wide_stores": r"st\.global\S*\.v(?:4\.[bsuf]32|2\.[bsuf]64)",
}


class Resources(NamedTuple):
    """What a thread or, of ``shared`` memory, a block takes: registers and bytes."""

    registers: int
    stack: int
    spilled: int
    shared: int


def module() -> Any:
    """CuPy's binding of NVRTC, or a skip that says how to get it."""
    try:
        from cupy_backends.cuda.libs import nvrtc

        nvrtc.getVersion()
    except Exception as error:
        pytest.skip(f"NVRTC is missing ({error}): python -m pip install '.[test]'")
    return nvrtc


def architectures() -> list[int]:
    """Those of `ARCHITECTURES` this NVRTC knows: version 13 has no sm_70."""
    known = module().getSupportedArchs()
    return [a for a in ARCHITECTURES if a in known]


class Instructions(NamedTuple):
    """How often PTX names doubles and local memory, and accesses 16 bytes of global memory."""

    doubles: int
    local: int
    wide_loads: int
    wide_stores: int


def resources(source: str, architecture: int, options: Sequence[str] = nvrtc.OPTIONS) -> Resources:
    """Compile a source with one kernel as a program does; the log must be clean."""
    text = complete(source)
    options = [f"-arch={nvrtc.target(text, architecture)}", *options, "--ptxas-options=-v"]
    found: Resources = _known(Resources, _compiled, text, options)
    return found


def instructions(
    source: str, architecture: int, options: Sequence[str] = nvrtc.OPTIONS
) -> Instructions:
    """What the PTX of a source names; the log must be clean."""
    options = [f"-arch=compute_{architecture}", *options]
    found: Instructions = _known(Instructions, _read, complete(source), options)
    return found


def _known(kind: Any, made: Callable[[str, list[str]], Any], text: str, options: list[str]) -> Any:
    """What was kept of a compilation, or is now made and kept."""
    key = "\0".join([text, *options, *kind._fields, str(module().getVersion())])
    if kind is Instructions:
        key += repr(_PTX)
    kept = FOLDER / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.json"
    try:
        return kind(**json.loads(kept.read_text()))
    except (OSError, ValueError, TypeError):
        found = made(text, options)
    _keep(kept, json.dumps(found._asdict()))
    return found


def ptx(source: str, architecture: int, options: Sequence[str] = nvrtc.OPTIONS) -> str:
    """The PTX of a source; the log must be clean."""
    return _ptx(complete(source), [f"-arch=compute_{architecture}", *options])


def _ptx(text: str, options: list[str]) -> str:
    found = module().getPTX(_program(text, options)[0])
    return found.decode() if isinstance(found, bytes) else str(found)


def _read(text: str, options: list[str]) -> Instructions:
    found = _ptx(text, options)
    return Instructions(**{name: len(re.findall(what, found)) for name, what in _PTX.items()})


def _program(text: str, options: list[str]) -> tuple[Any, str]:
    """A compiled program and its log, in which nothing may stand that was not asked for."""
    library = module()
    program = library.createProgram(text, "kernel.cu", [], [])
    try:
        library.compileProgram(program, options)
    except library.NVRTCError:
        pytest.fail(f"{options[0]}: {library.getProgramLog(program)}\n{text}")
    log = library.getProgramLog(program).strip("\0")
    rest = _EXPECTED.sub("", log).strip()
    assert not rest, f"{options[0]}: {rest}\n{text}"
    return program, log


def _compiled(text: str, options: list[str]) -> Resources:
    _, log = _program(text, options)
    found = {name: re.findall(pattern, log) for name, pattern in _PTXAS.items()}
    return Resources(**{name: max(map(int, numbers), default=0) for name, numbers in found.items()})


def _keep(path: Path, text: str) -> None:
    """Written beside and renamed; a folder that cannot be written keeps nothing."""
    if not os.access(Path.home(), os.W_OK):
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
        file.write(text)
    os.replace(file.name, path)


class Instance(NamedTuple):
    """A kernel as a program launches it, and what it may take."""

    family: str
    kernel: Kernel
    template: dict[str, Any]
    registers: int
    stack: int

    @property
    def label(self) -> str:
        values = [getattr(v, "name", str(v)) for v in self.template.values()]
        return "-".join([self.family, self.kernel.name, *values])

    def check(self, architecture: int) -> Resources:
        """It compiles, and takes no more than it may.

        A few bytes are no want of registers: ptxas leaves values in memory across the call of a
        subroutine, such as a division's slow path. They are where registers have run out.
        """
        source = self.kernel.instance(**self.template).source
        found = resources(source, architecture)
        told = f"{self.label} on sm_{architecture}: {found}"
        most = min(255, 65536 // self.kernel.threads // 8 * 8)  # a launch gets them by eights
        assert found.spilled == 0 or found.registers <= most - 16, f"{told}; it has run out"
        assert found.stack <= self.stack, f"{told}; at most {self.stack} bytes of stack"
        assert found.registers <= self.registers, f"{told}; at most {self.registers} registers"
        assert found.registers <= most, told
        return found


def instances() -> Iterator[Instance]:
    """Every instance a module of `lucid_gpu.kernels` lists in ``INSTANCES``.

    A module may set bounds by the name of a kernel: ``REGISTERS`` (else 255) and ``STACK``, bytes
    of local memory (else 64).
    """
    for family, kernel, template in precompile.instances():
        yield Instance(
            family.__name__.rpartition(".")[2],
            kernel,
            template,
            getattr(family, "REGISTERS", {}).get(kernel.name, 255),
            getattr(family, "STACK", {}).get(kernel.name, 64),
        )
