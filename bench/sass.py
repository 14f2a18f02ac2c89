"""What each hand-written kernel can reach at most on an H100, read from its machine code.

Nothing is run: NVRTC compiles every instance that `lucid_gpu.precompile` knows for sm_90, nvdisasm
(NVIDIA's, from PyPI) lists the instructions, and the innermost loop that does most of the work is
held against what a multiprocessor can do in a cycle. The ceiling is the share of its scarcest
resource that a kernel would reach if nothing ever waited: tensor cores where the loop uses them,
else arithmetic of floats or memory. It is an upper bound and no measurement: caches, latencies,
barriers and the code outside of the loop are not in it.

``python -m bench.sass`` writes ``bench/results/sass.md``; ``--only attention`` prints those rows.
"""

from __future__ import annotations

import argparse
import importlib.util
import re
import struct
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from bench.report import RESULTS
from lucid_gpu import precompile
from lucid_gpu.launch import nvrtc
from lucid_gpu.launch.source import complete

ARCHITECTURE = 90
REGISTERS = 1 << 16
LANES = 32

# Cycles of one of the four schedulers that a warp's instruction takes, of an H100 SXM at 1.755 GHz:
# its tensor cores make 512 products of 16-bit floats a cycle and scheduler, its special units 4
# lanes; shared memory gives a multiprocessor 128 bytes a cycle, memory 3.35 TB/s to 132 of them.
# NVIDIA, "H100 Tensor Core GPU Architecture" (2022), tables 2 and 3; CUDA C++ Programming Guide,
# "Throughput of Native Arithmetic Instructions".
PRODUCTS = 512
SPECIAL = LANES / 4
SHARED = 4 / 128  # a byte
MEMORY = 4 * 132 * 1.755e9 / 3.35e12  # a byte

_TENSOR = ("HMMA", "HGMMA")
_LABEL = re.compile(r"\s*(\.L_x_\d+):")
_ENDS = ("BRA", "EXIT", "RET", "BRX", "JMP")  # what goes on only where a predicate is false
_CODE = re.compile(r"\s+/\*[0-9a-f]+\*/\s+(@!?U?P\w+\s+)?([A-Z][A-Zx0-9_.]*)([^;]*);")
_REGISTERS = re.compile(rb"\x04\x2f\x08\x00....(....)", re.DOTALL)  # EIATTR_REGCOUNT: symbol, count


class Processor(NamedTuple):
    """What a multiprocessor has: bytes of shared memory, threads, blocks.

    CUDA C++ Programming Guide, "Technical Specifications per Compute Capability".
    """

    shared: int
    threads: int
    blocks: int


PROCESSORS = {
    80: Processor(164 << 10, 2048, 32),
    89: Processor(100 << 10, 1536, 24),
    90: Processor(228 << 10, 2048, 32),
    120: Processor(100 << 10, 1536, 24),
}


def resident(processor: Processor, threads: int, registers: int, shared: int) -> int:
    """Return how many warps of a kernel a multiprocessor holds.

    Registers are given to a warp by 256, out of a quarter of all, each quarter with a scheduler;
    the system takes 1 KiB of shared memory for every block.
    """
    warps = -(-threads // 32)
    of_warp = -(-max(registers, 1) * 32 // 256) * 256
    by_registers = 4 * (REGISTERS // 4 // of_warp) // warps
    by_shared = processor.shared // (shared + 1024)
    by_threads = processor.threads // (warps * 32)
    return warps * min(by_registers, by_shared, by_threads, processor.blocks)


class Loop(NamedTuple):
    """Instructions of a warp in one turn of a loop, and the bytes its lanes move there.

    ``multiplying`` are the cycles that its tensor cores multiply.
    """

    instructions: int
    tensor: int
    multiplying: float
    products: int
    special: int
    shared: int
    memory: int

    @property
    def others(self) -> float:
        """Instructions beside each product of the tensor cores."""
        return (self.instructions - self.tensor) / self.tensor

    @property
    def work(self) -> float:
        """Cycles for products of floats or for memory, what takes longer."""
        return max(self.products, self.memory * MEMORY)

    def ceiling(self) -> float:
        """Return the share of its own peak that the loop reaches at most."""
        work = self.multiplying or self.work
        others = self.special * SPECIAL, self.shared * SHARED
        return work / max(self.instructions, work, *others)


class Kernel(NamedTuple):
    """An instance: what it takes, and its innermost loop."""

    label: str
    registers: int
    warps: int
    local: int
    instructions: int
    loop: Loop


def disassembler() -> str:
    """Return nvdisasm's path.

    Raises
    ------
    FileNotFoundError
        Where it is not installed.
    """
    found = importlib.util.find_spec("nvidia")
    for folder in [] if found is None else found.submodule_search_locations or ():
        for path in Path(folder).glob("*/bin/nvdisasm"):
            return str(path)
    raise FileNotFoundError("nvdisasm is missing: python -m pip install nvidia-cuda-nvdisasm")


def listed(code: bytes) -> str:
    """Return the instructions of a cubin as text."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(code + b"\0")  # CuPy's binding drops the last byte
        file.flush()
        command = [disassembler(), "-c", file.name]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout


class Instruction(NamedTuple):
    """An instruction: its name, where it may go, and whether it may also go on."""

    name: str
    target: int | None
    goes_on: bool


def parsed(text: str) -> list[Instruction]:
    """Return instructions; a branch's target is the number of the instruction it goes to."""
    found: list[tuple[str, str, str]] = []
    labels: dict[str, int] = {}
    for line in text.splitlines():
        if label := _LABEL.match(line):
            labels[label[1]] = len(found)
        elif match := _CODE.match(line):
            found.append((match[1] or "", match[2], match[3]))
    code = []
    for predicate, name, operands in found:
        label = re.search(r"\.L_x_\d+", operands) if name.startswith("BRA") else None
        target = labels.get(label[0]) if label else None
        code.append(Instruction(name, target, bool(predicate) or not name.startswith(_ENDS)))
    return code


def turns(code: Sequence[Instruction]) -> Iterator[Sequence[Instruction]]:
    """Yield a turn of each loop: the way that multiplies and loads most by fewest instructions.

    So parts that edges and masks need are left out where a branch goes past them.
    """
    tensor = any(name.startswith(_TENSOR) for name, *_ in code)
    product = _TENSOR if tensor else ("FFMA",)
    for last, branch in enumerate(code):
        if branch.target is None or branch.target >= last:
            continue
        best: dict[int, tuple[Any, int]] = {last: ((0, 0, -1), last)}
        for at in range(last - 1, branch.target - 1, -1):
            name, target, goes_on = code[at]
            ways = [at + 1] if goes_on or (target is not None and target <= at) else []
            ways += [target] if target is not None and at < target <= last else []
            known = [(best[way][0], way) for way in ways if way in best]
            if known:
                (tensor, loads, length), way = max(known)
                tensor += name.startswith(product)
                loads += name.startswith(("LDG", "LDGSTS"))
                best[at] = (tensor, loads, length - 1), way
        turn, at = [], branch.target
        while at in best:
            turn.append(code[at])
            if at == last:
                yield turn
                break
            at = best[at][1]


def counted(code: Sequence[Instruction]) -> Loop:
    """Return what a warp does in these instructions."""
    counts: Counter[str] = Counter()
    for name, *_ in code:
        kind = name.split(".")[0]
        if kind in _TENSOR:
            counts["tensor"] += 1
            counts["multiplying"] += 16 * 8 * 16 if kind == "HMMA" else 16 * 16 * _columns(name)
        if kind == "HGMMA":  # four warps share the right operand
            counts["shared"] += 16 * 2 * _columns(name) // 4
        elif kind in ("FFMA", "MUFU"):
            counts[kind] += 1
        elif kind in ("LDG", "STG", "LDGSTS"):
            counts["memory"] += LANES * _width(name)
        if kind in ("LDS", "STS", "LDGSTS"):
            counts["shared"] += LANES * _width(name)
        elif kind in ("LDSM", "STSM"):
            counts["shared"] += LANES * 4 * int(name[-1] if name[-1].isdigit() else 1)
    kinds = "FFMA", "MUFU", "shared", "memory"
    multiplying = counts["multiplying"] / PRODUCTS
    return Loop(len(code), counts["tensor"], multiplying, *[counts[kind] for kind in kinds])


def _columns(name: str) -> int:
    """Return the columns of HGMMA.64x128x16."""
    return int(name.split("x")[1])


def _width(name: str) -> int:
    """Return the bytes that a lane moves by an instruction."""
    parts = name.split(".")
    widths = {"128": 16, "64": 8, "U16": 2, "S16": 2, "U8": 1, "S8": 1}
    return next((bytes_ for part, bytes_ in widths.items() if part in parts), 4)


def busiest(code: Sequence[Instruction]) -> Loop:
    """Return the loop with most products of tensor cores, or else most work a turn.

    Of a kernel without loops that is all of it.
    """
    found = [counted(turn) for turn in turns(code)]
    return max(found or [counted(code)], key=lambda loop: (loop.tensor, loop.work))


def _static(binary: bytes) -> int:
    """Return the bytes of shared memory that a cubin declares: its sections without contents."""
    (start,), (count,) = struct.unpack_from("<Q", binary, 40), struct.unpack_from("<H", binary, 60)
    sections = [struct.unpack_from("<IIQQQQ", binary, start + 64 * i) for i in range(count)]
    return sum(size for _, kind, _, _, _, size in sections if kind == 8)


def read(module: Any, kernel: Any, template: dict[str, Any]) -> Kernel:
    """Return what the code of an instance tells."""
    instance = kernel.instance(**template)
    path = nvrtc.kept(complete(instance.source), instance.name, nvrtc.OPTIONS, ARCHITECTURE)
    binary = path.read_bytes()
    code = parsed(listed(binary))
    registers = max(int.from_bytes(n, "little") for n in _REGISTERS.findall(binary))
    dynamic = getattr(module, "shared_bytes", lambda *_: 0)(template, kernel)
    warps = resident(PROCESSORS[ARCHITECTURE], kernel.threads, registers, dynamic + _static(binary))
    values = [getattr(v, "name", str(v)) for v in template.values()]
    local = sum(name.split(".")[0] in ("LDL", "STL") for name, *_ in code)
    label = " ".join([kernel.name, *values])
    return Kernel(label, registers, warps, local, len(code), busiest(code))


def kernels(only: str = "") -> Iterator[Kernel]:
    """Yield the instances whose kernel's name contains ``only``."""
    chosen = {}
    for module, kernel, template in precompile.instances():
        if only in kernel.name:
            key = (kernel.name, *map(str, template.values()))
            chosen[key] = module, kernel, template
    with ThreadPoolExecutor() as pool:
        yield from pool.map(lambda i: read(*i), chosen.values())


HEAD = f"""\
# What hand-written kernels can reach at most

Written by `python -m bench.sass` from the machine code for sm_{ARCHITECTURE}; **nothing here was
measured on a GPU.** A loop is the one that does most of the work: a warp's instructions in one
turn that no edge slows, the tensor cores' products among them, instructions beside each product,
special functions, bytes of shared memory and of global memory (the caches' included). Local:
accesses to spilled registers. Warps: how many of 64 a multiprocessor holds. Ceiling: the share of
an H100's peak, of its tensor cores or else of its float arithmetic or memory, that the loop reaches
if nothing ever waits.

| kernel | registers | warps | local | code | loop | products | others each | special | shared \
| global | ceiling |
|{" --- |" * 12}
"""


def line(kernel: Kernel) -> str:
    """Return a kernel's row."""
    loop = kernel.loop
    others = f"{loop.others:.1f}" if loop.tensor else ""
    ceiling = f"{loop.ceiling():.0%}" if loop.tensor or loop.work else ""
    numbers = kernel.registers, kernel.warps, kernel.local, kernel.instructions, loop.instructions
    rest = loop.tensor or "", others, loop.special, f"{loop.shared:,}", f"{loop.memory:,}", ceiling
    cells = (kernel.label, *numbers, *rest)
    return f"| {' | '.join(map(str, cells))} |"


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the table, or print a part of it."""
    flags = argparse.ArgumentParser(prog="python -m bench.sass", description=__doc__.split("\n")[0])
    flags.add_argument("--only", default="", help="kernels whose name contains this, printed")
    options = flags.parse_args(arguments)
    try:
        rows = [line(kernel) for kernel in kernels(options.only)]
    except (FileNotFoundError, ImportError) as error:
        print(f"sass: {error}", file=sys.stderr)
        return 1
    if options.only:
        print(*rows, sep="\n")
    else:
        (RESULTS / "sass.md").write_text(HEAD + "\n".join(rows) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
